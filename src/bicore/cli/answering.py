"""Where the answer of a selection goes, and the words it has in common for all kinds of sources."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicore._version import __version__
from bicore.cli.options import check_output
from bicore.coreset import Coreset, Provenance, Status
from bicore.errors import InputError
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

    def check(self, force: bool) -> None:
        """Before any work: files can be written, and nothing would be lost."""
        check_output(self.out, force, (".npz", ".csv", ".parquet"), "--out")
        check_output(self.picture, force, (".png", ".pdf", ".svg"), "--picture")
        check_output(self.report, force, (".html", ".htm"), "--report")

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
    while path.exists():
        number += 1
        path = path.with_name(f"bicore-partial-{number}.npz")
    return path


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
