"""What is given to moments and to memories by them, checked: priors, half-lives, targets."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError, NumericalError

#: A class prior: of the rows that were counted, equal shares, or shares by label.
Prior = str | Mapping[Any, float]


def aged(weights: Array, half_life: float | None) -> tuple[float, Array]:
    """What earlier rows count for after these, and what these count for themselves."""
    if half_life is None:
        return 1.0, weights
    ages = np.arange(len(weights) - 1, -1, -1)
    return 2.0 ** (-len(weights) / half_life), weights * 2.0 ** (-ages / half_life)


def as_shares(prior: Prior, classes: Sequence[Any]) -> Array:
    """How much each class counts under a prior; checked against the labels it names."""
    if str(prior) == "equal":
        return np.ones(len(classes))
    try:
        given = {plain(label): float(share) for label, share in prior.items()}  # type: ignore[union-attr]
    except (AttributeError, TypeError, ValueError):
        raise InputError(
            f"prior={prior!r} is neither 'stream', 'equal' nor shares by label; write for example "
            "{'cat': 0.3, 'dog': 0.7}."
        ) from None
    bad = [label for label, share in given.items() if not (np.isfinite(share) and share >= 0)]
    if bad or not sum(given.values()) > 0:
        raise InputError(
            f"prior={prior!r} has no shares that are numbers >= 0 with a positive sum; give each "
            "class a share."
        )
    # a command reads 0 where labels are text
    by_text = {str(label): share for label, share in given.items()}
    found = [given.get(label, by_text.get(label, 0.0)) for label in classes]
    return np.array(found, dtype=np.float64)


def as_half_life(value: Any) -> float | None:
    """A positive number of rows, or None; checked."""
    if value is None:
        return None
    if not _positive(value):
        raise InputError(
            f"half_life={value!r} is not a positive number of rows; give one, or None to forget "
            "nothing."
        )
    return float(value)


def plain(value: Any) -> Any:
    """A label as Python has it, which a state file can hold."""
    item = getattr(value, "item", None)  # of NumPy's
    return value if item is None else item()


def whole_count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"{name}={value!r} is no whole number from 0 on.")
    return number


def as_columns(y: Any, count: int) -> Array:
    """Targets of so many rows, a column each; none where there are none."""
    targets = np.zeros((count, 0)) if y is None else np.asarray(y, dtype=np.float64)
    if targets.ndim == 0 or len(targets) != count:
        raise InputError(f"y has shape {targets.shape} for {count} rows.")
    targets = targets.reshape(count, -1)
    bad = np.flatnonzero(~np.isfinite(targets).all(1))
    if len(bad):
        raise NumericalError(f"the targets of row {bad[0]} are not finite; drop that row.")
    return targets


def _positive(value: Any) -> bool:
    """Whether it is a finite number above zero; a truth value is none."""
    try:
        return value is not True and bool(0 < value < math.inf)
    except (TypeError, ValueError):
        return False
