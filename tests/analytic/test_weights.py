"""Learned weights: never worse than the start, removal of zero weights, and a closed-form
optimum."""

import numpy as np
import pytest

from bicore import Coreset, Dataset, reweight, select
from bicore.bilevel import Adam, ProjectedGradient
from bicore.coreset import Status
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs, line, refuses, state_of
from tests.marks import diagonal, few


@pytest.mark.parametrize("optimiser", [ProjectedGradient(), Adam(), Adam(rate=5.0)])
@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
@pytest.mark.parametrize("seed", few(range(3)))
def test_reweighting_never_ends_worse(optimiser, loss, seed):
    data = blobs(50, seed=seed)
    rng = np.random.default_rng(seed)
    points = rng.choice(50, 8, replace=False)
    start = rng.uniform(0.1, 3, 8)
    learnt = reweight(
        data,
        indices=points,
        start=start,
        kernel="rbf",
        loss=loss,
        inner_reg=0.1,
        intercept=0,
        optimiser=optimiser,
    )
    assert learnt.objective <= learnt.details["start_objective"] + 1e-12
    again = state_of(
        greedy_selector(kernel="rbf", loss=loss, inner_reg=0.1),
        data,
        learnt.indices.tolist(),
        learnt.weights,
    )
    # the weights returned are those measured
    assert again.objective == pytest.approx(learnt.objective, rel=1e-6)


@pytest.mark.parametrize("optimiser", [ProjectedGradient(), Adam()])
def test_a_search_without_decrease_restores_the_weights(optimiser, monkeypatch):
    """With the gradient's sign turned every step goes uphill: the state must end exactly where it
    began."""
    state = state_of(
        greedy_selector(kernel="rbf", inner_reg=0.1), blobs(50), [0, 7, 13], [1.0, 0.5, 2.0]
    )
    begin = state.objective
    slope = state.weight_gradient
    monkeypatch.setattr(state, "weight_gradient", lambda: -slope())
    optimiser.optimise(state, final=True)
    assert state.weights.tolist() == [1.0, 0.5, 2.0]
    assert state.objective == pytest.approx(begin, rel=1e-12)


def test_projected_gradient_reaches_a_stationary_point():
    data = blobs(50)
    points = [0, 7, 13, 22, 31]
    learnt = reweight(
        data,
        indices=points,
        kernel="rbf",
        inner_reg=0.1,
        intercept=0,
        optimiser=ProjectedGradient(final_steps=2000),
    )
    selector = greedy_selector(kernel="rbf", inner_reg=0.1)
    state = state_of(
        selector,
        data,
        points,
        [
            learnt.weights[learnt.indices.tolist().index(k)] if k in learnt.indices else 0.0
            for k in points
        ],
    )
    slope = state.weight_gradient().numpy()
    weights = state.weights.numpy()
    assert np.abs(slope[weights > 0]).max() < 2e-3
    assert (slope[weights == 0] >= -1e-9).all()


def test_one_point_has_the_weight_calculus_gives_it():
    """K = [[1]] everywhere, targets t: h = w t₁/(w + ρ); the best w makes h the mean target, or is
    unbounded."""
    y = np.array([2.0, 0.0, 1.0, 0.6])
    data = Dataset(np.ones((4, 1)), y)
    learnt = reweight(
        data,
        indices=[0],
        kernel=lambda a, b: a @ b.T,
        inner_reg=0.5,
        intercept=0,
        loss=_plain(),
        optimiser=ProjectedGradient(final_steps=3000),
    )
    mean = y.mean()
    rho = 0.5
    assert learnt.weights[0] == pytest.approx(rho * mean / (2.0 - mean), rel=1e-3)


def _plain():
    from bicore.losses import SquaredError

    return SquaredError(centre=False)


@pytest.mark.parametrize(
    ("loss", "mode"), diagonal(["squared", "cross-entropy"], ["learned", "final"], 2)
)
def test_learnt_weights_beat_binary_ones(loss, mode):
    data = blobs(60)
    binary = select(data, size=10, kernel="rbf", loss=loss, inner_reg=0.5)
    learnt = select(data, size=10, kernel="rbf", loss=loss, inner_reg=0.5, weighting=mode)
    assert learnt.objective < binary.objective
    assert not learnt.binary
    assert (learnt.weights > 0).all()


@pytest.mark.parametrize("mode", ["learned", "final"])
def test_points_of_zero_weight_leave_with_a_status(mode):
    """Two labels are wrong and the outer set knows better: those points lose all weight, and fewer
    come back."""
    x = np.arange(8.0)[:, None]
    right = (x[:, 0] > 3.5).astype(int)
    wrong = right.copy()
    wrong[[1, 6]] = 1 - wrong[[1, 6]]
    coreset = select(x, wrong, 8, outer=(x, right), kernel=RBF(1.0), inner_reg=0.1, weighting=mode)
    assert not set(coreset.indices.tolist()) & {1, 6}
    assert coreset.status is Status.FEWER
    assert (
        coreset.message
        == f"{len(coreset)} of 8 rows: the learned weights of the other rows are zero"
    )
    assert (coreset.weights > 0).all()
    assert len(np.unique(coreset.indices)) == len(coreset)


def test_reweight_accepts_both_forms_and_refuses_an_empty_list():
    data = line()
    first = reweight(data, indices=[1, 2, 3], kernel="rbf", inner_reg=0.1)
    second = reweight(data.x, data.y, [1, 2, 3], kernel="rbf", inner_reg=0.1)
    assert isinstance(first, Coreset)
    np.testing.assert_array_equal(first.weights, second.weights)
    refuses("indices", reweight, data, indices=[], kernel="rbf", inner_reg=0.1)
    drawn = reweight(
        data, indices=[1, 2], kernel="rbf", inner_reg=0.1, random_state=np.random.default_rng(4)
    )
    assert drawn.provenance.seed == np.random.default_rng(4).integers(2**62)
