"""How a page shows a row: as an image, a text, the cells of a table, or its first features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bicore.data import Array
from bicore.report.pages.pixels import data_address

#: Columns and features of a row that are shown, and characters of a cell and of a text.
MOST_COLUMNS, MOST_FEATURES = 12, 6
LONGEST_CELL, LONGEST_TEXT = 80, 600
#: A column whose cells have on average this many characters is text that is read, not a value.
TEXT = 30
#: Rows that say whether a column is text.
LOOKED_AT = 50


class Shown(Protocol):
    """One way to show rows."""

    @property
    def kind(self) -> str:
        """Images, text, table or numbers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What stands above the cells, where there are any."""

    def of(self, row: int) -> Any:
        """What JSON holds of a row: an address, a text, or a list of cells."""


@dataclass(frozen=True, eq=False)
class Images:
    """Rows as pictures, in 0 … 1."""

    images: Array
    kind: str = "images"
    columns: tuple[str, ...] = ()

    def of(self, row: int) -> str:
        return data_address(np.asarray(self.images[row], dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Text:
    """Rows as what one column says."""

    columns: tuple[str, ...]
    cells: Sequence[Any]
    kind: str = "text"

    def of(self, row: int) -> str:
        return shortened(self.cells[row], LONGEST_TEXT)


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows as they stand in their table."""

    columns: tuple[str, ...]
    cells: tuple[Sequence[Any], ...]
    kind: str = "table"

    def of(self, row: int) -> list[str]:
        return [shortened(column[row], LONGEST_CELL) for column in self.cells]


@dataclass(frozen=True, eq=False)
class Features:
    """Rows as their first numbers, where nothing else is known of them."""

    features: Array
    kind: str = "numbers"

    @property
    def columns(self) -> tuple[str, ...]:
        width = int(np.prod(self.features.shape[1:]))
        return tuple(f"feature {number}" for number in range(min(width, MOST_FEATURES)))

    def of(self, row: int) -> list[str]:
        return [f"{value:.4g}" for value in self.features[row].ravel()[:MOST_FEATURES].tolist()]


def shown_as(
    features: Array, images: Array | None, columns: Mapping[str, Sequence[Any]] | None
) -> Shown:
    """Images where there are any; else a column of text, the table, or the features."""
    if images is not None:
        return Images(images)
    if not columns:
        return Features(features)
    lengths = {name: _length(cells) for name, cells in columns.items()}
    longest = max(lengths, key=lambda name: lengths[name])
    if lengths[longest] >= TEXT:
        return Text((longest,), columns[longest])
    names = tuple(columns)[:MOST_COLUMNS]
    return Cells(names, tuple(columns[name] for name in names))


def shortened(cell: Any, most: int) -> str:
    """A cell in words, nothing for none."""
    text = "" if cell is None else str(cell)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _length(cells: Sequence[Any]) -> float:
    """The mean number of characters of some cells."""
    step = max(1, len(cells) // LOOKED_AT)
    some = [len(str(cells[place])) for place in range(0, len(cells), step)]
    return sum(some) / max(1, len(some))
