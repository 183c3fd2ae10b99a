"""``bicore compare``: selection methods, or memories of a stream, on the user's data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from bicore._version import __version__
from bicore.cli.options import (
    BUFFERS,
    JUDGES,
    PICTURES,
    Data,
    Files,
    Limits,
    check_output,
    option,
    read_names,
    switch,
)
from bicore.cli.stream import check_buffer, make_buffer
from bicore.cli.terminal import EXIT_INTERRUPTED, bar, say, say_json, starting, tell
from bicore.errors import InputError, as_option, check_integer

if TYPE_CHECKING:
    from bicore.evaluate.comparison import BaseComparison
    from bicore.evaluate.findings import Findings
    from bicore.evaluate.models import Judge
    from bicore.evaluate.pools import Pools
    from bicore.runtime import Runtime

SIZES = "10,50,100"
METHODS = (
    "bilevel",
    "uniform",
    "class-balanced",
    "k-center-features",
    "herding-features",
    "facility-location",
)
MEMORIES = ("moments", "reservoir", "class-balanced", "merge-reduce")
#: Of these, the ones that need classes.
FOR_CLASSES = ("class-balanced", "prototypes")
CAPACITY, POINTS, BATCH = 50, 5, 125
#: Evaluation models are trained on a whole pool of at most this many points without --everything.
MOST_WHOLE = 5000
#: The default limit of a pool.
MOST_POOL = 2000


def _list_methods(wanted: bool) -> None:
    if not wanted:
        return
    with starting():
        from bicore.selectors.registry import METHODS as KNOWN
        from bicore.selectors.registry import as_selector
    for name in KNOWN:
        selector = as_selector(name)
        needs = {"labels": selector.needs_labels, "a model": selector.needs_model}
        needed = " and ".join(word for word, wanted in needs.items() if wanted)
        say(f"{name:<30} {f'needs {needed}' if needed else ''}".rstrip())
    raise typer.Exit


@dataclass(frozen=True)
class Compared:
    """What is compared, and how it is evaluated."""

    panel: ClassVar[str] = "Comparison"
    sizes: str | None = option(f"Numbers of points to select (default: {SIZES}).", "M,M,…")
    methods: str | None = option(
        f"Methods, or all; see --list (default: {', '.join(METHODS)}).", "NAME,NAME,…"
    )
    seeds: int = option("Number of repetitions, each with its own pool.", "N", default=10)
    judge: str = option(
        f"Evaluation models, one or several: {', '.join(JUDGES)}.", "NAME,NAME,…", default="ridge"
    )
    score: str | None = option(
        "Metric of the table: accuracy (default) or balanced; for targets r2 (default) or mae.",
        "NAME",
    )
    steps: int = option("Training steps of a network.", "N", default=1000)
    pool: int | None = option(
        f"Points to select from (default: at most {MOST_POOL}; all of a stream).", "N"
    )
    test: int | None = option("Test points (default: a quarter, or the own test set).", "N")
    everything: bool = switch(
        f"Also train the models on whole pools of more than {MOST_WHOLE} points.", "--everything"
    )
    task: str = option("auto, classification or regression.", default="auto")
    kernel: str = option("Kernel of bilevel methods, as in select.", "NAME", default="auto")
    names: bool = field(
        default=False,
        metadata={
            "info": typer.Option(
                "--list", callback=_list_methods, is_eager=True, help="List methods and needs."
            )
        },
    )


@dataclass(frozen=True)
class Streams:
    """Options of a comparison of memories."""

    panel: ClassVar[str] = "Streams"
    stream: bool = switch("Compare memories of a stream instead of selections.", "--stream")
    buffers: str | None = option(
        f"Memories: {', '.join(BUFFERS)}, or all (default: {', '.join(MEMORIES)}).", "NAME,NAME,…"
    )
    capacity: int | None = option(f"Rows kept (default: {CAPACITY}).", "M")
    order: str | None = option("Order of the rows: given (default), random or sorted (by label).")
    points: int | None = option(f"Number of evaluations (default: {POINTS}).", "N")
    batch: int | None = option(f"Rows per update (default: {BATCH}).", "B")

    def values(self) -> dict[str, Any]:
        """The settings that determine the rows of a comparison."""
        capacity, batch = self.capacity or CAPACITY, self.batch or BATCH
        return {"capacity": capacity, "order": self.order or "given", "batch": batch}


@dataclass(frozen=True)
class Answer(Files):
    """How the comparison is printed, written and drawn."""

    records: Path | None = option(
        "File of the finished rows (default: in $BICORE_CACHE, or the user's cache).",
        "FILE.jsonl|DIR",
    )
    picture: Path | None = field(
        default=None,
        metadata={
            "info": typer.Option(
                "--picture", "--plot", metavar="FILE.png", help="Draw scores against size."
            )
        },
    )
    report: Path | None = option("Write a page about it: one file, no network.", "FILE.html")


def compare(
    data: Data, compared: Compared, streams: Streams, limits: Limits, output: Answer
) -> None:
    """Compare selection methods on your data.

    All select from the same pools. A model is trained from scratch on each selection and tested on
    rows that no method saw.

    Example: bicore compare digits --sizes 10,50 --methods bilevel,uniform --seeds 5

    With --stream, memories are fed the same rows in the same order, and a model is trained on the
    rows that each keeps, at the end and along the way.

    Example: bicore compare digits --stream --capacity 50 --order sorted --seeds 5
    """
    with starting():
        from bicore.evaluate.findings import findings_of, make_table, to_json
        from bicore.evaluate.models import as_judge
        from bicore.evaluate.pools import make_pools
        from bicore.evaluate.samples import measure_by
        from bicore.selectors.names import as_kernel
    check_output(output.picture, output.force, PICTURES, "--picture")
    check_output(output.report, output.force, (".html", ".htm"), "--report")
    _check(compared, streams)
    judges = [as_judge(name, compared.steps) for name in read_names("--judge", compared.judge)]
    as_kernel(compared.kernel)  # refuses an unknown name before anything is read
    source = data.open(output.quiet, later=True, memory=limits.memory)
    most = len(source.data) if streams.stream else MOST_POOL
    test = data.open_test()
    pools = make_pools(source, test, compared.task, compared.pool, most, compared.test)
    measure = measure_by(compared.score, pools.classification)
    for judge in judges:
        judge.check(tuple(source.data.x.shape[1:]), pools.outputs)
    runtime = limits.runtime(progress=False)  # one line of progress for all selections
    run = _make_run(pools, judges, compared, streams, output.records, runtime)
    if not output.quiet:
        _introduce(run, compared, streams)
    stopped = _work(run, output.quiet)
    found = findings_of(run, measure)
    notes = [f"bicore: {one.note}" for one in found if one.note]
    if notes and not output.quiet:
        tell(*notes)
    if output.json:
        say_json({**to_json(run, found), "version": __version__})
    else:
        say(*make_table(run, found), f"records: {run.records.path}")
    if found[0].summary.entries:
        _draw(run, found, streams, output)
    if stopped:
        tell(f"bicore: interrupted; the same command goes on ({run.records.path} has all rows).")
        raise typer.Exit(EXIT_INTERRUPTED)
    if run.failed:
        raise typer.Exit(1)


def _check(compared: Compared, streams: Streams) -> None:
    """Refuse names, numbers and combinations that cannot be right, before anything is read."""
    from bicore.evaluate.comparison import Order
    from bicore.selectors.registry import METHODS as KNOWN
    from bicore.selectors.registry import as_selector

    own = ("buffers", "capacity", "order", "points", "batch")
    given = {name: getattr(streams, name) for name in own}
    kind, fix = "streams", "add --stream"
    if streams.stream:
        given = {"sizes": compared.sizes, "methods": compared.methods}
        kind, fix = "selections", "omit it"
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{name} {value} belongs to a comparison of {kind}; {fix}.")
    for name in ("seeds", "steps"):
        check_integer(f"--{name}", getattr(compared, name))
    for name in ("capacity", "points", "batch"):
        if getattr(streams, name) is not None:
            check_integer(f"--{name}", getattr(streams, name))
    as_option("--order", streams.order or "given", Order)
    for name in read_names("--buffers", streams.buffers or "all", BUFFERS):
        check_buffer(name)
    for name in read_names("--methods", compared.methods or "all", tuple(KNOWN)):
        as_selector(name)


def _read_sizes(text: str, pools: Pools) -> list[int]:
    """Comma-separated sizes, ascending."""
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError(f"--sizes must be integers, e.g. {SIZES}; got {text!r}.") from None
    for size in (sizes[0], sizes[-1]):
        check_integer("--sizes", size, 1, pools.size, "or give a larger --pool")
    return sizes


def _make_run(
    pools: Pools,
    judges: list[Judge],
    compared: Compared,
    streams: Streams,
    file: Path | None,
    runtime: Runtime,
) -> BaseComparison[Any]:
    """The comparison that was asked for."""
    from bicore.evaluate.comparison import Comparison, Grid, StreamComparison, positions_of
    from bicore.evaluate.records import Records, digest

    kind: Any = Comparison
    settings = _settings(pools, judges, compared)
    if streams.stream:
        own = streams.values()
        if own["capacity"] >= pools.size:
            raise InputError(
                f"--capacity {own['capacity']} holds all of a stream of {pools.size} rows; give "
                "less."
            )
        kind = partial(StreamComparison, **own)
        settings["stream"] = own
        methods = _makers(compared, streams, pools)
        sizes = positions_of(pools.size, streams.points or POINTS, own["batch"])
    else:
        methods = _selectors(compared, pools)
        sizes = _read_sizes(compared.sizes or SIZES, pools)
    run: BaseComparison[Any] = kind(
        pools,
        Grid(methods, sizes, range(compared.seeds)),
        judges[0],
        Records(_records_path(file, f"compare-{digest(settings)}.jsonl"), settings),
        runtime,
        compared.everything or pools.size <= MOST_WHOLE,
        others=judges[1:],
        majority=True,
    )
    return run


def _names(
    text: str | None, defaults: Sequence[str], every: Sequence[str], pools: Pools
) -> list[str]:
    """The methods or memories compared; by default without those that need classes."""
    if text is not None:
        return read_names("", text, every)
    return [name for name in defaults if pools.classification or name not in FOR_CLASSES]


def _selectors(compared: Compared, pools: Pools) -> dict[str, Any]:
    """The methods compared, by name."""
    from bicore.selectors.bilevel import BilevelSelector
    from bicore.selectors.registry import METHODS as KNOWN
    from bicore.selectors.registry import as_selector

    kernel = {} if compared.kernel == "auto" else {"kernel": compared.kernel}
    options = {"task": compared.task, **kernel}
    return {
        name: as_selector(name, **(options if KNOWN[name][0] is BilevelSelector else {}))
        for name in _names(compared.methods, METHODS, tuple(KNOWN), pools)
    }


def _makers(compared: Compared, streams: Streams, pools: Pools) -> dict[str, Any]:
    """Functions from a seed to a memory, by name."""
    kernel = None if compared.kernel == "auto" else compared.kernel
    makers: dict[str, Any] = {}
    for name in _names(streams.buffers, MEMORIES, BUFFERS, pools):
        makers[name] = partial(make_buffer, name, streams.values()["capacity"])
        if name == "merge-reduce":
            makers[name] = partial(makers[name], kernel=kernel)
    return makers


def _settings(pools: Pools, judges: list[Judge], compared: Compared) -> dict[str, Any]:
    """All settings that determine the value of a row."""
    networks = any(judge.is_network for judge in judges)
    # rows of earlier versions, whose ridge model was not tuned, differ
    tuned = {"ridge": "tuned"} if any(judge.name == "ridge" for judge in judges) else {}
    return {
        "version": __version__,
        "source": pools.source.name,
        "fingerprint": pools.source.data.fingerprint(),
        "judge": ",".join(judge.name for judge in judges),
        "steps": compared.steps if networks else None,
        **tuned,
        "pool": pools.size,
        "test": pools.test_size,
        "scale": pools.source.scale,
        "task": pools.targets.task,
        "kernel": compared.kernel,
    }


def _records_path(asked: Path | None, name: str) -> Path:
    """The file that was asked for, or one in the folder that was, or in the cache."""
    if asked is not None:
        return asked / name if asked.is_dir() else asked
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("BICORE_CACHE") or Path(users) / "bicore")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}); give --records FILE.jsonl, or set "
            "BICORE_CACHE to a folder."
        ) from None
    return folder / name


def _introduce(run: Any, compared: Compared, streams: Streams) -> None:
    """Describe the comparison on standard error."""
    pools, done = run.pools, run.done()
    which = "the source's own test set" if pools.test is not None else "held out for each seed"
    kind = f"pools of {pools.size}"
    if streams.stream:
        own = streams.values()
        kind = f"streams of {pools.size} rows, order {own['order']}, {own['capacity']} kept"
    tell(f"{pools.source.name}: {kind}, tested on {pools.test_size} points ({which})")
    tell(*(f"  {note}" for note in pools.source.notes))
    if any(getattr(one, "needs_model", False) for one in run.grid.methods.values()):
        tell(
            f"  methods that need a model get one {run.trainer.name} per seed, trained on its pool"
        )
    named = streams.buffers if streams.stream else compared.methods
    for name in MEMORIES if streams.stream else METHODS:
        if named is None and name not in run.grid.methods:
            tell(f"  {name} needs classes, and the labels are targets: left out")
    if not run.whole:
        tell(f"  no model is trained on all {pools.size} points of a pool; --everything does that")
    known = f", {done} of {run.grid.cells()} rows are there already" if done else ""
    tell(f"  rows are kept in {run.records.path}{known}")


def _work(run: BaseComparison[Any], quiet: bool) -> bool:
    """Run with a progress bar; whether it was interrupted."""
    cells, before = run.grid.cells(), run.done()
    with bar("comparing", quiet) as progress:

        def show(done: int, words: str) -> None:
            assert not isinstance(progress, bool)
            filled = done - before
            left = progress.clock.seconds / filled * (cells - done) if filled > 0 else None
            progress.show(f"{done}/{cells}", f"about {left:.0f} s left" if left else "", words)

        run.tell = show if progress else None
        try:
            run.run()
        except KeyboardInterrupt:
            return True
    tell(*(f"bicore: {name} was left out: {reason}" for name, reason in run.failed.items()))
    return False


def _draw(
    run: BaseComparison[Any], found: list[Findings], streams: Streams, output: Answer
) -> None:
    """Draw the picture and write the page that were asked for."""
    from bicore.cli.answer import command
    from bicore.report.figures import draw_curves
    from bicore.report.page_of_comparison import comparison_page

    along = "rows seen" if streams.stream else "rows selected"
    if output.picture is not None:
        name, seeds = run.pools.source.name, len(run.grid.seeds)
        title = f"{name}, judge {run.judge.name}: mean over {seeds} seeds ± one s.e."
        score = found[0].measure.title
        draw_curves(found[0].summary, list(run.grid.methods), title, score, output.picture, along)
    if output.report is not None:
        comparison_page(run, found, output.report, command=command(), along=along)
    if not output.json:
        files = [path for path in (output.picture, output.report) if path is not None]
        say(*(f"written: {path}" for path in files))
