"""Where and under which limits the arithmetic runs: one frozen value that all parts are handed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bicore.errors import InputError, unknown_name
from bicore.runtime.clock import Clock
from bicore.runtime.limits import parse_bytes
from bicore.runtime.threads import narrow

#: Memory limit if none is given: a fixed number, so that the answer does not depend on the machine.
DEFAULT_MEMORY = 4_000_000_000
#: Share of a GPU's memory that is used if no limit is given.
DEFAULT_GPU_SHARE = 0.5

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Step:
    """What a progress callback receives after each selected point.

    Parameters
    ----------
    done, total : int
        Points so far, and how many there will be.
    objective : float
        The outer objective with them.
    seconds : float
        Since the selection began.
    left : float, optional
        Seconds that are left, where whoever works knows better than a straight line.

    Examples
    --------
    >>> Step(done=20, total=100, objective=0.3, seconds=5.0).seconds_left
    20.0
    """

    done: int
    total: int
    objective: float
    seconds: float
    left: float | None = None

    @property
    def seconds_left(self) -> float:
        """A straight-line estimate: short, for steps grow dearer with the coreset."""
        if self.left is not None:
            return self.left
        return self.seconds / max(self.done, 1) * (self.total - self.done)


@dataclass(frozen=True)
class Runtime:
    """Device, precision and limits of a computation.

    Parameters
    ----------
    device : "auto", "cpu", "cuda" or "cuda:1"
        ``auto`` takes the GPU where there is one.
    dtype : "float64" or "float32"
        With float64 answers do not depend on row order and block size; float32 halves memory and
        time.
    memory : int or str, optional
        The limit for what one call allocates, in bytes or as in "4GB". Default: 4 GB, or half of a
        GPU's memory. How much is free never changes an answer; a call that would need more than
        that is refused.
    threads : int, optional
        CPU threads of large products; all other arithmetic has one, whatever is asked. Default:
        torch's setting.
    progress : bool or callable, optional
        Default: a line on a terminal after two seconds; a callable receives a :class:`Step` a
        point, and its method ``prepare``, if it has one, before the first point the share of a
        pass over the data that is done, or None.
    max_seconds : float, optional
        The call returns the prefix selected so far when this time is over.

    Raises
    ------
    InputError
        Where a value is none of these.

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
    progress: bool | Callable[[Step], None] | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise unknown_name("dtype", self.dtype, _DTYPES)
        if self.threads is not None and self.threads < 1:
            raise InputError(
                f"threads={self.threads} is below 1; give at least 1, or None to keep torch's "
                "setting."
            )
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise InputError(
                f"max_seconds={self.max_seconds} is not positive; give seconds > 0, or None for no "
                "limit."
            )
        parse_bytes(self.memory)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch names it."""
        return _DTYPES[self.dtype]

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it; an error in words where it is not there."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise unknown_name("device", self.device, ["auto", "cpu", "cuda"]) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(
                f"device={self.device!r} was asked for, but torch sees no GPU; use device='cpu' or "
                "'auto'."
            )
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"device={self.device!r} was asked for, but torch sees {torch.cuda.device_count()} "
                "GPU(s), counted from 0."
            )
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

    @contextmanager
    def applied(self) -> Iterator[None]:
        """One thread for the duration of a call, and this runtime's number for large products.

        Yields
        ------
        None
            Without gradients.
        """
        with narrow(self.threads), torch.no_grad():
            yield


@dataclass(frozen=True)
class Context:
    """What only some selectors need: the current model; and the runtime that all of them use.

    Parameters
    ----------
    model : torch.nn.Module or Observed, optional
        The current model, or what :func:`bicore.networks.observe` saw of it.
    runtime : Runtime
        Device, precision and limits.
    classes : sequence, optional
        The labels of the model's outputs, in order; they can be left out where labels are 0 … C−1.

    Examples
    --------
    >>> from bicore import Context, Dataset, Runtime
    >>> from bicore.selectors import KCenter
    >>> context = Context(runtime=Runtime(device="cpu", threads=1))
    >>> picked = KCenter(over="features").select(Dataset([[0.0], [1.0]]), 1, context=context)
    >>> len(picked)
    1
    """

    model: Any = None
    runtime: Runtime = field(default_factory=Runtime)
    classes: Sequence[Any] | None = None

    def within(self, clock: Clock) -> Context:
        """The same with what is left of a time limit, for a part of a longer piece of work.

        Parameters
        ----------
        clock : Clock
            Of the whole.

        Returns
        -------
        Context
            This one where there is no limit.
        """
        if clock.max_seconds is None:
            return self
        # A limit must be positive, also when nothing is left of it.
        left = max(clock.max_seconds - clock.seconds, 1e-9)
        return replace(self, runtime=replace(self.runtime, max_seconds=left))
