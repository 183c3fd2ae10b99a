"""From a word on the command line to data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from bicore.data import Dataset
from bicore.errors import InputError
from bicore.sources.arrays import npy, npz
from bicore.sources.base import Source
from bicore.sources.builtin import digits
from bicore.sources.cifar10 import cifar10_pixels, standard_cifar10
from bicore.sources.images import image_folder
from bicore.sources.mnist import MEAN, STD, mnist
from bicore.sources.tables import csv_table, parquet_table, table_source

KINDS = (
    "digits, mnist, cifar10, FILE.npz, FILE.npy, FILE.csv, FILE.parquet, a folder of images, or - "
    "for CSV on standard input"
)


def open_source(
    word: str,
    *,
    target: str | None = None,
    labels: str | None = None,
    weight: str | None = None,
    folder: str | None = None,
    scale: str | None = None,
    limit: int | None = None,
    later: bool = False,
) -> Source:
    """Read data by a word, as the command line does.

    Parameters
    ----------
    word : str
        A built-in name (digits, mnist, cifar10), a file (.npz, .npy, .csv, .parquet), a folder of
        images with a subfolder a class, or ``-`` for CSV on standard input.
    target : str, optional
        The column of a table that holds labels or targets.
    labels : str, optional
        The file of labels that belongs to an .npy.
    weight : str, optional
        The column, or the array of an .npz, that holds weights.
    folder : str, optional
        Where mnist and cifar10 lie; default: the environment's BICORE_DATA.
    scale : "standard" or "none", optional
        Default: what suits the source.
    limit : int, optional
        The first so many rows; default: all.
    later : bool
        Leaves standardising to the caller.

    Returns
    -------
    Source
        The data, and in words what was done to them.

    Raises
    ------
    InputError
        Where there is no such source, it cannot be read, or an option means nothing for it.

    Examples
    --------
    >>> source = open_source("digits", limit=100)
    >>> len(source.data), source.notes
    (100, ('features: pixels scaled to 0 … 1',))
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit} is below 1; give a number of rows.")
    _refuse_unused(
        word, {"target": target, "labels": labels, "data-weights": weight, "data": folder}
    )
    source = _open(word, target, labels, weight, folder, limit)
    if limit is not None and len(source.data) > limit:
        source = _first(source, limit)
    return source.scaled(scale, later)


def open_test(word: str, folder: str | None = None, scale: str | None = None) -> Source | None:
    """The test set that belongs to the source, scaled as its training data; None without one."""
    if word not in ("mnist", "cifar10"):
        return None
    return _named(word, folder, None, "test").scaled(scale, later=True)


#: Options that each kind of source reads; any other is a mistake, not something to pass over in
#: silence.
_READS = {
    "digits": (),
    "mnist": ("data",),
    "cifar10": ("data",),
    "-": ("target", "data-weights"),
    ".csv": ("target", "data-weights"),
    ".parquet": ("target", "data-weights"),
    ".pq": ("target", "data-weights"),
    ".npz": ("data-weights",),
    ".npy": ("labels",),
}


def _refuse_unused(word: str, given: dict[str, str | None]) -> None:
    kind = word if word in _READS else Path(word).suffix.lower()
    reads = _READS.get(kind, ())
    known = word in _READS or Path(word).exists()
    for option, value in given.items():
        if known and value is not None and option not in reads:
            allowed = ", ".join(f"--{name}" for name in reads) or "none of these options"
            raise InputError(f"--{option} {value} means nothing for {word}; it reads {allowed}.")


def _open(
    word: str,
    target: str | None,
    labels: str | None,
    weight: str | None,
    folder: str | None,
    limit: int | None,
) -> Source:
    if word in ("digits", "mnist", "cifar10"):
        return _named(word, folder, limit)
    if word == "-":
        return table_source("standard input", csv_table(None), target, weight)
    path = Path(word)
    if path.is_dir():
        return image_folder(path)
    if not path.exists():
        raise InputError(f"{word!r} is neither a file nor a known source; give {KINDS}.")
    ending = path.suffix.lower()
    if ending == ".npz":
        return npz(path, weight)
    if ending == ".npy":
        return npy(path, None if labels is None else Path(labels))
    if ending == ".csv":
        return table_source(path.name, csv_table(path), target, weight)
    if ending in (".parquet", ".pq"):
        return table_source(path.name, parquet_table(path), target, weight)
    raise InputError(f"{word!r} has an ending that is not known; give {KINDS}.")


def _named(word: str, folder: str | None, limit: int | None, split: str = "train") -> Source:
    if word == "digits":
        x, y = digits()
        return Source("digits", Dataset(x, y), "unit", images=x.reshape(-1, 8, 8))
    place = folder or os.environ.get("BICORE_DATA")
    if place is None:
        files = (
            "MNIST/raw/train-images-idx3-ubyte.gz …"
            if word == "mnist"
            else "cifar-10-batches-py/data_batch_1 …"
        )
        raise InputError(
            f"{word} is read from DIR/{files}, as torchvision lays it out; give --data DIR or set "
            "BICORE_DATA."
        )
    if word == "mnist":
        x, y = mnist(place, split, limit)
        return Source("mnist", Dataset(x, y), "constants", images=x[:, 0] * STD + MEAN)
    pixels, y = cifar10_pixels(place, split, limit)
    x = standard_cifar10(pixels)
    return Source("cifar10", Dataset(x, y), "constants", images=pixels.transpose(0, 2, 3, 1) / 255)


def _first(source: Source, limit: int) -> Source:
    return replace(
        source,
        data=source.data[:limit],
        images=None if source.images is None else source.images[:limit],
    )
