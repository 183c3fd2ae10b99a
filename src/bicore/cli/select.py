"""``bicore select``."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bicore._version import __version__
from bicore.cli.options import (
    Device,
    Folder,
    Force,
    Labels,
    Limit,
    Memory,
    Precision,
    Quiet,
    Scale,
    SourceWord,
    Target,
    Threads,
    check_output,
    read_regulariser,
    read_size,
)
from bicore.cli.progress import bar
from bicore.coreset import Coreset
from bicore.errors import InputError, unknown_name
from bicore.kernels.base import Kernel, Precomputed
from bicore.kernels.classical import Nystrom
from bicore.report.pictures import draw
from bicore.runtime import Context, Runtime, human_bytes
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.names import as_kernel
from bicore.selectors.reconstruction import Reconstruction
from bicore.selectors.registry import METHODS, as_selector
from bicore.sources.base import Source
from bicore.sources.opening import open_source
from bicore.sources.tables import write_rows

#: Methods that need no network: the command has none to show them.
CHOICES = tuple(name for name in METHODS if not as_selector(name).needs_model)
#: The most landmarks of the Nyström features that stand in for a Gram matrix beyond the memory
#: limit.
LANDMARKS = 1000
INTERRUPTED = 130


def select(
    source: SourceWord,
    size: Annotated[
        str,
        typer.Option(
            metavar="M",
            help="How many points: a count, a fraction (0.05), a percentage (5%) or auto.",
        ),
    ],
    target: Target = None,
    labels: Labels = None,
    data_weights: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column (or npz array) of row weights.")
    ] = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    task: Annotated[str | None, typer.Option(help="auto, classification or regression.")] = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Any without a network; see bicore compare --list.")
    ] = "bilevel",
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="ntk (the default), nngp, cntk, resnet18, rbf, laplace, linear, polynomial.",
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="squared (the default), cross-entropy or logistic.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="binary (the default), learnt or final.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="gradient (the default), gain, first-order or reducible.")
    ] = None,
    inner_reg: Annotated[
        str | None, typer.Option(metavar="REG", help="auto, a number, or per-point:NUMBER.")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(metavar="N", help="Score N random points a step instead of all.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="greedy (the default), batches, exchange, elimination or simplex."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="With --size auto: how far above the full model's loss (0.02)."
        ),
    ] = None,
    initial: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="A coreset of the same data to continue."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Never replace a kernel by Nyström features, however slow."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=".npz, or .csv/.parquet with the chosen rows."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw what was picked.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of whatever is drawn at random.")] = 0,
    device: Device = "auto",
    dtype: Precision = "float64",
    memory: Memory = None,
    threads: Threads = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Return what is selected after S seconds.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Choose the points that train a model almost as well as all of them.

    Example: bicore select table.csv --target label --size 5% --out picks.csv
    """
    if method in METHODS and method not in CHOICES:
        raise InputError(
            f"--method {method} looks at a trained network, and the command has none; call "
            f"bicore.select(…, method={method!r}, "
            "model=…) from Python, or see it at work in bicore compare."
        )
    if method not in METHODS:
        raise unknown_name("method", method, CHOICES)
    named: dict[str, Any] = {
        "inner_reg": inner_reg,
        "weights": weights,
        "rule": rule,
        "loss": loss,
        "candidates": candidates,
    }
    named |= {"strategy": strategy, "tolerance": tolerance}
    named |= {"kernel": kernel, "task": task, "exact": exact or None}
    given = {name: value for name, value in named.items() if value is not None}
    _check_options(method, given)
    check_output(out, force, (".npz", ".csv", ".parquet"), "--out")
    check_output(picture, force, (".png", ".pdf", ".svg"), "--picture")
    count = read_size(size)
    regulariser = read_regulariser(inner_reg or "auto")
    runtime = Runtime(device, dtype, memory, threads, None, max_seconds)
    opened = open_source(
        source,
        target=target,
        labels=labels,
        weight=data_weights,
        folder=data,
        scale=scale,
        limit=limit,
    )
    if out is not None and out.suffix.lower() != ".npz" and opened.table is None:
        raise InputError(f"--out {out}: {opened.name} has no rows of a table to write; use .npz.")
    chosen_kernel, note = (
        _affordable(as_kernel(kernel or "ntk"), opened, runtime, exact)
        if _ours(method)
        else (None, None)
    )
    notes = [*opened.notes, *([note] if note else [])]
    if not quiet:
        _say(opened, notes)
    options = {name: value for name, value in given.items() if name != "exact"} | {
        "kernel": chosen_kernel,
        "inner_reg": regulariser,
    }
    selector = as_selector(method, **(options if _ours(method) else {}))
    begun = _initial(initial, opened)
    with bar("selecting", quiet or as_json) as progress:
        context = Context(runtime=replace(runtime, progress=progress))
        try:
            coreset = selector.select(opened.data, count, initial=begun, rng=seed, context=context)
        except KeyboardInterrupt:
            print(
                "bicore: interrupted before the first point; there is nothing to keep.",
                file=sys.stderr,
            )
            raise typer.Exit(INTERRUPTED) from None
    coreset = replace(
        coreset,
        info={
            **coreset.info,
            "source": opened.name,
            "scale": opened.scale,
            "notes": notes,
            "command": _command(),
        },
    )
    _finish(opened, coreset, out, picture, as_json, quiet)


def _ours(method: str) -> bool:
    """Whether it has a kernel and a regulariser to be told of."""
    return METHODS[method][0] in (BilevelSelector, Reconstruction)


def _check_options(method: str, given: dict[str, Any]) -> None:
    """Options that mean nothing to the method, or say something else than its name, are mistakes."""
    build, fixed = METHODS[method]
    known = {"exact", *getattr(build, "__dataclass_fields__", {})}
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        if not _ours(method) or name not in known:
            raise InputError(f"{option} means nothing for --method {method}; leave it out.")
        if fixed.get(name, value) != value:
            raise InputError(
                f"{option} contradicts --method {method} ({name} {fixed[name]}); leave one of them "
                "out."
            )


def _affordable(
    kernel: Kernel, source: Source, runtime: Runtime, exact: bool
) -> tuple[Kernel, str | None]:
    """The kernel itself, or Nyström features of it where its Gram matrix is beyond the memory
    limit."""
    n = len(source.data)
    stored = n * n * runtime.itemsize
    limit = runtime.memory_bytes()
    if (
        exact
        or stored <= limit
        or isinstance(kernel, Precomputed)
        or kernel.name.startswith("linear")
    ):
        return kernel, None
    landmarks = max(1, min(LANDMARKS, n // 4, limit // (4 * n * runtime.itemsize)))
    words = (
        f"kernel: its matrix would take {human_bytes(stored)} and {human_bytes(limit)} are "
        f"allowed, so {landmarks} Nyström "
        "landmarks stand in for it (--exact computes it block by block instead)"
    )
    return Nystrom(kernel, landmarks), words


def _initial(path: Path | None, source: Source) -> Coreset | tuple[int, ...]:
    if path is None:
        return ()
    if not path.exists():
        raise InputError(f"--initial {path} does not exist; give a file written by --out.")
    begun = Coreset.load(path)
    known = begun.info.get("fingerprint")
    if known is not None and known != source.data.fingerprint():
        raise InputError(
            f"--initial {path} was selected from other data, or under another scaling, than "
            f"{source.name}; use the same source."
        )
    return begun


def _say(source: Source, notes: list[str]) -> None:
    n = len(source.data)
    shape = "×".join(map(str, source.data.x.shape[1:]))
    print(f"{source.name}: {n} points of {shape} features", file=sys.stderr)
    for note in notes:
        print(f"  {note}", file=sys.stderr)


def _command() -> str:
    return shlex.join(["bicore", *sys.argv[1:]])


def _finish(
    source: Source,
    coreset: Coreset,
    out: Path | None,
    picture: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write files first, words after; an interrupted run keeps its prefix even when no file was
    asked for."""
    stopped = coreset.status.startswith("interrupted")
    kept = out if out is not None or not stopped else _free(Path("bicore-partial.npz"))
    if kept is not None:
        if kept.suffix.lower() == ".npz":
            coreset.save(kept)
        else:
            write_rows(kept, source.table, coreset.indices, coreset.weights)
    if picture is not None:
        draw(source, coreset, picture)
    if as_json:
        print(json.dumps(_answer(coreset)))
    elif not quiet or out is None:
        _report(source, coreset, [path for path in (kept, picture) if path is not None])
    if stopped and kept is not None:
        again = (
            f"{_command()} --initial {kept}"
            if kept.suffix.lower() == ".npz"
            else "start anew (.npz files can be continued)"
        )
        print(
            f"bicore: {coreset.status}; kept in {kept}. To go on: {again} (with another --out, or "
            "--force)",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)


def _free(path: Path) -> Path:
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"bicore-partial-{number}.npz")
    return path


def _answer(coreset: Coreset) -> dict[str, Any]:
    info = coreset.info
    return {
        "indices": coreset.indices.tolist(),
        "weights": coreset.weights.tolist(),
        "objective": coreset.objective,
        "seconds": info["seconds"],
        "size": len(coreset),
        "n": info["n"],
        "method": info["method"],
        "kernel": info.get("kernel"),
        "loss": info.get("loss"),
        "inner_reg": info.get("inner_reg"),
        "seed": info["seed"],
        "classes": info.get("classes"),
        "status": coreset.status,
        "version": __version__,
    }


def _report(source: Source, coreset: Coreset, written: list[Path]) -> None:
    info = coreset.info
    how = (
        f" by {info['loss']}, {info['kernel']}, inner_reg {info['inner_reg']:.3g}"
        if "loss" in info
        else ""
    )
    how += " (auto)" if info.get("inner_reg_auto") else ""
    kind = f"{info['method']}, {info['task']}" if "task" in info else info["method"]
    value = f", objective {coreset.objective:.5g}" if coreset.objective is not None else ""
    print(f"{len(coreset)} of {info['n']} points ({kind}){how}{value}, {info['seconds']:.2f} s")
    if coreset.status != "complete":
        print(f"status: {coreset.status}")
    if "auto_size" in info:
        told = info["auto_size"]
        print(
            f"size: from here on within {told['tolerance']:.3g} of the full model's loss on "
            f"{told['held_out']} held-out points "
            f"({told['loss']:.4g}, full {told['full_loss']:.4g}, none {told['empty_loss']:.4g})"
        )
    if "exchanges" in info:
        print(
            f"exchanges: {info['exchanges']}, which lowered the objective by "
            f"{info['exchange_gain']:.4g}"
        )
    if info.get("classes") and source.data.y is not None:
        counts = Counter(str(label) for label in source.data.y[coreset.indices].ravel().tolist())
        shown = [f"{label}: {counts.get(str(label), 0)}" for label in info["classes"][:20]]
        print(f"by class: {', '.join(shown)}{' …' if len(info['classes']) > 20 else ''}")
    first = ", ".join(map(str, coreset.indices[:15].tolist()))
    print(f"rows, best first: {first}{' …' if len(coreset) > 15 else ''}")
    for path in written:
        print(f"written: {path}")
