"""BatchBALD: points that together say most about the weights of the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels.operators import BLOCK_BYTES
from bicore.networks.dropout import dropout_probabilities
from bicore.networks.observe import Observed
from bicore.picking import lowest, step_rng
from bicore.selectors.baselines.base import Growth, Job, PlainSelector, several_outputs


@dataclass(frozen=True)
class BatchBALD(PlainSelector):
    """BatchBALD (Kirsch, van Amersfoort and Gal 2019): greedily the points with the largest mutual
    information between their labels, jointly, and the network's weights, under Monte-Carlo dropout.
    No labels are looked at.

        I(y_1 … y_b; ω) = H(y_1 … y_b) − Σ_i E_ω H(y_i | ω)

    Parameters
    ----------
    draws : thinned networks, the same masks for every point. configurations : the joint entropy is
    exact while there are at most this many joint labels, then it is estimated from this many
        sampled ones. Estimates cannot exceed log(configurations) + log(classes) by much: for large
        sizes late picks are noisy.

    ``objectives`` hold the mutual information.
    """

    draws: int = 50
    configurations: int = 1000

    name = "batchbald"
    needs_model = True

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
        if isinstance(job.context.model, Observed):
            raise InputError(
                "batchbald draws networks by dropout and needs the module itself; pass "
                "context=Context(model=module)."
            )
        probabilities = dropout_probabilities(job.context.model, job.data.x, self.draws, job.seed)
        joint = Joint(
            several_outputs(job, probabilities).to(job.like.device).permute(1, 0, 2),
            self.configurations,
            job.seed,
        )
        identity = np.arange(len(job.data))
        for place in growth.order:
            joint.add(place)
        while growth.wants():
            gains = joint.information()
            place = lowest(np.where(growth.open, -gains, np.inf), identity)
            joint.add(place)
            growth.take(place, float(gains[place]))


class Joint:
    """The joint distribution of the labels chosen so far, given each drawn network: exact while
    small, then sampled.

    Row m holds p(y = configuration m | ω_t) for every draw t, scaled to mean 1 over t with the
    logarithm of the scale beside it, so that long products do not underflow. Samples are drawn from
    the start, each from a network of its own.
    """

    def __init__(self, probabilities: Tensor, limit: int, seed: int) -> None:
        self.probabilities = probabilities
        self.limit = limit
        self.seed = seed
        draws, self.classes = probabilities.shape[1:]
        logs = torch.where(probabilities > 0, probabilities.log(), torch.zeros_like(probabilities))
        self.conditional = -(probabilities * logs).sum(2).mean(1)
        self.spent = 0.0
        self.exact: Tensor | None = probabilities.new_ones(1, draws)
        self.sampled = probabilities.new_zeros(limit, draws)
        self.networks = np.arange(limit) % draws
        self.size = 0

    def add(self, place: int) -> None:
        """Take the point's label into the joint distribution."""
        own = self.probabilities[place]
        self.spent += float(self.conditional[place])
        drawn = step_rng(self.seed, self.size).random(self.limit)
        heights = np.cumsum(own.cpu().numpy()[self.networks], axis=1)
        labels = np.minimum((drawn[:, None] * heights[:, -1:] > heights).sum(1), self.classes - 1)
        tiny = torch.finfo(own.dtype).tiny
        self.sampled = (
            self.sampled + own.clamp_min(tiny).log().T[torch.from_numpy(labels).to(own.device)]
        )
        self.size += 1
        if self.exact is not None:
            grown = (self.exact[:, None, :] * own.T).reshape(-1, own.shape[0])
            self.exact = grown if len(grown) <= self.limit else None

    def information(self) -> Array:
        """I(chosen, x; ω) for every point x."""
        return np.asarray((self._entropies() - self.spent - self.conditional).cpu().numpy())

    def _entropies(self) -> Tensor:
        """H(chosen, x) for every x."""
        draws = self.probabilities.shape[1]
        if self.exact is not None:
            return self._summed(self.exact / draws, None)
        offset = torch.logsumexp(self.sampled, 1) - np.log(draws)
        scaled = (self.sampled - offset[:, None]).exp() / draws
        return self._summed(scaled, offset)

    def _summed(self, rows: Tensor, offset: Tensor | None) -> Tensor:
        """−Σ q log q over configurations and classes (or its importance-weighted mean over
        samples), in blocks of points."""
        result = self.probabilities.new_empty(len(self.probabilities))
        block = max(1, BLOCK_BYTES // (8 * len(rows) * self.classes))
        for start in range(0, len(result), block):
            part = self.probabilities[start : start + block]
            joint = torch.einsum("mt,ntc->nmc", rows, part)
            logs = torch.where(joint > 0, joint.log(), torch.zeros_like(joint))
            if offset is None:
                result[start : start + block] = -(joint * logs).sum((1, 2))
            else:
                result[start : start + block] = -(joint * (logs + offset[:, None])).sum(
                    (1, 2)
                ) / len(rows)
        return result
