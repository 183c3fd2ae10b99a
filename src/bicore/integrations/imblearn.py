"""imbalanced-learn: an under-sampler that keeps a coreset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from bicore import frames
from bicore.data import Dataset
from bicore.integrations import accept_old_options, missing_base
from bicore.integrations.sklearn import (
    draw_seed,
    encode_columns,
    has_text,
    read_selector,
    selector_or_none,
)
from bicore.methods.base import Selector
from bicore.methods.counts import select_counts
from bicore.runtime.context import Runtime
from bicore.types import RandomState

try:
    from imblearn.under_sampling.base import BaseUnderSampler
    from imblearn.utils import check_target_type
except ImportError:
    BaseUnderSampler = missing_base(
        "CoresetSampler needs imbalanced-learn: pip install 'bicore[imblearn]' (or use "
        "bicore.integrations.sklearn.CoresetSampler)."
    )

__all__ = ["CoresetSampler"]

#: Sparse rows of up to this many numbers are selected from as dense ones, with the same answer.
DENSE_NUMBERS = 20_000_000


@accept_old_options
class CoresetSampler(BaseUnderSampler):  # type: ignore[misc]
    """Under-sample classes to the rows that train a model almost as well.

    The counts are those of imbalanced-learn: a class that is not resampled keeps all of its rows,
    and the rows of the others are selected in addition to them. Beyond 5,000 rows and 500 selected
    ones, rows are selected in parts, with a :class:`bicore.LargeDataWarning`; a selector with
    ``exact=True`` selects from all rows at once. For another size, or for targets, use
    :class:`bicore.integrations.sklearn.CoresetSampler`.

    Parameters
    ----------
    sampling_strategy : float, str, dict or callable
        Classes to resample, and their numbers of rows. "auto" reduces all classes to the size of
        the smallest.
    selector : str or Selector
        A name of ``bicore.methods.METHODS`` ("bilevel", "k-center-features", …), or a selector such
        as ``BilevelSelector(kernel="rbf")``. A method without quotas selects in each class
        separately. Learned weights are fitted after all rows are selected; rows of weight 0 stay.
    random_state : int, Generator, RandomState or None
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
        Their weights, to pass on as ``sample_weight``. A pipeline does not pass them on;
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
    >>> model = make_pipeline(CoresetSampler(), LogisticRegression())  # doctest: +SKIP
    """

    _parameter_constraints = {  # noqa: RUF012  # a class attribute, as in imbalanced-learn
        **getattr(BaseUnderSampler, "_parameter_constraints", {}),
        # the selection checks its own parameters
        **dict.fromkeys(("selector", "random_state", "runtime"), "no_validation"),
    }

    def __init__(
        self,
        *,
        sampling_strategy: float | str | Mapping[Any, int] | Callable[..., Any] = "auto",
        selector: str | Selector = "bilevel",
        random_state: RandomState = 0,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(sampling_strategy=sampling_strategy)
        self.selector = selector
        self.random_state = random_state
        self.runtime = runtime

    def _fit_resample(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
        dense = issparse(X) and np.prod(X.shape, dtype=float) <= DENSE_NUMBERS
        data = Dataset(X.toarray() if dense else encode_columns(X), y, sample_weight)
        labels, present = np.unique(np.asarray(data.y), return_counts=True)
        counts = dict(zip(labels.tolist(), present.tolist(), strict=True))
        for label, count in self.sampling_strategy_.items():
            counts[np.asarray(label).item()] = int(count)
        selector, seed = read_selector(self), draw_seed(self.random_state)
        self.coreset_ = select_counts(selector, data, counts, seed, self.runtime)
        self.sample_indices_ = self.coreset_.indices
        self.sample_weight_ = self.coreset_.weights
        rows = self.sample_indices_
        return frames.take_rows(X, rows), frames.take_rows(y, rows)

    def _check_X_y(self, X: Any, y: Any, accept_sparse: Any = None) -> Any:
        if has_text(X):
            labels, binarize = check_target_type(y, indicate_one_vs_all=True)
            return *validate_data(self, X, labels, skip_check_array=True), binarize
        sparse = self.__sklearn_tags__().input_tags.sparse
        return super()._check_X_y(X, y, accept_sparse if sparse else False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        selector = selector_or_none(self)
        tags.input_tags.sparse = selector is None or selector.takes_sparse
        tags.sampler_tags.sample_indices = True
        return tags
