"""Feature maps: rows in, a matrix of a fixed width out, the same for ever once fitted."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.maps import Nystrom, RandomFourier, RandomReLU

__all__ = [
    "FeatureMap",
    "Nystrom",
    "RandomFourier",
    "RandomReLU",
]

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)
