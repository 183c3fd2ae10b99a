""".npz with x and y, or .npy with a second .npy of labels; pickles inside are refused."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.sources.base import Source
from bicore.sources.failures import foreign
from bicore.sources.reading import Reading
from bicore.sources.sparse import PARTS, dense
from bicore.sources.stored import Stored, stored

#: How files of one array and of several begin.
_ONE = b"\x93NUMPY"
_SEVERAL = b"PK"


def npz(path: Path, reading: Reading) -> Source:
    """Arrays named x and y, and one of weights where asked for.

    A sparse matrix as scipy writes it stands for x, with y beside it or in a file of its own.
    """
    with foreign(path, ".npz file"), open(path, "rb") as file:
        if _begins(file) == _ONE:
            raise InputError(
                f"{path} is a single array under the name .npz; rename it to .npy and give "
                "--labels."
            )
        with zipfile.ZipFile(file) as archive:
            x, y, weight = _columns(path, archive, reading)
    return _source(path, x, y, weight)


def _columns(
    path: Path, archive: zipfile.ZipFile, reading: Reading
) -> tuple[Array, Array, Array | None]:
    held = [name.removesuffix(".npy") for name in archive.namelist()]

    def read(name: str, limit: bool = True) -> Array:
        with archive.open(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name) as member:
            header: Stored = stored(member, f"{path}, array {name!r}")
            return header.read(reading if limit else reading.whole())

    sparse = "x" not in held and set(PARTS) <= set(held)
    needed = [] if sparse else ["x"]
    needed += ["y"] if reading.labels is None else []
    needed += [] if reading.weight is None else [reading.weight]
    _need(path, held, needed)
    if sparse:
        x = dense(str(path), {name: read(name, limit=False) for name in PARTS}, reading)
    else:
        x = read("x")
    y = read("y") if reading.labels is None else _array(Path(reading.labels), reading)
    return x, y, None if reading.weight is None else read(reading.weight)


def _need(path: Path, held: Sequence[str], needed: Sequence[str]) -> None:
    for name in needed:
        if name not in held:
            raise InputError(
                f"{path} has no array {name!r}; it holds {', '.join(held) or 'nothing'} "
                "(np.savez(file, x=…, y=…) makes one, --labels FILE.npy gives labels)."
            )


def npy(path: Path, reading: Reading) -> Source:
    """A matrix of features and, in a file of its own, the labels."""
    if reading.labels is None:
        raise InputError(f"{path} holds features only; give the labels with --labels FILE.npy.")
    return _source(path, _array(path, reading), _array(Path(reading.labels), reading), None)


def _source(path: Path, x: Array, y: Array, weight: Array | None) -> Source:
    # Vectors are as their maker had them, most often embeddings; pixels come to one scale.
    scale = "none" if x.ndim == 2 else "standard"
    return Source(path.name, Dataset(x, y, weight), scale, images=_images(x))


def _array(path: Path, reading: Reading) -> Array:
    with foreign(path, ".npy file"), open(path, "rb") as file:
        if _begins(file).startswith(_SEVERAL):
            raise InputError(f"{path} is an archive of several arrays; rename it to .npz.")
        return stored(file, str(path)).read(reading)


def _begins(file: IO[bytes]) -> bytes:
    """The first bytes of a file, which is then at its beginning again."""
    found = file.read(len(_ONE))
    file.seek(0)
    return found


def _images(x: Array) -> Array | None:
    """Images for a picture where the array has their shape, brought to 0 … 1."""
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not x.size or x.dtype.kind not in "biuf":
        return None
    low = float(x.min())
    high = float(x.max())
    scaled = (x - low) / (high - low if high > low else 1.0)
    return scaled[:, 0] if x.shape[1] == 1 else scaled.transpose(0, 2, 3, 1)
