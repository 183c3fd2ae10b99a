"""``model="neighbours"`` compares its rows with central rows of each class."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from bicore import Dataset, select
from bicore.kernels.classical import Exponential
from bicore.methods import neighbours

X, Y = (values[:400] for values in load_digits(return_X_y=True))


@pytest.mark.parametrize("first", [40, 100])
def test_the_error_is_that_of_scikit_learn(first):
    weights = np.ones(400)
    weights[40:first] = 0  # rows without weight do not count
    models = (KNeighborsClassifier(count).fit(X[:40], Y[:40]) for count in neighbours.NEIGHBOURS)
    expected = 1 - np.mean([model.score(X[first:], Y[first:]) for model in models])
    data = Dataset(X, Y, weights)
    found = neighbours.neighbour_error(Exponential().fit(X), data, Y, np.arange(40))
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("other", [0.1, 0.2])
def test_the_rows_with_the_lower_error_are_returned(other, monkeypatch):
    covering = select(X, Y, 30, method="facility-location-per-class").indices.tolist()
    errors = iter([0.2, other])
    monkeypatch.setattr(neighbours, "neighbour_error", lambda *_: next(errors))
    found = select(X, Y, 30, model="neighbours")
    better = other < 0.2
    assert (sorted(found.indices.tolist()) == sorted(covering)) == better
    assert any("20.0%" in note for note in found.provenance.notes) == better
    assert found.status == "complete"
    assert found.provenance.kernel.startswith("exponential")  # objectives are those of the search


@pytest.mark.parametrize("options", [{"quotas": "balanced"}, {"initial": [3]}, {"outer": (X, Y)}])
def test_requests_that_facility_location_cannot_answer_are_not_compared(options, monkeypatch):
    monkeypatch.setattr(neighbours, "neighbour_error", pytest.fail)
    assert len(select(X, Y, 20, model="neighbours", **options)) == 20
    assert len(select(X, Y.astype(float), 20, model="neighbours")) == 20
