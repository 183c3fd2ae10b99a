"""The implicit gradient against finite differences of G(w), for every loss and solver."""

import dataclasses
import functools

import numpy as np
import pytest

from bicore import Dataset
from bicore.bilevel import LBFGS, Cholesky, ConjugateGradient, Newton, PerPoint, Ridge
from bicore.losses import CrossEntropy, CustomLoss, Logistic, SquaredError
from bicore.methods.registry import greedy_selector
from tests.helpers import HUBER, blobs, gradients, line, softmax_loss, state_of

SUPPORT = [3, 11, 0, 7, 20]
WEIGHTS = [1.0, 0.5, 2.0, 1.3, 0.2]
LINEAR = {
    "cholesky": Cholesky(),
    "cg": ConjugateGradient(tolerance=1e-12),
    "plain cg": ConjugateGradient(precondition=False, tolerance=1e-12),
}
INNER = {
    "newton": lambda: Newton(Cholesky(), tolerance=1e-12),
    "newton-cg": lambda: Newton(ConjugateGradient(tolerance=1e-10), tolerance=1e-12),
    "lbfgs": lambda: LBFGS(),
    "ridge": lambda: Ridge(),
}
LOSSES = {
    "cross-entropy": (CrossEntropy(), blobs),
    "squared labels": (SquaredError(), blobs),
    "squared targets": (SquaredError(), line),
    "logistic": (Logistic(), lambda: blobs(classes=2)),
    "custom": (HUBER, line),
    "custom labels": (CustomLoss(softmax_loss), blobs),
}


def is_slow(loss, inner, linear):
    """Every inner solver runs with one linear solver and every linear solver with one inner solver;
    losses by automatic differentiation run with one pair."""
    first = inner == "newton", linear == "cholesky"
    return not (all(first) if loss.startswith("custom") else any(first))


COMBINATIONS = [
    pytest.param(loss, inner, linear, marks=[pytest.mark.slow] * is_slow(loss, inner, linear))
    for loss in LOSSES
    for inner in INNER
    if inner != "ridge" or loss.startswith("squared")
    for linear in LINEAR
]


def add_weights(data: Dataset) -> Dataset:
    weight = np.linspace(0.5, 2, len(data))
    return dataclasses.replace(data, sample_weight=weight)


def objective(selector, data, outer, k, shift):
    """G with the weight of point k nudged; a point outside the support joins with that weight."""
    points = list(SUPPORT)
    weights = list(WEIGHTS)
    if k in points:
        weights[points.index(k)] += shift
    else:
        points = [*points, k]
        weights = [*weights, shift]
    return state_of(selector, data, points, weights, outer).objective


def slope_by_differences(selector, data, outer, k):
    if k in SUPPORT:
        step = 1e-4
        return (
            objective(selector, data, outer, k, step) - objective(selector, data, outer, k, -step)
        ) / (2 * step)
    # A weight cannot be negative: the one-sided difference of second order.
    step = 2e-4
    start, near, far = (objective(selector, data, outer, k, s) for s in (0.0, step, 2 * step))
    return (-3 * start + 4 * near - far) / (2 * step)


@functools.cache
def exact_slope(loss, k):
    """The difference of refits to 1e-13: the same for every solver that is held against it."""
    built, make = LOSSES[loss]
    exact = greedy_selector(
        kernel="rbf", loss=built, inner_reg=0.3, inner=Newton(Cholesky(), tolerance=1e-13)
    )
    return slope_by_differences(exact, add_weights(make()), None, k)


@pytest.mark.parametrize(("loss", "inner", "linear"), COMBINATIONS)
def test_gradient_of_every_combination(loss, inner, linear):
    built, make = LOSSES[loss]
    data = add_weights(make())
    selector = greedy_selector(
        kernel="rbf", loss=built, inner_reg=0.3, inner=INNER[inner](), linear=LINEAR[linear]
    )
    scores = gradients(state_of(selector, data, SUPPORT, WEIGHTS))
    for k in (3, 20, 1, 30):
        assert scores[k] == pytest.approx(exact_slope(loss, k), rel=2e-4, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("linear", ["cholesky", "cg"])
def test_gradient_with_a_separate_weighted_outer_set(loss, linear):
    built, make = LOSSES[loss]
    data = make()
    outer = add_weights(make())[np.arange(5, 35)]
    inner = Newton(Cholesky(), tolerance=1e-13)
    selector = greedy_selector(
        kernel="laplace", loss=built, inner_reg=0.2, inner=inner, linear=LINEAR[linear]
    )
    state = state_of(selector, data, SUPPORT, WEIGHTS, outer)
    scores = gradients(state)
    for k in (3, 20, 1, 30):
        assert scores[k] == pytest.approx(
            slope_by_differences(selector, data, outer, k), rel=2e-4, abs=1e-8
        )
    np.testing.assert_allclose(state.weight_gradient().numpy(), scores[SUPPORT], rtol=1e-6)


def test_gradient_when_outer_and_inner_loss_differ():
    data = blobs()
    selector = greedy_selector(
        kernel="rbf",
        loss="squared",
        outer_loss="cross-entropy",
        inner_reg=0.3,
        inner=Newton(Cholesky(), tolerance=1e-13),
    )
    scores = gradients(state_of(selector, data, SUPPORT, WEIGHTS))
    for k in (3, 1, 30):
        assert scores[k] == pytest.approx(
            slope_by_differences(selector, data, None, k), rel=2e-4, abs=1e-8
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", [float, PerPoint])
def test_derivative_in_the_regulariser(loss, form):
    built, make = LOSSES[loss]
    data = add_weights(make())
    rho = 0.3
    inner = Newton(Cholesky(), tolerance=1e-13)

    def value(reg):
        return state_of(
            greedy_selector(kernel="rbf", loss=built, inner_reg=form(reg), inner=inner),
            data,
            SUPPORT,
            WEIGHTS,
        )

    step = 1e-5
    slope = (value(rho + step).objective - value(rho - step).objective) / (2 * step)
    size = len(SUPPORT) if form is PerPoint else 1  # dρ/dλ
    assert value(rho).joint_gradient()[-1].item() * size == pytest.approx(slope, rel=1e-5)


def test_scores_of_a_sample_of_candidates_are_those_of_all():
    data = blobs()
    state = state_of(
        greedy_selector(kernel="rbf", loss="cross-entropy", inner_reg=0.3), data, SUPPORT, WEIGHTS
    )
    import torch

    some = torch.tensor([1, 30, 3])
    np.testing.assert_allclose(gradients(state, some), gradients(state)[some], rtol=1e-5)
