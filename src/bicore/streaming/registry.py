"""Buffers by name, for the command and the integrations."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from bicore._deprecated import renamed_keywords
from bicore.errors import InputError, check_integer, check_name, unknown_option
from bicore.files import read_state
from bicore.methods.registry import as_selector
from bicore.streaming.base import SelectingMemory
from bicore.streaming.buffer import Buffer
from bicore.streaming.merge_reduce import MergeReduce
from bicore.streaming.moment_memory import MomentMemory
from bicore.streaming.sampling import (
    ClassBalancedReservoir,
    GradientSampling,
    Prototypes,
    Reservoir,
)
from bicore.types import RandomState

#: The default number of slots of a merge-reduce buffer, as in the paper.
SLOTS = 10
#: The buffers in the order of tables.
BUFFERS: dict[str, type[Buffer]] = {
    "moments": MomentMemory,
    "merge-reduce": MergeReduce,
    "reservoir": Reservoir,
    "class-balanced": ClassBalancedReservoir,
    "prototypes": Prototypes,
    "gradient-sampling": GradientSampling,
}


@renamed_keywords()
def as_buffer(name: str, capacity: int, random_state: RandomState = 0) -> Buffer:
    """Make a buffer by its name; ``set_params`` changes its parameters.

    Parameters
    ----------
    name : str
        A name of ``BUFFERS``: moments, merge-reduce, reservoir, class-balanced, prototypes or
        gradient-sampling.
    capacity : int
        Maximum number of rows kept.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.

    Returns
    -------
    Buffer
        Ready for the first rows.

    Raises
    ------
    InputError
        If the name is unknown.

    Examples
    --------
    >>> as_buffer("reservoir", 20)
    Reservoir(0 of 20 rows kept, 0 seen)
    >>> as_buffer("moments", 20).set_params(half_life=1000.0).half_life
    1000.0
    """
    return build_buffer(name, capacity, random_state)


def build_buffer(name: str, capacity: int, random_state: RandomState = 0, **options: Any) -> Buffer:
    """Make a buffer by its name and parameters; merge-reduce has ten slots by default."""
    check_name("buffer", name, BUFFERS)
    known = inspect.signature(BUFFERS[name]).parameters
    for option in options:
        if option not in known:
            raise unknown_option(f"buffer={name!r}", option, known)
    if BUFFERS[name] is MergeReduce:
        slots = min(SLOTS, check_integer("capacity", capacity))
        options = {"slots": slots, **options}
        options["selector"] = as_selector(options.get("selector", "bilevel"))
    return BUFFERS[name](capacity=capacity, random_state=random_state, **options)


def load_state(path: Path, name: str, like: Buffer) -> Buffer:
    """Load the state file of a buffer with this name that was built like another one."""
    written = str(read_state(path, "Buffer.save")[0].get("buffer"))
    if written != BUFFERS[name].__name__:
        names = [other for other, kind in BUFFERS.items() if kind.__name__ == written]
        fix = f"use --buffer {names[0]}, or" if names else "use"
        raise InputError(
            f"{path.parent} holds a stream of a different buffer, {(names or [written])[0]}, and "
            f"this one is {name}; {fix} another --state folder."
        )
    if isinstance(like, SelectingMemory):
        return type(like).load(path, like.selector)
    return type(like).load(path)
