"""The groups that rows belong to: their classes, or ranges of what is to be predicted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bicore.data import Array, Targets
from bicore.report.pages.shown import shortened

#: Ranges of targets, each with about as many rows.
RANGES = 10
#: Characters of the name of a class.
LONGEST_NAME = 60


@dataclass(frozen=True, eq=False)
class Groups:
    """A code of its group for each row, and what the groups are called."""

    kind: str
    names: tuple[str, ...]
    codes: Array

    def as_json(self) -> dict[str, Any]:
        """As a page reads it; the codes travel with the points."""
        counts = np.bincount(self.codes, minlength=len(self.names))
        return {"kind": self.kind, "names": list(self.names), "counts": counts.tolist()}


def groups_of(targets: Targets | None, rows: int) -> Groups:
    """Classes by name, ranges of the first target, or one group of rows that have neither."""
    if targets is None:
        return Groups("none", ("all rows",), np.zeros(rows, dtype=np.int64))
    if targets.classes is not None:
        names = tuple(shortened(label, LONGEST_NAME) for label in targets.classes.tolist())
        return Groups("class", names, targets.values.reshape(-1).astype(np.int64))
    first = targets.values.reshape(rows, -1)[:, 0]
    edges = np.unique(np.quantile(first, np.linspace(0, 1, RANGES + 1)))
    if len(edges) < 2:
        return Groups("range", (f"{first[0]:.3g}",), np.zeros(rows, dtype=np.int64))
    codes = np.searchsorted(edges[1:-1], first, side="right")
    names = tuple(f"{low:.3g} … {high:.3g}" for low, high in pairwise(edges.tolist()))
    return Groups("range", names, codes)
