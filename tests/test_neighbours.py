"""``model="neighbours"`` compares its rows with central rows of each class."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from bicore import Dataset, Runtime, select
from bicore.kernels.classical import Exponential
from bicore.methods import neighbours

X, Y = load_digits(return_X_y=True)
X, Y = X[:400], Y[:400]


def test_the_error_is_that_of_scikit_learn():
    points = np.arange(40)
    rest = np.arange(40, 400)
    errors = [
        1 - KNeighborsClassifier(count).fit(X[points], Y[points]).score(X[rest], Y[rest])
        for count in neighbours.NEIGHBOURS
    ]
    kernel = Exponential().fit(X)
    found = neighbours.neighbour_error(kernel, Dataset(X, Y), Y, points)
    assert found == pytest.approx(np.mean(errors), abs=1e-12)
    weights = np.ones(400)
    weights[40:100] = 0  # rows without weight do not count
    few = np.arange(100, 400)
    plain = neighbours.neighbour_error(kernel, Dataset(X, Y, weights), Y, points)
    model = KNeighborsClassifier(1).fit(X[points], Y[points])
    five = KNeighborsClassifier(5).fit(X[points], Y[points])
    expected = 1 - (model.score(X[few], Y[few]) + five.score(X[few], Y[few])) / 2
    assert plain == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("better", [True, False])
def test_the_rows_with_the_lower_error_are_returned(better, monkeypatch):
    covering = select(X, Y, 30, method="facility-location-per-class").indices.tolist()
    errors = iter([0.3, 0.2] if better else [0.2, 0.2])
    monkeypatch.setattr(neighbours, "neighbour_error", lambda *_: next(errors))
    found = select(X, Y, 30, model="neighbours")
    assert (sorted(found.indices.tolist()) == sorted(covering)) == better
    assert any("30.0%" in note for note in found.provenance.notes) == better
    assert found.status == "complete"
    assert len(found) == 30
    assert found.provenance.kernel.startswith("exponential")  # objectives are those of the search
    assert (np.diff(found.objectives) < 0).any()


@pytest.mark.parametrize("options", [{"quotas": "balanced"}, {"initial": [3]}, {"outer": (X, Y)}])
def test_requests_that_facility_location_cannot_answer_are_not_compared(options, monkeypatch):
    monkeypatch.setattr(neighbours, "neighbour_error", pytest.fail)
    assert len(select(X, Y, 20, model="neighbours", **options)) == 20
    assert len(select(X, Y.astype(float), 20, model="neighbours")) == 20


def test_the_rows_of_the_search_remain_if_the_comparison_is_interrupted(monkeypatch):
    errors = iter([0.3, 0.2])

    def stop(step):
        if step.total == 30 and len(seen) > 40:
            raise KeyboardInterrupt
        seen.append(step.done)

    seen: list[int] = []
    monkeypatch.setattr(neighbours, "neighbour_error", lambda *_: next(errors))
    found = select(X, Y, 30, model="neighbours", runtime=Runtime(progress=stop))
    assert len(found) == 30
