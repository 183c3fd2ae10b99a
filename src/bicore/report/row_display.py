"""How a page shows rows: as images, texts, cells or features; by group; and on a map."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, Targets
from bicore.report.projection import project

#: The longest side of an image on the page; larger ones are averaged over blocks.
LONGEST_SIDE = 64
#: PNG's codes for grey and for RGB, by the dimensions of an image.
COLOURS = {2: 0, 3: 2}
#: Limits of the columns and features of a row, and of the characters of a cell, text and name.
MOST_COLUMNS, MOST_FEATURES = 12, 6
LONGEST_CELL, LONGEST_TEXT, LONGEST_NAME = 80, 600, 60
#: A column is text if its cells have this many characters on average, by so many cells.
TEXT, LOOKED_AT = 30, 50
#: Ranges of targets, each with about as many rows.
RANGES = 10


@dataclass(frozen=True, eq=False)
class Shown:
    """A way to show rows: the ``kind`` is images, text, table or numbers."""

    kind: str
    columns: tuple[str, ...]
    #: Gives the JSON of a row: an image's address, a text, or a list of cells.
    of: Callable[[int], Any]


def shown_as(
    features: Array, images: Array | None, columns: Mapping[str, Sequence[Any]] | None
) -> Shown:
    """Show images if there are any; else a column of text, the table, or the features."""
    if images is not None:
        return Shown("images", (), lambda row: data_address(np.asarray(images[row], np.float64)))
    if not columns:
        count = min(int(np.prod(features.shape[1:])), MOST_FEATURES)
        names = tuple(f"feature {number}" for number in range(count))
        return Shown("numbers", names, lambda row: _numbers(features[row].ravel()[:count]))
    lengths = {name: _mean_length(cells) for name, cells in columns.items()}
    longest = max(lengths, key=lambda name: lengths[name])
    if lengths[longest] >= TEXT:
        text = columns[longest]
        return Shown("text", (longest,), lambda row: shorten(text[row], LONGEST_TEXT))
    names = tuple(columns)[:MOST_COLUMNS]
    cells = [columns[name] for name in names]
    return Shown("table", names, lambda row: [shorten(one[row], LONGEST_CELL) for one in cells])


def shorten(cell: Any, most: int) -> str:
    """A cell as text of limited length; empty for None."""
    text = "" if cell is None else str(cell)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _numbers(values: Array) -> list[str]:
    return [f"{value:.4g}" for value in values.tolist()]


def _mean_length(cells: Sequence[Any]) -> float:
    """The mean number of characters of some cells."""
    step = max(1, len(cells) // LOOKED_AT)
    some = [len(str(cells[place])) for place in range(0, len(cells), step)]
    return sum(some) / max(1, len(some))


def data_address(image: Array) -> str:
    """An image (height, width[, 3]) in 0 … 1 as a data address with a PNG file."""
    shades = (np.clip(np.nan_to_num(_thumbnail(image)), 0, 1) * 255).round().astype(np.uint8)
    tall, wide = shades.shape[:2]
    # every line begins with the number of its filter: none
    lines = b"".join(b"\0" + line.tobytes() for line in shades)
    head = struct.pack(">IIBBBBB", wide, tall, 8, COLOURS[shades.ndim], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _thumbnail(image: Array) -> Array:
    """The image, or the means of square blocks if it is larger than the page shows."""
    step = -(-max(image.shape[:2]) // LONGEST_SIDE)
    if step == 1:
        return image
    high, wide = (min(step, side) for side in image.shape[:2])
    rows, columns = image.shape[0] // high, image.shape[1] // wide
    whole = image[: rows * high, : columns * wide]
    blocks = whole.reshape(rows, high, columns, wide, *image.shape[2:])
    return np.asarray(blocks.mean(axis=(1, 3)))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


@dataclass(frozen=True, eq=False)
class Groups:
    """A code of its group for each row, and the names of the groups."""

    kind: str
    names: tuple[str, ...]
    codes: Array

    def as_json(self) -> dict[str, Any]:
        """Names and counts; the codes go with the points."""
        counts = np.bincount(self.codes, minlength=len(self.names))
        return {"kind": self.kind, "names": list(self.names), "counts": counts.tolist()}


def groups_of(targets: Targets | None, rows: int) -> Groups:
    """Classes by name, ranges of the first target, or one group without labels."""
    if targets is None:
        return Groups("none", ("all rows",), np.zeros(rows, dtype=np.int64))
    if targets.classes is not None:
        names = tuple(shorten(label, LONGEST_NAME) for label in targets.classes.tolist())
        return Groups("class", names, targets.values.reshape(-1).astype(np.int64))
    first = targets.values.reshape(rows, -1)[:, 0]
    edges = np.unique(np.quantile(first, np.linspace(0, 1, RANGES + 1)))
    if len(edges) < 2:
        return Groups("range", (f"{first[0]:.3g}",), np.zeros(rows, dtype=np.int64))
    names = tuple(f"{low:.3g} … {high:.3g}" for low, high in pairwise(edges.tolist()))
    return Groups("range", names, np.searchsorted(edges[1:-1], first, side="right"))


@dataclass(frozen=True, eq=False)
class View:
    """The rows that were selected from, and how they are shown.

    ``numbers`` are row numbers in the source, if the data are a part of it; ``shown`` uses them.
    """

    data: Dataset
    groups: Groups
    shown: Shown
    numbers: Array | None = None

    def as_json(self) -> dict[str, Any]:
        """The groups, and the column names of a row."""
        columns = [shorten(one, LONGEST_NAME) for one in self.shown.columns]
        shown = {"kind": self.shown.kind, "columns": columns}
        return {"groups": self.groups.as_json(), "shown": shown}

    def of(self, rows: Array) -> dict[str, Any]:
        """Columns of some rows: number, group, and target if the groups are ranges."""
        labels = [self.label(row) for row in rows.tolist()] if self.groups.kind == "range" else None
        return {
            "rows": [self.number(row) for row in rows.tolist()],
            "codes": self.groups.codes[rows].tolist(),
            "labels": labels,
        }

    def card(self, row: int) -> Any:
        """The JSON of a row."""
        return self.shown.of(self.number(row))

    def number(self, row: int) -> int:
        """The number of a row in the source."""
        return row if self.numbers is None else int(self.numbers[row])

    def label(self, row: int) -> str:
        """The class of a row, or its targets."""
        if self.groups.kind != "range" or self.data.y is None:
            return self.groups.names[int(self.groups.codes[row])]
        return shorten(", ".join(_numbers(np.ravel(self.data.y[row]))), LONGEST_NAME)

    def map(self, rows: Array) -> tuple[dict[str, Any], list[list[int]]]:
        """The map of the data, and the places of some rows on it."""
        plane = project(self.data.x, rows)
        places = plane.places[np.searchsorted(plane.rows, rows)]
        facts = plane.as_json(self.groups.codes, len(self.data), self.numbers)
        return facts, places.astype(int).tolist()
