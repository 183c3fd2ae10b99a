"""``bicore stream``: a buffer fed in order, whose state on disk survives crashes."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bicore._version import __version__
from bicore.cli.options import (
    Files,
    Limits,
    Table,
    check_method,
    option,
    read_regulariser,
    read_shares,
    switch,
)
from bicore.cli.predict import check_head, load_memory, make_head
from bicore.cli.terminal import interrupt, say, say_json, starting, tell
from bicore.defaults import BUFFERS
from bicore.errors import BicoreError, InputError, check_integer, unknown_name

if TYPE_CHECKING:
    from bicore.coreset import Coreset
    from bicore.data import Dataset
    from bicore.runtime.clock import Clock
    from bicore.runtime.context import Context
    from bicore.sources.flow import Flow
    from bicore.streaming.buffer import Buffer, StateFolder

#: From this share of recent rows on it is worth a note.
MOSTLY = 0.6
#: The digest of no rows.
NOTHING = ""
#: The reasons of a feature map that was chosen automatically.
KINDS = {"image": "images", "embedding": "an embedding", "pixels": "pixels", "table": "a table"}


@dataclass(frozen=True)
class Memory:
    """The memory that keeps rows."""

    panel: ClassVar[str] = "Memory"
    capacity: int = option("Maximum number of rows to keep.", "M", default=MISSING)
    state: Path = option(
        "Folder of the state, from which a later run continues.", "DIR", default=MISSING
    )
    buffer: str = option(f"Kind of memory: {', '.join(BUFFERS)}.", "NAME", default="moments")
    batch: int = option("Rows per update.", "B", default=125)
    every: int = option("Save the state every K batches.", "K", default=10)
    append: bool = switch(
        "Standard input has only new rows (default: it starts again, and known rows are skipped).",
        "--append",
    )
    random_state: int = option(
        "Seed for all random draws.", default=0, name="--random-state --seed"
    )


@dataclass(frozen=True)
class BufferOptions:
    """The options of single buffers."""

    panel: ClassVar[str] = "Options of a memory"
    feature_map: str | None = option(
        "moments: feature map, or the --state folder of a stream to use its fitted one; relu:512 "
        "has 512 features: auto (default), rows, relu, convolutions, "
        "deep-convolutions, patches, pooled, fourier, laplace, nystrom.",
        "NAME",
        name="--feature-map",
    )
    strategy: str | None = option(
        "moments: auto (default), elimination, gradient, gain or exchange."
    )
    prior: str | None = option(
        "moments: weight of classes: data (default), equal, or LABEL=SHARE,…", "PRIOR"
    )
    half_life: float | None = option("moments: half-life of a row's weight, in rows.", "ROWS")
    inner_reg: str | None = option(
        "auto (default), a number, or relative:SHARE of the mean squared norm of features; "
        "merge-reduce: also per-point:NUMBER.",
        "REG",
    )
    slots: int | None = option("merge-reduce: number of slots (default: 10).", "S")
    method: str | None = option("merge-reduce: bilevel (default), or another method.", "NAME")
    kernel: str | None = option("merge-reduce: the kernel (default: auto).", "NAME")
    loss: str | None = option("merge-reduce: squared (default) or cross-entropy.")
    weighting: str | None = option("merge-reduce: weights in a slot, uniform (default) or learned.")


@dataclass(frozen=True)
class Answer(Files):
    """How the kept rows are printed and written."""

    out: Path | None = option("Write the kept rows as a coreset.", "FILE.npz")
    head: Path | None = option(
        "moments: write the head, a ridge regression on all rows, for bicore predict.", "FILE.npz"
    )
    merge: str | None = option(
        "Comma-separated --state folders of other streams with the same features, to add to the "
        "head.",
        "DIRS",
    )


def stream(
    data: Table, memory: Memory, options: BufferOptions, limits: Limits, output: Answer
) -> None:
    """Keep a memory of fixed size of a stream; an interrupted run can be continued.

    Standard input (-) is CSV with a header, or one JSON object per line. It is read row by row
    and may be endless.

    Example: bicore stream digits --capacity 100 --state digits-stream
    """
    with starting():
        from bicore.runtime.clock import Clock
        from bicore.runtime.context import Context
        from bicore.streaming.buffer import StateFolder
        from bicore.streaming.registry import load_state
    output.check(out=(".npz",), head=(".npz",))
    check_integer("--batch", memory.batch)
    check_integer("--every", memory.every)
    fresh = make_buffer(memory.buffer, memory.capacity, memory.random_state, **vars(options))
    context = Context(runtime=limits.runtime(progress=False))
    flow = _open(data, memory, limits)
    check_head(output.head, output.merge, memory.buffer, flow.scale)
    with StateFolder(memory.state) as store:
        held = store.load(lambda path: load_state(path, memory.buffer, fresh)) or fresh
        run = Run(memory.buffer, held, flow, memory.batch, store, context, Clock())
        run.check_state(fresh, memory.append)
        run.report_damage()
        stopped = run.consume(memory.every, output.quiet)
        if len(held):
            _finish(run, stopped, output)
    if stopped:
        interrupt(f" after {held.position} rows; the same command continues.")


def _open(data: Table, memory: Memory, limits: Limits) -> Flow:
    """The rows in order."""
    from bicore.sources.flow import PipedFlow, WholeFlow

    if data.source != "-":
        if memory.append:
            raise InputError(f"--append needs standard input; got {data.source}. Omit it.")
        return WholeFlow(data.open(memory=limits.memory))
    options = data.options()
    for name in ("labels", "data"):
        if options.pop(name) is not None:
            raise InputError(f"--{name} does not apply to standard input; omit it.")
    return PipedFlow(sys.stdin.buffer, batch=memory.batch, **options)


def check_buffer(name: str) -> None:
    """Refuse a buffer that is unknown, or that needs a model."""
    from bicore.streaming.registry import BUFFERS as KNOWN

    if name in KNOWN and name not in BUFFERS:
        raise InputError(
            f"--buffer {name} needs a network, and the command has none; use it from Python, "
            f"or choose one of {', '.join(BUFFERS)}."
        )
    if name not in BUFFERS:
        raise unknown_name("buffer", name, BUFFERS)


def make_buffer(name: str, capacity: int, seed: int, **given: Any) -> Buffer:
    """A buffer by its name with the options given; those that are None were not."""
    from bicore.methods.registry import build_selector
    from bicore.moments.features.registry import FEATURES
    from bicore.streaming.registry import build_buffer

    check_buffer(name)
    options = {option: value for option, value in given.items() if value is not None}
    features = options.get("feature_map", "auto")
    # the name of a map wins over a folder with the same name
    named = features.partition(":")[0] in FEATURES
    if name == "moments" and not named and Path(features).is_dir():
        options["feature_map"] = load_memory(Path(features)).feature_map_
    if "inner_reg" in options:
        options["inner_reg"] = read_regulariser(options["inner_reg"])
    if "prior" in options:
        options["prior"] = read_shares("--prior", options["prior"], float)
    if name == "merge-reduce":
        method = options.pop("method", "bilevel")
        check_method(method)
        of_method = ("kernel", "loss", "inner_reg")
        own = {option: options.pop(option) for option in of_method if option in options}
        if options.get("weighting") == "learned":
            own["weighting"] = "final"
        options["selector"] = build_selector(method, **own)
    return build_buffer(name, capacity, seed, **options)


def _describe(name: str, buffer: Any) -> tuple[str, dict[str, Any]]:
    """The state of a buffer in words and for JSON; empty if there is nothing to say."""
    if name == "merge-reduce":
        return f"slots represent {buffer.levels} batches", {"levels": buffer.levels}
    if name != "moments" or buffer.feature_map_ is None:
        return "", {}
    found = inner = buffer.feature_map_
    names = [type(found).__name__]
    while (inner := getattr(inner, "map", None)) is not None:
        names.append(type(inner).__name__)
    features = " of ".join(names)
    why = f"the first rows look like {KINDS[found.reason]}" if found.reason else "as requested"
    words = f"features: {features}, {found.width} numbers a row ({why})"
    return words, {"features": features, "reason": found.reason, "width": found.width}


@dataclass
class Run:
    """One call: a buffer, the rows it is fed, and the folder of its state."""

    name: str
    buffer: Buffer
    flow: Flow
    batch: int
    store: StateFolder
    context: Context
    clock: Clock
    #: Rows fed by this call, and the seconds of their updates.
    fed: int = 0
    update_seconds: float = 0.0
    #: The mark of the rows being fed, and the position at which it holds.
    _coming: tuple[int, dict[str, Any]] = (-1, {})
    _told: set[str] = field(default_factory=set)

    @property
    def rate(self) -> float | None:
        """Rows per second of updates; None before the first."""
        return self.fed / self.update_seconds if self.update_seconds > 0 else None

    def check_state(self, fresh: Buffer, append: bool) -> None:
        """Refuse a state of another configuration or another source, and skip its rows."""
        mark, place = self.buffer.mark, self.store.path
        changed = fresh.list_differences(self.buffer)
        if self.buffer.position and mark.get("batch") != self.batch:
            changed.append(f"batch size ({mark.get('batch')})")
        if changed:
            raise InputError(
                f"{place} holds a stream with another {', '.join(changed)}; use the same options, "
                "or another --state folder."
            )
        trail = NOTHING
        if self.buffer.position:
            self.flow.resume(mark.get("table", {}), self.buffer.position, append)
            trail = mark.get("rows", NOTHING) if append else self._skip_rows()
            if trail != mark.get("rows", NOTHING):
                raise InputError(
                    f"{place} holds another stream: the first {self.buffer.position} "
                    "rows differ; use the same, or another --state folder (a source may grow at "
                    "its end, if it is read with --scale none or comes by standard input)."
                )
        self.buffer.mark = self._mark(trail)

    def report_damage(self) -> None:
        """Name damaged state files, and move them out of the way."""
        for note in self.store.notes:
            tell(f"bicore: {note}; the previous state is used.")
        if self.store.notes:
            self.store.set_aside(self.buffer.position)

    def _skip_rows(self) -> str:
        """The digest of the rows that count already, read from the source again."""
        trail, left = NOTHING, self.buffer.position
        while left:
            rows = self.flow.take(min(left, self.batch))
            if rows is None:
                return "the source ended before"
            trail = _extend_digest(trail, rows)
            left -= len(rows)
        return trail

    def _mark(self, trail: str) -> dict[str, Any]:
        """Stored with the state: how to recognise rows, and how to read further ones."""
        table = self.flow.stored()
        return {"batch": self.batch, "rows": trail, **({"table": table} if table else {})}

    def consume(self, every: int, quiet: bool) -> bool:
        """Feed the rest of the source; whether it was interrupted.

        The saved state is always that after a whole batch.
        """
        from bicore.runtime.clock import ProgressLine

        if not quiet:
            self._introduce()
        unsaved = 0
        try:
            with ProgressLine(not quiet, self.clock, self.flow.rows or 0, "streaming") as line:
                while (rows := self.flow.take(self.batch)) is not None:
                    self._feed(rows)
                    if not quiet:
                        self._announce()
                    unsaved += 1
                    if unsaved == every:
                        self.store.save(self.buffer)
                        unsaved = 0
                    line.update(self.buffer.position, words=self.speed())
        except BicoreError:
            if unsaved:  # rows of a pipe may never come again
                self.store.save(self.buffer)
            if self.buffer.position and not quiet:
                tell(
                    f"  {self.buffer.position} rows are counted and saved; run it again to continue"
                )
            raise
        except KeyboardInterrupt:
            position, mark = self._coming
            if self.buffer.position == position:  # between an update and its mark
                self.buffer.mark = mark
            self.store.save(self.buffer)
            return True
        if unsaved or not self.store.files():
            self.store.save(self.buffer)
        return False

    def _feed(self, rows: Dataset) -> None:
        """Feed one batch, and store the mark of the rows seen with it."""
        from bicore.runtime.clock import Clock

        mark = self._mark(_extend_digest(self.buffer.mark["rows"], rows))
        self._coming = (self.buffer.position + len(rows), mark)
        clock = Clock()
        self.buffer.update(rows.x, rows.y, runtime=self.context.runtime)
        self.buffer.mark = mark
        self.update_seconds += clock.seconds
        self.fed += len(rows)

    def _introduce(self) -> None:
        rows = "unknown length" if self.flow.rows is None else f"{self.flow.rows} rows"
        tell(f"{self.flow.name}: a stream of {rows}")
        if self.buffer.position:
            tell(f"  continuing after {self.buffer.position} rows")
            self._announce()

    def _announce(self) -> None:
        """Tell once how rows are read, and which features were chosen."""
        chosen = [] if self.name == "merge-reduce" else [_describe(self.name, self.buffer)[0]]
        for words in [*self.flow.notes, *filter(None, chosen)]:
            if words not in self._told:
                tell(f"  {words}")
                self._told.add(words)

    def speed(self) -> str:
        """Rows per second, in words."""
        return "" if self.rate is None else f"{self.rate:,.0f} rows/s"


def _extend_digest(before: str, rows: Dataset) -> str:
    """The digest of all rows so far; one row at a time, so that it does not depend on batches."""
    import numpy as np

    labels = np.zeros(len(rows)) if rows.y is None else rows.y
    for point, label in zip(np.ascontiguousarray(rows.x), labels, strict=True):
        before = hashlib.sha256(before.encode() + point.tobytes() + str(label).encode()).hexdigest()
    return before


def _finish(run: Run, stopped: bool, output: Answer) -> None:
    """Write the kept rows, then print them."""
    from bicore.cli.answer import Written, count_classes
    from bicore.data import read_targets

    kept, seconds = run.buffer.snapshot(), run.clock.seconds
    notes = (*run.flow.notes, *run.flow.later, *_explain_age(run, kept))
    coreset = _as_coreset(run, kept, notes, seconds)
    written = Written(coreset, output.force)
    written.write(None if stopped else output.out, coreset.save, holds=True)
    if output.head is not None and not stopped:
        head = make_head(run.buffer, output.merge)
        written.write(output.head, head.save)
    output.tell(*(f"  {note}" for note in notes[len(run.flow.notes) :]))
    labels: list[str] = []
    if kept.y is not None and read_targets(kept.y).classes is not None:
        labels = [str(label) for label in kept.y.ravel().tolist()]
    classes = sorted(set(labels))
    words, values = _describe(run.name, run.buffer)
    if output.json:
        say_json(
            {
                "buffer": run.name,
                "position": run.buffer.position,
                "rows": coreset.provenance.rows,
                "kept": len(coreset),
                "capacity": run.buffer.capacity,
                **values,
                "classes": {one: labels.count(one) for one in classes},
                "ids": coreset.indices.tolist(),
                "weights": coreset.weights.tolist(),
                "notes": list(notes),
                "state": str(run.store.path),
                "seconds": seconds,
                "update_seconds": run.update_seconds,
                "rows_per_second": run.rate,
                "version": __version__,
            }
        )
    elif not output.quiet or output.out is None:
        more = f", {words}" if words and run.name == "merge-reduce" else ""
        speed = f", {run.speed()} in update" if run.rate is not None else ""
        count = f"{len(kept)} of {run.buffer.position}"
        say(f"{count} rows kept by {run.name}{more}, {seconds:.2f} s{speed}")
        if classes:
            say(f"by class: {count_classes(labels, classes)}")
        say(f"state: {run.store.path}", *(f"written: {path}" for path in written.paths))
    written.finish(output.json)


def _explain_age(run: Run, kept: Dataset) -> tuple[str, ...]:
    """Explain why most rows that a memory of sums keeps are recent, if they are."""
    late = int((kept.ids >= run.buffer.position / 2).sum())
    if run.name != "moments" or late < MOSTLY * len(kept):
        return ()
    return (
        f"{late} of {len(kept)} rows kept are from the second half of the stream: a later row "
        "replaces an earlier one that is as good; nothing is lost, because all rows count in the "
        "sums that rows are chosen by",
    )


def _as_coreset(run: Run, kept: Dataset, notes: tuple[str, ...], seconds: float) -> Coreset:
    """The kept rows as a coreset of the source, by their positions in the stream."""
    from bicore.cli.answer import command
    from bicore.coreset import Coreset, Provenance

    provenance = Provenance(
        method=run.buffer.name,
        rows=run.flow.rows if run.flow.rows is not None else run.buffer.position,
        seed=run.buffer.random_state,
        seconds=seconds,
        fingerprint=run.flow.fingerprint(),
        notes=(*notes, f"To reproduce: {command()}"),
    )
    details = {"weights": "learned", "source": run.flow.name, "state": str(run.store.path)}
    return Coreset(kept.ids, kept.weights, kept.ids, provenance=provenance, details=details)
