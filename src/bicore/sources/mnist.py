"""MNIST in torchvision's layout, gzipped or not.

DIR/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources.reading import Allowance

#: The constants by which the paper standardises pixels.
MEAN = 0.1307
STD = 0.3081
#: Bytes of a pixel: as it is stored, as a float, and as a standardised one.
FLOATS = 1 + 4 + 4


def mnist(
    folder: str | os.PathLike[str], split: str = "train", limit: int | None = None
) -> tuple[Array, Array]:
    """MNIST from the files torchvision lays out.

    Parameters
    ----------
    folder : path
        Holds ``MNIST/raw``.
    split : "train" or "test"
        Which part.
    limit : int, optional
        The first so many; default: all.

    Returns
    -------
    tuple of array
        Standardised images (n, 1, 28, 28) as float32, and labels.

    Raises
    ------
    InputError
        Where a file is missing, truncated or of another format.

    Examples
    --------
    >>> import struct, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "MNIST" / "raw").mkdir(parents=True)
    >>> images = struct.pack(">4I", 0x803, 2, 28, 28) + bytes(2 * 28 * 28)
    >>> labels = struct.pack(">2I", 0x801, 2) + bytes([7, 1])
    >>> _ = (folder / "MNIST/raw/t10k-images-idx3-ubyte").write_bytes(images)
    >>> _ = (folder / "MNIST/raw/t10k-labels-idx1-ubyte").write_bytes(labels)
    >>> x, y = mnist(folder, split="test")
    >>> x.shape, y.tolist()
    ((2, 1, 28, 28), [7, 1])
    """
    return mnist_within(folder, split, limit, Allowance.of(None))


def mnist_within(
    folder: str | os.PathLike[str], split: str, limit: int | None, allowance: Allowance
) -> tuple[Array, Array]:
    """The same within a limit of memory, which headers are held against."""
    prefix = {"train": "train", "test": "t10k"}.get(split)
    if prefix is None:
        raise InputError(f"split={split!r} is not known; it is 'train' or 'test'.")
    images = _read(Path(folder), f"{prefix}-images-idx3-ubyte", 3, limit, allowance)
    labels = _read(Path(folder), f"{prefix}-labels-idx1-ubyte", 1, limit, allowance)
    if len(images) != len(labels):
        raise InputError(
            f"{folder}: {len(images)} images and {len(labels)} labels; the two files do not belong "
            "together."
        )
    pixels = (images.astype(np.float32) / 255 - MEAN) / STD
    return pixels[:, None].astype(np.float32), labels.astype(np.int64)


def _read(
    folder: Path, name: str, dimensions: int, limit: int | None, allowance: Allowance
) -> Array:
    raw = folder / "MNIST" / "raw"
    for path in (raw / f"{name}.gz", raw / name):
        if path.exists():
            return _parse(path, dimensions, limit, allowance)
    raise InputError(
        f"{raw} does not hold {name}(.gz); put MNIST's four files there, as torchvision lays them "
        "out."
    )


def _parse(path: Path, dimensions: int, limit: int | None, allowance: Allowance) -> Array:
    """The IDX format, big-endian: two zero bytes, the type (8: unsigned byte), the dimensions."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            head = file.read(4 + 4 * dimensions)
            magic, *shape = struct.unpack(f">{1 + dimensions}I", head)
            if magic != 0x800 + dimensions:
                raise InputError(
                    f"{path} is not an IDX file of {dimensions} dimensions (it starts with "
                    f"{magic:#010x})."
                )
            shape[0] = shape[0] if limit is None else min(limit, shape[0])
            count = math.prod(shape)
            allowance.need(count * FLOATS, f"{path} of shape {'×'.join(map(str, shape))}")
            body = file.read(count)
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read ({error}); it may be truncated: fetch it again."
        ) from error
    if len(body) != count:
        raise InputError(
            f"{path} holds {len(body)} of {count} bytes; it is truncated: fetch it again."
        )
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)
