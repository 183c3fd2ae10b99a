"""Results of a comparison by evaluation model: summaries, tables in words, and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bicore.evaluate.comparison import MAJORITY, WHOLE, BaseComparison
from bicore.evaluate.models import Judge
from bicore.evaluate.records import Entry, Row, Summary, finite, scored, summarise
from bicore.evaluate.samples import Measure, measures_of
from bicore.evaluate.worth import Equivalent, worth_of_rows


@dataclass(frozen=True, eq=False)
class Findings:
    """The results of one evaluation model by one metric.

    Parameters
    ----------
    judge : Judge
        The evaluation model.
    measure : Measure
        The metric.
    summary : Summary
        Of all methods and sizes.
    majority, whole : dict
        Entries by the keys of all metrics: of the majority class or the mean of the pool, and of
        the model trained on the whole pool. Empty without such rows.
    note : str
        A warning if the model is worse than the majority class; else empty.
    worth : dict
        By method and size the uniform rows with the same score; empty without a curve of them.

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


def findings_of(run: BaseComparison[Any], measure: Measure) -> list[Findings]:
    """Summarise a comparison for each evaluation model.

    Parameters
    ----------
    run : Comparison or StreamComparison
        A comparison, complete or not.
    measure : Measure
        The metric.

    Returns
    -------
    list of Findings
        One per model, in their order.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bicore import Runtime
    >>> from bicore.evaluate.comparison import Comparison, Grid
    >>> from bicore.evaluate.records import Records
    >>> from bicore.evaluate.models import RidgeJudge
    >>> from bicore.evaluate.pools import make_pools
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


def _of_judge(run: BaseComparison[Any], judge: Judge, measure: Measure) -> Findings:
    rows = _rows(run, judge, measure)
    summary = summarise(rows, list(run.grid.methods), run.grid.sizes, measure.larger)
    majority, whole = _reference(run, judge, MAJORITY), _reference(run, judge, WHOLE)
    note = _note(run, judge, majority, whole)
    # the curve of random scores must rise
    rising = rows if measure.larger else [replace(row, accuracy=-row.accuracy) for row in rows]
    worth = worth_of_rows(rising, list(run.grid.methods), run.grid.sizes)
    return Findings(judge, measure, summary, majority, whole, note, worth)


def _rows(run: BaseComparison[Any], judge: Judge, measure: Measure) -> list[Row]:
    """The run's rows scored by a model and a metric."""
    rows = [row for row in run.records.rows.values() if row.seed in run.grid.seeds]
    if judge is run.judge and measure is measures_of(run.pools.classification)[0]:
        return rows  # older files hold nothing else
    return scored(rows, judge.name, measure.key)


def _reference(run: BaseComparison[Any], judge: Judge, name: str) -> dict[str, Entry]:
    """All metrics of the rows of a reference."""
    size = run.pools.size
    found: dict[str, Entry] = {}
    for measure in measures_of(run.pools.classification):
        entry = summarise(_rows(run, judge, measure), [name], [size]).of(name, size)
        if entry is not None:
            found[measure.key] = entry
    return found


def _note(
    run: BaseComparison[Any], judge: Judge, majority: dict[str, Entry], whole: dict[str, Entry]
) -> str:
    main = measures_of(run.pools.classification)[0]
    plain, trained = majority.get(main.key), whole.get(main.key)
    if plain is None or trained is None or plain.seeds != trained.seeds:
        return ""
    if trained.mean >= plain.mean:
        return ""
    reference = "majority class" if run.pools.classification else "mean of the targets"
    return (
        f"the {judge.title(run.pools.classification)} judge does worse on all the data "
        f"({main.title} {trained.mean:.4f}) than the {reference} ({plain.mean:.4f}); its scores "
        "mean little here"
    )


def to_json(run: BaseComparison[Any], found: Sequence[Findings]) -> dict[str, Any]:
    """All results for a JSON file."""
    first = found[0]
    return {
        "source": run.pools.source.name,
        **run.facts(),
        "test": run.pools.test_size,
        "judge": run.judge.name,
        "score": first.measure.title,
        "rows": [run.row_to_json(row) for row in run.rows()],
        **_view(first),
        "everything": _means(first.whole).get(first.measure.key),
        "judges": {
            one.judge.name: {
                **_view(one),
                "all_data": _means(one.whole),
                "majority": _means(one.majority),
            }
            for one in found
        },
        "notes": [one.note for one in found if one.note],
        "failed": run.failed,
        "records": str(run.records.path),
    }


def _view(found: Findings) -> dict[str, Any]:
    detectable = found.summary.detectable
    return {
        "summary": [entry.as_json() for entry in found.summary.entries],
        "smallest_detectable": {str(size): finite(value) for size, value in detectable.items()},
        "worth": [
            {"method": method, "size": size, **equivalent.ends()}
            for (method, size), equivalent in found.worth.items()
        ],
    }


def _means(entries: dict[str, Entry]) -> dict[str, float]:
    return {key: entry.mean for key, entry in entries.items()}


def make_table(run: BaseComparison[Any], found: Sequence[Findings]) -> list[str]:
    """A table in words for each evaluation model, an empty line between two."""
    lines = [line for one in found for line in ("", *_table(run, one))]
    return lines[1:]


def _table(run: BaseComparison[Any], found: Findings) -> list[str]:
    """The best method of the largest size first, then the references."""
    summary = found.summary
    sizes = [size for size in run.grid.sizes if size in summary.detectable]
    if not sizes:
        return ["no rows yet"]
    names = _best_first(found, sizes[-1])
    plain = "majority class" if run.pools.classification else "mean of the targets"
    entries = {f"all data ({run.pools.size})": found.whole, plain: found.majority}
    key = found.measure.key
    references = {name: own[key] for name, own in entries.items() if key in own}
    width = max(len(name) for name in [*names, *references]) + 2
    head = "".join(f"{f'{size} {run.unit}':>20}" for size in sizes)
    judge = found.judge.title(run.pools.classification)
    return [
        f"{found.measure.title} of the {judge} judge, mean ± standard error over seeds",
        f"{'':<{width}}{head}{'seconds':>12}{'  worth' if found.worth else ''}",
        *(f"{name:<{width}}{_line(found, name, sizes)}" for name in names),
        *(f"{name:<{width}}{_value(entry):>18}" for name, entry in references.items()),
        "",
        *_legend(run, found, sizes),
    ]


def _best_first(found: Findings, size: int) -> list[str]:
    """The methods by their mean at one size, those without one last."""

    def rank(name: str) -> float:
        entry = found.summary.of(name, size)
        if entry is None:
            return math.inf
        return -entry.mean if found.measure.larger else entry.mean

    return sorted(dict.fromkeys(entry.method for entry in found.summary.entries), key=rank)


def _line(found: Findings, name: str, sizes: list[int]) -> str:
    """The line of a method after its name: scores, seconds of the largest size, and worth."""
    entries = [found.summary.of(name, size) for size in sizes]
    last = next(entry for entry in reversed(entries) if entry is not None)
    model = f" + {last.model_seconds:.1f}" if last.model_seconds else ""
    worth = " / ".join(one.short() for (method, _), one in found.worth.items() if method == name)
    cells = "".join(f"{_cell(entry):>20}" for entry in entries)
    return f"{cells}{last.seconds:>12.3g}{model}{f'  {worth}' if worth else ''}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "—"
    missing = " " if entry.complete else f"({entry.seeds})"
    mark = "★" if entry.best else "≈" if entry.tied else missing
    return f"{_value(entry)} {mark}"


def _value(entry: Entry) -> str:
    error = f" ± {entry.error:.4f}" if math.isfinite(entry.error) else ""
    return f"{entry.mean:.4f}{error}"


def _legend(run: BaseComparison[Any], found: Findings, sizes: list[int]) -> list[str]:
    entries, detectable = found.summary.entries, found.summary.detectable
    lines = [
        "★ best mean; ≈ no significant difference to the best (paired, 95%); "
        f"seconds: {run.seconds_of}"
    ]
    if any(entry.model_seconds for entry in entries):
        lines.append("+ seconds: training the model that the method needs, once per pool")
    if any(not entry.complete for entry in entries):
        lines.append("(n) only n seeds are there: not compared with the others")
    known = {size: detectable[size] for size in sizes if math.isfinite(detectable[size])}
    if known:
        differences = ", ".join(f"{value:.4f} at {size}" for size, value in known.items())
        lines.append(
            "smallest difference these seeds would find (95% confidence, 80% power): "
            f"{differences} {run.unit}"
        )
    elif all(entry.seeds < 2 for entry in entries):
        lines.append("one seed says nothing about differences; give --seeds 5 or more")
    if found.worth:
        lines.append(
            "worth: uniform rows with the same mean score, one number per size, as far as the "
            "sizes compared tell (bicore worth evaluates more of them, and gives an interval)"
        )
    return lines
