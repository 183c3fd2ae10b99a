"""``bicore worth``: what may be asked for, and the order of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bicore._version import __version__
from bicore.cli.names import JUDGES, MOST, SEEDS
from bicore.cli.options import (
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
)
from bicore.cli.progress import watched
from bicore.cli.starting import EXIT_INTERRUPTED, starting
from bicore.cli.telling import say, say_json, tell
from bicore.errors import InputError


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
    with starting():
        from bicore.cli import appraising as ours
        from bicore.report.figures import draw_worth
        from bicore.runtime import Runtime
        from bicore.sources.opening import open_source, open_test
    check_output(picture, force, (".png", ".pdf", ".svg"), "--picture")
    if (size is None) == (picks is None):
        raise InputError(
            "give --size M, or --picks FILE.npz for a coreset that is there; not both."
        )
    chosen = ours.chosen(size, picks)
    selector = ours.selector(method, kernel)
    runtime = Runtime(device, memory=memory, threads=threads)
    columns: dict[str, Any] = {
        "target": target,
        "features": features,
        "drop": drop,
        "drop_missing_target": drop_missing_target,
        "decimal": decimal,
    }
    opened = watched(open_source, quiet)(
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
        opened, tested = ours.beside(opened, test, columns, scale)
    if picks is not None and tested is None:
        raise InputError(
            f"--picks {picks} may have been chosen from any of these rows; give --test FILE, or "
            "--size M to select again from a part of them."
        )
    if not quiet:
        tell(f"{opened.name}: {len(opened.data)} points")
    if tested is not None:
        opened, tested = ours.scaled(opened, tested)
    appraisal = ours.appraise(
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
    found = ours.told(appraisal, quiet)
    if found is None:
        tell("bicore: interrupted; there is nothing to keep.")
        raise typer.Exit(EXIT_INTERRUPTED)
    if as_json:
        say_json({"source": opened.name, **found.as_dict(), "version": __version__})
    else:
        say(*ours.report(found))
    if picture is not None:
        draw_worth(found, f"{opened.name}, judge {found.judge}", picture)
        if not as_json:
            say(f"written: {picture}")
