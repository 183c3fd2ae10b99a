"""Where the answer of a selection goes, and the words it has in common for all kinds of sources."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import typer

from bicore._version import __version__
from bicore.cli.options import check_output
from bicore.cli.telling import say, tell
from bicore.coreset import Coreset, Provenance, Status
from bicore.errors import InputError
from bicore.files import replacing
from bicore.runtime import human_bytes
from bicore.selectors.large import Estimate, human_seconds
from bicore.sources.base import Source

#: How many rows a report lists.
MOST_ROWS = 15


@dataclass(frozen=True)
class Outputs:
    """Where the answer goes."""

    out: Path | None
    picture: Path | None
    as_json: bool
    quiet: bool
    report: Path | None = None
    #: Whether existing files are overwritten.
    force: bool = False

    def check(self) -> None:
        """Before any work: files can be written, and nothing would be lost."""
        check_output(self.out, self.force, (".npz", ".csv", ".parquet"), "--out")
        check_output(self.picture, self.force, (".png", ".pdf", ".svg"), "--picture")
        check_output(self.report, self.force, (".html", ".htm"), "--report")

    def check_rows(self, source: Source) -> None:
        """Rows of a table can be written only where there is one."""
        out = self.out
        if out is not None and out.suffix.lower() != ".npz" and source.table is None:
            raise InputError(
                f"--out {out}: {source.name} has no rows of a table to write; use .npz."
            )


def free_name(path: Path) -> Path:
    """The path, or the first numbered one that is not there yet."""
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


#: Where points are kept that could not be written where they were to go.
RESCUE = "bicore-selection.npz"


@dataclass
class Written:
    """Files of an answer that stand, and what became of the others: points are never lost."""

    coreset: Coreset
    #: Whether existing files are overwritten, also those that another process has just written.
    force: bool
    paths: list[Path] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    #: Whether a file holds the points.
    held: bool = False

    def write(self, path: Path | None, how: Callable[[Path], object], holds: bool = False) -> None:
        """Write one of them; where one that ``holds`` the points fails they are kept elsewhere."""
        if path is None:
            return
        try:
            with replacing(path, overwrite=self.force) as beside:
                how(beside)
        except (Exception, KeyboardInterrupt) as error:  # hours may stand behind these points
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            place = f" The points are printed, and {self._rescue()}." if holds else ""
            self.failures.append(f"{path} could not be written ({reason}).{place}")
        else:
            self.paths.append(path)
            self.held = self.held or holds

    @contextmanager
    def or_rescued(self) -> Iterator[None]:
        """Where standard output takes nothing, the points are kept in a file."""
        try:
            yield
        except BrokenPipeError:  # whoever reads has seen enough
            raise
        except OSError:
            if not self.held:
                tell(f"bicore: standard output cannot be written; the points {self._rescue()}.")
            raise

    def _rescue(self) -> str:
        """Keep the points in the first place that takes them; where they are, in words."""
        for folder in (Path(), Path(tempfile.gettempdir()), Path.home()):
            with suppress(Exception):
                kept = free_name(folder / RESCUE)
                with replacing(kept, overwrite=False) as beside:
                    self.coreset.save(beside)
                self.held = True
                return f"are kept in {kept}"
        return "could not be kept in any file"

    def end(self, as_json: bool) -> None:
        """Where something failed print every point, say what happened, and end with code 1."""
        if not self.failures:
            return
        if not as_json:  # where they stand already
            say(f"all rows: {','.join(map(str, self.coreset.indices.tolist()))}")
            if not self.coreset.binary:
                say(f"all weights: {','.join(map(repr, self.coreset.weights.tolist()))}")
        for words in self.failures:
            tell(f"bicore: {words}")
        raise typer.Exit(1)


def command() -> str:
    return shlex.join(["bicore", *sys.argv[1:]])


def continuation(kept: Path) -> str:
    if kept.suffix.lower() == ".npz":
        return f"{command()} --initial {kept}"
    return "start anew (.npz files can be continued)"


def answer(coreset: Coreset) -> dict[str, Any]:
    known = coreset.provenance
    return {
        "indices": coreset.indices.tolist(),
        "weights": coreset.weights.tolist(),
        "objective": coreset.objective,
        "seconds": known.seconds,
        "size": len(coreset),
        "n": known.rows,
        "method": known.method,
        "kernel": known.kernel,
        "loss": known.loss,
        "inner_reg": known.inner_reg,
        "seed": known.seed,
        "classes": known.classes,
        "status": coreset.status.value,
        "message": coreset.message,
        "notes": list(known.notes),
        "version": __version__,
    }


def outcome(coreset: Coreset) -> list[str]:
    """How many points, by what, how well and in what time; how it ended; its notes."""
    known = coreset.provenance
    kind = known.method if known.task is None else f"{known.method}, {known.task}"
    value = "" if coreset.objective is None else f", objective {coreset.objective:.5g}"
    lines = [
        f"{len(coreset)} of {known.rows} points ({kind}){_problem(known)}{value}, "
        f"{known.seconds:.2f} s"
    ]
    if coreset.status is not Status.COMPLETE:
        lines.append(f"status: {coreset.message}")
    return [*lines, *known.notes]


def _problem(known: Provenance) -> str:
    """By which inner problem points were chosen, where there is one."""
    if known.loss is None or known.inner_reg is None:
        return ""
    automatic = " (auto)" if known.automatic else ""
    return f" by {known.loss}, {known.kernel}, inner_reg {known.inner_reg:.3g}{automatic}"


def first_rows(coreset: Coreset) -> str:
    """The first of the chosen rows, in words."""
    first = ", ".join(map(str, coreset.indices[:MOST_ROWS].tolist()))
    more = " …" if len(coreset) > MOST_ROWS else ""
    return f"rows, best first: {first}{more}"


def expected(estimate: Estimate, as_json: bool) -> str:
    """Describe an estimate in one line, or as JSON."""
    if as_json:
        return json.dumps(asdict(estimate))
    if estimate.seconds is None:
        return "no estimate for this method: nothing in it grows with the square of the rows"
    size = "" if estimate.bytes is None else human_bytes(estimate.bytes)
    room = f", {size} in addition to the data" if size else ""
    held = "" if estimate.operator is None else f" ({estimate.operator})"
    return f"about {human_seconds(estimate.seconds)}{room}{held}"
