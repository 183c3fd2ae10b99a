"""What ``bicore worth`` does, and what ``bicore select --worth`` adds to a selection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bicore.cli.options import read_size
from bicore.cli.progress import bar
from bicore.cli.telling import tell
from bicore.coreset import Coreset
from bicore.errors import InputError
from bicore.evaluate.equivalence import Worth
from bicore.evaluate.worth import Appraisal
from bicore.runtime import Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.registry import METHODS, as_selector
from bicore.sources.base import Source, scaling
from bicore.sources.opening import open_source
from bicore.sources.reading import Reading
from bicore.sources.tables import table_source


def appraise(
    source: Source,
    test: Source | None,
    chosen: Any,
    runtime: Runtime,
    selector: Selector,
    **options: Any,
) -> Appraisal:
    """A source's appraisal: cuts scale features by their own numbers where the source does."""
    return Appraisal(
        source.data,
        chosen,
        test=None if test is None else test.data,
        runtime=runtime,
        method=selector,
        standardise=test is None and source.scale == "standard",
        keep=source.keep,
        **options,
    )


def told(appraisal: Appraisal, quiet: bool) -> Worth | None:
    """The price on standard error, then the work with a bar; None where it was interrupted."""
    runtime = appraisal.runtime
    try:
        with bar("selecting", quiet) as progress:
            appraisal.runtime = replace(runtime, progress=progress)
            price = appraisal.cost()
        if not quiet:
            tell(f"worth: {price}")
        with bar("judging", quiet) as progress:
            appraisal.runtime = replace(runtime, progress=progress)
            return appraisal.worth()
    except KeyboardInterrupt:
        return None


def report(found: Worth) -> list[str]:
    """The answer in words, a line each."""
    return [str(found), found.how()]


def chosen(size: str | None, picks: Path | None) -> Any:
    if picks is None:
        return read_size(str(size))
    if not picks.exists():
        raise InputError(f"--picks {picks} does not exist; give a file written by select --out.")
    return Coreset.load(picks)


def selector(method: str, kernel: str) -> Selector:
    if method in METHODS and METHODS[method][0] is BilevelSelector:
        return as_selector(method, **({} if kernel == "auto" else {"kernel": kernel}))
    selector = as_selector(method)
    if selector.needs_model:
        raise InputError(
            f"--method {method} looks at a trained network, and the command has none; call "
            "bicore.worth from Python with the chosen rows and a test set."
        )
    return selector


def beside(
    opened: Source, word: str, columns: dict[str, Any], scale: str | None
) -> tuple[Source, Source]:
    """The source and a test set from a file.

    Rows of two tables become features together: a value that one of them lacks has its column in
    both.
    """
    rows = len(opened.data)
    test = open_source(word, scale=scale, later=True, **columns)
    if columns["target"] is None or opened.table is None or test.table is None:
        return opened, test
    missing = [name for name in opened.table.names if name not in test.table.names]
    if missing:
        raise InputError(f"--test {word} has no column {missing[0]!r}, and {opened.name} has one.")
    both = opened.table.joined(test.table)
    joint = table_source(opened.name, both, Reading(**columns))
    joint = joint.scaled(scale, later=True)
    return replace(joint, data=joint.data[:rows]), replace(
        joint, name=test.name, data=joint.data[rows:]
    )


def scaled(source: Source, test: Source) -> tuple[Source, Source]:
    """Both under the scaling of the source's own numbers, where it is to be standardised."""
    if source.scale != "standard":
        return source, test
    scale = scaling(source.data.x, source.keep)
    data, rows = (replace(one.data, x=scale(one.data.x)) for one in (source, test))
    return replace(source, data=data), replace(test, data=rows)
