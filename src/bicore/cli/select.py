"""``bicore select``."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bicore.cli.answering import (
    MOST_ROWS,
    Outputs,
    answer,
    command,
    continuation,
    first_rows,
    free_name,
    outcome,
)
from bicore.cli.options import (
    EXIT_INTERRUPTED,
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
    Scale,
    SourceWord,
    Target,
    Threads,
    read_regulariser,
    read_size,
)
from bicore.cli.progress import bar
from bicore.cli.select_shards import InParts, Opening, reason_for_parts
from bicore.cli.worth import appraise, report, told
from bicore.comparison.answer import Worth
from bicore.comparison.appraisal import Appraisal
from bicore.comparison.judges import JUDGES
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset
from bicore.errors import InputError, LargeDataWarning, as_option, unknown_name
from bicore.report.pictures import draw
from bicore.runtime import Context, Runtime, human_bytes
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.from_shards import Asked, asked
from bicore.selectors.large import Decision, Estimate, Large, decided, human_seconds
from bicore.selectors.names import as_kernel
from bicore.selectors.quality_curve import check_tolerance, select_sized
from bicore.selectors.reconstruction import Reconstruction
from bicore.selectors.registry import METHODS, as_selector, parameters_of
from bicore.sources.base import Source
from bicore.sources.opening import open_source, open_test
from bicore.sources.tables import write_rows

#: Methods that need no network: the command has none to give them.
CHOICES = tuple(name for name in METHODS if not as_selector(name).needs_model)
#: How far above the full model's loss a size that is found may end, where nothing else is said.
TOLERANCE = 0.02
#: How many classes a report lists.
MOST_CLASSES = 20
#: What an answer holds where the rows were not judged to the end.
UNJUDGED: dict[str, Any] = {"worth": None}


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
            help="approximate: landmarks or a sample stand in where it would take too long; exact.",
        ),
    ] = "approximate",
    exact: Annotated[bool, typer.Option("--exact", help="The same as --large exact.")] = False,
    outer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="In parts: rows the model must be good at; X.npy,Y.npy for two."
        ),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(help="In parts: auto (the default), or exact: one point a pass."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="In parts: where a stopped selection goes on from."),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="In parts: leave out and count rows that are not finite."),
    ] = False,
    worth: Annotated[
        bool,
        typer.Option("--worth", help="Then say how many random rows score as much, for a price."),
    ] = False,
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
    _check_method(method)
    given = _given(
        inner_reg=inner_reg,
        weights=weights,
        rule=rule,
        loss=loss,
        candidates=candidates,
        strategy=strategy,
        targets=targets,
        prior=prior,
        tolerance=tolerance,
        kernel=kernel,
        task=task,
    )
    wanted = Large.EXACT if exact else as_option("--large", large, Large)
    _check_options(method, given)
    _check_worth(worth, judge, initial)
    outputs = Outputs(out, picture, as_json, quiet)
    outputs.check(force)
    count = read_size(size)
    if tolerance is not None and count != "auto":
        raise InputError(
            f"--tolerance {tolerance} goes with --size auto, and the size is {size}; leave one of "
            "them out."
        )
    share = TOLERANCE if tolerance is None else tolerance
    check_tolerance(share)
    regulariser = read_regulariser(inner_reg or "auto")
    runtime = Runtime(device, dtype, memory, threads, None, max_seconds)
    alone = _given(outer=outer, passes=passes, state=state, skip_bad=skip_bad or None)
    reason = reason_for_parts(source, alone, runtime)
    if reason is not None:
        in_parts = InParts(
            Opening(source, features, target, labels, data_weights, outer),
            reason,
            count,
            _asked_of_parts(given | alone, regulariser, method, count, wanted, seed),
            initial,
            runtime,
            outputs,
        )
        in_parts.check(
            _given(
                data=data,
                limit=limit,
                scale=scale,
                drop=drop,
                drop_missing_target=drop_missing_target or None,
                decimal=decimal,
                worth=worth or None,
                judge=judge,
                picture=picture,
            )
        )
        in_parts.expect() if dry_run else in_parts.run()
        return
    opened = open_source(
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
    plain = as_selector(method, **_options(method, given, regulariser))
    begun = _initial(initial, opened)
    decision = _decided(plain, opened, count, runtime, wanted, begun)
    selector = decision.selector
    notes = [*opened.notes, *decision.notes]
    if not quiet:
        _say(opened, notes)
    if dry_run:
        print(_expected(decision.estimate, as_json))
        return
    appraiser = None
    if worth:
        tested = open_test(source, data, scale)
        appraiser = _Appraiser(opened, tested, runtime, plain, task, wanted, judge)
        appraiser.check(count)
    with bar("selecting", quiet or as_json) as progress:
        context = Context(runtime=replace(runtime, progress=progress))
        coreset = _selected(selector, opened.data, count, share, begun, seed, context)
    _finish(opened, coreset, notes, outputs, appraiser)


@dataclass(frozen=True)
class _Appraiser:
    """What the chosen rows are worth: checked before the selection, found after it."""

    source: Source
    own_test: Source | None
    runtime: Runtime
    selector: Selector
    task: str | None
    large: Large
    judge: str | None

    def check(self, size: int | float | str) -> None:
        """Refuse what cannot be judged before any work."""
        self._of(1 if size == "auto" else size)

    def find(self, coreset: Coreset, outputs: Outputs) -> Worth | None:
        """Judge; None where it was interrupted. What stands in for too much work is known."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LargeDataWarning)
            return told(self._of(coreset), outputs.quiet, outputs.as_json)

    def _of(self, chosen: Any) -> Appraisal:
        # Standardised rows no longer tell by which numbers a test set would have to be scaled.
        test = None if self.source.scale == "standard" else self.own_test
        return appraise(
            self.source,
            test,
            chosen,
            self.runtime,
            self.selector,
            task=self.task or "auto",
            large=self.large,
            judge=self.judge,
        )


def _asked_of_parts(
    given: dict[str, Any],
    regulariser: Any,
    method: str,
    size: int | float | str,
    large: Large,
    seed: int,
) -> Asked:
    """The options in the words of a selection from parts; where they are opened from is apart."""
    options = {name: value for name, value in given.items() if name not in ("features", "outer")}
    tolerance = options.pop("tolerance", None)
    options["inner_reg"] = regulariser
    return asked(options, method=method, size=size, tolerance=tolerance, large=large, seed=seed)


def _check_worth(worth: bool, judge: str | None, initial: Path | None) -> None:
    if judge is not None and not worth:
        raise InputError(f"--judge {judge} goes with --worth; add it, or leave --judge out.")
    if worth and initial is not None:
        raise InputError(
            f"--worth repeats the selection on a part of the rows, and --initial {initial} cannot "
            "be repeated there; leave one of them out."
        )


def _check_method(method: str) -> None:
    if method in METHODS and method not in CHOICES:
        raise InputError(
            f"--method {method} looks at a trained network, and the command has none; call "
            f"bicore.select(…, method={method!r}, model=…) from Python, or see it at work in "
            "bicore compare."
        )
    if method not in METHODS:
        raise unknown_name("method", method, CHOICES)


def _given(**options: Any) -> dict[str, Any]:
    """The options that stand in the command."""
    return {name: value for name, value in options.items() if value is not None}


def _ours(method: str) -> bool:
    """Whether it has a kernel and a regulariser to choose."""
    return METHODS[method][0] in (BilevelSelector, Reconstruction)


def _check_options(method: str, given: dict[str, Any]) -> None:
    """Options that mean nothing to the method, or contradict its name, are mistakes."""
    build, fixed = METHODS[method]
    known = set(parameters_of(method))
    if build is BilevelSelector:
        known.add("tolerance")  # of the search for a size, which goes on around the selector
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        if not _ours(method) or name not in known:
            raise InputError(f"{option} means nothing for --method {method}; leave it out.")
        if fixed.get(name, value) not in (value, "auto"):
            raise InputError(
                f"{option} contradicts --method {method} ({name} {fixed[name]}); leave one of them "
                "out."
            )


def _options(method: str, given: dict[str, Any], regulariser: Any) -> dict[str, Any]:
    """The parameters of the selector."""
    if not _ours(method):
        return {}
    options = {name: value for name, value in given.items() if name != "tolerance"}
    if "kernel" in given:
        options["kernel"] = as_kernel(given["kernel"])
    options["inner_reg"] = regulariser
    return options


def _decided(
    selector: Selector,
    source: Source,
    size: int | float | str,
    runtime: Runtime,
    large: Large,
    begun: Coreset | tuple[int, ...],
) -> Decision:
    """What is used, by the library's own rule; in the words of the command."""
    before = begun if isinstance(begun, Coreset) else None
    found = decided(selector, source.data, size, None, Context(runtime=runtime), large, before)
    note = None if found.note is None else found.note.replace("large='exact'", "--large exact")
    return replace(found, note=note)


def _expected(estimate: Estimate, as_json: bool) -> str:
    if as_json:
        return json.dumps(asdict(estimate))
    if estimate.seconds is None:
        return "no estimate for this method: nothing in it grows with the square of the rows"
    room = "" if estimate.bytes is None else f", {human_bytes(estimate.bytes)} beside the data"
    held = "" if estimate.operator is None else f" ({estimate.operator})"
    return f"about {human_seconds(estimate.seconds)}{room}{held}"


def _initial(path: Path | None, source: Source) -> Coreset | tuple[int, ...]:
    if path is None:
        return ()
    if not path.exists():
        raise InputError(f"--initial {path} does not exist; give a file written by --out.")
    begun = Coreset.load(path)
    known = begun.provenance.fingerprint
    if known is not None and known != source.data.fingerprint():
        raise InputError(
            f"--initial {path} was selected from other data, or under another scaling, than "
            f"{source.name}; use the same source."
        )
    return begun


def _say(source: Source, notes: list[str]) -> None:
    n = len(source.data)
    shape = "×".join(map(str, source.data.x.shape[1:]))
    print(f"{source.name}: {n} points of {shape} features", file=sys.stderr)
    for note in notes:
        print(f"  {note}", file=sys.stderr)


def _selected(
    selector: Selector,
    data: Dataset,
    size: int | float | str,
    tolerance: float,
    begun: Coreset | tuple[int, ...],
    seed: int,
    context: Context,
) -> Coreset:
    try:
        return select_sized(
            selector, data, size, tolerance, initial=begun, rng=seed, context=context
        )
    except KeyboardInterrupt:
        print(
            "bicore: interrupted before the first point; there is nothing to keep.",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _finish(
    source: Source,
    coreset: Coreset,
    notes: list[str],
    outputs: Outputs,
    appraiser: _Appraiser | None,
) -> None:
    """Write files first, words after, and what the rows are worth last.

    An interrupted run keeps its prefix even when no file was asked for.
    """
    stopped = coreset.status is Status.INTERRUPTED
    kept = outputs.out
    if kept is None and stopped:
        kept = free_name(Path("bicore-partial.npz"))
    if kept is not None:
        _keep(source, coreset, notes, kept)
    if outputs.picture is not None:
        draw(source, coreset, outputs.picture)
    if not outputs.as_json and (not outputs.quiet or outputs.out is None):
        written = [path for path in (kept, outputs.picture) if path is not None]
        print("\n".join(_report(source, coreset, written)), flush=True)
    judged = {} if appraiser is None or stopped else _judged(appraiser, coreset, outputs)
    if outputs.as_json:
        print(json.dumps({**answer(coreset), **_in_the_file(source, coreset), **judged}))
    if judged == UNJUDGED:
        print("bicore: interrupted while judging; the selection is whole.", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED)
    if stopped and kept is not None:
        print(
            f"bicore: {coreset.message}; kept in {kept}. To go on: {continuation(kept)} (with "
            "another --out, or --force)",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED)


def _judged(appraiser: _Appraiser, coreset: Coreset, outputs: Outputs) -> dict[str, Any]:
    """What the rows are worth, printed unless it is to be JSON."""
    found = appraiser.find(coreset, outputs)
    if found is None:
        return UNJUDGED
    if not outputs.as_json:
        print("\n".join(report(found)))
    return {"worth": found.as_dict()}


def _keep(source: Source, coreset: Coreset, notes: list[str], path: Path) -> None:
    """A coreset file that says where its points came from and how to make it again, or rows."""
    if path.suffix.lower() != ".npz":
        write_rows(path, source.table, coreset.indices, coreset.weights)
        return
    every = (*notes, *coreset.provenance.notes, f"To make it again: {command()}")
    numbers = _in_the_file(source, coreset)
    known = {"source": source.name, "scale": source.scale, **numbers}
    coreset.annotated({"notes": every}, **known).save(path)


def _in_the_file(source: Source, coreset: Coreset) -> dict[str, list[int]]:
    """The chosen rows as the file counts them, where rows of it were left out."""
    ids = source.data.ids
    if (ids == np.arange(len(ids))).all():
        return {}
    return {"rows": ids[coreset.indices].tolist()}


def _report(source: Source, coreset: Coreset, written: list[Path]) -> list[str]:
    """The answer in words, a line each."""
    known = coreset.provenance
    lines = outcome(coreset)
    if known.classes and source.data.y is not None:
        lines.append(f"by class: {_by_class(known.classes, source.data.y[coreset.indices])}")
    lines.append(first_rows(coreset))
    for rows in _in_the_file(source, coreset).values():
        lines.append(f"in the file: {', '.join(map(str, rows[:MOST_ROWS]))}")
    return [*lines, *(f"written: {path}" for path in written)]


def _by_class(classes: tuple[Any, ...], labels: Array) -> str:
    counts = Counter(str(label) for label in labels.ravel().tolist())
    parts = [f"{label}: {counts.get(str(label), 0)}" for label in classes[:MOST_CLASSES]]
    return f"{', '.join(parts)}{' …' if len(classes) > MOST_CLASSES else ''}"
