"""``bicore stream`` and ``bicore predict``: a buffer of a stream, and the head of its rows."""

from __future__ import annotations

import hashlib
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bicore._version import __version__
from bicore.cli import options as cli
from bicore.cli.terminal import exit_on_interrupt, interrupt, print_answer, print_json, print_note
from bicore.defaults import BUFFERS
from bicore.errors import InputError, check_integer, check_name

if TYPE_CHECKING:
    from bicore.coreset import Coreset
    from bicore.data import Dataset
    from bicore.moments.heads import Head
    from bicore.runtime.clock import Clock
    from bicore.runtime.context import Runtime
    from bicore.sources.base import Source
    from bicore.streaming.buffer import Buffer, StateFolder

#: Minimum share of recent rows for a note.
MOSTLY_RECENT = 0.6
#: The digest of no rows.
NO_ROWS = ""
#: Reasons of an automatic choice of a feature map.
KINDS = {"image": "images", "embedding": "an embedding", "pixels": "pixels", "table": "a table"}


@dataclass(frozen=True)
class Memory:
    """The memory that keeps rows.

    Attributes
    ----------
    capacity
        Maximum number of rows to keep.
    state
        Folder of the state, from which a later run continues.
    buffer
        Kind of memory: {BUFFERS}.
    batch
        Rows per update.
    every
        Save the state every K batches.
    random_state
        Seed for all random draws.
    """

    panel: ClassVar[str] = "Memory"
    capacity: int = cli.option("M", default=MISSING)
    state: Path = cli.option("DIR", default=MISSING)
    buffer: str = cli.option("NAME", default="moments")
    batch: int = cli.option("B", default=125)
    every: int = cli.option("K", default=10)
    random_state: int = cli.option(default=0, name="--random-state --seed")


@dataclass(frozen=True)
class Options:
    """Options of single kinds of buffers.

    Attributes
    ----------
    feature_map
        moments: feature map: auto (default), rows, relu, convolutions,
        deep-convolutions, patches, pooled, fourier, laplace or nystrom, with a width as
        in relu:512; or the --state folder of another stream, to use its fitted map.
    strategy
        moments: search, auto (default), elimination, gradient, gain or exchange.
    prior
        moments: weight of classes: data (default), equal, or LABEL=SHARE,…
    half_life
        moments: half-life of a row's weight, in rows.
    inner_reg
        Regularisation ρ: auto (default), a number, or relative:SHARE of the mean
        squared norm of the features; merge-reduce: also per-point:NUMBER.
    slots
        merge-reduce: number of slots (default: 10); a batch fills a slot of
        capacity/slots rows.
    method
        merge-reduce: selection method (default: bilevel).
    kernel
        merge-reduce: kernel (default: auto).
    loss
        merge-reduce: loss, squared (default) or cross-entropy.
    weighting
        merge-reduce: weights in a slot, uniform (default) or learned.
    """

    panel: ClassVar[str] = "Memory options"
    feature_map: str | None = cli.option("NAME")
    strategy: str | None = None
    prior: str | None = cli.option("PRIOR")
    half_life: float | None = cli.option("ROWS")
    inner_reg: str | None = cli.option("REG")
    slots: int | None = cli.option("S")
    method: str | None = cli.option("NAME")
    kernel: str | None = cli.option("NAME")
    loss: str | None = None
    weighting: str | None = None


@dataclass(frozen=True)
class Answer(cli.Files):
    """How the kept rows are printed and written.

    Attributes
    ----------
    out
        Write the kept rows as a coreset.
    head
        moments: write the head, a ridge regression on all rows, for bicore predict.
    merge
        Comma-separated --state folders of other streams with the same features, to add
        to the head.
    """

    out: Path | None = cli.option("FILE.npz")
    head: Path | None = cli.option("FILE.npz")
    merge: str | None = cli.option("DIRS")


def stream(
    data: cli.Table, memory: Memory, options: Options, limits: cli.Limits, output: Answer
) -> None:
    """Keep a fixed number of rows of a stream.

    An interrupted run can be continued. Standard input (-) is read to its end, as one table.

    Example: bicore stream digits --capacity 100 --state digits-stream
    """
    with exit_on_interrupt():
        from bicore.runtime.clock import Clock
        from bicore.streaming.buffer import StateFolder
        from bicore.streaming.registry import load_state
    output.check(out=(".npz",), head=(".npz",))
    check_integer("--batch", memory.batch)
    check_integer("--every", memory.every)
    fresh = make_buffer(memory.buffer, memory.capacity, memory.random_state, **vars(options))
    source = data.open(memory=limits.memory)
    check_head(output.head, output.merge, memory.buffer, source.scale)
    runtime = limits.runtime(progress=False)
    with StateFolder(memory.state) as store:
        held = store.load(lambda path: load_state(path, memory.buffer, fresh)) or fresh
        run = StreamRun(memory.buffer, held, source, memory.batch, store, runtime, Clock())
        run.check_state(fresh)
        run.report_damage()
        stopped = run.consume(memory.every, output.quiet)
        if len(held):
            _finish(run, stopped, output)
    if stopped:
        interrupt(f" after {held.position} rows; the same command continues.")


def check_buffer(name: str) -> None:
    """Refuse a buffer that is unknown, or that needs a model."""
    from bicore.streaming.registry import BUFFERS as KNOWN

    if name in KNOWN and name not in BUFFERS:
        fix = f"use it from Python, or choose one of {', '.join(BUFFERS)}"
        raise InputError(f"--buffer {name} needs a network, and the command has none; {fix}.")
    check_name("buffer", name, BUFFERS)


def make_buffer(name: str, capacity: int, seed: int, **given: Any) -> Buffer:
    """Build a buffer by its name and the given options; None means not given."""
    from bicore.methods.registry import build_selector
    from bicore.moments.features.registry import FEATURES
    from bicore.streaming.registry import build_buffer

    check_buffer(name)
    options = {key: value for key, value in given.items() if value is not None}
    features = options.get("feature_map", "auto")
    # the name of a map has priority over a folder of that name
    named = features.partition(":")[0] in FEATURES
    if name == "moments" and not named and Path(features).is_dir():
        options["feature_map"] = load_memory(Path(features)).feature_map_
    if "inner_reg" in options:
        options["inner_reg"] = cli.read_regulariser(options["inner_reg"])
    if "prior" in options:
        options["prior"] = cli.read_shares("--prior", options["prior"], float)
    if name == "merge-reduce":
        method = options.pop("method", "bilevel")
        cli.check_method(method)
        of_method = ("kernel", "loss", "inner_reg")
        own = {key: options.pop(key) for key in of_method if key in options}
        if options.get("weighting") == "learned":
            own["weighting"] = "final"
        options["selector"] = build_selector(method, **own)
    return build_buffer(name, capacity, seed, **options)


def _describe(name: str, buffer: Any) -> tuple[str, dict[str, Any]]:
    """Describe slots or features of a buffer in words and for JSON; empty for other buffers."""
    if name == "merge-reduce":
        return f"batches per slot: {buffer.levels}", {"levels": buffer.levels}
    if name != "moments" or buffer.feature_map_ is None:
        return "", {}
    chosen = inner = buffer.feature_map_
    names = [type(chosen).__name__]
    while (inner := getattr(inner, "map", None)) is not None:
        names.append(type(inner).__name__)
    features = " of ".join(names)
    why = "as requested"
    if chosen.reason:
        why = f"because the first rows look like {KINDS[chosen.reason]}"
    nested = "(".join(names) + ")" * (len(names) - 1)
    words = f"feature map: {nested}, {chosen.width} features per row ({why})"
    return words, {"features": features, "reason": chosen.reason, "width": chosen.width}


@dataclass
class StreamRun:
    """One run of the command: a buffer, its source, and the folder of its state."""

    name: str
    buffer: Buffer
    source: Source
    batch: int
    store: StateFolder
    runtime: Runtime
    clock: Clock
    #: Number of rows processed by this run, and the seconds of their updates.
    rows_fed: int = 0
    update_seconds: float = 0.0
    #: Position and mark after the batch that is being added.
    _pending: tuple[int, dict[str, Any]] = (-1, {})

    @property
    def rate(self) -> float | None:
        """Rows per second of updates; None before the first update."""
        return self.rows_fed / self.update_seconds if self.update_seconds > 0 else None

    def check_state(self, fresh: Buffer) -> None:
        """Refuse a state of another configuration or another source."""
        mark, folder, position = self.buffer.mark, self.store.path, self.buffer.position
        changed = fresh.list_differences(self.buffer)
        if position and mark.get("batch") != self.batch:
            changed.append(f"batch size ({mark.get('batch')})")
        if changed:
            wrong = f"{folder} holds a stream with a different {', '.join(changed)}"
            raise InputError(f"{wrong}; use the same options, or another --state folder.")
        seen = self.source.data[:position]
        digest = _extend_digest(NO_ROWS, seen)
        if len(seen) < position or digest != mark.get("rows", NO_ROWS):
            raise InputError(
                f"{folder} holds a different stream: the first {position} rows differ; use the "
                "same source, or another --state folder. (Rows can be appended to a source if the "
                "stream uses --scale none.)"
            )
        self.buffer.mark = {"batch": self.batch, "rows": digest}

    def report_damage(self) -> None:
        """Report damaged state files, and move them away."""
        for note in self.store.notes:
            print_note(f"bicore: {note}; the previous state is used.")
        if self.store.notes:
            self.store.rename_damaged(self.buffer.position)

    def consume(self, every: int, quiet: bool) -> bool:
        """Process the rest of the source; return whether it was interrupted.

        The saved state is always that after a whole batch.
        """
        from bicore.runtime.clock import ProgressLine

        data, start = self.source.data, self.buffer.position
        if not quiet:
            self._introduce()
        saved = start if self.store.files() else None
        try:
            with ProgressLine(not quiet, self.clock, len(data), "streaming") as line:
                for number, first in enumerate(range(start, len(data), self.batch), 1):
                    self._feed(data[first : first + self.batch])
                    if first == start and not quiet:
                        self._announce_features()
                    if number % every == 0:
                        self.store.save(self.buffer)
                        saved = self.buffer.position
                    line.update(self.buffer.position, words=self.speed())
        except KeyboardInterrupt:
            position, mark = self._pending
            if self.buffer.position == position:  # the update is complete, its mark is not set
                self.buffer.mark = mark
            self.store.save(self.buffer)
            return True
        if saved != self.buffer.position:
            self.store.save(self.buffer)
        return False

    def _feed(self, rows: Dataset) -> None:
        """Add one batch, and store the digest of all rows so far."""
        from bicore.runtime.clock import Clock

        mark = {"batch": self.batch, "rows": _extend_digest(self.buffer.mark["rows"], rows)}
        self._pending = (self.buffer.position + len(rows), mark)
        clock = Clock()
        self.buffer.update(rows.x, rows.y, runtime=self.runtime)
        self.buffer.mark = mark
        self.update_seconds += clock.seconds
        self.rows_fed += len(rows)

    def _introduce(self) -> None:
        """Print how rows are read, and where the stream continues."""
        print_note(f"{self.source.name}: a stream of {len(self.source.data)} rows")
        if self.buffer.position:
            print_note(f"  continuing after {self.buffer.position} rows")
        print_note(*(f"  {words}" for words in self.source.notes))
        if self.buffer.position:
            self._announce_features()

    def _announce_features(self) -> None:
        """Print which features were chosen."""
        words = _describe(self.name, self.buffer)[0]
        if words and self.name != "merge-reduce":
            print_note(f"  {words}")

    def speed(self) -> str:
        """Describe the speed of updates."""
        return "" if self.rate is None else f"{self.rate:,.0f} rows/s"


def _extend_digest(before: str, rows: Dataset) -> str:
    """Return the digest of all rows so far, which does not depend on the batches."""
    import numpy as np

    labels = np.zeros(len(rows)) if rows.y is None else rows.y
    for point, label in zip(np.ascontiguousarray(rows.x), labels, strict=True):
        before = hashlib.sha256(before.encode() + point.tobytes() + str(label).encode()).hexdigest()
    return before


def _finish(run: StreamRun, stopped: bool, output: Answer) -> None:
    """Write the kept rows, then print them."""
    from bicore.cli.answer import Written, count_classes
    from bicore.data import read_targets

    kept, seconds = run.buffer.snapshot(), run.clock.seconds
    age = _explain_age(run, kept)
    notes = (*run.source.notes, *age)
    coreset = _as_coreset(run, kept, notes, seconds)
    written = Written(coreset, output.force)
    written.write(None if stopped else output.out, coreset.save, holds=True)
    if output.head is not None and not stopped:
        head = make_head(run.buffer, output.merge, run.source)
        written.write(output.head, head.save)
    output.print_note(*(f"  {note}" for note in age))
    labels, classes = [], []
    if kept.y is not None and read_targets(kept.y).classes is not None:
        labels = [str(label) for label in kept.y.ravel().tolist()]
        classes = [str(label) for label in sorted(set(kept.y.ravel().tolist()))]
    words, values = _describe(run.name, run.buffer)
    if output.json:
        print_json(
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
        speed = f", updates: {run.speed()}" if run.rate is not None else ""
        count = f"{len(kept)} of {run.buffer.position}"
        print_answer(f"{count} rows kept by {run.name}{more}, {seconds:.2f} s{speed}")
        if classes:
            print_answer(f"by class: {count_classes(labels, classes)}")
        print_answer(f"state: {run.store.path}", *(f"written: {path}" for path in written.paths))
    written.finish(output.json)


def _explain_age(run: StreamRun, kept: Dataset) -> tuple[str, ...]:
    """Explain why most kept rows are recent, if they are."""
    late = int((kept.ids >= run.buffer.position / 2).sum())
    if run.name != "moments" or late < MOSTLY_RECENT * len(kept):
        return ()
    why = "because a later row replaces an earlier one that is equally good for the whole stream"
    return (f"{late} of {len(kept)} kept rows are from the second half of the stream, {why}",)


def _as_coreset(run: StreamRun, kept: Dataset, notes: tuple[str, ...], seconds: float) -> Coreset:
    """Return the kept rows as a coreset of the source, by their positions in the stream."""
    from bicore.cli.answer import command
    from bicore.coreset import Coreset, Provenance

    provenance = Provenance(
        method=run.buffer.name,
        rows=len(run.source.data),
        seed=run.buffer.random_state,
        seconds=seconds,
        fingerprint=run.source.data.fingerprint(),
        notes=(*notes, f"To reproduce: {command()}"),
    )
    details = {"source": run.source.name, "state": str(run.store.path)}
    return Coreset(kept.ids, kept.weights, kept.ids, provenance=provenance, details=details)


@dataclass(frozen=True)
class HeadFile:
    """The head to predict with.

    Attributes
    ----------
    head
        Head file written by bicore stream --head.
    """

    panel: ClassVar[str] = "Data"
    head: Path = cli.argument("HEAD")


@dataclass(frozen=True)
class Rows(cli.Table):
    """The rows to predict.

    Attributes
    ----------
    scale
        Feature scaling: none (default); a table is encoded as in the stream.
    """

    scale: str | None = cli.option("none")


@dataclass(frozen=True)
class Predictions(cli.Files):
    """How predictions are printed and written.

    Attributes
    ----------
    out
        Write the predictions, one line per row.
    """

    out: Path | None = cli.option("FILE.csv")


def predict(head_file: HeadFile, data: Rows, output: Predictions) -> None:
    """Predict with a head written by bicore stream --head.

    A head is a ridge regression on all rows of a stream. The source must have the feature columns
    of the stream; they are encoded as in the stream. With --target or --labels, the score is
    printed.

    Example: bicore predict head.npz digits
    """
    with exit_on_interrupt():
        from bicore.files import replacing
        from bicore.moments.heads import Head
    head = head_file.head
    output.check(out=(".csv",))
    if data.scale not in (None, "none"):
        raise InputError(f"--scale {data.scale} does not apply to the rows of a head; omit it.")
    if not head.is_file():
        raise InputError(f"HEAD {head} is not a file; give one written by bicore stream --head.")
    model = Head.load(head)
    source = replace(data, scale="none").open(needs_target=False)
    x = _encode(head, model, source)
    found: Any = model.predict(x)
    score = None if source.data.y is None else _score(model, x, source.data.y)
    if output.out is not None:
        with replacing(output.out, overwrite=output.force) as path:
            path.write_text("".join(f"{_as_line(one)}\n" for one in found.tolist()))
    if output.json:
        print_json({"rows": len(found), "predictions": found.tolist(), "score": score})
    elif output.out is None:
        print_answer(*(_as_line(one) for one in found.tolist()))
    kind = "accuracy" if hasattr(model, "classes_") else "R²"
    known = "" if source.data.y is None else ", no score: the head predicts labels of another type"
    known = known if score is None else f", {kind} {score:.4f}"
    output.print_note(f"{source.name}: {len(found)} predictions{known}")


def _encode(head: Path, model: Head, source: Source) -> Any:
    """Return the features of a source; a table is encoded as that of the stream was."""
    from bicore.files import refuse_damage
    from bicore.moments.heads import WRITER
    from bicore.sources.columns import columns_from_json

    if model._columns is None or source.table is None or source.columns is None:
        return source.data.x
    with refuse_damage(head, WRITER):
        return columns_from_json(model._columns, source.columns.words).encode(source.table)


def _score(model: Head, x: Any, y: Any) -> float | None:
    """Return the accuracy, or R²; None if the labels are of another kind."""
    if hasattr(model, "classes_") and y.dtype.kind != model.classes_.dtype.kind:
        return None
    return float(model.score(x, y))


def _as_line(prediction: Any) -> str:
    return ",".join(map(str, prediction)) if isinstance(prediction, list) else str(prediction)


def check_head(head: Path | None, merge: str | None, buffer: str, scale: str) -> None:
    """Check, before any work, that a head can be written at the end."""
    if merge and head is None:
        raise InputError("--merge needs a head; give --head FILE.npz.")
    if head is not None and buffer != "moments":
        raise InputError(f"--head needs --buffer moments; got {buffer}.")
    if head is not None and scale == "standard":
        raise InputError(
            "--head needs --scale none: a head must not depend on the mean and variance of this "
            "source (the feature map standardises the columns of a table)."
        )


def make_head(buffer: Buffer, merge: str | None, source: Source) -> Head:
    """Return the head of a stream, with the sums of other state folders added."""
    import copy

    from bicore.sources.columns import columns_to_json
    from bicore.streaming import MomentMemory

    assert isinstance(buffer, MomentMemory)
    whole = copy.copy(buffer)  # a merge replaces attributes, so the buffer is unchanged
    for folder in merge.split(",") if merge else ():
        other = load_memory(Path(folder))
        if other.feature_map_ is not None and other.feature_map_ != whole.feature_map_:
            raise InputError(
                f"--merge {folder} has other features; run one of the two streams again with "
                "--feature-map and the --state folder of the other."
            )
        whole.merge(other)
    head: Head = whole.head()
    if source.columns is not None:
        head._columns = columns_to_json(source.columns)
    return head


def load_memory(folder: Path) -> Any:
    """Return the newest state in a folder of ``bicore stream``."""
    from bicore.streaming import MomentMemory
    from bicore.streaming.buffer import StateFolder

    found = StateFolder(folder).load(MomentMemory.load) if folder.is_dir() else None
    if found is None:
        raise InputError(f"{folder} holds no state; give the --state folder of another stream.")
    return found
