"""The squared-error engine against refits from scratch, and greedy against brute force."""

import itertools

import numpy as np
import pytest
import torch

from bicore import Dataset, Runtime
from bicore.bilevel import PerPoint, Ridge
from bicore.bilevel.engines.ridge import RidgeEngine
from bicore.bilevel.problem import Constant
from bicore.kernels import Linear, Nystrom
from bicore.kernels.operators import Blocked, Features
from bicore.methods.registry import greedy_selector
from tests.helpers import (
    ON_CPU,
    blobs,
    gains,
    gradients,
    kernel_ridge,
    line,
    problem_of,
    state_of,
    with_reg,
)

RHO = 0.2


def refit(problem, points, weights=None):
    """G of the kernel ridge regression on these points, from the normal equations."""
    gram = problem.train.columns(torch.arange(problem.size)).numpy()
    cross = problem.cross.columns(torch.arange(problem.size)).numpy()
    points, weights = list(points), np.ones(len(points)) if weights is None else np.asarray(weights)
    alpha = kernel_ridge(
        gram[np.ix_(points, points)], problem.inner_targets.numpy()[points], weights, RHO
    )
    error = problem.outer_targets.numpy() - cross[:, points] @ alpha
    return float(problem.outer_weights.numpy() @ (error**2).sum(1))


CASES = {
    "labels": (blobs(), None, "rbf"),
    "targets": (line(), None, "rbf"),
    "weighted": (Dataset(line().x, line().y, np.linspace(0.1, 3, 40)), None, "laplace"),
    "outer": (line(), Dataset(line(seed=1).x, line(seed=1).y, np.linspace(1, 2, 40)), "rbf"),
    "features": (line(), None, "linear"),
    "features, outer": (line(), line(seed=1)[:15], "linear"),
    "nystrom": (blobs(), None, Nystrom(Linear(), landmarks=4)),
}


@pytest.fixture(params=CASES)
def engine(request):
    data, outer, kernel = CASES[request.param]
    problem = with_reg(
        problem_of(greedy_selector(kernel=kernel, inner_reg=RHO), data, outer), Constant(RHO)
    )
    state = RidgeEngine(problem, 12, gains=True)
    for k in (4, 17, 9, 30):
        state.extend([k])
    return state


def test_objective_is_that_of_a_refit(engine):
    assert engine.objective == pytest.approx(
        refit(engine.problem, [4, 17, 9, 30], [1.0] * 4), rel=1e-10
    )


def test_exact_gain_is_the_difference_of_two_refits(engine):
    found = gains(engine)
    for k in (0, 5, 22, 39):
        after = refit(engine.problem, [4, 17, 9, 30, k], [1.0] * 5)
        assert found[k] == pytest.approx(engine.objective - after, rel=1e-7, abs=1e-11)


def test_gradient_is_the_limit_of_refits(engine):
    scores = gradients(engine)
    for k in (0, 5, 22, 39):
        near, far = (
            refit(engine.problem, [4, 17, 9, 30, k], [*[1.0] * 4, step]) for step in (1e-4, 2e-4)
        )
        slope = (-3 * engine.objective + 4 * near - far) / 2e-4
        assert scores[k] == pytest.approx(slope, rel=1e-4, abs=1e-8)


def test_closed_form_and_implicit_engine_pick_the_same_points():
    data = blobs(60)
    closed = greedy_selector(kernel="rbf", inner_reg=RHO).select(data, 25)
    general = greedy_selector(kernel="rbf", inner_reg=RHO, inner=Ridge()).select(data, 25)
    assert closed.indices.tolist() == general.indices.tolist()
    np.testing.assert_allclose(closed.objectives, general.objectives, rtol=1e-8)


def test_operators_give_the_same_selection():
    data = blobs(60)
    # a callable has no feature map
    stored = greedy_selector(kernel=lambda a, b: a @ b.T, inner_reg=RHO)
    explicit = greedy_selector(kernel="linear", inner_reg=RHO)
    first = stored.select(data, 20)
    second = explicit.select(data, 20)
    assert (first.details["operator"], second.details["operator"]) == ("gram", "features")
    assert first.indices.tolist() == second.indices.tolist()
    problem = problem_of(explicit, data)
    assert isinstance(problem.train, Features)


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_blocked_products_change_nothing(loss, monkeypatch):
    data = blobs(60)
    outer = blobs(25, seed=3)
    selector = greedy_selector(kernel="rbf", loss=loss, inner_reg=RHO)
    stored = selector.select(data, 12, outer=outer, **ON_CPU.keywords)
    monkeypatch.setattr("bicore.kernels.building.SMALLEST_BLOCK", 7)
    for module in ("building", "operators"):
        monkeypatch.setattr(f"bicore.kernels.{module}.BLOCK_BYTES", 4000)
    monkeypatch.setattr("bicore.kernels.building.Gram", None)  # a stored matrix would fail
    from bicore.runtime.context import Context

    tight = Context(runtime=Runtime("cpu", memory=45_000))
    blocked = selector.select(data, 12, outer=outer, **tight.keywords)
    assert blocked.details["operator"] == "blocked"
    assert stored.indices.tolist() == blocked.indices.tolist()
    np.testing.assert_allclose(stored.objectives, blocked.objectives, rtol=1e-9)


def test_blocked_operator_equals_the_stored_one():
    data = blobs(23)
    kernel = greedy_selector(kernel="rbf").kernel
    from bicore.methods.names import as_kernel

    fitted = as_kernel(kernel).fit(data.x)
    x = torch.from_numpy(data.x)
    gram = fitted.gram(x)
    blocked = Blocked(fitted, x, x, block=7)
    right = torch.randn(23, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([5, 0, 22])
    torch.testing.assert_close(blocked.transposed_matmul(right), gram.T @ right)
    torch.testing.assert_close(blocked.transposed_matmul(right, index), gram[:, index].T @ right)
    torch.testing.assert_close(blocked.columns(index), gram[:, index])
    torch.testing.assert_close(blocked.diagonal(), gram.diagonal())
    weights = torch.rand(23, dtype=torch.float64)
    torch.testing.assert_close(blocked.weighted_column_norms(weights), weights @ gram.square())


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "rule"), [("squared", "gain"), ("cross-entropy", "gradient")])
def test_greedy_is_near_the_best_of_all_subsets(loss, rule):
    """Brute force over all subsets bounds greedy's loss from below, and greedy comes close."""
    data = blobs(12, classes=2)
    selector = greedy_selector(kernel="rbf", loss=loss, rule=rule, inner_reg=0.1)
    greedy = selector.select(data, 3)
    values = [
        state_of(selector, data, list(subset), [1.0] * 3).objective
        for subset in itertools.combinations(range(12), 3)
    ]
    assert min(values) <= greedy.objective + 1e-9
    # Greedy's share of the best possible decrease: the (1 − 1/e) that submodular functions
    # guarantee.
    empty = greedy.provenance.empty_objective
    assert empty - greedy.objective >= (1 - np.exp(-1)) * (empty - min(values))


def test_per_point_regulariser_is_the_mean_form():
    """Σ w ℓ + λ|S| tr αᵀKα has the minimiser of mean ℓ + λ tr αᵀKα."""
    data = blobs()
    lam = 0.05
    points = [3, 8, 20, 33]
    grown = greedy_selector(kernel="rbf", inner_reg=PerPoint(lam)).select(data, 4, initial=points)
    constant = greedy_selector(kernel="rbf", inner_reg=lam * 4).select(data, 4, initial=points)
    assert grown.objective == pytest.approx(constant.objective, rel=1e-9)
    assert grown.objectives[0] != pytest.approx(constant.objectives[0], rel=1e-3)
