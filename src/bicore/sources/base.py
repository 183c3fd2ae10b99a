"""What a source gives: data, how it was scaled, and in words what was done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError, unknown_name

SCALES = ("standard", "none")


@dataclass(frozen=True, eq=False)
class Source:
    """Data read from somewhere.

    ``notes`` say what was done to columns and values; ``images`` are what a picture shows (n,
    height, width[, 3]) in 0 … 1; ``table`` holds the rows as they were written, header first;
    ``scaled`` columns or channels are those that were standardised.
    """

    name: str
    data: Dataset
    scale: str = "none"
    notes: tuple[str, ...] = ()
    images: Array | None = None
    table: Any = None
    keep: Array | None = field(
        default=None
    )  # columns that standardising leaves alone (indicator columns)

    def scaled(self, choice: str | None, later: bool = False) -> Source:
        """The same source under ``--scale``; None keeps what suits the source. ``later`` leaves
        standardising to the caller."""
        if choice is not None and choice not in SCALES:
            raise unknown_name("scale", choice, SCALES)
        wanted = self.scale if choice is None else choice
        if wanted == "none" and self.scale == "constants" and self.images is not None:
            pixels = (
                self.images[:, None] if self.images.ndim == 3 else self.images.transpose(0, 3, 1, 2)
            )
            return replace(
                self,
                data=replace(self.data, x=pixels),
                scale="unit",
                notes=(*self.notes, f"features: {_told('unit')}"),
            )
        if wanted == "none" and self.scale == "unit":
            wanted = "unit"
        if wanted != "standard":
            return replace(self, scale=wanted, notes=(*self.notes, f"features: {_told(wanted)}"))
        if later:
            return replace(
                self,
                scale="standard",
                notes=(*self.notes, f"features: {_told('standard')}, by each pool's own numbers"),
            )
        return replace(
            self,
            data=replace(self.data, x=standardised(self.data.x, self.keep)),
            scale="standard",
            notes=(*self.notes, f"features: {_told('standard')}"),
        )


def _told(scale: str) -> str:
    words = {
        "standard": "each numeric column (or image channel) scaled to mean 0 and variance 1",
        "none": "as they are, not scaled",
        "constants": "pixels standardised with the data set's usual constants",
        "unit": "pixels scaled to 0 … 1",
    }
    return words[scale]


def scaling(x: Array, keep: Array | None = None) -> Callable[[Array], Array]:
    """The map that gives x mean 0 and variance 1 a column, or a channel of images; constant ones
    become 0, and ``keep`` marks columns left alone.
    """
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean = x.mean(axis=axes, keepdims=True, dtype=np.float64)
    std = x.std(axis=axes, keepdims=True, dtype=np.float64)

    def apply(values: Array) -> Array:
        values = values.astype(np.float64)
        result = (values - mean) / np.where(std > 0, std, 1.0)
        if keep is not None:
            result[:, keep] = values[:, keep]
        return np.asarray(result)

    return apply


def standardised(x: Array, keep: Array | None = None) -> Array:
    """x under its own :func:`scaling`."""
    return scaling(x, keep)(x)


def need_labels(y: Any, what: str) -> None:
    if y is None:
        raise InputError(f"{what} holds no labels; selection needs them.")
