"""What a stopped selection goes on from: its moments and its points so far, in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.files import FORMAT, hold, read_state, write_state
from bicore.moments.moments import Moments

MOMENTS, POINTS, LOCK = "moments.npz", "points.npz", "lock"


class Progress:
    """Files of a selection; each is whole at every moment, and one process at a time writes them.

    Parameters
    ----------
    folder : Path
        Where they lie; made where it is not there.
    named : dict
        What the selection is of: a state of another is refused.

    Examples
    --------
    >>> import tempfile
    >>> Progress(Path(tempfile.mkdtemp()), {"size": 3}).points() is None
    True
    """

    def __init__(self, folder: Path, named: dict[str, Any]) -> None:
        self.folder = folder
        self.named = named
        self._lock: int | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self._lock = hold(self.folder / LOCK, str(self.folder), "give another state folder")
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def moments(self) -> tuple[Moments, float, int] | None:
        """The moments, the largest ‖φ‖² and how many rows were left out; None before the first."""
        held = self._read(MOMENTS)
        if held is None:
            return None
        head, arrays = held
        return Moments.restored(head["moments"], arrays), head["longest"], head["bad"]

    def keep_moments(self, found: tuple[Moments, float, int]) -> None:
        """Write them."""
        moments, longest, bad = found
        values, arrays = moments.stored()
        self._write(MOMENTS, {"moments": values, "longest": longest, "bad": bad}, arrays)

    def points(self) -> tuple[Array, Array, Array, int, int] | None:
        """Positions, features, targets, passes and certain picks; None before the first."""
        held = self._read(POINTS)
        if held is None:
            return None
        head, arrays = held
        columns = (arrays["positions"], arrays["features"], arrays["targets"])
        return *columns, head["passes"], head["certain"]

    def keep_points(
        self, positions: Array, features: Array, targets: Array, passes: int, certain: int
    ) -> None:
        """Write them."""
        arrays = {"positions": positions, "features": features, "targets": targets}
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
        whole = {"format": FORMAT, "named": self.named, **head}
        try:
            write_state(self.folder / name, whole, columns)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}: the state could not be written; what was written before is "
                "whole: make room, and the same call goes on from it",
                str(self.folder / name),
            ) from error
