"""Exchanges by the log-loss of class means against its formula."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from bicore import Dataset
from bicore.bilevel.strategies.refining import ClassMeans, _ClassMeans
from bicore.data import as_tensor
from bicore.kernels import RBF, Linear
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Runtime

KERNELS = {"in features": Linear(), "by columns": RBF(0.1)}


def data(seed, rows=40, classes=4):
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(classes), rng.integers(0, classes, rows - classes)]
    x = np.eye(classes)[y] + 0.7 * rng.normal(size=(rows, classes))
    return Dataset(x, y, np.where(rng.random(rows) < 0.2, 0.0, 1 + rng.random(rows)))


def log_loss(kernel, given, outer, points, temperature):
    """The formula, with the scores −‖φ(x) − μ_c‖² from distances."""
    x = np.vstack([given.x[points], outer.x])
    gram = kernel.gram(as_tensor(x)).numpy()
    chosen, labels = len(points), given.y[points]
    scores = []
    for code in range(4):
        share = np.zeros(len(x))
        own = np.flatnonzero(labels == code)
        share[own] = 1 / len(own)
        scores.append(share @ gram @ share - 2 * gram[chosen:] @ share)
    scores = -temperature * np.array(scores).T
    losses = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(outer)), outer.y]
    return float(np.average(losses, weights=outer.weights))


@dataclass(frozen=True)
class Watched(ClassMeans):
    """Keeps the state before the first exchange."""

    seen: tuple = ()

    def refine(self, assembly, points):
        object.__setattr__(self, "seen", (_ClassMeans(assembly, list(points), self.tolerance),))
        return super().refine(assembly, points)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_losses_and_temperature_follow_the_formula(kernel, separate):
    lower = 0
    for seed in range(4):
        given = data(seed)
        outer = data(seed + 10) if separate else given
        strategy = Watched()
        selector = greedy_selector(
            kernel=kernel, inner_reg=0.1, quotas="balanced", strategy=strategy
        )
        runtime = Runtime(dtype="float64")
        coreset = selector.select(given, 8, outer=outer, runtime=runtime)
        (work,) = strategy.seen
        points, best = list(work.points), work.temperature

        loss = partial(log_loss, kernel, given, outer)
        assert work.loss == pytest.approx(loss(points, best), rel=1e-9)
        for factor in (0.9, 1.1):
            assert loss(points, best * factor) > work.loss - 1e-4
        place = 5
        code = given.y[points[place]]
        rows = np.flatnonzero((given.y == code) & (given.weights > 0))
        rows = rows[~np.isin(rows, points) | (rows == points[place])]
        losses = [loss([*points[:place], row, *points[place + 1 :]], best) for row in rows]
        candidates = work.candidates(code)
        found = work.losses(candidates, place).numpy()
        assert set(candidates.rows[np.isfinite(found)]) == set(rows)
        for row, expected in zip(rows, losses, strict=True):
            change = found[candidates.rows == row] - found[candidates.rows == points[place]]
            assert change == pytest.approx(expected - work.loss, abs=1e-9)
        assert np.bincount(given.y[coreset.indices]).tolist() == [2] * 4
        assert (given.weights[coreset.indices] > 0).all()
        again = loss(coreset.indices.tolist(), best)
        lower += again < work.loss
        if not coreset.details["exchanges"]:
            assert sorted(coreset.indices) == sorted(points)
    assert lower >= 3
