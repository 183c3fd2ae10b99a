"""Helpers shared by all selections: sizes, seeds, initial rows and ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Any

import numpy as np

from bicore.coreset import Coreset, as_row_numbers
from bicore.data import Array, Dataset
from bicore.errors import InputError, NumericalError, check_integer, check_number
from bicore.types import RandomState

#: Points, exchanges and removals whose scores differ by less than this share are equal. The
#: smallest id then decides. If ids are given, row order and duplicates do not change the result in
#: float64, nor do devices.
TIE = 1e-10
#: Rows that a selection begins with.
Initial = Coreset | Sequence[int]


class First(StrEnum):
    """How the first row is chosen: by the rule, or at random as in the paper."""

    BEST = "best"
    RANDOM = "random"


def auto_size_error() -> InputError:
    """Return the error for ``size="auto"`` with a method that cannot choose a size."""
    fix = "give a count or a fraction for other methods"
    return InputError(f"size='auto' needs method='bilevel'; {fix}.")


def as_size(size: Any, n: int, name: str = "size", other: str = "'auto'") -> int:
    """Convert ``size``, a count or a fraction of n, to a count from 1 to n."""
    if size == "auto":
        raise auto_size_error()
    whole = isinstance(size, Integral) and not isinstance(size, bool)
    value = float(size) if isinstance(size, Real) and not isinstance(size, Integral) else math.nan
    if 0 < value <= 1:  # 1.0 means all rows; 20.0 means 20 rows
        return max(1, round(value * n))
    if not whole and not value.is_integer():
        rule = f"{name} must be an integer between 1 and {n}, a fraction such as 0.05, or {other}"
        raise InputError(f"{rule}; got {size!r}.")
    count = int(size)
    if not 1 <= count <= n:
        rule = f"between 1 and {n} (the number of rows that can be selected)"
        raise InputError(f"{name} must be {rule}, or a fraction such as 0.05; got {count}.")
    return count


@dataclass(frozen=True)
class Relative:
    """A regulariser ρ as a share of the mean of k(x, x), or of ‖φ‖² in features.

    Parameters
    ----------
    share : float
        Share of the mean of k(x, x), above 0; ``inner_reg="relative:0.01"`` means
        ``Relative(0.01)``.

    Examples
    --------
    >>> Relative(0.1).rho(5.0)
    0.5
    """

    share: float

    def __post_init__(self) -> None:
        check_number("inner_reg", self.share, above=0)

    def rho(self, mean: float) -> float:
        """Compute ρ.

        Parameters
        ----------
        mean : float
            The mean of k(x, x); 0 counts as 1.

        Returns
        -------
        float
            The share of the mean.
        """
        return self.share * (mean or 1.0)


def as_relative(value: Any) -> Any:
    """Convert the text ``relative:0.01`` to ``Relative(0.01)``; return other values unchanged."""
    if not isinstance(value, str) or not value.lower().startswith("relative:"):
        return value
    try:
        return Relative(float(value.split(":", 1)[1]))
    except ValueError:
        raise InputError(f"inner_reg={value!r} must look like 'relative:0.01'.") from None


def as_seed(random_state: RandomState) -> int:
    """Convert ``random_state`` to an integer, from which every step derives its generator."""
    if isinstance(random_state, np.random.Generator):
        drawn: int = random_state.integers(2**62).item()
        return drawn
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if random_state is None:
        return as_seed(np.random.default_rng())
    return check_integer("random_state", random_state, 0, fix="or a NumPy generator")


def step_rng(seed: int, step: int) -> np.random.Generator:
    """Return the generator of a step; it depends only on seed and step, so a run can continue."""
    return np.random.default_rng((seed, step))


@dataclass(frozen=True, eq=False)
class Start:
    """The rows a selection begins with, and the coreset they came from, if any.

    The coreset is dropped before the search if its objectives are those of another problem.
    """

    points: list[int]
    weights: list[float]
    coreset: Coreset | None = None


def coreset_or_none(initial: Initial) -> Coreset | None:
    """Return ``initial`` if it is a coreset, None if it is a list of rows."""
    return initial if isinstance(initial, Coreset) else None


def read_initial(
    initial: Initial, data: Dataset, size: int, name: str = "initial", continues: bool = True
) -> Start:
    """Return row numbers and weights of the initial rows.

    With ``continues`` the data must be those of the coreset; otherwise only the number of rows
    must match.
    """
    coreset = coreset_or_none(initial)
    if coreset is not None:
        _check_origin(coreset, data, name, continues)
    points = as_row_numbers(initial, name, len(data))
    if len(points) > size:
        fix = "raise size to that number"
        raise InputError(f"{name} has {len(points)} rows, more than size={size}; {fix}.")
    weights = [1.0] * len(points) if coreset is None else coreset.weights.tolist()
    return Start(points.tolist(), weights, coreset)


def _check_origin(coreset: Coreset, data: Dataset, name: str, continues: bool) -> None:
    known = coreset.provenance
    if known.rows is not None and known.rows != len(data):
        mismatch = f"{known.rows} rows and data has {len(data)}"
        fix = "pass the data from which it was selected"
        raise InputError(f"{name} was selected from {mismatch}; {fix}.")
    if not continues or known.fingerprint is None:
        return
    if known.fingerprint != data.fingerprint():
        raise InputError(f"{name} was selected from other data; pass {name}.indices for its rows.")


def ranks_of(ids: Array) -> Array:
    """Return the rank of each row's id."""
    ranks: Array = np.argsort(np.argsort(ids, kind="stable"))
    return ranks


def in_id_order(rows: Array, ids: Array) -> Array:
    """Sort row numbers by id, so that random draws do not depend on the order of rows."""
    ordered: Array = rows[np.argsort(ids[rows], kind="stable")]
    return ordered


def argmin_by_id(scores: Array, ids: Array) -> int:
    """Return the index of the lowest score; ties (relative 1e-10) go to the smallest id."""
    best = scores.min()
    if not np.isfinite(best):
        raise non_finite_score_error()
    tied = np.flatnonzero(scores <= best + TIE * abs(best))
    return int(tied[ids[tied].argmin()])


def non_finite_score_error() -> NumericalError:
    """Return the error for a score that is not finite."""
    return NumericalError("a selection score is not finite; use float64, or scale x.")
