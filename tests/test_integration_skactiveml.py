"""A cycle of scikit-activeml with our query strategies."""

import numpy as np
import pytest

pytest.importorskip("skactiveml", reason="scikit-activeml is not installed (extra: skactiveml)")

from skactiveml.classifier import SklearnClassifier
from skactiveml.utils import MISSING_LABEL, unlabeled_indices
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from bicore import InputError
from bicore.active import query, query_by_variance
from bicore.integrations.skactiveml import CoresetQuery, VarianceQuery
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs, fails, refuses

RBF = greedy_selector("rbf", inner_reg=0.1)


def make_labelled(labelled: int = 6):
    """Points of three kinds, of which the first few have labels."""
    data = blobs(60)
    y = np.full(60, MISSING_LABEL)
    y[:labelled] = data.y[:labelled]
    return data, y


def test_cycle_queries_unlabelled_rows_and_improves():
    data, y = make_labelled(0)
    strategy = CoresetQuery(RBF, random_state=0)
    assert clone(strategy).get_params()["selector"] is not None
    model = SklearnClassifier(LogisticRegression(), classes=[0, 1, 2], random_state=0)
    for _ in range(4):  # the first without a single label
        asked = strategy.query(data.x, y, batch_size=4)
        assert len(set(asked.tolist()) & set(unlabeled_indices(y).tolist())) == 4
        y[asked] = data.y[asked]
    assert model.fit(data.x, y).score(data.x, data.y) > 0.8


def test_queries_equal_those_of_the_library():
    data, y = make_labelled()
    asked = CoresetQuery(RBF, random_state=0).query(data.x, y, batch_size=5)
    direct = query(data.x[:6], data.y[:6], data.x[6:], 5, selector=RBF)
    assert asked.tolist() == (direct.indices + 6).tolist()


@pytest.mark.parametrize("labelled", [0, 6])
def test_queried_rows_have_the_largest_utilities(labelled):
    data, y = make_labelled(labelled)
    asked, worth = CoresetQuery(RBF, random_state=0).query(
        data.x, y, batch_size=3, return_utilities=True
    )
    assert worth.shape == (3, 60)
    assert np.isnan(worth[:, :labelled]).all()
    assert np.nanargmax(worth, axis=1).tolist() == asked.tolist()
    assert np.isnan(worth[2, asked[:2]]).all()
    assert not np.isnan(worth[0, labelled:]).any()


def test_candidates_are_rows_or_points():
    data, y = make_labelled()
    strategy = CoresetQuery(RBF, random_state=0)
    some = np.arange(20, 40)
    by_row = strategy.query(data.x, y, candidates=some, batch_size=3)
    by_point, worth = strategy.query(
        data.x, y, candidates=data.x[some], batch_size=3, return_utilities=True
    )
    assert by_row.tolist() == (by_point + 20).tolist()
    assert worth.shape == (3, 20)
    text = np.where(np.isnan(y), "", np.array(["a", "b", "c"])[data.y])
    named = CoresetQuery(RBF, missing_label="", random_state=0)
    assert named.query(data.x, text, candidates=some, batch_size=3).tolist() == by_row.tolist()


def test_a_pool_without_unlabelled_rows_is_an_error():
    with pytest.raises(InputError, match="all 4 rows have a label"):
        CoresetQuery().query(np.eye(4), np.array([0.0, 1.0, 0.0, 1.0]))


def test_targets_are_required():
    data, y = make_labelled()
    y[:6] = data.x[:6, 0]
    regression = greedy_selector("rbf", inner_reg=0.1, task="regression")
    asked = CoresetQuery(regression, random_state=0).query(data.x, y, batch_size=3)
    assert len(set(asked.tolist()) - set(range(6))) == 3


def test_a_strategy_queries_by_variance():
    data, y = make_labelled(0)
    strategy = VarianceQuery(random_state=0)
    assert len(set(clone(strategy).query(data.x, y, batch_size=4).tolist())) == 4
    y[:6] = data.y[:6]
    asked = strategy.query(data.x, y, batch_size=4)
    expected = query_by_variance(data.x[:6], data.y[:6], data.x[6:], 4)
    assert asked.tolist() == (expected.indices + 6).tolist()
    for wrong, words in ((np.eye(6, dtype=int), "one label per row"), (np.eye(6), "classes")):
        refuses(words, query_by_variance, data.x[:6], wrong, data.x[6:], 4, classes=[0])
    fails(ValueError, "return_utilities", strategy.query, data.x, y, return_utilities=True)
