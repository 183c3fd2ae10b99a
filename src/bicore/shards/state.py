"""The state of a selection in a folder: its moments and its points so far."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.files import FORMAT, hold, read_state, write_state
from bicore.moments.moments import Moments
from bicore.shards.counting import Counted

MOMENTS, POINTS, LOCK = "moments.npz", "points.npz", "lock"
COLUMNS = ("positions", "features", "targets")


class Progress:
    """Files of a selection; each is complete at every moment, and one process at a time writes.

    ``named`` identifies the selection: the state of another one is refused.
    """

    def __init__(self, folder: Path, named: dict[str, Any]) -> None:
        self.folder, self.named = folder, named
        self._lock: int | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self._lock = hold(self.folder / LOCK, str(self.folder), "give another state folder")
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def moments(self) -> Counted | None:
        """Read the result of the first pass; None before it."""
        held = self._read(MOMENTS)
        if held is None:
            return None
        head, arrays = held
        moments = Moments.restored(head["moments"], arrays)
        available: Counter[Any] = Counter(dict(head["available"]))
        return Counted(moments, head["bad"], head["longest"], available)

    def keep_moments(self, found: Counted) -> None:
        assert found.moments is not None
        values, arrays = found.moments.stored()
        counts = list(found.available.items())
        head = {"bad": found.bad, "longest": found.longest, "available": counts}
        self._write(MOMENTS, {"moments": values, **head}, arrays)

    def points(self) -> tuple[list[tuple[int, Array, Array]], int, int] | None:
        """Read positions, features and targets, passes and certain picks; None before the first."""
        held = self._read(POINTS)
        if held is None:
            return None
        head, arrays = held
        positions, features, targets = (arrays[name] for name in COLUMNS)
        points = list(zip(positions.tolist(), features, targets, strict=True))
        return points, head["passes"], head["certain"]

    def keep_points(self, columns: Iterable[Array], passes: int, certain: int) -> None:
        arrays = dict(zip(COLUMNS, columns, strict=True))
        self._write(POINTS, {"passes": passes, "certain": int(certain)}, arrays)

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        path = self.folder / name
        if not path.exists():
            return None
        head, arrays = read_state(path, "select")
        unlike = [key for key, value in self.named.items() if head["named"].get(key) != value]
        if unlike:
            raise InputError(
                f"{self.folder} holds a selection with another {', '.join(unlike)}; use the same "
                "source and options, or another folder."
            )
        return head, arrays

    def _write(self, name: str, head: dict[str, Any], arrays: dict[str, Array]) -> None:
        columns = {key: np.ascontiguousarray(one) for key, one in arrays.items()}
        try:
            write_state(
                self.folder / name, {"format": FORMAT, "named": self.named, **head}, columns
            )
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}: the state could not be written; the one before is complete: "
                "make room, and repeat the same call",
                str(self.folder / name),
            ) from error
