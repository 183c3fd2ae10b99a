"""Feature maps: from rows to feature vectors of fixed length, unchanged once fitted."""

from bicore._deprecated import keep_old_names
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.maps import Nystrom, RandomFourier, RandomReLU

__all__ = ["FeatureMap", "Nystrom", "RandomFourier", "RandomReLU"]

keep_old_names(__name__)
