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
    try:
        with np.load(path, allow_pickle=False) as stored:
            if not hasattr(stored, "files"):
                raise InputError(
                    f"{path} is a single array under the name .npz; rename it to .npy and give "
                    "--labels."
                )
            missing = [
                name
                for name in ("x", "y", *([weight_name] if weight_name else []))
                if name not in stored.files
            ]
            if missing:
                raise InputError(
                    f"{path} has no array {missing[0]!r}; it holds {', '.join(stored.files)} "
                    "(np.savez(file, x=…, y=…) makes one)."
                )
            x = stored["x"]
            y = stored["y"]
            weight = stored[weight_name] if weight_name else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise unreadable(path, ".npz file", error) from error
    return Source(path.name, Dataset(x, y, weight), "standard", images=_images(x))


def npy(path: Path, labels: Path | None) -> Source:
    """A matrix of features and, in a file of its own, the labels."""
    if labels is None:
        raise InputError(f"{path} holds features only; give the labels with --labels FILE.npy.")
    x = _array(path)
    y = _array(labels)
    return Source(path.name, Dataset(x, y), "standard", images=_images(x))


def _array(path: Path) -> Array:
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, ".npy file", error) from error
    if not isinstance(stored, np.ndarray):
        raise InputError(f"{path} is an archive of several arrays; rename it to .npz.")
    return stored


def unreadable(path: Path, kind: str, error: Exception) -> InputError:
    """The error for a file that is not what its name says, cut short, or not ours to read."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist; check the name.")
    if isinstance(error, PermissionError):
        return InputError(f"{path} cannot be read: no permission; change its mode or copy it.")
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
    shown = (x - low) / (high - low if high > low else 1.0)
    return shown[:, 0] if x.shape[1] == 1 else shown.transpose(0, 2, 3, 1)
