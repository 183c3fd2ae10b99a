"""A bar on standard error with the time left and a few words, such as the objective."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bicore.runtime import Step


def _objective(step: Step) -> str:
    return "" if math.isnan(step.objective) else f"objective {step.objective:.5g}"


@contextmanager
def bar(
    label: str,
    quiet: bool,
    words: Callable[[Step], str] = _objective,
    own_time: bool = False,
) -> Iterator[Callable[[Step], None] | bool]:
    """A progress callback, or False where nothing should be shown.

    ``words`` is what stands beside the bar; with ``own_time`` they say what time is left. A
    total of 0 is one that nobody knows.
    """
    if quiet or not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
        *(() if own_time else (TimeRemainingColumn(),)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None, words="")

        def update(step: Step) -> None:
            total = step.total or None
            progress.update(task, completed=step.done, total=total, words=words(step))

        yield update
