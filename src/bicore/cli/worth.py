"""``bicore worth``: the number of random rows that score as much as the selected ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bicore._version import __version__
from bicore.cli.options import Data, Files, Limits, Output, check_method, option, read_size
from bicore.cli.terminal import exit_on_interrupt, print_json
from bicore.defaults import MAX_ROWS, SEEDS
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.evaluate.worth import Appraisal, Worth
    from bicore.sources.base import Source


@dataclass(frozen=True)
class Evaluation:
    """The rows to evaluate, and how.

    Attributes
    ----------
    size
        Number of rows to select: a count, a fraction or 5%.
    picks
        Coreset to evaluate, instead of a new selection; needs a test set.
    test
        Test rows (default: the source's own, or a quarter held out).
    task
        Task: auto, classification or regression.
    method
        Selection method that needs no trained network (see compare --list).
    kernel
        Kernel of a bilevel method, as in select.
    reference
        Baseline whose rows are counted: random (and class-balanced), or a method that
        needs no trained network.
    judge
        Evaluation model: {JUDGES} (default: logistic; ridge for regression).
    seeds
        Number of repetitions, at least 2.
    random_state
        Seed of the first repetition.
    max_rows
        Size of the largest random sample.
    """

    panel: ClassVar[str] = "Evaluation"
    size: str | None = option("M")
    picks: Path | None = option("FILE.npz")
    test: str | None = option("FILE")
    task: str = "auto"
    method: str = option("NAME", default="bilevel")
    kernel: str = option("NAME", default="auto")
    reference: str = option("NAME", default="random")
    judge: str | None = option("NAME")
    seeds: int = option("N", default=SEEDS)
    random_state: int = option(default=0, name="--random-state --seed")
    max_rows: int = option("N", default=MAX_ROWS)


@dataclass(frozen=True)
class Answer(Files):
    """How the worth is printed and drawn.

    Attributes
    ----------
    picture
        Draw scores of random samples by size.
    """

    picture: Path | None = option("FILE.png")


def worth(data: Data, evaluation: Evaluation, limits: Limits, output: Answer) -> None:
    """Estimate how many random rows the selected rows are worth.

    A model is trained on the selected rows and on random samples of several sizes, and tested on
    held-out rows.

    Example: bicore worth digits --size 50
    """
    with exit_on_interrupt():
        from bicore.coreset import Coreset
        from bicore.evaluate.worth import Appraisal
        from bicore.methods.registry import build_selector, parameters_of
        from bicore.report.figures import draw_worth
    output.check()
    size, picks = evaluation.size, evaluation.picks
    if (size is None) == (picks is None):
        raise InputError("give either --size M, or --picks FILE.npz for an existing coreset.")
    if picks is not None and not picks.exists():
        raise InputError(f"--picks {picks} does not exist; give a file written by select --out.")
    chosen = read_size(str(size)) if picks is None else Coreset.load(picks)
    check_method(evaluation.method)
    source = data.open(later=True, memory=limits.memory)
    test = data.open_test() if evaluation.test is None else _read_test(source, evaluation, data)
    if picks is not None and test is None:
        fix = "give --test FILE, or --size M to repeat the selection without them"
        raise InputError(f"--picks {picks} may contain held-out rows; {fix}.")
    output.print_note(f"{source.name}: {len(source.data)} rows")
    of_rows = ("size", "picks", "test", "kernel")
    options = {name: value for name, value in vars(evaluation).items() if name not in of_rows}
    if evaluation.kernel != "auto" and "kernel" in parameters_of(evaluation.method):
        options["method"] = build_selector(evaluation.method, kernel=evaluation.kernel)
    rows = None if test is None else test.data
    appraisal = Appraisal(
        source,
        chosen=chosen,
        test=rows,
        runtime=limits.runtime(progress=not output.quiet),
        **options,
    )
    found = find_worth(appraisal, output)
    if output.json:
        print_json({"source": source.name, **found.as_dict(), "version": __version__})
    if output.picture is not None:
        draw_worth(found, f"{source.name}, evaluation model {found.judge}", output.picture)
        output.print_answer(f"written: {output.picture}")


def find_worth(appraisal: Appraisal, output: Output) -> Worth:
    """Print the cost, then compute the worth and print it."""
    output.print_note(f"worth: {appraisal.cost()}")
    found = appraisal.worth()
    output.print_answer(str(found), found.how())
    return found


def _read_test(source: Source, evaluation: Evaluation, data: Data) -> Source:
    """Read a test set from a file; a table is encoded like the source."""
    assert evaluation.test is not None
    own = replace(data, source=evaluation.test, limit=None, labels=None, embeddings=None)
    test = own.open(later=True)
    encoded = source.columns is not None and test.table is not None
    return replace(test, data=source.encode(test)) if encoded else test
