"""Memories: buffers in front of a stream, and a replay memory for tasks one after the other."""

from bicore.memory.buffer import Buffer
from bicore.memory.gradient import GradientSampling
from bicore.memory.joint_replay import JointReplay
from bicore.memory.merge_reduce import MergeReduce
from bicore.memory.moment_memory import MomentMemory
from bicore.memory.prototypes import Prototypes
from bicore.memory.replay import ReplayMemory
from bicore.memory.reservoir import ClassBalancedReservoir, Reservoir
from bicore.memory.store import StateFolder

__all__ = [
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
]
