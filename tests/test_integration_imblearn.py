"""imbalanced-learn's checks and pipelines with our under-sampler."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("imblearn", reason="imbalanced-learn is not installed (extra: imblearn)")

from imblearn.base import is_sampler
from imblearn.pipeline import make_pipeline
from imblearn.under_sampling import RandomUnderSampler
from imblearn.utils.estimator_checks import parametrize_with_checks
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks as parametrize_with_sklearn

from bicore import LargeDataWarning
from bicore.integrations.imblearn import CoresetSampler
from bicore.integrations.sklearn import CoresetClassifier
from bicore.integrations.sklearn import CoresetSampler as Sampler
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs, fails, refuses

PLAIN = greedy_selector("linear", inner_reg=0.1)


def expected_failures(sampler):
    """The library checks sparse frames whatever the sampler's tag says of sparse rows."""
    reason = "the method looks at dense rows; sparse ones are refused in scikit-learn's words"
    dense = sampler.selector == "k-center-features"
    return {"check_samplers_pandas_sparse": reason} if dense else {}


@pytest.mark.slow
@parametrize_with_checks(
    [
        CoresetSampler(),
        CoresetSampler(selector="uniform"),
        CoresetSampler(selector="k-center-features"),
    ],
    expected_failed_checks=expected_failures,
)
def test_imbalanced_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_sklearn([CoresetSampler()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def make_uneven_classes():
    """Of three classes 20, 8 and 12 rows."""
    data = blobs(60, classes=3)
    counts = {0: 20, 1: 8, 2: 12}
    rows = np.concatenate([np.flatnonzero(data.y == k)[:many] for k, many in counts.items()])
    return data.x[rows], data.y[rows]


def test_counts_are_those_of_imbalanced_learn():
    x, y = make_uneven_classes()
    for strategy in ("auto", "majority", "not minority", {0: 5}, lambda y: {0: 9, 2: 3}):
        theirs = RandomUnderSampler(sampling_strategy=strategy, random_state=0)
        expected = Counter(theirs.fit_resample(x, y)[1])
        for method in (PLAIN, "k-center-features"):
            sampler = CoresetSampler(sampling_strategy=strategy, selector=method)
            rows, labels = sampler.fit_resample(x, y)
            assert Counter(labels) == expected
            assert sampler.sampling_strategy_ == theirs.sampling_strategy_
            np.testing.assert_array_equal(rows, x[sampler.sample_indices_])
    two = y < 2
    ratio = CoresetSampler(sampling_strategy=0.8, selector=PLAIN)
    assert Counter(ratio.fit_resample(x[two], y[two])[1]) == {0: 10, 1: 8}


def test_classes_that_are_not_resampled_stay_complete():
    x, y = make_uneven_classes()
    sampler = CoresetSampler(selector=greedy_selector("rbf", inner_reg=0.1))
    sampler.fit_resample(x, y)
    assert set(np.flatnonzero(y == 1)) <= set(sampler.sample_indices_)
    first = sampler.sample_indices_[: int((y == 1).sum())]
    assert (y[first] == 1).all()


def test_a_pipeline_and_a_search_take_it():
    x, y = make_uneven_classes()
    assert is_sampler(CoresetSampler())
    pipeline = make_pipeline(CoresetSampler(selector=PLAIN), LogisticRegression())
    search = GridSearchCV(pipeline, {"coresetsampler__selector": [PLAIN, "uniform"]}, cv=2)
    frame = pd.DataFrame(x, columns=list("abcd"))
    search.fit(frame, y)
    assert search.best_estimator_[0].feature_names_in_.tolist() == list("abcd")
    assert search.score(frame, y) > 0.5


def test_the_sampler_works_in_a_scikit_learn_pipeline():
    x, y = make_uneven_classes()
    pipeline = make_pipeline(Sampler(10, selector=PLAIN), LogisticRegression())
    assert pipeline.fit(x, y).score(x, y) > 0.5
    assert len(pipeline[0].sample_indices_) == 10


@pytest.mark.parametrize("weights", ["final", "learnt"])
def test_learned_weights_keep_the_counts_and_reach_a_model(weights):
    x, y = make_uneven_classes()
    chooser = greedy_selector("rbf", inner_reg=0.1, weighting=weights)
    sampler = CoresetSampler(selector=chooser)
    model = CoresetClassifier(LogisticRegression(), sampler).fit(x, y)
    assert not (model.sampler_.sample_weight_ == 1.0).all()
    rows = model.sampler_.sample_indices_
    assert Counter(y[rows]) == {0: 8, 1: 8, 2: 8}
    assert set(np.flatnonzero(y == 1)) <= set(rows)


def test_large_data_are_selected_in_parts(monkeypatch):
    data = blobs(300, classes=3)
    keep = np.flatnonzero((data.y != 0) | (np.arange(300) % 2 == 0))
    for name, value in {"EXACT_ROWS": 100, "PART_ROWS": 80, "PART_POINTS": 30}.items():
        monkeypatch.setattr(f"bicore.methods.counts.{name}", value)
    least = min(Counter(data.y[keep]).values())
    for weights in ("binary", "final"):
        chooser = greedy_selector("rbf", inner_reg=0.1, weighting=weights, exact=False)
        sampler = CoresetSampler(selector=chooser)
        with pytest.warns(LargeDataWarning, match="in 4 parts"):
            _, labels = sampler.fit_resample(data.x[keep], data.y[keep])
        assert set(Counter(labels).values()) == {least}
        assert (sampler.sample_weight_ != 1).any() == (weights == "final")


def test_category_columns_are_taken_as_the_library_takes_them():
    x, y = make_uneven_classes()
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame["colour"] = pd.Categorical(np.where(x[:, 0] > 0, "red", "blue"))
    theirs = RandomUnderSampler(random_state=0).fit_resample(frame, y)[0]
    sampler = CoresetSampler(selector=PLAIN)
    ours, labels = sampler.fit_resample(frame, y)
    assert ours.dtypes.equals(theirs.dtypes)
    assert Counter(labels) == {0: 8, 1: 8, 2: 8}
    assert sampler.feature_names_in_.tolist() == [*"abcd", "colour"]


def test_a_model_can_use_another_sampler():
    x, y = make_uneven_classes()
    other = CoresetClassifier(LogisticRegression(), RandomUnderSampler()).fit(x, y)
    assert other.score(x, y) > 0.5


def test_invalid_arguments_fail_before_selection():
    x, y = make_uneven_classes()
    fails(ValueError, "Reshape your data", CoresetSampler().fit_resample, x[:, 0], y)
    with pytest.raises(ValueError, match="sampling_strategy"):
        CoresetSampler(sampling_strategy="minority").fit_resample(x, y)
    with pytest.raises(TypeError, match=r"Sparse data was passed.* dense data is required"):
        CoresetSampler(selector=greedy_selector("laplace")).fit_resample(sparse.csr_matrix(x), y)
    refuses("k-centre", CoresetSampler(selector="k-centre").fit_resample, x, y)
