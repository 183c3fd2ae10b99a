"""An under-sampler as imbalanced-learn has them: the rows that stay are a coreset."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np

from bicore.compat.sklearn.sampler import as_seed, chooser
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, Task
from bicore.errors import InputError
from bicore.runtime import Context, Runtime
from bicore.selectors.base import Selector

try:
    from imblearn.under_sampling.base import BaseUnderSampler
except ImportError:

    class BaseUnderSampler:  # type: ignore[no-redef]
        """Stands where imbalanced-learn is not installed, so that the module can be read."""

        _parameter_constraints: dict[str, Any] = {}  # noqa: RUF012  # as the library has it

        def __init__(self, **_: Any) -> None:
            raise InputError(
                "CoresetSampler needs imbalanced-learn: pip install 'bicore[imblearn]' (or "
                "take bicore.compat.sklearn.CoresetSampler)."
            )


__all__ = ["CoresetSampler"]


class CoresetSampler(BaseUnderSampler):  # type: ignore[misc]
    """Under-sample classes to the rows that train a model almost as well.

    Counts are imbalanced-learn's: a class that is not resampled keeps all of its rows, and those of
    the others are chosen beside them. A size of one's own and targets that are no classes:
    :class:`bicore.compat.sklearn.CoresetSampler`.

    Parameters
    ----------
    sampling_strategy : float, str, dict or callable
        Which classes are resampled, and to how many rows; "auto": all but the smallest, to its
        size.
    method : str or Selector
        A name of ``bicore.selectors.METHODS`` ("bilevel", "k-center-features", …), or a selector
        with options of its own, such as a :class:`bicore.BilevelSelector`. A method without quotas
        chooses in each class by itself.
    kernel : str, Kernel or callable
        The model's kernel.
    loss : str, Loss or callable
        What the model is fitted by.
    inner_reg : float, PerPoint or "auto"
        The regulariser.
    weights : {"binary", "learnt", "final"}
        Whether points have weights other than 1, and when they are learnt.
    random_state : int, RandomState, Generator or None
        A seed, or what one is drawn from; None takes another one each time.
    runtime : Runtime, optional
        Device, precision and limits.

    Attributes
    ----------
    sampling_strategy_ : dict
        The classes that were resampled, and their counts.
    sample_indices_ : array of int
        Rows that stay, in order of selection.
    sample_weight_ : array of float
        Their weights, to pass on as ``sample_weight``: a pipeline does not, and
        :class:`bicore.compat.sklearn.CoresetClassifier` does.
    coreset_ : Coreset
        The whole answer.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : array of str
        Their names, where X is a frame whose names are all text.

    Examples
    --------
    >>> from imblearn.pipeline import make_pipeline  # doctest: +SKIP
    >>> model = make_pipeline(CoresetSampler(kernel="rbf"), LogisticRegression())  # doctest: +SKIP
    """

    _parameter_constraints = {  # noqa: RUF012  # as the library has it
        **BaseUnderSampler._parameter_constraints,
        # Ours are checked where they are used, with a mend in words.
        **dict.fromkeys(
            ("method", "kernel", "loss", "inner_reg", "weights", "random_state", "runtime"),
            "no_validation",
        ),
    }

    def __init__(
        self,
        *,
        sampling_strategy: Any = "auto",
        method: str | Selector = "bilevel",
        kernel: Any = "auto",
        loss: Any = "squared",
        inner_reg: Any = "auto",
        weights: str = "binary",
        random_state: Any = 0,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(sampling_strategy=sampling_strategy)
        self.method = method
        self.kernel = kernel
        self.loss = loss
        self.inner_reg = inner_reg
        self.weights = weights
        self.random_state = random_state
        self.runtime = runtime

    def _fit_resample(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
        selector = self._chooser()
        data = Dataset(X, y, sample_weight)
        labels, present = np.unique(np.asarray(data.y), return_counts=True)
        counts = dict(zip(labels.tolist(), present.tolist(), strict=True))
        for label, count in self.sampling_strategy_.items():
            counts[np.asarray(label).item()] = int(count)
        context = Context(runtime=self.runtime or Runtime())
        self.coreset_ = _counted(selector, data, counts, as_seed(self.random_state), context)
        self.sample_indices_ = self.coreset_.indices
        self.sample_weight_ = self.coreset_.weights
        return X[self.sample_indices_], y[self.sample_indices_]

    def _chooser(self) -> Selector:
        options = {name: getattr(self, name) for name in ("kernel", "loss", "inner_reg", "weights")}
        return chooser(self.method, options, _DEFAULTS)

    def _check_X_y(self, X: Any, y: Any, accept_sparse: Any = None) -> Any:
        return super()._check_X_y(X, y, accept_sparse if self._chooser().takes_sparse else False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Parameters that are wrong are refused by the fit.
        with suppress(InputError):
            tags.input_tags.sparse = self._chooser().takes_sparse
        tags.sampler_tags.sample_indices = True
        return tags


#: What each parameter is where nothing is said.
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(CoresetSampler).parameters.items()
}


def _counted(
    selector: Selector, data: Dataset, counts: Mapping[Any, int], seed: int, context: Context
) -> Coreset:
    """So many rows of each class: by quotas, or class by class where a method has none."""
    rows = {label: np.flatnonzero(data.y == label) for label in counts}
    whole = [rows[label] for label in counts if len(rows[label]) == counts[label]]
    begun = np.concatenate(whole).tolist() if whole else []
    if hasattr(selector, "quotas"):
        # Labels that are whole floats are classes here, whatever they are elsewhere.
        bound: Any = replace(cast(Any, selector), quotas=dict(counts), task=Task.CLASSIFICATION)
        total = sum(counts.values())
        found: Coreset = bound.select(data, total, initial=begun, rng=seed, context=context)
        return found
    parts = [
        (rows[label], _of_class(selector, data[rows[label]], count, seed, context))
        for label, count in counts.items()
        if count
    ]
    return _together(parts, data, selector)


def _of_class(
    selector: Selector, part: Dataset, count: int, seed: int, context: Context
) -> Coreset:
    if count == len(part):
        return Coreset(np.arange(count))
    return selector.select(part, count, rng=seed, context=context)


def _together(parts: list[tuple[Array, Coreset]], data: Dataset, selector: Selector) -> Coreset:
    """One coreset of those of the classes, whose rows are given beside each."""
    chosen = np.concatenate([rows[part.indices] for rows, part in parts])
    weights = np.concatenate([part.weights for _, part in parts])
    story = {"method": f"{selector.name}, class by class", "rows": len(data)}
    return Coreset(chosen, weights, data.ids[chosen]).annotated(story)
