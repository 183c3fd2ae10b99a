"""What ``--report page.html`` adds to a selection and to a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, TypeVar

from bicore.cli.answering import command
from bicore.cli.telling import say, tell
from bicore.coreset import Coreset
from bicore.errors import InputError
from bicore.evaluate.comparison import BaseComparison
from bicore.evaluate.findings import findings_of
from bicore.evaluate.metrics import Measure
from bicore.evaluate.worth import Appraisal
from bicore.report.evaluation import further_fits
from bicore.report.page_of_comparison import comparison_page
from bicore.report.page_of_selection import page
from bicore.sources.base import Source


class Checkable(Protocol):
    """What judges the chosen rows, and can say beforehand that it cannot."""

    def check(self, size: int | float | str) -> None:
        """Raise InputError where rows of this size cannot be judged."""


Appraiser = TypeVar("Appraiser", bound=Checkable)


def worth_wanted(worth: bool | None, report: Path | None, initial: Path | None) -> bool:
    """Whether rows are judged: as the command says, else for a page that can be judged."""
    return worth if worth is not None else report is not None and initial is None


def if_it_can_be(
    appraiser: Appraiser, size: int | float | str, insisted: bool | None
) -> Appraiser | None:
    """Who judges the rows; None where a page must do without, which is said."""
    try:
        appraiser.check(size)
    except InputError as error:
        if insisted:
            raise
        tell(f"bicore: the page cannot say what the rows are worth: {error}")
        return None
    return appraiser


def say_price(appraisal: Appraisal | None, report: Path | None, quiet: bool) -> None:
    """What the page takes beside the worth, whose own price follows."""
    if report is None or appraisal is None or quiet:
        return
    tell(
        f"page: {further_fits(appraisal)} more fits of at most {appraisal.size} rows beside what "
        "the worth takes; --no-worth leaves both out"
    )


def write_selection(
    source: Source,
    coreset: Coreset,
    notes: list[str],
    appraisal: Appraisal | None,
    report: Path,
) -> None:
    """The page of a selection from a source."""
    page(
        source.data,
        coreset,
        report,
        appraisal=appraisal,
        name=source.name,
        images=source.images,
        columns=None if source.table is None else source.table.cells(),
        command=command(),
        notes=notes,
    )


def write_comparison(
    run: BaseComparison[Any], measure: Measure, report: Path | None, silent: bool, along: str
) -> None:
    """The page of a comparison, where one is wanted and there is something to show."""
    found = findings_of(run, measure)
    if report is None or not found[0].summary.entries:
        return
    comparison_page(run, found, report, command=command(), along=along)
    if not silent:
        say(f"written: {report}")
