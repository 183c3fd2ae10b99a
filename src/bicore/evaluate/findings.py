"""Results of a comparison by evaluation model: summaries, references and worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bicore.evaluate.comparison import MAJORITY, WHOLE, BaseComparison
from bicore.evaluate.models import Judge
from bicore.evaluate.records import Entry, Row, Summary, scored, summarise
from bicore.evaluate.samples import Measure, measures_of
from bicore.evaluate.worth import Equivalent, worth_of_rows


@dataclass(frozen=True, eq=False)
class Findings:
    """The results of one evaluation model by one metric."""

    judge: Judge
    measure: Measure
    summary: Summary
    majority: dict[str, Entry]
    whole: dict[str, Entry]
    note: str
    worth: dict[tuple[str, int], Equivalent]


def findings_of(run: BaseComparison, measure: Measure) -> list[Findings]:
    """Summarise a comparison for each evaluation model."""
    return [_of_judge(run, judge, measure) for judge in run.judges]


def _of_judge(run: BaseComparison, judge: Judge, measure: Measure) -> Findings:
    rows = _rows(run, judge, measure)
    summary = summarise(rows, list(run.grid.methods), run.grid.sizes, measure.larger)
    majority, whole = _reference(run, judge, MAJORITY), _reference(run, judge, WHOLE)
    note = _note(run, judge, majority, whole)
    # the curve of random scores must rise
    rising = rows if measure.larger else [replace(row, accuracy=-row.accuracy) for row in rows]
    worth = worth_of_rows(rising, list(run.grid.methods), run.grid.sizes)
    return Findings(judge, measure, summary, majority, whole, note, worth)


def _rows(run: BaseComparison, judge: Judge, measure: Measure) -> list[Row]:
    """The run's rows scored by a model and a metric."""
    rows = [row for row in run.records.rows.values() if row.seed in run.grid.seeds]
    if judge is run.judge and measure is measures_of(run.pools.classification)[0]:
        return rows  # older files hold nothing else
    return scored(rows, judge.name, measure.key)


def _reference(run: BaseComparison, judge: Judge, name: str) -> dict[str, Entry]:
    """All metrics of the rows of a reference."""
    size = run.pools.size
    found: dict[str, Entry] = {}
    for measure in measures_of(run.pools.classification):
        entry = summarise(_rows(run, judge, measure), [name], [size]).of(name, size)
        if entry is not None:
            found[measure.key] = entry
    return found


def _note(
    run: BaseComparison, judge: Judge, majority: dict[str, Entry], whole: dict[str, Entry]
) -> str:
    main = measures_of(run.pools.classification)[0]
    plain, trained = majority.get(main.key), whole.get(main.key)
    if plain is None or trained is None or plain.seeds != trained.seeds:
        return ""
    if trained.mean >= plain.mean:
        return ""
    reference = "majority class" if run.pools.classification else "mean of the targets"
    return (
        f"the {judge.title(run.pools.classification)} model trained on all data "
        f"({main.title} {trained.mean:.4f}) is worse than the {reference} ({plain.mean:.4f}); its "
        "scores mean little here"
    )
