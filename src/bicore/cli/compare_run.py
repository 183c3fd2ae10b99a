"""What both kinds of ``bicore compare`` share: the run with its bar, and the answer's parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bicore.cli.progress import bar
from bicore.cli.telling import tell
from bicore.errors import InputError
from bicore.evaluate.comparison import BaseComparison
from bicore.evaluate.findings import Findings
from bicore.evaluate.model import Judge
from bicore.evaluate.models import as_judge
from bicore.evaluate.statistics import Entry, finite


def read_judges(text: str, steps: int) -> list[Judge]:
    """Judges by their names, separated by commas."""
    names = [word.strip() for word in text.split(",")]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"--judge holds {repeated[0]} twice; name each judge once.")
    return [as_judge(name, steps) for name in names]


def work(run: BaseComparison[Any], quiet: bool) -> bool:
    """Run with a bar; whether it was interrupted."""
    # Its own line is the only one: selections inside it tell of nothing.
    run.runtime = replace(run.runtime, progress=False)
    with bar("comparing", quiet) as progress:
        if progress:
            run.tell = _teller(run, progress)
        try:
            run.run()
        except KeyboardInterrupt:
            return True
    for name, reason in run.failed.items():
        tell(f"bicore: {name} was left out from here on: {reason}")
    return False


def _teller(run: BaseComparison[Any], progress: Any) -> Callable[[int, str], None]:
    """Rows done, and the time left by those that this run filled."""
    cells, before = run.grid.cells(), run.done()

    def say_how_far(done: int, words: str) -> None:
        filled = done - before
        left = progress.clock.seconds / filled * (cells - done) if filled > 0 else None
        time = "" if left is None else f"about {left:.0f} s left"
        progress.show(f"{done}/{cells}", time, words)

    return say_how_far


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
