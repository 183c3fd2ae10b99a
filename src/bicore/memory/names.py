"""Every buffer by name, for the doors only."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicore.errors import InputError, unknown_name
from bicore.memory.buffer import Buffer
from bicore.memory.gradient import GradientSampling
from bicore.memory.merge_reduce import MergeReduce
from bicore.memory.moment_memory import MomentMemory
from bicore.memory.options import as_capacity
from bicore.memory.prototypes import Prototypes
from bicore.memory.reservoir import ClassBalancedReservoir, Reservoir
from bicore.selectors.registry import as_selector
from bicore.state import read_state

#: Slots of a merge-reduce buffer where nothing is said, as in the paper.
SLOTS = 10
#: What every buffer takes; anything else is an option of some.
COMMON = ("capacity", "seed")


def _merge_reduce(
    capacity: int,
    seed: int = 0,
    selector: Any = "bilevel",
    slots: int | None = None,
    weights: str = "equal",
) -> MergeReduce:
    """Merge-reduce whose selector may be a name; what it leaves open is what serves memories."""
    count = min(SLOTS, as_capacity(capacity)) if slots is None else slots
    return MergeReduce(as_selector(selector), capacity, count, weights, seed)


def _load_merge_reduce(path: Path, like: Any) -> Buffer:
    return MergeReduce.load(path, like.selector)


def _load(path: Path, like: Buffer) -> Buffer:
    return type(like).load(path)


@dataclass(frozen=True)
class Kind:
    """A buffer that has a name.

    Parameters
    ----------
    buffer : type
        Its class.
    make : callable
        Makes one of a capacity, a seed and options.
    load : callable
        Reads a state file as a buffer like a given one.

    Examples
    --------
    >>> BUFFERS["moments"].options
    ['features', 'rule', 'inner_reg', 'prior', 'half_life']
    """

    buffer: type[Buffer]
    make: Callable[..., Buffer]
    load: Callable[[Path, Any], Buffer] = _load

    @property
    def options(self) -> list[str]:
        """The options that it takes beside a capacity and a seed."""
        return [name for name in inspect.signature(self.make).parameters if name not in COMMON]


#: The order in which tables show them.
BUFFERS: dict[str, Kind] = {
    "moments": Kind(MomentMemory, MomentMemory),
    "merge-reduce": Kind(MergeReduce, _merge_reduce, _load_merge_reduce),
    "reservoir": Kind(Reservoir, Reservoir),
    "class-balanced": Kind(ClassBalancedReservoir, ClassBalancedReservoir),
    "prototypes": Kind(Prototypes, Prototypes),
    "gradient-sampling": Kind(GradientSampling, GradientSampling),
}


def as_buffer(name: str, capacity: int, seed: int = 0, **options: Any) -> Buffer:
    """A buffer by its name.

    Parameters
    ----------
    name : str
        A name of ``BUFFERS``: moments, merge-reduce, reservoir, class-balanced, prototypes or
        gradient-sampling.
    capacity : int
        The most rows that are ever kept.
    seed : int
        Of whatever is drawn at random.
    **options
        Further parameters of that buffer. The selector of merge-reduce may be a name; by default
        it is bilevel selection, and there are ten slots.

    Returns
    -------
    Buffer
        Ready for the first rows.

    Raises
    ------
    InputError
        Where the name is unknown, or an option is not one of this buffer.

    Examples
    --------
    >>> as_buffer("reservoir", 20)
    Reservoir(0 of 20 rows kept, 0 seen)
    >>> as_buffer("moments", 20, half_life=1000.0).half_life
    1000.0
    """
    if name not in BUFFERS:
        raise unknown_name("buffer", name, BUFFERS)
    kind = BUFFERS[name]
    for option in options:
        if option not in kind.options:
            raise _not_its(name, option)
    return kind.make(capacity=capacity, seed=seed, **options)


def _not_its(name: str, option: str) -> InputError:
    """The error for an option that is not one of this buffer: whose it is, where it is anyone's."""
    owners = [repr(other) for other, kind in BUFFERS.items() if option in kind.options]
    if owners:
        return InputError(
            f"{option} is an option of {' and '.join(owners)}, and the buffer is {name!r}; leave "
            "it out, or use that buffer."
        )
    if not BUFFERS[name].options:
        return InputError(f"buffer={name!r} takes no option, and {option} was given; leave it out.")
    return unknown_name(f"the option of buffer={name!r}", option, BUFFERS[name].options)


def load_state(path: Path, name: str, like: Buffer) -> Buffer:
    """The state file of a buffer that is called ``name`` and built like another one.

    Raises an ``InputError`` where it is of another buffer, with that one's name.
    """
    written = str(read_state(path, "Buffer.save")[0].get("buffer"))
    own = BUFFERS[name]
    if written != own.buffer.__name__:
        names = [other for other, kind in BUFFERS.items() if kind.buffer.__name__ == written]
        mend = f"go on with --buffer {names[0]}, or give" if names else "give"
        raise InputError(
            f"{path.parent} holds a stream of another buffer, {(names or [written])[0]}, and this "
            f"one is {name}; {mend} another --state folder."
        )
    return own.load(path, like)
