"""``bicore worth``: the number of random rows that score as much as the chosen ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from bicore._version import __version__
from bicore.cli.options import (
    PICTURES,
    Data,
    Files,
    Limits,
    check_method,
    check_output,
    option,
    read_size,
)
from bicore.cli.terminal import EXIT_INTERRUPTED, say, say_json, starting, tell
from bicore.defaults import JUDGES, MOST, SEEDS
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.evaluate.worth import Appraisal, Worth
    from bicore.sources.base import Source


@dataclass(frozen=True)
class Evaluation:
    """The rows to evaluate, and how."""

    panel: ClassVar[str] = "Evaluation"
    size: str | None = option("Number of rows to select: a count, a fraction or 5%.", "M")
    picks: Path | None = option("Coreset to evaluate instead; needs a test set.", "FILE.npz")
    test: str | None = option(
        "Test rows (default: the source's own, or a quarter held out).", "FILE"
    )
    task: str = option("auto, classification or regression.", default="auto")
    method: str = option(
        "Selection method; bicore compare --list shows all.",
        "NAME",
        default="bilevel",
    )
    kernel: str = option("Kernel of a bilevel method, as in select.", "NAME", default="auto")
    reference: str = option(
        "Baseline whose rows are counted: random, or facility-location-per-class.",
        "NAME",
        default="random",
    )
    judge: str | None = option(f"Evaluation model: {', '.join(JUDGES)}.", "NAME")
    seeds: int = option("Number of repetitions, at least 2.", "N", default=SEEDS)
    random_state: int = option(
        "Seed of the first repetition.", default=0, name="--random-state --seed"
    )
    most: int = option("Size of the largest random sample.", "N", default=MOST)


@dataclass(frozen=True)
class Answer(Files):
    """How the worth is printed and drawn."""

    picture: Path | None = option("Draw scores of random samples by size.", "FILE.png")


def worth(data: Data, evaluation: Evaluation, limits: Limits, output: Answer) -> None:
    """Estimate how many random rows match the score of the selected rows.

    A model is trained on the selected rows and on random samples of several sizes, and tested on
    held-out rows.

    Example: bicore worth digits --size 50
    """
    with starting():
        from bicore.coreset import Coreset
        from bicore.evaluate.worth import Appraisal
        from bicore.methods.registry import build_selector, parameters_of
        from bicore.report.figures import draw_worth
    check_output(output.picture, output.force, PICTURES, "--picture")
    size, picks = evaluation.size, evaluation.picks
    if (size is None) == (picks is None):
        raise InputError("give either --size M, or --picks FILE.npz for an existing coreset.")
    if picks is not None and not picks.exists():
        raise InputError(f"--picks {picks} does not exist; give a file written by select --out.")
    chosen = read_size(str(size)) if picks is None else Coreset.load(picks)
    check_method(evaluation.method)
    source = data.open(later=True, memory=limits.memory)
    test = data.open_test()
    if evaluation.test is not None:
        source, test = _read_test(source, evaluation.test, data)
    if picks is not None and test is None:
        raise InputError(
            f"--picks {picks} may have been chosen from any of these rows; give --test FILE, or "
            "--size M to select again from a part of them."
        )
    if not output.quiet:
        tell(f"{source.name}: {len(source.data)} rows")
    named = ("method", "judge", "seeds", "random_state", "most", "task", "reference")
    options = {name: getattr(evaluation, name) for name in named}
    if evaluation.kernel != "auto" and "kernel" in parameters_of(evaluation.method):
        options["method"] = build_selector(evaluation.method, kernel=evaluation.kernel)
    rows = None if test is None else test.data
    appraisal = Appraisal(
        source, chosen, test=rows, runtime=limits.runtime(progress=not output.quiet), **options
    )
    found = find_worth(appraisal, output.quiet)
    if found is None:
        tell("bicore: interrupted; no result was saved.")
        raise typer.Exit(EXIT_INTERRUPTED)
    if output.json:
        say_json({"source": source.name, **found.as_dict(), "version": __version__})
    else:
        say(str(found), found.how())
    if output.picture is not None:
        draw_worth(found, f"{source.name}, evaluation model {found.judge}", output.picture)
        if not output.json:
            say(f"written: {output.picture}")


def find_worth(appraisal: Appraisal, quiet: bool) -> Worth | None:
    """Print the cost, then find the worth; None if it was interrupted."""
    try:
        cost = appraisal.cost()
        if not quiet:
            tell(f"worth: {cost}")
        return appraisal.worth()
    except KeyboardInterrupt:
        return None


def _read_test(source: Source, word: str, data: Data) -> tuple[Source, Source]:
    """The source, and a test set from a file.

    Two tables are encoded together, so that a category of either has its column in both.
    """
    from bicore.sources.opening import open_source
    from bicore.sources.reading import Reading
    from bicore.sources.tables import join_tables, table_source

    rows = len(source.data)
    names = ("target", "columns", "drop", "drop_missing_target", "decimal", "missing", "encoding")
    columns: dict[str, Any] = {name: getattr(data, name) for name in names}
    test = open_source(word, scale=data.scale, later=True, **columns)
    if data.target is None or source.table is None or test.table is None:
        return source, test
    missing = [name for name in source.table if name not in test.table]
    if missing:
        raise InputError(f"--test {word} has no column {missing[0]!r}, and {source.name} has one.")
    tables = join_tables([source.table, test.table])
    both = table_source(source.name, tables, Reading(**columns))
    both = both.scaled(data.scale, later=True)
    own, other = replace(both, data=both.data[:rows]), replace(both, data=both.data[rows:])
    return own, replace(other, name=test.name)
