"""Buffers: a fixed memory in front of a stream."""

from bicore.stream.base import Buffer
from bicore.stream.gradient import GradientSampling
from bicore.stream.merge_reduce import MergeReduce
from bicore.stream.prototypes import Prototypes
from bicore.stream.reservoir import ClassBalancedReservoir, Reservoir

__all__ = ["Buffer", "ClassBalancedReservoir", "GradientSampling", "MergeReduce", "Prototypes", "Reservoir"]
