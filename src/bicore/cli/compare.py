"""``bicore compare``: selection methods, or memories of a stream, on the user's data."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import typer

from bicore.cli.options import Data, Files, Limits, action, option, read_names
from bicore.cli.terminal import exit_on_interrupt, interrupt, print_answer, print_json, print_note
from bicore.defaults import MEMORIES, METHODS, SIZES
from bicore.errors import InputError

_SIZES = ",".join(map(str, SIZES))


def _list_methods(given: bool) -> None:
    """Print the methods and end the command if ``--list`` is given."""
    if not given:
        return
    with exit_on_interrupt():
        from bicore.methods.registry import METHODS as KNOWN
        from bicore.methods.registry import as_selector
    for name in KNOWN:
        selector = as_selector(name)
        needs = {"labels": selector.needs_labels, "a network": selector.needs_model}
        needed = " and ".join(word for word, wanted in needs.items() if wanted)
        print_answer(f"{name:<30} {f'needs {needed}' if needed else ''}".rstrip())
    print_note("compare trains the network that a method needs; select and worth have none.")
    raise typer.Exit


@dataclass(frozen=True)
class Compared:
    """Options of the comparison.

    Attributes
    ----------
    sizes
        Numbers of rows to select (default: 10,50,100).
    methods
        Methods, or all; see --list (default: {METHODS}).
    seeds
        Number of repetitions; each draws its own pool of rows.
    judge
        Evaluation models, one or several: {JUDGES} (for regression, logistic is
        ridge).
    metric
        Metric of the table: accuracy (default) or balanced; for regression r2 (default)
        or mae.
    steps
        Training steps of mlp and cnn.
    pool
        Number of rows to select from (default: at most 2,000; all of a stream).
    test
        Number of test rows (default: a quarter, or the source's own test set).
    full_pool
        Also train on complete pools of more than 5,000 rows.
    task
        Task: auto, classification or regression.
    kernel
        Kernel of bilevel methods, as in select.
    """

    panel: ClassVar[str] = "Comparison"
    sizes: str | None = option("M,M,…")
    methods: str | None = option("NAME,NAME,…")
    seeds: int = option("N", default=10)
    judge: str = option("NAME,NAME,…", default="ridge")
    metric: str | None = option("NAME", name="--metric --score")
    steps: int = option("N", default=1000)
    pool: int | None = option("N")
    test: int | None = option("N")
    full_pool: bool = False
    task: str = "auto"
    kernel: str = option("NAME", default="auto")
    names: bool = field(
        default=False,
        metadata={"info": action("--list", _list_methods, "List the methods and what they need.")},
    )


@dataclass(frozen=True)
class Streams:
    """Options of a comparison of memories.

    Attributes
    ----------
    stream
        Compare memories of a stream instead of selections.
    buffers
        Memories: {BUFFERS}, or all (default: {MEMORIES}).
    capacity
        Number of rows to keep (default: 50).
    order
        Order of the rows: given (default), random or sorted (by label).
    points
        Number of evaluations (default: 5).
    batch
        Rows per update (default: 125).
    """

    panel: ClassVar[str] = "Streams"
    stream: bool = False
    buffers: str | None = option("NAME,NAME,…")
    capacity: int | None = option("M")
    order: str | None = None
    points: int | None = option("N", name="--evaluations --points")
    batch: int | None = option("B")

    def given(self) -> dict[str, Any]:
        """Return the given options of memories."""
        values = {**vars(self), "stream": None}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Answer(Files):
    """Options for printing, writing and drawing the comparison.

    Attributes
    ----------
    records
        File of finished results; a later run reuses them (default: in the cache
        folder).
    picture
        Draw scores against size.
    report
        Write a self-contained HTML report (works offline).
    """

    records: Path | None = option("FILE.jsonl|DIR")
    picture: Path | None = option("FILE.png", name="--picture --plot")
    report: Path | None = option("FILE.html")


def compare(data: Data, grid: Compared, streams: Streams, limits: Limits, output: Answer) -> None:
    """Compare selection methods on your data.

    All methods select from the same pools of rows. A model is trained on each selection and tested
    on held-out rows.

    Example: bicore compare digits --sizes 10,50 --methods bilevel,uniform --seeds 5

    With --stream, all memories receive the same rows in the same order. A model is trained on the
    rows that each memory keeps, several times during the stream and at its end.

    Example: bicore compare digits --stream --capacity 50 --order sorted --seeds 5
    """
    with exit_on_interrupt():
        from bicore.cli.answer import command
        from bicore.report.comparison import check_request
        from bicore.report.comparison import compare as run_comparison
    output.check()
    request = _read_request(grid, streams)
    check_request(**request)  # before the source is read
    source = data.open(later=True, memory=limits.memory)
    own = data.open_test()
    requested = streams.buffers if streams.stream else grid.methods
    comparison = run_comparison(
        source,
        **request,
        pool=grid.pool,
        test=grid.test if own is None else own.data,
        metric=grid.metric,
        full_pool=grid.full_pool,
        task=grid.task,
        records=output.records or _cache_folder(),
        runtime=limits.runtime(progress=not output.quiet),
        callback=None
        if output.quiet
        else partial(_introduce, streams=streams, asked=requested, done=[]),
    )
    run = comparison.run
    if not comparison.interrupted:
        print_note(*(f"bicore: {name} was left out: {why}" for name, why in run.failed.items()))
    output.print_note(*(f"bicore: {one.note}" for one in comparison.findings if one.note))
    if output.json:
        print_json(comparison.as_dict())
    output.print_answer(*str(comparison).splitlines())
    if not output.json and not output.quiet:
        print_answer(f"records: {run.records.path}")
    if comparison.findings[0].summary.entries:
        if output.picture is not None:
            comparison.plot(output.picture)
        if output.report is not None:
            comparison.to_html(output.report, command())
        files = (output.picture, output.report)
        output.print_answer(*(f"written: {path}" for path in files if path))
    if comparison.interrupted:
        interrupt(f"; the same command continues from {run.records.path}.")
    if run.failed:
        raise typer.Exit(1)


def _read_request(compared: Compared, streams: Streams) -> dict[str, Any]:
    """Return the arguments of ``bicore.compare`` that need no data; refuse invalid combinations."""
    from bicore.evaluate.comparison import Stream

    given = streams.given()
    kind, fix = "streams", "add --stream"
    if streams.stream:
        own = {"sizes": compared.sizes, "methods": compared.methods}
        refused = {name: value for name, value in own.items() if value is not None}
        kind, fix = "selections", "omit it or --stream"
    else:
        refused = given
    for name, value in refused.items():
        raise InputError(f"--{name} {value} belongs to a comparison of {kind}; {fix}.")
    methods = given.pop("buffers", None) if streams.stream else compared.methods
    return {
        "sizes": None if compared.sizes is None else _read_sizes(compared.sizes),
        "methods": methods if methods in (None, "all") else read_names(methods),
        "seeds": compared.seeds,
        "judge": read_names(compared.judge),
        "steps": compared.steps,
        "kernel": compared.kernel,
        "stream": Stream(**given) if streams.stream else None,
    }


def _read_sizes(text: str) -> list[int]:
    """Parse comma-separated sizes."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"--sizes must be integers, e.g. {_SIZES}; got {text!r}.") from None


def _cache_folder() -> Path:
    """Return the default folder of records."""
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("BICORE_CACHE") or Path(users) / "bicore")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "give --records FILE.jsonl, or set BICORE_CACHE to a folder"
        raise InputError(f"{folder} cannot be created ({error.strerror}); {fix}.") from None
    return folder


def _introduce(run: Any, words: str, streams: Streams, asked: str | None, done: list[Any]) -> None:
    """Describe a comparison on standard error; ``done`` is not empty after the first call."""
    if done:
        return
    done.append(run)
    pools, stored = run.pools, run.done()
    which = "the source's own test set" if pools.test is not None else "held out for each seed"
    kind = f"pools of {pools.size}"
    if streams.stream:
        own = run.stream
        kind = f"streams of {pools.size} rows, order {own.order}, {own.capacity} kept"
    print_note(f"{pools.source.name}: {kind}, tested on {pools.test_size} rows ({which})")
    print_note(*(f"  {note}" for note in pools.source.notes))
    if any(getattr(one, "needs_model", False) for one in run.grid.methods.values()):
        name = run.trainer.name
        print_note(f"  methods that need a network get one {name} per pool, trained on that pool")
    for name in MEMORIES if streams.stream else METHODS:
        if asked is None and name not in run.grid.methods:
            print_note(f"  {name} is left out: it needs classes, and the targets are numeric")
    if not run.whole:
        print_note(f"  no model is trained on all {pools.size} rows of a pool (--full-pool does)")
    known = f", {stored} of {run.grid.cells()} results exist already" if stored else ""
    print_note(f"  results are stored in {run.records.path}{known}")
