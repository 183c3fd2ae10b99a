"""The page of a comparison: who is best at which size, and whether random would do."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bicore._version import __version__
from bicore.evaluate.comparison import BaseComparison
from bicore.evaluate.equivalence import Equivalent
from bicore.evaluate.findings import Findings
from bicore.evaluate.statistics import Entry, finite
from bicore.report.pages.contenders import Contenders, contenders_of, served_by
from bicore.report.pages.document import write_document

#: The method that draws at random, by which others are measured.
RANDOM = "uniform"


def comparison_page(
    run: BaseComparison[Any],
    findings: Sequence[Findings],
    path: str | os.PathLike[str],
    *,
    command: str = "",
    along: str = "rows selected",
) -> Path:
    """Write a comparison as one HTML file that opens anywhere and asks the network nothing.

    It begins with who is best and what that is worth. Under a slider over the size and a choice of
    the method stand the scores, the picks of the first seed, their balance, a map of its pool, and
    who gains and loses by class; then how to repeat it. All of it comes from the records: nothing
    is selected or trained again. Of a stream there are no picks.

    Parameters
    ----------
    run : Comparison or StreamComparison
        Done, or as far as it came.
    findings : sequence of Findings
        What each judge found; see :func:`bicore.evaluate.findings.findings_of`.
    path : path
        The file; it is written beside and renamed.
    command : str
        What repeats the comparison.
    along : str
        What the sizes are.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from bicore import Runtime
    >>> from bicore.evaluate.comparison import Comparison, Grid
    >>> from bicore.evaluate.records import Records
    >>> from bicore.evaluate.models import RidgeJudge
    >>> from bicore.evaluate.pools import make_pools
    >>> from bicore.evaluate.findings import findings_of
    >>> from bicore.evaluate.metrics import measure_by
    >>> from bicore.selectors import Uniform
    >>> from bicore.sources.opening import open_source
    >>> pools = make_pools(open_source("digits", limit=200), None, "auto", 100, 2000, 50)
    >>> grid = Grid({"uniform": Uniform()}, sizes=[10, 20], seeds=range(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = Records(Path(folder) / "rows.jsonl", {})
    ...     run = Comparison(pools, grid, RidgeJudge(), records, Runtime(device="cpu"))
    ...     run.run()
    ...     found = findings_of(run, measure_by(None, classification=True))
    ...     comparison_page(run, found, Path(folder) / "page.html").name
    'page.html'
    """
    pools = run.pools
    known = contenders_of(run)
    facts: dict[str, Any] = {
        "name": pools.source.name,
        "version": __version__,
        "along": along,
        "random": RANDOM,
        "sizes": [int(size) for size in run.grid.sizes],
        "start": _start(findings[0], run.grid.sizes),
        "methods": list(run.grid.methods),
        "judges": [_view(run, one) for one in findings],
        "parameters": _parameters(run),
        "notes": [*pools.source.notes, *(one.note for one in findings if one.note)],
        "unknown": _unknown(run, known),
        "failed": [[name, why] for name, why in run.failed.items()],
        "command": command,
    }
    if known.known:
        facts |= known.as_json()
    return write_document("comparison", facts, path)


def headline(found: Findings, size: int) -> str:
    """What one judge found at one size, in a sentence.

    Parameters
    ----------
    found : Findings
        The judge's view.
    size : int
        One of the sizes compared.

    Returns
    -------
    str
        Who is best and what that is worth, or that random is enough.

    Examples
    --------
    See :func:`comparison_page`, which has one for every size.
    """
    best = _best(found, size)
    if best is None:
        return "Nothing to compare yet"
    random = found.summary.of(RANDOM, size)
    if random is not None and (random.best or random.tied):
        return "Random is enough here"
    worth = found.worth.get((best.method, size))
    if worth is None:
        return f"{best.method} is best: {found.measure.title} {best.mean:.3f}"
    return f"{size} rows by {best.method} are worth {_few(worth)}"


def _few(worth: Equivalent) -> str:
    """The random rows in words; the sizes compared say no more than that they lie beyond."""
    return f"more than {worth.sizes[-1]} random ones" if worth.beyond else str(worth)


def _start(found: Findings, sizes: Sequence[int]) -> int:
    """The place of the size that the page begins with: the largest one whose worth is a number."""
    told = []
    for place, size in enumerate(sizes):
        best = _best(found, size)
        worth = None if best is None else found.worth.get((best.method, size))
        if worth is not None and not worth.beyond:
            told.append(place)
    return told[-1] if told else len(sizes) - 1


def _best(found: Findings, size: int) -> Entry | None:
    return next((one for one in found.summary.entries if one.size == size and one.best), None)


def _view(run: BaseComparison[Any], found: Findings) -> dict[str, Any]:
    """One judge's numbers."""
    key = found.measure.key
    detectable = found.summary.detectable
    references = {"all data": found.whole.get(key), "majority": found.majority.get(key)}
    return {
        "judge": found.judge.title(run.pools.classification),
        "measure": found.measure.title,
        "larger": found.measure.larger,
        "headlines": [headline(found, size) for size in run.grid.sizes],
        "entries": [_entry(one, found) for one in found.summary.entries],
        "references": [
            {"name": name, "mean": one.mean} for name, one in references.items() if one is not None
        ],
        "classes": served_by(run, found.judge.name, RANDOM),
        "detectable": [finite(detectable.get(size, math.nan)) for size in run.grid.sizes],
    }


def _entry(entry: Entry, found: Findings) -> dict[str, Any]:
    worth = found.worth.get((entry.method, entry.size))
    short = None if worth is None else worth.short()
    return {**entry.as_json(), "worth": short}


def _unknown(run: BaseComparison[Any], known: Contenders) -> str:
    """Whose picks are not known, and how they would be; empty where nothing is missing."""
    missing = known.missing() if run.keeps_picks else []
    if not missing:
        return ""
    return (
        f"What {', '.join(missing)} chose is not shown: {run.records.path.name} does not say it. "
        "Without that file the same command makes its rows anew, and says it."
    )


def _parameters(run: BaseComparison[Any]) -> list[list[str]]:
    pools = run.pools
    values = {
        "rows of the data": len(pools.source.data),
        "pool of each seed": pools.size,
        "tested on": pools.test_size,
        "test rows": "the source's own" if pools.test is not None else "held out for each seed",
        "seeds": len(run.grid.seeds),
        "task": pools.targets.task,
        "records": run.records.path.name,
        "bicore": __version__,
    }
    return [[name, str(value)] for name, value in values.items()]
