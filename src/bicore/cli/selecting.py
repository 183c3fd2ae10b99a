"""What ``bicore select`` does: options that fit a method, the selection, and its answer."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from bicore.cli.answering import (
    MOST_ROWS,
    Outputs,
    Written,
    answer,
    command,
    continuation,
    first_rows,
    free_name,
    outcome,
)
from bicore.cli.appraising import appraise, told
from bicore.cli.appraising import report as sentences
from bicore.cli.report import say_price, write_selection
from bicore.cli.starting import EXIT_INTERRUPTED
from bicore.cli.telling import say, say_json, tell
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset
from bicore.errors import BicoreError, InputError, LargeDataWarning, unknown_name
from bicore.evaluate.worth import Appraisal
from bicore.report.figures import draw
from bicore.runtime import Context, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.from_shards import Asked, asked
from bicore.selectors.large import Decision, Large, decided
from bicore.selectors.names import as_kernel
from bicore.selectors.quality_curve import select_sized
from bicore.selectors.reconstruction import Reconstruction
from bicore.selectors.registry import METHODS, as_selector, parameters_of
from bicore.sources.base import Source
from bicore.sources.tables import write_rows

#: Methods that need no network: the command has none to give them.
CHOICES = tuple(name for name in METHODS if not as_selector(name).needs_model)
#: How far above the full model's loss a size that is found may end, where nothing else is said.
TOLERANCE = 0.02
#: How many classes a report lists.
MOST_CLASSES = 20
#: What an answer holds where the rows were not judged to the end.
UNJUDGED: dict[str, Any] = {"worth": None}


@dataclass(frozen=True)
class Appraiser:
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
        self.of(1 if size == "auto" else size)

    def of(self, chosen: Any) -> Appraisal:
        """The appraisal of a coreset, or of a size."""
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


def asked_of_parts(
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


def check_worth(worth: bool, judge: str | None, initial: Path | None) -> None:
    if judge is not None and not worth:
        raise InputError(f"--judge {judge} goes with --worth; add it, or leave --judge out.")
    if worth and initial is not None:
        raise InputError(
            f"--worth repeats the selection on a part of the rows, and --initial {initial} cannot "
            "be repeated there; leave one of them out."
        )


def check_method(method: str) -> None:
    if method in METHODS and method not in CHOICES:
        raise InputError(
            f"--method {method} looks at a trained network, and the command has none; call "
            f"bicore.select(…, method={method!r}, model=…) from Python, or see it at work in "
            "bicore compare."
        )
    if method not in METHODS:
        raise unknown_name("method", method, CHOICES)


def given(**options: Any) -> dict[str, Any]:
    """The options that stand in the command."""
    return {name: value for name, value in options.items() if value is not None}


def _ours(method: str) -> bool:
    """Whether it has a kernel and a regulariser to choose."""
    return METHODS[method][0] in (BilevelSelector, Reconstruction)


def check_options(method: str, given: dict[str, Any]) -> None:
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


def options(method: str, given: dict[str, Any], regulariser: Any, source: Source) -> dict[str, Any]:
    """The parameters of the selector."""
    if not _ours(method):
        return {}
    options = {name: value for name, value in given.items() if name != "tolerance"}
    if "kernel" in given:
        options["kernel"] = as_kernel(given["kernel"])
    if "quotas" in given:
        options["quotas"] = _quotas(given["quotas"], source)
    options["inner_reg"] = regulariser
    return options


def _quotas(text: str, source: Source) -> Any:
    """balanced, or counts by the labels of the source, as these are written."""
    if "=" not in text:
        return text
    labels = {} if source.data.y is None else {str(one): one for one in np.unique(source.data.y)}
    counts: dict[Any, int] = {}
    for part in text.split(","):
        label, _, count = part.rpartition("=")
        if label not in labels:
            raise unknown_name("the class in --quotas", label, list(labels)[:MOST_CLASSES])
        try:
            counts[labels[label].item()] = int(count)
        except ValueError:
            raise InputError(
                f"--quotas {text!r}: {part!r} is no LABEL=COUNT; for example cat=20,dog=5."
            ) from None
    return counts


def decision_for(selector: Selector, source: Source, large: Large) -> Decision:
    """Apply the library's rule for large data, in the words of the command."""
    found = decided(selector, source.data, large)
    note = None if found.note is None else found.note.replace("large='exact'", "--exact")
    return replace(found, note=note)


def initial(path: Path | None, source: Source) -> Coreset | tuple[int, ...]:
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


def introduce(source: Source, notes: list[str]) -> None:
    n = len(source.data)
    shape = "×".join(map(str, source.data.x.shape[1:]))
    tell(f"{source.name}: {n} points of {shape} features")
    for note in notes:
        tell(f"  {note}")


def selected(
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
        tell("bicore: interrupted before the first point; there is nothing to keep.")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def finish(
    source: Source,
    coreset: Coreset,
    notes: list[str],
    outputs: Outputs,
    appraiser: Appraiser | None,
) -> None:
    """Write files first, words after, and what the rows are worth last.

    An interrupted run keeps its prefix even when no file was asked for.
    """
    stopped = coreset.status is Status.INTERRUPTED
    kept = outputs.out
    if kept is None and stopped:
        kept = free_name(Path("bicore-partial.npz"))
    story = _with_story(source, coreset, notes)
    written = Written(story, outputs.force)
    written.write(kept, lambda path: _keep(source, story, path), holds=True)
    written.write(outputs.picture, lambda path: draw(source, coreset, path))
    with written.or_rescued():
        if not outputs.as_json and (not outputs.quiet or outputs.out is None):
            say(*_report(source, coreset, written.paths))
        appraisal = None if appraiser is None or stopped else appraiser.of(coreset)
        judged = {} if appraisal is None else _judged(appraisal, coreset, outputs)
        if outputs.report is not None and judged != UNJUDGED:
            page = outputs.report
            written.write(
                page, lambda path: write_selection(source, coreset, notes, appraisal, path)
            )
            if page in written.paths and not outputs.as_json and not outputs.quiet:
                say(f"written: {page}")
        if outputs.as_json:
            say_json({**answer(coreset), **_in_the_file(source, coreset), **judged})
    written.end(outputs.as_json)
    if judged == UNJUDGED:
        tell("bicore: interrupted while judging; the selection is whole.")
        raise typer.Exit(EXIT_INTERRUPTED)
    if stopped and kept is not None:
        tell(
            f"bicore: {coreset.message}; kept in {kept}. To go on: {continuation(kept)} (with "
            "another --out, or --force)"
        )
        raise typer.Exit(EXIT_INTERRUPTED)


def _judged(appraisal: Appraisal, coreset: Coreset, outputs: Outputs) -> dict[str, Any]:
    """What the rows are worth, printed unless it is to be JSON."""
    say_price(appraisal, outputs.report, outputs.quiet)
    try:
        with warnings.catch_warnings():  # what stands in for too much work is known
            warnings.simplefilter("ignore", LargeDataWarning)
            found = told(appraisal, outputs.quiet)
    except BicoreError:
        if outputs.as_json:  # the points come first, whatever becomes of their judge
            say_json({**answer(coreset), **UNJUDGED})
        raise
    if found is None:
        return UNJUDGED
    if not outputs.as_json:
        say(*sentences(found))
    return {"worth": found.as_dict()}


def _with_story(source: Source, coreset: Coreset, notes: list[str]) -> Coreset:
    """The coreset that says where its points came from and how to make it again."""
    every = (*notes, *coreset.provenance.notes, f"To make it again: {command()}")
    known = {"source": source.name, "scale": source.scale, **_in_the_file(source, coreset)}
    return coreset.annotated({"notes": every}, **known)


def _keep(source: Source, coreset: Coreset, path: Path) -> None:
    """A coreset file, or rows."""
    if path.suffix.lower() != ".npz":
        write_rows(path, source.table, coreset.indices, coreset.weights)
    else:
        coreset.save(path)


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
