"""The residual network that evaluates the comparison on images."""

from functools import partial

import numpy as np
import pytest
import torch

from benchmarks.comparison_images import ResidualJudge
from bicore.errors import NumericalError
from bicore.evaluate.models import Sample
from experiments.networks import ResNet18
from tests.helpers import fails, refuses

SMALL = partial(ResNet18, width=4)


def sample(rows, seed=0):
    """Images of two classes, one redder and one bluer."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % 2
    pixels = rng.integers(0, 120, (rows, 3, 32, 32))
    pixels[np.arange(rows), 2 * labels] += 120
    x = torch.from_numpy((pixels / 128 - 1).astype(np.float32))
    return Sample(x, torch.from_numpy(labels), torch.ones(rows))


@pytest.mark.slow
def test_judge_scores_do_not_depend_on_other_selections():
    first, second, test = sample(4), sample(4, 1), sample(20, 2)
    score = ResidualJudge(25, make=SMALL).scores([first], test, 2, seed=3)[0]
    assert score > 0.9
    judge = ResidualJudge(3, make=SMALL)
    both = judge.predictions([first, second], test, 2, seed=3)
    again = judge.predictions([second, first], test, 2, seed=3)  # networks that begin anew
    alone = ResidualJudge(3, make=SMALL).predictions([second], test, 2, seed=3)[0]
    assert torch.equal(again[0], both[1])
    assert torch.equal(again[1], both[0])
    assert torch.equal(alone, both[1])
    other = judge.predictions([second], test, 2, seed=4)[0]
    assert not torch.allclose(other, alone, atol=1e-3)


def test_judge_refuses_bad_input_and_reports_divergence():
    judge = ResidualJudge(2, make=SMALL)
    refuses(r"resnet18 needs images of shape \(3, 32, 32\)", judge.check, (1, 28, 28), 10)
    points = sample(4)
    wild = Sample(points.x * float("inf"), points.y, points.weight)
    fails(NumericalError, "diverged", judge.predictions, [wild], points, 2, seed=0)
    assert torch.isfinite(judge.predictions([points], points, 2, seed=0)[0]).all()
