"""imbalanced-learn: an under-sampler that keeps a coreset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from bicore.api import select
from bicore.coreset import Coreset
from bicore.data import Dataset, Task
from bicore.integrations import missing_base
from bicore.integrations.sklearn import as_seed, changed_options, selector_or_none
from bicore.methods.base import Selector
from bicore.methods.registry import as_selector
from bicore.runtime import Runtime

try:
    from imblearn.under_sampling.base import BaseUnderSampler
except ImportError:
    BaseUnderSampler = missing_base(
        "CoresetSampler needs imbalanced-learn: pip install 'bicore[imblearn]' (or use "
        "bicore.integrations.sklearn.CoresetSampler)."
    )

__all__ = ["CoresetSampler"]


class CoresetSampler(BaseUnderSampler):  # type: ignore[misc]
    """Under-sample classes to the rows that train a model almost as well.

    The counts are those of imbalanced-learn: a class that is not resampled keeps all of its rows,
    and the rows of the others are selected in addition to them. For another size, or for targets,
    use :class:`bicore.integrations.sklearn.CoresetSampler`.

    Parameters
    ----------
    sampling_strategy : float, str, dict or callable
        Classes to resample, and their numbers of rows; "auto": all but the smallest, to its size.
    method : str or Selector
        A name of ``bicore.methods.METHODS`` ("bilevel", "k-center-features", …), or a selector,
        which carries its own options. A method without quotas selects in each class separately.
    kernel : str, Kernel or callable
        The model's kernel.
    loss : str, Loss or callable
        Loss of the inner problem.
    inner_reg : float, PerPoint or "auto"
        Regularisation strength.
    weights : {"binary", "learnt", "final"}
        Whether points have weights other than 1, and when they are learnt.
    random_state : int, RandomState, Generator or None
        Seed, or a generator to draw one from; None draws a new one each time.
    runtime : Runtime, optional
        Device, precision and limits.

    Attributes
    ----------
    sampling_strategy_ : dict
        The resampled classes, and their counts.
    sample_indices_ : array of int
        Selected rows, in order of selection.
    sample_weight_ : array of float
        Their weights, to pass on as ``sample_weight``: a pipeline does not, and
        :class:`bicore.integrations.sklearn.CoresetClassifier` does.
    coreset_ : Coreset
        The selection.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Names of the columns, if X is a frame whose names are strings.

    Examples
    --------
    >>> from imblearn.pipeline import make_pipeline  # doctest: +SKIP
    >>> model = make_pipeline(CoresetSampler(kernel="rbf"), LogisticRegression())  # doctest: +SKIP
    """

    _parameter_constraints = {  # noqa: RUF012  # as the library has it
        **getattr(BaseUnderSampler, "_parameter_constraints", {}),
        # the selection checks its own parameters
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
        data = Dataset(X, y, sample_weight)
        labels, present = np.unique(np.asarray(data.y), return_counts=True)
        counts = dict(zip(labels.tolist(), present.tolist(), strict=True))
        for label, count in self.sampling_strategy_.items():
            counts[np.asarray(label).item()] = int(count)
        selector = as_selector(self.method, **changed_options(self))
        seed = as_seed(self.random_state)
        self.coreset_ = _select_counts(selector, data, counts, seed=seed, runtime=self.runtime)
        self.sample_indices_ = self.coreset_.indices
        self.sample_weight_ = self.coreset_.weights
        return X[self.sample_indices_], y[self.sample_indices_]

    def _check_X_y(self, X: Any, y: Any, accept_sparse: Any = None) -> Any:
        sparse = self.__sklearn_tags__().input_tags.sparse
        return super()._check_X_y(X, y, accept_sparse if sparse else False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        selector = selector_or_none(self)
        tags.input_tags.sparse = selector is None or selector.takes_sparse
        tags.sampler_tags.sample_indices = True
        return tags


def _select_counts(
    selector: Selector, data: Dataset, counts: Mapping[Any, int], **more: Any
) -> Coreset:
    """Select so many rows of each class: by quotas, or in each class if a method has none."""
    rows = {label: np.flatnonzero(data.y == label) for label in counts}
    whole = {label for label, count in counts.items() if len(rows[label]) == count}
    if hasattr(selector, "quotas"):
        # labels that are whole floats are classes here
        bound: Any = replace(cast(Any, selector), quotas=dict(counts), task=Task.CLASSIFICATION)
        begun = [int(row) for label in counts if label in whole for row in rows[label]]
        return select(data, size=sum(counts.values()), method=bound, initial=begun, **more)
    chosen, weights = [], []
    for label, count in counts.items():
        part = Coreset(np.arange(count))
        if count and label not in whole:
            part = select(data[rows[label]], size=count, method=selector, **more)
        chosen.append(rows[label][part.indices])
        weights.append(part.weights)
    indices = np.concatenate(chosen)
    coreset = Coreset(indices, np.concatenate(weights), data.ids[indices])
    words = f"{selector.name}, in each class separately"
    return coreset.annotated({"method": words, "rows": len(data)})
