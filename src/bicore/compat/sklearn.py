"""A scikit-learn (imbalanced-learn) style sampler."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from bicore.bilevel.solvers.inner import InnerSolver
from bicore.bilevel.solvers.linear import LinearSolver
from bicore.bilevel.solvers.weights import WeightOptimiser
from bicore.data import Dataset
from bicore.errors import InputError
from bicore.runtime import Context, Runtime
from bicore.selectors.bilevel import BilevelSelector


class CoresetSampler(BaseEstimator):  # type: ignore[misc]
    """Replace (X, y) by the rows that train a model almost as well.

    Parameters are those of :class:`bicore.BilevelSelector`, plus ``size`` (a count, a fraction or
    "auto"), ``random_state`` (a seed, a NumPy ``RandomState`` or ``Generator``, or None),
    ``runtime``, and ``sampling_strategy`` as imbalanced-learn has it: "auto" takes as many of every
    class as there are, a mapping (or a function of y that returns one) so many of each label at
    most; with ``size=None`` the counts of the mapping are the size, and classes it does not name
    are left out.

    Attributes
    ----------
    sample_indices_ : rows chosen, in order of selection.
    sample_weight_ : their weights, to pass on as ``sample_weight``.
    coreset_ : the whole answer.

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
        sampling_strategy: Any = None,
        kernel: Any = "ntk",
        loss: Any = "squared",
        outer_loss: Any = None,
        inner_reg: Any = "auto",
        weights: str = "binary",
        rule: str = "gradient",
        candidates: int | None = None,
        strategy: Any = "greedy",
        first: str = "best",
        tolerance: float = 0.02,
        task: str = "auto",
        classes: Any = None,
        inner: InnerSolver | None = None,
        linear: LinearSolver | None = None,
        optimiser: WeightOptimiser | None = None,
        random_state: Any = 0,
        runtime: Runtime | None = None,
    ) -> None:
        self.size = size
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
        self.random_state = random_state
        self.runtime = runtime

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CoresetSampler:
        """Choose the rows."""
        options = self.get_params(deep=False)
        size = options.pop("size")
        state = options.pop("random_state")
        runtime = options.pop("runtime")
        if options["optimiser"] is None:
            del options["optimiser"]
        data = Dataset(X, y, sample_weight)
        options["quotas"], size = _quotas(options.pop("sampling_strategy"), size, data)
        context = Context(runtime=runtime or Runtime())
        self.coreset_ = BilevelSelector(**options).select(
            data, size, rng=_seed(state), context=context
        )
        self.sample_indices_ = self.coreset_.indices
        self.sample_weight_ = self.coreset_.weights
        self.n_features_in_ = int(data.x[0].size)
        return self

    def fit_resample(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
        """Choose the rows and return them; frames stay frames."""
        self.fit(X, y, sample_weight)
        return _rows(X, self.sample_indices_), _rows(y, self.sample_indices_)


def _quotas(wanted: Any, size: Any, data: Dataset) -> tuple[Any, Any]:
    """imbalanced-learn's words as quotas, and the size."""
    if callable(wanted):
        wanted = wanted(data.y)
    if isinstance(wanted, Mapping):
        for label, count in wanted.items():
            if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
                raise InputError(
                    f"sampling_strategy[{label!r}]={count!r} is not a whole number >= 0; give how "
                    "many of that class."
                )
        if size is None and not sum(wanted.values()):
            raise InputError(
                f"sampling_strategy={wanted!r} asks for no point, and size=None goes by it; give "
                "counts, or a size."
            )
        if size is not None:
            return dict(wanted), size
        present = [] if data.y is None else np.unique(data.y).tolist()
        return {**dict.fromkeys(present, 0), **wanted}, int(sum(wanted.values()))
    if size is None:
        raise InputError(
            "size=None takes the counts of sampling_strategy, which is no mapping; give size, or "
            "{label: count}."
        )
    if wanted is not None and not (isinstance(wanted, str) and wanted in ("auto", "balanced")):
        raise InputError(
            f"sampling_strategy={wanted!r} is neither 'auto' nor a mapping {{label: count}}."
        )
    return None if wanted is None else "balanced", size


def _seed(state: Any) -> int:
    if state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(state, np.random.RandomState):
        return int(state.randint(2**31 - 1))
    if isinstance(state, np.random.Generator):
        return int(state.integers(2**31))
    return int(state)


def _rows(values: Any, rows: Any) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "shape") else np.asarray(values)[rows]
