"""Smoothed targets against closed forms, and contradicted labels."""

import numpy as np
import pytest
import torch

from bicore import Dataset, InputError, Runtime, select
from bicore.bilevel import outer_targets
from bicore.bilevel.outer_targets import Smoothed
from bicore.bilevel.prepare import prepare
from bicore.bilevel.strategies.refining import Exchange
from bicore.kernels import RBF
from bicore.methods import bilevel
from bicore.methods.registry import greedy_selector
from tests.helpers import refuses

KERNEL = RBF(0.5)
QUIET = Runtime(device="cpu", progress=False)


def set_up(x, y, targets, outer=None, **options):
    selector = greedy_selector(kernel=KERNEL, inner_reg=0.1, smooth_labels=targets, **options)
    return prepare(selector, Dataset(x, y), outer, 5, 0, QUIET)


def points(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, x[:, 0] + 0.3 * rng.normal(size=n)


def leave_out(x, y, rho):
    """Every point's prediction by ridge regression on all the others, each fitted anew."""
    gram = KERNEL(x)
    found = []
    for k in range(len(x)):
        rest = np.delete(np.arange(len(x)), k)
        mean = y.mean()  # of all: the centring is not part of what is left out
        alpha = np.linalg.solve(gram[np.ix_(rest, rest)] + rho * np.eye(len(rest)), y[rest] - mean)
        found.append(mean + gram[k, rest] @ alpha)
    return np.array(found)


def test_smoothed_targets_average_label_and_leave_one_out_prediction():
    x, y = points()
    grid = [10.0**power for power in outer_targets.EXPONENTS]  # the diagonal is 1
    best = min((leave_out(x, y, rho) for rho in grid), key=lambda g: np.square(g - y).sum())
    for share in (0.0, 0.25, 1.0):
        problem = set_up(x, y, Smoothed(share=share, inputs=0.0)).problem
        goal = share * best + (1 - share) * y - y.mean()
        assert np.allclose(problem.outer_targets[:, 0], goal, atol=1e-10)
        assert np.allclose(problem.inner_targets[:, 0], y - y.mean(), atol=1e-12)


def test_points_beyond_the_reference_are_predicted_from_it(monkeypatch):
    monkeypatch.setattr(outer_targets, "REFERENCE", 25)
    x, y = points()
    problem = set_up(x, y, Smoothed(share=1.0, inputs=0.0)).problem
    guesses = problem.outer_targets[:, 0].numpy() + y.mean()
    assert np.corrcoef(guesses, x[:, 0])[0, 1] > 0.9
    # the order of the rows changes nothing
    order = np.random.default_rng(1).permutation(len(x))
    data = Dataset(x[order], y[order], ids=order)
    selector = greedy_selector(kernel=KERNEL, inner_reg=0.1, smooth_labels=Smoothed(1.0, 0.0))
    other = prepare(selector, data, None, 5, 0, QUIET).problem.outer_targets[:, 0]
    assert np.allclose(other + y.mean(), guesses[order], atol=1e-9)


def test_components_have_the_requested_spread_and_span_the_kernel():
    x, y = points()
    problem = set_up(x, y, Smoothed(inputs=2.0)).problem
    assert problem.outputs == 1 + len(x) // outer_targets.POINTS_A_COMPONENT
    components = problem.inner_targets[:, 1:]
    assert torch.allclose(components, problem.outer_targets[:, 1:])
    spread = problem.inner_targets[:, 0].square().sum()
    assert float(components.square().sum()) == pytest.approx(4 * float(spread))
    gram = torch.from_numpy(KERNEL(x))
    values, vectors = torch.linalg.eigh(gram)
    axes = vectors[:, -components.shape[1] :] * values[-components.shape[1] :].sqrt()
    own = axes - axes.mean(0)
    ratio = float(components.square().sum() / own.square().sum()) ** 0.5
    assert torch.allclose(components @ components.T, ratio**2 * own @ own.T, atol=1e-8)


def test_a_separate_outer_set_keeps_its_labels():
    x, y = points()
    outer = Dataset(*points(10, seed=1))
    problem = set_up(x, y, Smoothed(inputs=1.0), outer).problem
    assert np.allclose(problem.outer_targets[:, 0], outer.y - y.mean())
    assert problem.outer_targets.shape == (10, problem.outputs)


@pytest.mark.parametrize("rule", ["gradient", "gain"])
@pytest.mark.parametrize("strategy", ["greedy", "exchange", "elimination"])
@pytest.mark.parametrize("stored", [True, False])
def test_separate_outer_targets_equal_a_separate_set(rule, strategy, stored):
    # the same problem said twice: other targets for the training set, and a second set like it
    x, y = points(60)
    options = {"kernel": KERNEL, "inner_reg": 0.1, "rule": rule, "strategy": strategy}
    # too little for the matrix; exchanges hold the columns of a shortlist as well
    context = None if stored else _context(250_000 if strategy == "exchange" else 60_000)
    smoothed = greedy_selector(**options, smooth_labels=Smoothed(share=0.7, inputs=0.0))
    found = smoothed.select(Dataset(x, y), 6, **({} if context is None else context.keywords))
    assert found.details["operator"] == ("gram" if stored else "blocked")
    goal = set_up(x, y, Smoothed(share=0.7, inputs=0.0)).problem.outer_targets[:, 0].numpy()
    plain = greedy_selector(**options)
    twice = plain.select(Dataset(x, y), 6, outer=Dataset(x, goal + y.mean()))
    assert found.indices.tolist() == twice.indices.tolist()
    assert found.objective == pytest.approx(twice.objective, rel=1e-9)


def _context(memory):
    from bicore.runtime.context import Context

    return Context(runtime=Runtime(device="cpu", memory=memory, progress=False))


def test_wrong_labels_are_not_selected_and_are_reported():
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(-3, 0.4, (60, 2)), rng.normal(3, 0.4, (60, 2))]
    y = np.repeat([0, 1], 60)
    wrong = rng.choice(120, 18, replace=False)
    y[wrong] = 1 - y[wrong]
    chooser = greedy_selector(kernel=KERNEL, inner_reg=0.1, smooth_labels=True)
    coreset = chooser.select(Dataset(x, y), 30)
    contradicted = set(np.flatnonzero(set_up(x, y, True).contradicted).tolist())
    # all but one that lies alone, and no right label
    assert set(wrong.tolist()) - contradicted == {119}
    assert contradicted < set(wrong.tolist())
    assert not set(coreset.indices.tolist()) & contradicted
    (note,) = (note for note in coreset.provenance.notes if note.startswith("labels"))
    assert "17 of 120" in note
    assert "smooth_labels=False" in note
    certain = greedy_selector(kernel=KERNEL, inner_reg=0.1, smooth_labels=Smoothed(doubt=False))
    assert set(certain.select(Dataset(x, y), 60).indices) & set(wrong.tolist())
    # where fewer are left than asked for, all may be chosen
    assert len(chooser.select(Dataset(x, y), 120)) == 120


def test_contradicted_labels_stay_candidates_if_held_out_points_need_them():
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(-3, 0.3, (140, 2)), rng.normal(3, 0.3, (110, 2))]
    y = np.r_[np.zeros(100), np.ones(150)].astype(int)  # two of seven on the left are of class 1
    found = set_up(x, y, True)
    assert not found.contradicted.any()
    assert "stay candidates" in found.notes[0]
    # the order of the rows changes nothing
    order = rng.permutation(250)
    wrong = np.r_[np.zeros(140), np.ones(110)].astype(int)
    wrong[::8] = 1 - wrong[::8]
    selector = greedy_selector(kernel=KERNEL, inner_reg=0.1, smooth_labels=True)
    data = Dataset(x[order], wrong[order], ids=order)
    other = prepare(selector, data, None, 5, 0, QUIET)
    expected = set_up(x, wrong, True).contradicted
    assert expected.any()
    assert other.contradicted.tolist() == expected[order].tolist()


def test_a_class_that_the_proxy_does_not_see_is_kept():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    y = np.zeros(100, dtype=int)
    y[:6] = 1  # anywhere among the others
    coreset = greedy_selector(kernel=KERNEL, inner_reg=0.1, smooth_labels=True, rule="gain")
    assert set_up(x, y, Smoothed()).contradicted[:6].sum() == 0
    assert len(coreset.select(Dataset(x, y), 10)) == 10


def test_a_prior_sets_the_weights_of_classes():
    x, _ = points(50)
    y = (np.arange(50) < 5).astype(int)
    for prior, share in (("equal", 0.5), ({0: 3, 1: 1}, 0.25)):
        weights = set_up(x, y, False, prior=prior).problem.outer_weights
        assert float(weights[:5].sum()) == pytest.approx(share)
        assert float(weights.sum()) == pytest.approx(1)
    refuses("must give at least two classes of y a share", set_up, x, y, False, prior={1: 1})
    last = Dataset(x, np.arange(50) % 3, (np.arange(50) % 3 == 2).astype(float))
    refuses("share 0", greedy_selector(KERNEL, prior={0: 1, 1: 1}).select, last, 5)
    refuses("prior='equal' needs class labels", set_up, x, x[:, 0], False, prior="equal")


def test_incompatible_smoothing_options_are_refused():
    with pytest.raises(InputError, match="smooth_labels=True needs the squared error"):
        greedy_selector(loss="cross-entropy", smooth_labels=True)
    refuses("share must be between 0 and 1", Smoothed, share=2)
    refuses("inputs must be a number >= 0", Smoothed, inputs=-1)


@pytest.mark.parametrize(
    ("options", "classes", "expected"),
    [
        ({}, True, ("gradient", "exchange", "smoothed")),
        ({}, False, ("gain", "greedy", "smoothed")),
        ({"loss": "cross-entropy"}, True, ("gradient", "greedy", "given")),
        ({"quotas": "balanced"}, True, ("gradient", "exchange", "smoothed")),
        ({"weighting": "learned"}, True, ("gradient", "greedy", "smoothed")),
        ({"rule": "reducible"}, True, ("reducible", "exchange", "smoothed")),
        ({"strategy": "greedy", "rule": "gain"}, True, ("gain", "greedy", "smoothed")),
    ],
)
def test_unset_options_are_resolved_by_data_and_other_options(options, classes, expected):
    x, y = points()
    labels = y > 0 if classes else y
    chosen = {"rule": "auto", "strategy": "auto", "smooth_labels": "auto"} | options
    resolved = greedy_selector(kernel=KERNEL, inner_reg=0.1, **chosen).resolve_defaults(
        Dataset(x, labels), 5
    )
    found = resolved.rule.name, resolved.strategy.name, resolved.smooth_labels.name
    assert found == expected


def test_default_exchanges_have_few_sweeps_for_many_rows(monkeypatch):
    x, y = points()
    chosen = greedy_selector(kernel=KERNEL, inner_reg=0.1, strategy="auto")
    assert chosen.resolve_defaults(Dataset(x, y > 0), 5).strategy.sweeps is None
    monkeypatch.setattr(bilevel, "MANY_ROWS", 30)
    assert chosen.resolve_defaults(Dataset(x, y > 0), 5).strategy.sweeps == bilevel.SWEEPS_OF_MANY


def test_default_exchanges_are_skipped_for_very_many_points(monkeypatch):
    x, y = points()
    data = Dataset(x, y > 0)
    monkeypatch.setattr(bilevel, "MOST_WORK", len(x) * 5**2)
    chosen = greedy_selector(kernel=KERNEL, inner_reg=0.1, strategy="auto")
    few, many = (chosen.select(data, size) for size in (5, 6))
    assert "exchanges" in few.details
    assert "exchanges" not in many.details
    assert "exchanges: none" in many.provenance.notes[-1]
    asked = greedy_selector(kernel=KERNEL, inner_reg=0.1, strategy="exchange")
    assert "exchanges" in asked.select(data, 6).details
    # what is held for exchanges is not asked for either
    assert chosen.resolve_defaults(data, 6).strategy.refinement_cost(6, len(x)).held == 0
    # a size that was not known at first is held to the same
    auto = select(data, size="auto", kernel=KERNEL, inner_reg=0.1, tolerance=0.01)
    assert len(auto) > 5
    assert "exchanges" not in auto.details
    refuses("work", Exchange, work=-1)


def test_a_sampled_outer_set_is_smoothed_like_the_rows_themselves():
    """Rows outside the reference have plain predictions, whichever set they are in."""
    x, y = points(outer_targets.REFERENCE + 40)
    same, sampled, given = (
        set_up(x, y, Smoothed(inputs=0.0, smooth_outer=on), outer).problem.outer_targets.numpy()
        for on, outer in ((False, None), (True, Dataset(x, y)), (False, Dataset(x, y)))
    )
    equal = np.isclose(same, sampled, rtol=1e-9, atol=1e-12).all(1)
    assert equal.sum() >= 40
    assert not np.isclose(given, sampled).all(1)[equal].any()
