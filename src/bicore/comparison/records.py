"""Rows of a comparison on disk, one a line as they come, so that an interrupted run loses nothing
that was finished."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bicore.errors import InputError
from bicore.files import replacing


@dataclass(frozen=True)
class Row:
    """One selection, judged: ``accuracy`` is R² for regression; ``model_seconds`` trained the model
    that the method looks at."""

    method: str
    size: int
    seed: int
    accuracy: float
    selection_seconds: float
    model_seconds: float = 0.0

    @property
    def cell(self) -> tuple[str, int, int]:
        return self.method, self.size, self.seed


def digest(settings: Mapping[str, Any]) -> str:
    """Eight characters that name the settings which decide a row's value."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Records:
    """A file of JSON lines: the settings first, then a row a line."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(
                f"--records {path} cannot be a file there; give a file name in a folder that "
                "exists."
            )
        self.path = path
        self.settings = dict(settings)
        self.rows: dict[tuple[str, int, int], Row] = {}
        if path.exists():
            self._read()
        else:
            self._append({"settings": self.settings})

    def _read(self) -> None:
        try:
            lines = self.path.read_text().splitlines()
            found = json.loads(lines[0])["settings"] if lines else None
        except (ValueError, KeyError, TypeError):  # also bytes that are no text
            lines = []
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
        for number, line in enumerate(lines[1:], 2):
            try:
                row = _row(json.loads(line))
            except (ValueError, TypeError) as error:
                if number == len(lines):  # a line cut short by a crash
                    break
                raise InputError(
                    f"{self.path}, line {number} is not a row ({error}); remove that line."
                ) from error
            self.rows[row.cell] = row
        if not self.path.read_bytes().endswith(b"\n"):
            kept = [
                json.dumps({"settings": found}),
                *(json.dumps(asdict(row)) for row in self.rows.values()),
            ]
            with replacing(self.path) as beside:
                beside.write_text("\n".join(kept) + "\n")

    def add(self, row: Row) -> None:
        """Write one row through to the disk."""
        self.rows[row.cell] = row
        self._append(asdict(row))

    def _append(self, value: Mapping[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _row(values: dict[str, Any]) -> Row:
    """A row whose numbers are numbers."""
    row = Row(**values)
    numbers = (row.accuracy, row.selection_seconds, row.model_seconds)
    whole = all(
        isinstance(value, int) and not isinstance(value, bool) for value in (row.size, row.seed)
    )
    if not (
        isinstance(row.method, str)
        and whole
        and all(isinstance(value, (int, float)) for value in numbers)
    ):
        raise ValueError("a value has the wrong type")
    return row
