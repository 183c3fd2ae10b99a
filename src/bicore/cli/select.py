"""``bicore select``: what may be asked for, and the order of the work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bicore.cli.names import JUDGES
from bicore.cli.options import (
    Decimal,
    Device,
    Drop,
    DropMissingTarget,
    Features,
    Folder,
    Force,
    Labels,
    Limit,
    Memory,
    Precision,
    Quiet,
    ReportPage,
    Scale,
    SourceWord,
    Target,
    Threads,
    read_regulariser,
    read_size,
)
from bicore.cli.progress import bar, watched
from bicore.cli.starting import starting
from bicore.cli.telling import say
from bicore.errors import InputError, as_option


def select(
    source: SourceWord,
    size: Annotated[
        str,
        typer.Option(
            metavar="M",
            help="How many points: a count, a fraction (0.05), a percentage (5%) or auto.",
        ),
    ],
    target: Target = None,
    labels: Labels = None,
    data_weights: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column (or npz array) of row weights.")
    ] = None,
    features: Features = None,
    drop: Drop = None,
    drop_missing_target: DropMissingTarget = False,
    decimal: Decimal = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    task: Annotated[str | None, typer.Option(help="auto, classification or regression.")] = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Any without a network; see bicore compare --list.")
    ] = "bilevel",
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="auto (the default), ntk, nngp, cntk, resnet18, rbf, laplace, linear, polynomial.",
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="squared (the default), cross-entropy or logistic.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="binary (the default), learnt or final.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="auto (the default), gradient, gain, first-order or reducible."),
    ] = None,
    inner_reg: Annotated[
        str | None, typer.Option(metavar="REG", help="auto, a number, or per-point:NUMBER.")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(metavar="N", help="Score N random points a step instead of all.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="auto (the default), greedy, batches, exchange, elimination or simplex."),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(help="What is aimed at: auto (the default), given or smoothed labels."),
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="How much classes count: data (the default) or equal.")
    ] = None,
    quotas: Annotated[
        str | None,
        typer.Option(
            metavar="QUOTAS",
            help="The most points a class may have: LABEL=COUNT,…; or balanced: one of each in "
            "turn.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="With --size auto: how far above the full model's loss (0.02)."
        ),
    ] = None,
    initial: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="A coreset of the same data to continue."),
    ] = None,
    large: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="approximate (default: a sample of large data), or exact (all rows).",
        ),
    ] = "approximate",
    exact: Annotated[bool, typer.Option("--exact", help="The same as --large exact.")] = False,
    outer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Files: rows that measure the objective; X.npy,Y.npy for two."
        ),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="Files: select by passes over all rows; auto, or exact (one point a pass)."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Passes: folder from which a stopped selection continues."
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Passes: address of a Dask scheduler, tcp://…"),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Passes: leave out and count rows that are not finite."),
    ] = False,
    worth: Annotated[
        bool | None,
        typer.Option(
            "--worth/--no-worth",
            help="Then say how many random rows score as much, for a price; --report does so too.",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"With --worth, the model that is trained: {', '.join(JUDGES)}."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take, and select nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=".npz, or .csv/.parquet with the chosen rows."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw what was picked.")
    ] = None,
    report: ReportPage = None,
    seed: Annotated[int, typer.Option(help="Seed of whatever is drawn at random.")] = 0,
    device: Device = "auto",
    dtype: Precision = "float64",
    memory: Memory = None,
    threads: Threads = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Return what is selected after S seconds.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Choose the points that train a model almost as well as all of them.

    Example: bicore select table.csv --target label --size 5% --out picks.csv
    """
    with starting():
        from bicore.cli import selecting as ours
        from bicore.cli.answering import Outputs, expected
        from bicore.cli.report import if_it_can_be, worth_wanted
        from bicore.cli.select_shards import InParts, Opening, reason_for_parts
        from bicore.runtime import Context, Runtime
        from bicore.selectors.from_shards import Asked
        from bicore.selectors.large import Large, estimate_selection
        from bicore.selectors.quality_curve import check_tolerance
        from bicore.selectors.registry import as_selector
        from bicore.sources.opening import open_source, open_test
    ours.check_method(method)
    given = ours.given(
        inner_reg=inner_reg,
        weights=weights,
        rule=rule,
        loss=loss,
        candidates=candidates,
        strategy=strategy,
        targets=targets,
        prior=prior,
        quotas=quotas,
        tolerance=tolerance,
        kernel=kernel,
        task=task,
    )
    wanted = Large.EXACT if exact else as_option("--large", large, Large)
    ours.check_options(method, given)
    judging = worth_wanted(worth, report, initial)
    ours.check_worth(judging, judge, initial)
    outputs = Outputs(out, picture, as_json, quiet, report, force)
    outputs.check()
    count = read_size(size)
    if tolerance is not None and count != "auto":
        raise InputError(
            f"--tolerance {tolerance} goes with --size auto, and the size is {size}; leave one of "
            "them out."
        )
    share = ours.TOLERANCE if tolerance is None else tolerance
    check_tolerance(share)
    regulariser = read_regulariser(inner_reg or "auto")
    runtime = Runtime(device, dtype, memory, threads, None, max_seconds)
    alone = ours.given(
        outer=outer, passes=passes, state=state, dask=dask, skip_bad=skip_bad or None
    )
    reason = reason_for_parts(source, alone, runtime)
    if reason is not None:
        in_parts = InParts(
            Opening(source, features, target, labels, data_weights, outer),
            reason,
            count,
            ours.asked_of_parts(given | alone, regulariser, method, count, wanted, seed)
            if set(alone) - {"outer"}
            else Asked(None, {}),
            initial,
            runtime,
            outputs,
            None
            if set(alone) - {"outer"}
            else {
                **{name: value for name, value in given.items() if name != "inner_reg"},
                **({} if inner_reg is None else {"inner_reg": regulariser}),
                "method": method,
                "large": wanted.value,
                "seed": seed,
            },
        )
        in_parts.check(
            ours.given(
                data=data,
                limit=limit,
                scale=scale,
                drop=drop,
                drop_missing_target=drop_missing_target or None,
                decimal=decimal,
                worth=worth or None,
                judge=judge,
                picture=picture,
                report=report,
            )
        )
        in_parts.expect() if dry_run else in_parts.run()
        return
    opened = watched(open_source, quiet)(
        source,
        target=target,
        labels=labels,
        weight=data_weights,
        folder=data,
        scale=scale,
        limit=limit,
        memory=memory,
        features=features,
        drop=drop,
        drop_missing_target=drop_missing_target,
        decimal=decimal,
    )
    outputs.check_rows(opened)
    plain = as_selector(method, **ours.options(method, given, regulariser, opened))
    begun = ours.initial(initial, opened)
    decision = ours.decision_for(plain, opened, wanted)
    selector = decision.selector
    notes = [*opened.notes, *decision.notes]
    if not quiet:
        ours.introduce(opened, notes)
    if dry_run:
        context = Context(runtime=runtime)
        found = estimate_selection(plain, opened.data, count, None, context, wanted)
        say(expected(found, as_json))
        return
    appraiser = None
    if judging:
        tested = open_test(source, data, scale)
        appraiser = ours.Appraiser(opened, tested, runtime, plain, task, wanted, judge)
        appraiser = if_it_can_be(appraiser, count, worth)
    with bar("selecting", quiet) as progress:
        context = Context(runtime=replace(runtime, progress=progress))
        coreset = ours.selected(selector, opened.data, count, share, begun, seed, context)
    ours.finish(opened, coreset, notes, outputs, appraiser)
