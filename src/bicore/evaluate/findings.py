"""What a comparison found, judge by judge, beside those who know nothing and those who know all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bicore.evaluate.equivalence import Equivalent, worth_of_rows
from bicore.evaluate.judges.base import Judge
from bicore.evaluate.judges.measures import Measure, measures_of
from bicore.evaluate.judging import MAJORITY, WHOLE, Judging
from bicore.evaluate.records import Row
from bicore.evaluate.statistics import Entry, Summary, scored, summarise


@dataclass(frozen=True, eq=False)
class Findings:
    """One judge's view of a comparison, by one measure.

    Parameters
    ----------
    judge : Judge
        Whose view it is.
    measure : Measure
        What is shown.
    summary : Summary
        Of all methods and sizes.
    majority, whole : dict
        Entries by the keys of all measures: of who says the majority class or the mean of the
        pool, and of the judge trained on all of it. Empty where they have no row.
    note : str
        Why the judge is not to be believed here; empty where nothing speaks against it.
    worth : dict
        By method and size the uniform rows of the same score; empty where there is no curve of
        them.

    Examples
    --------
    See :func:`findings_of`.
    """

    judge: Judge
    measure: Measure
    summary: Summary
    majority: dict[str, Entry]
    whole: dict[str, Entry]
    note: str
    worth: dict[tuple[str, int], Equivalent]


def findings_of(run: Judging[Any], measure: Measure) -> list[Findings]:
    """What each judge found.

    Parameters
    ----------
    run : Comparison or StreamComparison
        Done, or as far as it came.
    measure : Measure
        By which measure.

    Returns
    -------
    list of Findings
        One a judge, in their order.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bicore import Runtime
    >>> from bicore.evaluate import Comparison, Grid, Records, RidgeJudge, make_pools
    >>> from bicore.selectors import Uniform
    >>> from bicore.sources.opening import open_source
    >>> pools = make_pools(open_source("digits", limit=200), None, "auto", 100, 2000, 50)
    >>> grid = Grid({"uniform": Uniform()}, sizes=[10], seeds=range(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = Records(Path(folder) / "rows.jsonl", {})
    ...     run = Comparison(
    ...         pools, grid, RidgeJudge(), records, Runtime(device="cpu"), whole=True, majority=True
    ...     )
    ...     run.run()
    >>> (found,) = findings_of(run, measures_of(classification=True)[0])
    >>> scores = [found.majority["accuracy"], found.summary.of("uniform", 10)]
    >>> scores[0].mean < scores[1].mean < found.whole["accuracy"].mean
    True
    """
    return [_of_judge(run, judge, measure) for judge in run.judges]


def _of_judge(run: Judging[Any], judge: Judge, measure: Measure) -> Findings:
    rows = _rows(run, judge, measure)
    summary = summarise(rows, list(run.grid.methods), run.grid.sizes, measure.larger)
    majority, whole = _reference(run, judge, MAJORITY), _reference(run, judge, WHOLE)
    note = _note(run, judge, majority, whole)
    # the curve of random scores is one that rises
    rising = rows if measure.larger else [replace(row, accuracy=-row.accuracy) for row in rows]
    worth = worth_of_rows(rising, list(run.grid.methods), run.grid.sizes)
    return Findings(judge, measure, summary, majority, whole, note, worth)


def _rows(run: Judging[Any], judge: Judge, measure: Measure) -> list[Row]:
    """The run's rows as a judge and a measure score them."""
    rows = [row for row in run.records.rows.values() if row.seed in run.grid.seeds]
    if judge is run.judge and measure is measures_of(run.pools.classification)[0]:
        return rows  # so older files, which hold nothing else, can be read
    return scored(rows, judge.name, measure.key)


def _reference(run: Judging[Any], judge: Judge, name: str) -> dict[str, Entry]:
    """All measures of a row that is of no method."""
    size = run.pools.size
    found: dict[str, Entry] = {}
    for measure in measures_of(run.pools.classification):
        entry = summarise(_rows(run, judge, measure), [name], [size]).of(name, size)
        if entry is not None:
            found[measure.key] = entry
    return found


def _note(
    run: Judging[Any], judge: Judge, majority: dict[str, Entry], whole: dict[str, Entry]
) -> str:
    main = measures_of(run.pools.classification)[0]
    plain, trained = majority.get(main.key), whole.get(main.key)
    if plain is None or trained is None or plain.seeds != trained.seeds:
        return ""
    if trained.mean >= plain.mean:
        return ""
    who = "majority class" if run.pools.classification else "mean of the targets"
    return (
        f"the {judge.title(run.pools.classification)} judge does worse on all the data "
        f"({main.title} {trained.mean:.4f}) than the {who} ({plain.mean:.4f}): its scores say "
        "little here"
    )
