"""``bicore contexts``: small training sets of a table for models that read few rows."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bicore.cli.options import Data, Files, Limits, option, seed_option, switch
from bicore.cli.terminal import exit_on_interrupt, print_answer, print_json
from bicore.errors import InputError, check_integer

if TYPE_CHECKING:
    from bicore.sources.base import Source


@dataclass(frozen=True)
class Contexts:
    """The contexts to select."""

    panel: ClassVar[str] = "Method"
    size: int = option("Number of rows of each context.", "M", default=MISSING)
    contexts: int = option("Number of contexts.", "N", default=8)
    random_state: int = seed_option()
    exact: bool = switch("Use all rows (default: a sample of large data).", "--exact")


@dataclass(frozen=True)
class ContextFile(Files):
    """How the contexts are printed and written."""

    out: Path | None = option(
        "Write a list of row numbers for each context (.json; the first row is 0), or the rows "
        "with the number of their context (.csv, .parquet).",
        "FILE",
    )


def contexts(rows: Data, wanted: Contexts, limits: Limits, output: ContextFile) -> None:
    """Select small training sets for TabPFN and similar models.

    Each set is called a context. Fit one model to each context and average their predictions.

    Example: bicore contexts table.csv --target label --size 200 --out contexts.json
    """
    with exit_on_interrupt():
        from bicore import api
        from bicore.cli.answer import shorten
        from bicore.files import replacing
    output.check(out=(".json", ".csv", ".parquet"))
    source = rows.open(memory=limits.memory)
    x, y, count = source.data.x, source.data.y, len(source.data)
    if y is None:
        raise InputError(f"{source.name} has no labels or targets, which contexts need.")
    check_integer("--size", wanted.size, most=count, fix="the number of rows")
    check_integer("--contexts", wanted.contexts, most=count, fix="the number of rows")
    if output.out is not None and output.out.suffix.lower() != ".json" and source.table is None:
        raise InputError(f"--out {output.out}: {source.name} is not a table; use .json.")
    shape = "×".join(map(str, x.shape[1:]))
    output.print_note(f"{source.name}: {count} rows of {shape} features")
    output.print_note(*(f"  {note}" for note in source.notes))
    found = api.contexts(
        x,
        y,
        wanted.size,
        wanted.contexts,
        random_state=wanted.random_state,
        runtime=limits.runtime(progress=not output.quiet),
        exact=wanted.exact,
    )
    answer = {"contexts": [one.tolist() for one in found], "size": wanted.size, "n": count}
    if output.out is not None:
        try:
            with replacing(output.out, overwrite=output.force) as path:
                _save(path, source, found)
        except OSError:  # the contexts may have taken long
            print_json(answer)
            raise
    if output.json:
        print_json(answer)
        return
    if output.out is None:
        rows_of = (f"context {k}: rows {shorten(one)}" for k, one in enumerate(found, 1))
        print_answer(*rows_of)
    if not output.quiet:
        place = "" if output.out is None else f", written to {output.out}"
        print_answer(f"{len(found)} contexts of {wanted.size} of {count} rows{place}")


def _save(path: Path, source: Source, found: list[Any]) -> None:
    """Write row numbers, or the rows of a table with the number of their context."""
    import numpy as np

    from bicore.sources import tables

    if path.suffix.lower() == ".json":
        path.write_text(json.dumps([one.tolist() for one in found]))
    else:
        which = np.repeat(np.arange(1, len(found) + 1), [len(one) for one in found])
        tables.write_rows(path, source.table, np.concatenate(found), which, "context")
