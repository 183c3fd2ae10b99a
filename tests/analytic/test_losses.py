"""Every loss: gradient and Hessian against finite differences."""

import numpy as np
import pytest
import torch

from bicore import NumericalError
from bicore.data import read_targets
from bicore.losses import (
    Blocks,
    CrossEntropy,
    CustomLoss,
    Isotropic,
    Logistic,
    Softmax,
    SquaredError,
)
from tests.helpers import HUBER, dense_blocks, refuses, softmax_loss

LABELS = read_targets(np.array([0, 2, 1, 2, 0]))
PAIR = read_targets(np.array([0, 1, 1, 0, 1]))
NUMBERS = read_targets(np.random.default_rng(0).normal(size=(5, 2)))
CASES = [
    (CrossEntropy(), LABELS),
    (SquaredError(), LABELS),
    (SquaredError(centre=False), NUMBERS),
    (Logistic(), PAIR),
    (HUBER, NUMBERS),
    (CustomLoss(softmax_loss), LABELS),
]


def prepare_outputs(loss, targets):
    like = torch.empty(0, dtype=torch.float64)
    t = loss.prepare(targets, targets, torch.ones(len(targets.values), dtype=torch.float64), like)
    h = torch.randn(
        len(targets.values),
        loss.outputs(targets),
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(1),
    )
    return h, t


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_gradient_and_curvature_match_finite_differences(loss, targets):
    h, t = prepare_outputs(loss, targets)
    step = 1e-6
    gradient = loss.gradient(h, t)
    blocks = dense_blocks(loss.curvature(h, t), h)
    for c in range(h.shape[1]):
        moved = torch.zeros_like(h)
        moved[:, c] = step
        slope = (loss.value(h + moved, t) - loss.value(h - moved, t)) / (2 * step)
        bend = (loss.gradient(h + moved, t) - loss.gradient(h - moved, t)) / (2 * step)
        torch.testing.assert_close(gradient[:, c], slope, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(blocks[:, :, c], bend, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_typical_curvature_is_a_share_of_the_trace(loss, targets):
    h, t = prepare_outputs(loss, targets)
    curvature = loss.curvature(h, t).scale_by(torch.arange(1.0, 6.0, dtype=torch.float64))
    blocks = dense_blocks(curvature, h)
    ratio = curvature.typical() / blocks.diagonal(dim1=1, dim2=2).sum(1)
    assert torch.allclose(ratio, ratio[0].expand_as(ratio))  # a fixed share of the trace


def test_a_loss_that_is_not_convex_is_refused():
    loss = CustomLoss(lambda h, t: torch.cos(h).sum(), name="cosine")
    with pytest.raises(NumericalError, match=r"cosine.*positive semi-definite.*eigenvalue"):
        loss.curvature(torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 2))


def test_logistic_refuses_three_classes_and_cross_entropy_refuses_targets():
    refuses("2 classes", Logistic().outputs, LABELS)
    refuses("needs class labels", CrossEntropy().outputs, NUMBERS)


def test_centring_subtracts_the_weighted_mean_of_the_training_targets():
    like = torch.empty(0, dtype=torch.float64)
    weights = torch.tensor([1.0, 0, 0, 0, 3], dtype=torch.float64)
    rows = SquaredError().prepare(NUMBERS, NUMBERS, weights, like)
    values = torch.from_numpy(NUMBERS.values)
    torch.testing.assert_close(rows, values - (values[0] + 3 * values[4]) / 4)


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_members_that_engines_read(loss, targets):
    h, t = prepare_outputs(loss, targets)
    curvature = loss.curvature(h, t)
    plain = loss.without_centring()
    assert plain == plain.without_centring()
    assert (loss.quadratic, loss.softmax) == (loss.name == "squared", loss.name == "cross-entropy")
    # What prepare took off comes back: undone targets are the targets themselves.
    if loss.quadratic:
        whole = plain.prepare(targets, targets, torch.ones(5), t)
        torch.testing.assert_close(loss.restore(t, targets, t), whole)
    else:
        assert loss.restore(h, targets, t) is h
    limits = {Isotropic: np.inf, Softmax: 1, Blocks: 0.25}
    assert curvature.direct_share == limits[type(curvature)]
