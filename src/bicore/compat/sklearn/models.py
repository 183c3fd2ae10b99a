"""Models of scikit-learn that are fitted on a coreset, with the weights that were learnt for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
)
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, has_fit_parameter

from bicore.compat.sklearn.sampler import CoresetSampler
from bicore.data import Array, Task, of_mean_one
from bicore.errors import InputError


def _has(method: str) -> Callable[[Callable[..., Any]], Any]:
    """Whether the model that is wrapped, fitted or not, has a method."""

    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    found: Callable[[Callable[..., Any]], Any] = available_if(check)
    return found


class _OnCoreset(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A model that sees the rows a sampler chooses."""

    #: How y is read where the sampler leaves that open.
    _task: Task

    def __init__(self, estimator: Any, sampler: Any = None) -> None:
        self.estimator = estimator
        self.sampler = sampler

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Choose rows and fit the model on them.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.
        y : array or series (n,)
            Labels or targets.
        sample_weight : array (n,), optional
            How much each row counts when the rows are chosen.

        Returns
        -------
        CoresetClassifier or CoresetRegressor
            The model itself.

        Raises
        ------
        InputError
            Where weights were learnt and the model takes none.
        """
        self.sampler_ = clone(CoresetSampler() if self.sampler is None else self.sampler)
        if self.sampler_.get_params().get("task") == Task.AUTO:
            self.sampler_.set_params(task=self._task.value)
        self._check_targets(y)
        counted = {} if sample_weight is None else {"sample_weight": sample_weight}
        rows, labels = self.sampler_.fit_resample(X, y, **counted)
        weights = getattr(self.sampler_, "sample_weight_", None)
        self.estimator_ = clone(self.estimator)
        self.estimator_.fit(rows, labels, **_weighed(self.estimator_, weights))
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.sampler_, name):
                setattr(self, name, getattr(self.sampler_, name))
        return self

    def _check_targets(self, y: Any) -> None:
        """Refuse a y that such a model is not fitted to."""

    def predict(self, X: Any) -> Any:
        """What the model predicts.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.

        Returns
        -------
        array
            One label or target a row.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        sampler = CoresetSampler() if self.sampler is None else self.sampler
        sparse = get_tags(sampler).input_tags.sparse
        tags.input_tags.sparse = own.input_tags.sparse and sparse
        tags.target_tags.multi_output = own.target_tags.multi_output
        return tags


def _weighed(estimator: Any, weights: Array | None) -> dict[str, Any]:
    """The weights in the word by which the model's ``fit`` takes them; none where all are 1."""
    if weights is None or bool((weights == 1.0).all()):
        return {}
    steps = getattr(estimator, "steps", None)
    last = estimator if steps is None else steps[-1][1]
    if not has_fit_parameter(last, "sample_weight"):
        raise InputError(
            f"estimator={type(last).__name__} takes no sample_weight, and the sampler learnt "
            "weights; give a model that does, or a sampler with weights='binary'."
        )
    word = "sample_weight" if steps is None else f"{steps[-1][0]}__sample_weight"
    return {word: of_mean_one(weights)}


class CoresetClassifier(ClassifierMixin, _OnCoreset):  # type: ignore[misc]
    """A classifier fitted on a coreset of what it is given, with the coreset's weights.

    In a pipeline a sampler hands on rows and no weights; here those that were learnt reach the
    model as ``sample_weight``, scaled to a mean of 1, so that its regulariser means what it means
    without them.

    Parameters
    ----------
    estimator : classifier
        The model, or a pipeline whose last step is one.
    sampler : CoresetSampler, optional
        What chooses the rows; anything with ``fit_resample`` can. Default: ``CoresetSampler()``, a
        tenth of the rows.

    Attributes
    ----------
    estimator_ : classifier
        The model that was fitted.
    sampler_ : CoresetSampler
        The sampler that was; ``sampler_.coreset_`` is its answer.
    classes_ : array
        The labels of the rows chosen; a class without a row is never predicted.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_digits(return_X_y=True)
    >>> sampler = CoresetSampler(20, kernel="rbf", inner_reg=0.1, weights="final")
    >>> model = CoresetClassifier(LogisticRegression(), sampler).fit(X[:100] / 16, y[:100])
    >>> model.estimator_.n_features_in_, len(model.sampler_.sample_indices_)
    (64, 20)
    """

    _task = Task.CLASSIFICATION

    def _check_targets(self, y: Any) -> None:
        if y is not None:
            check_array(y, ensure_2d=False, dtype=None, input_name="y")
            check_classification_targets(y)

    @property
    def classes_(self) -> Array:
        """The labels of the rows chosen."""
        return np.asarray(self.estimator_.classes_)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """The probability of each of ``classes_``.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.

        Returns
        -------
        array
            One row for each of X, one column a class.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """The model's scores.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, …)
            Features.

        Returns
        -------
        array
            One row for each of X.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(X)


class CoresetRegressor(RegressorMixin, _OnCoreset):  # type: ignore[misc]
    """A regression model fitted on a coreset of what it is given, with the coreset's weights.

    Parameters
    ----------
    estimator : regressor
        The model, or a pipeline whose last step is one.
    sampler : CoresetSampler, optional
        What chooses the rows; default: ``CoresetSampler()``, a tenth of them.

    Attributes
    ----------
    estimator_ : regressor
        The model that was fitted.
    sampler_ : CoresetSampler
        The sampler that was; ``sampler_.coreset_`` is its answer.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> x = np.linspace(0, 6, 50)[:, None]
    >>> sampler = CoresetSampler(10, kernel="rbf", inner_reg=0.1)
    >>> model = CoresetRegressor(Ridge(), sampler).fit(x, 3 * x[:, 0])
    >>> bool(model.score(x, 3 * x[:, 0]) > 0.9)
    True
    """

    _task = Task.REGRESSION
