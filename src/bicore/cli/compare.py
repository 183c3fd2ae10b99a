"""``bicore compare``."""

from __future__ import annotations

import json
import math
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from bicore._version import __version__
from bicore.cli.options import (
    EXIT_INTERRUPTED,
    Device,
    Folder,
    Force,
    KernelName,
    Labels,
    Limit,
    Memory,
    Quiet,
    Scale,
    SourceWord,
    Target,
    Threads,
    check_output,
)
from bicore.comparison.grid import WHOLE, Comparison, Grid
from bicore.comparison.judges import as_judge
from bicore.comparison.pools import Pools, make_pools
from bicore.comparison.records import Records, digest
from bicore.comparison.statistics import Entry, Summary, finite, summarise
from bicore.errors import InputError
from bicore.report.curves import draw_curves
from bicore.runtime import Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.names import as_kernel
from bicore.selectors.registry import METHODS, as_selector
from bicore.sources.opening import open_source, open_test

#: Methods compared when none are named: ours, chance, and well-known ones that need no model.
DEFAULT_METHODS = (
    "bilevel,uniform,class-balanced,k-center-features,herding-features,facility-location"
)
#: A pool has at most this many points unless --pool says otherwise.
MOST_POOL = 2000


def _list(wanted: bool) -> None:
    if not wanted:
        return
    for name in METHODS:
        selector = as_selector(name)
        needs = {"labels": selector.needs_labels, "a model": selector.needs_model}
        needed = " and ".join(word for word, wants in needs.items() if wants)
        print(f"{name:<30} {f'needs {needed}' if needed else ''}".rstrip())
    raise typer.Exit


def compare(
    source: SourceWord,
    sizes: Annotated[
        str, typer.Option(metavar="M,M,…", help="How many points to select, several sizes.")
    ] = "10,50,100",
    methods: Annotated[
        str, typer.Option(metavar="NAME,NAME,…", help="Methods by name, or all; see --list.")
    ] = DEFAULT_METHODS,
    seeds: Annotated[
        int, typer.Option(metavar="N", help="Repetitions, each with a pool and a judge of its own.")
    ] = 10,
    judge: Annotated[
        str, typer.Option(help="The model trained on each selection: ridge, mlp or cnn.")
    ] = "ridge",
    steps: Annotated[
        int, typer.Option(metavar="N", help="Training steps of a network judge.")
    ] = 1000,
    pool: Annotated[
        int | None,
        typer.Option(metavar="N", help="Points to choose from; by default at most 2000."),
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Points tested on; by default a quarter, or the own test set."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also train the judge on the whole pool.")
    ] = False,
    target: Target = None,
    labels: Labels = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    kernel: KernelName = "ntk",
    records: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="Where rows are kept as they come.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw accuracy against size.")
    ] = None,
    device: Device = "auto",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    names: Annotated[
        bool,
        typer.Option(
            "--list", callback=_list, is_eager=True, help="List the methods and their needs."
        ),
    ] = False,
) -> None:
    """Compare selection methods on your data.

    All choose from the same pools, a judge is trained from scratch on each selection, and tests are
    on data no method saw.

    Example: bicore compare digits --sizes 10,50 --methods bilevel,uniform --seeds 5
    """
    check_output(picture, force, (".png", ".pdf", ".svg"), "--picture")
    counts = _sizes(sizes)
    chosen = _methods(methods)
    if seeds < 1:
        raise InputError(f"--seeds {seeds} is below 1; give the number of repetitions.")
    if steps < 1:
        raise InputError(f"--steps {steps} is below 1; give the number of training steps.")
    as_kernel(kernel)  # an unknown name is refused before anything is read
    runtime = Runtime(device, memory=memory, threads=threads)
    opened = open_source(
        source, target=target, labels=labels, folder=data, scale=scale, limit=limit, later=True
    )
    pools = make_pools(opened, open_test(source, data, scale), task, pool, MOST_POOL, test)
    _check_sizes(counts, pools)
    selectors = {name: _selector(name, kernel, task) for name in chosen}
    chosen_judge = as_judge(judge, steps)
    chosen_judge.check(tuple(opened.data.x.shape[1:]), pools.outputs)
    settings = _settings(pools, judge, steps, kernel)
    store = Records(records or Path(f"bicore-compare-{digest(settings)}.jsonl"), settings)
    grid = Grid(selectors, counts, range(seeds))
    run = Comparison(pools, grid, chosen_judge, store, runtime, everything)
    if not quiet:
        _say(pools, run, judge)
    stopped = _work(run, quiet or as_json)
    _finish(run, picture, as_json, judge)
    if stopped:
        print(
            f"bicore: interrupted; what is done is in {store.path}. The same command goes on from "
            "there.",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED)
    if run.failed:
        raise typer.Exit(1)


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError(
            f"--sizes {text!r} is not a list of whole numbers; for example 10,50,100."
        ) from None
    if sizes[0] < 1:
        raise InputError(f"--sizes holds {sizes[0]}; sizes are at least 1.")
    return sizes


def _methods(text: str) -> list[str]:
    chosen = list(METHODS) if text == "all" else [word.strip() for word in text.split(",")]
    for name in chosen:
        as_selector(name)
    repeated = [name for name in chosen if chosen.count(name) > 1]
    if repeated:
        raise InputError(f"--methods holds {repeated[0]} twice; name each method once.")
    return chosen


def _check_sizes(sizes: list[int], pools: Pools) -> None:
    if sizes[-1] > pools.size:
        raise InputError(
            f"--sizes holds {sizes[-1]}, and a pool has {pools.size} points; ask for fewer, or a "
            "larger --pool."
        )


def _selector(name: str, kernel: str, task: str) -> Selector:
    if METHODS[name][0] is BilevelSelector:
        return as_selector(name, kernel=kernel, task=task)
    return as_selector(name)


def _settings(pools: Pools, judge: str, steps: int, kernel: str) -> dict[str, Any]:
    """All that decides what a row of a method, size and seed holds."""
    return {
        "version": __version__,
        "source": pools.source.name,
        "fingerprint": pools.source.data.fingerprint(),
        "judge": judge,
        "steps": steps if judge != "ridge" else None,
        "pool": pools.size,
        "test": pools.test_size,
        "scale": pools.source.scale,
        "task": pools.targets.task,
        "kernel": kernel,
    }


def _say(pools: Pools, run: Comparison, judge: str) -> None:
    own = pools.test is not None
    which = "the source's own test set" if own else "held out at random for each seed"
    print(
        f"{pools.source.name}: pools of {pools.size}, tested on {pools.test_size} points ({which})",
        file=sys.stderr,
    )
    for note in pools.source.notes:
        print(f"  {note}", file=sys.stderr)
    if any(selector.needs_model for selector in run.grid.methods.values()):
        network = judge if judge != "ridge" else "mlp"
        print(
            f"  methods that need a model look at one {network} trained on the whole pool of each "
            "seed",
            file=sys.stderr,
        )
    done = run.done()
    known = f", {done} of {run.grid.cells()} rows are there already" if done else ""
    print(f"  rows are kept in {run.records.path}{known}", file=sys.stderr)


def _work(run: Comparison, silent: bool) -> bool:
    """Run with a bar; whether it was interrupted."""
    try:
        with _bar(run, silent):
            run.run()
    except KeyboardInterrupt:
        return True
    for name, reason in run.failed.items():
        print(f"bicore: {name} was left out from here on: {reason}", file=sys.stderr)
    return False


def _bar(run: Comparison, silent: bool) -> AbstractContextManager[Any]:
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


def _finish(run: Comparison, picture: Path | None, as_json: bool, judge: str) -> None:
    """Draw, then print the answer."""
    methods = list(run.grid.methods)
    rows = [row for row in run.records.rows.values() if row.seed in run.grid.seeds]
    summary = summarise(rows, methods, run.grid.sizes)
    score = "accuracy" if run.pools.classification else "R²"
    if picture is not None and summary.entries:
        title = (
            f"{run.pools.source.name}, pools of {run.pools.size}, judge {judge}: mean over "
            f"{len(run.grid.seeds)} seeds ± one s.e."
        )
        draw_curves(summary, methods, title, score, picture)
    if as_json:
        print(json.dumps(_answer(run, summary, judge, score)))
        return
    print("\n".join(table(run, summary, judge, score)))
    if picture is not None:
        print(f"written: {picture}")


def _answer(run: Comparison, summary: Summary, judge: str, score: str) -> dict[str, Any]:
    rows = [
        {
            "method": row.method,
            "size": row.size,
            "seed": row.seed,
            "accuracy": row.accuracy,
            "selection_seconds": row.selection_seconds,
            "model_seconds": row.model_seconds,
        }
        for row in run.records.rows.values()
        if row.method in run.grid.methods
        and row.size in run.grid.sizes
        and row.seed in run.grid.seeds
    ]
    return {
        "source": run.pools.source.name,
        "pool": run.pools.size,
        "test": run.pools.test_size,
        "judge": judge,
        "score": score,
        "rows": rows,
        "summary": [entry.as_json() for entry in summary.entries],
        "smallest_detectable": {
            str(size): finite(value) for size, value in summary.detectable.items()
        },
        "everything": _whole_pool(run),
        "failed": run.failed,
        "records": str(run.records.path),
        "version": __version__,
    }


def _whole_pool(run: Comparison) -> float | None:
    """The mean score of the judge trained on all of each pool, where that was asked for."""
    scores = [
        row.accuracy
        for row in run.records.rows.values()
        if row.method == WHOLE and row.seed in run.grid.seeds
    ]
    return sum(scores) / len(scores) if scores else None


def table(run: Comparison, summary: Summary, judge: str, score: str) -> list[str]:
    """The table in words, a line each: best first by the largest size."""
    sizes = [size for size in run.grid.sizes if size in summary.detectable]
    if not sizes:
        return ["no rows yet"]
    names = _best_first(summary, sizes[-1])
    width = max(len(name) for name in names) + 2
    head = "".join(f"{f'{size} points':>20}" for size in sizes)
    lines = [
        f"{score} of the {judge} judge, mean ± standard error over seeds",
        f"{'':<{width}}{head}{'seconds':>12}",
        *(f"{name:<{width}}{_cells(summary, name, sizes)}" for name in names),
    ]
    whole = _whole_pool(run)
    if whole is not None:
        lines.append(f"the whole pool ({run.pools.size} points): {whole:.4f}")
    return [*lines, "", *_legend(summary, sizes)]


def _best_first(summary: Summary, size: int) -> list[str]:
    """The methods by their mean at one size, those without one last."""

    def rank(name: str) -> float:
        entry = summary.of(name, size)
        return math.inf if entry is None else -entry.mean

    return sorted(dict.fromkeys(entry.method for entry in summary.entries), key=rank)


def _cells(summary: Summary, name: str, sizes: list[int]) -> str:
    """The line of a method after its name; the seconds are those of its largest size."""
    entries = [summary.of(name, size) for size in sizes]
    last = next(entry for entry in reversed(entries) if entry is not None)
    model = f" + {last.model_seconds:.1f}" if last.model_seconds else ""
    return "".join(f"{_cell(entry):>20}" for entry in entries) + f"{last.seconds:>12.3g}{model}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "—"
    error = f" ± {entry.error:.4f}" if math.isfinite(entry.error) else ""
    return f"{entry.mean:.4f}{error} {_mark(entry)}"


def _mark(entry: Entry) -> str:
    """What the legend explains."""
    if entry.best:
        return "★"
    if entry.tied:
        return "≈"
    return " " if entry.complete else f"({entry.seeds})"


def _legend(summary: Summary, sizes: list[int]) -> list[str]:
    lines = [
        "★ best mean; ≈ the paired 95% interval of its distance to the best includes zero; "
        "seconds: one selection, largest size"
    ]
    if any(entry.model_seconds for entry in summary.entries):
        lines.append("+ seconds: training the model that the method looks at, once a pool")
    if any(not entry.complete for entry in summary.entries):
        lines.append("(n) only n seeds are there: not compared with the others")
    found = {
        size: summary.detectable[size] for size in sizes if math.isfinite(summary.detectable[size])
    }
    if found:
        differences = ", ".join(f"{value:.4f} at {size}" for size, value in found.items())
        lines.append(
            "smallest difference these seeds would find (95% confidence, chance about 80%): "
            f"{differences} points"
        )
    else:
        lines.append("one seed tells nothing about differences; give --seeds 5 or more")
    return lines
