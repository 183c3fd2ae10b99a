"""scikit-learn's and imbalanced-learn's checks on our samplers and models."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bicore import Runtime
from bicore.integrations.sklearn import CoresetClassifier, CoresetRegressor, CoresetSampler
from bicore.methods.baselines.covering import KCenter
from bicore.methods.registry import build_selector, greedy_selector
from tests.helpers import blobs, fails, refuses

PLAIN = {"selector": greedy_selector("linear", inner_reg=0.1)}
LEARNED = {"selector": greedy_selector("linear", inner_reg=0.1, weighting="final")}
#: Rows with weight 2 and rows that occur twice are one problem to a model that sees all of them.
#: Ours sees a share of the rows: of repeated ones another number, and each with its coreset weight.
OTHER_ROWS = "weights decide which rows are chosen, and a share of repeated rows is another number"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": OTHER_ROWS,
    "check_sample_weight_equivalence_on_sparse_data": OTHER_ROWS,
}


def expected_failures(estimator):
    return EXPECTED if hasattr(estimator, "predict") else {}


@pytest.mark.slow
@parametrize_with_checks(
    [
        CoresetSampler(),
        CoresetSampler(0.2, selector="k-center-features"),
        CoresetClassifier(LogisticRegression()),
        CoresetRegressor(Ridge()),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_method_is_within_reach():
    data = blobs()
    for method in ("k-center-features", KCenter(over="features"), "uniform", "class-balanced"):
        sampler = CoresetSampler(6, selector=method).fit(data.x, data.y)
        assert len(set(sampler.sample_indices_)) == 6
    bare = CoresetSampler(6, selector="k-center-features").fit(data.x)  # which looks at no labels
    assert bare.sampling_strategy_ is None
    assert bare.fit_resample(data.x)[1] is None
    by_selector = CoresetSampler(6, **PLAIN).fit(data.x, data.y)
    assert by_selector.coreset_.provenance.kernel.startswith("linear")
    for wrong, words in (
        ({"selector": "k-centre"}, "k-centre"),
        ({"selector": "uniform", "sampling_strategy": "auto"}, "sampling_strategy"),
        ({"sampling_strategy": np.ones(2)}, "sampling_strategy must be"),
    ):
        refuses(words, CoresetSampler(6, **wrong).fit, data.x, data.y)


@pytest.mark.parametrize("selector", [3, None, "no-such-method"])
def test_an_unknown_selector_is_refused_by_its_name(selector):
    sampler = CoresetSampler(2, selector=selector)
    for model in (sampler, CoresetClassifier(LogisticRegression(), sampler)):
        refuses("^selector=", model.fit, np.eye(4), [0, 1, 0, 1])


def test_options_of_version_0_2_make_a_selector():
    data = blobs()
    with pytest.warns(DeprecationWarning, match="selector=BilevelSelector"):
        old = CoresetSampler(6, method="bilevel-ntk", kernel="linear", inner_reg=0.1)
    assert old.get_params(deep=False)["selector"] == PLAIN["selector"]
    new = CoresetSampler(6, **PLAIN)
    assert (
        old.fit(data.x, data.y).coreset_.indices.tolist()
        == new.fit(data.x, data.y).coreset_.indices.tolist()
    )


def test_the_default_size_is_a_tenth_and_at_least_a_hundred_rows():
    data = blobs(1200)
    for rows, size in ((40, 40), (300, 100), (1200, 120)):
        sampler = CoresetSampler(selector="uniform").fit(data.x[:rows], data.y[:rows])
        assert len(sampler.sample_indices_) == size


def test_columns_of_text_are_encoded_for_the_selection_and_stay_as_they_are():
    frame = pd.DataFrame({"size": np.arange(40.0), "colour": pd.Categorical(["red", "blue"] * 20)})
    rows, labels = CoresetSampler(6, **PLAIN).fit_resample(frame, frame["size"] > 20)
    assert rows.dtypes.equals(frame.dtypes)
    assert (labels.index == rows.index).all()


def test_errors_use_scikit_learn_names():
    data = blobs()
    sampler = CoresetSampler(6, **PLAIN)
    fails(ValueError, "Reshape your data", sampler.fit, data.x[:, 0], data.y)
    fails(ValueError, "requires y to be passed", sampler.fit, data.x)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        sampler.fit(np.where(data.x > 1, np.nan, data.x), data.y)
    fails(ValueError, "inconsistent numbers of samples", sampler.fit, data.x, data.y[:-1])
    for selector in (greedy_selector("laplace"), "k-center-features"):
        with pytest.raises(TypeError, match=r"Sparse data was passed.* dense data is required"):
            CoresetSampler(6, selector=selector).fit(sparse.csr_matrix(data.x), data.y)


def test_a_sampler_tells_names_and_counts():
    data = blobs()
    frame = pd.DataFrame(data.x, columns=list("abcd"))
    sampler = CoresetSampler(9, sampling_strategy="auto", **PLAIN).fit(frame, data.y)
    assert sampler.feature_names_in_.tolist() == list("abcd")
    assert sampler.sampling_strategy_ == {0: 3, 1: 3, 2: 3}
    images = CoresetSampler(5, **PLAIN).fit(data.x.reshape(40, 1, 2, 2), data.y)
    assert len(images.sample_indices_) == 5


class Remembers(LogisticRegression):
    """A model that says which weights it saw."""

    def fit(self, X, y, sample_weight=None):
        self.seen_ = sample_weight
        return super().fit(X, y, sample_weight)


def test_learnt_weights_reach_the_model():
    data = blobs()
    learnt = CoresetSampler(12, **LEARNED)
    model = CoresetClassifier(Remembers(), learnt).fit(data.x, data.y)
    weights = model.sampler_.sample_weight_
    assert not (weights == 1.0).all()
    np.testing.assert_allclose(model.estimator_.seen_, weights / weights.mean())
    rows = model.sampler_.sample_indices_
    direct = LogisticRegression().fit(data.x[rows], data.y[rows], weights / weights.mean())
    np.testing.assert_allclose(model.predict_proba(data.x), direct.predict_proba(data.x))
    for routing in (False, True):
        inner = make_pipeline(StandardScaler(), Remembers())
        with config_context(enable_metadata_routing=routing):
            piped = CoresetClassifier(make_pipeline(MinMaxScaler(), inner), learnt)
            piped.fit(data.x, data.y)
        np.testing.assert_allclose(piped.estimator_[-1][-1].seen_, weights / weights.mean())
    plain = CoresetClassifier(Remembers(), CoresetSampler(12, **PLAIN)).fit(data.x, data.y)
    assert plain.estimator_.seen_ is None  # weights of 1 are none
    nearest = CoresetClassifier(KNeighborsClassifier(1), learnt)
    refuses("KNeighborsClassifier takes no sample_weight", nearest.fit, data.x, data.y)
    assert not hasattr(CoresetClassifier(KNeighborsClassifier(1)), "decision_function")


def test_a_model_reads_targets_as_its_kind_does():
    data = blobs()
    whole = np.arange(40)  # forty classes to a classifier
    model = CoresetRegressor(Ridge(), CoresetSampler(10, **PLAIN)).fit(data.x, whole)
    assert model.sampler_.coreset_.provenance.task == "regression"
    assert model.sampler.selector.task == "auto"
    model = CoresetClassifier(LogisticRegression(), CoresetSampler(10, **PLAIN))
    model.fit(data.x, data.y.astype(float))
    assert model.sampler_.coreset_.provenance.task == "classification"
    assert set(model.classes_) <= {0.0, 1.0, 2.0}


def test_a_search_reaches_the_sampler():
    data = blobs()
    model = CoresetClassifier(LogisticRegression(), CoresetSampler(5, **PLAIN))
    grid = {"sampler__size": [3, 12], "sampler__selector__kernel": ["linear", "rbf"]}
    search = GridSearchCV(model, grid, cv=2).fit(data.x, data.y)
    found = search.best_estimator_.sampler_
    assert len(found.sample_indices_) == search.best_params_["sampler__size"]
    assert found.coreset_.provenance.kernel == search.best_params_["sampler__selector__kernel"]


def test_sparse_rows_come_out_sparse():
    data = blobs()
    for form in (sparse.csr_matrix, sparse.coo_array):
        rows, labels = CoresetSampler(6, **PLAIN).fit_resample(form(data.x), data.y)
        dense, _ = CoresetSampler(6, **PLAIN).fit_resample(data.x, data.y)
        assert sparse.issparse(rows)
        np.testing.assert_array_equal(rows.toarray(), dense)
        assert len(labels) == 6


@pytest.mark.parametrize(
    ("host", "module", "name"),
    [
        ("imblearn", "bicore.integrations.imblearn", "CoresetSampler"),
        ("skactiveml", "bicore.integrations.skactiveml", "CoresetQuery"),
    ],
)
def test_a_missing_library_is_an_error_with_the_install_command(monkeypatch, host, module, name):
    for known in [one for one in sys.modules if one.partition(".")[0] == host]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, host, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    integration = getattr(importlib.import_module(module), name)
    del sys.modules[module]  # later imports must not find this one; monkeypatch would restore it
    refuses(rf"pip install 'bicore\[{host}\]'", integration)


@pytest.mark.parametrize("state", [0, np.random.RandomState(0), np.random.default_rng(0), None])
def test_random_state_as_scikit_learn_has_it(state):
    data = blobs()
    sampler = CoresetSampler(
        size=3,
        selector=greedy_selector("rbf", inner_reg=0.1, first="random"),
        random_state=state,
        runtime=Runtime(device="cpu"),
    )
    assert len(sampler.fit(data.x, data.y.tolist(), np.ones(40)).sample_indices_) == 3


def test_sampling_strategies_are_quotas():
    data = blobs(90, classes=3)
    options = {"selector": build_selector("bilevel", kernel="rbf", inner_reg=0.1)}
    _, balanced = CoresetSampler(9, sampling_strategy="auto", **options).fit_resample(
        data.x, data.y
    )
    assert np.bincount(balanced).tolist() == [3, 3, 3]
    for strategy in ({0: 4, 2: 1}, lambda y: {0: 4, 2: 1}):
        _, counted = CoresetSampler(None, sampling_strategy=strategy, **options).fit_resample(
            data.x, data.y
        )
        assert np.bincount(counted, minlength=3).tolist() == [4, 0, 1]
    _, capped = CoresetSampler(9, sampling_strategy={0: 1}, **options).fit_resample(data.x, data.y)
    assert np.sum(capped == 0) <= 1
    assert len(capped) == 9
    assert (
        1
        < len(CoresetSampler("auto", tolerance=0.3, **options).fit(data.x, data.y).sample_indices_)
        < 72
    )
    for wrong, words in (
        ({0: "4"}, "sampling_strategy"),
        ({0: 0.5}, "sampling_strategy"),
        ({}, "sampling_strategy"),
        ({0: -1}, "sampling_strategy"),
    ):
        refuses(words, CoresetSampler(None, sampling_strategy=wrong, **options).fit, data.x, data.y)
    refuses("mapping", CoresetSampler(sampling_strategy="minority", **options).fit, data.x, data.y)
