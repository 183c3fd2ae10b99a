"""Rows of a comparison on disk, one per line; an interrupted run keeps all finished rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from bicore.errors import InputError
from bicore.files import replacing
from bicore.picking import whole_number

#: The beginning of every file.
HEAD = b'{"settings": {'


@dataclass(frozen=True)
class Row:
    """One selection with its scores.

    Parameters
    ----------
    method : str
        The name of the method.
    size, seed : int
        The number of points requested, and the seed of the repetition.
    accuracy : float
        The main metric of the first evaluation model: R² for regression.
    selection_seconds : float
        Time of the selection.
    model_seconds : float
        Training time of the model that the method needs.
    measures : dict
        By evaluation model, all metrics by their keys; empty in rows of older files.
    classes : dict
        By evaluation model, the recall of each class in the order of their codes (None without
        test rows); empty for targets and in rows of older files.
    picks : sequence of int
        The selected rows of the source, in order; only for the first seed of a comparison of
        selections.
    weights : sequence of float
        The weights of the picks; empty if all are 1.

    Examples
    --------
    >>> Row("uniform", 10, 0, accuracy=0.81, selection_seconds=0.01).cell
    ('uniform', 10, 0)
    """

    method: str
    size: int
    seed: int
    accuracy: float
    selection_seconds: float
    model_seconds: float = 0.0
    measures: dict[str, dict[str, float]] = field(default_factory=dict)
    classes: dict[str, list[float | None]] = field(default_factory=dict)
    picks: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    @property
    def cell(self) -> tuple[str, int, int]:
        """The method, size and seed."""
        return self.method, self.size, self.seed


def digest(settings: Mapping[str, Any]) -> str:
    """Eight characters that identify settings.

    Parameters
    ----------
    settings : mapping
        Names and values for JSON.

    Returns
    -------
    str
        The same for the same settings in any order.

    Examples
    --------
    >>> digest({"judge": "ridge", "pool": 50}) == digest({"pool": 50, "judge": "ridge"})
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Records:
    """A file of JSON lines: the settings first, then one row per line.

    Parameters
    ----------
    path : Path
        The file; an existing one is read and extended.
    settings : mapping
        The settings that determine a row's value.

    Raises
    ------
    InputError
        If the file holds rows of other settings, or is no such file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.jsonl"
    ...     Records(path, {"judge": "ridge"}).add(Row("uniform", 10, 0, 0.81, 0.01))
    ...     list(Records(path, {"judge": "ridge"}).rows)
    [('uniform', 10, 0)]
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"--records {path} must be a file name in a folder that exists.")
        self.path = path
        self.settings = dict(settings)
        self.rows: dict[tuple[str, int, int], Row] = {}
        if path.exists() and not self._incomplete():
            self._read()
        else:
            self._rewrite(json.dumps({"settings": self.settings}))

    def add(self, row: Row) -> None:
        """Write one row to the disk.

        Parameters
        ----------
        row : Row
            Replaces the row of the same cell.
        """
        self.rows[row.cell] = row
        with open(self.path, "a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _incomplete(self) -> bool:
        """Whether the file holds nothing but a part of its first line."""
        with open(self.path, "rb") as file:
            line = file.readline()
        begins = HEAD.startswith(line) or line.startswith(HEAD)
        return begins and not line.endswith(b"\n")

    def _read(self) -> None:
        lines = self._checked_lines()
        for number, line in enumerate(lines[1:], 2):
            try:
                row = _row(json.loads(line))
            except (ValueError, TypeError, AttributeError) as error:
                if number == len(lines):  # an incomplete line after a crash
                    break
                raise InputError(
                    f"{self.path}, line {number} is not a row ({error}); remove that line."
                ) from error
            self.rows[row.cell] = row
        if not self.path.read_bytes().endswith(b"\n"):
            self._rewrite(lines[0])

    def _checked_lines(self) -> list[str]:
        """The lines of the file, if its settings are the same."""
        try:
            lines = self.path.read_text().splitlines()
            found = json.loads(lines[0])["settings"] if lines else None
        except (ValueError, KeyError, TypeError):  # also bytes that are not text
            found = None
        if found is None:
            raise InputError(
                f"{self.path} is not a file of comparison records; give another --records, or "
                "remove it."
            )
        if found != json.loads(json.dumps(self.settings)):
            changed = sorted(
                key for key in {*found, *self.settings} if found.get(key) != self.settings.get(key)
            )
            raise InputError(
                f"{self.path} holds records made with other settings ({', '.join(changed)}); give "
                "another --records, or remove it."
            )
        return lines

    def _rewrite(self, head: str) -> None:
        """Write all complete rows again."""
        lines = [head, *(json.dumps(asdict(row)) for row in self.rows.values())]
        with replacing(self.path) as temporary:
            temporary.write_text("\n".join(lines) + "\n")


def _row(values: dict[str, Any]) -> Row:
    """A row, if its values have the right types."""
    row = Row(**values)
    wrong = "a value has the wrong type"
    for value, least in ((row.size, 1), (row.seed, 0), *((pick, 0) for pick in row.picks)):
        whole_number(value, least, wrong)
    if len(row.weights) not in (0, len(row.picks)):
        raise ValueError("the numbers of weights and picks differ")
    numbers = [row.accuracy, row.selection_seconds, row.model_seconds, *row.weights]
    numbers += [value for own in row.measures.values() for value in own.values()]
    numbers += [value for own in row.classes.values() for value in own if value is not None]
    if not isinstance(row.method, str) or not all(isinstance(one, Real) for one in numbers):
        raise ValueError(wrong)
    return row
