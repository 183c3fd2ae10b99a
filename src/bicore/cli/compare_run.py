"""What both kinds of ``bicore compare`` share: the run with its bar, and the answer's parts."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from bicore.comparison.findings import Findings
from bicore.comparison.judges import Judge, as_judge
from bicore.comparison.judging import Judging
from bicore.comparison.statistics import Entry, finite
from bicore.errors import InputError


def read_judges(text: str, steps: int) -> list[Judge]:
    """Judges by their names, separated by commas."""
    names = [word.strip() for word in text.split(",")]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"--judge holds {repeated[0]} twice; name each judge once.")
    return [as_judge(name, steps) for name in names]


def work(run: Judging[Any], silent: bool) -> bool:
    """Run with a bar; whether it was interrupted."""
    try:
        with _bar(run, silent):
            run.run()
    except KeyboardInterrupt:
        return True
    for name, reason in run.failed.items():
        print(f"bicore: {name} was left out from here on: {reason}", file=sys.stderr)
    return False


def _bar(run: Judging[Any], silent: bool) -> AbstractContextManager[Any]:
    if silent or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("comparing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("comparing", total=run.grid.cells(), completed=run.done(), now="")
    run.tell = lambda done, words: progress.update(task, completed=done, now=words)
    return progress


def notes_of(found: list[Findings]) -> list[str]:
    """What speaks against a judge."""
    return [one.note for one in found if one.note]


def view_of(found: Findings) -> dict[str, Any]:
    """The summary of one judge."""
    detectable = found.summary.detectable
    return {
        "summary": [entry.as_json() for entry in found.summary.entries],
        "smallest_detectable": {str(size): finite(value) for size, value in detectable.items()},
        "worth": [
            {"method": method, "size": size, **equivalent.ends()}
            for (method, size), equivalent in found.worth.items()
        ],
    }


def means_of(entries: dict[str, Entry]) -> dict[str, float]:
    """By the keys of the measures."""
    return {key: entry.mean for key, entry in entries.items()}
