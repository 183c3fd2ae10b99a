"""Functions on arrays, tables and files: select, estimate, reweight, influence and contexts."""

from __future__ import annotations

import glob
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from numbers import Real
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, cast

import numpy as np
import torch

from bicore import frames
from bicore._deprecated import renamed_keywords
from bicore.arguments import Relative, as_size
from bicore.bilevel.contract import Rule
from bicore.bilevel.kernel_choice import WIDE, AutomaticKernel
from bicore.bilevel.outer_targets import OuterTargets
from bicore.bilevel.prepare import read_labels
from bicore.bilevel.problem import Regulariser
from bicore.bilevel.solvers.inner import InnerSolver, LinearSolver
from bicore.bilevel.strategies.base import Strategy, UnsetStrategy
from bicore.bilevel.weights import WeightMode, WeightOptimiser
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError, LargeDataWarning, check_integer, shown
from bicore.kernels.base import Kernel
from bicore.losses import Loss
from bicore.methods.base import Selector
from bicore.methods.baselines.simple import ClassBalanced
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.large import Estimate, estimate_selection, make_feasible
from bicore.methods.quality_curve import select_smallest
from bicore.methods.registry import build_selector, parameters_of
from bicore.networks.loading import is_torch_data
from bicore.networks.observe import Observed
from bicore.params import is_same
from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime
from bicore.types import Label, Labels, Matrix, Numbers, Outer, PathLike, RandomState, Rows, Weights

if TYPE_CHECKING:
    from bicore.methods.passes import RowsInParts
    from bicore.shards.executors import Executor

#: Default methods for rows without labels: for wide rows such as embeddings, for others, and for
#: requests that need a bilevel problem.
LABEL_FREE_WIDE, LABEL_FREE, LABEL_FREE_BILEVEL = "k-medoids", "facility-location", "reconstruction"
NO_LABELS = (
    "labels: none are given, so method={!r} is used; give y (target=… or labels=…) to select rows "
    "that predict them"
)
#: Arguments of ``select`` itself; the others are options of the method or of the source.
OWN = {
    *("x", "y", "size", "indices", "coreset", "sample_weight", "outer", "initial", "start"),
    *("random_state", "runtime", "method", "model", "tolerance", "exact"),
}

P = ParamSpec("P")
R = TypeVar("R")


class ModelOptions(TypedDict, total=False):
    """The kernel model that rows are selected for, as in :class:`BilevelSelector`."""

    kernel: str | Kernel | Callable[..., Any]
    loss: str | Loss | Callable[..., Any]
    outer_loss: str | Loss | Callable[..., Any] | None
    inner_reg: str | float | Regulariser | Relative
    task: str
    classes: Sequence[Label] | None
    smooth_labels: bool | str | OuterTargets
    prior: str | Mapping[Any, float]
    intercept: float | str
    inner: InnerSolver | None
    linear: LinearSolver | None
    optimiser: WeightOptimiser | None


class SelectorOptions(ModelOptions, total=False):
    """The kernel model and the search, as in :class:`BilevelSelector`."""

    weighting: str
    rule: str | Rule
    strategy: str | Strategy
    candidates: int | None
    first: str
    quotas: str | Mapping[Any, int] | None


@renamed_keywords()
def select(
    x: Rows | Dataset,
    y: Labels | None = None,
    size: int | float | str = 100,
    *,
    sample_weight: Weights | None = None,
    outer: Outer | Dataset | None = None,
    initial: Coreset | Sequence[int] = (),
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    model: str | torch.nn.Module | Observed | None = None,
    tolerance: float | None = None,
    exact: bool = False,
    kernel: str | Kernel | Callable[..., Any] = "auto",
    loss: str | Loss | Callable[..., Any] = "squared",
    outer_loss: str | Loss | Callable[..., Any] | None = None,
    inner_reg: str | float | Regulariser | Relative = "auto",
    task: str = "auto",
    classes: Sequence[Label] | None = None,
    smooth_labels: bool | str | OuterTargets = "auto",
    prior: str | Mapping[Any, float] = "data",
    intercept: float | str = "auto",
    inner: InnerSolver | None = None,
    linear: LinearSolver | None = None,
    optimiser: WeightOptimiser | None = None,
    weighting: str = "uniform",
    rule: str | Rule = "auto",
    strategy: str | Strategy = "auto",
    candidates: int | None = None,
    first: str = "best",
    quotas: str | Mapping[Any, int] | None = None,
    columns: str | Sequence[str] | None = None,
    target: str | None = None,
    labels: Labels | PathLike | None = None,
    scale: str | None = None,
    drop: str | Sequence[str] | None = None,
    drop_missing_target: bool = False,
    decimal: str | None = None,
    missing: str | None = None,
    encoding: str | None = None,
    embeddings: PathLike | None = None,
    passes: bool = False,
    state: PathLike | None = None,
    executor: Executor | str | None = None,
    skip_bad: bool = False,
    shortlist: int | None = None,
) -> Coreset:
    """Select the rows that train a model almost as well as all rows.

    Parameters
    ----------
    x, y : array
        Features and labels (or numeric targets), one row per example. x may also be a
        :class:`Dataset`, a data frame, a path, a pattern such as ``'part-*.parquet'``, a list of
        paths, a Dask array or data frame, or a :class:`bicore.sources.ShardSource`; rows beyond
        the memory limit are read when needed. A data frame or a file of columns is encoded by
        :func:`bicore.sources.encode_table`, and y may name a column. Without y the default method
        is "k-medoids" for rows of at least 100 columns, "facility-location" for others, and
        "reconstruction" if a kernel, an outer set or ``size="auto"`` is given.
    size : int, float or "auto"
        Number of rows to select, or a fraction of all rows. "auto" selects the fewest rows within
        ``tolerance`` of the loss of all rows, on the outer set or on a held-out fifth.
    sample_weight : array, optional
        Importance of each row in the objective.
    outer : tuple or Dataset, optional
        A separate set (x, y) or (x, y, sample_weight) on which the objective is measured.
    initial : Coreset or sequence of int
        Rows to start from. A coreset keeps its kernel; for row numbers the kernel is chosen again.
    random_state : int, Generator, RandomState or None
        Seed for all random draws; None draws one.
    runtime : Runtime, optional
        Device, precision, memory, threads, progress and time limit.
    method : str or Selector
        Name of a method in ``bicore.methods.METHODS``, such as "bilevel" or "uniform", or a
        selector.
    model : str or torch.nn.Module, optional
        Kind of model that will be trained on the rows: "linear", "trees", "neighbours", "network"
        or "any" (default). It sets the kernel, so ``kernel`` must be unset. With "neighbours" and
        "any", rows of simple methods are returned if they are better. Methods that use a network
        take it here.
    tolerance : float, optional
        Largest loss above that of all rows for ``size="auto"``, as a share (default: 0.02).
    exact : bool
        Use all rows. If False, large data are approximated with a :class:`LargeDataWarning`: beyond
        5,000 rows a bilevel selection draws candidates and objective rows, unless the kernel has
        finite features; beyond 20,000 rows facility location sums over a sample, and designs use
        landmarks.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`BilevelSelector`.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`BilevelSelector`.
    weighting, rule, strategy, candidates, first, quotas : optional
        The search, as in :class:`BilevelSelector`.
    columns, target : optional
        Columns of a file or table to use as features, and its column to predict.
    labels : path, optional
        File of labels.
    scale : "standard" or "none", optional
        Scaling of features (default: "standard" for tables, "none" for arrays).
    drop, drop_missing_target, decimal, missing, encoding : optional
        Encoding of tables, as in :func:`bicore.sources.encode_table`.
    embeddings : path, optional
        A .npy file with the features of a table, row by row.
    passes : bool
        Read all rows several times instead of loading a sample, by
        :func:`bicore.shards.select_from_shards`; implied by the next four.
    state : path, optional
        Folder from which an interrupted selection in passes continues.
    executor : optional
        Threads (default), or the address of a Dask scheduler, for passes.
    skip_bad : bool
        Whether passes exclude rows that are not finite.
    shortlist : int, optional
        Number of rows that each pass returns.

    Returns
    -------
    Coreset
        The rows in order of selection.

    Raises
    ------
    InputError
        If an argument is invalid.
    TimeLimitError
        If ``runtime.max_seconds`` is over before the first row is selected.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.select(x, x[:, 0] > 0, size=5, kernel="rbf").indices.shape
    (5,)
    """
    options = changed_options(locals())
    runtime = runtime or Runtime()
    if isinstance(model, str):
        options, model = options_for_model(model, method, options), None
    parts = _in_parts(x, y, sample_weight, outer, options)
    if parts is not None and parts.in_passes:
        others = {"method": method, "model": model, "tolerance": tolerance}
        return parts.select(size, initial, random_state, runtime, exact, **others)
    data, outer, options, notes = _load(x, y, sample_weight, outer, options, runtime, exact)
    method, method_notes = _method_for(data, method, size, outer, options)
    selector = build_selector(method, **options)
    _check_model(model, selector)
    refuse_tolerance(size, tolerance)
    if not len(initial) and _takes_all(selector, data, size):
        return _take_all(selector, data, outer, random_state, notes + method_notes)
    if selector.needs_model and model is None:
        raise InputError(f"method={shown(method)} needs a network; give model=network.")
    selector, large_notes = make_feasible(selector, data, exact)
    for note in large_notes:
        warnings.warn(note, LargeDataWarning, stacklevel=3)
    arguments: dict[str, Any] = {"initial": initial, "random_state": random_state, "model": model}
    arguments |= {"outer": outer, "runtime": runtime}
    if size == "auto":
        coreset = select_smallest(selector, data, tolerance, **arguments)
    else:
        coreset = selector.select(data, cast(float, size), **arguments)
    notes += (*method_notes, *large_notes)
    return coreset.with_details({"notes": (*notes, *coreset.provenance.notes)})


def with_signature_of(other: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the parameters and defaults of another one; it gets them by name."""
    signature = inspect.signature(other)

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return function(**given.arguments)

        returned = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=returned)
        return call

    return decorate


def list_options(options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Show the options of ``**options`` in a signature, with the defaults of :func:`select`."""
    parameters = inspect.signature(select).parameters
    shown = [parameters[name] for name in parameters if name in options.__annotations__]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        first = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        vars(function)["__signature__"] = own.replace(parameters=[*first, *shown])
        return function

    return decorate


@renamed_keywords()
@with_signature_of(select)
def estimate(
    x: Any,
    y: Any,
    size: Any,
    sample_weight: Any,
    outer: Any,
    runtime: Runtime | None,
    method: str | Selector,
    model: Any,
    exact: bool,
    **values: Any,
) -> Estimate:
    """Estimate what :func:`select` would cost with the same arguments, without selecting.

    Loading the rows and a small tile of the kernel are timed, and the passes over the data are
    counted.

    Parameters
    ----------
    x, y : array
        The rows, as in :func:`select`.
    size : int, float or "auto"
        Number of rows to select, or a fraction of all rows.
    sample_weight : array, optional
        Importance of each row in the objective.
    outer : tuple or Dataset, optional
        A separate set on which the objective is measured.
    initial, random_state : optional
        As in :func:`select`; they do not change the estimate.
    runtime : Runtime, optional
        Device, precision and limits.
    method : str or Selector
        A method's name, or a selector.
    model : str or torch.nn.Module, optional
        The kind of model that will be trained on the rows, as in :func:`select`.
    tolerance : float, optional
        As in :func:`select`; it does not change the estimate.
    exact : bool
        Use all rows, as in :func:`select`.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`BilevelSelector`.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`BilevelSelector`.
    weighting, rule, strategy, candidates, first, quotas : optional
        The search, as in :class:`BilevelSelector`.
    columns, target : optional
        Columns of a file or table to use as features, and its column to predict.
    labels : path, optional
        File of labels.
    scale : "standard" or "none", optional
        Scaling of features (default: "standard" for tables, "none" for arrays).
    drop, drop_missing_target, decimal, missing, encoding : optional
        Encoding of tables, as in :func:`bicore.sources.encode_table`.
    embeddings : path, optional
        A .npy file with the features of a table, row by row.
    passes : bool
        Select in passes over a source instead of loading it; so does any of the next four.
    state, executor, skip_bad, shortlist : optional
        As in :func:`select`.

    Returns
    -------
    Estimate
        Seconds, bytes, how the kernel matrix is held, and the approximation that is used.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.estimate(x, x[:, 0] > 0, size=5, kernel="rbf").approximation is None
    True
    """
    options = changed_options(values)
    if isinstance(model, str):
        options, model = options_for_model(model, method, options), None
    refuse_tolerance(size, values["tolerance"])
    runtime = runtime or Runtime()
    parts = _in_parts(x, y, sample_weight, outer, options)
    if parts is not None and parts.in_passes:
        return parts.estimate(size, runtime, exact, method)
    clock = Clock()
    data, outer, options, _ = _load(x, y, sample_weight, outer, options, runtime, exact)
    loading = clock.seconds
    selector = build_selector(_method_for(data, method, size, outer, options)[0], **options)
    _check_model(model, selector)
    found = estimate_selection(selector, data, size, outer, runtime, exact)
    return found if found.seconds is None else replace(found, seconds=found.seconds + loading)


@renamed_keywords()
@list_options(ModelOptions)
def reweight(
    x: Rows | Dataset,
    y: Labels | None = None,
    indices: Sequence[int] = (),
    *,
    sample_weight: Weights | None = None,
    outer: Outer | Dataset | None = None,
    start: Numbers | None = None,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
    **options: Unpack[ModelOptions],
) -> Coreset:
    """Learn weights for rows chosen by any means.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets); or a :class:`Dataset` as x.
    indices : sequence of int
        Row numbers.
    sample_weight : array, optional
        Importance of each row in the objective.
    outer : tuple or Dataset, optional
        A separate set on which the objective is measured.
    start : array, optional
        Weights to start from; 1 by default.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`BilevelSelector`.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`BilevelSelector`.

    Returns
    -------
    Coreset
        With learned weights; its objective is never above that of the starting ones.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> found = bicore.reweight(x, x[:, 0] > 0, [3, 8, 21], kernel="rbf", inner_reg=0.1)
    >>> found.objective <= found.details["start_objective"]
    True
    """
    selector = cast(BilevelSelector, build_selector("bilevel", **options))
    data, outer, _, _ = _load(x, y, sample_weight, outer, {}, runtime)
    arguments: dict[str, Any] = {"outer": outer, "random_state": random_state, "runtime": runtime}
    return selector.reweight(data, indices, start=start, **arguments)


@renamed_keywords()
@list_options(ModelOptions)
def influence(
    x: Rows | Dataset,
    y: Labels | None = None,
    coreset: Coreset | Sequence[int] = (),
    *,
    sample_weight: Weights | None = None,
    outer: Outer | Dataset | None = None,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
    **options: Unpack[ModelOptions],
) -> Array:
    """Compute how much more weight on each row would lower the objective of a coreset.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets); or a :class:`Dataset` as x.
    coreset : Coreset or sequence of int
        Rows on which the model is fitted.
    sample_weight : array, optional
        Importance of each row in the objective.
    outer : tuple or Dataset, optional
        A separate set on which the objective is measured.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`BilevelSelector`.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`BilevelSelector`.

    Returns
    -------
    array
        One number for each row; the largest would help most.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.influence(x, x[:, 0] > 0, [3, 8, 21], kernel="rbf", inner_reg=0.1).shape
    (50,)
    """
    selector = cast(BilevelSelector, build_selector("bilevel", **options))
    data, outer, _, _ = _load(x, y, sample_weight, outer, {}, runtime)
    arguments: dict[str, Any] = {"outer": outer, "random_state": random_state, "runtime": runtime}
    return selector.influence(data, coreset, **arguments)


@renamed_keywords()
def contexts(
    x: Matrix,
    y: Labels,
    size: int,
    n_contexts: int = 8,
    *,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
    kernel: str | Kernel | Callable[..., Any] = "auto",
    inner_reg: str | float | Regulariser | Relative = "auto",
    prior: str | Mapping[Any, float] = "data",
    intercept: float | str = "auto",
    task: str = "auto",
    rule: str | Rule = "auto",
    strategy: str | Strategy = "greedy",
    smooth_labels: bool | str = False,
    exact: bool = False,
) -> list[Array]:
    """Select several small sets of rows whose averaged predictions are best.

    Each context is selected against the errors that the earlier ones leave. Half of every context
    after the first is drawn at random, in the shares of the classes. A row is in a second context
    only if too few others are left.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row.
    size : int
        Number of rows of each context.
    n_contexts : int
        Number of contexts.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.
    kernel, inner_reg, prior, intercept, task, rule : optional
        The kernel model that rows are selected for and the rule, as in
        :func:`bicore.select`.
    strategy : str or Strategy
        The search; contexts with exchanges were slower and no better than greedy ones.
    smooth_labels : bool or "auto"
        As in :func:`bicore.select`; a context without noisy labels makes a model overconfident.
    exact : bool
        Use all rows, as in :func:`bicore.select`.

    Returns
    -------
    list of array
        Row numbers of each context, in the order of selection. The first one is the answer of
        :func:`bicore.select` with the same options; a shorter list is a prefix of a longer one.

    Raises
    ------
    InputError
        If there are more contexts, or more rows in one, than rows of x.
    TimeLimitError
        If ``max_seconds`` is reached before the last context is complete.

    Examples
    --------
    >>> import numpy as np
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> found = bicore.contexts(x, x[:, 0] > 0, size=5, n_contexts=3)
    >>> [len(rows) for rows in found]
    [5, 5, 5]
    """
    data = Dataset(x, y)
    if data.y is None:
        raise InputError("y is None; contexts need labels or targets.")
    check_integer("size", size, most=len(data))
    check_integer("n_contexts", n_contexts, most=len(data), fix="at most one per row")
    given = locals()
    options = {name: given[name] for name in parameters_of("bilevel") if name in given}
    selector = cast(BilevelSelector, build_selector("bilevel", **options))
    return selector.select_contexts(
        data, size, n_contexts, random_state=random_state, runtime=runtime
    )


def is_in_parts(x: Any) -> bool:
    """Whether rows are given as a table, a source, a path, a pattern or a list of paths."""
    if frames.is_frame(x):
        return True
    if type(x) in (list, tuple):
        return len(x) > 0 and (all(map(_is_path, x)) or all(map(frames.is_dask, x)))
    if hasattr(x, "with_format") and hasattr(x, "column_names"):  # a Hugging Face data set
        return True
    return _is_path(x) or frames.is_dask(x) or (hasattr(x, "parts") and hasattr(x, "read"))


def _is_path(x: Any) -> bool:
    return type(x) is str or hasattr(x, "__fspath__")


def _takes_all(selector: Selector, data: Dataset, size: int | float | str) -> bool:
    """Whether all rows are requested of a bilevel selection without weights or its own search."""
    if not isinstance(selector, BilevelSelector) or data.y is None:
        return False
    plain = selector.strategy == UnsetStrategy() and selector.weighting is WeightMode.UNIFORM
    plain = plain and selector.quotas is None and data.sample_weight is None
    return plain and size != "auto" and as_size(size, len(data)) == len(data)


def _take_all(
    selector: Selector, data: Dataset, outer: Dataset | None, seed: Any, notes: tuple[str, ...]
) -> Coreset:
    """Return all rows in a defined order."""
    targets, _ = read_labels(cast(BilevelSelector, selector), data, outer)
    coreset, order = Coreset(np.arange(len(data)), ids=data.ids), "in the given order"
    if targets.classes is not None and len(targets.classes) > 1:
        coded = data.with_columns(y=targets.values)
        coreset = ClassBalanced().select(coded, len(data), random_state=seed)
        order = "with one row of each class in turn"
    known = {"method": "all rows", "rows": len(data), "fingerprint": data.fingerprint()}
    notes = (*notes, f"size: all rows were requested and are returned {order}")
    return coreset.with_details({**known, "notes": notes})


def _method_for(
    data: Dataset, method: str | Selector, size: Any, outer: Any, options: dict[str, Any]
) -> tuple[str | Selector, tuple[str, ...]]:
    """Return the method, and a note if rows without labels need another one than the default."""
    if data.y is not None or method != "bilevel":
        return method, ()
    wide = data.x.ndim == 2 and data.x.shape[1] >= WIDE
    found = LABEL_FREE_WIDE if wide else LABEL_FREE
    unknown = set(options) - set(parameters_of(found))
    if outer is not None or size == "auto" or unknown:
        found = LABEL_FREE_BILEVEL
    for name in sorted(unknown & set(parameters_of(method)) - set(parameters_of(found))):
        raise InputError(f"{name} needs labels; give y (target=… or labels=…), or leave it out.")
    return found, (NO_LABELS.format(found),)


def options_for_model(model: str, method: str | Selector, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with a kernel that suits the model to be trained."""
    kernel = AutomaticKernel(model=model)
    if model == "any":
        return given
    if method != "bilevel" or given.get("kernel", "auto") != "auto":
        other = f"method={method!r}" if method != "bilevel" else f"kernel={given['kernel']!r}"
        wrong = f"model={model!r} chooses the kernel of the default method, but {other} is given"
        raise InputError(f"{wrong}; leave one of them out.")
    return {**given, "kernel": kernel}


def _check_model(model: Any, selector: Selector) -> None:
    """Refuse a model that is not a network, or that the method does not use."""
    if model is None:
        return
    if not isinstance(model, (torch.nn.Module, Observed)):
        rule = "model must be a name such as 'linear', a torch.nn.Module or a result of observe(…)"
        raise InputError(f"{rule}; got {shown(model)}.")
    if not selector.needs_model:
        raise InputError(
            f"model= is given, but {selector.name} uses no model; leave it out, use a method "
            "that needs one, or select by its embeddings: "
            "bicore.integrations.torch.select_from(dataset, size, model=…)."
        )


def changed_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in a call of ``select`` that differ from their defaults."""
    defaults = {name: one.default for name, one in inspect.signature(select).parameters.items()}
    options = {name: value for name, value in values.items() if name not in OWN}
    return {name: one for name, one in options.items() if not is_same(one, defaults[name])}


def refuse_unread(x: Any) -> None:
    """Refuse a torch data set, which would have to be read item by item."""
    if is_torch_data(x):
        raise InputError(
            f"x is a {type(x).__name__} of torch, which is not an array; embed its rows in "
            "batches by a network: bicore.integrations.torch.select_from(x, size, model=…)."
        )


def as_dataset(x: Any, y: Any, sample_weight: Any) -> Dataset:
    """Return arrays as a data set; a data set must have its own labels."""
    refuse_unread(x)
    if not isinstance(x, Dataset):
        return Dataset(x, y, sample_weight)
    if y is not None or sample_weight is not None:
        fix = "leave y and sample_weight out, or build another Dataset"
        raise InputError(f"x is a Dataset, which has its own labels and weights; {fix}.")
    return x


def refuse_tolerance(size: Any, tolerance: float | None) -> None:
    """Refuse a tolerance together with a given size."""
    if tolerance is not None and size != "auto":
        fix = "set size='auto' or leave tolerance out"
        raise InputError(f"tolerance={tolerance!r} needs size='auto', but size is {size!r}; {fix}.")


def _in_parts(
    x: Any, y: Any, sample_weight: Any, outer: Any, options: dict[str, Any]
) -> RowsInParts | None:
    """Return the rows of a table or a source; None for arrays."""
    if isinstance(y, Real):
        raise InputError(f"y={y!r} is a number, not labels; to set the size, write size={y!r}.")
    if not is_in_parts(x):
        for name in options.keys() - SelectorOptions.__annotations__.keys():
            raise InputError(
                f"{name}={shown(options[name])} needs files, tables or data in parts, and x has "
                f"type {type(x).__name__}; give a path, a data frame or a Dask array as x, or "
                f"leave {name} out."
            )
        return None
    if _is_path(x) and not glob.has_magic(str(x)) and not os.path.exists(x):
        raise InputError(f"x={str(x)!r} does not exist; check the name of the file.")
    from bicore.methods.passes import RowsInParts

    return RowsInParts(x, y, sample_weight, outer, options)


def _load(
    x: Any,
    y: Any,
    sample_weight: Any,
    outer: Any,
    options: dict[str, Any],
    runtime: Runtime | None,
    exact: bool = False,
) -> tuple[Dataset, Dataset | None, dict[str, Any], tuple[str, ...]]:
    """Load the rows and the outer set; return them with the method's options and notes."""
    notes: tuple[str, ...] = ()
    parts = _in_parts(x, y, sample_weight, outer, options)
    if parts is not None:
        x, outer, options, notes = parts.read(runtime or Runtime(), exact)
        y = sample_weight = None
    x = as_dataset(x, y, sample_weight)
    if outer is not None and not isinstance(outer, Dataset):
        if not isinstance(outer, (tuple, list)) or len(outer) not in (2, 3):
            values = f" of length {len(outer)}" if isinstance(outer, (tuple, list)) else ""
            rule = "outer must be a tuple (x, y) or (x, y, sample_weight), or a Dataset"
            raise InputError(f"{rule}; got {type(outer).__name__}{values}.")
        try:
            outer = Dataset(*outer)
        except InputError as error:
            raise InputError(f"outer: {error}") from error
    return x, outer, options, notes
