"""Memories: buffers of a stream, and replay memories for tasks one after the other."""

from bicore.memory.buffer import Buffer, StateFolder
from bicore.memory.merge_reduce import MergeReduce
from bicore.memory.moment_memory import MomentMemory
from bicore.memory.prototypes import Prototypes
from bicore.memory.registry import BUFFERS, as_buffer
from bicore.memory.replay import JointReplay, ReplayMemory
from bicore.memory.sampling import ClassBalancedReservoir, GradientSampling, Reservoir
from bicore.memory.vcl import VariationalFit, VariationalLearner, VariationalTraining

__all__ = [
    "BUFFERS",
    "Buffer",
    "ClassBalancedReservoir",
    "GradientSampling",
    "JointReplay",
    "MergeReduce",
    "MomentMemory",
    "Prototypes",
    "ReplayMemory",
    "Reservoir",
    "StateFolder",
    "VariationalFit",
    "VariationalLearner",
    "VariationalTraining",
    "as_buffer",
]
