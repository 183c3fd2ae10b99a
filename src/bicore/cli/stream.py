"""``bicore stream``: what may be asked for, and the order of the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bicore.cli.names import BUFFERS
from bicore.cli.options import (
    Decimal,
    Device,
    Drop,
    DropMissingTarget,
    Folder,
    Force,
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
from bicore.cli.progress import watched
from bicore.cli.starting import EXIT_INTERRUPTED, starting
from bicore.cli.telling import tell
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.sources.flow import Flow


def stream(
    source: SourceWord,
    capacity: Annotated[int, typer.Option(metavar="M", help="The most rows kept.")],
    state: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the state; a run goes on from what is there."),
    ],
    buffer: Annotated[
        str, typer.Option(metavar="NAME", help=f"What keeps rows: {', '.join(BUFFERS)}.")
    ] = "moments",
    batch: Annotated[int, typer.Option(metavar="B", help="Rows a batch.")] = 125,
    every: Annotated[int, typer.Option(metavar="K", help="Save the state every K batches.")] = 10,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Standard input brings new rows only; without it those of the state come again "
            "and are passed over.",
        ),
    ] = False,
    target: Target = None,
    labels: Labels = None,
    drop: Drop = None,
    drop_missing_target: DropMissingTarget = False,
    decimal: Decimal = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="moments: what rows are compared in, with relu:512 in so many features: auto "
            "(default), rows, relu, convolutions, pooled, fourier, laplace, nystrom.",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="moments: auto (default), elimination, gradient, gain or exchange."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="PRIOR",
            help="moments: how much a class counts: stream (default), equal, or LABEL=SHARE,…",
        ),
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(metavar="ROWS", help="moments: after so many rows a row counts half."),
    ] = None,
    inner_reg: Annotated[
        str | None,
        typer.Option(
            metavar="REG",
            help="moments: auto (default), or a share of the mean squared length of features; "
            "merge-reduce: auto (default), a number, or per-point:NUMBER.",
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(metavar="S", help="merge-reduce: slots; by default 10.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="merge-reduce: how rows are chosen; bilevel (default) or any method without a "
            "network.",
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="merge-reduce: the kernel; by default what serves memories."
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="merge-reduce: squared (default) or cross-entropy.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="merge-reduce: equal (default) or learnt, inside a slot.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Write what is kept as a coreset of the source."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of whatever is drawn.")] = 0,
    device: Device = "auto",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Consume a source in order into a fixed memory that survives crashes; every row counts once.

    Standard input (-) is read as it comes, CSV with a header or a JSON object a line, and may
    never end.

    Example: bicore stream digits --capacity 100 --state digits-stream
    """
    with starting():
        from bicore.cli import streaming as ours
        from bicore.cli.buffers import make_buffer
        from bicore.memory.buffer import StateFolder
        from bicore.memory.registry import load_state
        from bicore.runtime import Context, Runtime
        from bicore.sources.flow import PipedFlow, WholeFlow
        from bicore.sources.opening import open_source
    check_output(out, force, (".npz",), "--out")
    for word, value in (("--batch", batch), ("--every", every)):
        if value < 1:
            raise InputError(f"{word} {value} is below 1; give a whole number.")
    given = {
        "features": features,
        "rule": rule,
        "prior": prior,
        "half_life": half_life,
        "inner_reg": inner_reg,
        "slots": slots,
        "method": method,
        "kernel": kernel,
        "loss": loss,
        "weights": weights,
    }
    fresh = make_buffer(buffer, capacity, seed, given)
    context = Context(runtime=Runtime(device, memory=memory, threads=threads, progress=False))
    if append and source != "-":
        raise InputError(f"--append is for standard input, and the source is {source}; leave it.")
    columns: dict[str, Any] = {
        "drop": drop,
        "drop_missing_target": drop_missing_target,
        "decimal": decimal,
    }
    if source == "-":
        ours.refuse_for_pipes(labels, data)
        flow: Flow = PipedFlow(sys.stdin.buffer, target, scale, limit, batch, **columns)
    else:
        whole = watched(open_source, quiet)(
            source,
            target=target,
            labels=labels,
            folder=data,
            scale=scale,
            limit=limit,
            memory=memory,
            **columns,
        )
        flow = WholeFlow(whole)
    with StateFolder(state) as store:
        held = store.load(lambda path: load_state(path, buffer, fresh)) or fresh
        run = ours.Run(buffer, held, flow, batch, store, context)
        run.recognise(fresh, append)
        ours.tell_of_damage(run)
        stopped = run.consume(every, quiet)
        ours.finish(run, None if stopped else out, force, as_json, quiet)
    if stopped:
        tell(
            f"bicore: interrupted after {held.position} rows; the same command goes on from there."
        )
        raise typer.Exit(EXIT_INTERRUPTED)
