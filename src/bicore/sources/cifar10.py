"""CIFAR-10 in torchvision's layout: DIR/cifar-10-batches-py/{data_batch_1 … 5, test_batch}.

Its official files are pickles. `bicore.sources.pickles` reads them without Python's unpickler: a
file can hold arrays, dicts, lists, numbers and text, and no code of a hostile file runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources.failures import foreign
from bicore.sources.pickles import Call, as_array, as_whole_number, load_plain
from bicore.sources.reading import Allowance

#: The constants by which the paper standardises the three channels.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
_SPLITS = {"train": [f"data_batch_{part}" for part in range(1, 6)], "test": ["test_batch"]}
CLASSES = 10
PIXELS = 3 * 32 * 32
#: Bytes of a pixel: as stored, as a standardised float32, and as a float64 for display.
_PIXEL = 1 + 4 + 8
#: Copies of a file while it is read: its content, a text (up to 4 bytes a character), its bytes.
_COPIES = 1 + 4 + 1
#: Pickle operations of an empty file, and of one image: its label and its name take up to 20.
_OPERATIONS = (1000, 32)


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
        If a file is missing, damaged, or holds anything but plain data.
    MemoryLimitError
        If the images do not fit into half of the free memory.

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
    folder: str | os.PathLike[str],
    split: str = "train",
    limit: int | None = None,
    allowance: Allowance | None = None,
) -> tuple[Array, Array]:
    """Read bytes (n, 3, 32, 32) and labels; file sizes are checked against the allowance first."""
    if split not in _SPLITS:
        raise InputError(f"split={split!r} is not known; it is 'train' or 'test'.")
    paths = [Path(folder) / "cifar-10-batches-py" / name for name in _SPLITS[split]]
    _need_memory(paths, limit, allowance or Allowance.of(None))
    images: list[Array] = []
    labels: list[Array] = []
    rows = 0
    for path in paths:
        if limit is not None and rows >= limit:
            break
        batch = _read_batch(path)
        images.append(batch[0])
        labels.append(batch[1])
        rows += len(batch[1])
    return np.concatenate(images)[:limit], np.concatenate(labels)[:limit]


def _need_memory(paths: list[Path], limit: int | None, allowance: Allowance) -> None:
    """Refuse files whose images do not fit; missing ones are reported when they are read."""
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    rows = sum(sizes) // PIXELS
    rows = rows if limit is None else min(rows, limit)
    size = rows * PIXELS * _PIXEL + _COPIES * max(sizes, default=0)
    allowance.need(size, f"{rows} images of CIFAR-10")


def _read_batch(path: Path) -> tuple[Array, Array]:
    """Read the images and labels of one file."""
    if not path.is_file():  # a FIFO would never end
        raise InputError(
            f"{path} does not exist as a regular file; put CIFAR-10's data_batch_1 … "
            "data_batch_5 and test_batch there, as torchvision lays them out."
        )
    with foreign(path, "CIFAR-10 file"):
        content = path.read_bytes()
        first, each = _OPERATIONS
        stored = load_plain(content, first + each * (len(content) // PIXELS))
        images = as_array(stored["data"])
        labels = _read_labels(stored["labels"])
        if images.dtype != np.uint8 or images[:1].size != PIXELS:
            raise ValueError(f"its images are not {PIXELS} bytes each")
        if len(images) != len(labels):
            raise ValueError(f"it has {len(images)} images and {len(labels)} labels")
        return images.reshape(-1, 3, 32, 32), labels


def _read_labels(stored: Any) -> Array:
    """Read labels from a list or an array."""
    values = as_array(stored).tolist() if isinstance(stored, Call) else stored
    labels = np.array([as_whole_number(value) for value in values], dtype=np.int64)
    if not ((labels >= 0) & (labels < CLASSES)).all():
        raise ValueError(f"a label is not in 0 … {CLASSES - 1}")
    return labels
