"""The outer objective as moments: one object for streams, shards and clusters."""

from bicore.moments.moments import Moments, Outer
from bicore.moments.ridge import Candidates, FeatureRows, FeatureState

__all__ = ["Candidates", "FeatureRows", "FeatureState", "Moments", "Outer"]
