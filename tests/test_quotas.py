"""Quotas: how many points a class may have."""

import numpy as np
import pytest

from bicore import Dataset, InputError, select
from bicore.data import as_tensor
from bicore.kernels import RBF, Linear
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs, line, refuses


def make_imbalanced():
    data = blobs(90, classes=3, features=3)
    kept = np.r_[
        np.flatnonzero(data.y == 0),
        np.flatnonzero(data.y == 1)[:10],
        np.flatnonzero(data.y == 2)[:3],
    ]
    return Dataset(data.x[kept], np.array(["a", "b", "c"])[data.y[kept]])


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_balanced_quotas_take_one_row_per_class_and_round(loss):
    data = make_imbalanced()
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
    data = make_imbalanced()
    coreset = select(data, size=12, kernel=RBF(0.3), inner_reg=0.1, quotas={"a": 2, "c": 0})
    counts = {label: int(np.sum(data.y[coreset.indices] == label)) for label in "abc"}
    assert counts == {"a": 2, "b": 10, "c": 0}
    short = select(data, size=30, kernel=RBF(0.3), inner_reg=0.1, quotas={"a": 2, "c": 0})
    assert len(short) == 12
    assert short.message == "12 of 30 rows, because the quotas allow no more"
    drawn = select(data, size=6, kernel=RBF(0.3), inner_reg=0.1, quotas="balanced", candidates=5)
    assert sorted(data.y[drawn.indices]) == ["a", "a", "b", "b", "c", "c"]


def test_invalid_quotas_are_refused():
    data = make_imbalanced()
    for quotas, words in (
        ("even", "quotas must be"),
        ({"d": 3}, "'d' is not a class of y; the classes are 'a', 'b'"),
        ({"a": -1}, r"quotas\['a'\] must be"),
    ):
        refuses(words, select, data, size=3, kernel=RBF(0.3), inner_reg=0.1, quotas=quotas)
    with pytest.raises(InputError, match="y holds numeric targets"):
        select(line(20), size=3, kernel=RBF(0.3), inner_reg=0.1, quotas="balanced")
    refuses("quotas need", greedy_selector, quotas="balanced", strategy="elimination")


def fitted_objective(data, kernel, points):
    """The objective of equal weights, by a fit from scratch."""
    aims = np.eye(3)[data.y] - np.bincount(data.y) / len(data)
    gram = kernel.gram(as_tensor(data.x)).numpy()
    inside = gram[np.ix_(points, points)] + 0.1 * np.eye(len(points))
    return ((gram[:, points] @ np.linalg.solve(inside, aims[points]) - aims) ** 2).sum() / len(aims)


# The linear kernel has fewer features than points.
@pytest.mark.parametrize("kernel", [RBF(0.3), Linear()])
@pytest.mark.parametrize("quotas", ["balanced", {0: 5, 1: 2, 2: 2}])
def test_exchanges_keep_quotas_and_leave_no_better_exchange_within_a_class(quotas, kernel):
    data = blobs(45, classes=3, features=3)
    settings = {"kernel": kernel, "inner_reg": 0.1, "intercept": 0, "quotas": quotas}
    greedy = greedy_selector(**settings).select(data, 9)
    refined = greedy_selector(**settings, strategy="exchange").select(data, 9)
    counts = [np.bincount(data.y[one.indices]).tolist() for one in (greedy, refined)]
    assert counts[0] == counts[1]
    points = refined.indices.tolist()
    best = fitted_objective(data, kernel, points)
    assert best == pytest.approx(refined.objectives[-1], rel=1e-9)
    assert best < greedy.objectives[-1]
    for place, leaving in enumerate(points):
        for joining in np.flatnonzero(data.y == data.y[leaving]):
            if joining not in points:
                swapped = [*points[:place], joining, *points[place + 1 :]]
                assert fitted_objective(data, kernel, swapped) > best * (1 - 1e-5)
    # Exchanges with all rows end with the same rows, or go further.
    free = greedy_selector(**settings | {"quotas": None}, strategy="exchange").select(data, 9)
    same = set(free.indices) == set(points)
    assert same or free.objectives[-1] < best or isinstance(kernel, Linear)


def many_classes(counts, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    return Dataset(rng.normal(size=(len(counts), 6))[y] + rng.normal(size=(len(y), 6)), y)


def test_few_rows_of_many_balanced_classes_contain_every_class():
    count = 32
    data = many_classes([10] * count)
    means = {("linear", 1), ("linear", 2), ("neighbours", 1)}
    for model, each in (("any", 1), ("any", 8), *means, ("linear", 3), ("trees", 1)):
        size = each * count
        coreset = select(data, size=size, model=model)
        assert np.bincount(data.y[coreset.indices]).tolist() == [each] * count
        assert any(note.startswith("classes: the classes") for note in coreset.provenance.notes)
        note = next(one for one in coreset.provenance.notes if one.startswith("exchanges"))
        assert ("within classes, log-loss" in note) == ((model, each) in means)
        if each > 1:
            continue
        order = np.random.default_rng(1).permutation(len(data))
        shuffled = Dataset(data.x[order], data.y[order], ids=order)
        again = select(shuffled, size=size, model=model)
        assert order[again.indices].tolist() == coreset.indices.tolist()
        kept = coreset.indices[[3, 1]].tolist()
        initial = select(data, size=size, initial=kept, model=model)
        assert initial.indices[:2].tolist() == kept
        assert np.bincount(data.y[initial.indices]).tolist() == [each] * count
    # with more rows for each class, few classes, shares that differ much, or quotas, it is not so
    for other, size, options in (
        (data, 9 * count, {}),
        (many_classes([20] * 10), 20, {}),
        (many_classes([150, *[3] * 30]), 62, {}),
        (data, count, {"quotas": {0: 2}}),
    ):
        notes = select(other, size=size, **options).provenance.notes
        assert not any(note.startswith("classes: the classes") for note in notes)
