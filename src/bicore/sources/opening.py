"""From a word on the command line to data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bicore.data import Dataset
from bicore.errors import InputError
from bicore.sources.arrays import npy, npz
from bicore.sources.arrow_files import feather, parquet
from bicore.sources.base import Source
from bicore.sources.builtin import digits
from bicore.sources.cifar10 import cifar10_pixels, standard_cifar10
from bicore.sources.images import image_folder
from bicore.sources.mnist import MEAN, STD, mnist_within
from bicore.sources.reading import Allowance, Reading
from bicore.sources.streams import PACKED
from bicore.sources.text_tables import delimited, json_table, tabbed

#: Options that tables read.
_OF_TABLES = (
    "target",
    "data-weights",
    "features",
    "drop",
    "drop-missing-target",
    "decimal",
    "missing",
)
_OF_TEXT = (*_OF_TABLES, "encoding")


@dataclass(frozen=True)
class Format:
    """Files of one ending: how they are read, and the options that mean something for them."""

    read: Callable[[Path, Reading], Source]
    options: tuple[str, ...] = _OF_TABLES


#: A new format is a file and a line here.
FORMATS: dict[str, Format] = {
    ".csv": Format(delimited, _OF_TEXT),
    ".txt": Format(delimited, _OF_TEXT),
    ".tsv": Format(tabbed, _OF_TEXT),
    ".tab": Format(tabbed, _OF_TEXT),
    ".json": Format(json_table, _OF_TEXT),
    ".jsonl": Format(json_table, _OF_TEXT),
    ".ndjson": Format(json_table, _OF_TEXT),
    ".parquet": Format(parquet),
    ".pq": Format(parquet),
    ".feather": Format(feather),
    ".arrow": Format(feather),
    ".npz": Format(npz, ("data-weights", "labels")),
    ".npy": Format(npy, ("labels",)),
}
#: Text that is read also where it is packed, as in .csv.gz.
_TEXT = [ending for ending, one in FORMATS.items() if one.options == _OF_TEXT]
FORMATS |= {ending + packed: FORMATS[ending] for ending in _TEXT for packed in PACKED}
#: Options of what is no file.
_READS: dict[str, tuple[str, ...]] = {
    "digits": (),
    "mnist": ("data",),
    "cifar10": ("data",),
    "-": _OF_TEXT,
}
KINDS = (
    "digits, mnist, cifar10, FILE.npz, FILE.npy, a table (.csv .tsv .txt .json .jsonl .parquet "
    ".feather .arrow, text also .gz .bz2 .zst .zip), a folder of images, or - for CSV on standard "
    "input"
)


def ending_of(path: Path) -> str:
    """The ending by which a file is read: .csv, and .csv.gz of one that is packed."""
    endings = [one.lower() for one in path.suffixes[-2:]]
    both = "".join(endings)
    return both if both in FORMATS else "".join(endings[-1:])


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
    memory: int | str | None = None,
    features: str | None = None,
    drop: str | None = None,
    drop_missing_target: bool = False,
    decimal: str | None = None,
    missing: str | None = None,
    encoding: str | None = None,
) -> Source:
    """Read data by a word, as the command line does.

    Parameters
    ----------
    word : str
        A built-in name (digits, mnist, cifar10), a file (.npz, .npy, or a table: .csv, .tsv, .txt,
        .json, .jsonl, each also .gz, .bz2, .zst or .zip, .parquet, .feather, .arrow), a folder of
        images with a subfolder for each class, or ``-`` for CSV on standard input.
    target : str, optional
        The column of a table that holds labels or targets; several columns of numbers have commas
        between them.
    labels : str, optional
        The file of labels that belongs to an .npy, or to a sparse .npz.
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
    memory : int or str, optional
        What reading may take, in bytes or as in "4GB"; default: half of what is free.
    features, drop : str, optional
        Columns of a table that serve as features, and columns that do not, with commas between.
    drop_missing_target : bool
        Leaves out the rows of a table that have no target.
    decimal : "comma" or "point", optional
        Decimal separator, if a table does not show it.
    missing : str, optional
        Further words for a missing value, separated by commas, such as "n.a.".
    encoding : str, optional
        Encoding of a text file (default: by its byte order mark, UTF-8, or else Latin-1).

    Returns
    -------
    Source
        The data, and in words what was done to them.

    Raises
    ------
    InputError
        Where there is no such source, it cannot be read, or an option means nothing for it.
    MemoryLimitError
        Where the data do not fit ``memory``; sizes are looked at before they are allocated.

    Examples
    --------
    >>> source = open_source("digits", limit=100)
    >>> len(source.data), source.notes
    (100, ('features: pixels scaled to 0 … 1',))
    """
    reading = Reading(
        target,
        labels,
        weight,
        folder,
        limit,
        Allowance.of(memory),
        features,
        drop,
        drop_missing_target,
        decimal,
        missing,
        encoding,
    )
    source = _open(word, reading)
    if limit is not None and len(source.data) > limit:
        source = _first(source, limit)
    return source.scaled(scale, later)


def open_test(word: str, folder: str | None = None, scale: str | None = None) -> Source | None:
    """The test set that belongs to the source, scaled as its training data; None without one."""
    if word not in ("mnist", "cifar10"):
        return None
    return _named(word, Reading(folder=folder), "test").scaled(scale, later=True)


def _open(word: str, reading: Reading) -> Source:
    path = Path(word)
    if word in _READS:
        _refuse_unused(word, reading, _READS[word])
        return delimited(None, reading) if word == "-" else _named(word, reading)
    if path.is_dir():
        _refuse_unused(word, reading, ())
        return image_folder(path, reading)
    if not path.exists():
        raise InputError(f"{word!r} is neither a file nor a known source; give {KINDS}.")
    found = FORMATS.get(ending_of(path))
    if found is None:
        raise InputError(f"{word!r} has an ending that is not known; give {KINDS}.")
    _refuse_unused(word, reading, found.options)
    return found.read(path, reading)


def _refuse_unused(word: str, reading: Reading, reads: tuple[str, ...]) -> None:
    """An option that a source does not read is a mistake, not something to pass over in silence."""
    for option, value in reading.given().items():
        if option not in reads:
            allowed = ", ".join(f"--{name}" for name in reads) or "none of these options"
            given = f"--{option} {value}".rstrip()
            raise InputError(f"{given} means nothing for {word}; it reads {allowed}.")


def _named(word: str, reading: Reading, split: str = "train") -> Source:
    if word == "digits":
        x, y = digits()
        return Source("digits", Dataset(x, y), "unit", images=x.reshape(-1, 8, 8))
    place = reading.folder or os.environ.get("BICORE_DATA")
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
        x, y = mnist_within(place, split, reading.limit, reading.allowance)
        return Source("mnist", Dataset(x, y), "constants", images=x[:, 0] * STD + MEAN)
    pixels, y = cifar10_pixels(place, split, reading.limit, reading.allowance)
    x = standard_cifar10(pixels)
    return Source("cifar10", Dataset(x, y), "constants", images=pixels.transpose(0, 2, 3, 1) / 255)


def _first(source: Source, limit: int) -> Source:
    """The first rows, of a source that cannot be asked for fewer."""
    return replace(
        source,
        data=source.data[:limit],
        images=None if source.images is None else source.images[:limit],
    )
