"""What the reader of a table must know, with its differences taken from the records.

A note says ``{A | B}`` for the mean of row A less that of row B, and Welch's 95% interval; where a
table has several sizes or data sets ``{A | B | 50}`` or ``{A | B | SplitMNIST}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from experiments.catalogue import EXPERIMENTS
from experiments.tables import Cell, less

NOTES: dict[str, str] = json.loads(Path(__file__).with_name("notes.json").read_text())
_DIFFERENCE = re.compile(r"\{([^{}|]+) \| ([^{}|]+?)(?: \| ([\w-]+))?\}")


def note(name: str, found: Sequence[Cell]) -> str:
    """Of an experiment; nothing where there is none."""
    return _DIFFERENCE.sub(lambda match: _told(name, found, match), NOTES.get(name, ""))


def _told(name: str, found: Sequence[Cell], match: re.Match[str]) -> str:
    first, second = (_cells(name, found, match[place], match[3]) for place in (1, 2))
    if not (first and second):
        return "not measured"  # by these records
    return less(first[0], second[0])


def _cells(name: str, found: Sequence[Cell], key: str, where: str | None) -> list[Cell]:
    """The row as it was measured, if it was with several seeds."""
    cells = [
        cell
        for cell in found
        if cell.row.key == key
        and where in (None, str(cell.memory), cell.problem)
        and cell.seeds > 1
    ]
    known = any(row.key == key for row in EXPERIMENTS[name].rows())
    if len(cells) > 1 or not known:
        raise LookupError(
            f"notes.json, {name}: {key!r}{f' of {where}' if where else ''} is no one row of its "
            "table; name a row, and where there are several sizes or data sets one of them."
        )
    return cells
