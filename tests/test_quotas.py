"""Quotas: how many points a class may have."""

import numpy as np
import pytest

from bicore import Dataset, InputError, select
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs, line


def imbalanced():
    data = blobs(90, classes=3, features=3)
    kept = np.r_[
        np.flatnonzero(data.y == 0),
        np.flatnonzero(data.y == 1)[:10],
        np.flatnonzero(data.y == 2)[:3],
    ]
    return Dataset(data.x[kept], np.array(["a", "b", "c"])[data.y[kept]])


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_balanced_quotas_take_one_of_every_class_a_round_as_long_as_there_are_some(loss):
    data = imbalanced()
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=0.1, loss=loss, quotas="balanced")
    coreset = selector.select(data, 15)
    labels = data.y[coreset.indices]
    for start in (0, 3, 6):
        assert sorted(labels[start : start + 3]) == ["a", "b", "c"]
    assert sorted(labels[9:]) == ["a"] * 3 + ["b"] * 3  # the three of c are all in
    assert coreset.indices[:8].tolist() == selector.select(data, 8).indices.tolist()
    free = greedy_selector(kernel=RBF(0.3), inner_reg=0.1, loss=loss).select(data, 15)
    # without quotas it is not so
    assert sorted(data.y[free.indices[:9]]) != ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert len(selector.select(data, len(data))) == len(data)


def test_caps_hold_and_end_a_run_early():
    data = imbalanced()
    coreset = select(data, size=12, kernel=RBF(0.3), inner_reg=0.1, quotas={"a": 2, "c": 0})
    counts = {label: int(np.sum(data.y[coreset.indices] == label)) for label in "abc"}
    assert counts == {"a": 2, "b": 10, "c": 0}
    short = select(data, size=30, kernel=RBF(0.3), inner_reg=0.1, quotas={"a": 2, "c": 0})
    assert len(short) == 12
    assert short.message == "12 of 30 rows: the quotas allow no more"
    drawn = select(data, size=6, kernel=RBF(0.3), inner_reg=0.1, quotas="balanced", candidates=5)
    assert sorted(data.y[drawn.indices]) == ["a", "a", "b", "b", "c", "c"]


def test_quotas_that_mean_nothing_are_refused():
    data = imbalanced()
    for quotas, words in (
        ("even", "quotas must be"),
        ({"d": 3}, "names 'd', which is not a class"),
        ({"a": -1}, r"quotas\['a'\] must be"),
    ):
        with pytest.raises(InputError, match=words):
            select(data, size=3, kernel=RBF(0.3), inner_reg=0.1, quotas=quotas)
    with pytest.raises(InputError, match="y holds targets"):
        select(line(20), size=3, kernel=RBF(0.3), inner_reg=0.1, quotas="balanced")
    with pytest.raises(InputError, match="quotas need"):
        greedy_selector(quotas="balanced", strategy="exchange")
