"""Exchanges within classes by the log-loss of class means, for a few rows of many classes.

With a row or two of each class, a classifier scores class c by the distance to the mean of its
chosen rows, in the space of the kernel:

    s_c(x) = 2/m Σ_{k∈S_c} K(x, k) − 1/m² Σ_{k,l∈S_c} K(k, l) = ‖φ(x)‖² − ‖φ(x) − μ_c‖²
    L(S)   = Σ_x v_x (log Σ_c exp(τ s_c(x)) − τ s_{y(x)}(x)),    τ fitted before every sweep

With few rows the squared error of a ridge regression mostly measures the size of its predictions,
but L measures which class is nearest. An exchange within class c changes s_c alone, so one product
scores all drawn rows of a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import softplus

from bicore.arguments import step_rng
from bicore.bilevel.greedy import Outcome
from bicore.bilevel.strategies.base import Assembly
from bicore.bilevel.strategies.refining import STOPPED, Exchange
from bicore.data import Array
from bicore.kernels.operators import square_block
from bicore.runtime.clock import checkpoint

#: The sweeps end if one lowers the log-loss by less than this share.
LEAST_DECREASE = 5e-3
#: Largest |log τ|, in units of the standard deviation of the scores.
WIDEST = 4.0
#: Number of rows of a class drawn as candidates in a sweep.
DRAWN = 32


@dataclass(frozen=True)
class ClassMeans(Exchange):
    """Greedy selection with quotas, then exchanges within classes by the log-loss of class means.

    Every place in turn takes the row with the lowest log-loss among random ones of its class; of
    equal ones that of the lowest id. ``rounds`` has no effect.
    """

    name = "class-means"

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        work = _ClassMeans(assembly, points, self.tolerance)
        try:
            return points, work.run(math.inf if self.sweeps is None else self.sweeps)
        finally:  # an interrupt keeps the swaps made so far
            gain = work.begin - work.loss
            assembly.details |= {"exchanges": work.swaps, "exchange_gain": gain}
            assembly.notes.append(
                f"exchanges: {work.swaps} within classes, log-loss of class means lowered from "
                f"{work.begin:.4g} to {work.loss:.4g}"
            )


@dataclass(frozen=True)
class _Candidates:
    """Candidate rows of a class, with the terms of their losses."""

    rows: Array
    #: K[:, rows] on the outer set, and K[rows, rows].
    columns: Tensor
    square: Tensor
    #: log Σ exp(τ s_c) over the other classes, and the weights of the outer rows of this class.
    rest: Tensor
    own: Tensor


class _ClassMeans:
    """The points of each class, and the scores of class means on the outer set."""

    def __init__(self, assembly: Assembly, points: list[int], tolerance: float) -> None:
        problem = assembly.problem
        assert assembly.groups is not None
        self.assembly, self.points, self.tolerance = assembly, points, tolerance
        self.train, self.cross = problem.train, problem.cross
        self.codes = assembly.groups
        self.labels = problem.outer_targets.argmax(1)
        self.free = assembly.open.cpu().numpy()
        self.ranks, self.by_rank = np.array(assembly.ranks), assembly.run.plan.by_id
        found = set(self.codes[points].tolist())
        present = [code in found for code in range(problem.outer_targets.shape[1])]
        # Rows of classes without a point have no score.
        known = torch.tensor(present, device=self.labels.device)[self.labels]
        weights = torch.where(known, problem.outer_weights, torch.zeros_like(problem.outer_weights))
        self.weights = weights / weights.sum()
        self.scores = problem.outer_targets.new_full((len(known), len(present)), -torch.inf)
        for code in sorted(found):
            own = self._index([points[place] for place in self._places(code)])
            self._rescore(code, self.cross.columns(own), square_block(self.train, own))
        self.swaps = self.visits = 0
        self.temperature = self._fit_temperature()
        self.begin = self.loss = self._loss(self.temperature)

    def run(self, sweeps: float) -> Outcome:
        """Sweep over the classes until the loss hardly changes."""
        while sweeps > 0:
            sweeps -= 1
            before = self.loss
            for code in np.unique(self.codes[self.points]).tolist():
                if self.assembly.clock.over:
                    return STOPPED
                checkpoint()
                self._exchange(code)
            self.temperature = self._fit_temperature()
            self.loss = self._loss(self.temperature)
            if not before - self.loss > LEAST_DECREASE * before:
                break
        return Outcome()

    def _places(self, code: int) -> list[int]:
        return np.flatnonzero(self.codes[self.points] == code).tolist()

    def _index(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows, device=self.labels.device)

    def _rescore(self, code: int, columns: Tensor, square: Tensor) -> None:
        """Compute the scores of a class from the columns of its points."""
        self.scores[:, code] = 2 * columns.mean(1) - square.mean().to(columns)

    def _loss(self, temperature: float) -> float:
        scores = temperature * self.scores
        own = scores.gather(1, self.labels[:, None])[:, 0]
        losses = torch.where(self.weights > 0, scores.logsumexp(1) - own, torch.zeros_like(own))
        return float(self.weights.double() @ losses.double())

    def _fit_temperature(self) -> float:
        scale = float(self.scores[self.scores.isfinite()].double().std())
        if not scale > 0:
            return 1.0
        found = minimize_scalar(
            lambda log: self._loss(math.exp(log) / scale),
            bounds=(-WIDEST, WIDEST),
            method="bounded",
            options={"xatol": 1e-2},
        )
        return math.exp(found.x) / scale

    def _exchange(self, code: int) -> None:
        """Put the best row of the class at each of its places."""
        found = self.candidates(code)
        for place in self._places(code):
            if place < self.assembly.fixed:
                continue
            losses = self.losses(found, place)
            now = int(np.flatnonzero(found.rows == self.points[place])[0])
            least = self.tolerance * self.loss
            best = int((losses <= losses.min() + least).nonzero()[0, 0])
            if losses[now] - losses[best] > least:
                self.free[[self.points[place], found.rows[best]]] = [True, False]
                self.points[place] = int(found.rows[best])
                self.swaps += 1
        taken = self._mask(found, self._places(code))
        self._rescore(code, found.columns[:, taken], found.square[taken][:, taken])

    def candidates(self, code: int) -> _Candidates:
        """Return the points of a class and some of its free rows, by rank."""
        rows = self.by_rank[self.free[self.by_rank] & (self.codes[self.by_rank] == code)]
        rng = step_rng(self.assembly.run.plan.seed, self.visits)
        self.visits += 1
        drawn = rng.choice(rows, min(DRAWN, len(rows)), replace=False)
        mine = np.r_[drawn, [self.points[place] for place in self._places(code)]]
        rows = mine[np.argsort(self.ranks[mine])]
        index = self._index(rows.tolist())
        others = self.temperature * self.scores
        others[:, code] = -torch.inf
        own = torch.where(self.labels == code, self.weights, torch.zeros_like(self.weights))
        columns, square = self.cross.columns(index), square_block(self.train, index)
        return _Candidates(rows, columns, square, others.logsumexp(1), own)

    def losses(self, found: _Candidates, place: int) -> Tensor:
        """Compute L, up to a constant, with each row of a class in a place; ∞ for other points."""
        code = self.codes[self.points[place]]
        stays = self._mask(found, [other for other in self._places(code) if other != place])
        columns, square, share = found.columns, found.square, 1 / (1 + int(stays.sum()))
        norms = square[stays][:, stays].sum() + 2 * square[:, stays].sum(1) + square.diagonal()
        shift = (self.temperature * share**2 * norms).to(columns)
        slope = 2 * self.temperature * share
        base = slope * columns[:, stays].sum(1)
        total = (shift * found.own.sum() - slope * (found.own @ columns)).double()
        scores = slope * columns - shift + (base - found.rest)[:, None]
        total += (self.weights @ softplus(scores)).double()
        return total.masked_fill(stays, torch.inf)

    def _mask(self, found: _Candidates, places: list[int]) -> Tensor:
        """Mark the candidates that are the points of some places."""
        taken = np.isin(found.rows, [self.points[place] for place in places])
        return torch.from_numpy(taken).to(self.labels.device)
