"""``bicore query``: the rows of a table to label next."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import ClassVar

from bicore.cli.options import Data, Files, Limits, option, read_names, seed_option, source_argument
from bicore.cli.select import Answer
from bicore.cli.terminal import exit_on_interrupt
from bicore.errors import InputError, check_integer


@dataclass(frozen=True)
class PartlyLabelled(Data):
    """A table in which some labels are missing."""

    source: str = source_argument(words="Table file, such as .csv, .jsonl or .parquet.")


@dataclass(frozen=True)
class Batch:
    """The rows to select."""

    panel: ClassVar[str] = "Method"
    size: int = option("Number of rows to label next.", "N", default=MISSING)
    classes: str | None = option(
        "Comma-separated labels that annotators may give; others are refused (default: any).",
        "LABELS",
    )
    random_state: int = seed_option()


@dataclass(frozen=True)
class NextRows(Files):
    """How the rows are printed and written."""

    out: Path | None = option("Write the selected rows with all columns (.csv, .parquet).", "FILE")


def query(rows: PartlyLabelled, batch: Batch, limits: Limits, output: NextRows) -> None:
    """Select the rows of a table to label next.

    Rows with an empty --target are the candidates; the other rows are the labelled data.

    Example: bicore query texts.csv --embeddings e.npy --target intent --size 77 --out next.csv
    """
    with exit_on_interrupt():
        import numpy as np

        from bicore.active import query_by_variance
        from bicore.cli.answer import finish
    output.check(out=(".csv", ".parquet"))
    if rows.target is None or rows.source == "-":
        raise InputError(
            "bicore query needs a file and --target COLUMN (empty where a label is missing)."
        )
    known = replace(rows, drop_missing_target=True).open().data
    dropped = ",".join(filter(None, (rows.drop, rows.target)))
    source = replace(rows, target=None, drop=dropped).open(needs_target=False)
    free = np.setdiff1d(np.arange(len(source.data)), known.ids)
    if not len(free):
        raise InputError(f"--target {rows.target} has no empty cell; no row is left to label.")
    check_integer("--size", batch.size, most=len(free), fix="the number of rows without a label")
    y = np.asarray(known.y)
    # compared as text, because the labels may be numbers
    wrong = np.isin(y.astype(str), read_names(batch.classes or ""), invert=True)
    if batch.classes is not None and wrong.any():
        first = int(wrong.argmax())
        raise InputError(
            f"--target {rows.target} is {y[first].item()!r} in row {known.ids[first]}, which is "
            "not in --classes; correct the label, or add it to --classes."
        )
    output.print_note(f"{source.name}: {len(known)} rows with a label, {len(free)} without")
    x, runtime = source.data.x, limits.runtime(progress=not output.quiet)
    coreset = query_by_variance(
        x[known.ids], y, x[free], batch.size, random_state=batch.random_state, runtime=runtime
    )
    chosen = free[coreset.indices]
    coreset = replace(coreset, indices=chosen, ids=chosen)
    answer = Answer(output.json, output.quiet, output.force, out=output.out)
    finish(source.name, source, coreset, answer, None, None)
