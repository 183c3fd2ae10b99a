"""Device, precision, memory, threads, time and progress of a computation."""

from bicore.runtime.clock import Clock, ProgressLine, Step, TimeOver, checkpoint, unhurried
from bicore.runtime.context import (
    Context,
    Runtime,
    free_bytes,
    human_bytes,
    parse_bytes,
    versions,
)
from bicore.runtime.threads import handed_out, narrow, wide

__all__ = [
    "Clock",
    "Context",
    "ProgressLine",
    "Runtime",
    "Step",
    "TimeOver",
    "checkpoint",
    "free_bytes",
    "handed_out",
    "human_bytes",
    "narrow",
    "parse_bytes",
    "unhurried",
    "versions",
    "wide",
]
