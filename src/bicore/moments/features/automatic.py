"""Which map suits rows, by how the first ones look; without labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from bicore.data import Array, as_features
from bicore.moments.features.base import FeatureMap, not_settled
from bicore.moments.features.checked import count_of
from bicore.moments.features.convolutions import RandomConvolutions
from bicore.moments.features.relu import RandomReLU
from bicore.moments.features.rows import Rows
from bicore.moments.features.scaled import Standardised

#: Rows that are looked at, evenly spaced.
LOOKED_AT = 512
#: Sides of an image from which filters have room to slide.
IMAGE_SIDE = 8
#: Columns from which rows may be an embedding, or pixels.
BROAD = 32
#: An embedding has more different values than this share of its entries, or than this many: pixels
#: have 256 a colour, and float16 repeats values too.
DIFFERENT_SHARE = 0.3
DIFFERENT = 1024
#: From here on float32 has no fractions, and whole numbers say nothing.
FRACTIONS = 2.0**24
#: Entries equal to the one above, of an embedding: the dead units of a network, not the background
#: of an image.
EQUAL_ABOVE = 0.5
#: The correlation of adjacent columns of pixels and signals; an embedding's have no order.
ADJACENT = 0.4
#: How many times the spread of a column may be that of another in an embedding, of the nine tenths
#: in the middle; of fewer rows than this a spread says nothing.
UNLIKE = 20.0
SPREAD_ROWS = 5
#: Where so few columns hold nearly all squares, the rows are a table in many units.
DOMINANT = 8.0
#: Deviations from which a table's values are softened: few first rows say little about tails.
FAR = 3.0


@dataclass(frozen=True, eq=False)
class AutomaticFeatures(FeatureMap):
    """The map that suits the first rows by their looks.

    Images (with channels first) get random convolutions. Rows of at least 32 columns that look like
    an embedding stay as they are: their values hardly repeat, adjacent columns are hardly
    correlated, and the columns have like spreads. Other rows get random ReLU features: as they are
    where many columns share one scale (pixels in a row), with standardised columns, softened beyond
    three deviations, where they do not (a table). ``reason`` of the settled map says which:
    "image", "embedding", "pixels" or "table".

    Parameters
    ----------
    seed : int
        Of what is drawn.
    reason : str, optional
        Of the settled map only.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.moments.features import AutomaticFeatures
    >>> rows = np.random.default_rng(0).standard_normal((20, 64))
    >>> AutomaticFeatures().settled(rows).reason
    'embedding'
    >>> AutomaticFeatures().settled(rows[:, :5]).reason
    'table'
    """

    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", count_of(self.seed, "seed", 0))

    @property
    def width(self) -> int:
        """Not known before rows were seen."""
        raise not_settled(self)

    def features(self, x: Tensor) -> Tensor:
        """Not before rows were seen.

        Parameters
        ----------
        x : Tensor
            Rows.

        Returns
        -------
        Tensor
            Never; the settled map has features.

        Raises
        ------
        InputError
            Always.
        """
        raise not_settled(self)

    def settled(self, x: Array) -> FeatureMap:
        """The map that suits rows such as these.

        Parameters
        ----------
        x : array
            The first rows; some twenty are enough, in any order.

        Returns
        -------
        FeatureMap
            A settled one, with its ``reason``.
        """
        rows = as_features(x, "x")
        reason = looks_like(rows)
        chosen: dict[str, FeatureMap] = {
            "image": RandomConvolutions(seed=self.seed),
            "embedding": Rows(),
            "pixels": RandomReLU(seed=self.seed),
            "table": Standardised(RandomReLU(seed=self.seed), beyond=FAR),
        }
        return replace(chosen[reason], reason=reason).settled(rows)


def looks_like(rows: Array) -> str:
    """One word for rows: "image", "embedding", "pixels" or "table"."""
    if rows.ndim in (3, 4) and min(rows.shape[-2:]) >= IMAGE_SIDE:
        return "image"
    step = -(-len(rows) // LOOKED_AT)
    some = rows[::step].reshape(len(rows[::step]), -1).astype(np.float64)
    if some.shape[1] < BROAD:
        return "table"
    if _continuous(some) and _unordered(some) and _like_spreads(some):
        return "embedding"
    return "table" if _dominated(some) else "pixels"


def _continuous(rows: Array) -> bool:
    """Whether values are fractions and hardly repeat, over all and down the columns."""
    if np.abs(rows).max() < FRACTIONS and np.array_equal(rows, np.round(rows)):
        return False
    different = len(np.unique(rows))
    above = float((rows[1:] == rows[:-1]).mean()) if len(rows) > 1 else 0.0
    return different >= min(DIFFERENT, DIFFERENT_SHARE * rows.size) and above < EQUAL_ABOVE


def _unordered(rows: Array) -> bool:
    """Whether adjacent columns go their own ways."""
    rows = _in_units_of_the_largest(rows)
    spread = rows.std(0)
    varying = spread > 0
    if varying.sum() < 2:
        return True
    scores = (rows[:, varying] - rows[:, varying].mean(0)) / spread[varying]
    return float((scores[:, 1:] * scores[:, :-1]).mean()) < ADJACENT


def _like_spreads(rows: Array) -> bool:
    """Whether columns that vary do so by like amounts."""
    spread = _in_units_of_the_largest(rows).std(0)
    if len(rows) < SPREAD_ROWS or not spread.any():
        return True
    low, high = np.quantile(spread[spread > 0], (0.05, 0.95))
    return bool(high <= UNLIKE * low)


def _dominated(rows: Array) -> bool:
    """Whether a few columns hold nearly all squares."""
    shares = np.square(_in_units_of_the_largest(rows)).mean(0)
    total = float(shares.sum())
    return total > 0 and total**2 / float(np.square(shares).sum()) < DOMINANT


def _in_units_of_the_largest(rows: Array) -> Array:
    """Rows whose squares do not overflow."""
    scaled: Array = rows / (np.abs(rows).max() or 1.0)
    return scaled
