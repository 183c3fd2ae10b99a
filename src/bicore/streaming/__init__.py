"""Memories: buffers of a stream, and replay memories for tasks one after the other."""

from bicore._deprecated import keep_old_names
from bicore.streaming.merge_reduce import MergeReduce
from bicore.streaming.moment_memory import MomentMemory
from bicore.streaming.registry import BUFFERS, as_buffer
from bicore.streaming.replay import JointReplay, ReplayMemory
from bicore.streaming.sampling import (
    ClassBalancedReservoir,
    GradientSampling,
    Prototypes,
    Reservoir,
)
from bicore.streaming.vcl import VariationalLearner, VariationalTraining

__all__ = [
    "BUFFERS",
    "ClassBalancedReservoir",
    "GradientSampling",
    "JointReplay",
    "MergeReduce",
    "MomentMemory",
    "Prototypes",
    "ReplayMemory",
    "Reservoir",
    "VariationalLearner",
    "VariationalTraining",
    "as_buffer",
]

keep_old_names(__name__)
