"""Inducing points by the trace criterion, as functional regularisation (FRCL) chooses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.coreset import Status
from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels.operators import KernelOperator
from bicore.numerics.linear_algebra import summed_over_rows
from bicore.runtime import TimeOver, checkpoint
from bicore.selectors.baselines.base import Growth, Job
from bicore.selectors.baselines.cover import OverSpace

#: Proposals judged at once; at most one of them is taken before the next are drawn.
PROPOSED_AT_ONCE = 16
#: Added to the diagonal of K_ZZ, relative to the mean of K's diagonal, so that more points than
#: dimensions stay solvable.
JITTER = 1e-6
#: Swaps after which the matrices are made anew, so that rounding does not pile up.
SWAPS_UNTIL_REFRESH = 50
#: A swap must lower the criterion by this share of the trace of K.
LEAST_GAIN = 1e-10


@dataclass(frozen=True)
class InducingPoints(OverSpace):
    """FRCL's selection (Titsias et al. 2020): points that leave little variance unexplained.

    Inducing points Z with a small T(Z) = Σ_i v_i (k_ii − k_iZ K_ZZ⁻¹ k_Zi), the variance that Z
    leaves unexplained, k being the linear kernel of the space. A random set is refined by random
    local moves: a point of the data is proposed to join, the point whose removal then costs least
    leaves, and the move stands if it lowers T. Proposals come 16 at a time, of which the best is
    taken. Use it for a memory of a model that is linear in its embedding. The set has no order of
    its own: a prefix of it is an arbitrary part. A time limit ends the refinement: all points are
    there, less refined.

    Parameters
    ----------
    over : str, Space or Kernel
        The space whose inner products are k: "embedding", which is FRCL's, "features",
        "gradients", "predictions", a Space or a Kernel.
    proposals : int, optional
        How many points are proposed to join in all; 0 leaves the random set.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[5.0, 0.0], [4.9, 0.1], [0.0, 5.0], [0.1, 0.0], [0.0, 0.1]])
    >>> sorted(InducingPoints("features").select(Dataset(x), 2).indices.tolist())
    [0, 2]
    """

    over: Any = "embedding"
    proposals: int = 1000

    ordered = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proposals < 0:
            raise InputError(
                f"proposals={self.proposals} is below 0; give the number of points proposed to "
                "join."
            )

    @property
    def name(self) -> str:
        return f"frcl over {self._space.name}"

    def _grow(self, job: Job, growth: Growth) -> None:
        rng = np.random.default_rng(job.seed)
        fixed = len(growth.order)
        growth.take_all(rng.permutation(len(job.data)))
        if not self.proposals:
            return
        growth.details["proposals"] = 0
        try:
            operator = self._space.operator(job)
            inducing = Inducing(operator, job.weights, list(growth.order), fixed)
            self._refine(inducing, growth, rng)
        except TimeOver:
            growth.end(
                Status.LESS_REFINED,
                f"stopped by max_seconds after {growth.details['proposals']} of {self.proposals} "
                "proposals: all points, less refined",
            )

    def _refine(self, inducing: Inducing, growth: Growth, rng: np.random.Generator) -> None:
        for made in range(0, self.proposals, PROPOSED_AT_ONCE):
            open_places = np.flatnonzero(growth.open)
            if not len(open_places):
                break
            growth.details["proposals"] = made
            checkpoint()
            count = min(PROPOSED_AT_ONCE, self.proposals - made, len(open_places))
            swap = inducing.best_swap(rng.choice(open_places, count, replace=False))
            if swap is not None:
                leaving, joining = swap
                inducing.swap(leaving, joining)
                growth.open[growth.order[leaving]] = True
                growth.open[joining] = False
                growth.order[leaving] = joining
        else:
            made = self.proposals
        growth.details["proposals"] = made


class Inducing:
    """A set Z with Q = K_ZZ⁻¹, B = K_ZX D K_XZ and what they explain, tr(QB).

    D holds the data's weights. Adding c to Z raises tr(QB) by γ/s with u = Q k_Zc,
    s = k_cc − k_cZ u, γ = β − 2bᵀu + uᵀBu, b = K_ZX D k_Xc, β = k_cX D k_Xc. Removing i lowers it
    by (QBQ)_ii/Q_ii; both matrices of the set with c follow from those of Z by rank-one terms. Q is
    ``inverse``, B ``moment``, QBQ ``sandwich``, K_XZ ``cross``; the first ``fixed`` of Z stay.
    """

    def __init__(
        self, operator: KernelOperator, weights: Tensor, places: list[int], fixed: int
    ) -> None:
        self.operator = operator
        self.weights = weights.double()
        self.fixed = fixed
        self.diagonal = operator.diagonal().double()
        self.jitter = JITTER * max(float(self.diagonal.mean()), torch.finfo(torch.float64).tiny)
        self.trace = float(self.weights @ self.diagonal)
        self.swaps = 0
        self.places = torch.tensor(places, device=self.weights.device)
        self.cross = operator.columns(self.places).double()
        self.moment = summed_over_rows(self.cross, self.cross, self.weights)
        self._refresh()

    def _refresh(self) -> None:
        """Q and QBQ from K_ZZ and B."""
        gram = self.cross[self.places]
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        lower, failed = torch.linalg.cholesky_ex((gram + gram.T) / 2 + self.jitter * identity)
        while int(failed):  # rounding of the kernel's own precision
            self.jitter *= 10
            lower, failed = torch.linalg.cholesky_ex((gram + gram.T) / 2 + self.jitter * identity)
        self.inverse = torch.cholesky_inverse(lower)
        self.sandwich = self.inverse @ self.moment @ self.inverse

    def criterion(self) -> float:
        """T(Z)."""
        return self.trace - float((self.inverse * self.moment).sum())

    def best_swap(self, proposed: Array) -> tuple[int, int] | None:
        """The number in Z that leaves and the place that joins, of the move that lowers T most.

        None where no move lowers it. All numbers in Z (rows) are judged with all points proposed
        (columns) at once.
        """
        candidates = torch.from_numpy(proposed).to(self.places.device)
        columns = self.operator.columns(candidates).double()
        weighted = self.weights[:, None] * columns
        own = columns[self.places]
        b = self.cross.T @ weighted
        beta = (columns * weighted).sum(0)
        u = self.inverse @ own
        image = self.moment @ u
        s = (self.diagonal[candidates] + self.jitter - (own * u).sum(0)).clamp_min(self.jitter)
        gamma = (beta - 2 * (b * u).sum(0) + (u * image).sum(0)).clamp_min(0)
        numerator = (
            self.sandwich.diagonal()[:, None]
            - 2 * u * (self.inverse @ (b - image)) / s
            + u.square() * gamma / s.square()
        )
        losses = numerator / (self.inverse.diagonal()[:, None] + u.square() / s)
        losses[: self.fixed] = torch.inf
        gains = gamma / s - losses
        leaving, which = divmod(int(gains.argmax()), len(proposed))
        if float(gains[leaving, which]) > LEAST_GAIN * self.trace:
            return leaving, int(proposed[which])
        return None

    def swap(self, leaving: int, joining: int) -> None:
        """Put ``joining`` in the place of number ``leaving``."""
        index = torch.tensor([joining], device=self.places.device)
        column = self.operator.columns(index).double()[:, 0]
        own = column[self.places]
        b = self.cross.T @ (self.weights * column)
        beta = float((self.weights * column) @ column)
        self.places[leaving] = joining
        self.cross[:, leaving] = column
        row = b.clone()
        row[leaving] = beta
        old_moment = self.moment.clone()
        self.moment[leaving] = row
        self.moment[:, leaving] = row
        self.swaps += 1
        if self.swaps % SWAPS_UNTIL_REFRESH:
            self._exchange(leaving, own, float(self.diagonal[joining]), old_moment, b, beta)
        else:
            self._refresh()

    def _exchange(
        self, leaving: int, own: Tensor, variance: float, moment: Tensor, b: Tensor, beta: float
    ) -> None:
        """Q and QBQ by rank-one terms: Z with the new point at the end, then without the old one.

        The new point takes the old one's place. ``moment`` is B of the old Z.
        """
        u = self.inverse @ own
        s = max(variance + self.jitter - float(own @ u), self.jitter)
        image = moment @ u
        gamma = beta - 2 * float(b @ u) + float(u @ image)
        a = torch.cat([-u, u.new_ones(1)])
        p = torch.cat([self.inverse @ (b - image), u.new_zeros(1)])
        inverse = F.pad(self.inverse, (0, 1, 0, 1)) + torch.outer(a, a) / s
        sandwich = F.pad(self.sandwich, (0, 1, 0, 1))
        sandwich += (torch.outer(p, a) + torch.outer(a, p)) / s + torch.outer(a, a) * (gamma / s**2)
        e = inverse[:, leaving] / inverse[leaving, leaving]
        g = sandwich[:, leaving].clone()
        sandwich += torch.outer(e, e) * g[leaving] - torch.outer(e, g) - torch.outer(g, e)
        inverse -= torch.outer(e, e) * inverse[leaving, leaving]
        order = torch.arange(len(u), device=u.device)
        order[leaving] = len(u)
        self.inverse = inverse[order][:, order]
        self.sandwich = sandwich[order][:, order]
