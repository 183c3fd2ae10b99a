"""The rows of a search are compared with those of simple methods by simple models."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsClassifier

from bicore import Dataset, TimeLimitError, select
from bicore.kernels.base import Intercept
from bicore.kernels.classical import Exponential
from bicore.methods.simple_rows import NEIGHBOURS, RIDGE, Trial

X, Y = (values[:400] for values in load_digits(return_X_y=True))


@pytest.mark.parametrize("first", [40, 100])
def test_the_error_is_that_of_scikit_learn(first):
    weights = np.ones(400)
    weights[40:first] = 0  # rows without weight do not count
    models = [KNeighborsClassifier(count).fit(X[:40], Y[:40]) for count in NEIGHBOURS]
    wrong = [1 - model.score(X[first:], Y[first:]) for model in models]
    kernel = Intercept(Exponential(), 1.0).fit(X)
    trial = Trial(Dataset(X, Y, weights), Y, kernel)
    assert trial.compare(torch.from_numpy(X), [np.arange(40)], False) == pytest.approx(
        [np.mean(wrong)], abs=1e-8
    )
    gram = kernel.gram(torch.from_numpy(X)).numpy()
    counted = weights > 0
    goals = np.eye(10)[Y] - np.eye(10)[Y[counted]].mean(0)
    model = KernelRidge(alpha=2 * RIDGE, kernel="precomputed").fit(gram[:40, :40], goals[:40])
    outputs = model.predict(gram[first:, :40]) + np.eye(10)[Y[counted]].mean(0)
    wrong.append(np.mean(outputs.argmax(1) != Y[first:]))
    assert trial.compare(torch.from_numpy(X), [np.arange(40)], True) == pytest.approx(
        [np.mean(wrong)], abs=1e-8
    )


@pytest.mark.parametrize(
    ("model", "simple", "kept"),
    [("neighbours", 0.19, False), ("any", 0.196, True), ("any", 0.18, False), ("any", 0.2, True)],
)
def test_the_rows_with_the_lower_error_are_returned(model, simple, kept, monkeypatch):
    covering = select(X, Y, 30, method="facility-location-per-class").indices.tolist()
    errors = [0.2, 0.3, simple]  # of the search, herding and facility location
    monkeypatch.setattr(Trial, "compare", lambda *_: errors)
    found = select(X, Y, 30, model=model)
    assert (sorted(found.indices.tolist()) == sorted(covering)) != kept
    assert any("20.0%" in note for note in found.provenance.notes) != kept
    assert found.status == "complete"
    assert found.provenance.kernel.startswith("exponential")  # objectives are those of the search


@pytest.mark.parametrize("model", ["any", "neighbours"])
@pytest.mark.parametrize("options", [{"quotas": "balanced"}, {"initial": [3]}, {"outer": (X, Y)}])
def test_requests_that_simple_methods_cannot_answer_are_not_compared(model, options, monkeypatch):
    monkeypatch.setattr(Trial, "compare", pytest.fail)
    assert len(select(X, Y, 20, model=model, **options)) == 20
    assert len(select(X, Y, 20, strategy="greedy", rule="gain")) == 20
    assert len(select(X, Y.astype(float), 20, model=model)) == 20


def test_the_methods_see_columns_standardised_over_all_rows(monkeypatch):
    units, seen = 10.0 ** np.arange(64), []
    compare = Trial.compare
    monkeypatch.setattr(Trial, "compare", lambda *of: seen.append(of[1]) or compare(*of))
    select(X * units, Y, 30)
    # The last call is for the scaling that was chosen.
    assert seen[-1].std(0, correction=0).round(decimals=6).unique().tolist() == [0, 1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeLimitError])
def test_a_stop_during_the_comparison_loses_nothing(error, monkeypatch):
    def stop(*_):
        assert torch.get_num_threads() == 1
        raise error

    monkeypatch.setattr(Trial, "compare", stop)
    assert select(X, Y, 20).status == "complete"


def test_a_prior_is_like_weights(monkeypatch):
    seen, compare = [], Trial.compare
    monkeypatch.setattr(Trial, "compare", lambda *of: seen.append(of[0].weights) or compare(*of))
    by_prior = select(X, Y, 30, prior="equal")
    by_weights = select(X, Y, 30, sample_weight=1 / np.bincount(Y)[Y])
    assert by_prior.indices.tolist() == by_weights.indices.tolist()
    torch.testing.assert_close(seen[0] / seen[0].sum(), seen[-1] / seen[-1].sum())
