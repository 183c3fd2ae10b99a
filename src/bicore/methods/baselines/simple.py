"""Baselines that draw at random, or rank points by the predictions of the current model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import step_rng
from bicore.data import Array
from bicore.errors import check_integer, check_number
from bicore.kernels.operators import BLOCK_BYTES
from bicore.methods.baselines.base import BaselineSelector, Job, PartialSelection, check_outputs
from bicore.networks.observe import dropout_probabilities
from bicore.runtime.clock import checkpoint

#: Scores are compared to this many digits of the largest.
DIGITS = 10


@dataclass(frozen=True)
class Uniform(BaselineSelector):
    """Points drawn at random without replacement, all equally likely.

    Points are selected in the order in which they are drawn.

    Examples
    --------
    >>> from bicore import Dataset
    >>> len(Uniform().select(Dataset(np.eye(5)), 3, random_state=1))
    3
    """

    name = "uniform"
    takes_sparse = True

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        selection.take_all(np.random.default_rng(job.seed).permutation(len(job.data)))


@dataclass(frozen=True)
class ClassBalanced(BaselineSelector):
    """Points drawn at random, one of every class per round.

    A class without points left is skipped. Use it instead of ``Uniform`` if classes of unequal size
    matter equally.

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

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        codes = job.classes().values
        rng = np.random.default_rng(job.seed)
        rank = _random_rank(rng, len(codes))
        selection.take_all(
            _in_rounds(selection, codes, rank, rng.permutation(int(codes.max()) + 1))
        )


@dataclass(frozen=True)
class Hardest(BaselineSelector):
    """The points of highest loss under the current model.

    The loss is the cross-entropy for labels and the squared error for targets. Wrong labels come
    first.

    Examples
    --------
    >>> from bicore import Dataset
    >>> network = torch.nn.Linear(2, 2, bias=False)  # its outputs are x itself
    >>> network.weight.data = torch.eye(2)
    >>> data = Dataset([[4.0, 0.0], [0.0, 0.0], [0.0, 3.0]], [0, 0, 0])
    >>> Hardest().select(data, 2, model=network).indices.tolist()
    [2, 1]
    """

    name = "hardest"
    needs_labels = True
    needs_model = True

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        _take_highest(selection, _losses(job))


@dataclass(frozen=True)
class MaxEntropy(BaselineSelector):
    """The points of highest entropy −Σ p log p under the current model.

    It needs no labels: use it to choose points to label. Points are scored one by one and may be
    similar; ``BatchBALD`` scores them jointly.

    Examples
    --------
    >>> from bicore import Dataset
    >>> network = torch.nn.Linear(2, 2, bias=False)  # its outputs are x itself
    >>> network.weight.data = torch.eye(2)
    >>> data = Dataset([[4.0, 0.0], [0.2, 0.0], [0.0, 3.0]])
    >>> MaxEntropy().select(data, 2, model=network).indices.tolist()
    [1, 2]
    """

    name = "max-entropy"
    needs_model = True

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        logs = check_outputs(job, job.observe().log_probabilities())
        entropies = -(logs.exp() * logs).sum(1)
        _take_highest(selection, entropies.cpu().numpy())


@dataclass(frozen=True)
class Stratified(BaselineSelector):
    """Coverage-centric selection (CCS, Zheng et al. 2023): evenly over difficulty.

    The difficulty of a point is its error ‖p − e_y‖ under the current model (EL2N). The hardest
    points are left out. Each round then draws one point at random from every stratum of difficulty
    that has one left, so a smaller size is a prefix of a larger one. Use it for small shares of
    data with some wrong labels.

    Parameters
    ----------
    prune : float, optional
        Share of the hardest rows to exclude. They come last, easiest first, if the others do
        not suffice.
    strata : int, optional
        Number of intervals of equal width between the lowest and the highest remaining difficulty.

    Examples
    --------
    >>> from bicore import Dataset
    >>> network = torch.nn.Linear(2, 2, bias=False)  # its outputs are x itself
    >>> network.weight.data = torch.eye(2)
    >>> data = Dataset([[4.0, 0.0], [3.9, 0.0], [0.0, 0.0], [0.0, 9.0]], [0, 0, 0, 0])
    >>> ccs = Stratified(prune=0.25, strata=2)
    >>> sorted(ccs.select(data, 3, model=network).indices.tolist())
    [0, 1, 2]
    """

    prune: float = 0.3
    strata: int = 50

    name = "ccs"
    needs_labels = True
    needs_model = True

    def __post_init__(self) -> None:
        check_number("prune", self.prune, least=0, below=1)
        check_integer("strata", self.strata)

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        job.classes()  # refuses numeric targets
        difficulty = job.observe().residuals(job.labels).norm(dim=1).cpu().numpy()
        by_difficulty = np.argsort(difficulty, kind="stable")
        cut = len(difficulty) - int(self.prune * len(difficulty))
        kept, pruned = np.sort(by_difficulty[:cut]), by_difficulty[cut:]
        codes = np.full(len(difficulty), self.strata)  # the last code marks pruned points
        codes[kept] = _intervals(difficulty[kept], self.strata)
        rank = _random_rank(np.random.default_rng(job.seed), len(difficulty))
        sizes = np.bincount(codes, minlength=self.strata + 1)
        # The largest strata go first in a round: they take the remainder of an uneven division.
        priority = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
        ordered = _in_rounds(selection, codes, rank, priority)
        selection.take_all(np.concatenate([ordered[codes[ordered] < self.strata], pruned]))


def _intervals(values: Array, count: int) -> Array:
    """Return the number of the interval of equal width in which each value lies."""
    low, high = float(values.min()), float(values.max())
    numbers = (count * (values - low) / ((high - low) or 1.0)).astype(np.int64)
    return np.asarray(np.minimum(numbers, count - 1))  # the highest value is in the last interval


def _losses(job: Job) -> Array:
    """Return the loss of every row under the current model."""
    observed = job.observe()
    if job.labels.dtype.kind == "f":  # the residual of the squared error is 2(h − y)
        return np.asarray((observed.residuals(job.labels) / 2).square().sum(1).cpu().numpy())
    logs = observed.log_probabilities()
    columns = torch.from_numpy(observed.columns(job.labels))[:, None].to(logs.device)
    return np.asarray(-logs.gather(1, columns)[:, 0].cpu().numpy())


def _take_highest(selection: PartialSelection, values: Array) -> None:
    """Take the highest values first; those that differ by rounding only are sorted by id."""
    scale = float(np.abs(values).max()) or 1.0
    selection.take_all(np.argsort(-np.round(values / scale, DIGITS), kind="stable"))


def _random_rank(rng: np.random.Generator, count: int) -> Array:
    """Return the place of every point in a random order.

    A permutation used as ranks would select the same points with every seed, if the rows were
    shuffled with that seed before.
    """
    return np.argsort(rng.permutation(count))


def _in_rounds(selection: PartialSelection, codes: Array, rank: Array, priority: Array) -> Array:
    """Return the open places in rounds, each with one of every group that has one left.

    A round follows ``priority`` (lower first); within a group the lowest ``rank`` goes first.
    Points taken so far count as the first rounds of their groups.
    """
    places = np.flatnonzero(selection.open)
    taken = np.bincount(codes[np.array(selection.order, dtype=int)], minlength=len(priority))
    rounds = taken[codes]
    for group in np.unique(codes[places]):
        own = places[codes[places] == group]
        rounds[own[np.argsort(rank[own], kind="stable")]] += np.arange(len(own))
    ordered: Array = places[np.lexsort((priority[codes[places]], rounds[places]))]
    return ordered


@dataclass(frozen=True)
class BatchBALD(BaselineSelector):
    """BatchBALD (Kirsch, van Amersfoort and Gal 2019): points that are informative together.

    Greedily the points with the largest mutual information between their joint labels and the
    network's weights, under Monte-Carlo dropout:

        I(y_1 … y_b; ω) = H(y_1 … y_b) − Σ_i E_ω H(y_i | ω)

    It needs no labels: use it to choose points to label, with a network that has dropout layers.
    ``objectives`` hold the mutual information.

    Parameters
    ----------
    draws : int, optional
        Number of dropout masks, the same for every row.
    configurations : int, optional
        The joint entropy is exact while there are at most this many joint labels. Then it is
        estimated from this many samples, and cannot exceed log(configurations) + log(classes) by
        much: for large sizes late picks are noisy.

    Examples
    --------
    >>> from bicore import Dataset
    >>> network = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 3))
    >>> data = Dataset(np.random.default_rng(0).normal(size=(20, 2)))
    >>> len(BatchBALD(draws=10).select(data, 3, model=network))
    3
    """

    draws: int = 50
    configurations: int = 1000

    name = "batchbald"
    needs_model = True
    fits_model = True

    def __post_init__(self) -> None:
        check_integer("draws", self.draws, 2)
        check_integer("configurations", self.configurations)

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        module = job.module("batchbald samples by dropout and needs the module itself.")
        by_draw = dropout_probabilities(module, job.data.x, self.draws, job.seed)
        probabilities = check_outputs(job, by_draw).to(job.like.device).permute(1, 0, 2)
        joint = JointLabels(probabilities, self.configurations, job.seed)
        for place in selection.order:
            joint.add(place)
        while selection.needs_more():
            information = joint.information()
            place = selection.best(information)
            joint.add(place)
            selection.take(place, float(information[place]))


class JointLabels:
    """Joint distribution of the labels of the chosen points, given each dropout mask.

    ``exact`` has a row p(y = row | ω_t) for every joint label while there are at most ``limit``;
    ``sampled`` has a row of logarithms for each of ``limit`` sampled joint labels.
    """

    def __init__(self, probabilities: Tensor, limit: int, seed: int) -> None:
        self.probabilities = probabilities
        self.limit = limit
        self.seed = seed
        draws, self.classes = probabilities.shape[1:]
        # E_ω H(y | ω) of every point, and its sum over those chosen
        self.conditional = torch.special.entr(probabilities).sum(2).mean(1)
        self.chosen_conditional = 0.0
        self.exact: Tensor | None = probabilities.new_ones(1, draws)
        self.sampled = probabilities.new_zeros(limit, draws)
        self.networks = np.arange(limit) % draws
        self.size = 0

    def add(self, place: int) -> None:
        """Add the label of a point to the joint distribution."""
        own = self.probabilities[place]
        self.chosen_conditional += float(self.conditional[place])
        labels = torch.from_numpy(self._draw_labels(own)).to(own.device)
        tiny = torch.finfo(own.dtype).tiny
        self.sampled = self.sampled + own.clamp_min(tiny).log().T[labels]
        self.size += 1
        if self.exact is not None:
            grown = (self.exact[:, None, :] * own.T).reshape(-1, own.shape[0])
            self.exact = grown if len(grown) <= self.limit else None

    def _draw_labels(self, own: Tensor) -> Array:
        """Draw a label of the point for every sample, under the mask of that sample."""
        drawn = step_rng(self.seed, self.size).random(self.limit)
        heights = np.cumsum(own.cpu().numpy()[self.networks], axis=1)
        passed = (drawn[:, None] * heights[:, -1:] > heights).sum(1)
        return np.asarray(np.minimum(passed, self.classes - 1))

    def information(self) -> Array:
        """Return I(chosen, x; ω) for every point x."""
        information = self._entropies() - self.chosen_conditional - self.conditional
        return np.asarray(information.cpu().numpy())

    def _entropies(self) -> Tensor:
        """Return H(chosen, x) for every x: −Σ q log q over joint labels and classes.

        Of sampled joint labels the sum is a mean, weighted by importance.
        """
        result = self.probabilities.new_empty(len(self.probabilities))
        draws = self.probabilities.shape[1]
        count = 1
        if self.exact is not None:
            scale, rows = self.exact.new_zeros(len(self.exact)), self.exact / draws
        else:
            # Rows are scaled to mean 1 over the draws, so that long products do not underflow.
            scale, count = torch.logsumexp(self.sampled, 1) - np.log(draws), self.limit
            rows = (self.sampled - scale[:, None]).exp() / draws
        block = max(1, BLOCK_BYTES // (8 * len(rows) * self.classes))
        for start in range(0, len(result), block):
            checkpoint()
            part = slice(start, start + block)
            joint = torch.einsum("mt,ntc->nmc", rows, self.probabilities[part])
            terms = torch.special.entr(joint) - joint * scale[:, None]
            result[part] = terms.sum((1, 2)) / count
        return result
