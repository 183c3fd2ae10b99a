"""What a page shows of rows: a card each, their groups, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.report.pages.groups import LONGEST_NAME, Groups
from bicore.report.pages.plane import plane_of
from bicore.report.pages.shown import Shown, shortened


@dataclass(frozen=True, eq=False)
class View:
    """Rows that were chosen from, and how they are shown.

    ``numbers`` says which row of the source each is, where the data are a part of it; ``shown``
    knows rows by these numbers.
    """

    data: Dataset
    groups: Groups
    shown: Shown
    numbers: Array | None = None

    def as_json(self) -> dict[str, Any]:
        """The groups, and what stands above the cells of a row."""
        columns = [shortened(one, LONGEST_NAME) for one in self.shown.columns]
        return {
            "groups": self.groups.as_json(),
            "shown": {"kind": self.shown.kind, "columns": columns},
        }

    def of(self, rows: Array) -> dict[str, Any]:
        """Columns of some rows, in their order: number, group, and target where rows have one."""
        labels = [self.label(row) for row in rows.tolist()] if self.ranges else None
        return {
            "rows": [self.number(row) for row in rows.tolist()],
            "codes": self.groups.codes[rows].tolist(),
            "labels": labels,
        }

    def card(self, row: int) -> Any:
        """A row as it is shown."""
        return self.shown.of(self.number(row))

    def number(self, row: int) -> int:
        """What the source calls a row."""
        return row if self.numbers is None else int(self.numbers[row])

    @property
    def ranges(self) -> bool:
        """Whether groups are ranges of targets, so that rows of one differ."""
        return self.groups.kind == "range"

    def label(self, row: int) -> str:
        """The class of a row, or its targets."""
        if not self.ranges or self.data.y is None:
            return self.groups.names[int(self.groups.codes[row])]
        values = np.ravel(self.data.y[row]).tolist()
        return shortened(", ".join(f"{one:.4g}" for one in values), LONGEST_NAME)

    def map(self, rows: Array) -> tuple[dict[str, Any], list[list[int]]]:
        """The map of the data, and where some rows lie on it."""
        plane = plane_of(self.data.x, rows)
        places = plane.places[np.searchsorted(plane.rows, rows)]
        facts = plane.as_json(self.groups.codes, len(self.data), self.numbers)
        return facts, places.astype(int).tolist()
