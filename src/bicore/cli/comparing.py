"""What ``bicore compare`` does with selections, and what both kinds of comparison are made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from bicore._version import __version__
from bicore.cli.compare_run import means_of, notes_of, view_of, work
from bicore.cli.compare_stream import StreamRequest, finish_streams, say_streams
from bicore.cli.compare_table import table, tables
from bicore.cli.keeping import records_place
from bicore.cli.names import DEFAULT_METHODS, MOST_WHOLE
from bicore.cli.report import write_comparison
from bicore.cli.starting import EXIT_INTERRUPTED
from bicore.cli.telling import say, say_json, tell
from bicore.errors import InputError
from bicore.evaluate.comparison import BaseComparison, Comparison, Grid
from bicore.evaluate.findings import Findings, findings_of
from bicore.evaluate.metrics import Measure
from bicore.evaluate.model import Judge
from bicore.evaluate.pools import Pools
from bicore.evaluate.records import Records, digest
from bicore.report.figures import draw_curves
from bicore.runtime import Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.registry import METHODS, as_selector

#: Of the methods compared by default those that need classes: left out where labels are targets.
FOR_CLASSES = ("class-balanced",)
#: A pool has at most this many points unless --pool says otherwise.
MOST_POOL = 2000


def methods_and_needs() -> list[str]:
    """Every method by name with what it needs, a line each."""
    lines = []
    for name in METHODS:
        selector = as_selector(name)
        needs = {"labels": selector.needs_labels, "a model": selector.needs_model}
        needed = " and ".join(word for word, wants in needs.items() if wants)
        lines.append(f"{name:<30} {f'needs {needed}' if needed else ''}".rstrip())
    return lines


@dataclass(frozen=True)
class Job:
    """What comparisons of both kinds are made of."""

    pools: Pools
    judges: list[Judge]
    steps: int
    kernel: str
    seeds: int
    runtime: Runtime
    everything: bool
    file: Path | None

    @property
    def whole(self) -> bool:
        """Whether judges are trained on all of a pool too."""
        return self.everything or self.pools.size <= MOST_WHOLE

    def records(self, more: dict[str, Any] | None = None) -> Records:
        settings = _settings(self.pools, self.judges, self.steps, self.kernel) | (more or {})
        return Records(records_place(self.file, f"compare-{digest(settings)}.jsonl"), settings)


@dataclass(frozen=True)
class Shown:
    """How the answer is shown."""

    measure: Measure
    picture: Path | None
    as_json: bool
    quiet: bool
    report: Path | None


def compare_selections(
    job: Job, counts: list[int], named: list[str] | None, task: str, shown: Shown
) -> None:
    _check_sizes(counts, job.pools)
    chosen, left = _chosen(named, job.pools.classification)
    selectors = {name: _selector(name, job.kernel, task) for name in chosen}
    grid = Grid(selectors, counts, range(job.seeds))
    first, *others = job.judges
    store = job.records()
    run = Comparison(
        job.pools, grid, first, store, job.runtime, job.whole, others=others, majority=True
    )
    if not shown.quiet:
        _say(job.pools, run, left)
    stopped = work(run, shown.quiet)
    _finish(run, shown.measure, shown.picture, shown.as_json, shown.quiet)
    write_comparison(run, shown.measure, shown.report, shown.as_json, "rows selected")
    _end(run, stopped)


def compare_streams(job: Job, asked: StreamRequest, shown: Shown) -> None:
    asked.check(job.pools)
    store = job.records(asked.settings())
    run = asked.comparison(job.pools, job.judges, job.seeds, store, job.runtime, job.whole)
    if not shown.quiet:
        say_streams(run, asked)
    stopped = work(run, shown.quiet)
    finish_streams(run, asked, shown.measure, shown.picture, shown.as_json, shown.quiet)
    write_comparison(run, shown.measure, shown.report, shown.as_json, "rows seen")
    _end(run, stopped)


def _end(run: BaseComparison[Any], stopped: bool) -> None:
    """How the command ends where something is missing."""
    if stopped:
        tell(
            f"bicore: interrupted; what is done is in {run.records.path}. The same command goes on "
            "from there."
        )
        raise typer.Exit(EXIT_INTERRUPTED)
    if run.failed:
        raise typer.Exit(1)


def sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError(
            f"--sizes {text!r} is not a list of whole numbers; for example 10,50,100."
        ) from None
    if sizes[0] < 1:
        raise InputError(f"--sizes holds {sizes[0]}; sizes are at least 1.")
    return sizes


def methods(text: str) -> list[str]:
    chosen = list(METHODS) if text == "all" else [word.strip() for word in text.split(",")]
    for name in chosen:
        as_selector(name)
    repeated = [name for name in chosen if chosen.count(name) > 1]
    if repeated:
        raise InputError(f"--methods holds {repeated[0]} twice; name each method once.")
    return chosen


def _chosen(named: list[str] | None, classification: bool) -> tuple[list[str], list[str]]:
    """The methods compared, and those that come by default but cannot work here."""
    if named is not None:
        return named, []
    left = [] if classification else list(FOR_CLASSES)
    return [name for name in DEFAULT_METHODS if name not in left], left


def _check_sizes(sizes: list[int], pools: Pools) -> None:
    if sizes[-1] > pools.size:
        raise InputError(
            f"--sizes holds {sizes[-1]}, and a pool has {pools.size} points; ask for fewer, or a "
            "larger --pool."
        )


def _selector(name: str, kernel: str, task: str) -> Selector:
    if METHODS[name][0] is BilevelSelector:
        # what a method is by its own table where nothing else is asked for
        named = {} if kernel == "auto" else {"kernel": kernel}
        return as_selector(name, task=task, **named)
    return as_selector(name)


def _settings(pools: Pools, judges: list[Judge], steps: int, kernel: str) -> dict[str, Any]:
    """All that decides what a row of a method, size and seed holds."""
    networks = [judge for judge in judges if judge.trainer is not None]
    # rows of the ridge judge that was not tuned are no others of these
    tuned = {"ridge": "tuned"} if any(judge.name == "ridge" for judge in judges) else {}
    return {
        "version": __version__,
        "source": pools.source.name,
        "fingerprint": pools.source.data.fingerprint(),
        "judge": ",".join(judge.name for judge in judges),
        "steps": steps if networks else None,
        **tuned,
        "pool": pools.size,
        "test": pools.test_size,
        "scale": pools.source.scale,
        "task": pools.targets.task,
        "kernel": kernel,
    }


def _say(pools: Pools, run: Comparison, left: list[str]) -> None:
    own = pools.test is not None
    which = "the source's own test set" if own else "held out at random for each seed"
    tell(
        f"{pools.source.name}: pools of {pools.size}, tested on {pools.test_size} points ({which})"
    )
    for note in pools.source.notes:
        tell(f"  {note}")
    if any(selector.needs_model for selector in run.grid.methods.values()):
        tell(
            f"  methods that need a model look at one {run.trainer.name} trained on the whole pool "
            "of each seed"
        )
    for name in left:
        tell(f"  {name} needs classes, and the labels are targets: left out")
    if not run.whole:
        tell(f"  no judge is trained on all {pools.size} points of a pool; --everything does that")
    done = run.done()
    known = f", {done} of {run.grid.cells()} rows are there already" if done else ""
    tell(f"  rows are kept in {run.records.path}{known}")


def _finish(
    run: Comparison, measure: Measure, picture: Path | None, as_json: bool, quiet: bool
) -> None:
    """Print the answer, then draw: a picture that fails takes nothing with it."""
    methods = list(run.grid.methods)
    found = findings_of(run, measure)
    for note in () if quiet else notes_of(found):
        tell(f"bicore: {note}")
    if as_json:
        say_json(_answer(run, found))
    else:
        say(*tables(table(run, one) for one in found), f"records: {run.records.path}")
    if picture is not None and found[0].summary.entries:
        title = (
            f"{run.pools.source.name}, pools of {run.pools.size}, judge {run.judge.name}: mean "
            f"over {len(run.grid.seeds)} seeds ± one s.e."
        )
        draw_curves(found[0].summary, methods, title, measure.title, picture)
        if not as_json:
            say(f"written: {picture}")


def _answer(run: Comparison, found: list[Findings]) -> dict[str, Any]:
    rows = [
        {
            "method": row.method,
            "size": row.size,
            "seed": row.seed,
            "accuracy": row.accuracy,
            "selection_seconds": row.selection_seconds,
            "model_seconds": row.model_seconds,
            "measures": row.measures,
        }
        for row in run.records.rows.values()
        if row.method in run.grid.methods
        and row.size in run.grid.sizes
        and row.seed in run.grid.seeds
    ]
    first = found[0]
    return {
        "source": run.pools.source.name,
        "pool": run.pools.size,
        "test": run.pools.test_size,
        "judge": run.judge.name,
        "score": first.measure.title,
        "rows": rows,
        **view_of(first),
        "everything": means_of(first.whole).get(first.measure.key),
        "judges": {
            one.judge.name: {
                **view_of(one),
                "all_data": means_of(one.whole),
                "majority": means_of(one.majority),
            }
            for one in found
        },
        "notes": notes_of(found),
        "failed": run.failed,
        "records": str(run.records.path),
        "version": __version__,
    }
