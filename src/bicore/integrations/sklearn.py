"""scikit-learn: a sampler that keeps a coreset, and models that are fitted on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, has_fit_parameter, validate_data

from bicore import arguments, frames
from bicore._deprecated import renamed_fields
from bicore.api import select
from bicore.data import Array, Dataset, Task, scale_to_mean_one
from bicore.errors import InputError, check_integer, check_name
from bicore.integrations import accept_old_options
from bicore.methods.base import Selector
from bicore.methods.registry import METHODS, as_selector
from bicore.runtime.context import Runtime
from bicore.sources.tables import all_numbers, encode_table
from bicore.types import Estimator, Matrix, Numbers, RandomState, Sampler, Table

__all__ = ["CoresetClassifier", "CoresetRegressor", "CoresetSampler"]

#: Default number of rows: this share, but at least this many.
SHARE, FEWEST = 0.1, 100


@accept_old_options
@dataclass(eq=False, repr=False)
class CoresetSampler(BaseEstimator):  # type: ignore[misc]
    """Replace (X, y) by the rows that train a model almost as well.

    Frames stay frames and sparse rows stay sparse. Text columns of a frame are encoded for the
    selection, as :func:`bicore.select` does it.

    Parameters
    ----------
    size : int, float, "auto" or None
        A count, a fraction of the rows, or "auto" for the fewest rows within ``tolerance`` of the
        full model. None uses the counts of ``sampling_strategy`` if it is a mapping; otherwise a
        tenth of the rows, at least 100 of them.
    selector : str or Selector
        A name of ``bicore.methods.METHODS`` ("bilevel", "uniform", "k-center-features", …), or a
        selector such as ``BilevelSelector(kernel="rbf")``; its parameters can be searched as
        ``selector__kernel``.
    sampling_strategy : "auto", mapping or callable, optional
        "auto" selects equally many rows of each class; a mapping (or a function of y that returns
        one) limits the rows of each label. With ``size=None`` the counts of the mapping are the
        size, and other classes are left out. The meaning of imbalanced-learn is that of
        :class:`bicore.integrations.imblearn.CoresetSampler`.
    tolerance : float
        For ``size="auto"``: accepted increase of the full model's loss, as a share of it.
    random_state : int, Generator, RandomState or None
        Seed, or a generator to draw one from; None draws a new one each time.
    runtime : Runtime, optional
        Device, precision and limits.

    Attributes
    ----------
    sample_indices_ : array of int
        Selected rows, in order of selection.
    sample_weight_ : array of float
        Their weights, to pass on as ``sample_weight``.
    coreset_ : Coreset
        The selection.
    sampling_strategy_ : dict or None
        Number of selected rows of each class; None without y, or if y holds floats.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Names of the columns, if X is a frame whose names are strings.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> selector = BilevelSelector("rbf", inner_reg=0.1)
    >>> X_small, y_small = CoresetSampler(20, selector=selector).fit_resample(X, y)
    >>> X_small.shape
    (20, 64)
    """

    size: int | float | str | None = None
    _: KW_ONLY
    selector: str | Selector = "bilevel"
    sampling_strategy: str | Mapping[Any, int] | Callable[..., Any] | None = None
    tolerance: float = 0.02
    random_state: RandomState = 0
    runtime: Runtime | None = None

    def fit(
        self, X: Matrix, y: Numbers | None = None, sample_weight: Numbers | None = None
    ) -> CoresetSampler:
        """Select the rows.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.
        y : array or series (n,)
            Labels or targets; optional for methods that do not use them.
        sample_weight : array (n,), optional
            Weight of each row in the objective.

        Returns
        -------
        CoresetSampler
            The sampler itself.

        Raises
        ------
        InputError
            If a parameter is invalid.
        """
        read_selector(self)
        data = self._check_data(X, y, sample_weight)
        quotas, size = _quotas(self.sampling_strategy, self.size, data)
        self.coreset_ = select(
            data,
            size=size,
            method=self.selector if quotas is None else _with_quotas(self.selector, quotas),
            tolerance=self.tolerance if size == "auto" else None,
            random_state=draw_seed(self.random_state),
            runtime=self.runtime,
        )
        self.sample_indices_, self.sample_weight_ = self.coreset_.indices, self.coreset_.weights
        self.sampling_strategy_ = None
        if data.y is not None and data.y.ndim == 1 and data.y.dtype.kind != "f":
            self.sampling_strategy_ = dict(sorted(Counter(data.y[self.coreset_].tolist()).items()))
        return self

    def _check_data(self, X: Any, y: Any, sample_weight: Any) -> Dataset:
        """Check the data like scikit-learn, with its messages."""
        sparse = "csr" if self.__sklearn_tags__().input_tags.sparse else False
        form: dict[str, Any] = {"accept_sparse": sparse, "allow_nd": True}
        frames.refuse_hidden(y, "y")
        if has_text(X):
            validate_data(self, X, skip_check_array=True)
            return Dataset(encode_columns(X), y, sample_weight)
        if y is None:
            return Dataset(validate_data(self, X, None, **form), None, sample_weight)
        rows, labels = validate_data(self, X, y, multi_output=True, **form)
        return Dataset(rows, labels, sample_weight)

    def fit_resample(
        self, X: Matrix, y: Numbers | None = None, sample_weight: Numbers | None = None
    ) -> tuple[Any, Any]:
        """Select the rows and return them; frames stay frames.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.
        y : array or series (n,)
            Labels or targets.
        sample_weight : array (n,), optional
            Weight of each row in the objective.

        Returns
        -------
        X_resampled, y_resampled : array or frame
            The selected rows, in order of selection.
        """
        rows = self.fit(X, y, sample_weight).sample_indices_
        return frames.take_rows(X, rows), None if y is None else frames.take_rows(y, rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        selector = selector_or_none(self)
        tags.target_tags.required = selector is None or selector.needs_labels
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = selector is None or selector.takes_sparse
        tags.input_tags.three_d_array = True
        return tags


def has_text(X: Matrix) -> bool:
    """Whether X is a frame with non-numeric columns."""
    return frames.is_frame(X) and not all_numbers(X)


def encode_columns(X: Matrix) -> Any:
    """Encode the columns of a frame with text; return other X unchanged."""
    return encode_table(cast(Table, X)).scale_features(None).data.x if has_text(X) else X


def read_selector(sampler: Any) -> Selector:
    """Return the selector of a sampler."""
    if not isinstance(sampler.selector, Selector):
        check_name("selector", sampler.selector, METHODS)
    return as_selector(sampler.selector)


def selector_or_none(sampler: Any) -> Selector | None:
    """Return the selector of a sampler; None if it is invalid, which ``fit`` reports."""
    try:
        return read_selector(sampler)
    except InputError:
        return None


def draw_seed(state: RandomState) -> int:
    """Return a seed, which None draws from the global generator, as in scikit-learn."""
    return arguments.as_seed(check_random_state(None) if state is None else state)


def _quotas(wanted: Any, size: Any, data: Dataset) -> tuple[Any, Any]:
    """Return quotas and size for ``sampling_strategy`` and ``size``."""
    if callable(wanted):
        wanted = wanted(data.y)
    if isinstance(wanted, Mapping):
        for label, count in wanted.items():
            check_integer(f"sampling_strategy[{label!r}]", count, least=0)
        if size is not None:
            return dict(wanted), size
        present = [] if data.y is None else np.unique(data.y).tolist()
        total = check_integer("the sum of sampling_strategy", sum(wanted.values()))
        return {**dict.fromkeys(present, 0), **wanted}, total
    if str(wanted) not in ("None", "auto", "balanced"):
        allowed = "'auto', a mapping {label: count} or a function of y"
        raise InputError(f"sampling_strategy must be {allowed}; got {wanted!r}.")
    if size is None:
        available = int((data.weights > 0).sum())
        size = min(available, max(FEWEST, round(SHARE * available)))
    return None if wanted is None else "balanced", size


def _with_quotas(selector: str | Selector, quotas: Any) -> Selector:
    chooser = clone(as_selector(selector))
    if "quotas" not in chooser.get_params():
        wrong = f"sampling_strategy needs a method with quotas, and {chooser.name} has none"
        raise InputError(f"{wrong}; use selector='bilevel', or leave it out.")
    return cast(Selector, chooser.set_params(quotas=quotas))


def _has(method: str) -> Callable[[Callable[..., Any]], Any]:
    """Offer a method only if the wrapped model has it."""

    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return cast(Callable[[Callable[..., Any]], Any], available_if(check))


@renamed_fields()
@dataclass(eq=False, repr=False)
class _OnCoreset(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A model that is fitted on the rows of a sampler."""

    estimator: Estimator
    sampler: Sampler | None = None
    #: Task of the selection, if the sampler does not set it.
    _task: ClassVar[Task]

    def fit(self, X: Matrix, y: Numbers, sample_weight: Numbers | None = None) -> Any:
        """Select rows and fit the model on them.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.
        y : array or series (n,)
            Labels or targets.
        sample_weight : array (n,), optional
            Weight of each row in the objective of the selection.

        Returns
        -------
        CoresetClassifier or CoresetRegressor
            The model itself.

        Raises
        ------
        InputError
            If weights were learned and the model does not accept any.
        """
        self.sampler_ = clone(self.sampler or CoresetSampler())
        self._set_task()
        self._check_targets(y)
        counted = {} if sample_weight is None else {"sample_weight": sample_weight}
        rows, labels = self.sampler_.fit_resample(X, y, **counted)
        weights = getattr(self.sampler_, "sample_weight_", None)
        self.estimator_ = clone(self.estimator)
        self.estimator_.fit(rows, labels, **_pass_weights(self.estimator_, weights))
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.sampler_, name):
                setattr(self, name, getattr(self.sampler_, name))
        return self

    def _set_task(self) -> None:
        """Make a selector that infers the task use the task of this model."""
        chooser = read_selector(self.sampler_) if hasattr(self.sampler_, "selector") else None
        if chooser is not None and chooser.get_params().get("task") == Task.AUTO:
            self.sampler_.set_params(selector=clone(chooser).set_params(task=self._task))

    def _check_targets(self, y: Numbers) -> None:
        """Refuse targets of another kind."""

    def predict(self, X: Matrix) -> Any:
        """Predict with the fitted model.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.

        Returns
        -------
        array
            One label or target for each row.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        sparse = get_tags(self.sampler or CoresetSampler()).input_tags.sparse
        tags.input_tags.sparse = own.input_tags.sparse and sparse
        tags.target_tags.multi_output = own.target_tags.multi_output
        return tags


def _pass_weights(estimator: Any, weights: Array | None) -> dict[str, Any]:
    """Return arguments that pass weights to ``fit`` of a model; none if all weights are 1.

    They are for the last step of a pipeline, which may be a pipeline itself. With metadata routing
    the steps are asked first: the last step gets weights and the others none, unless they request
    otherwise.
    """
    if weights is None or bool((weights == 1.0).all()):
        return {}
    path, last, others = ["sample_weight"], estimator, []
    while hasattr(last, "steps"):
        others += [step for _, step in last.steps[:-1] if has_fit_parameter(step, "sample_weight")]
        name, last = last.steps[-1]
        path.insert(-1, name)
    if not has_fit_parameter(last, "sample_weight"):
        wrong = f"estimator={type(last).__name__} takes no sample_weight"
        fix = "use another model, or a selector with weights of 1"
        raise InputError(f"{wrong}, but the sampler learned weights; {fix}.")
    scaled = scale_to_mean_one(weights)
    if not get_config()["enable_metadata_routing"]:
        return {"__".join(path): scaled}
    for step in [last, *others]:
        if step.get_metadata_routing().fit.requests.get("sample_weight") is None:
            step.set_fit_request(sample_weight=step is last)
    return {"sample_weight": scaled}


class CoresetClassifier(ClassifierMixin, _OnCoreset):  # type: ignore[misc]
    """Fit a classifier on a coreset of the training data, with the coreset's weights.

    A sampler in a pipeline passes on rows without weights. Here learned weights reach the model as
    ``sample_weight``, scaled to a mean of 1, so that its regularisation keeps its meaning.

    Parameters
    ----------
    estimator : classifier
        The model, or a pipeline whose last step is one (pipelines may be nested).
    sampler : CoresetSampler, optional
        Selects the rows; anything with ``fit_resample``. Default: ``CoresetSampler()``.

    Attributes
    ----------
    estimator_ : classifier
        The fitted model.
    sampler_ : CoresetSampler
        The fitted sampler; ``sampler_.coreset_`` is the selection.
    classes_ : array
        Labels of the selected rows; a class without a row is never predicted.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_digits(return_X_y=True)
    >>> sampler = CoresetSampler(20, selector="bilevel-weighted")
    >>> model = CoresetClassifier(LogisticRegression(), sampler).fit(X[:100] / 16, y[:100])
    >>> model.estimator_.n_features_in_, len(model.sampler_.sample_indices_)
    (64, 20)
    """

    _task = Task.CLASSIFICATION

    def _check_targets(self, y: Numbers) -> None:
        if y is not None:
            check_array(y, ensure_2d=False, dtype=None, input_name="y")
            check_classification_targets(y)

    @property
    def classes_(self) -> Array:
        """Labels of the selected rows."""
        return np.asarray(self.estimator_.classes_)

    @_has("predict_proba")
    def predict_proba(self, X: Matrix) -> Any:
        """Predict the probability of each of ``classes_``.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.

        Returns
        -------
        array
            One row for each row of X, one column for each class.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X)

    @_has("decision_function")
    def decision_function(self, X: Matrix) -> Any:
        """Compute the scores of the model.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.

        Returns
        -------
        array
            One row for each row of X.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(X)


class CoresetRegressor(RegressorMixin, _OnCoreset):  # type: ignore[misc]
    """Fit a regression model on a coreset of the training data, with the coreset's weights.

    Parameters
    ----------
    estimator : regressor
        The model, or a pipeline whose last step is one (pipelines may be nested).
    sampler : CoresetSampler, optional
        Selects the rows; default: ``CoresetSampler()``.

    Attributes
    ----------
    estimator_ : regressor
        The fitted model.
    sampler_ : CoresetSampler
        The fitted sampler; ``sampler_.coreset_`` is the selection.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> x = np.linspace(0, 6, 50)[:, None]
    >>> model = CoresetRegressor(Ridge(), CoresetSampler(10)).fit(x, 3 * x[:, 0])
    >>> bool(model.score(x, 3 * x[:, 0]) > 0.9)
    True
    """

    _task = Task.REGRESSION
