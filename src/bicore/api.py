"""The one-liners: arrays in, an answer out. Here people write names, and sizes such as "auto"."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

import numpy as np

from bicore import frames
from bicore.bilevel.kernel_choice import WIDE, AutomaticKernel
from bicore.bilevel.solvers.weights import WeightMode
from bicore.bilevel.strategies import OpenStrategy
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError, LargeDataWarning, as_option
from bicore.methods.base import Selector
from bicore.methods.baselines.simple import ClassBalanced
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.large import Estimate, Large, estimate_selection, make_feasible
from bicore.methods.quality_curve import select_smallest
from bicore.methods.registry import as_selector, parameters_of
from bicore.networks.loading import is_torch_data
from bicore.picking import as_size
from bicore.runtime import Context, Runtime

#: The default methods for rows without labels: for wide rows, such as embeddings, for others, and
#: for requests that only a bilevel problem can meet.
LABEL_FREE_WIDE, LABEL_FREE, LABEL_FREE_BILEVEL = "clusters", "facility-location", "reconstruction"
NO_LABELS = (
    "labels: none given, so the method is {!r}, which needs none; name a target (y, or --target) "
    "to select for its prediction"
)


def select(
    x: Any,
    y: Any = None,
    size: int | float | str = 100,
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    initial: Coreset | Sequence[int] = (),
    random_state: int | np.random.Generator = 0,
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    model: Any = None,
    tolerance: float | None = None,
    large: str = "approximate",
    **options: Any,
) -> Coreset:
    """Choose the points of (x, y) that train a model almost as well as all of them.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row; or a :class:`Dataset` as x. Without labels the
        default method is "clusters" for rows of at least 100 columns, such as embeddings, and
        "facility-location" for others ("reconstruction" if a kernel, an outer set or
        ``size="auto"`` is asked for); a note says so. A path, a pattern such as
        ``'part-*.parquet'``, a list of paths, a Dask array or dataframe or a
        :class:`bicore.shards.ShardSource` as x gives the same answer: rows that fit the memory
        limit are loaded, others are read when needed. A table (a data frame of pandas or polars,
        or a file of columns) is encoded as the command does it: see
        :func:`bicore.sources.encode_table`, and ``scale="none"`` leaves numbers as they are. Its y
        may be the name of a column.
    size : int, float or "auto"
        How many points, or a fraction of the rows; "auto" for the fewest within ``tolerance`` of
        the full model (bilevel): by its loss on the outer set where one is given, otherwise on a
        fifth of the points, held out while the size is sought.
    weight : array, optional
        How much each row counts in the objective.
    outer : tuple or Dataset, optional
        A separate set (x, y) or (x, y, weight) on which the objective is measured.
    initial : Coreset or sequence of int
        Points to start from. A coreset keeps the kernel that was chosen for it; with row numbers
        the kernel is chosen again, for the new size.
    random_state : int or numpy.random.Generator
        Of whatever is drawn at random.
    runtime : Runtime, optional
        Device, precision, memory, threads, progress, time limit.
    method : str or Selector
        A method's name (``bicore.methods.METHODS``: "bilevel", "uniform", "k-center-embedding",
        "icarl", …) or a selector.
    model : str or torch.nn.Module, optional
        The kind of model that will be trained on the points: "linear", "trees", "neighbours",
        "network" or "any" (the default). It chooses the kernel, so ``kernel`` must be unset. Or
        the current network itself, for methods that look at one.
    tolerance : float, optional
        With ``size="auto"``: how far above the full model's loss on the points that judge, as a
        share; 0.02 by default.
    large : "approximate" or "exact"
        Whether large data may be approximated, with a :class:`LargeDataWarning` that is also in
        ``provenance.notes``. Beyond 5,000 rows a bilevel selection takes its candidates from a
        stratified sample and measures the objective on a larger one, unless the kernel has finite
        features. Beyond 20,000 rows facility location sums over a sample, and landmarks replace
        the kernel of a design. "exact" uses all rows; :func:`estimate` says how long it takes.
    **options
        Parameters of the method; of :class:`BilevelSelector`: kernel, loss, inner_reg, weights,
        rule, candidates and so on. Kernel, rule, strategy, targets and intercept are "auto" by
        default; ``method="paper"`` has the paper's. Of files: features and target (columns) and
        labels (files); of tables also scale, drop, drop_missing_target, decimal, missing and
        encoding. One of passes, state, executor, dask (the address of a scheduler),
        skip_bad, shortlist and exchange asks for passes over all rows, see
        :func:`bicore.shards.select_from_shards`.

    Returns
    -------
    Coreset
        The points in the order of selection.

    Raises
    ------
    InputError
        Where the request cannot be right; the message names the mend.
    TimeLimitError
        Where ``max_seconds`` is over before a first point could be chosen.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.select(x, x[:, 0] > 0, size=5, kernel="rbf").indices.shape
    (5,)
    """
    wanted = as_option("large", large, Large)
    runtime = runtime or Runtime()
    notes: tuple[str, ...] = ()
    if isinstance(model, str):
        options, model = options_for_model(model, method, options), None
    y, size = _read_size(x, y, size)
    if is_in_parts(x):
        from bicore.methods.passes import RowsInParts

        parts = RowsInParts(x, y, weight, outer, options)
        if parts.in_passes:
            others = {"method": method, "model": model, "tolerance": tolerance}
            return parts.select(size, initial, random_state, runtime, wanted, **others)
        x, outer, options, notes = parts.read(runtime, wanted)
        y = weight = None
    data = _dataset(x, y, weight)
    method, told = _method_for(data, method, size, outer, options)
    notes += told
    selector = as_selector(method, **options)
    _refuse_unused(model, selector)
    refuse_tolerance(size, tolerance)
    judge = _outer(outer)
    if not len(initial) and _takes_all(selector, data, size):
        return _take_all(data, random_state, notes)
    selector, replaced = make_feasible(selector, data, wanted)
    notes += replaced
    for note in replaced:
        warnings.warn(note, LargeDataWarning, stacklevel=2)
    more: dict[str, Any] = {
        "outer": judge,
        "initial": initial,
        "random_state": random_state,
        "context": Context(model, runtime),
    }
    if size == "auto":
        coreset = select_smallest(selector, data, tolerance, **more)
    else:
        coreset = selector.select(data, size, **more)  # type: ignore[arg-type]
    return coreset.annotated({"notes": (*notes, *coreset.provenance.notes)}) if notes else coreset


def estimate(
    x: Any,
    y: Any = None,
    size: int | float | str = 100,
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    model: str = "any",
    large: str = "approximate",
    **options: Any,
) -> Estimate:
    """What :func:`select` would take with the same arguments, without selecting.

    A small tile of the kernel is timed, and the passes over the data are counted.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row; or a :class:`Dataset` as x; or rows in parts
        (see :func:`bicore.shards.estimate` for all that is known of these).
    size : int, float or "auto"
        How many points, or a fraction of the rows.
    weight : array, optional
        How much each row counts in the objective.
    outer : tuple or Dataset, optional
        A separate set on which the objective is measured.
    runtime : Runtime, optional
        Device and limits.
    method : str or Selector
        A method's name, or a selector.
    model : str
        The kind of model that will be trained on the points, as in :func:`select`.
    large : "approximate" or "exact"
        As in :func:`select`.
    **options
        Parameters of the method.

    Returns
    -------
    Estimate
        Seconds, bytes, how the kernel matrix is held, and what stands in for it.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.estimate(x, x[:, 0] > 0, size=5, kernel="rbf").approximation is None
    True
    """
    wanted = as_option("large", large, Large)
    runtime = runtime or Runtime()
    options = options_for_model(model, method, options)
    y, size = _read_size(x, y, size)
    if is_in_parts(x):
        from bicore.methods.passes import RowsInParts

        parts = RowsInParts(x, y, weight, outer, options)
        if parts.in_passes:
            return parts.estimate(size, runtime, wanted, method)
        x, outer, options, _ = parts.read(runtime, wanted)
        y = weight = None
    data = _dataset(x, y, weight)
    selector = as_selector(_method_for(data, method, size, outer, options)[0], **options)
    return estimate_selection(selector, data, size, _outer(outer), runtime, wanted)


def reweight(
    x: Any,
    y: Any = None,
    indices: Sequence[int] = (),
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    start: Any = None,
    random_state: int = 0,
    runtime: Runtime | None = None,
    **options: Any,
) -> Coreset:
    """Learn weights for points chosen by any means.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets); or a :class:`Dataset` as x.
    indices : sequence of int
        Row numbers of the points.
    weight : array, optional
        How much each row counts in the objective.
    outer : tuple or Dataset, optional
        A separate set on which the objective is measured.
    start : array, optional
        Weights to start from; 1 by default.
    random_state : int
        Of an automatic regulariser.
    runtime : Runtime, optional
        Device and limits.
    **options
        Parameters of :class:`BilevelSelector`.

    Returns
    -------
    Coreset
        With learnt weights; its objective is never above that of the starting ones.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> found = bicore.reweight(x, x[:, 0] > 0, [3, 8, 21], kernel="rbf", inner_reg=0.1)
    >>> found.objective <= found.details["start_objective"]
    True
    """
    selector = _selector(options)
    if isinstance(x, Dataset) and y is not None and not len(indices):
        indices, y = y, None  # reweight(data, indices)
    data, judge = _load(x, y, weight, outer, runtime)
    return selector.reweight(
        data,
        indices,
        outer=judge,
        start=start,
        random_state=random_state,
        context=Context(runtime=runtime or Runtime()),
    )


def influence(
    x: Any,
    y: Any = None,
    coreset: Coreset | Sequence[int] = (),
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    random_state: int = 0,
    runtime: Runtime | None = None,
    **options: Any,
) -> Array:
    """How much a little more weight on each point would lower the objective of a coreset's model.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets); or a :class:`Dataset` as x.
    coreset : Coreset or sequence of int
        What the model is fitted on.
    weight : array, optional
        How much each row counts in the objective.
    outer : tuple or Dataset, optional
        A separate set on which the objective is measured.
    random_state : int
        Of an automatic regulariser.
    runtime : Runtime, optional
        Device and limits.
    **options
        Parameters of :class:`BilevelSelector`.

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
    selector = _selector(options)
    if isinstance(x, Dataset) and y is not None and not len(coreset):
        coreset, y = y, None  # influence(data, coreset)
    data, judge = _load(x, y, weight, outer, runtime)
    return selector.influence(
        data,
        coreset,
        outer=judge,
        random_state=random_state,
        context=Context(runtime=runtime or Runtime()),
    )


def is_in_parts(x: Any) -> bool:
    """Whether rows are given as a table, a source, a path, a pattern or a list of paths."""
    if frames.is_frame(x):
        return True
    if type(x) in (list, tuple):
        return len(x) > 0 and all(map(_is_path, x))
    return _is_path(x) or _is_dask(x) or (hasattr(x, "parts") and hasattr(x, "read"))


def _is_dask(x: Any) -> bool:
    """Whether x is a lazy collection; xarray has the method for arrays in memory too."""
    return hasattr(x, "__dask_graph__") and x.__dask_graph__() is not None


def _is_path(x: Any) -> bool:
    return type(x) is str or hasattr(x, "__fspath__")


def _takes_all(selector: Selector, data: Dataset, size: int | float | str) -> bool:
    """Whether all rows are asked for, and no option asks for an order, quotas or weights."""
    if not isinstance(selector, BilevelSelector) or data.y is None or data.weight is not None:
        return False
    plain = selector.strategy == OpenStrategy() and selector.quotas is None
    plain = plain and selector.weights is WeightMode.BINARY
    return plain and size != "auto" and as_size(size, len(data)) == len(data)


def _take_all(data: Dataset, seed: int | np.random.Generator, notes: tuple[str, ...]) -> Coreset:
    """All rows: there is nothing to select, so that they come at once, in a stated order."""
    assert data.y is not None
    targets = read_targets(data.y)
    coreset = Coreset(np.arange(len(data)), ids=data.ids)
    order = "in the given order"
    if targets.classes is not None and len(targets.classes) > 1:
        coreset, order = (
            ClassBalanced().select(data, len(data), random_state=seed),
            "classes take turns",
        )
    known = {"method": "all rows", "rows": len(data), "fingerprint": data.fingerprint()}
    every = (*notes, f"size: all rows, {order}; none were compared")
    return coreset.annotated({**known, "notes": every})


def _method_for(
    data: Dataset, method: str | Selector, size: Any, outer: Any, options: dict[str, Any]
) -> tuple[str | Selector, tuple[str, ...]]:
    """Return the method, and a note if rows without labels need another one than the default."""
    if data.y is not None or method != "bilevel":
        return method, ()
    wide = data.x.ndim == 2 and data.x.shape[1] >= WIDE
    found = LABEL_FREE_WIDE if wide else LABEL_FREE
    if outer is not None or size == "auto" or not set(options) <= set(parameters_of(found)):
        found = LABEL_FREE_BILEVEL
    return found, (NO_LABELS.format(found),)


def options_for_model(
    model: str, method: str | Selector, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options with a kernel that suits the model to be trained."""
    kernel = AutomaticKernel(model=model)
    if model == "any":
        return options
    if method != "bilevel" or options.get("kernel", "auto") != "auto":
        given = f"method={method!r}" if method != "bilevel" else f"kernel={options['kernel']!r}"
        raise InputError(
            f"model={model!r} chooses the kernel of the default method, and {given} is "
            "given; leave one of them out."
        )
    return {**options, "kernel": kernel}


def _read_size(x: Any, y: Any, size: Any) -> tuple[Any, Any]:
    """Return labels and size: with a data set or a source the second argument may be the size."""
    if isinstance(y, Real) and (isinstance(x, Dataset) or is_in_parts(x)):
        return None, y
    return y, size


def _selector(options: dict[str, Any]) -> BilevelSelector:
    return cast(BilevelSelector, as_selector("bilevel", **options))


def refuse_unread(x: Any) -> None:
    """A data set of torch is an array to NumPy only after every item of it was read."""
    if is_torch_data(x):
        raise InputError(
            f"x is a {type(x).__name__} of torch, which would be read whole; let a network "
            "embed its rows in batches: bicore.integrations.torch.select_from(x, size, model=…)."
        )


def refuse_tolerance(size: Any, tolerance: float | None) -> None:
    """Refuse a tolerance with a size that is given."""
    if tolerance is not None and size != "auto":
        raise InputError(
            f"tolerance={tolerance!r} goes with size='auto', and size={size!r}; leave it out, or "
            "ask for size='auto'."
        )


def _refuse_unused(model: Any, selector: Selector) -> None:
    if model is not None and not (selector.needs_model or selector.fits_model):
        raise InputError(
            f"model= is given, and {selector.name} looks at no model; leave it out, use a method "
            "that does, or select by its embeddings: "
            "bicore.integrations.torch.select_from(dataset, size, model=…)."
        )


def _load(
    x: Any, y: Any, weight: Any, outer: Any, runtime: Runtime | None
) -> tuple[Dataset, Dataset | None]:
    """Return the rows and the outer set of a call without options for reading."""
    if not is_in_parts(x):
        return _dataset(x, y, weight), _outer(outer)
    from bicore.methods.passes import RowsInParts

    parts = RowsInParts(x, y, weight, outer, {})
    data, judge, _, _ = parts.read(runtime or Runtime(), Large.APPROXIMATE)
    return data, _outer(judge)


def _dataset(x: Any, y: Any, weight: Any) -> Dataset:
    refuse_unread(x)
    if not isinstance(x, Dataset):
        return Dataset(x, y, weight)
    if y is not None or weight is not None:
        raise InputError(
            "x is a Dataset and carries its own labels and weights; leave y and weight out, or "
            "build another Dataset."
        )
    return x


def _outer(outer: tuple[Any, ...] | Dataset | None) -> Dataset | None:
    if outer is None or isinstance(outer, Dataset):
        return outer
    if not isinstance(outer, (tuple, list)) or len(outer) not in (2, 3):
        raise InputError(
            "outer is not a separate set; give a tuple (x, y) or (x, y, weight), or a Dataset."
        )
    return Dataset(*outer)
