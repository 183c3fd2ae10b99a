"""How many points a class may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array, Targets
from bicore.errors import InputError


@dataclass(frozen=True, eq=False)
class Quotas:
    """``codes`` is the class of every row; ``caps`` the most points of each, or None for one of
    every class a round."""

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


def as_quotas(value: Any, targets: Targets) -> Quotas | None:
    """Quotas of these labels: None, "balanced", or the most points of each class by its label."""
    if value is None:
        return None
    if targets.classes is None:
        raise InputError(
            "quotas are for classes, and y holds targets; leave them out, or give labels."
        )
    codes = np.asarray(targets.values).reshape(-1)
    if value == "balanced":
        return Quotas(codes, None)
    if not isinstance(value, Mapping):
        raise InputError(
            f"quotas={value!r} is neither 'balanced' nor a mapping of labels to counts; for "
            f"example {{'spam': 20}}."
        )
    known = targets.classes.tolist()
    caps = np.full(len(known), len(codes), dtype=np.int64)
    for label, count in value.items():
        if label not in known:
            raise InputError(
                f"quotas names {label!r}, which is no class of y ({known[:10]}); name classes that "
                "occur."
            )
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise InputError(
                f"quotas[{label!r}]={count!r} is not a count >= 0; give the most points this class "
                "may have."
            )
        caps[known.index(label)] = count
    return Quotas(codes, caps)
