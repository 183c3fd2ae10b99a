"""``bicore select`` from rows that are never loaded whole."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from bicore.api import estimate as estimate_whole
from bicore.api import select
from bicore.cli.answering import (
    Outputs,
    Written,
    answer,
    command,
    continuation,
    expected,
    first_rows,
    free_name,
    outcome,
)
from bicore.cli.estimate import columns, words_of
from bicore.cli.progress import bar
from bicore.cli.starting import EXIT_INTERRUPTED
from bicore.cli.telling import say, say_json, tell
from bicore.coreset import Coreset, Status
from bicore.errors import InputError, LargeDataWarning
from bicore.runtime import Runtime, Step, human_bytes
from bicore.selectors.from_shards import Asked, opened_outer
from bicore.selectors.large import human_seconds
from bicore.shards import ShardSource, estimate, select_from_shards
from bicore.shards.opening import open_shards
from bicore.shards.rows import fits
from bicore.shards.sources.files import files_below
from bicore.sources import images

#: Files that can be read in parts.
ENDINGS = (".npy", ".npz", ".parquet", ".pq")


def reason_for_parts(word: str, asked_for: dict[str, Any], runtime: Runtime) -> str | None:
    """Why a source is read in parts, in words; None where it is loaded as a whole.

    ``asked_for`` are options that mean something for parts only, as they stand in the command.
    """
    path = Path(word)
    if path.is_dir():
        reason = "a folder of shards" if _holds_shards(path) else None
    elif path.suffix.lower() in ENDINGS and path.is_file():
        reason = _of_file(path, asked_for, runtime)
    else:
        reason = "a pattern" if glob.has_magic(word) and not path.exists() else None
    if reason is None and asked_for:
        name = next(iter(asked_for))
        raise InputError(
            f"--{name.replace('_', '-')} goes with rows that are read in parts, and {word} is not: "
            f"give {', '.join(ENDINGS[:3])} files, a folder or a pattern of them, or leave it out."
        )
    return reason


def _of_file(path: Path, asked_for: dict[str, Any], runtime: Runtime) -> str | None:
    size, limit = path.stat().st_size, runtime.memory_bytes()
    if size > limit:
        return f"{human_bytes(size)}, and the memory limit is {human_bytes(limit)}"
    return f"--{next(iter(asked_for)).replace('_', '-')}" if asked_for else None


def _holds_shards(folder: Path) -> bool:
    """Whether there are shards in it and no images: a folder of these may hold an array beside."""
    endings = {path.suffix.lower() for path in files_below(folder)}
    return not endings.isdisjoint(ENDINGS) and endings.isdisjoint(images.ENDINGS)


@dataclass(frozen=True)
class Opening:
    """How the source and the set that is judged by are opened."""

    word: str
    features: str | None
    target: str | None
    labels: str | None
    weight: str | None
    outer: str | None

    def source(self) -> ShardSource:
        return open_shards(
            self.word,
            features=columns(self.features),
            target=self.target,
            labels=self.labels,
            weight=self.weight,
        )

    def judge(self) -> ShardSource | None:
        """The outer set: one word, or features and labels with a comma between."""
        like = {"features": columns(self.features), "target": self.target}
        words: Any = self.outer
        if words is not None and "," in words:
            words = tuple(words.split(","))
        return opened_outer(words, like)


@dataclass(frozen=True)
class InParts:
    """A selection from parts, as the command asks for it."""

    opening: Opening
    reason: str
    size: Any
    asked: Asked
    initial: Path | None
    runtime: Runtime
    outputs: Outputs
    #: Arguments of :func:`bicore.select`; None for a selection in passes over all rows.
    call: dict[str, Any] | None = None

    def check(self, whole: dict[str, Any]) -> None:
        """Refuse what needs all rows in memory."""
        for name, value in whole.items():
            given = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            raise InputError(
                f"{given} needs all rows in memory, and {self.opening.word} is read in parts "
                f"({self.reason}); leave it out, or select from a sample of the rows."
            )
        out = self.outputs.out
        if out is not None and out.suffix.lower() != ".npz":
            raise InputError(
                f"--out {out}: rows that are read in parts are not held to be written; use .npz, "
                "which keeps their positions."
            )

    def expect(self) -> None:
        """Say what it would take."""
        source = self._opened()
        if self.call is not None:
            call = {k: v for k, v in self.call.items() if k not in ("seed", "tolerance")}
            call["outer"] = self.opening.judge()
            whole = estimate_whole(source, size=self.size, runtime=self.runtime, **call)
            say(expected(whole, self.outputs.as_json))
            return
        found = estimate(
            source, self.size, features=self.asked.features, runtime=self.runtime, **self._options()
        )
        as_json = self.outputs.as_json
        if as_json:
            say_json(found.as_dict())
        else:
            say(*words_of(found))

    def run(self) -> None:
        source = self._opened()
        judge = self.opening.judge()
        begun = self._begun()
        with bar("selecting", self.outputs.quiet, _words, own_time=True) as progress:
            try:
                coreset = self._select(
                    source, judge, begun, replace(self.runtime, progress=progress)
                )
            except KeyboardInterrupt:
                kept = self._state()
                words = (
                    f"what was counted is kept in {kept}" if kept else "there is nothing to keep"
                )
                tell(f"bicore: interrupted before the first point; {words}.")
                raise typer.Exit(EXIT_INTERRUPTED) from None
        self._finish(source, coreset)

    def _select(
        self, source: ShardSource, judge: ShardSource | None, begun: Any, runtime: Runtime
    ) -> Coreset:
        given = {"outer": judge, "initial": begun, "runtime": runtime}
        if self.call is None:
            return select_from_shards(
                source, self.size, features=self.asked.features, **given, **self.asked.options
            )
        with warnings.catch_warnings():  # the notes of the answer say the same
            warnings.simplefilter("ignore", LargeDataWarning)
            return select(source, size=self.size, **given, **self.call)

    def _opened(self) -> ShardSource:
        source = self.opening.source()
        if not self.outputs.quiet:
            shape = "×".join(map(str, source.shape))
            tell(f"{source.name}: {source.rows} points of {shape} features, {self._way(source)}")
            for note in self.asked.notes:
                tell(f"  {note}")
        return source

    def _way(self, source: ShardSource) -> str:
        """Describe how rows are read."""
        if self.call is None:
            return f"read in {len(source.parts)} part(s) and never loaded whole ({self.reason})"
        if fits(source, self.runtime):
            return f"loaded from {len(source.parts)} part(s) ({self.reason})"
        limit = human_bytes(self.runtime.memory_bytes())
        return f"read when needed: they do not fit the memory limit of {limit}"

    def _options(self) -> dict[str, Any]:
        beside = ("state", "executor")
        return {name: value for name, value in self.asked.options.items() if name not in beside}

    def _state(self) -> Any:
        return self.asked.options.get("state")

    def _begun(self) -> Coreset | tuple[int, ...]:
        if self.initial is None:
            return ()
        if not self.initial.exists():
            raise InputError(
                f"--initial {self.initial} does not exist; give a file written by --out."
            )
        return Coreset.load(self.initial)

    def _finish(self, source: ShardSource, coreset: Coreset) -> None:
        """Write the file first, words after."""
        stopped = coreset.status is Status.INTERRUPTED
        kept = self.outputs.out
        if kept is None and stopped and self._state() is None:
            kept = free_name(Path("bicore-partial.npz"))
        notes = (*self.asked.notes, *coreset.provenance.notes)
        coreset = coreset.annotated({"notes": notes})
        again = (*notes, f"To make it again: {command()}")
        story = coreset.annotated({"notes": again}, source=source.name)
        written = Written(story, self.outputs.force)
        written.write(kept, story.save, holds=True)
        with written.or_rescued():
            if self.outputs.as_json:
                say_json({**answer(coreset), **_counts(coreset)})
            elif not self.outputs.quiet or self.outputs.out is None:
                say(*_report(coreset, kept if written.held else None))
        written.end(self.outputs.as_json)
        if stopped:
            self._say_how_to_go_on(coreset, kept)
            raise typer.Exit(EXIT_INTERRUPTED)

    def _say_how_to_go_on(self, coreset: Coreset, kept: Path | None) -> None:
        way, place = command(), self._state()
        if place is None and kept is not None:
            way, place = f"{continuation(kept)} (with another --out, or --force)", kept
        tell(f"bicore: {coreset.message}; kept in {place}. To go on: {way}")


def _words(step: Step) -> str:
    return f"objective {step.objective:.5g}  about {human_seconds(step.seconds_left)} left"


def _counts(coreset: Coreset) -> Mapping[str, Any]:
    """Return the counts of a selection in passes; other selections have none."""
    return coreset.details if "passes" in coreset.details else {}


def _report(coreset: Coreset, kept: Path | None) -> list[str]:
    """The answer in words, a line each."""
    counts = [f"{name.replace('_', ' ')}: {count}" for name, count in _counts(coreset).items()]
    counted = [", ".join(counts)] if counts else []
    lines = [*outcome(coreset), *counted, first_rows(coreset)]
    return lines if kept is None else [*lines, f"written: {kept}"]
