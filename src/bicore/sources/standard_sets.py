"""Standard data sets: digits of scikit-learn, and MNIST and CIFAR-10 in torchvision's layout.

DIR/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte, gzipped or not, and
DIR/cifar-10-batches-py/{data_batch_1 … 5, test_batch}. The latter are pickles, which are read
without Python's unpickler: `pickletools` splits a pickle into operations, and the pixels and labels
are taken from their arguments. Nothing is imported, called or built.
"""

from __future__ import annotations

import gzip
import itertools
import math
import operator
import os
import pickletools
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from bicore._deprecated import renamed_keywords
from bicore.data import Array, Dataset
from bicore.errors import InputError, check_name
from bicore.sources.base import Source
from bicore.sources.reading import Allowance, Reading, report_unreadable
from bicore.types import PathLike

STANDARD_SETS = ("digits", "mnist", "cifar10")
#: The constants by which the paper standardises the pixels of MNIST …
MEAN = 0.1307
STD = 0.3081
#: … and the three channels of CIFAR-10.
CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2023, 0.1994, 0.2010)
_MNIST = {"train": "train", "test": "t10k"}
_CIFAR = {"train": [f"data_batch_{part}" for part in range(1, 6)], "test": ["test_batch"]}
_CLASSES = 10
_PIXELS = 3 * 32 * 32
#: Bytes of a pixel of MNIST: stored, as a float32, and standardised.
_MNIST_PIXEL = 1 + 4 + 4
#: Bytes of a pixel of CIFAR-10: stored, standardised, and as a float64 for display.
_CIFAR_PIXEL = 1 + 4 + 8
#: Copies of a file while it is read: its content, a text (up to 4 bytes a character), its bytes.
_COPIES = 1 + 4 + 1
#: Keys of a batch, and pickle operations whose arguments are no values.
_KEYS = ("batch_label", "labels", "data", "filenames")
_MEMO = re.compile("GLOBAL|PUT|GET|MEMO|PROTO|FRAME")
#: Pickle operations of an empty file, and of one image: its label and its name take up to 20.
_OPERATIONS = (1000, 32)


def digits() -> tuple[Array, Array]:
    """1797 handwritten digits of 8×8 pixels, and their labels.

    Returns
    -------
    tuple of array
        Pixels (1797, 64), scaled to 0 … 1, and labels 0 … 9.

    Examples
    --------
    >>> x, y = digits()
    >>> x.shape, int(y.max())
    ((1797, 64), 9)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.asarray(bunch.data, dtype=np.float64) / 16.0, np.asarray(bunch.target, dtype=np.int64)


@renamed_keywords()
def mnist(folder: PathLike, split: str = "train", limit: int | None = None) -> tuple[Array, Array]:
    """Load MNIST from the files of torchvision.

    Parameters
    ----------
    folder : path
        Holds ``MNIST/raw``.
    split : "train" or "test"
        Part of the data.
    limit : int, optional
        Read only the first ``limit`` images (default: all).

    Returns
    -------
    tuple of array
        Standardised images (n, 1, 28, 28) as float32, and labels.

    Raises
    ------
    InputError
        If a file is missing, truncated or of another format.

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
    return _load_mnist(folder, split, Reading(limit=limit))


def _load_mnist(folder: PathLike, split: str, reading: Reading) -> tuple[Array, Array]:
    check_name("split", split, _MNIST)
    images, labels = (
        _read_idx(Path(folder), f"{_MNIST[split]}-{name}", dimensions, reading)
        for name, dimensions in (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1))
    )
    if len(images) != len(labels):
        counts = f"{folder}: {len(images)} images and {len(labels)} labels"
        raise InputError(f"{counts}; the two files do not belong together.")
    pixels = (images.astype(np.float32) / 255 - MEAN) / STD
    return pixels[:, None].astype(np.float32), labels.astype(np.int64)


def _read_idx(folder: Path, name: str, dimensions: int, reading: Reading) -> Array:
    """Read an IDX file, big-endian: two zero bytes, the type (8: a byte), the dimensions."""
    raw = folder / "MNIST" / "raw"
    path = next((one for one in (raw / f"{name}.gz", raw / name) if one.exists()), None)
    if path is None:
        lacks = f"{raw} does not hold {name}(.gz)"
        raise InputError(f"{lacks}; put MNIST's four files there, as torchvision lays them out.")
    opener = gzip.open if path.suffix == ".gz" else open
    with report_unreadable(path, "IDX file"), opener(path, "rb") as file:
        magic, *shape = struct.unpack(f">{1 + dimensions}I", file.read(4 + 4 * dimensions))
        if magic != 0x800 + dimensions:
            found = f"it starts with {magic:#010x}"
            raise ValueError(f"it does not have {dimensions} dimensions: {found}")
        shape[0] = min(shape[0], reading.limit or shape[0])
        count = math.prod(shape)
        sides = "×".join(map(str, shape))
        reading.allowance.require(count * _MNIST_PIXEL, f"{path} of shape {sides}")
        body = file.read(count)
        if len(body) != count:
            raise ValueError(f"it holds {len(body)} of {count} bytes")
        return np.frombuffer(body, dtype=np.uint8).reshape(shape)


@renamed_keywords()
def cifar10(
    folder: PathLike, split: str = "train", limit: int | None = None
) -> tuple[Array, Array]:
    """Load CIFAR-10 from the files of torchvision.

    Parameters
    ----------
    folder : path
        Holds ``cifar-10-batches-py``.
    split : "train" or "test"
        Part of the data.
    limit : int, optional
        Read only the first ``limit`` images (default: all).

    Returns
    -------
    tuple of array
        Standardised images (n, 3, 32, 32) as float32, and labels.

    Raises
    ------
    InputError
        If a file is missing, damaged, or holds anything but plain data.
    MemoryLimitError
        If the images do not fit into 4 GB.

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
    mean = np.array(CIFAR_MEAN, dtype=np.float32)[:, None, None]
    std = np.array(CIFAR_STD, dtype=np.float32)[:, None, None]
    return np.asarray((pixels.astype(np.float32) / 255 - mean) / std)


def cifar10_pixels(
    folder: PathLike,
    split: str = "train",
    limit: int | None = None,
    allowance: Allowance | None = None,
) -> tuple[Array, Array]:
    """Read bytes (n, 3, 32, 32) and labels; file sizes are checked against the allowance first."""
    check_name("split", split, _CIFAR)
    paths = [Path(folder) / "cifar-10-batches-py" / name for name in _CIFAR[split]]
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    rows = min(sum(sizes) // _PIXELS, limit or sum(sizes))
    needed = rows * _PIXELS * _CIFAR_PIXEL + _COPIES * max(sizes, default=0)
    (allowance or Allowance()).require(needed, f"{rows} images of CIFAR-10")
    batches: list[tuple[Array, Array]] = []
    for path in paths:
        if limit is None or sum(len(labels) for _, labels in batches) < limit:
            batches.append(_read_batch(path))
    images, labels = (np.concatenate(parts)[:limit] for parts in zip(*batches, strict=True))
    return images, labels


def _read_batch(path: Path) -> tuple[Array, Array]:
    """Read the images and labels of one file."""
    if not path.is_file():  # a FIFO would never end
        files = "CIFAR-10's data_batch_1 … data_batch_5 and test_batch there"
        fix = f"put {files}, as torchvision lays them out"
        raise InputError(f"{path} is not a regular file; {fix}.")
    with report_unreadable(path, "CIFAR-10 file"):
        return scan_batch(path.read_bytes())


def scan_batch(content: bytes) -> tuple[Array, Array]:
    """Find the images and labels in the pickle of a batch, without unpickling it."""
    found: dict[str, list[Any]] = {key: [] for key in _KEYS}
    values = found["batch_label"]
    first, each = _OPERATIONS
    most = first + each * (len(content) // _PIXELS)
    for operation, value, _ in itertools.islice(pickletools.genops(content), most):
        if isinstance(value, str) and value in found:
            values = found[value]
        elif operation.name in ("NEWTRUE", "NEWFALSE"):
            values.append(operation.name == "NEWTRUE")
        elif value is not None and not _MEMO.search(operation.name):
            values.append(value)
    labels = np.array([operator.index(value) for value in found["labels"]], dtype=np.int64)
    if not ((labels >= 0) & (labels < _CLASSES)).all():
        raise ValueError(f"a label is not in 0 … {_CLASSES - 1}")
    return _find_pixels(found["data"], len(labels)), labels


def _find_pixels(values: list[Any], rows: int) -> Array:
    """Find the bytes of an array (rows, 3072) of bytes among the values of its pickle."""
    sizes = [len(value) if isinstance(value, (str, bytes, bytearray)) else 0 for value in values]
    if not rows or rows * _PIXELS not in sizes:
        raise ValueError(f"it has {rows} labels, but not {_PIXELS} bytes for each")
    place = sizes.index(rows * _PIXELS)
    by_column = values[place - 1] is True or "F" in values
    if "u1" not in values or (rows, _PIXELS) not in itertools.pairwise(values) or by_column:
        raise ValueError(f"its images are not an array of bytes with {_PIXELS} in each row")
    pixels = values[place]
    # Python 2 and old protocols store bytes as Latin-1 text.
    stored = pixels.encode("latin1") if isinstance(pixels, str) else pixels
    return np.frombuffer(stored, np.uint8).reshape(rows, 3, 32, 32)


def load_standard_set(word: str, reading: Reading, split: str = "train") -> Source:
    """Load a standard data set by its name."""
    if word == "digits":
        x, y = digits()
        return Source("digits", Dataset(x, y), "unit", images=x.reshape(-1, 8, 8))
    place = reading.data or os.environ.get("BICORE_DATA")
    if place is None:
        files = "MNIST/raw/…" if word == "mnist" else "cifar-10-batches-py/…"
        where = f"{word} is read from DIR/{files}, as torchvision lays it out"
        raise InputError(f"{where}; give --data DIR or set BICORE_DATA.")
    if word == "mnist":
        x, y = _load_mnist(place, split, reading)
        return Source("mnist", Dataset(x, y), "constants", images=x[:, 0] * STD + MEAN)
    pixels, y = cifar10_pixels(place, split, reading.limit, reading.allowance)
    data = Dataset(standard_cifar10(pixels), y)
    return Source("cifar10", data, "constants", images=pixels.transpose(0, 2, 3, 1) / 255)
