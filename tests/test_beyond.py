"""Several models, rows without labels, regression, predictions of the proxy, and active
learning."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import bicore
from bicore import Dataset, InputError, Runtime, select
from bicore.active import query
from bicore.kernels import RBF, Averaged, Linear, Nystrom, shifts
from bicore.methods import JointSelector, Reconstruction, trusted
from bicore.methods.registry import greedy_selector
from bicore.methods.variants import principal_axes
from bicore.runtime.context import Context
from tests.helpers import blobs, line, refuses

OPTIONS = {"kernel": RBF(0.3), "inner_reg": 0.1}


def test_a_joint_objective_is_the_sum_of_its_parts_and_its_first_step_the_sum_of_scores():
    data = blobs(60)
    models = [
        greedy_selector(**OPTIONS),
        greedy_selector(kernel=Linear(1.0), inner_reg=1.0, loss="cross-entropy"),
    ]
    joint = JointSelector(models, shares=[3, 1]).select(data, 6)
    empty = [model.select(data, 1).provenance.empty_objective for model in models]
    parts = [
        model.select(data, 6, initial=joint.indices.tolist()).objectives[-1] for model in models
    ]
    assert joint.objectives[-1] == pytest.approx(
        0.75 * parts[0] / empty[0] + 0.25 * parts[1] / empty[1], rel=1e-6
    )
    assert [model["objective"] for model in joint.details["models"]] == pytest.approx(parts)
    scores = [-model.influence(data, [int(joint.indices[0])]) for model in models]
    total = 0.75 * scores[0] / empty[0] + 0.25 * scores[1] / empty[1]
    total[joint.indices[0]] = np.inf
    assert int(total.argmin()) == joint.indices[1]


def test_joint_selection_for_one_and_for_two_models():
    data = blobs(80, seed=3)
    first = greedy_selector(**OPTIONS)
    second = greedy_selector(kernel=RBF(3.0), inner_reg=0.1)
    alone = first.select(data, 9).indices
    for same in (JointSelector([first]), JointSelector([first, second], [1, 0])):
        assert same.select(data, 9).indices.tolist() == alone.tolist()
    joint = JointSelector([first, second]).select(data, 9)

    def worst(indices):
        return max(
            model.select(data, 9, initial=list(indices)).objectives[-1]
            / model.select(data, 9).objectives[-1]
            for model in (first, second)
        )

    assert worst(joint.indices) <= max(worst(alone), worst(second.select(data, 9).indices))


def test_a_joint_coreset_keeps_to_one_limit_and_to_its_own_data():
    data = blobs(400, seed=1)
    limited = Context(runtime=Runtime(memory="2MB"))  # each matrix takes 1.28 MB
    one, four = (JointSelector([greedy_selector(**OPTIONS)] * count) for count in (1, 4))
    assert (
        four.select(data, 3, **limited.keywords).indices.tolist()
        == one.select(data, 3).indices.tolist()
    )
    assert one.select(data, 3, **limited.keywords).details["operator"] == "gram"
    assert four.select(data, 3, **limited.keywords).details["operator"] == "blocked"
    refuses("other data", one.select, data, 4, initial=one.select(blobs(400, seed=2), 2))
    refuses("size='auto'", select, data, size="auto", method=one)
    assert one.select(data, 2).provenance.kernel is None


def test_incompatible_selectors_are_refused():
    for selectors, shares, words in (
        ([], None, "selectors must be"),
        (greedy_selector(), None, "selectors must be"),
        ([greedy_selector(weighting="learned")], None, "'learned'"),
        ([greedy_selector()], [0.0], "shares"),
        ([greedy_selector()], [1, 2], "shares"),
    ):
        refuses(words, JointSelector, selectors, shares)


def test_reconstruction_regresses_the_principal_components_and_reads_no_labels():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6))
    centre, axes = principal_axes(x, np.ones(50), 4)
    _, _, right = np.linalg.svd(x - x.mean(0))
    np.testing.assert_allclose(np.abs(np.diag(right[:4] @ axes)), 1, atol=1e-9)
    selector = greedy_selector(kernel=RBF(0.05), inner_reg=0.1)
    unlabelled = Reconstruction(RBF(0.05), 0.1, components=4)
    found = unlabelled.select(Dataset(x), 8)
    named = bicore.select(x, size=8, method=Reconstruction(RBF(0.05), 0.1, components=4))
    assert found.indices.tolist() == named.indices.tolist()
    targets = (x - centre) @ axes
    assert found.indices.tolist() == selector.select(Dataset(x, targets), 8).indices.tolist()
    labelled = unlabelled.select(Dataset(x, np.arange(50) % 2), 8)
    assert labelled.indices.tolist() == found.indices.tolist()
    again = unlabelled.select(Dataset(x), 8, initial=unlabelled.select(Dataset(x), 5))
    assert again.indices.tolist() == found.indices.tolist()
    assert found.provenance.fingerprint == Dataset(x).fingerprint()
    refuses("other data", unlabelled.select, Dataset(2 * x), 8, initial=found)
    assert len(unlabelled.select(Dataset(np.ones((5, 2))), 2)) == 2
    wide = rng.normal(size=(8, 40))
    narrow = principal_axes(wide, np.ones(8), 3)[1]
    wider = np.linalg.svd(wide - wide.mean(0))[2][:3]
    np.testing.assert_allclose(np.abs(np.diag(wider @ narrow)), 1, atol=1e-9)
    for wrong in (0, 2.5):
        refuses("components", Reconstruction, components=wrong)


def test_the_proxy_predicts_labels_and_targets():
    data = blobs(60)
    kernel = RBF(0.3)
    chosen = greedy_selector(**OPTIONS).select(data, 9)
    new = blobs(30, seed=9).x
    targets = np.eye(3)[data.y]
    alpha = np.linalg.solve(
        kernel(data.x[chosen.indices]) + 0.1 * np.eye(9), targets[chosen.indices] - targets.mean(0)
    )
    expected = (kernel(new, data.x[chosen.indices]) @ alpha + targets.mean(0)).argmax(1)
    assert greedy_selector(**OPTIONS).predict(data, new, chosen).tolist() == expected.tolist()
    names = Dataset(data.x, np.array(["a", "b", "c"])[data.y])
    named = greedy_selector(**OPTIONS).predict(names, new, chosen.indices.tolist())
    assert named.tolist() == np.array(list("abc"))[expected].tolist()
    everything = greedy_selector(**OPTIONS, loss="cross-entropy").predict(data, data.x)
    assert np.mean(everything == data.y) > 0.9
    two = Dataset(data.x, data.y > 0)
    guesses = greedy_selector(**OPTIONS, loss="logistic").predict(two, data.x)
    assert np.mean(guesses == two.y) > 0.9
    numbers = line(40, targets=2)
    fitted = greedy_selector(kernel=RBF(0.3), inner_reg=1e-6).predict(numbers, numbers.x)
    np.testing.assert_allclose(fitted, numbers.y, atol=1e-2)
    refuses("needs labels", greedy_selector(**OPTIONS).predict, Dataset(data.x), new)


def test_regression_on_a_real_table_and_on_several_targets():
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    x, y = x / x.std(0), (y - y.mean()) / y.std()
    drawn = [np.random.default_rng(seed).choice(300, 40, replace=False) for seed in range(10)]
    for aims in (y, np.c_[y, np.sin(3 * x[:, 0]) + x[:, 2]]):
        data = Dataset(x[:300], aims[:300])
        coreset = greedy_selector(kernel="rbf").select(data, 40)
        model = greedy_selector(kernel="rbf", inner_reg=coreset.provenance.inner_reg)
        errors = [
            np.square(model.predict(data, x[300:], rows.tolist()) - aims[300:]).mean()
            for rows in (coreset.indices, *drawn)
        ]
        plain = np.square(aims[300:] - aims[:300].mean(0)).mean()
        assert errors[0] < np.mean(errors[1:]) - 0.05 * plain
        assert coreset.provenance.task == "regression"


def test_contradicted_labels_get_weight_zero():
    given = blobs(120, seed=5)
    flipped = np.random.default_rng(0).choice(120, 24, replace=False)
    labels = given.y.copy()
    labels[flipped] = (labels[flipped] + 1) % 3
    noisy = Dataset(given.x, labels, ids=np.arange(120)[::-1].copy())
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=1.0)
    kept = trusted(noisy, selector)
    gone = np.flatnonzero(kept.weights == 0)
    assert np.isin(flipped, gone).mean() > 0.9
    assert np.isin(gone, flipped).mean() > 0.5  # a fifth is wrong
    order = np.random.default_rng(1).permutation(120)
    again = trusted(noisy[order], selector)
    np.testing.assert_array_equal(again.weights, kept.weights[order])
    chosen = selector.select(kept, 20).indices
    assert not np.isin(chosen, gone).any()
    assert (
        np.isin(chosen, flipped).mean()
        < np.isin(selector.select(noisy, 20).indices, flipped).mean() + 0.01
    )
    for wrong in (Dataset(given.x), Dataset(given.x, given.x[:, 0])):
        refuses("class labels", trusted, wrong, selector)
    for folds in (1, 2.5, "5"):
        refuses("folds", trusted, noisy, selector, folds)
    refuses("BilevelSelector", trusted, noisy, "rbf")
    column = trusted(Dataset(given.x, labels[:, None], ids=noisy.ids), selector)
    np.testing.assert_array_equal(column.weights, kept.weights)


def test_averaging_over_transformations_is_the_mean_over_pairs_and_of_features():
    images = torch.randn(
        4, 1, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    moves = shifts(1)
    assert torch.equal(moves[0](images), images)
    assert torch.equal(moves[1](images)[..., 1:, :], images[..., :-1, :])
    assert torch.equal(moves[1](images)[..., 0, :], images[..., 0, :])
    assert torch.equal(shifts(1, (5, 5))[3](images.flatten(1)), moves[3](images).flatten(1))
    plain = RBF(0.1)
    expected = sum(plain.evaluate(s(images), t(images)) for s in moves for t in moves) / 25
    torch.testing.assert_close(Averaged(plain, moves)(images), expected)
    linear = Averaged(Linear(), moves)
    mean = torch.stack([move(images).flatten(1) for move in moves]).mean(0)
    torch.testing.assert_close(linear(images), mean @ mean.T)
    landmarks = Averaged(Nystrom(plain, 3), moves).fit(images.numpy())
    assert landmarks.features(images).shape == (4, 3)
    with pytest.raises(InputError, match="keep the shape"):
        Averaged(plain, [lambda rows: rows[..., :-1]])(images)
    with pytest.raises(InputError, match="shifts move images"):
        shifts(1)[1](images.flatten(1))


@pytest.mark.usefixtures("long_grace")
def test_a_query_continues_the_labelled_points_and_its_guesses_are_the_proxys():
    data = blobs(90, seed=4)
    known, rest = data[:6], data.x[6:]
    assert len(set(known.y)) == 3
    selector = greedy_selector(**OPTIONS)

    def ask(y=known.y, **options):
        return query(known.x, y, rest, 5, selector=selector, **options)

    found = ask()
    guesses = selector.predict(known, rest)
    again = ask(pseudo_labels=guesses)
    by_function = ask(pseudo_labels=lambda x: selector.predict(known, x))
    assert found.indices.tolist() == again.indices.tolist() == by_function.indices.tolist()
    whole = Dataset(data.x, np.concatenate([known.y, guesses]))
    plain = selector.select(whole, 11, initial=range(6))
    assert (found.indices + 6).tolist() == plain.indices[6:].tolist()
    assert found.provenance.rows == 84
    assert found.gains.sum() == pytest.approx(plain.objectives[5] - found.objectives[-1])
    assert ask(known.y[:, None]).indices.tolist() == found.indices.tolist()
    stopped = ask(runtime=Runtime(max_seconds=1e-9))
    assert stopped.message == "stopped by max_seconds after 0 of 5 rows"
    images = np.random.default_rng(0).normal(size=(30, 1, 6, 6))
    moved = replace(selector, kernel=Averaged(Nystrom(selector.kernel, 10), shifts(1)))
    assert len(query(images[:5], np.arange(5) % 2, images[5:], 3, selector=moved)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_pool": blobs(20).x[4:, :1]}, "they must match"),
        ({"batch_size": 17}, "batch_size must be .* 16"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"pseudo_labels": np.zeros((16, 3))}, "one kind of label"),
        ({"pseudo_labels": ["a"] * 16}, "one kind of label"),
        ({"pseudo_labels": [0, 1]}, "pseudo_labels"),
        ({"y_labelled": [1, 1, 1, 1]}, "single class"),
        ({"y_labelled": [0, 1, 2]}, "y_labelled"),
        ({"selector": "uniform"}, "BilevelSelector"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(change, words):
    x, y = blobs(20).x, blobs(20).y
    given = {"x_labelled": x[:4], "y_labelled": y[:4], "x_pool": x[4:], "batch_size": 2}
    refuses(words, query, **{**given, **change})


@pytest.mark.slow
def test_a_joint_coreset_of_features_needs_no_factor_for_each_point():
    """Rank-one updates of a covariance: n × m numbers a model would be twice the limit."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 5))
    limited = Context(runtime=Runtime(memory="20MB"))
    models = [greedy_selector("linear", inner_reg=reg) for reg in (0.1, 1.0)]
    found = JointSelector(models).select(Dataset(x, x[:, 0] > 0), 600, **limited.keywords)
    assert len(found) == 600


def test_smallest_size_is_found_without_labels():
    x = np.random.default_rng(0).normal(size=(120, 3)) * [5, 1, 0.1]
    options = {"method": "reconstruction", "kernel": "rbf", "inner_reg": 0.1}
    found = select(x, size="auto", tolerance=0.5, **options)
    assert found.indices.tolist() == select(x, size=len(found), **options).indices.tolist()
    assert "held-out rows" in found.provenance.notes[0]
    refuses("tolerance", select, x, size=3, tolerance=0.5, **options)
    refuses("size='auto'", select, x, size="auto", method="uniform")
