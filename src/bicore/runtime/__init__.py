"""Device, precision, memory, threads, time and progress of a computation."""

from bicore.runtime.clock import Clock, TimeOver, checkpoint, unhurried
from bicore.runtime.context import Context, Runtime, Step
from bicore.runtime.limits import free_bytes, human_bytes, parse_bytes
from bicore.runtime.progress import ProgressLine
from bicore.runtime.threads import handed_out, narrow, wide
from bicore.runtime.versions import versions

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
