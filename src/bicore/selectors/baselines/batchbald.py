"""BatchBALD: points that together say most about the weights of the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels.operators import BLOCK_BYTES
from bicore.networks.observe import dropout_probabilities
from bicore.picking import lowest, step_rng
from bicore.runtime import checkpoint
from bicore.selectors.baselines.base import Growth, Job, PlainSelector, several_outputs


@dataclass(frozen=True)
class BatchBALD(PlainSelector):
    """BatchBALD (Kirsch, van Amersfoort and Gal 2019): points that together tell most of a network.

    Greedily the points with the largest mutual information between their labels, jointly, and the
    network's weights, under Monte-Carlo dropout:

        I(y_1 … y_b; ω) = H(y_1 … y_b) − Σ_i E_ω H(y_i | ω)

    No labels are looked at: use it to choose what is to be labelled next, with a network that has
    dropout layers. ``objectives`` hold the mutual information.

    Parameters
    ----------
    draws : int, optional
        Thinned networks, the same masks for every point.
    configurations : int, optional
        The joint entropy is exact while there are at most this many joint labels, then it is
        estimated from this many sampled ones. Estimates cannot exceed log(configurations) +
        log(classes) by much: for large sizes late picks are noisy.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> network = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 3))
    >>> data = Dataset(np.random.default_rng(0).normal(size=(20, 2)))
    >>> len(BatchBALD(draws=10).select(data, 3, context=Context(model=network)))
    3
    """

    draws: int = 50
    configurations: int = 1000

    name = "batchbald"
    needs_model = True
    fits_model = True  # the module itself, to draw networks from

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise InputError(
                f"draws={self.draws} is below 2; mutual information compares several thinned "
                "networks."
            )
        if self.configurations < 1:
            raise InputError(
                f"configurations={self.configurations} is below 1; give how many joint labels are "
                "kept."
            )

    def _grow(self, job: Job, growth: Growth) -> None:
        joint = Joint(self._probabilities(job), self.configurations, job.seed)
        for place in growth.order:
            joint.add(place)
        identity = np.arange(len(job.data))
        while growth.wants():
            information = joint.information()
            place = lowest(np.where(growth.open, -information, np.inf), identity)
            joint.add(place)
            growth.take(place, float(information[place]))

    def _probabilities(self, job: Job) -> Tensor:
        """Of the classes, for every point and every drawn network."""
        module = job.module(
            "batchbald draws networks by dropout and needs the module itself; pass "
            "context=Context(model=module)."
        )
        by_draw = dropout_probabilities(module, job.data.x, self.draws, job.seed)
        return several_outputs(job, by_draw).to(job.like.device).permute(1, 0, 2)


class Joint:
    """The joint distribution of the labels chosen so far, given each drawn network.

    ``exact`` has a row for every joint label while they are few, with p(y = row | ω_t) for every
    draw t; ``sampled`` has a row of logarithms for each of ``limit`` joint labels that are drawn
    from the start, each from a network of its own.
    """

    def __init__(self, probabilities: Tensor, limit: int, seed: int) -> None:
        self.probabilities = probabilities
        self.limit = limit
        self.seed = seed
        draws, self.classes = probabilities.shape[1:]
        logs = torch.where(probabilities > 0, probabilities.log(), torch.zeros_like(probabilities))
        # E_ω H(y | ω) of every point, and its sum over those chosen
        self.conditional = -(probabilities * logs).sum(2).mean(1)
        self.chosen_conditional = 0.0
        self.exact: Tensor | None = probabilities.new_ones(1, draws)
        self.sampled = probabilities.new_zeros(limit, draws)
        self.networks = np.arange(limit) % draws
        self.size = 0

    def add(self, place: int) -> None:
        """Take the point's label into the joint distribution."""
        own = self.probabilities[place]
        self.chosen_conditional += float(self.conditional[place])
        labels = torch.from_numpy(self._drawn_labels(own)).to(own.device)
        tiny = torch.finfo(own.dtype).tiny
        self.sampled = self.sampled + own.clamp_min(tiny).log().T[labels]
        self.size += 1
        if self.exact is not None:
            grown = (self.exact[:, None, :] * own.T).reshape(-1, own.shape[0])
            self.exact = grown if len(grown) <= self.limit else None

    def _drawn_labels(self, own: Tensor) -> Array:
        """A label of the point for every sample, from the network of that sample."""
        drawn = step_rng(self.seed, self.size).random(self.limit)
        heights = np.cumsum(own.cpu().numpy()[self.networks], axis=1)
        passed = (drawn[:, None] * heights[:, -1:] > heights).sum(1)
        return np.asarray(np.minimum(passed, self.classes - 1))

    def information(self) -> Array:
        """I(chosen, x; ω) for every point x."""
        information = self._entropies() - self.chosen_conditional - self.conditional
        return np.asarray(information.cpu().numpy())

    def _entropies(self) -> Tensor:
        """H(chosen, x) for every x."""
        draws = self.probabilities.shape[1]
        if self.exact is not None:
            return self._summed(self.exact / draws, None)
        # Rows are scaled to mean 1 over the draws, with the logarithm of the scale beside them, so
        # that long products do not underflow.
        scale = torch.logsumexp(self.sampled, 1) - np.log(draws)
        scaled = (self.sampled - scale[:, None]).exp() / draws
        return self._summed(scaled, scale)

    def _summed(self, rows: Tensor, scale: Tensor | None) -> Tensor:
        """−Σ q log q over joint labels and classes, in blocks of points.

        With a ``scale`` the rows are samples, and it is the mean over them, weighted by importance.
        """
        result = self.probabilities.new_empty(len(self.probabilities))
        block = max(1, BLOCK_BYTES // (8 * len(rows) * self.classes))
        for start in range(0, len(result), block):
            checkpoint()
            part = slice(start, start + block)
            joint = torch.einsum("mt,ntc->nmc", rows, self.probabilities[part])
            logs = torch.where(joint > 0, joint.log(), torch.zeros_like(joint))
            if scale is None:
                result[part] = -(joint * logs).sum((1, 2))
            else:
                result[part] = -(joint * (logs + scale[:, None])).sum((1, 2)) / len(rows)
        return result
