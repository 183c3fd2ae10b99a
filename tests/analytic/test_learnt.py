"""Learned weights never end above uniform weights, nor above weights learned at the end."""

import numpy as np
import pytest

from bicore import Dataset, Runtime
from bicore.bilevel import Adam, Learned, PerPoint, ProjectedGradient
from bicore.bilevel import weights as solver
from bicore.bilevel.weights import WeightOptimiser
from bicore.coreset import Status
from bicore.kernels import RBF
from bicore.methods import Batches
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.sources import digits
from tests.helpers import blobs, refuses, state_of
from tests.marks import few

#: Two objectives within this share are the same.
SHARE = 1e-6
#: Drawn problems that take little time, of which learnt weights once ended above final ones.
CHEAP = (42, 90)


def images(rng, count):
    rows = rng.choice(len(digits()[0]), count, replace=False)
    x, y = (part[rows] for part in digits())
    return x, y if rng.random() < 0.7 else y % 3


def clouds(rng, count):
    classes, features = rng.integers(2, 7), rng.integers(2, 12)
    centres = rng.normal(size=(classes, features)) * rng.uniform(0.5, 3)
    y = rng.integers(0, classes, count)
    return centres[y] + rng.normal(size=(count, features)), y


def waves(rng, count):
    x = rng.normal(size=(count, rng.integers(1, 6)))
    slope = rng.normal(size=x.shape[1]) * rng.uniform(0, 1)
    return x, np.sin(2 * x[:, 0]) + x @ slope + 0.2 * rng.normal(size=count)


def draw_problem(seed):
    """A random problem: options of a selector, data, an outer set or none, and a size."""
    rng = np.random.default_rng((2024, seed))
    rows, judges = rng.integers(30, 120), rng.integers(20, 60)
    source = (images, clouds, waves)[rng.integers(3)]
    x, y = source(rng, rows + judges)
    kernel = ("rbf", "linear", "ntk", RBF(10 ** rng.uniform(-2, 0.5)))[rng.integers(4)]
    loss = ("squared", "cross-entropy")[rng.integers(2)]
    options = {"kernel": kernel, "inner_reg": 10 ** rng.uniform(-6, 1), "loss": loss}
    if source is waves:
        options |= {"loss": "squared", "task": "regression"}
    weight = rng.choice([0.25, 0.5, 1.0, 2.0], rows) if rng.random() < 0.3 else None
    data = Dataset(x[:rows], y[:rows], weight)
    judge = slice(rows, None)
    if source is not waves:  # an outer set knows no other labels
        judge = rows + np.flatnonzero(np.isin(y[rows:], y[:rows]))
    outer = Dataset(x[judge], y[judge]) if rng.random() < 0.3 else None
    return options, data, outer, int(rng.integers(2, min(41, rows)))


def objectives(seed, **more):
    options, data, outer, size = draw_problem(seed)
    return [
        greedy_selector(**options, **more, weighting=mode).select(data, size, outer=outer).objective
        for mode in ("uniform", "final", "learned")
    ]


def check(seed, **more):
    binary, final, learnt = objectives(seed, **more)
    assert final <= binary * (1 + SHARE)
    assert learnt <= final * (1 + SHARE)


@pytest.mark.parametrize("seed", few([*CHEAP, *sorted({*range(200)} - {*CHEAP})], len(CHEAP)))
def test_learnt_weights_never_end_above_final_ones_nor_those_above_binary_ones(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_the_papers_optimiser_never_raises_the_objective(seed):
    check(seed, optimiser=Adam())


def test_the_first_points_do_not_drive_the_weights_to_zero(monkeypatch):
    """One digit alone had better say nothing; its weight went to zero, and so did all that came
    after it, for the model there scores all points alike. The path of unit weights is left out of
    it here: learnt weights must not collapse by themselves."""
    monkeypatch.setattr("bicore.methods.bilevel.EQUAL", np.inf)
    x, y = (part[:300] for part in digits())
    options = {"kernel": "rbf", "inner_reg": 0.1}
    final, learnt = (
        greedy_selector(**options, weighting=mode).select(Dataset(x, y), 12)
        for mode in ("final", "learned")
    )
    assert len(np.unique(y[learnt.indices])) > 6
    assert learnt.objective < 1.1 * final.objective
    assert not learnt.provenance.notes


class Scripted(WeightOptimiser):
    """Does what it is told at the numbered calls; ``ends`` counts the searches at the end."""

    def __init__(self, after=None, end=None):
        self.after = after
        self.end = end
        self.points = 0
        self.ends = 0

    def optimise(self, state, final=False, clock=None):
        if final:
            self.ends += 1
            if self.end is not None:
                self.end(self.ends, state, clock)
        else:
            self.points += 1
            if self.after is not None:
                self.after(self.points, state, clock)


def select_scripted_pair(size=5, runtime=None, **script):
    options = {"kernel": "rbf", "inner_reg": 0.1}
    data = blobs(40)
    chooser = greedy_selector(**options, weighting="learned", optimiser=Scripted(**script))
    context = None if runtime is None else Context(runtime=runtime)
    return greedy_selector(**options).select(data, size), chooser.select(
        data, size, **({} if context is None else context.keywords)
    )


def test_unit_weight_path_is_kept_if_lower():
    def spoil(number, state, clock):
        state.reweigh(state.weights * 1e-6)

    binary, kept = select_scripted_pair(after=spoil)
    assert kept.indices.tolist() == binary.indices.tolist()
    assert kept.objectives.tolist() == pytest.approx(binary.objectives.tolist(), rel=1e-9)
    assert kept.status is Status.COMPLETE
    assert "learned once, at the end" in kept.provenance.notes[0]


def test_a_time_limit_among_learnt_weights_leaves_all_points():
    def spend(number, state, clock):
        clock.max_seconds = 1e-9 if number == 2 else clock.max_seconds

    binary, kept = select_scripted_pair(after=spend, runtime=Runtime(max_seconds=1000))
    assert kept.indices.tolist() == binary.indices.tolist()
    assert kept.status is Status.NOT_REFINED
    assert "max_seconds" in kept.message


@pytest.mark.parametrize("moment", [1, 3, "end"])
def test_an_interrupt_among_learnt_weights_loses_nothing(moment):
    def stop(number, state, clock):
        if number == moment:
            raise KeyboardInterrupt

    def end(number, state, clock):
        if moment == "end" and number == 2:
            raise KeyboardInterrupt

    binary, kept = select_scripted_pair(after=stop, end=end)
    assert len(kept) == 5
    assert kept.status is Status.INTERRUPTED
    assert kept.objective <= binary.objective * (1 + SHARE)


def test_progress_of_learned_weights_is_reported_once():
    steps = []
    select_scripted_pair(runtime=Runtime(progress=lambda step: steps.append(step.done)))
    assert steps == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"quotas": "balanced"},
        {"candidates": 12, "first": "random"},
        {"strategy": Batches(4)},
        {"inner_reg": PerPoint(0.02)},
        {"rule": "reducible"},
        {"outer_loss": "squared", "loss": "squared"},
    ],
    ids=str,
)
@pytest.mark.parametrize("given", [False, True])
def test_learned_weights_are_never_worse_with_other_options(more, given):
    data = blobs(50)
    options = {"kernel": RBF(0.3), "inner_reg": 0.3} | more
    first = [3, 20] if given else []
    found = [
        greedy_selector(**options, weighting=mode).select(data, 12, initial=first)
        for mode in ("uniform", "final", "learned")
    ]
    binary, final, learnt = (coreset.objective for coreset in found)
    assert learnt <= final * (1 + SHARE)
    assert final <= binary * (1 + SHARE)
    for coreset in found[1:]:
        refit = state_of(
            greedy_selector(**options), data, coreset.indices.tolist(), coreset.weights.tolist()
        )
        assert coreset.objective == pytest.approx(refit.objective, rel=1e-7)


def test_with_two_paths_coresets_are_not_ordered():
    assert not greedy_selector(weighting="learned").ordered
    assert greedy_selector(weighting="final").ordered


@pytest.mark.parametrize("more", few([{"weighting": "learned"}, {"weighting": "final"}]), ids=str)
def test_weights_do_not_follow_the_last_digit(more):
    """A change of 1e-14 in the regulariser moved learnt weights by a third."""
    x, y = (part[:100] for part in digits())
    one, other = (
        greedy_selector(kernel=RBF(0.02), inner_reg=rho, **more).select(Dataset(x, y), 12)
        for rho in (1e-3, 1e-3 * (1 + 1e-14))
    )
    assert one.indices.tolist() == other.indices.tolist()
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-8)


def test_weights_keep_within_reach_while_points_join_and_those_outside_may_stay():
    chooser = greedy_selector(kernel="rbf", inner_reg=0.1)
    state = state_of(chooser, blobs(50), [0, 7, 13, 30], [1.0, 1e-3, 50.0, 0.5])
    for _ in range(5):
        ProjectedGradient().optimise(state)
    low, high = state.weights.min(), state.weights.max()
    assert low >= 1e-3
    assert high <= 50
    reach = ProjectedGradient().reach
    assert reach >= state.weights[0] >= 1 / reach


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_a_learned_regulariser_follows_its_derivative(loss):
    """G(cw, cρ) = G(w, ρ), so that Σ w ∂G/∂w + ρ ∂G/∂ρ = 0; weights learned with it are no worse."""
    data = blobs(60)
    given = {"kernel": "rbf", "loss": loss}
    chooser = greedy_selector(inner_reg=Learned(0.3), weighting="final", **given)
    state = solver.as_reweighable(state_of(chooser, data, [0, 7, 13, 30], [1.0, 0.2, 3.0, 0.5]))
    assert float(state.weights @ state.weight_gradient()) == pytest.approx(0, abs=1e-6)
    step = np.zeros(5)
    step[-1] = 1e-4
    start, slope = state.weights, float(state.weight_gradient()[-1])
    values = []
    for sign in (1, -1):
        state.reweigh(start + sign * start.new_tensor(step))
        values.append(state.objective)
    assert (values[0] - values[1]) / 2e-4 == pytest.approx(slope, rel=1e-3)
    fixed = greedy_selector(inner_reg=30.0, weighting="final", **given).select(data, 6)
    learned = greedy_selector(inner_reg=Learned(30.0), weighting="final", **given).select(data, 6)
    assert learned.objective < fixed.objective
    assert learned.provenance.inner_reg < 30
    assert learned.status is not Status.UNVERIFIED
    refuses("inner_reg", greedy_selector, inner_reg="learned")


def mislabel_two_points(regulariser):
    """Labels of two points are wrong and the outer set knows better: their weights become zero."""
    x = np.arange(8.0)[:, None]
    y = (x[:, 0] > 3.5).astype(int)
    wrong = y.copy()
    wrong[[1, 6]] = 1 - wrong[[1, 6]]
    chooser = greedy_selector(kernel=RBF(1.0), inner_reg=regulariser)
    return chooser, Dataset(x, wrong), Dataset(x, y)


@pytest.mark.parametrize("start", [None, [1.0, 0.0, 1.0, 2.0, 0.5, 1.0, 0.0, 1.0]])
def test_per_point_regulariser_counts_points_of_positive_weight(start):
    """What is reported is the objective of the points reported with the weights reported."""
    chooser, data, outer = mislabel_two_points(PerPoint(0.05))
    found = chooser.reweight(data, range(8), outer=outer, start=start)
    assert len(found) < 8
    refit = chooser.reweight(
        data, found.indices.tolist(), outer=outer, start=found.weights
    ).details["start_objective"]
    assert found.objective == pytest.approx(refit, rel=1e-9)
    assert found.objective <= found.details["start_objective"] * (1 + 1e-12)
    if start is not None:
        kept = np.flatnonzero(start)
        alone = chooser.reweight(data, kept.tolist(), outer=outer, start=np.array(start)[kept])
        assert found.details["start_objective"] == pytest.approx(
            alone.details["start_objective"], rel=1e-9
        )


@pytest.mark.parametrize("mode", ["learned", "final"])
def test_selections_by_the_point_report_the_points_they_return(mode):
    chooser, data, outer = mislabel_two_points(PerPoint(0.05))
    found = greedy_selector(kernel=RBF(1.0), inner_reg=PerPoint(0.05), weighting=mode).select(
        data, 8, outer=outer
    )
    assert len(found) < 8
    refit = chooser.reweight(data, found.indices.tolist(), outer=outer, start=found.weights)
    assert found.objective == pytest.approx(refit.details["start_objective"], rel=1e-9)
