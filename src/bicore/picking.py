"""What every selection does around its rule: sizes, seeds, first points, and who wins a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Any

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError, NumericalError, check_integer, check_number

#: Points, exchanges and removals whose worth differs by less than this share are equal; the
#: smallest id then decides, so that row order, duplicates and devices do not change the answer.
TIE = 1e-10


class First(StrEnum):
    """Who chooses the first point: the rule, or chance as in the paper."""

    BEST = "best"
    RANDOM = "random"


def no_size_of_its_own() -> InputError:
    """What is raised where a size is left to a method that cannot tell."""
    return InputError("size='auto' needs bilevel selection; give a count or a fraction.")


def as_size(size: Any, n: int) -> int:
    """A count within 1 … n, or a fraction of n."""
    if size == "auto":
        raise no_size_of_its_own()
    if isinstance(size, bool) or not isinstance(size, Real):
        raise InputError(f"size={size!r} is no number; give 1 to {n}, or a fraction up to 1.0.")
    value = float(size)
    if not isinstance(size, Integral):  # 1.0 is all of them, 20.0 a count that came as a float
        if 0 < value <= 1:
            return max(1, round(value * n))
        if not value.is_integer():
            raise InputError(f"size={size} is neither a whole count nor a fraction up to 1.0.")
    count = int(value)
    if not 1 <= count <= n:
        rows = f"{n}, the number of points that can be selected"
        raise InputError(f"size={count} is outside 1 … {rows}; ask for fewer, or a fraction.")
    return count


@dataclass(frozen=True)
class Relative:
    """A regulariser ρ as a share of the mean of k(x, x), or of ‖φ‖² in features.

    Parameters
    ----------
    share : float
        Above 0; ``inner_reg="relative:0.01"`` means ``Relative(0.01)``.

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
    """Turn the text ``relative:0.01`` into ``Relative(0.01)``; return other values as they are."""
    if not isinstance(value, str) or not value.lower().startswith("relative:"):
        return value
    try:
        return Relative(float(value.split(":", 1)[1]))
    except ValueError:
        raise InputError(f"inner_reg={value!r} must be such as 'relative:0.01'.") from None


def as_seed(random_state: int | np.random.Generator | None) -> int:
    """One number from which every step derives its own generator, so that a run can be continued
    at any step."""
    if isinstance(random_state, np.random.Generator):
        drawn: int = random_state.integers(2**62).item()
        return drawn
    if random_state is None:
        return as_seed(np.random.default_rng())
    return check_integer("random_state", random_state, 0, fix="or give a NumPy generator")


def step_rng(seed: int, step: int) -> np.random.Generator:
    """The generator of one step: the same whether or not the steps before it were made in this
    call."""
    return np.random.default_rng((seed, step))


@dataclass(frozen=True, eq=False)
class Start:
    """The points a selection begins with, and the coreset they came from, if any."""

    points: list[int]
    weights: list[float]
    coreset: Coreset | None = None


def continued(initial: Coreset | Sequence[int]) -> Coreset | None:
    """The coreset that is to be continued, where it is one and no list of points."""
    return initial if isinstance(initial, Coreset) else None


def as_start(
    initial: Coreset | Sequence[int],
    data: Dataset,
    size: int,
    name: str = "initial",
    continues: bool = True,
) -> Start:
    """Row numbers and weights of the points given.

    What ``continues`` a coreset needs the very data it was made from; what only looks at its rows
    may have other weights or labels.
    """
    n = len(data)
    coreset = continued(initial)
    if coreset is not None:
        _check_origin(coreset, data, name, continues)
        points = coreset.indices
    else:
        points = np.asarray(initial).reshape(-1)
        if len(points) and points.dtype.kind not in "iu":
            rows = "give whole row numbers (for a mask: np.flatnonzero(mask))"
            raise InputError(f"{name} holds {points[0]!r}; {rows}.")
    if len(points) and (points.min() < 0 or points.max() >= n):
        wrong = int(points[(points < 0) | (points >= n)][0])
        raise InputError(f"{name} holds row {wrong}, outside 0 … {n - 1}; rows are counted from 0.")
    values, counts = np.unique(points, return_counts=True)
    if len(values) != len(points):
        raise InputError(f"{name} holds a row twice ({values[counts.argmax()]}); give it once.")
    if len(points) > size:
        raise InputError(f"{name} holds {len(points)} points and size={size}; ask for as many.")
    weights = [1.0] * len(points) if coreset is None else coreset.weights.tolist()
    return Start([int(k) for k in points], weights, coreset)


def _check_origin(coreset: Coreset, data: Dataset, name: str, continues: bool) -> None:
    known = coreset.provenance
    if known.rows is not None and known.rows != len(data):
        counts = f"{known.rows} points and data has {len(data)}"
        raise InputError(f"{name} was selected from {counts}; pass the data it was made from.")
    if not continues or known.fingerprint is None:
        return
    if known.fingerprint != data.fingerprint():
        raise InputError(f"{name} was selected from other data; pass {name}.indices for its rows.")


def ranks_of(ids: Array) -> Array:
    """The place of every row in the order of the ids."""
    ranks: Array = np.argsort(np.argsort(ids, kind="stable"))
    return ranks


def in_id_order(places: Array, ids: Array) -> Array:
    """Places sorted by their ids: what is drawn from them is the same points in any order of
    rows."""
    ordered: Array = places[np.argsort(ids[places], kind="stable")]
    return ordered


def lowest(scores: Array, ids: Array) -> int:
    """The place of the lowest score; within a relative 1e-10 of it the smallest id wins."""
    best = scores.min()
    if not np.isfinite(best):
        raise unusable_score()
    tied = np.flatnonzero(scores <= best + TIE * abs(best))
    return int(tied[ids[tied].argmin()])


def unusable_score() -> NumericalError:
    """What is raised where no point can be told from another."""
    return NumericalError("a selection score is not finite; use float64, or scale x.")
