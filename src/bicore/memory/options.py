"""What memories are given when they are made, checked in one place."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from bicore.errors import InputError, as_option
from bicore.picking import whole_number
from bicore.selectors.base import Selector


class Weighting(StrEnum):
    """How the rows that a selection keeps share the weight of those they stand for."""

    EQUAL = "equal"
    LEARNT = "learnt"


def as_capacity(capacity: Any) -> int:
    """How many rows may be kept."""
    words = f"capacity={capacity!r} is not a whole number >= 1; give how many rows may be kept."
    return whole_number(capacity, 1, words)


def as_memory_seed(seed: Any) -> int:
    """A plain number: a generator's state would be no part of what is saved."""
    return whole_number(seed, 0, f"seed={seed!r} is not a whole number >= 0.")


def as_weighting(weights: str) -> Weighting:
    """How kept rows are weighted, by its name."""
    return as_option("weights", weights, Weighting)


def as_chooser(selector: Any) -> Selector:
    """A selector as a memory uses it; names are looked up at the doors."""
    if not isinstance(selector, Selector):
        raise InputError(
            f"selector={selector!r} is not a Selector; for example BilevelSelector(), or "
            "as_selector('uniform')."
        )
    return selector.for_memory()
