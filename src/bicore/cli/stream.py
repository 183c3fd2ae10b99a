"""``bicore stream``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
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
    read_regulariser,
)
from bicore.cli.progress import bar
from bicore.coreset import Coreset, Provenance
from bicore.data import Dataset
from bicore.errors import InputError, unknown_name
from bicore.memory.merge_reduce import MergeReduce
from bicore.memory.store import StateFolder
from bicore.runtime import Clock, Context, Runtime, Step
from bicore.selectors.base import Selector, labels_of
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.registry import METHODS, as_selector
from bicore.sources.base import Source
from bicore.sources.opening import open_source

#: The digest of no rows.
NOTHING = ""
#: How many classes a report lists.
MOST_CLASSES = 20


def stream(
    source: SourceWord,
    capacity: Annotated[int, typer.Option(metavar="M", help="The most rows kept.")],
    state: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the state; a run goes on from what is there."),
    ],
    slots: Annotated[int, typer.Option(metavar="S", help="Slots of the merge-reduce buffer.")] = 10,
    batch: Annotated[int, typer.Option(metavar="B", help="Rows a batch.")] = 125,
    every: Annotated[int, typer.Option(metavar="K", help="Save the state every K batches.")] = 10,
    target: Target = None,
    labels: Labels = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="How rows are chosen; any method without a network.")
    ] = "bilevel",
    kernel: KernelName = "auto",
    loss: Annotated[str, typer.Option(help="squared or cross-entropy.")] = "squared",
    inner_reg: Annotated[
        str, typer.Option(metavar="REG", help="auto, a number, or per-point:NUMBER.")
    ] = "auto",
    weights: Annotated[str, typer.Option(help="equal or learnt, inside a slot.")] = "equal",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Write what is kept as a coreset of the source."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the selections.")] = 0,
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

    Example: bicore stream digits --capacity 100 --slots 10 --batch 125 --state digits-stream
    """
    check_output(out, force, (".npz",), "--out")
    for name, value in (("--batch", batch), ("--every", every)):
        if value < 1:
            raise InputError(f"{name} {value} is below 1; give a whole number.")
    selector = _selector(method, kernel, loss, read_regulariser(inner_reg), weights)
    fresh = MergeReduce(selector, capacity, slots, weights, seed)
    context = Context(runtime=Runtime(device, memory=memory, threads=threads, progress=False))
    opened = open_source(
        source, target=target, labels=labels, folder=data, scale=scale, limit=limit
    )
    with StateFolder(state) as store:
        buffer = store.load(lambda path: MergeReduce.load(path, selector)) or fresh
        _check(buffer, fresh, opened, batch, state)
        for note in store.notes:
            print(f"bicore: {note}: the state before it is used.", file=sys.stderr)
        if store.notes:
            store.set_aside(buffer.position)
        if not quiet:
            _say(opened, buffer)
        clock = Clock()
        stopped = _consume(buffer, opened, batch, every, store, context, quiet or as_json)
        _finish(buffer, opened, None if stopped else out, as_json, state, clock.seconds)
    if stopped:
        print(
            f"bicore: interrupted after {buffer.position} rows; the same command goes on from "
            "there.",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED)


def _selector(method: str, kernel: str, loss: str, regulariser: Any, weights: str) -> Selector:
    if method not in METHODS or as_selector(method).needs_model:
        raise unknown_name(
            "method", method, [name for name in METHODS if not as_selector(name).needs_model]
        )
    if METHODS[method][0] is not BilevelSelector:
        return as_selector(method)
    options = {"inner_reg": regulariser}
    if kernel != "auto":  # else what the method has, or leaves open
        options["kernel"] = kernel
    if loss != "squared":
        options["loss"] = loss
    if weights == "learnt":
        options["weights"] = "final"
    return as_selector(method, **options)


def _check(
    buffer: MergeReduce, fresh: MergeReduce, source: Source, batch: int, state: Path
) -> None:
    """The state was made by this very configuration, from this very source."""
    changed = fresh.unlike(buffer)
    if changed:
        raise InputError(
            f"{state} holds a stream with another {', '.join(changed)}; use the same options, or "
            "another --state folder."
        )
    if buffer.position and buffer.mark.get("batch") != batch:
        raise InputError(
            f"{state} holds a stream of another batch size, {buffer.mark.get('batch')}; use it, or "
            "another folder."
        )
    trail = _trail(NOTHING, source.data[: buffer.position])
    if buffer.position > len(source.data) or buffer.mark.get("rows", NOTHING) != trail:
        raise InputError(
            f"{state} holds a stream of another source: the first {buffer.position} rows differ; "
            "use the same, or another --state folder (a source may grow at its end, if it is read "
            "with --scale none)."
        )
    buffer.mark = {"batch": batch, "rows": trail}


def _trail(before: str, rows: Dataset) -> str:
    """A digest of all rows so far, from the digest of those before.

    It goes a row at a time, so that batches leave no trace in it.
    """
    labels = np.zeros(len(rows)) if rows.y is None else rows.y
    for point, label in zip(np.ascontiguousarray(rows.x), labels, strict=True):
        before = hashlib.sha256(before.encode() + point.tobytes() + str(label).encode()).hexdigest()
    return before


def _say(source: Source, buffer: MergeReduce) -> None:
    print(f"{source.name}: a stream of {len(source.data)} rows", file=sys.stderr)
    for note in source.notes:
        print(f"  {note}", file=sys.stderr)
    if buffer.position:
        print(f"  going on after {buffer.position} rows", file=sys.stderr)


def _consume(
    buffer: MergeReduce,
    source: Source,
    batch: int,
    every: int,
    store: StateFolder,
    context: Context,
    silent: bool,
) -> bool:
    """Feed the rest of the source; whether it was interrupted.

    What is saved is always the state after a whole batch.
    """
    rows = len(source.data)
    clock = Clock()
    unsaved = 0
    try:
        with bar("streaming", silent) as progress:
            for start in range(buffer.position, rows, batch):
                _feed(buffer, source.data[start : start + batch], context)
                unsaved += 1
                if unsaved == every:
                    store.save(buffer)
                    unsaved = 0
                if callable(progress):
                    progress(Step(buffer.position, rows, float("nan"), clock.seconds))
    except KeyboardInterrupt:
        # it may have come between two lines: the mark is made anew for the rows that count
        trail = _trail(NOTHING, source.data[: buffer.position])
        buffer.mark = {"batch": batch, "rows": trail}
        store.save(buffer)
        return True
    if unsaved or not store.files():
        store.save(buffer)
    return False


def _feed(buffer: MergeReduce, rows: Dataset, context: Context) -> None:
    """One batch, and the mark of the rows seen with it."""
    trail = _trail(buffer.mark["rows"], rows)
    buffer.update(rows.x, rows.y, context=context)
    buffer.mark = {**buffer.mark, "rows": trail}


def _finish(
    buffer: MergeReduce,
    source: Source,
    out: Path | None,
    as_json: bool,
    state: Path,
    seconds: float,
) -> None:
    if not len(buffer):
        return
    kept = buffer.snapshot()
    counts = _class_counts(kept, buffer.selector)
    if out is not None:
        _as_coreset(buffer, kept, source.data, seconds).save(out)
    if as_json:
        print(json.dumps(_answer(buffer, kept, len(source.data), counts, state, seconds)))
        return
    print(
        f"{len(kept)} of {buffer.position} rows kept, slots stand for {buffer.levels} chunks, "
        f"{seconds:.2f} s"
    )
    if counts:
        listed = sorted(counts.items())[:MOST_CLASSES]
        print("by class: " + ", ".join(f"{label}: {count}" for label, count in listed))
    print(f"state: {state}")
    if out is not None:
        print(f"written: {out}")


def _class_counts(kept: Dataset, selector: Selector) -> Counter[str]:
    """How many rows of each class are kept; empty where y holds no classes."""
    if kept.y is None or not labels_of(kept, selector):
        return Counter()
    return Counter(str(label) for label in kept.y.ravel().tolist())


def _as_coreset(buffer: MergeReduce, kept: Dataset, whole: Dataset, seconds: float) -> Coreset:
    """What is kept as a coreset of the source, whose rows are the positions in the stream."""
    provenance = Provenance(
        method=buffer.name,
        rows=len(whole),
        seed=buffer.seed,
        seconds=seconds,
        fingerprint=whole.fingerprint(),
    )
    return Coreset(
        kept.ids, kept.weights, kept.ids, provenance=provenance, details={"weights": "learnt"}
    )


def _answer(
    buffer: MergeReduce,
    kept: Dataset,
    rows: int,
    counts: Counter[str],
    state: Path,
    seconds: float,
) -> dict[str, Any]:
    return {
        "position": buffer.position,
        "rows": rows,
        "kept": len(kept),
        "capacity": buffer.capacity,
        "levels": buffer.levels,
        "classes": dict(counts),
        "ids": kept.ids.tolist(),
        "weights": kept.weights.tolist(),
        "state": str(state),
        "seconds": seconds,
        "version": __version__,
    }
