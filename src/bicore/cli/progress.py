"""A bar on standard error with the time left and the objective."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bicore.runtime import Step


@contextmanager
def bar(label: str, quiet: bool) -> Iterator[Callable[[Step], None] | bool]:
    """A progress callback, or False where nothing should be shown."""
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
        TextColumn("{task.fields[objective]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None, objective="")

        def update(step: Step) -> None:
            known = not math.isnan(step.objective)
            objective = f"objective {step.objective:.5g}" if known else ""
            progress.update(task, completed=step.done, total=step.total, objective=objective)

        yield update
