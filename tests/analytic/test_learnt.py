"""Weights learnt after every point never end above weights of 1, nor above those learnt once."""

import numpy as np
import pytest

from bicore import RBF, BilevelSelector, Context, Dataset, PerPoint, Runtime
from bicore.bilevel import Adam, ProjectedGradient
from bicore.bilevel.contract import Quantity
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.solvers import weights as solver
from bicore.coreset import Status
from bicore.selectors import Batches
from bicore.sources import digits
from tests.helpers import blobs, state_of

#: Two objectives within this share are the same.
SHARE = 1e-6


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


def drawn(seed):
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
    options, data, outer, size = drawn(seed)
    return [
        BilevelSelector(**options, **more, weights=mode).select(data, size, outer=outer).objective
        for mode in ("binary", "final", "learnt")
    ]


def check(seed, **more):
    binary, final, learnt = objectives(seed, **more)
    assert final <= binary * (1 + SHARE)
    assert learnt <= final * (1 + SHARE)


@pytest.mark.parametrize("seed", [0])
def test_learnt_weights_never_end_above_final_ones_nor_those_above_binary_ones(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_learnt_weights_never_end_above_others_on_many_problems(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_the_paper_s_optimiser_keeps_that_promise_too(seed):
    check(seed, optimiser=Adam())
