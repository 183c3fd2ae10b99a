"""The answer: which points, in which order, with which weights, and how they were found."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.files import replacing

FORMAT = 1
_ARRAYS = ("indices", "weights", "ids", "objectives")


@dataclass(frozen=True, eq=False)
class Coreset:
    """An ordered, weighted subset.

    Attributes
    ----------
    indices : row numbers in the data, in the order of selection. weights : one weight >= 0 for each
    index; exactly 1.0 when binary. ids : the ids of those rows (equal to ``indices`` unless the
    data had ids of its own). objectives : outer objective after each point (empty for methods that
    have none). status : ``"complete"``, or why fewer points than asked for came back. info : how it
    was obtained: method, kernel, loss, regulariser, task, seed, seconds, versions, data
    fingerprint.

    Examples
    --------
    >>> picked = Coreset(np.array([4, 2, 7]))
    >>> picked.prefix(2).indices.tolist()
    [4, 2]
    """

    indices: Array
    weights: Array = None  # type: ignore[assignment]
    ids: Array = None  # type: ignore[assignment]
    objectives: Array = field(default_factory=lambda: np.empty(0))
    status: str = "complete"
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        indices = np.asarray(self.indices, dtype=np.int64)
        weights = (
            np.ones(len(indices))
            if self.weights is None
            else np.asarray(self.weights, dtype=np.float64)
        )
        ids = indices if self.ids is None else np.asarray(self.ids, dtype=np.int64)
        objectives = np.asarray(self.objectives, dtype=np.float64)
        if len(np.unique(indices)) != len(indices):
            raise InputError("indices holds a row twice; a coreset is a set of rows.")
        if weights.shape != indices.shape or ids.shape != indices.shape:
            raise InputError(
                f"{len(indices)} indices with {len(weights)} weights and {len(ids)} ids; they must "
                "align."
            )
        if indices.size and indices.min() < 0:
            raise InputError(f"indices holds {indices.min()}; rows are counted from 0.")
        if weights.size and not (np.isfinite(weights).all() and weights.min() >= 0):
            raise InputError(f"weights holds {weights.min()}; weights are finite and >= 0.")
        for name, value in (
            ("indices", indices),
            ("weights", weights),
            ("ids", ids),
            ("objectives", objectives),
        ):
            put(self, name, value)
        put(self, "info", dict(self.info))

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        kind = "binary" if self.binary else "learnt"
        value = f", objective={self.objective:.6g}" if self.objective is not None else ""
        told = "".join(
            f", {key}={self.info[key]}" for key in ("task", "loss", "kernel") if key in self.info
        )
        return (
            f"Coreset({len(self)} of {self.info.get('n', '?')} points, {kind} weights{value}, "
            f"status={self.status!r}{told})"
        )

    @property
    def binary(self) -> bool:
        return bool((self.weights == 1.0).all())

    @property
    def objective(self) -> float | None:
        """The outer objective of the whole coreset."""
        return float(self.objectives[-1]) if len(self.objectives) else None

    @property
    def gains(self) -> Array:
        """How much each point lowered the outer objective (a binary step may raise it: then the
        gain is negative)."""
        if not len(self.objectives):
            return np.empty(0)
        start = float(self.info.get("empty_objective", self.objectives[0]))
        return -np.diff(np.concatenate([[start], self.objectives]))

    def prefix(self, size: int) -> Coreset:
        """The first ``size`` points, in order, with unit weights: learnt weights belong to the set
        they were learnt on."""
        if not 1 <= size <= len(self):
            raise InputError(f"size={size} is outside 1 … {len(self)}, the size of this coreset.")
        # The objectives were measured with the weights of their time; they hold for unit weights
        # only if those were unit.
        objectives = self.objectives[:size] if self.binary else np.empty(0)
        return replace(
            self,
            indices=self.indices[:size],
            weights=np.ones(size),
            ids=self.ids[:size],
            objectives=objectives,
            status="complete",
        )

    def normalised(self) -> Coreset:
        """The same points with weights of mean 1, the form in which learnt weights enter a mean
        loss."""
        total = self.weights.sum()
        if total == 0:
            raise InputError("all weights are 0; there is nothing to normalise.")
        return replace(self, weights=self.weights * (len(self) / total))

    def of(self, data: Dataset) -> Dataset:
        """The chosen rows of ``data`` in order of selection, with the coreset's weights."""
        if len(self) and self.indices.max() >= len(data):
            raise InputError(
                f"index {self.indices.max()} is beyond the {len(data)} rows of data; pass the data "
                "it was made from."
            )
        picked = data[self.indices]
        object.__setattr__(picked, "weight", self.weights)
        return picked

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an ``.npz`` that plain NumPy opens without pickle; written beside and renamed, so a
        crash loses nothing."""
        target = Path(path)
        head = json.dumps({"format": FORMAT, "status": self.status, "info": self.info}, default=str)
        with replacing(target) as beside, open(beside, "wb") as file:
            np.savez(file, head=np.array(head), **{name: getattr(self, name) for name in _ARRAYS})
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Coreset:
        """Read what :meth:`save` wrote; refuses anything else by name and never unpickles."""
        try:
            stored = np.load(path, allow_pickle=False)
            if isinstance(stored, np.ndarray):
                raise ValueError("it holds a single array")
            with stored:
                head = json.loads(str(stored["head"]))
                arrays = {name: stored[name] for name in _ARRAYS}
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path} is not a coreset file ({error}); give a file written by Coreset.save."
            ) from error
        if head.get("format") != FORMAT:
            raise InputError(
                f"{path} has format {head.get('format')!r}; this version reads format {FORMAT}."
            )
        return cls(**arrays, status=head["status"], info=head["info"])
