"""What every selector is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from bicore.bilevel.problem import TIE
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError, NumericalError
from bicore.runtime import Context


class Selector(ABC):
    """Chooses ``size`` rows of a data set. Configuration is fixed at construction; ``select`` keeps
    no state."""

    @property
    def name(self) -> str:
        """The method in words, as errors and reports call it."""
        return type(self).__name__

    @property
    def needs_labels(self) -> bool:
        """Whether ``select`` needs labels."""
        return False

    @property
    def needs_model(self) -> bool:
        """Whether ``select`` needs the current model in its context."""
        return False

    @property
    def ordered(self) -> bool:
        """Whether the order of selection has a meaning: if so, a prefix is what a smaller size
        would have given."""
        return True

    def for_classes(self, classes: Sequence[Any]) -> Selector:
        """The same selector for a part of some data that is known to have these classes, whether or
        not the part shows them all."""
        return self

    @abstractmethod
    def select(
        self,
        data: Dataset,
        size: int | float | str,
        *,
        outer: Dataset | None = None,
        initial: Coreset | Sequence[int] = (),
        rng: int | np.random.Generator = 0,
        context: Context | None = None,
    ) -> Coreset:
        """Choose points.

        Parameters
        ----------
        data : the points to choose from. size : how many, or a fraction of the rows when a float
        below 1; "auto" where a method has a model to judge by. outer : a separate set on which the
        outer objective is measured; default: ``data`` itself. initial : points (row numbers, or a
        coreset of the same data) that come first; the rest continues them. rng : a seed or a
        generator; the same seed gives the same answer. context : device, limits, and the current
        model where one is needed.
        """


def as_size(size: int | float | str, n: int) -> int:
    """A count within 1 … n, or a fraction of n."""
    if size == "auto":
        raise InputError(
            "size='auto' is for bilevel selection, which has a model to judge by; give a count or "
            "a fraction."
        )
    if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise InputError(
            f"size={size!r} is not a number; give a count from 1 to {n}, or a fraction between 0 "
            "and 1."
        )
    if isinstance(size, (float, np.floating)) and not float(size).is_integer():
        if not 0 < size < 1:
            raise InputError(
                f"size={size} is neither a whole count nor a fraction between 0 and 1."
            )
        return max(1, round(float(size) * n))
    if isinstance(size, (float, np.floating)) and size == 1.0:
        return n
    count = int(size)
    if not 1 <= count <= n:
        raise InputError(
            f"size={count} is outside 1 … {n}, the number of points that can be selected; ask for "
            "fewer, or a fraction."
        )
    return count


def as_seed(rng: int | np.random.Generator) -> int:
    """One number from which every step derives its own generator, so that a run can be continued at
    any step."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**62))
    if isinstance(rng, bool) or not isinstance(rng, (int, np.integer)) or rng < 0:
        raise InputError(f"seed={rng!r} is not a whole number >= 0 or a NumPy generator.")
    return int(rng)


def step_rng(seed: int, step: int) -> np.random.Generator:
    """The generator of one step: the same whether or not the steps before it were made in this
    call."""
    return np.random.default_rng((seed, step))


def as_initial(
    initial: Coreset | Sequence[int], n: int, size: int, name: str = "initial"
) -> tuple[list[int], list[float]]:
    """Row numbers and weights of the points given."""
    weights: Any = None
    if isinstance(initial, Coreset):
        known = initial.info.get("n")
        if known is not None and known != n:
            raise InputError(
                f"{name} was selected from {known} points and data has {n}; pass the data it was "
                "made from."
            )
        points = initial.indices
        weights = initial.weights
    else:
        points = np.asarray(initial).reshape(-1)
        if len(points) and points.dtype.kind not in "iu":
            raise InputError(
                f"{name} holds {points[0]!r}; give whole row numbers (for a mask: "
                "np.flatnonzero(mask))."
            )
    if len(points) and (points.min() < 0 or points.max() >= n):
        wrong = int(points[(points < 0) | (points >= n)][0])
        raise InputError(f"{name} holds row {wrong}, outside 0 … {n - 1}; rows are counted from 0.")
    values, counts = np.unique(points, return_counts=True)
    if len(values) != len(points):
        raise InputError(
            f"{name} holds a row twice ({values[counts.argmax()]}); each point can be selected "
            "once."
        )
    if len(points) > size:
        raise InputError(
            f"{name} holds {len(points)} points and size={size}; ask for at least {len(points)}."
        )
    return [int(k) for k in points], [1.0] * len(points) if weights is None else [
        float(w) for w in weights
    ]


def check_origin(initial: Coreset | Sequence[int], data: Dataset) -> None:
    """Refuse a coreset of other data."""
    known = initial.info.get("fingerprint") if isinstance(initial, Coreset) else None
    if known is not None and known != data.fingerprint():
        raise InputError(
            "initial was selected from other data than this (the fingerprints differ); pass "
            "initial.indices to use its rows."
        )


def labels_of(data: Dataset, selector: Selector) -> list[Any]:
    """The class labels of the data in order of appearance; none where y is missing or holds
    targets."""
    if data.y is None:
        return []
    task = getattr(selector, "task", "auto")
    column = data.y[:, 0] if data.y.ndim == 2 and data.y.shape[1] == 1 else data.y
    if (
        column.ndim != 1
        or task == "regression"
        or (column.dtype.kind == "f" and task != "classification")
    ):
        return []
    return list(dict.fromkeys(column.tolist()))


def finished(coreset: Coreset) -> Coreset:
    """A selection that serves as part of something larger: one that was cut short ends the whole."""
    if coreset.status.startswith("interrupted"):
        raise KeyboardInterrupt
    # other words: all points are there
    if coreset.status.startswith("stopped by max_seconds after"):
        raise InputError(
            f"a selection was {coreset.status}, and part of a memory cannot be left half-made; "
            "raise Runtime(max_seconds=…)."
        )
    return coreset


def lowest(scores: Array, ids: Array) -> int:
    """The place of the lowest score; within a relative 1e-10 of it the smallest id wins."""
    best = scores.min()
    if not np.isfinite(best):
        raise NumericalError(
            f"a selection score is {best}; use float64, a larger inner_reg, or scale x."
        )
    tied = np.flatnonzero(scores <= best + TIE * abs(best))
    return int(tied[ids[tied].argmin()])
