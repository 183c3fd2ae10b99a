"""The verbs that select rows: ``select``, ``estimate``, ``query`` and ``contexts``."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bicore.cli import options as cli
from bicore.cli.terminal import exit_on_interrupt, print_answer, print_json, print_note
from bicore.errors import InputError, check_integer

if TYPE_CHECKING:
    from bicore.evaluate.worth import Appraisal
    from bicore.methods.large import Estimate
    from bicore.runtime.context import Runtime
    from bicore.sources.base import Source

#: Files that can be read in parts, and the options that apply only to them.
ENDINGS = (".npy", ".npz", ".parquet", ".pq")
OF_PARTS = ("outer", "passes", "state", "executor", "skip_bad")
#: Arguments of :func:`bicore.select` that are not options of a method.
OF_SELECT = ("size", "method", "model", "random_state", "exact", "initial", "tolerance", *OF_PARTS)


@dataclass(frozen=True)
class Rows(cli.Data):
    """A source to select from.

    Attributes
    ----------
    source
        digits, mnist, cifar10, a file (.npz, .npy, .csv, .tsv, .txt, .json, .jsonl, .parquet,
        .feather, .arrow; text also .gz, .bz2, .zst, .zip), a folder of images, a folder or
        'pattern' of .npy, .npz or .parquet files, or - (CSV on standard input).
    resize
        Resize images to N×N (default: 32 if their sizes differ).
    sample_weight
        Column (or .npz array) of row weights.
    """

    resize: int | None = cli.option("N", advanced=True)
    sample_weight: str | None = cli.option(
        "COLUMN", name="--sample-weight --data-weights", advanced=True
    )

    def in_parts(self, options: dict[str, Any], runtime: Runtime) -> bool:
        """Whether the source is a set of shards, or a file read in parts."""
        path = Path(self.source)
        asked = [name for name in OF_PARTS if name in options]
        if path.is_dir():
            found = _holds_shards(path)
        elif path.suffix.lower() in ENDINGS and path.is_file():
            found = bool(asked) or path.stat().st_size > runtime.memory_bytes()
        else:
            found = glob.has_magic(self.source) and not path.exists()
        if asked and not found:
            given = cli.as_words(asked[0], options[asked[0]])
            kinds = "a .npy, .npz or .parquet file, a folder or a pattern of them as SOURCE"
            raise InputError(f"{given} needs {kinds}; got {self.source}. Omit the option.")
        return found

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`bicore.select` for rows in parts; refuse other options."""
        names = ("columns", "target", "labels", "scale", "drop", "decimal", "missing")
        own = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        known = (*own, "source", "sample_weight")
        _refuse_for_parts(self, {k: v for k, v in vars(self).items() if k not in known})
        return {"x": self.source, "sample_weight": self.sample_weight, **own}


def _refuse_for_parts(rows: Rows, given: dict[str, Any]) -> None:
    """Refuse options that need all rows in memory."""
    for name, value in given.items():
        if value is not None and value is not False:
            wrong = f"{cli.as_words(name, value)} needs all rows in memory"
            fix = "omit it, or select from a sample of the rows"
            raise InputError(f"{wrong}, and {rows.source} is read in parts; {fix}.")


@dataclass(frozen=True)
class Method:
    """The method, the size of the coreset, and the model it is selected for.

    Attributes
    ----------
    size
        Number of rows to select: a count, a fraction (0.05), 5%, or auto (until the
        loss is close to that of all rows, see --tolerance).
    method
        Selection method that needs no trained network (see compare --list).
    model
        Model that will be trained: {MODELS} (default: any).
    kernel
        Kernel: auto (default), ntk, nngp, cntk, resnet18, pooled-cntk, rbf,
        exponential, laplace, linear or polynomial.
    loss
        Loss: squared (default), cross-entropy or logistic.
    weighting
        Weights of the selected rows: uniform (default), final (optimised once, at the
        end) or learned (optimised after every row).
    inner_reg
        Regularisation ρ: auto (default), learned, a number, relative:SHARE of the mean
        of k(x,x) or per-point:NUMBER (multiplied by the number of selected rows).
    task
        Task: auto (default), classification or regression.
    prior
        Weight of classes: data (default), equal, or LABEL=SHARE,… for each class.
    quotas
        Maximum number of rows per class, LABEL=COUNT,…; or balanced (the classes take
        turns).
    random_state
        Seed for all random draws.
    """

    panel: ClassVar[str] = "Method"
    size: str = cli.option("M", default=MISSING)
    method: str = cli.option("NAME", default="bilevel")
    model: str | None = cli.option("NAME")
    kernel: str | None = cli.option("NAME")
    loss: str | None = None
    weighting: str | None = cli.option(name="--weighting --weights", advanced=True)
    inner_reg: str | None = cli.option("REG", advanced=True)
    task: str | None = cli.option(advanced=True)
    prior: str | None = cli.option("PRIOR", advanced=True)
    quotas: str | None = cli.option("QUOTAS")
    random_state: int = cli.option(default=0, name="--random-state --seed")


@dataclass(frozen=True)
class Advanced:
    """The search, and rows in parts.

    Attributes
    ----------
    exact
        Use all rows (default: a sample of large data).
    rule
        Score of a row: auto (default), gradient, gain, first-order or reducible.
    strategy
        Search: auto (default), greedy, batches, exchange, elimination or simplex.
    smooth_labels
        Smooth labels with leave-one-out predictions: yes, no or auto (default; may
        exclude rows whose label contradicts the prediction).
    candidates
        Score N random rows at each step instead of all rows.
    tolerance
        With --size auto: accepted excess of the loss over that of all rows (default:
        0.02, 2%).
    initial
        Continue a coreset of the same data.
    outer
        With .npy, .npz or .parquet files: rows on which the objective is measured
        (X.npy,Y.npy for features and labels).
    passes
        With .npy, .npz or .parquet files: read all rows instead of a sample.
    state
        With --passes: folder to continue from if stopped.
    executor
        With --passes: address of a Dask scheduler, tcp://…
    skip_bad
        With --passes: exclude rows that are not finite.
    """

    panel: ClassVar[str] = cli.ADVANCED
    exact: bool = False
    rule: str | None = None
    strategy: str | None = None
    smooth_labels: str | None = None
    candidates: int | None = cli.option("N")
    tolerance: float | None = cli.option("SHARE")
    initial: Path | None = cli.option("FILE.npz")
    outer: str | None = cli.option("FILE")
    passes: bool = False
    state: Path | None = cli.option("DIR")
    executor: str | None = cli.option("ADDRESS", name="--executor --dask")
    skip_bad: bool = False


@dataclass(frozen=True)
class Limits(cli.Limits):
    """The limits of a selection.

    Attributes
    ----------
    dtype
        Precision: float64 or float32.
    max_seconds
        Stop after S seconds and return the rows selected so far.
    """

    dtype: str = cli.option(default="float64", advanced=True)
    max_seconds: float | None = cli.option("S")


@dataclass(frozen=True)
class Answer(cli.Files):
    """How the selection is printed and written.

    Attributes
    ----------
    out
        Write the coreset (.npz), the rows (.csv, .parquet), or images to a new folder.
    picture
        Draw the selected rows.
    report
        Write a self-contained HTML report (works offline).
    no_worth
        Omit the number of random rows with the same score, and the scores by size, from
        the report.
    dry_run
        Print the expected time and memory, and stop.
    """

    out: Path | None = cli.option("FILE")
    picture: Path | None = cli.option("FILE.png")
    report: Path | None = cli.option("FILE.html")
    no_worth: bool = cli.option(default=False, advanced=True)
    dry_run: bool = cli.option(default=False, advanced=True)

    def check(self, **endings: tuple[str, ...]) -> None:
        """Refuse files that cannot be written, and a folder that exists."""
        if self.out is not None and not self.out.suffix:
            cli.check_folder(self.out)
        else:
            endings["out"] = (".npz", ".csv", ".parquet")
        super().check(**endings)


def select(rows: Rows, method: Method, limits: Limits, output: Answer, search: Advanced) -> None:
    """Select the rows that train a model almost as well as all rows.

    Example: bicore select table.csv --target label --size 5% --out picks.csv
    """
    with exit_on_interrupt():
        from bicore import api
        from bicore.cli.answer import finish
    options = _options(method, search)
    output.check()
    runtime = limits.runtime(progress=not output.quiet)
    source, arguments = _open(rows, options, runtime, output)
    if output.dry_run:
        _estimate(arguments, runtime, output)
        return
    if search.initial is not None and source is not None:
        rows_before, count = arguments["initial"].provenance.rows, len(source.data)
        if rows_before not in (None, count):
            wrong = f"--initial {search.initial} was selected from {rows_before} rows"
            fix = "give the SOURCE from which it was selected, or leave --initial out"
            raise InputError(f"{wrong}, and {rows.source} has {count}; {fix}.")
    appraise = None
    if source is not None and output.report is not None and not output.no_worth:
        appraise = _make_appraiser(rows, source, arguments, runtime)
    try:
        coreset = api.select(**arguments, runtime=runtime)
    except KeyboardInterrupt:
        if search.state is not None:
            print_note(f"bicore: finished passes are kept in {search.state}.")
        raise
    name = rows.source if source is None else source.name
    finish(name, source, coreset, output, appraise, search.state)


def estimate(
    rows: Rows, method: Method, limits: Limits, output: cli.Output, search: Advanced
) -> None:
    """Estimate the time and memory of a selection.

    It takes the options of bicore select, except those that write files.

    Example: bicore estimate 'part-*.parquet' --columns embedding --target label --size 10000
    """
    with exit_on_interrupt():
        import bicore.api  # noqa: F401
    runtime = limits.runtime()
    _estimate(_open(rows, _options(method, search), runtime, output)[1], runtime, output)


def _options(method: Method, advanced: Advanced) -> dict[str, Any]:
    """Return the arguments of :func:`bicore.select` for the given options; refuse invalid ones."""
    from bicore.api import options_for_model, refuse_tolerance
    from bicore.arguments import as_seed
    from bicore.coreset import Coreset
    from bicore.methods.registry import build_selector

    cli.check_method(method.method)
    given = {**vars(method), **vars(advanced)}
    options = {name: one for name, one in given.items() if one is not None and one is not False}
    options["size"] = cli.read_size(method.size)
    options["random_state"] = as_seed(method.random_state)
    refuse_tolerance(options["size"], advanced.tolerance)
    if advanced.smooth_labels in ("yes", "no"):
        options["smooth_labels"] = advanced.smooth_labels == "yes"
    if method.quotas is not None:
        options["quotas"] = cli.read_shares("--quotas", method.quotas, int)
    if method.prior is not None:
        options["prior"] = cli.read_shares("--prior", method.prior, float)
    if method.inner_reg is not None:
        options["inner_reg"] = cli.read_regulariser(method.inner_reg)
    if advanced.outer is not None and "," in advanced.outer:
        options["outer"] = tuple(advanced.outer.split(","))
    if advanced.initial is not None:
        if not advanced.initial.exists():
            raise InputError(f"--initial {advanced.initial} does not exist; check the name.")
        options["initial"] = Coreset.load(advanced.initial)
    # unknown names and values are refused before anything is read
    own = options_for_model(method.model or "any", method.method, _of_method(options))
    build_selector(method.method, **own)
    return options


def _of_method(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in (*OF_SELECT, "x")}


def _open(
    rows: Rows, options: dict[str, Any], runtime: Runtime, output: cli.Output
) -> tuple[Source | None, dict[str, Any]]:
    """Return the source (None for rows in parts) and the arguments of :func:`bicore.select`."""
    from bicore.arguments import as_size

    out: Path | None = getattr(output, "out", None)
    rows_out = out if out is not None and out.suffix.lower() != ".npz" else None
    if rows.in_parts(options, runtime):
        files = {name: getattr(output, name, None) for name in ("picture", "report")}
        _refuse_for_parts(rows, {**files, "out": rows_out})
        return None, {**options, **rows.arguments()}
    source = rows.open(memory=runtime.memory, needs_target=False)
    if rows_out is not None and source.table is None:
        raise InputError(f"--out {out}: {source.name} is not a table; use .npz.")
    if rows_out is not None and not rows_out.suffix and source.root is None:
        raise InputError(f"--out {out}: only images can be copied to a folder; use .npz or .csv.")
    if isinstance(options.get("quotas"), dict) and source.data.y is not None:
        labels = {str(one): one for one in source.data.y.ravel().tolist()}
        options["quotas"] = {labels.get(str(k), k): v for k, v in options["quotas"].items()}
    if options["size"] != "auto":
        as_size(options["size"], len(source.data))  # before anything is printed
    shape = "×".join(map(str, source.data.x.shape[1:]))
    output.print_note(f"{source.name}: {len(source.data)} rows of {shape} features")
    output.print_note(*(f"  {note}" for note in source.notes))
    return source, {**options, "x": source.data}


def _make_appraiser(
    rows: Rows, source: Source, arguments: dict[str, Any], runtime: Runtime
) -> Callable[[Any], Appraisal] | None:
    """Return a function that evaluates chosen rows, or None if the report cannot have an
    evaluation."""
    from bicore.api import options_for_model
    from bicore.evaluate.worth import Appraisal
    from bicore.methods.registry import build_selector

    method, size = arguments["method"], arguments["size"]
    own = options_for_model(arguments.get("model", "any"), method, _of_method(arguments))
    test = None if source.scale == "standard" else rows.open_test()
    make = partial(
        Appraisal,
        source,
        test=None if test is None else test.data,
        runtime=runtime,
        method=build_selector(method, **own),
        task=own.get("task", "auto"),
        exact=arguments.get("exact", False),
    )
    try:
        if "initial" in arguments:
            raise InputError("--initial cannot be used when rows are held out.")
        make(chosen=1 if size == "auto" else size)  # raises errors before the selection
    except InputError as error:
        print_note(f"bicore: the report omits the worth of the rows: {error}")
        return None
    return lambda coreset: make(chosen=coreset)


def _estimate(arguments: dict[str, Any], runtime: Runtime, output: cli.Output) -> None:
    """Print the expected time and memory of a selection."""
    from bicore import api

    unused = ("random_state", "initial", "tolerance", "state", "executor")
    used = {name: value for name, value in arguments.items() if name not in unused}
    found = api.estimate(**used, runtime=runtime)
    if output.json:
        print_json(asdict(found if found.passes is None else found.passes))
    else:
        print_answer(*_describe(found))


def _describe(found: Estimate) -> list[str]:
    from bicore.cli.show import MATRIX_FORMS
    from bicore.methods.large import human_seconds
    from bicore.runtime.context import human_bytes

    if found.seconds is None:
        return ["no estimate for this method; bicore.estimate covers bilevel methods"]
    plan = found.passes
    if plan is None:
        memory = f", {human_bytes(found.bytes)} in addition to the data" if found.bytes else ""
        form = MATRIX_FORMS.get(str(found.operator), found.operator)
        held = "" if form is None else f" (kernel matrix: {form})"
        return [f"about {human_seconds(found.seconds)}{memory}{held}"]
    return [
        f"{plan.size} of {plan.rows} rows, {plan.parts} parts",
        f"{plan.passes} passes, {human_bytes(plan.bytes_read)} read, "
        f"{plan.operations:.3g} multiply-adds, moments of {plan.width} × {plan.width}",
        f"threads: {plan.workers}, about {human_seconds(plan.seconds)}, "
        f"{human_bytes(plan.bytes)} of memory",
    ]


def _holds_shards(folder: Path) -> bool:
    """Whether a folder holds shards and no images; a folder of images may hold an array too."""
    from bicore.sources import images
    from bicore.sources.reading import files_below

    endings = {path.suffix.lower() for path in files_below(folder)}
    return not endings.isdisjoint(ENDINGS) and endings.isdisjoint(images.ENDINGS)


@dataclass(frozen=True)
class PartlyLabelled(cli.Data):
    """A table in which some labels are missing.

    Attributes
    ----------
    source
        Table file, such as .csv, .jsonl or .parquet.
    """


@dataclass(frozen=True)
class Batch:
    """The rows to select.

    Attributes
    ----------
    size
        Number of rows to label next.
    classes
        Comma-separated labels that annotators may give; others are refused (default:
        any).
    random_state
        Seed for all random draws.
    """

    panel: ClassVar[str] = "Method"
    size: int = cli.option("N", default=MISSING)
    classes: str | None = cli.option("LABELS")
    random_state: int = cli.option(default=0, name="--random-state --seed")


@dataclass(frozen=True)
class NextRows(cli.Files):
    """How the rows are printed and written.

    Attributes
    ----------
    out
        Write the selected rows with all columns (.csv, .parquet).
    """

    out: Path | None = cli.option("FILE")


def query(rows: PartlyLabelled, batch: Batch, limits: cli.Limits, output: NextRows) -> None:
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
    if rows.drop_missing_target:
        raise InputError("--drop-missing-target would exclude the rows to label; omit it.")
    known = replace(rows, drop_missing_target=True).open().data
    dropped = ",".join(filter(None, (rows.drop, rows.target)))
    source = replace(rows, target=None, drop=dropped).open(needs_target=False)
    free = np.setdiff1d(np.arange(len(source.data)), known.ids)
    if not len(free):
        raise InputError(f"--target {rows.target} has no empty cell; no row is left to label.")
    check_integer("--size", batch.size, most=len(free), fix="the number of rows without a label")
    y = np.asarray(known.y)
    # compared as text, because the labels may be numbers
    wrong = np.isin(y.astype(str), cli.read_names(batch.classes or ""), invert=True)
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


@dataclass(frozen=True)
class Contexts:
    """The contexts to select.

    Attributes
    ----------
    size
        Number of rows of each context.
    contexts
        Number of contexts.
    random_state
        Seed for all random draws.
    exact
        Use all rows (default: a sample of large data).
    """

    panel: ClassVar[str] = "Method"
    size: int = cli.option("M", default=MISSING)
    contexts: int = cli.option("N", default=8)
    random_state: int = cli.option(default=0, name="--random-state --seed")
    exact: bool = False


@dataclass(frozen=True)
class ContextFile(cli.Files):
    """How the contexts are printed and written.

    Attributes
    ----------
    out
        Write a list of row numbers for each context (.json; the first row is 0), or the
        rows with the number of their context (.csv, .parquet).
    """

    out: Path | None = cli.option("FILE")


def contexts(rows: cli.Data, wanted: Contexts, limits: cli.Limits, output: ContextFile) -> None:
    """Select small training sets for TabPFN and similar models.

    Each set is called a context. Fit one model to each context and average their predictions.

    Example: bicore contexts table.csv --target label --size 200 --out contexts.json
    """
    with exit_on_interrupt():
        from bicore import api
        from bicore.cli.answer import shorten
        from bicore.files import replacing
    output.check(out=(".json", ".csv", ".parquet"))
    source = rows.open(memory=limits.memory)
    x, y, count = source.data.x, source.data.y, len(source.data)
    if y is None:
        raise InputError(f"{source.name} has no labels or targets, which contexts need.")
    check_integer("--size", wanted.size, most=count, fix="the number of rows")
    check_integer("--contexts", wanted.contexts, most=count, fix="the number of rows")
    if output.out is not None and output.out.suffix.lower() != ".json" and source.table is None:
        raise InputError(f"--out {output.out}: {source.name} is not a table; use .json.")
    shape = "×".join(map(str, x.shape[1:]))
    output.print_note(f"{source.name}: {count} rows of {shape} features")
    output.print_note(*(f"  {note}" for note in source.notes))
    found = api.contexts(
        x,
        y,
        wanted.size,
        wanted.contexts,
        random_state=wanted.random_state,
        runtime=limits.runtime(progress=not output.quiet),
        exact=wanted.exact,
    )
    answer = {"contexts": [one.tolist() for one in found], "size": wanted.size, "n": count}
    if output.out is not None:
        try:
            with replacing(output.out, overwrite=output.force) as path:
                _save_contexts(path, source, found)
        except OSError:  # the contexts may have taken long
            print_json(answer)
            raise
    if output.json:
        print_json(answer)
        return
    if output.out is None:
        rows_of = (f"context {k}: rows {shorten(one)}" for k, one in enumerate(found, 1))
        print_answer(*rows_of)
    if not output.quiet:
        place = "" if output.out is None else f", written to {output.out}"
        print_answer(f"{len(found)} contexts of {wanted.size} of {count} rows{place}")


def _save_contexts(path: Path, source: Source, found: list[Any]) -> None:
    """Write row numbers, or the rows of a table with the number of their context."""
    import numpy as np

    from bicore.sources import tables

    if path.suffix.lower() == ".json":
        path.write_text(json.dumps([one.tolist() for one in found]))
    else:
        which = np.repeat(np.arange(1, len(found) + 1), [len(one) for one in found])
        tables.write_rows(path, source.table, np.concatenate(found), which, "context")
