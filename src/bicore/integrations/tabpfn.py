"""TabPFN and other models whose training rows are limited: contexts instead of random rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from bicore._deprecated import renamed_fields, renamed_keywords
from bicore.api import contexts
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.integrations.sklearn import draw_seed
from bicore.runtime.context import Runtime
from bicore.types import Estimator, Matrix, Numbers, RandomState

__all__ = ["ContextClassifier", "ContextRegressor", "set_contexts"]


@renamed_keywords(rows="contexts")
def set_contexts(model: Estimator, contexts: Sequence[Array | Sequence[int]]) -> Any:
    """Let each estimator of a TabPFN model read one context.

    Parameters
    ----------
    model : TabPFNClassifier or TabPFNRegressor
        A model with the parameters ``n_estimators`` and ``inference_config``.
    contexts : sequence of array or of list
        Row numbers of each context, from :func:`bicore.contexts`.

    Returns
    -------
    object
        A copy of the model, to be fitted on all rows.

    Raises
    ------
    InputError
        If the model has no such parameters.

    Examples
    --------
    >>> from tabpfn import TabPFNClassifier  # doctest: +SKIP
    >>> model = set_contexts(TabPFNClassifier(), bicore.contexts(x, y, 500))  # doctest: +SKIP
    >>> model.fit(x, y)  # doctest: +SKIP
    """
    if not _reads_contexts(model):
        fix = "use ContextClassifier or ContextRegressor, which fit one copy of it for each context"
        raise InputError(f"model={type(model).__name__} has no inference_config; {fix}.")
    given = model.get_params()["inference_config"] or {}
    config = {**given, "SUBSAMPLE_SAMPLES": [list(map(int, one)) for one in contexts]}
    return clone(model).set_params(n_estimators=len(contexts), inference_config=config)


def _reads_contexts(model: Any) -> bool:
    """Whether a model is TabPFN from version 2 on."""
    names = model.get_params() if hasattr(model, "get_params") else {}
    return "inference_config" in names and "n_estimators" in names


@renamed_fields()
@dataclass(eq=False, repr=False)
class _ContextModel(BaseEstimator):  # type: ignore[misc]
    """A model fitted on contexts; predictions are averaged."""

    estimator: Estimator
    size: int = 500
    n_contexts: int = 8
    random_state: RandomState = 0
    runtime: Runtime | None = None

    def fit(self, X: Matrix, y: Numbers) -> Any:
        """Select contexts and fit the estimator on them.

        Parameters
        ----------
        X, y : array
            Features and labels (or targets), row by row.

        Returns
        -------
        object
            The fitted model.
        """
        data = Dataset(X, y)
        assert data.y is not None
        size = min(self.size, len(data)) if type(self.size) is int else self.size
        self.contexts_ = contexts(
            data.x,
            data.y,
            size,
            self.n_contexts,
            random_state=draw_seed(self.random_state),
            runtime=self.runtime,
        )
        if _reads_contexts(self.estimator):
            self.models_ = [set_contexts(self.estimator, self.contexts_).fit(data.x, data.y)]
        else:
            parts = [data[rows] for rows in self.contexts_]
            self.models_ = [clone(self.estimator).fit(part.x, part.y) for part in parts]
        return self


class ContextClassifier(ClassifierMixin, _ContextModel):  # type: ignore[misc]
    """A classifier whose probabilities are averaged over contexts.

    TabPFN from version 2 on is fitted once and given the contexts; any other classifier with
    ``predict_proba`` is fitted once per context.

    Parameters
    ----------
    estimator : classifier
        The model.
    size : int
        Number of rows of each context; all rows if there are fewer.
    n_contexts : int
        Number of contexts.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits of the selection.

    Attributes
    ----------
    contexts_ : list of array
        Row numbers of each context.
    classes_ : array
        The labels, in the order of the probabilities.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = ContextClassifier(KNeighborsClassifier(3), size=10, n_contexts=2)
    >>> model.fit(x, x[:, 0] > 0).predict_proba(x).shape
    (60, 2)
    """

    def fit(self, X: Matrix, y: Numbers) -> Any:
        self.classes_ = np.unique(np.asarray(y))
        return super().fit(X, y)

    def predict_proba(self, X: Matrix) -> Array:
        """Average the probabilities of all contexts; a class that a context lacks counts 0.

        Parameters
        ----------
        X : array
            Rows.

        Returns
        -------
        array (n, classes)
            The probabilities.
        """
        check_is_fitted(self)
        shares = [model.predict_proba(X) for model in self.models_]
        total = np.zeros((len(shares[0]), len(self.classes_)))
        for model, share in zip(self.models_, shares, strict=True):
            total[:, np.searchsorted(self.classes_, model.classes_)] += share
        found: Array = total / len(shares)
        return found

    def predict(self, X: Matrix) -> Array:
        """Predict the most probable label of each row.

        Parameters
        ----------
        X : array
            Rows.

        Returns
        -------
        array
            The labels.
        """
        best = self.predict_proba(X).argmax(1)
        labels: Array = self.classes_[best]
        return labels


class ContextRegressor(RegressorMixin, _ContextModel):  # type: ignore[misc]
    """A regressor whose predictions are averaged over contexts.

    Parameters
    ----------
    estimator : regressor
        The model; TabPFN from version 2 on is fitted once and given the contexts.
    size : int
        Number of rows of each context; all rows if there are fewer.
    n_contexts : int
        Number of contexts.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits of the selection.

    Attributes
    ----------
    contexts_ : list of array
        Row numbers of each context.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = ContextRegressor(KNeighborsRegressor(3), size=10, n_contexts=2)
    >>> model.fit(x, x[:, 0]).predict(x).shape
    (60,)
    """

    def predict(self, X: Matrix) -> Array:
        """Average the predictions of all contexts.

        Parameters
        ----------
        X : array
            Rows.

        Returns
        -------
        array
            The targets.
        """
        check_is_fitted(self)
        found: Array = np.mean([model.predict(X) for model in self.models_], axis=0)
        return found
