"""A sampler as scikit-learn has estimators; :mod:`bicore.compat.imblearn` has one of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from bicore import frames
from bicore.bilevel.solvers.inner import InnerSolver
from bicore.bilevel.solvers.linear import LinearSolver
from bicore.bilevel.solvers.weights import WeightOptimiser
from bicore.data import Dataset
from bicore.errors import InputError
from bicore.picking import whole_number
from bicore.runtime import Context, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.quality_curve import check_tolerance, select_sized
from bicore.selectors.registry import as_selector

__all__ = ["CoresetSampler"]


class CoresetSampler(BaseEstimator):  # type: ignore[misc]
    """Replace (X, y) by the rows that train a model almost as well.

    Frames stay frames and sparse rows stay sparse. The parameters from ``kernel`` on are those of
    :class:`bicore.BilevelSelector`, which says how to choose them; another method takes those of
    its own that stand here.

    Parameters
    ----------
    size : int, float, "auto" or None
        A count, a fraction of the rows, or the fewest within ``tolerance`` of the full model; None
        takes the counts of ``sampling_strategy``.
    method : str or Selector
        A name of ``bicore.selectors.METHODS`` ("bilevel", "uniform", "k-center-features", …), or a
        selector with options of its own; then none may be given here.
    sampling_strategy : "auto", mapping or callable, optional
        "auto" takes as many of every class as there are, a mapping (or a function of y that returns
        one) so many of each label at most; with ``size=None`` the counts of the mapping are the
        size, and classes it does not name are left out. What imbalanced-learn means by it:
        :class:`bicore.compat.imblearn.CoresetSampler`.
    kernel : str, Kernel or callable
        The model's kernel.
    loss, outer_loss : str, Loss or callable
        What the model is fitted by, and what the coreset is judged by where that differs.
    inner_reg : float, PerPoint or "auto"
        The regulariser.
    weights : {"binary", "learnt", "final"}
        Whether points have weights other than 1, and when they are learnt.
    rule : {"auto", "gradient", "gain", "first-order", "reducible"}
        How points are scored.
    candidates : int, optional
        Score so many random points a step instead of all.
    strategy : str or Strategy
        How the set is built: "auto", "greedy", "batches", "exchange", "elimination" or
        "simplex".
    first : {"best", "random"}
        How the first point is chosen.
    tolerance : float
        Of ``size="auto"``: how far above the full model's loss, as a share of it.
    task : {"auto", "classification", "regression"}
        How y is read.
    classes : sequence, optional
        All labels, where the data may lack some.
    inner : InnerSolver, optional
        Solves the inner problem.
    linear : LinearSolver, optional
        Solves the linear systems of the implicit gradient.
    optimiser : WeightOptimiser, optional
        Learns the weights.
    targets : {"auto", "given", "smoothed"} or Aims
        What the objective compares predictions with.
    prior : {"data", "equal"}
        Whether classes count as often as they occur, or all the same.
    random_state : int, RandomState, Generator or None
        A seed, or what one is drawn from; None takes another one each time.
    runtime : Runtime, optional
        Device, precision and limits.

    Attributes
    ----------
    sample_indices_ : array of int
        Rows chosen, in order of selection.
    sample_weight_ : array of float
        Their weights, to pass on as ``sample_weight``.
    coreset_ : Coreset
        The whole answer.
    sampling_strategy_ : dict or None
        How many rows of each class were chosen; None without classes.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : array of str
        Their names, where X is a frame whose names are all text.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> sampler = CoresetSampler(size=20, kernel="rbf", inner_reg=0.1)
    >>> X_small, y_small = sampler.fit_resample(X, y)
    >>> X_small.shape
    (20, 64)
    """

    def __init__(
        self,
        size: int | float | str | None = 0.1,
        *,
        method: str | Selector = "bilevel",
        sampling_strategy: Any = None,
        kernel: Any = "auto",
        loss: Any = "squared",
        outer_loss: Any = None,
        inner_reg: Any = "auto",
        weights: str = "binary",
        rule: Any = "auto",
        candidates: int | None = None,
        strategy: Any = "auto",
        first: str = "best",
        tolerance: float = 0.02,
        task: str = "auto",
        classes: Any = None,
        inner: InnerSolver | None = None,
        linear: LinearSolver | None = None,
        optimiser: WeightOptimiser | None = None,
        targets: Any = "auto",
        prior: str = "data",
        random_state: Any = 0,
        runtime: Runtime | None = None,
    ) -> None:
        self.size = size
        self.method = method
        self.sampling_strategy = sampling_strategy
        self.kernel = kernel
        self.loss = loss
        self.outer_loss = outer_loss
        self.inner_reg = inner_reg
        self.weights = weights
        self.rule = rule
        self.candidates = candidates
        self.strategy = strategy
        self.first = first
        self.tolerance = tolerance
        self.task = task
        self.classes = classes
        self.inner = inner
        self.linear = linear
        self.optimiser = optimiser
        self.targets = targets
        self.prior = prior
        self.random_state = random_state
        self.runtime = runtime

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CoresetSampler:
        """Choose the rows.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.
        y : array or series (n,)
            Labels or targets; methods that look at none can do without.
        sample_weight : array (n,), optional
            How much each row counts.

        Returns
        -------
        CoresetSampler
            The sampler itself.

        Raises
        ------
        InputError
            Where a parameter cannot be right; the message names the mend.
        """
        check_tolerance(self.tolerance)
        data = self._checked(X, y, sample_weight)
        quotas, size = _quotas(self.sampling_strategy, self.size, data)
        options = self._options() | ({} if quotas is None else {"quotas": quotas})
        self.coreset_ = select_sized(
            chooser(self.method, options, _DEFAULTS),
            data,
            size,
            self.tolerance,
            rng=as_seed(self.random_state),
            context=Context(runtime=self.runtime or Runtime()),
        )
        self.sample_indices_ = self.coreset_.indices
        self.sample_weight_ = self.coreset_.weights
        self.sampling_strategy_ = counts_of(data[self.sample_indices_])
        return self

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Dataset:
        """The data, refused in scikit-learn's words where they cannot be."""
        sparse = "csr" if self.__sklearn_tags__().input_tags.sparse else False
        form: dict[str, Any] = {"accept_sparse": sparse, "allow_nd": True}
        if y is None:
            rows = validate_data(self, X, None, **form)  # which refuses it where y is needed
        else:
            rows, y = validate_data(self, X, y, multi_output=True, **form)
        return Dataset(rows, y, sample_weight)

    def fit_resample(self, X: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any]:
        """Choose the rows and return them; frames stay frames.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.
        y : array or series (n,)
            Labels or targets.
        sample_weight : array (n,), optional
            How much each row counts.

        Returns
        -------
        X_resampled, y_resampled : array or frame
            The rows chosen, in order of selection.
        """
        self.fit(X, y, sample_weight)
        rows = self.sample_indices_
        return frames.taken(X, rows), None if y is None else frames.taken(y, rows)

    def _options(self) -> dict[str, Any]:
        """The parameters that a selector has."""
        return {name: getattr(self, name) for name in _DEFAULTS if name not in _OF_THE_SAMPLER}

    def _chooser_or_none(self) -> Selector | None:
        """The selector without quotas; None where parameters are wrong, as ``fit`` will say."""
        try:
            return chooser(self.method, self._options(), _DEFAULTS)
        except InputError:
            return None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        selector = self._chooser_or_none()
        tags.target_tags.required = selector is None or selector.needs_labels
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = selector is None or selector.takes_sparse
        tags.input_tags.three_d_array = True
        return tags


#: What each parameter is where nothing is said.
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(CoresetSampler).parameters.items()
}
#: Parameters that no selector has.
_OF_THE_SAMPLER = (
    "size",
    "method",
    "sampling_strategy",
    "tolerance",
    "random_state",
    "runtime",
)


def chooser(
    method: str | Selector, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Selector:
    """The selector of a method; options that were left as they are leave it as it is."""
    if method == "bilevel":
        return as_selector(method, **options)
    said = {name: value for name, value in options.items() if not _same(value, defaults.get(name))}
    return as_selector(method, **said)


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def counts_of(data: Dataset) -> dict[Any, int] | None:
    """How many rows there are of each class; None where y holds none."""
    if data.y is None or data.y.ndim > 1 or data.y.dtype.kind == "f":
        return None
    labels, counts = np.unique(data.y, return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def _quotas(wanted: Any, size: Any, data: Dataset) -> tuple[Any, Any]:
    """imbalanced-learn's words as quotas, and the size."""
    if callable(wanted):
        wanted = wanted(data.y)
    if isinstance(wanted, Mapping):
        return _counts(wanted, size, data)
    if size is None:
        raise InputError(
            "size=None takes the counts of sampling_strategy, which is no mapping; give size, or "
            "{label: count}."
        )
    if wanted is None:
        return None, size
    if not (isinstance(wanted, str) and wanted in ("auto", "balanced")):
        raise InputError(
            f"sampling_strategy={wanted!r} is neither 'auto' nor a mapping {{label: count}}."
        )
    return "balanced", size


def _counts(wanted: Mapping[Any, Any], size: Any, data: Dataset) -> tuple[dict[Any, Any], Any]:
    """Counts by label, and the size, which without one of its own is their sum."""
    for label, count in wanted.items():
        words = (
            f"sampling_strategy[{label!r}]={count!r} is not a whole number >= 0; give how many of "
            "that class."
        )
        whole_number(count, 0, words)
    if size is not None:
        return dict(wanted), size
    total = int(sum(wanted.values()))
    if not total:
        raise InputError(
            f"sampling_strategy={wanted!r} asks for no point, and size=None goes by it; give "
            "counts, or a size."
        )
    present = [] if data.y is None else np.unique(data.y).tolist()
    return {**dict.fromkeys(present, 0), **wanted}, total


@singledispatch
def as_seed(state: Any) -> int:
    """One number from whatever scikit-learn takes for a random state."""
    return int(state)


@as_seed.register
def _(state: None) -> int:
    return int(np.random.default_rng().integers(2**31))


@as_seed.register
def _(state: np.random.RandomState) -> int:
    return int(state.randint(2**31 - 1))


@as_seed.register
def _(state: np.random.Generator) -> int:
    return int(state.integers(2**31))
