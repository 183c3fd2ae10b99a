"""A source: its data, its scaling, and notes on both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore._deprecated import renamed_methods
from bicore.data import Array, Dataset
from bicore.errors import MemoryLimitError, unknown_name
from bicore.sources.cells import Cells

SCALES = ("standard", "none")
#: Numbers up to this have finite squares.
LARGE = 1e150
_SCALES_IN_WORDS = {
    "standard": "{what} scaled to mean 0 and variance 1",
    "none": "as they are, not scaled",
    "constants": "pixels standardised with the data set's usual constants",
    "unit": "pixels scaled to 0 … 1",
}


@renamed_methods(scaled="scale_features")
@dataclass(frozen=True, eq=False)
class Source:
    """Data read from a source; ``table`` holds the columns as they were read."""

    name: str
    data: Dataset
    scale: str = "none"
    notes: tuple[str, ...] = ()
    images: Array | None = None
    table: Any = None
    columns: Any = None
    scaling: Scaling | None = None
    root: Path | None = None

    @property
    def unscaled(self) -> Array | None:
        """Mask of the features that are not scaled; None if all are."""
        return None if self.columns is None else self.columns.unscaled

    @property
    def cells(self) -> dict[str, Cells] | None:
        """The columns of a table for display."""
        table = self.table
        return None if table is None else {name: Cells(one) for name, one in table.items()}

    def encode(self, other: Source) -> Dataset:
        """Encode another table like this one."""
        if other.table is None:
            lacks = f"{other.name} does not fit the memory limit"
            raise MemoryLimitError(f"{lacks}; raise Runtime(memory=…).")
        x = self.columns.encode(other.table)
        return replace(other.data, x=x if self.scaling is None else self.scaling(x))

    def scale_features(self, choice: str | None, later: bool = False) -> Source:
        """Scale the features as requested, or by the default of this kind of source.

        With ``later`` they are not standardised here, but with the statistics of each pool.
        """
        scale = check_scale(choice) or self.scale
        x, fitted = None, None
        if scale == "none" and self.scale == "constants" and self.images is not None:
            grey = self.images.ndim == 3
            x = self.images[:, None] if grey else self.images.transpose(0, 3, 1, 2)
        if scale == "none" and self.scale in ("constants", "unit"):
            scale = "unit"
        if scale == "standard" and not later:
            fitted = fit_scaling(self.data.x, self.unscaled)
            x = fitted(self.data.x)
        data = self.data if x is None else replace(self.data, x=x)
        more = ", with the statistics of each pool" if scale == "standard" and later else ""
        what = "numeric columns" if self.data.x.ndim == 2 else "image channels"
        notes = (*self.notes, scale_note(scale, what) + more)
        return replace(self, data=data, scale=scale, notes=notes, scaling=fitted)


def check_scale(scale: str | None) -> str | None:
    """Return the scaling of this name; None is the default."""
    if scale not in (None, *SCALES):
        raise unknown_name("scale", scale, SCALES)
    return scale


def scale_note(scale: str, what: str = "numeric columns") -> str:
    """Return a note on the scaling of features."""
    return f"features: {_SCALES_IN_WORDS[scale].format(what=what)}"


@dataclass(frozen=True, eq=False)
class Scaling:
    """Subtracts a mean and divides by a standard deviation, per column or channel.

    Constant columns become 0; columns marked by ``unscaled`` are unchanged.
    """

    mean: Array
    spread: Array
    unscaled: Array | None = None

    def __call__(self, values: Array) -> Array:
        result: Array = values.astype(np.float64)
        spread = np.where(self.spread > 0, self.spread, 1.0)
        # In place, because the data may take half of the memory. Columns of very large values are
        # divided first, because the difference of two values can overflow.
        if (spread > LARGE).any():
            result /= spread
            result -= self.mean / spread
        else:
            result -= self.mean
            result /= spread
        if self.unscaled is not None:
            result[:, self.unscaled] = values[:, self.unscaled]
        return result


def fit_scaling(x: Array, unscaled: Array | None = None) -> Scaling:
    """Return the scaling of x to mean 0 and variance 1, per column or channel."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    high = x.max(axis=axes, keepdims=True).astype(np.float64)
    low = x.min(axis=axes, keepdims=True).astype(np.float64)
    peak = np.maximum(high, -low)
    # Squares of numbers beyond these overflow or underflow: such columns are divided by their
    # largest number.
    extreme = (peak > LARGE) | ((peak > 0) & (peak < 1 / LARGE))
    unit = np.where(extreme, peak, 1.0)
    scaled = x / unit if extreme.any() else x
    mean = scaled.mean(axis=axes, keepdims=True, dtype=np.float64)
    spread = scaled.std(axis=axes, keepdims=True, dtype=np.float64)
    # The mean of equal numbers is rounded, and their spread then above 0.
    constant = high == low
    mean = np.where(constant, high, mean * unit)
    return Scaling(mean, np.where(constant, 0.0, spread * unit), unscaled)
