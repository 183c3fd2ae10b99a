"""Where and under which limits the arithmetic runs: one frozen value that travels from the door to the inside."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bicore.errors import InputError, unknown_name

#: Share of the free memory that is used when no limit is given; the rest is left to the caller and to temporaries.
DEFAULT_MEMORY_SHARE = 0.5
#: A progress line appears only once work has lasted this long.
PROGRESS_AFTER_SECONDS = 2.0

#: Up to this many rows a selection runs on one thread unless a number is asked for (two threads: 5 times slower at 125 rows).
SINGLE_THREAD_ROWS = 300

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


@dataclass(frozen=True)
class Step:
    """What a progress callback receives after each selected point."""

    done: int
    total: int
    objective: float
    seconds: float

    @property
    def seconds_left(self) -> float:
        """A straight-line estimate; steps grow dearer with the coreset, so it errs on the short side."""
        return self.seconds / max(self.done, 1) * (self.total - self.done)


@dataclass(frozen=True)
class Runtime:
    """Device, precision and limits of a computation.

    Parameters
    ----------
    device : "auto", "cpu", "cuda" or "cuda:1"
        ``auto`` takes the GPU where there is one.
    dtype : "float64" or "float32"
        float64 makes answers independent of row order and block size; float32 halves memory and time.
    memory : None, a number of bytes, or a string such as "4GB"
        The limit for what one call allocates. ``None``: half of what is free when the call starts.
    threads : None or int
        CPU threads for the duration of the call; ``None`` leaves torch's setting alone.
    progress : None, bool or a callable
        ``None`` shows a line on a terminal after two seconds; a callable receives a :class:`Step` a point.
    max_seconds : None or float
        The call returns the prefix selected so far when this time is over.
    """

    device: str = "auto"
    dtype: str = "float64"
    memory: int | str | None = None
    threads: int | None = None
    progress: bool | Callable[[Step], None] | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise unknown_name("dtype", self.dtype, _DTYPES)
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads={self.threads} is below 1; give at least 1, or None to keep torch's setting.")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise InputError(f"max_seconds={self.max_seconds} is not positive; give seconds > 0, or None for no limit.")
        parse_bytes(self.memory)

    @property
    def torch_dtype(self) -> torch.dtype:
        return _DTYPES[self.dtype]

    @property
    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise unknown_name("device", self.device, ["auto", "cpu", "cuda"]) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(f"device={self.device!r} was asked for, but torch sees no GPU; use device='cpu' or 'auto'.")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"device={self.device!r} was asked for, but torch sees {torch.cuda.device_count()} GPU(s), counted from 0."
            )
        return device

    @property
    def itemsize(self) -> int:
        return self.torch_dtype.itemsize

    def memory_bytes(self) -> int:
        """The limit in bytes for this call."""
        limit = parse_bytes(self.memory)
        return limit if limit is not None else int(DEFAULT_MEMORY_SHARE * free_bytes(self.torch_device))

    @contextmanager
    def applied(self, rows: int | None = None) -> Iterator[None]:
        """Set the number of threads for the duration of a call and put the old number back.

        With few ``rows`` and no number asked for, one thread: waking others takes longer than their share of the work.
        """
        before = torch.get_num_threads()
        wanted = self.threads or (1 if rows is not None and rows <= SINGLE_THREAD_ROWS else before)
        if wanted != before:
            torch.set_num_threads(wanted)
        try:
            with torch.no_grad():
                yield
        finally:
            if wanted != before:
                torch.set_num_threads(before)


@dataclass(frozen=True)
class Context:
    """What only some selectors need: the current model; and the runtime that all of them use.

    ``classes`` are the labels of the model's outputs, in order; they can be left out where labels are 0 … C−1.
    """

    model: Any = None
    runtime: Runtime = field(default_factory=Runtime)
    classes: Sequence[Any] | None = None

    def within(self, clock: Clock) -> Context:
        """The same with what is left of a time limit, for a part of a longer piece of work."""
        if clock.max_seconds is None:
            return self
        left = max(clock.max_seconds - clock.seconds, 1e-9)
        return replace(self, runtime=replace(self.runtime, max_seconds=left))


class Clock:
    """Seconds since the start, and whether the time limit is over."""

    def __init__(self, max_seconds: float | None = None) -> None:
        self.start = time.perf_counter()
        self.max_seconds = max_seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @property
    def over(self) -> bool:
        return self.max_seconds is not None and self.seconds >= self.max_seconds


class ProgressLine:
    """A single rewritten line on standard error; nothing at all when that is not a terminal."""

    def __init__(self, runtime: Runtime, clock: Clock, total: int, label: str) -> None:
        choice = runtime.progress
        self.callback = choice if callable(choice) else None
        self.visible = choice is True or (choice is None and sys.stderr.isatty())
        self.clock, self.total, self.label = clock, total, label
        self.shown = 0.0
        self.written = False

    def update(self, done: int, objective: float) -> None:
        step = Step(done, self.total, objective, self.clock.seconds)
        if self.callback is not None:
            self.callback(step)
        elif self.visible and step.seconds - self.shown > (0.2 if self.written else PROGRESS_AFTER_SECONDS):
            self.shown, self.written = step.seconds, True
            text = f"{self.label} {done}/{self.total}  objective {objective:.6g}  about {step.seconds_left:.0f} s left"
            print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.written:
            print(f"\r{'':<78}\r", end="", file=sys.stderr, flush=True)


def parse_bytes(value: int | float | str | None) -> int | None:
    """``4_000_000_000`` or ``"4GB"`` as a number of bytes; None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)i?B?\s*", value, flags=re.IGNORECASE)
        if match is None:
            raise InputError(f"memory={value!r} is not a size; write bytes as a number, or for example '4GB'.")
        size = float(match[1]) * _UNITS[match[2].upper()]
    else:
        size = float(value)
    if not (math.isfinite(size) and size > 0):
        raise InputError(f"memory={value!r} is not a positive size; write bytes as a number, or for example '4GB'.")
    return int(size)


def free_bytes(device: torch.device) -> int:
    """Free memory of the device; on Linux the kernel's own estimate, bounded by the control group's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    candidates = [value for value in (_meminfo_available(), _control_group_free()) if value is not None]
    if candidates:
        return min(candidates)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _meminfo_available() -> int | None:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _control_group_free() -> int | None:
    try:
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as used:
            text = limit.read().strip()
            return None if text == "max" else max(int(text) - int(used.read()), 0)
    except (OSError, ValueError):
        return None


def human_bytes(size: float) -> str:
    """1234567890 as '1.23 GB'."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
