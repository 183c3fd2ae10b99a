"""Feature maps by name, and the automatic choice from the first rows, without labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from bicore.data import Array, as_features
from bicore.errors import InputError, unknown_name
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.maps import (
    Embedded,
    Nystrom,
    RandomConvolutions,
    RandomFourier,
    RandomPooled,
    RandomReLU,
    Rows,
    Standardised,
    WhitenedPatches,
)

#: Maximum number of inspected rows, evenly spaced.
INSPECTED = 512
#: Minimum side of an image for filters, and for two layers of them.
IMAGE_SIDE = 8
DEEP_SIDE = 18
#: Minimum number of columns of an embedding or of pixels.
BROAD = 32
#: Minimum number of different values of an embedding, as a share of its entries and absolutely:
#: pixels have 256 per colour, and float16 repeats values too.
DIFFERENT_SHARE = 0.3
DIFFERENT = 1024
#: From this number on float32 has no fractions, and whole numbers mean nothing.
FRACTIONS = 2.0**24
#: Maximum share of entries equal to the one above in an embedding: dead units of a network, not the
#: background of images.
EQUAL_ABOVE = 0.5
#: Minimum correlation of adjacent columns of pixels and signals; an embedding's columns have no
#: order.
ADJACENT = 0.4
#: Maximum ratio of standard deviations among the middle 90% of the columns of an embedding, and the
#: minimum number of rows to measure it.
UNLIKE = 20.0
SPREAD_ROWS = 5
#: If fewer columns than this hold nearly all of the sum of squares, the rows are a table with
#: different units.
DOMINANT = 8.0
#: Number of standard deviations beyond which the values of a table are softened: the first rows say
#: little about tails.
FAR = 3.0


@dataclass(frozen=True, eq=False)
class AutomaticFeatures(FeatureMap):
    """A map chosen from the first rows.

    Memories and heads compare a few by their held-out loss if at least 200 first rows of several
    classes are known: for images random convolutions, two layers of them (from 18 x 18 pixels on)
    and whitened patches; for tables random features and the columns themselves. Otherwise rows
    alone decide:

    Images (with channels first) get random convolutions. Rows of at least 32 columns that look like
    an embedding stay as they are: their values hardly repeat, adjacent columns are hardly
    correlated, and the columns have similar spreads. Other rows get random ReLU features: as they
    are if many columns share one scale (pixels in a row), else with standardised columns that are
    softened beyond three deviations (a table). ``reason`` of the fitted map is "image",
    "embedding", "pixels" or "table".
    """

    random_state: int = 0

    _integers = ("random_state",)

    @property
    def width(self) -> int:
        raise self._not_fitted_error()  # fit returns another map

    def features(self, x: Tensor) -> Tensor:
        raise self._not_fitted_error()

    def fit(self, x: Array) -> FeatureMap:
        return self.candidates(x)[0].fit(as_features(x, "x"))

    def candidates(self, x: Array) -> list[FeatureMap]:
        """Return the maps that may suit some rows, the default first."""
        rows, seed = as_features(x, "x"), self.random_state
        relu = RandomReLU(random_state=seed)
        filters = [RandomConvolutions(random_state=seed), WhitenedPatches(random_state=seed)]
        if min(rows.shape[-2:]) >= DEEP_SIDE:
            filters.insert(1, _deep_convolutions(random_state=seed))
        maps: dict[str, Sequence[FeatureMap]] = {
            "image": filters,
            "embedding": (Rows(),),
            "pixels": (relu,),
            "table": (Standardised(relu, beyond=FAR), Standardised(Rows(), beyond=FAR)),
        }
        reason = _kind_of_rows(rows)
        return [replace(one, reason=reason) for one in maps[reason]]


def _kind_of_rows(rows: Array) -> str:
    """Classify rows as "image", "embedding", "pixels" or "table"."""
    if rows.ndim in (3, 4) and min(rows.shape[-2:]) >= IMAGE_SIDE:
        return "image"
    step = -(-len(rows) // INSPECTED)
    some = rows[::step].reshape(len(rows[::step]), -1).astype(np.float64)
    if some.shape[1] < BROAD:
        return "table"
    scaled: Array = some / (np.abs(some).max() or 1.0)  # whose squares do not overflow
    if _is_continuous(some) and _is_unordered(scaled) and _has_similar_spreads(scaled):
        return "embedding"
    shares = np.square(scaled).mean(0)
    total = float(shares.sum())
    dominated = total > 0 and total**2 / float(np.square(shares).sum()) < DOMINANT
    return "table" if dominated else "pixels"


def _is_continuous(rows: Array) -> bool:
    """Whether values are fractions that hardly repeat, over all rows and in columns."""
    if np.abs(rows).max() < FRACTIONS and np.array_equal(rows, np.round(rows)):
        return False
    different = len(np.unique(rows))
    above = float((rows[1:] == rows[:-1]).mean()) if len(rows) > 1 else 0.0
    return different >= min(DIFFERENT, DIFFERENT_SHARE * rows.size) and above < EQUAL_ABOVE


def _is_unordered(rows: Array) -> bool:
    """Whether adjacent columns are hardly correlated."""
    spread = rows.std(0)
    varying = spread > 0
    if varying.sum() < 2:
        return True
    scores = (rows[:, varying] - rows[:, varying].mean(0)) / spread[varying]
    return float((scores[:, 1:] * scores[:, :-1]).mean()) < ADJACENT


def _has_similar_spreads(rows: Array) -> bool:
    """Whether the columns that vary have similar spreads."""
    spread = rows.std(0)
    if len(rows) < SPREAD_ROWS or not spread.any():
        return True
    low, high = np.quantile(spread[spread > 0], (0.05, 0.95))
    return bool(high <= UNLIKE * low)


def _deep_convolutions(width: int = 1152, random_state: int = 0) -> RandomConvolutions:
    """Two layers of filters; parts and shifts were chosen on held-out training rows of MNIST."""
    return RandomConvolutions(width, pool=3, bias=0.3, random_state=random_state, depth=2)


#: A map by its name, made from a seed.
FEATURES: dict[str, Callable[..., FeatureMap]] = {
    "auto": AutomaticFeatures,
    "rows": lambda random_state: Rows(),
    "relu": RandomReLU,
    "convolutions": RandomConvolutions,
    "deep-convolutions": _deep_convolutions,
    "patches": WhitenedPatches,
    "pooled": RandomPooled,
    "fourier": RandomFourier,
    "laplace": partial(RandomFourier, kind="laplace"),
    "nystrom": Nystrom,
}
#: Maps whose width can be given behind the name.
WITH_WIDTH = tuple(
    name for name, make in FEATURES.items() if "width" in inspect.signature(make).parameters
)


def as_feature_map(value: Any, random_state: int = 0) -> FeatureMap:
    """Make a feature map from its name or from a module."""
    if isinstance(value, FeatureMap):
        return value
    if isinstance(value, nn.Module):
        return Embedded(value)
    if not isinstance(value, str):
        names = ", ".join(map(repr, FEATURES))
        raise InputError(
            f"feature_map must be one of {names}, a FeatureMap instance or a torch.nn.Module; got "
            f"{value!r}."
        )
    name, colon, width = value.partition(":")
    if name not in FEATURES:
        raise unknown_name("feature_map", value, FEATURES)
    if colon and not (name in WITH_WIDTH and width.isdigit()):
        raise InputError(
            f"feature_map={value!r}: a width must be an integer, such as 'relu:512', and is "
            f"allowed for {', '.join(WITH_WIDTH)}."
        )
    return FEATURES[name](random_state=random_state, **({"width": int(width)} if colon else {}))
