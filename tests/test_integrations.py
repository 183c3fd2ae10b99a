"""The integrations with scikit-learn and PyTorch."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, TensorDataset

from bicore import Coreset, Dataset, InputError, Runtime, select
from bicore.integrations.sklearn import CoresetSampler
from bicore.integrations.torch import WeightedSubset
from bicore.methods.registry import build_selector, greedy_selector
from bicore.sources import digits
from tests.helpers import blobs, refuses

RBF = {"kernel": "rbf", "inner_reg": 0.1}


def test_sampler_is_a_scikit_learn_estimator():
    sampler = CoresetSampler(
        size=7, selector=greedy_selector("rbf", weighting="final"), random_state=3
    )
    again = clone(sampler)
    assert again.get_params().keys() == sampler.get_params().keys()
    assert repr(again) == repr(sampler)
    assert again.set_params(size=5).size == 5
    assert not hasattr(again, "sample_indices_")


def test_fit_resample_returns_the_rows_in_order_with_weights():
    data = blobs()
    sampler = CoresetSampler(7, selector=build_selector("bilevel-weighted", **RBF))
    x, y = sampler.fit_resample(data.x, data.y)
    np.testing.assert_array_equal(x, data.x[sampler.sample_indices_])
    np.testing.assert_array_equal(y, data.y[sampler.sample_indices_])
    assert sampler.sample_weight_.shape == sampler.sample_indices_.shape
    assert sampler.n_features_in_ == 4
    direct = select(data, size=7, method="bilevel-weighted", **RBF)
    assert sampler.sample_indices_.tolist() == direct.indices.tolist()
    model = LogisticRegression().fit(x, y, sample_weight=sampler.sample_weight_)
    assert model.score(data.x, data.y) > 0.6


def test_frames_stay_frames_and_fractions_are_sizes():
    data = blobs()
    frame = pd.DataFrame(data.x, index=np.arange(40) + 500)
    labels = pd.Series(data.y, index=np.arange(40) + 500)
    x, y = CoresetSampler(0.1, selector=greedy_selector("rbf", inner_reg=0.1)).fit_resample(
        frame, labels
    )
    assert isinstance(x, pd.DataFrame)
    assert len(x) == 4
    assert (x.index == y.index).all()


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
    options = {"selector": build_selector("bilevel", **RBF)}
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


def test_weighted_subset_feeds_a_loader():
    x, y = digits()
    coreset = select(x[:200], y[:200], size=10, kernel="rbf", inner_reg=0.1, weighting="final")
    tensors = TensorDataset(torch.from_numpy(x[:200]).float(), torch.from_numpy(y[:200]))
    subset = WeightedSubset(tensors, coreset, normalise=True)
    inputs, labels, weights = next(iter(DataLoader(subset, batch_size=10)))
    assert inputs.shape == (10, 64)
    assert labels.tolist() == y[coreset.indices].tolist()
    assert weights.mean() == pytest.approx(1.0)
    assert weights.dtype == torch.float32


def test_weighted_subset_of_a_bicore_dataset():
    data = Dataset(blobs().x, np.array(["a", "b", "c"])[blobs().y])
    x, label, weight = WeightedSubset(data, Coreset(np.array([4, 2])))[1]
    assert x.dtype == torch.float32
    assert label == "c"
    assert float(weight) == 1.0
    refuses("beyond the 40 items", WeightedSubset, data, Coreset(np.array([40])))
    with pytest.raises(InputError, match="no labels"):
        WeightedSubset(Dataset(blobs().x), Coreset(np.array([4])))[0]
