"""Selectors that judge each point alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import InputError, unknown_name
from bicore.selectors.baselines.base import Growth, Job, PlainSelector, several_outputs
from bicore.selectors.baselines.rounds import in_rounds

DIFFICULTIES = ("error", "loss", "margin")
#: Values of points are compared to this many digits of the largest: what is beyond is rounding.
DIGITS = 10


@dataclass(frozen=True)
class Uniform(PlainSelector):
    """Points drawn at random without replacement, all equally likely.

    The order drawn is the order of selection. What every other method should beat.

    Examples
    --------
    >>> from bicore import Dataset
    >>> len(Uniform().select(Dataset(np.eye(5)), 3, rng=1))
    3
    """

    name = "uniform"
    takes_sparse = True  # it looks at no row

    def _grow(self, job: Job, growth: Growth) -> None:
        growth.take_all(np.random.default_rng(job.seed).permutation(len(job.data)))


@dataclass(frozen=True)
class ClassBalanced(PlainSelector):
    """Points drawn at random, one of every class a round.

    A class that runs out leaves its turns to the others. Use it in the place of ``Uniform`` where
    classes are of unequal size and count alike.

    Examples
    --------
    >>> from bicore import Dataset
    >>> data = Dataset(np.arange(6.0)[:, None], ["a", "a", "a", "a", "a", "b"])
    >>> sorted(data.y[ClassBalanced().select(data, 2).indices].tolist())
    ['a', 'b']
    """

    name = "class-balanced"
    needs_labels = True
    takes_sparse = True

    def _grow(self, job: Job, growth: Growth) -> None:
        codes = job.classes().values
        rng = np.random.default_rng(job.seed)
        count = int(codes.max()) + 1
        rank = _random_rank(rng, len(codes))
        priority = rng.permutation(count)
        growth.take_all(_in_rounds(growth, codes, rank, priority))


@dataclass(frozen=True)
class Hardest(PlainSelector):
    """The points of highest loss under the current model.

    Cross-entropy for labels, squared error for targets. It shows what a model has yet to learn, and
    with it what no model will: wrong labels come first.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> network = torch.nn.Linear(2, 2, bias=False)  # its outputs are x itself
    >>> network.weight.data = torch.eye(2)
    >>> data = Dataset([[4.0, 0.0], [0.0, 0.0], [0.0, 3.0]], [0, 0, 0])
    >>> Hardest().select(data, 2, context=Context(model=network)).indices.tolist()
    [2, 1]
    """

    name = "hardest"
    needs_labels = True
    needs_model = True

    def _grow(self, job: Job, growth: Growth) -> None:
        _take_highest(growth, _losses(job))


@dataclass(frozen=True)
class MaxEntropy(PlainSelector):
    """The points of which the current model is least certain: the highest entropy −Σ p log p.

    No labels are looked at: use it to choose what is to be labelled next. The points are judged one
    by one and may be much alike; ``BatchBALD`` sees that.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> network = torch.nn.Linear(2, 2, bias=False)  # its outputs are x itself
    >>> network.weight.data = torch.eye(2)
    >>> data = Dataset([[4.0, 0.0], [0.2, 0.0], [0.0, 3.0]])
    >>> MaxEntropy().select(data, 2, context=Context(model=network)).indices.tolist()
    [1, 2]
    """

    name = "max-entropy"
    needs_model = True

    def _grow(self, job: Job, growth: Growth) -> None:
        logs = several_outputs(job, job.observed().log_probabilities())
        entropies = -(logs.exp() * logs).sum(1)
        _take_highest(growth, entropies.cpu().numpy())


@dataclass(frozen=True)
class Stratified(PlainSelector):
    """Coverage-centric selection (CCS, Zheng et al. 2023): evenly over difficulty, but the hardest.

    The hardest points are left out, then each round draws one point at random from every stratum of
    difficulty that has one left, so a smaller size is a prefix of a larger one, and sparse strata
    are taken whole, as in the original budget rule. Use it for small shares of data with some wrong
    labels, where the hardest points alone serve badly.

    Parameters
    ----------
    difficulty : str, optional
        "error", ‖p − e_y‖ (EL2N); "loss", the cross-entropy; or "margin", the largest other
        probability minus that of the label, under the current model.
    prune : float, optional
        Share of the hardest points that is left out; they come last, easiest first, should the rest
        not suffice.
    strata : int, optional
        Number of intervals of equal width between the lowest and the highest difficulty that
        remain.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> network = torch.nn.Linear(2, 2, bias=False)  # its outputs are x itself
    >>> network.weight.data = torch.eye(2)
    >>> data = Dataset([[4.0, 0.0], [3.9, 0.0], [0.0, 0.0], [0.0, 9.0]], [0, 0, 0, 0])
    >>> ccs = Stratified(prune=0.25, strata=2)
    >>> sorted(ccs.select(data, 3, context=Context(model=network)).indices.tolist())
    [0, 1, 2]
    """

    difficulty: str = "error"
    prune: float = 0.3
    strata: int = 50

    name = "ccs"
    needs_labels = True
    needs_model = True

    def __post_init__(self) -> None:
        if self.difficulty not in DIFFICULTIES:
            raise unknown_name("difficulty", self.difficulty, DIFFICULTIES)
        if not 0 <= self.prune < 1:
            raise InputError(
                f"prune={self.prune} is outside 0 … 1; give the share of hardest points to leave "
                "out."
            )
        if self.strata < 1:
            raise InputError(
                f"strata={self.strata} is below 1; give the number of intervals of difficulty."
            )

    def _grow(self, job: Job, growth: Growth) -> None:
        difficulty = self._difficulties(job)
        by_difficulty = np.argsort(difficulty, kind="stable")
        cut = len(difficulty) - int(self.prune * len(difficulty))
        kept = np.sort(by_difficulty[:cut])
        pruned = by_difficulty[cut:]
        codes = np.full(len(difficulty), self.strata)  # one beyond the last: those left out
        codes[kept] = _strata(difficulty[kept], self.strata)
        rank = _random_rank(np.random.default_rng(job.seed), len(difficulty))
        sizes = np.bincount(codes, minlength=self.strata + 1)
        # The largest strata go first in a round: they are the ones that take what does not divide.
        priority = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
        ordered = _in_rounds(growth, codes, rank, priority)
        growth.take_all(np.concatenate([ordered[codes[ordered] < self.strata], pruned]))

    def _difficulties(self, job: Job) -> Array:
        if self.difficulty == "loss":
            return _losses(job)
        job.classes()  # refuses targets, which have no probability
        observed = job.observed()
        assert job.data.y is not None
        if self.difficulty == "error":
            return np.asarray(observed.residuals(job.data.y).norm(dim=1).cpu().numpy())
        probabilities = observed.log_probabilities().exp()
        columns = torch.from_numpy(observed.columns(job.data.y)).to(probabilities.device)
        own = probabilities.gather(1, columns[:, None])[:, 0]
        others = probabilities.scatter(1, columns[:, None], -1.0).amax(1)
        return np.asarray((others - own).cpu().numpy())


def _strata(values: Array, count: int) -> Array:
    """The number of the interval of equal width in which each value lies."""
    low = float(values.min())
    high = float(values.max())
    if high == low:
        return np.zeros(len(values), dtype=np.int64)
    numbers = (count * (values - low) / (high - low)).astype(np.int64)
    return np.asarray(np.minimum(numbers, count - 1))  # the highest belongs to the last one


def _losses(job: Job) -> Array:
    """The loss of every row under the current model."""
    observed = job.observed()
    assert job.data.y is not None
    if job.data.y.dtype.kind == "f":  # the residual of the squared error is 2(h − y)
        return np.asarray((observed.residuals(job.data.y) / 2).square().sum(1).cpu().numpy())
    logs = observed.log_probabilities()
    columns = torch.from_numpy(observed.columns(job.data.y)).to(logs.device)
    return np.asarray(-logs.gather(1, columns[:, None])[:, 0].cpu().numpy())


def _take_highest(growth: Growth, values: Array) -> None:
    """Highest first; values that differ by rounding only go by id."""
    scale = float(np.abs(values).max()) or 1.0
    growth.take_all(np.argsort(-np.round(values / scale, DIGITS), kind="stable"))


def _random_rank(rng: np.random.Generator, count: int) -> Array:
    """The place of every point in a random order.

    Not a permutation read as ranks: of points that the same seed has shuffled before, those of the
    lowest rank would then be the same with every seed.
    """
    return np.argsort(rng.permutation(count))


def _in_rounds(growth: Growth, codes: Array, rank: Array, priority: Array) -> Array:
    """The open places in rounds over the groups, counting what was taken of each."""
    places = np.flatnonzero(growth.open)
    chosen = np.array(growth.order, dtype=np.int64)
    taken = np.bincount(codes[chosen], minlength=len(priority))
    return places[in_rounds(codes[places], rank[places], priority, taken)]
