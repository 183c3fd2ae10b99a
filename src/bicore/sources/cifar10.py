"""CIFAR-10 in torchvision's layout: DIR/cifar-10-batches-py/{data_batch_1 … 5, test_batch}.

Its official files are pickles. They are read by an unpickler that admits arrays, dicts, lists,
numbers and strings only: anything else in a file is refused, and no code of a hostile file runs.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError

#: The constants by which the paper standardises the three channels.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
_SPLITS = {"train": [f"data_batch_{part}" for part in range(1, 6)], "test": ["test_batch"]}
#: What NumPy's arrays ask for, under its old and its new name.
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def cifar10(
    folder: str | os.PathLike[str], split: str = "train", limit: int | None = None
) -> tuple[Array, Array]:
    """CIFAR-10 from the files torchvision lays out.

    Parameters
    ----------
    folder : path
        Holds ``cifar-10-batches-py``.
    split : "train" or "test"
        Which part.
    limit : int, optional
        The first so many; default: all.

    Returns
    -------
    tuple of array
        Standardised images (n, 3, 32, 32) as float32, and labels.

    Raises
    ------
    InputError
        Where a file is missing, damaged, or holds anything but plain data.

    Examples
    --------
    >>> import pickle, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "cifar-10-batches-py").mkdir()
    >>> batch = {"data": np.zeros((2, 3072), dtype=np.uint8), "labels": [3, 8]}
    >>> with open(folder / "cifar-10-batches-py" / "test_batch", "wb") as file:
    ...     pickle.dump(batch, file)
    >>> x, y = cifar10(folder, split="test")
    >>> x.shape, y.tolist()
    ((2, 3, 32, 32), [3, 8])
    """
    pixels, labels = cifar10_pixels(folder, split, limit)
    return standard_cifar10(pixels), labels


def standard_cifar10(pixels: Array) -> Array:
    """Bytes as standardised float32."""
    mean = np.array(MEAN, dtype=np.float32)[:, None, None]
    std = np.array(STD, dtype=np.float32)[:, None, None]
    return np.asarray((pixels.astype(np.float32) / 255 - mean) / std)


def cifar10_pixels(
    folder: str | os.PathLike[str], split: str = "train", limit: int | None = None
) -> tuple[Array, Array]:
    """Bytes (n, 3, 32, 32) and labels."""
    if split not in _SPLITS:
        raise InputError(f"split={split!r} is not known; it is 'train' or 'test'.")
    place = Path(folder) / "cifar-10-batches-py"
    images: list[Array] = []
    labels: list[int] = []
    for name in _SPLITS[split]:
        if limit is not None and len(labels) >= limit:
            break
        batch = _batch(place / name)
        images.append(batch[0])
        labels += batch[1]
    return np.concatenate(images)[:limit], np.array(labels, dtype=np.int64)[:limit]


def _batch(path: Path) -> tuple[Array, list[int]]:
    if not path.exists():
        raise InputError(
            f"{path} does not exist; put CIFAR-10's data_batch_1 … data_batch_5 and test_batch "
            "there, as torchvision lays them out."
        )
    try:
        with open(path, "rb") as file:
            stored = _Careful(file, encoding="latin1").load()
        data = np.asarray(stored["data"], dtype=np.uint8)
        labels = [int(label) for label in stored["labels"]]
        return data.reshape(-1, 3, 32, 32), labels
    except InputError:
        raise
    except Exception as error:  # a damaged pickle fails in any number of ways
        raise InputError(
            f"{path} is not one of CIFAR-10's files ({error}); it may be truncated: fetch it again."
        ) from error


class _Careful(pickle.Unpickler):
    """Loads plain data and arrays; any other name in a file is refused before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise InputError(
                f"the file asks for {module}.{name}, which plain data has no use for: it is "
                "refused, and nothing of it was run."
            )
        return super().find_class(module, name)
