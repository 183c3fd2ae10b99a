"""Feature maps: rows in, a matrix of a fixed width out, the same for ever once fitted."""

from bicore.moments.features.base import FeatureMap, UnitRows, WithConstant
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
from bicore.moments.features.registry import FEATURES, AutomaticFeatures, as_feature_map
from bicore.moments.features.saving import map_from_state, map_to_state

__all__ = [
    "FEATURES",
    "AutomaticFeatures",
    "Embedded",
    "FeatureMap",
    "Nystrom",
    "RandomConvolutions",
    "RandomFourier",
    "RandomPooled",
    "RandomReLU",
    "Rows",
    "Standardised",
    "UnitRows",
    "WhitenedPatches",
    "WithConstant",
    "as_feature_map",
    "map_from_state",
    "map_to_state",
]
