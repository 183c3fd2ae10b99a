"""What ``bicore stream`` does: a buffer fed in order, its state on disk, and what is told of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bicore._version import __version__
from bicore.cli.answering import Written, command
from bicore.cli.buffers import has_story, story_of
from bicore.cli.progress import bar
from bicore.cli.telling import say, say_json, tell
from bicore.coreset import Coreset, Provenance
from bicore.data import Dataset, read_targets
from bicore.errors import BicoreError, InputError
from bicore.memory.buffer import Buffer, StateFolder
from bicore.runtime import Clock, Context, Step
from bicore.sources.flow import Flow

#: The digest of no rows.
NOTHING = ""
#: How many classes a report lists.
MOST_CLASSES = 20


def refuse_for_pipes(labels: str | None, data: str | None) -> None:
    for word, value in (("--labels", labels), ("--data", data)):
        if value is not None:
            raise InputError(f"{word} {value} means nothing for -; it reads --target.")


def tell_of_damage(run: Run) -> None:
    for note in run.store.notes:
        tell(f"bicore: {note}: the state before it is used.")
    if run.store.notes:
        run.store.set_aside(run.buffer.position)


@dataclass
class Run:
    """One call: a buffer, what it is fed with, and where its state is kept."""

    name: str
    buffer: Buffer
    flow: Flow
    batch: int
    store: StateFolder
    context: Context
    clock: Clock = field(default_factory=Clock)
    #: Rows that this call fed, and the seconds that ``update`` took for them.
    fed: int = 0
    update_seconds: float = 0.0
    #: The mark of the rows being fed, and the position at which it holds.
    _coming: tuple[int, dict[str, Any]] = (-1, {})
    _noted: bool = False

    @property
    def rate(self) -> float | None:
        """Rows a second in ``update``; None before there were any."""
        return self.fed / self.update_seconds if self.update_seconds > 0 else None

    def recognise(self, fresh: Buffer, append: bool) -> None:
        """See that the state was made by this very configuration, from this very source."""
        mark = self.buffer.mark
        place = self.store.path
        changed = fresh.unlike(self.buffer)
        if changed:
            raise InputError(
                f"{place} holds a stream with another {', '.join(changed)}; use the same options, "
                "or another --state folder."
            )
        trail = NOTHING
        if self.buffer.position:
            if mark.get("batch") != self.batch:
                raise InputError(
                    f"{place} holds a stream of another batch size, {mark.get('batch')}; use it, "
                    "or another folder."
                )
            self.flow.resume(mark.get("table", {}), self.buffer.position, append)
            trail = mark.get("rows", NOTHING) if append else self._passed_over()
            if trail != mark.get("rows", NOTHING):
                raise InputError(
                    f"{place} holds a stream of another source: the first {self.buffer.position} "
                    "rows differ; use the same, or another --state folder (a source may grow at "
                    "its end, if it is read with --scale none or comes by standard input)."
                )
        self.buffer.mark = self._mark(trail)

    def _passed_over(self) -> str:
        """The digest of the rows that count already, taken from the source once more."""
        trail = NOTHING
        left = self.buffer.position
        while left:
            rows = self.flow.take(min(left, self.batch))
            if rows is None:
                return "the source ended before"
            trail = _trail(trail, rows)
            left -= len(rows)
        return trail

    def _mark(self, trail: str) -> dict[str, Any]:
        """What is kept beside the state: how to recognise rows, and how to read further ones."""
        table = self.flow.stored()
        return {"batch": self.batch, "rows": trail, **({"table": table} if table else {})}

    def consume(self, every: int, quiet: bool) -> bool:
        """Feed the rest of the source; whether it was interrupted.

        What is saved is always the state after a whole batch.
        """
        told = quiet or self._said(first=True)
        unsaved = 0
        try:
            with bar("streaming", quiet, lambda _: self.speed()) as progress:
                while (rows := self.flow.take(self.batch)) is not None:
                    self._feed(rows)
                    told = told or self._said()
                    unsaved += 1
                    if unsaved == every:
                        self.store.save(self.buffer)
                        unsaved = 0
                    if callable(progress):
                        progress(self._step())
        except BicoreError:
            if unsaved:  # rows of a pipe that count already may never come again
                self.store.save(self.buffer)
            if self.buffer.position and not quiet:
                tell(f"  {self.buffer.position} rows count and are saved; a run goes on after them")
            raise
        except KeyboardInterrupt:
            self._settle()
            self.store.save(self.buffer)
            return True
        if unsaved or not self.store.files():
            self.store.save(self.buffer)
        return False

    def _feed(self, rows: Dataset) -> None:
        """One batch, and the mark of the rows seen with it."""
        mark = self._mark(_trail(self.buffer.mark["rows"], rows))
        self._coming = (self.buffer.position + len(rows), mark)
        clock = Clock()
        self.buffer.update(rows.x, rows.y, context=self.context)
        self.buffer.mark = mark
        self.update_seconds += clock.seconds
        self.fed += len(rows)

    def _settle(self) -> None:
        """An interrupt may have come between an update and its mark."""
        position, mark = self._coming
        if self.buffer.position == position:
            self.buffer.mark = mark

    def _said(self, first: bool = False) -> bool:
        """Tell what is streamed; whether all that can be told was."""
        if first:
            many = "rows as they come" if self.flow.rows is None else f"{self.flow.rows} rows"
            tell(f"{self.flow.name}: a stream of {many}")
            if self.buffer.position:
                tell(f"  going on after {self.buffer.position} rows")
        if not self.buffer.position:
            return False
        if not self._noted:
            self._noted = True
            for note in self.flow.notes:
                tell(f"  {note}")
        story = story_of(self.name, self.buffer)
        if story and story.settled:
            tell(f"  {story.words}")
        return story is not None or not has_story(self.name)

    def speed(self) -> str:
        """Rows a second in words."""
        return "" if self.rate is None else f"{self.rate:,.0f} rows/s"

    def _step(self) -> Step:
        rows = self.flow.rows or 0
        return Step(self.buffer.position, rows, float("nan"), self.clock.seconds)


def _trail(before: str, rows: Dataset) -> str:
    """A digest of all rows so far, from the digest of those before.

    It goes a row at a time, so that batches leave no trace in it.
    """
    labels = np.zeros(len(rows)) if rows.y is None else rows.y
    for point, label in zip(np.ascontiguousarray(rows.x), labels, strict=True):
        before = hashlib.sha256(before.encode() + point.tobytes() + str(label).encode()).hexdigest()
    return before


def finish(run: Run, out: Path | None, force: bool, as_json: bool, quiet: bool) -> None:
    """Write the kept rows, then print them."""
    if not len(run.buffer):
        return
    kept = run.buffer.snapshot()
    counts = _class_counts(kept)
    seconds = run.clock.seconds
    coreset = _as_coreset(run, kept, seconds)
    written = Written(coreset, force)
    written.write(out, coreset.save, holds=True)
    for note in () if quiet else run.flow.later:
        tell(f"  {note}")
    if as_json:
        say_json(_answer(run, kept, counts, seconds))
    else:
        _say_kept(run, kept, counts, seconds, written.paths)
    written.end(as_json)


def _say_kept(
    run: Run, kept: Dataset, counts: Counter[str], seconds: float, written: list[Path]
) -> None:
    """The answer in words."""
    story = story_of(run.name, run.buffer)
    more = f", {story.words}" if story and not story.settled else ""
    speed = f", {run.speed()} in update" if run.rate is not None else ""
    count = f"{len(kept)} of {run.buffer.position}"
    say(f"{count} rows kept by {run.name}{more}, {seconds:.2f} s{speed}")
    if counts:
        listed = sorted(counts.items())[:MOST_CLASSES]
        say("by class: " + ", ".join(f"{label}: {count}" for label, count in listed))
    say(f"state: {run.store.path}", *(f"written: {path}" for path in written))


def _class_counts(kept: Dataset) -> Counter[str]:
    """How many rows of each class are kept; empty where y holds no classes."""
    if kept.y is None or read_targets(kept.y).classes is None:
        return Counter()
    return Counter(str(label) for label in kept.y.ravel().tolist())


def _as_coreset(run: Run, kept: Dataset, seconds: float) -> Coreset:
    """What is kept as a coreset of the source, whose rows are the positions in the stream."""
    provenance = Provenance(
        method=run.buffer.name,
        rows=run.flow.rows if run.flow.rows is not None else run.buffer.position,
        seed=run.buffer.seed,
        seconds=seconds,
        fingerprint=run.flow.fingerprint(),
        notes=(*run.flow.notes, *run.flow.later, f"To make it again: {command()}"),
    )
    details = {"weights": "learnt", "source": run.flow.name, "state": str(run.store.path)}
    return Coreset(kept.ids, kept.weights, kept.ids, provenance=provenance, details=details)


def _answer(run: Run, kept: Dataset, counts: Counter[str], seconds: float) -> dict[str, Any]:
    story = story_of(run.name, run.buffer)
    return {
        "buffer": run.name,
        "position": run.buffer.position,
        "rows": run.flow.rows if run.flow.rows is not None else run.buffer.position,
        "kept": len(kept),
        "capacity": run.buffer.capacity,
        **(story.values if story else {}),
        "classes": dict(counts),
        "ids": kept.ids.tolist(),
        "weights": kept.weights.tolist(),
        "notes": [*run.flow.notes, *run.flow.later],
        "state": str(run.store.path),
        "seconds": seconds,
        "update_seconds": run.update_seconds,
        "rows_per_second": run.rate,
        "version": __version__,
    }
