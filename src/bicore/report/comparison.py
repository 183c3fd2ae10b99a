"""Compare methods on data; the result as a table, text, figure or page."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bicore._deprecated import renamed_keywords
from bicore._version import __version__
from bicore.data import Dataset
from bicore.defaults import MEMORIES, METHODS, SIZES
from bicore.errors import InputError, check_integer, check_type, shown, unknown_name
from bicore.evaluate.comparison import (
    BaseComparison,
    Comparison,
    Findings,
    Grid,
    Stream,
    StreamComparison,
    findings_of,
)
from bicore.evaluate.models import CLASSES, Judge, as_judge, measure_by
from bicore.evaluate.pools import MOST_POOL, Pools, as_source, make_pools
from bicore.evaluate.records import Entry, Records, digest, finite
from bicore.methods.base import Selector
from bicore.methods.names import as_kernel
from bicore.methods.registry import METHODS as KNOWN
from bicore.methods.registry import build_selector, parameters_of
from bicore.report.figures import draw_curves
from bicore.report.page_of_comparison import comparison_page
from bicore.runtime.clock import Clock, ProgressLine
from bicore.runtime.context import Runtime
from bicore.sources.base import Source
from bicore.streaming.registry import BUFFERS, build_buffer
from bicore.types import Labels, Numbers, PathLike, Rows, Weights

#: Methods and memories that need classes.
FOR_CLASSES = ("class-balanced", "prototypes")
#: Maximum size of a pool on which evaluation models are trained by default.
MOST_WHOLE = 5000


@renamed_keywords(score="metric", everything="full_pool", tell="callback")
def compare(
    x: Rows | Dataset | Source,
    y: Labels | None = None,
    sizes: Sequence[int] | None = None,
    methods: Sequence[str] | Mapping[str, Any] | str | None = None,
    seeds: int = 10,
    *,
    judge: str | Judge | Sequence[str | Judge] = "ridge",
    metric: str | None = None,
    steps: int = 1000,
    pool: int | None = None,
    test: int | tuple[Numbers, Labels] | Dataset | None = None,
    full_pool: bool = False,
    task: str = "auto",
    kernel: str = "auto",
    stream: Stream | None = None,
    sample_weight: Weights | None = None,
    columns: str | Sequence[str] | None = None,
    target: str | None = None,
    labels: Labels | os.PathLike[str] | None = None,
    records: PathLike | None = None,
    runtime: Runtime | None = None,
    callback: Callable[[BaseComparison, str], None] | None = None,
) -> ComparisonResult:
    """Compare selection methods on your data.

    Each seed draws a pool and test rows that no method sees. Every method selects from the same
    pool, and the evaluation models are trained from scratch on each selection. With ``stream``,
    memories are fed the same rows in the same order instead.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets); or a :class:`Dataset`, a path or a built-in name as x.
    sizes : sequence of int, optional
        Numbers of rows to select (default: 10, 50 and 100). A stream has positions instead.
    methods : sequence of str, mapping or "all", optional
        Names of ``bicore.methods.METHODS``, or selectors by name (default: bilevel, uniform,
        class-balanced, k-center, herding, and facility location per class). With ``stream``:
        names of ``bicore.streaming.BUFFERS``, or functions from a seed to a memory.
    seeds : int
        Number of repetitions, each with its own pool of rows.
    judge : str, Judge or sequence
        Evaluation models: names of ``bicore.evaluate.models.JUDGES``, or objects.
    metric : str, optional
        Metric of the table: "accuracy" (default) or "balanced"; for targets "r2" (default) or
        "mae".
    steps : int
        Training steps of a network.
    pool : int, optional
        Number of rows to select from (default: at most 2,000; all of a stream).
    test : int, tuple or Dataset, optional
        Number of test rows, or a separate test set (x, y) (default: a quarter of the rows).
    full_pool : bool
        Whether models are also trained on whole pools of more than 5,000 rows.
    task : {"auto", "classification", "regression"}
        Kind of labels.
    kernel : str
        Kernel of bilevel methods.
    stream : Stream, optional
        Compare memories of a stream: capacity, order, batch and number of evaluations.
    sample_weight : array, optional
        Weights of the rows in the selection.
    columns, target, labels : optional
        Columns and labels of a file, as in :func:`bicore.select`.
    records : path, optional
        A file, or a folder for files named after the settings: finished rows are written to it,
        and a later call continues. By default rows are kept in memory.
    runtime : Runtime, optional
        Device, limits of each selection, and progress.
    callback : callable, optional
        Receives the running comparison and the current step, first before any work.

    Returns
    -------
    ComparisonResult
        Prints as a table; has ``table``, ``plot``, ``to_html`` and ``as_dict``. An interrupted
        comparison has the rows that were finished.

    Raises
    ------
    InputError
        If an argument is invalid.

    Examples
    --------
    >>> import bicore, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(120, 3))
    >>> found = bicore.compare(x, x[:, 0] > 0, [5, 10], ["uniform", "k-center-features"], 2)
    >>> len(found.table)
    4
    """
    runtime = runtime or Runtime()
    models = check_request(sizes, methods, seeds, judge, steps, kernel, stream)
    source = as_source(x, y, sample_weight, runtime, columns=columns, target=target, labels=labels)
    most = MOST_POOL if stream is None else len(source.data)
    count, own = (test, None) if isinstance(test, int) else (None, test)
    own = Dataset(*own) if isinstance(own, tuple) else own
    pools = make_pools(source, own, task, pool, most, count)
    measure = measure_by(metric, pools.classification)
    for model in models:
        model.check(tuple(source.data.x.shape[1:]), pools.outputs)
    settings = _settings(pools, models, steps, kernel, stream)
    grid = _make_grid(pools, sizes, methods, kernel, stream, range(seeds))
    path = None if records is None else Path(records)
    if path is not None and path.is_dir():
        path = path / f"compare-{digest(settings)}.jsonl"
    kind = Comparison if stream is None else partial(StreamComparison, stream=stream)
    run = kind(pools, grid, models[0], Records(path, settings), runtime, others=models[1:])
    run.whole, run.majority = full_pool or pools.size <= MOST_WHOLE, True
    interrupted = _run(run, callback)
    return ComparisonResult(run, findings_of(run, measure), interrupted)


def check_request(
    sizes: Any, methods: Any, seeds: int, judge: Any, steps: int, kernel: str, stream: Any
) -> list[Judge]:
    """Check the arguments of :func:`compare` that need no data; return the evaluation models."""
    check_integer("seeds", seeds)
    check_integer("steps", steps)
    for name, given in (("sizes", sizes), ("methods", methods), ("judge", judge)):
        if hasattr(given, "__len__") and not len(given):
            raise InputError(f"{name} is empty; give at least one, or leave it out.")
    for size in () if sizes is None else sizes:
        check_integer("sizes", size)
    check_type("stream", stream, (Stream, type(None)), "a Stream, as in Stream(capacity=50)")
    if sizes is not None and stream is not None:
        raise InputError(f"sizes={sizes!r} does not apply to a stream; give Stream(points=…).")
    as_kernel(kernel)
    _resolve_methods(methods, stream)
    given = [judge] if isinstance(judge, str) or not hasattr(judge, "__iter__") else list(judge)
    models = [one if isinstance(one, Judge) else as_judge(one, steps) for one in given]
    _refuse_twice("judge", [one.name for one in models])
    return models


def _refuse_twice(argument: str, names: Sequence[str]) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise InputError(f"{argument} has {name} twice; name each once.")


def _resolve_methods(methods: Any, stream: Stream | None) -> Mapping[str, Any] | list[str] | None:
    """Return the methods as given: checked names, or objects by name; None for the defaults."""
    if methods is None or isinstance(methods, Mapping):
        for name, one in (methods or {}).items():
            if not (isinstance(one, Selector) if stream is None else callable(one)):
                words = "a selector" if stream is None else "a function from a seed to a memory"
                raise InputError(f"methods[{name!r}] must be {words}; got {shown(one)}.")
        return methods
    argument, known = "methods", list(KNOWN)
    if stream is not None:
        argument, known = "buffers", [one for one, kind in BUFFERS.items() if not kind.needs_model]
    given = [methods] if isinstance(methods, str) else list(methods)
    names = known if given == ["all"] else given
    _refuse_twice(argument, names)
    for name in names:
        check_type(argument, name, str, "a list of names, or a mapping of names to selectors")
        if stream is not None and name in BUFFERS and name not in known:
            raise InputError(f"{name} needs a network, and a comparison has none.")
        if name not in known:
            raise unknown_name(argument, name, known)
    return names


def _make_grid(
    pools: Pools, sizes: Any, methods: Any, kernel: str, stream: Stream | None, seeds: range
) -> Grid:
    named = _resolve_methods(methods, stream)
    if named is None:
        defaults = METHODS if stream is None else MEMORIES
        named = [one for one in defaults if pools.classification or one not in FOR_CLASSES]
    if stream is None:
        sizes = sorted(set(SIZES if sizes is None else sizes))
        for size in sizes:
            check_integer("sizes", size, 1, pools.size, "the rows not held out for tests")
    else:
        check_integer("capacity", stream.capacity, 1, pools.size - 1, "less than the stream")
        sizes = stream.positions(pools.size)
    if not isinstance(named, Mapping):
        named = {name: _make_method(name, kernel, stream) for name in named}
    return Grid(named, sizes, seeds)


def _make_method(name: str, kernel: str, stream: Stream | None) -> Any:
    """Return a selector, or a function from a seed to a memory of a stream."""
    own = {} if kernel == "auto" else {"kernel": kernel}
    if stream is None:
        bilevel = "bilevel" in name and "kernel" in parameters_of(name)
        return build_selector(name, **(own if bilevel else {}))
    merging = own and name == "merge-reduce"
    options = {"selector": build_selector("bilevel", **own)} if merging else {}
    return lambda seed: build_buffer(name, stream.capacity, seed, **options)


def _settings(
    pools: Pools, judges: list[Judge], steps: int, kernel: str, stream: Stream | None
) -> dict[str, Any]:
    """Return all settings that determine the values of rows."""
    # rows of earlier versions, with an untuned ridge model, differ
    tuned = {"ridge": "tuned"} if any(judge.name == "ridge" for judge in judges) else {}
    own = {} if stream is None else {"stream": asdict(replace(stream, points=1))}
    return {
        "version": __version__,
        "source": pools.source.name,
        "fingerprint": pools.source.data.fingerprint(),
        "judge": ",".join(judge.name for judge in judges),
        "steps": steps if any(judge.is_network for judge in judges) else None,
        **tuned,
        "pool": pools.size,
        "test": pools.test_size,
        "scale": pools.source.scale,
        "task": pools.targets.task,
        "kernel": kernel,
        **own,
    }


def _run(run: BaseComparison, callback: Callable[[BaseComparison, str], None] | None) -> bool:
    """Fill the grid with progress; return whether it was interrupted."""
    with ProgressLine(run.runtime.progress, Clock(), run.grid.cells(), "comparing") as line:

        def show(done: int, words: str) -> None:
            if callback is not None:
                callback(run, words)
            if words:
                line.update(done, words=words)

        run.callback = show
        try:
            run.say("")
            run.run()
        except KeyboardInterrupt:
            return True
    return False


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    """The result of :func:`bicore.compare`; it prints as a table.

    Parameters
    ----------
    run : Comparison or StreamComparison
        The comparison, with its rows, and ``failed``: why methods were left out.
    findings : list of Findings
        Summaries by evaluation model.
    interrupted : bool
        Whether the comparison ended early; the same call with ``records`` continues.

    Examples
    --------
    >>> import bicore, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(120, 3))
    >>> found = bicore.compare(x, x[:, 0] > 0, sizes=[5], methods=["uniform"], seeds=2)
    >>> print(str(found).splitlines()[0])
    accuracy of the ridge model, mean ± standard error over seeds
    """

    run: BaseComparison
    findings: list[Findings] = field(repr=False)
    interrupted: bool = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per evaluation model, method and size; numbers are None if unknown."""
        return [
            {"judge": found.judge.name, "score": found.measure.title, **row}
            for found in self.findings
            for row in found.rows()
        ]

    @property
    def table(self) -> Any:
        """:attr:`rows` as a frame of pandas or polars, or as they are without these libraries."""
        installed = [name for name in ("pandas", "polars") if find_spec(name)]
        # the library that the caller has imported comes first
        for name in sorted(installed, key=lambda name: name not in sys.modules):
            return import_module(name).DataFrame(self.rows)
        return self.rows

    def plot(self, path: PathLike | None = None) -> Any:
        """Draw the scores of the first evaluation model against size.

        Parameters
        ----------
        path : path, optional
            A PNG, PDF or SVG file to write, by its ending.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which a notebook shows.
        """
        run, first = self.run, self.findings[0]
        values = f"mean over {len(run.grid.seeds)} seeds ± standard error"
        title = f"{run.pools.source.name}, model {run.judge.name}: {values}"
        names = list(run.grid.methods)
        return draw_curves(first.summary, names, title, first.measure.title, path, run.along)

    @renamed_keywords()
    def to_html(self, path: PathLike, command: str = "") -> Path:
        """Write the comparison as one HTML file that needs no network.

        Parameters
        ----------
        path : path
            The file.
        command : str
            The command that repeats the comparison.

        Returns
        -------
        Path
            The file.
        """
        return comparison_page(self.run, self.findings, path, command=command)

    def as_dict(self) -> dict[str, Any]:
        """Return all results for JSON.

        Returns
        -------
        dict
            Rows, summaries by evaluation model, references and notes.
        """
        run, first = self.run, self.findings[0]
        path = run.records.path
        return {
            "source": run.pools.source.name,
            **run.facts(),
            "test": run.pools.test_size,
            "judge": run.judge.name,
            "score": first.measure.title,
            "rows": [run.result_to_json(one) for one in run.results()],
            **_view(first),
            "everything": _means(first.whole).get(first.measure.key),
            "judges": {
                one.judge.name: {
                    **_view(one),
                    "all_data": _means(one.whole),
                    "majority": _means(one.majority),
                }
                for one in self.findings
            },
            "notes": [one.note for one in self.findings if one.note],
            "failed": run.failed,
            "records": None if path is None else str(path),
            "version": __version__,
        }

    def __str__(self) -> str:
        return "\n\n".join("\n".join(_table(self.run, one)) for one in self.findings)

    def _repr_html_(self) -> str:
        return f'<pre class="bicore-comparison">{escape(str(self))}</pre>'


def _view(found: Findings) -> dict[str, Any]:
    detectable = found.summary.detectable
    return {
        "summary": [entry.as_json() for entry in found.summary.entries],
        "smallest_detectable": {str(size): finite(value) for size, value in detectable.items()},
        "worth": [
            {"method": method, "size": size, **equivalent.ends()}
            for (method, size), equivalent in found.worth.items()
        ],
    }


def _means(entries: dict[str, Entry]) -> dict[str, float]:
    return {key: entry.mean for key, entry in entries.items()}


def _table(run: BaseComparison, found: Findings) -> list[str]:
    """Return lines with the best method of the largest size first, then the references."""
    sizes = [size for size in run.grid.sizes if size in found.summary.detectable]
    if not sizes:
        return ["no results yet"]
    sign = -1 if found.measure.higher_is_better else 1
    ranked = sorted(found.summary.entries, key=lambda one: (-one.size, sign * one.mean))
    names = list(dict.fromkeys(one.method for one in ranked))
    plain = "majority class" if run.pools.classification else "mean of the targets"
    entries = {f"all data ({run.pools.size})": found.whole, plain: found.majority}
    key = found.measure.key
    references = {name: own[key] for name, own in entries.items() if key in own}
    width = max(len(name) for name in [*names, *references]) + 2
    head = "".join(f"{f'{size} rows':>20}" for size in sizes)
    judge = found.judge.title(run.pools.classification)
    return [
        f"{found.measure.title} of the {judge} model, mean ± standard error over seeds",
        f"{'':<{width}}{head}{'seconds':>12}{'  worth' if found.worth else ''}",
        *(f"{name:<{width}}{_line(found, name, sizes)}" for name in names),
        *(f"{name:<{width}}{_value(entry):>18}" for name, entry in references.items()),
        "",
        *_legend(run, found, sizes),
    ]


def _line(found: Findings, name: str, sizes: list[int]) -> str:
    """Return the line of a method without its name: scores, seconds of the largest size, worth."""
    entries = [found.summary.of(name, size) for size in sizes]
    last = next(entry for entry in reversed(entries) if entry is not None)
    model = f" + {last.model_seconds:.1f}" if last.model_seconds else ""
    worth = " / ".join(one.short() for (method, _), one in found.worth.items() if method == name)
    cells = "".join(f"{_cell(entry):>20}" for entry in entries)
    return f"{cells}{last.seconds:>12.3g}{model}{f'  {worth}' if worth else ''}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "—"
    missing = " " if entry.complete else f"({entry.seeds})"
    mark = "★" if entry.best else "≈" if entry.tied else missing
    return f"{_value(entry)} {mark}"


def _value(entry: Entry) -> str:
    error = f" ± {entry.error:.4f}" if math.isfinite(entry.error) else ""
    return f"{entry.mean:.4f}{error}"


def _legend(run: BaseComparison, found: Findings, sizes: list[int]) -> list[str]:
    entries, detectable = found.summary.entries, found.summary.detectable
    marks = "★ best mean; ≈ no significant difference from the best (paired, 95%)"
    lines = [f"{marks}; seconds: {run.seconds_of}"]
    if any(entry.model_seconds for entry in entries):
        lines.append("+ seconds: training the model that the method needs, once per pool")
    if any(not entry.complete for entry in entries):
        lines.append("(n): only n seeds are finished, so the mean is not compared with others")
    known = {size: detectable[size] for size in sizes if 0 < detectable[size] < math.inf}
    if known:
        most = 1 if found.measure in CLASSES else math.inf
        differences = ", ".join(
            f"{f'{value:.4f}' if value <= most else 'none'} at {size}"
            for size, value in known.items()
        )
        what = "smallest difference these seeds can detect (95% confidence, 80% power)"
        lines.append(f"{what}: {differences} rows")
    elif all(entry.seeds < 2 for entry in entries):
        lines.append("one seed cannot show differences; give 5 seeds or more")
    if found.worth:
        equal = "worth: the number of random rows with the same mean score, interpolated between"
        more = "(bicore worth is more precise and gives an interval)"
        lines.append(f"{equal} the compared sizes {more}")
    return lines
