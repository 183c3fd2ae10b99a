"""``bicore compare``: what may be asked for, and the order of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bicore.cli.names import (
    BATCH,
    BUFFERS,
    CAPACITY,
    DEFAULT_BUFFERS,
    DEFAULT_METHODS,
    DEFAULT_SIZES,
    JUDGES,
    MOST_WHOLE,
    POINTS,
)
from bicore.cli.options import (
    Decimal,
    Device,
    Drop,
    DropMissingTarget,
    Features,
    Folder,
    Force,
    KernelName,
    Labels,
    Limit,
    Memory,
    Quiet,
    ReportPage,
    Scale,
    SourceWord,
    Target,
    Threads,
    check_output,
)
from bicore.cli.progress import watched
from bicore.cli.starting import starting
from bicore.cli.telling import say
from bicore.errors import InputError


def _list(wanted: bool) -> None:
    if not wanted:
        return
    with starting():
        from bicore.cli.comparing import methods_and_needs
    for line in methods_and_needs():
        say(line)
    raise typer.Exit


def compare(
    source: SourceWord,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="M,M,…",
            help=f"How many points to select, several sizes; by default {DEFAULT_SIZES}.",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,…",
            help=f"Methods by name, or all; see --list. By default {', '.join(DEFAULT_METHODS)}.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(metavar="N", help="Repetitions, each with a pool and a judge of its own.")
    ] = 10,
    judge: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,…",
            help=f"The models trained on each selection, one or several: {', '.join(JUDGES)}.",
        ),
    ] = "ridge",
    score: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the table shows: accuracy (default) or balanced for classes, r2 (default) "
            "or mae for targets.",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(metavar="N", help="Training steps of a network judge.")
    ] = 1000,
    pool: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Points to choose from; by default at most 2000, of a stream all."
        ),
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Points tested on; by default a quarter, or the own test set."
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything",
            help=f"Train the judges on all of a pool of more than {MOST_WHOLE} points too.",
        ),
    ] = False,
    target: Target = None,
    labels: Labels = None,
    features: Features = None,
    drop: Drop = None,
    drop_missing_target: DropMissingTarget = False,
    decimal: Decimal = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    kernel: KernelName = "auto",
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl|DIR",
            help="Where rows are kept as they come; by default $BICORE_CACHE, or the user's cache.",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            "--plot",
            metavar="FILE.png",
            help="Draw accuracy against size, or along the stream.",
        ),
    ] = None,
    report: ReportPage = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Compare buffers of a stream instead: the rows in their order, judged along the "
            "way.",
        ),
    ] = False,
    buffers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,…",
            help=f"--stream: which, of {', '.join(BUFFERS)}, or all; by default "
            f"{', '.join(DEFAULT_BUFFERS)}.",
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(metavar="M", help=f"--stream: rows kept; by default {CAPACITY}."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(help="--stream: given (default), random, or sorted (by label)."),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"--stream: how often to judge; by default {POINTS}."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="B", help=f"--stream: rows an update; by default {BATCH}."),
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

    With --stream, buffers are fed the same rows in the same order, and a judge is trained on what
    each keeps, at the end and along the way.

    Example: bicore compare digits --stream --capacity 50 --order sorted --seeds 5
    """
    with starting():
        from bicore.cli import comparing as ours
        from bicore.cli.compare_run import read_judges
        from bicore.cli.compare_stream import read_streams
        from bicore.evaluate.metrics import measure_by
        from bicore.evaluate.pools import make_pools
        from bicore.runtime import Runtime
        from bicore.selectors.names import as_kernel
        from bicore.sources.opening import open_source, open_test
    check_output(picture, force, (".png", ".pdf", ".svg"), "--picture")
    check_output(report, force, (".html", ".htm"), "--report")
    own = {
        "buffers": buffers,
        "capacity": capacity,
        "order": order,
        "points": points,
        "batch": batch,
    }
    asked = read_streams(stream, own, {"sizes": sizes, "methods": methods}, kernel)
    counts = ours.sizes(sizes or DEFAULT_SIZES)
    named = None if methods is None else ours.methods(methods)
    judges = read_judges(judge, steps)
    if seeds < 1:
        raise InputError(f"--seeds {seeds} is below 1; give the number of repetitions.")
    if steps < 1:
        raise InputError(f"--steps {steps} is below 1; give the number of training steps.")
    as_kernel(kernel)  # an unknown name is refused before anything is read
    runtime = Runtime(device, memory=memory, threads=threads)
    opened = watched(open_source, quiet)(
        source,
        target=target,
        labels=labels,
        folder=data,
        scale=scale,
        limit=limit,
        later=True,
        memory=memory,
        features=features,
        drop=drop,
        drop_missing_target=drop_missing_target,
        decimal=decimal,
    )
    most = ours.MOST_POOL if asked is None else len(opened.data)
    pools = make_pools(opened, open_test(source, data, scale), task, pool, most, test)
    measure = measure_by(score, pools.classification)
    for one in judges:
        one.check(tuple(opened.data.x.shape[1:]), pools.outputs)
    job = ours.Job(pools, judges, steps, kernel, seeds, runtime, everything, records)
    shown = ours.Shown(measure, picture, as_json, quiet, report)
    if asked is None:
        ours.compare_selections(job, counts, named, task, shown)
    else:
        ours.compare_streams(job, asked, shown)
