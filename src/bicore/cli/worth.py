"""``bicore worth``, and what ``bicore select --worth`` adds to a selection."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bicore._version import __version__
from bicore.cli.options import (
    EXIT_INTERRUPTED,
    Decimal,
    Device,
    Drop,
    DropMissingTarget,
    Features,
    Folder,
    Force,
    KernelName,
    Labels,
    Limit,
    Memory,
    Quiet,
    Scale,
    SourceWord,
    Target,
    Threads,
    check_output,
    read_size,
)
from bicore.cli.progress import bar
from bicore.comparison.answer import Worth
from bicore.comparison.appraisal import MOST, SEEDS, Appraisal
from bicore.comparison.judges import JUDGES
from bicore.coreset import Coreset
from bicore.errors import InputError
from bicore.report.worth import draw_worth
from bicore.runtime import Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.registry import METHODS, as_selector
from bicore.sources.base import Source, scaling
from bicore.sources.opening import open_source, open_test
from bicore.sources.reading import Reading
from bicore.sources.tables import table_source


def worth(
    source: SourceWord,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="How many points to select: a count, a fraction or a percentage."
        ),
    ] = None,
    picks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz", help="A coreset of this data instead; it needs a test set."
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Rows to test on; by default the own test set, or a quarter held out each time.",
        ),
    ] = None,
    target: Target = None,
    labels: Labels = None,
    features: Features = None,
    drop: Drop = None,
    drop_missing_target: DropMissingTarget = False,
    decimal: Decimal = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Any without a network; see bicore compare --list.")
    ] = "bilevel",
    kernel: KernelName = "auto",
    judge: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"The model that is trained: {', '.join(JUDGES)}."),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Repetitions, at least 2.")] = SEEDS,
    seed: Annotated[int, typer.Option(help="The number of the first repetition.")] = 0,
    most: Annotated[
        int, typer.Option(metavar="N", help="The largest random sample that is judged.")
    ] = MOST,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw random scores against size.")
    ] = None,
    device: Device = "auto",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Say how many random rows score as much as the chosen ones.

    A judge is trained on the chosen rows and on random samples of several sizes, and tested on rows
    that were not to be chosen.

    Example: bicore worth digits --size 50
    """
    check_output(picture, force, (".png", ".pdf", ".svg"), "--picture")
    if (size is None) == (picks is None):
        raise InputError(
            "give --size M, or --picks FILE.npz for a coreset that is there; not both."
        )
    chosen = _chosen(size, picks)
    selector = _selector(method, kernel)
    runtime = Runtime(device, memory=memory, threads=threads)
    columns: dict[str, Any] = {
        "target": target,
        "features": features,
        "drop": drop,
        "drop_missing_target": drop_missing_target,
        "decimal": decimal,
    }
    opened = open_source(
        source,
        labels=labels,
        folder=data,
        scale=scale,
        limit=limit,
        later=True,
        memory=memory,
        **columns,
    )
    tested = open_test(source, data, scale)
    if test is not None:
        opened, tested = _beside(opened, test, columns, scale)
    if picks is not None and tested is None:
        raise InputError(
            f"--picks {picks} may have been chosen from any of these rows; give --test FILE, or "
            "--size M to select again from a part of them."
        )
    if not quiet:
        print(f"{opened.name}: {len(opened.data)} points", file=sys.stderr)
    if tested is not None:
        opened, tested = _scaled(opened, tested)
    appraisal = appraise(
        opened,
        tested,
        chosen,
        runtime,
        selector,
        judge=judge,
        seeds=seeds,
        seed=seed,
        most=most,
        task=task,
    )
    found = told(appraisal, quiet, as_json)
    if found is None:
        print("bicore: interrupted; there is nothing to keep.", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED)
    if picture is not None:
        draw_worth(found, f"{opened.name}, judge {found.judge}", picture)
    if as_json:
        print(json.dumps({"source": opened.name, **found.as_dict(), "version": __version__}))
        return
    print("\n".join(report(found)))
    if picture is not None:
        print(f"written: {picture}")


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


def told(appraisal: Appraisal, quiet: bool, as_json: bool) -> Worth | None:
    """The price on standard error, then the work with a bar; None where it was interrupted."""
    runtime = appraisal.runtime
    try:
        with bar("selecting", quiet or as_json) as progress:
            appraisal.runtime = replace(runtime, progress=progress)
            price = appraisal.price()
        if not quiet:
            print(f"worth: {price}", file=sys.stderr)
        with bar("judging", quiet or as_json) as progress:
            appraisal.runtime = replace(runtime, progress=progress)
            return appraisal.worth()
    except KeyboardInterrupt:
        return None


def report(found: Worth) -> list[str]:
    """The answer in words, a line each."""
    return [str(found), found.how()]


def _chosen(size: str | None, picks: Path | None) -> Any:
    if picks is None:
        return read_size(str(size))
    if not picks.exists():
        raise InputError(f"--picks {picks} does not exist; give a file written by select --out.")
    return Coreset.load(picks)


def _selector(method: str, kernel: str) -> Selector:
    if method in METHODS and METHODS[method][0] is BilevelSelector:
        return as_selector(method, **({} if kernel == "auto" else {"kernel": kernel}))
    selector = as_selector(method)
    if selector.needs_model:
        raise InputError(
            f"--method {method} looks at a trained network, and the command has none; call "
            "bicore.worth from Python with the chosen rows and a test set."
        )
    return selector


def _beside(
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


def _scaled(source: Source, test: Source) -> tuple[Source, Source]:
    """Both under the scaling of the source's own numbers, where it is to be standardised."""
    if source.scale != "standard":
        return source, test
    scale = scaling(source.data.x, source.keep)
    data, rows = (replace(one.data, x=scale(one.data.x)) for one in (source, test))
    return replace(source, data=data), replace(test, data=rows)
