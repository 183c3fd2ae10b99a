"""Device, precision and limits of computations, as one frozen value."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from bicore._deprecated import renamed_fields, renamed_methods
from bicore._version import __version__
from bicore.errors import InputError, check_integer, check_name, check_number, shown, unknown_name
from bicore.runtime.clock import Clock, Progress
from bicore.runtime.threads import single_thread

#: Default memory limit: constant, so that results do not depend on the machine.
DEFAULT_MEMORY = 4_000_000_000
#: Default share of a GPU's memory.
DEFAULT_GPU_SHARE = 0.5

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@renamed_methods(applied="apply", within="for_part")
@renamed_fields()
@dataclass(frozen=True)
class Runtime:
    """Device, precision and limits of a computation.

    Parameters
    ----------
    device : "auto", "cpu", "cuda" or "cuda:1"
        Device to compute on; "auto" uses a GPU if torch finds one.
    dtype : "float64" or "float32"
        Precision. float32 halves memory and time; with float64 the selection does not depend on
        row order and block size.
    memory : int or str, optional
        Limit of memory that one call allocates, in bytes or as in "4GB" (default: 4 GB, or half of
        the GPU's memory). A call that needs more than the free memory is refused.
    threads : int, optional
        Number of CPU threads of large products (default: torch's setting); other arithmetic uses
        one.
    progress : bool or callable, optional
        Progress report (default: a line on a terminal after two seconds). A callable receives a
        :class:`Step` per row. Before the first row its method ``prepare``, if any, receives the
        finished share of a pass over the data, or None.
    max_seconds : float, optional
        Time limit, after which the call returns the rows selected so far.

    Raises
    ------
    InputError
        If a value is invalid.

    Examples
    --------
    >>> from bicore import Runtime
    >>> runtime = Runtime(device="cpu", dtype="float32", memory="2GB")
    >>> runtime.itemsize, runtime.memory_bytes()
    (4, 2000000000)
    """

    device: str = "auto"
    dtype: str = "float64"
    memory: int | str | None = None
    threads: int | None = None
    progress: Progress = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        check_name("dtype", self.dtype, _DTYPES)
        if self.threads is not None:
            check_integer("threads", self.threads)
        if self.max_seconds is not None and self.max_seconds != math.inf:
            check_number("max_seconds", self.max_seconds, above=0)
        parse_bytes(self.memory)
        if not (
            self.progress is None or isinstance(self.progress, bool) or callable(self.progress)
        ):
            kinds = "True, False, None or a function of one value"
            raise InputError(f"progress must be {kinds}; got {shown(self.progress)}.")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as a torch dtype."""
        return _DTYPES[self.dtype]

    @property
    def torch_device(self) -> torch.device:
        """The device as a torch device; raise an error if it is not available."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise unknown_name("device", self.device, ["auto", "cpu", "cuda"]) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(f"device={self.device!r}: torch finds no GPU; use 'cpu' or 'auto'.")
        if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
            found = f"torch finds {count} GPU(s), numbered from 0"
            raise InputError(f"device={self.device!r}: {found}.")
        return device

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return self.torch_dtype.itemsize

    def memory_bytes(self) -> int:
        """The memory limit for this call.

        Returns
        -------
        int
            Bytes.
        """
        limit = parse_bytes(self.memory)
        if limit is not None:
            return limit
        device = self.torch_device
        if device.type == "cuda":
            return int(DEFAULT_GPU_SHARE * torch.cuda.get_device_properties(device).total_memory)
        return DEFAULT_MEMORY

    def for_part(self, clock: Clock) -> Runtime:
        """Return the runtime for a part of a longer computation.

        Parameters
        ----------
        clock : Clock
            The clock of the whole work.

        Returns
        -------
        Runtime
            With the rest of the time as its limit.
        """
        if clock.max_seconds is None:
            return self
        # A limit must be positive, even without time left.
        return replace(self, max_seconds=max(clock.max_seconds - clock.seconds, 1e-9))

    @contextmanager
    def apply(self) -> Iterator[None]:
        """One thread for the duration of a call, and this runtime's number for large products.

        Yields
        ------
        None
            Without gradients.
        """
        with single_thread(self.threads), torch.no_grad():
            yield


@contextmanager
def frozen(module: torch.nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode without gradients inside the block."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, before in training.items():
            part.training = before


@dataclass(frozen=True)
class Context:
    """The current model, which some selectors need, and the runtime."""

    model: Any = None
    runtime: Runtime = field(default_factory=Runtime)
    classes: Sequence[Any] | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments for :meth:`bicore.methods.Selector.select`."""
        return {"model": self.model, "model_classes": self.classes, "runtime": self.runtime}


def parse_bytes(value: int | float | str | None) -> int | None:
    """Parse a size such as 2GB."""
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)i?B?\s*", value, flags=re.IGNORECASE)
        size = float(match[1]) * _UNITS[match[2].upper()] if match else math.nan
    else:
        size = float(value) if isinstance(value, Real) else math.nan
    if not (math.isfinite(size) and size > 0):
        rule = "memory must be a number of bytes above 0 or a size such as '4GB'"
        raise InputError(f"{rule}; got {value!r}.")
    return int(size)


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device.

    On Linux it is the kernel's own estimate, bounded by the control group's limit.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError), open("/proc/meminfo") as lines:
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    # A control group without a limit has a word instead of a number.
    with (
        suppress(OSError, ValueError),
        open("/sys/fs/cgroup/memory.max") as limit,
        open("/sys/fs/cgroup/memory.current") as used,
    ):
        found.append(max(int(limit.read()) - int(used.read()), 0))
    return min(found)


def human_bytes(size: float) -> str:
    """Format a size, such as 2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def versions() -> dict[str, str]:
    """Return the versions of bicore and of its numerical libraries."""
    return {"bicore": __version__, "torch": torch.__version__, "numpy": np.__version__}
