"""Feature maps: rows in, a matrix of a fixed width out, the same for ever once settled."""

from bicore.moments.features.automatic import AutomaticFeatures
from bicore.moments.features.base import FeatureMap, UnitRows, WithConstant
from bicore.moments.features.convolutions import RandomConvolutions
from bicore.moments.features.fourier import RandomFourier
from bicore.moments.features.module import Embedded
from bicore.moments.features.names import FEATURES, as_feature_map
from bicore.moments.features.nystrom import Nystrom
from bicore.moments.features.pooled import RandomPooled
from bicore.moments.features.relu import RandomReLU
from bicore.moments.features.rows import Rows
from bicore.moments.features.scaled import Standardised
from bicore.moments.features.storing import restored, stored

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
    "WithConstant",
    "as_feature_map",
    "restored",
    "stored",
]
