"""Buffers: a fixed memory in front of a stream."""

from bicore.memory.buffer import Buffer
from bicore.memory.gradient import GradientSampling
from bicore.memory.merge_reduce import MergeReduce
from bicore.memory.prototypes import Prototypes
from bicore.memory.reservoir import ClassBalancedReservoir, Reservoir

__all__ = [
    "Buffer",
    "ClassBalancedReservoir",
    "GradientSampling",
    "MergeReduce",
    "Prototypes",
    "Reservoir",
]
