""".npz with x and y, or .npy with a second .npy of labels; pickles inside are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.sources.base import Source


def npz(path: Path, weight_name: str | None = None) -> Source:
    """Arrays named x and y, and one of weights where asked for."""
    names = ["x", "y"] if weight_name is None else ["x", "y", weight_name]
    try:
        x, y, *weight = _members(path, names)
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise unreadable(path, ".npz file", error) from error
    data = Dataset(x, y, weight[0] if weight else None)
    return Source(path.name, data, _usual(x), images=_images(x))


def _members(path: Path, names: list[str]) -> list[Array]:
    stored = np.load(path, allow_pickle=False)
    if isinstance(stored, np.ndarray):
        raise InputError(
            f"{path} is a single array under the name .npz; rename it to .npy and give --labels."
        )
    with stored:
        missing = [name for name in names if name not in stored.files]
        if missing:
            raise InputError(
                f"{path} has no array {missing[0]!r}; it holds {', '.join(stored.files)} "
                "(np.savez(file, x=…, y=…) makes one)."
            )
        return [stored[name] for name in names]


def npy(path: Path, labels: Path | None) -> Source:
    """A matrix of features and, in a file of its own, the labels."""
    if labels is None:
        raise InputError(f"{path} holds features only; give the labels with --labels FILE.npy.")
    x = _array(path)
    y = _array(labels)
    return Source(path.name, Dataset(x, y), _usual(x), images=_images(x))


def _usual(x: Array) -> str:
    """Vectors are as their maker had them, most often embeddings; pixels come to one scale."""
    return "none" if x.ndim == 2 else "standard"


def _array(path: Path) -> Array:
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, ".npy file", error) from error
    if not isinstance(stored, np.ndarray):
        raise InputError(f"{path} is an archive of several arrays; rename it to .npz.")
    return stored


#: What the system's refusals mean for a file.
_REFUSALS = {
    FileNotFoundError: "does not exist; check the name.",
    PermissionError: "cannot be read: no permission; change its mode or copy it.",
}


def unreadable(path: Path, kind: str, error: Exception) -> InputError:
    """The error for a file that is not what its name says, cut short, or not ours to read."""
    for refusal, words in _REFUSALS.items():
        if isinstance(error, refusal):
            return InputError(f"{path} {words}")
    first = (str(error).splitlines() or ["?"])[0]
    return InputError(
        f"{path} is not a readable {kind} ({first}); it may be truncated or of another format."
    )


def _images(x: Array) -> Array | None:
    """Images for a picture where the array has their shape, brought to 0 … 1."""
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        return None
    low = float(x.min())
    high = float(x.max())
    scaled = (x - low) / (high - low if high > low else 1.0)
    return scaled[:, 0] if x.shape[1] == 1 else scaled.transpose(0, 2, 3, 1)
