"""Searches that can be left after every step, when their time is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from bicore.runtime import Clock, TimeOver

Step = TypeVar("Step")


def until_over(path: Iterator[Step], clock: Clock | None) -> Iterator[Step]:
    """The steps of a path while there is time: to its end, to the first look at ``clock`` after a
    step that finds the time over, or to a step that is interrupted for that."""
    try:
        for step in path:
            yield step
            if clock is not None and clock.over:
                return
    except TimeOver:
        return
