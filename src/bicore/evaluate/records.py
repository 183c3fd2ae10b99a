"""Rows of a comparison on disk, one a line as they come.

An interrupted run loses nothing that was finished.
"""

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

#: How the first line of every file begins.
HEAD = b'{"settings": {'


@dataclass(frozen=True)
class Row:
    """One selection, judged.

    Parameters
    ----------
    method : str
        The name of the method.
    size, seed : int
        How many points were asked for, and which repetition it is.
    accuracy : float
        The first judge's main measure: R² for regression.
    selection_seconds : float
        How long the selection took.
    model_seconds : float
        How long the model that the method looks at was trained.
    measures : dict
        Of each judge by its name, all measures by their keys; empty in rows of older files.
    classes : dict
        Of each judge by its name, the share of each class that it finds, in the order of their
        codes (None: not tested on); empty for targets and in rows of older files.
    picks : sequence of int
        The rows of the source that were selected, in order. They are kept for the first seed of a
        comparison of selections; else there are none.
    weights : sequence of float
        Those of the picks; empty where each is 1.

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
    """Eight characters that name the settings which decide a row's value.

    Parameters
    ----------
    settings : mapping
        Names and values that JSON can hold.

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
    """A file of JSON lines: the settings first, then a row a line.

    Parameters
    ----------
    path : Path
        The file; one that is there is read, and what it lacks can be added.
    settings : mapping
        What decides a row's value.

    Raises
    ------
    InputError
        Where the file holds rows of other settings, or something else.

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
            raise InputError(
                f"--records {path} cannot be a file there; give a file name in a folder that "
                "exists."
            )
        self.path = path
        self.settings = dict(settings)
        self.rows: dict[tuple[str, int, int], Row] = {}
        if path.exists() and not self._cut_short():
            self._read()
        else:
            self._rewrite(json.dumps({"settings": self.settings}))

    def add(self, row: Row) -> None:
        """Write one row through to the disk.

        Parameters
        ----------
        row : Row
            Takes the place of the one of the same cell.
        """
        self.rows[row.cell] = row
        self._append(asdict(row))

    def _cut_short(self) -> bool:
        """Whether all there is is a first line of ours that never came to its end."""
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
                if number == len(lines):  # a line cut short by a crash
                    break
                raise InputError(
                    f"{self.path}, line {number} is not a row ({error}); remove that line."
                ) from error
            self.rows[row.cell] = row
        if not self.path.read_bytes().endswith(b"\n"):
            self._rewrite(lines[0])

    def _checked_lines(self) -> list[str]:
        """The lines of the file, whose settings are those asked for."""
        try:
            lines = self.path.read_text().splitlines()
            found = json.loads(lines[0])["settings"] if lines else None
        except (ValueError, KeyError, TypeError):  # also bytes that are no text
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
        """Without the line that was cut short, so that the next one starts anew."""
        lines = [head, *(json.dumps(asdict(row)) for row in self.rows.values())]
        with replacing(self.path) as beside:
            beside.write_text("\n".join(lines) + "\n")

    def _append(self, value: Mapping[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _row(values: dict[str, Any]) -> Row:
    """A row whose numbers are numbers."""
    row = Row(**values)
    wrong = "a value has the wrong type"
    whole_number(row.size, 1, wrong)
    whole_number(row.seed, 0, wrong)
    kinds: tuple[tuple[object, type], ...] = (
        (row.method, str),
        (row.accuracy, Real),
        (row.selection_seconds, Real),
        (row.model_seconds, Real),
    )
    for pick in row.picks:
        whole_number(pick, 0, wrong)
    if len(row.weights) not in (0, len(row.picks)):
        raise ValueError("there are not as many weights as picks")
    numbers = [value for own in row.measures.values() for value in own.values()]
    numbers += [value for own in row.classes.values() for value in own if value is not None]
    numbers += row.weights
    kinds += tuple((value, Real) for value in numbers)
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise ValueError(wrong)
    return row
