"""Memories: buffers of a stream, and replay memories for tasks one after the other."""

from bicore.streaming.buffer import Buffer, StateFolder
from bicore.streaming.merge_reduce import MergeReduce
from bicore.streaming.moment_memory import MomentMemory
from bicore.streaming.prototypes import Prototypes
from bicore.streaming.registry import BUFFERS, as_buffer
from bicore.streaming.replay import JointReplay, ReplayMemory
from bicore.streaming.sampling import ClassBalancedReservoir, GradientSampling, Reservoir
from bicore.streaming.vcl import VariationalFit, VariationalLearner, VariationalTraining

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
