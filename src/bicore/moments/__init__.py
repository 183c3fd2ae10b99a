"""The outer objective as moments: one object for streams, shards and clusters."""

from bicore.moments.candidates import Candidates
from bicore.moments.moments import Moments
from bicore.moments.outer import Outer

__all__ = ["Candidates", "Moments", "Outer"]
