"""How many points a class may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array, Targets
from bicore.errors import InputError
from bicore.picking import whole_number


@dataclass(frozen=True, eq=False)
class Quotas:
    """Quotas of one data set: ``codes`` is the class of every row, ``caps`` the most points of
    each class, or None for one of every class a round."""

    codes: Array
    caps: Array | None

    def allowed(self, chosen: Sequence[int], free: Array) -> Array:
        """Of the rows still free, those whose class may have another point."""
        classes = int(self.codes.max()) + 1 if self.caps is None else len(self.caps)
        counts = np.bincount(self.codes[list(chosen)], minlength=classes)
        if self.caps is not None:
            open_classes: Array = counts < self.caps
            return free & open_classes[self.codes]
        left = np.bincount(self.codes[free], minlength=classes) > 0
        if not left.any():
            return free
        least: Array = left & (counts == counts[left].min())
        return free & least[self.codes]


class QuotaRule(ABC):
    """A wish about classes, before it is known which there are."""

    @abstractmethod
    def of(self, targets: Targets) -> Quotas | None:
        """The quotas of these labels; None where every point may be taken."""


@dataclass(frozen=True)
class Balanced(QuotaRule):
    """One point of every class a round."""

    def of(self, targets: Targets) -> Quotas:
        return Quotas(_codes(targets), None)


@dataclass(frozen=True)
class BalancedIfClasses(QuotaRule):
    """One point of every class a round where there are classes; nothing for targets."""

    def of(self, targets: Targets) -> Quotas | None:
        return None if targets.classes is None else Balanced().of(targets)


@dataclass(frozen=True)
class AtMost(QuotaRule):
    """The most points of each class, by its label; classes that are not named have no limit."""

    counts: Mapping[Any, int]

    def __post_init__(self) -> None:
        for label, count in self.counts.items():
            whole_number(
                count,
                0,
                f"quotas[{label!r}]={count!r} is not a count >= 0; give the most points this class "
                "may have.",
            )

    def of(self, targets: Targets) -> Quotas:
        codes = _codes(targets)
        known = np.asarray(targets.classes).tolist()
        caps = np.full(len(known), len(codes), dtype=np.int64)
        for label, count in self.counts.items():
            if label not in known:
                raise InputError(
                    f"quotas names {label!r}, which is no class of y ({known[:10]}); name classes "
                    "that occur."
                )
            caps[known.index(label)] = count
        return Quotas(codes, caps)


def _codes(targets: Targets) -> Array:
    if targets.classes is None:
        raise InputError(
            "quotas are for classes, and y holds targets; leave them out, or give labels."
        )
    return np.asarray(targets.values).reshape(-1)
