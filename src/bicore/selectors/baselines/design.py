"""Selection without labels by experimental design: points that leave the least variance.

The model is Bayesian and linear in the features of any kernel. With the prior f ~ GP(0, k), noise
σ² and the points of S observed, K' = K − K[:, S](K_SS + σ²I)⁻¹K[S, :] is what stays unknown.

    V-design  G(S) = ½ Σ_i v_i K'_ii, over the data (the paper's Bayesian V-objective; Σ v = 1)
    A-design  G(S) = ½ tr Cov(θ | S), over the parameters of a feature map

Adding point k lowers G by Σ_i v_i K'_ik² / (2(σ² + K'_kk)) exactly. R = G(∅) − G(S) is monotone and
weakly submodular with γ = 1/(1 + max k(x, x)/σ²), so that greedy selection reaches at least
1 − e^−γ of the best decrease of that size.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.posterior import check_variance, posterior_of, rounding_allowed
from bicore.bilevel.verification import TOLERANCE, suggest_fix
from bicore.errors import InputError, MemoryLimitError, NumericalError
from bicore.kernels.operators import Features, Gram, KernelOperator
from bicore.numerics.linear_algebra import summed_over_rows
from bicore.picking import lowest
from bicore.runtime import checkpoint
from bicore.selectors.baselines.base import Growth, Job
from bicore.selectors.baselines.cover import OverSpace
from bicore.selectors.baselines.relaxation import relax
from bicore.selectors.baselines.remaining_variance import verify_variance

#: σ² where none is given, as a share of the mean prior variance of a point.
NOISE_SHARE = 0.1
#: Seconds that the eigenvectors of a matrix take on one core, for each cube of its rows.
EIGENVECTORS = 4e-10
#: Directions whose prior variance is below this share of the largest are no parameters.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True)
class _Design(OverSpace):
    """What V- and A-design share: the greedy steps, the noise and the certificate."""

    noise: float | str = "auto"
    certify: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise == "auto":
            return
        if not (isinstance(self.noise, (int, float)) and 0 < self.noise < math.inf):
            raise InputError(
                f"noise={self.noise!r} is no variance; give a number above 0, or 'auto'."
            )

    def _grow(self, job: Job, growth: Growth) -> None:
        train = self._prior(job)
        noise = self._noise(train)
        outer, weights = self._outer(train, job)
        state = Variances(train, outer, weights, noise, max(job.size, 1))
        for place in growth.order:
            state.add(place)
            growth.objectives.append(state.objective)
        while growth.wants():
            scores = np.where(growth.open, -state.gains().cpu().numpy(), np.inf)
            place = lowest(scores, job.data.ids)
            state.add(place)
            growth.take(place, state.objective)
        prior = prior_variances(outer, train)
        objective, growth.unverified = verify_variance(
            train, outer, prior, weights, noise, growth.order, state.objective
        )
        growth.objectives[-1:] = [objective] * bool(growth.objectives)
        growth.details |= {"noise": noise, **guarantee(train, noise)}
        if self.certify:
            self._bound(job, growth, train, weights if outer is train else None, noise, objective)

    def _bound(
        self,
        job: Job,
        growth: Growth,
        train: KernelOperator,
        weights: Tensor | None,
        noise: float,
        objective: float,
    ) -> None:
        """Add a lower bound of every choice of this size; a note if none could be computed."""
        try:
            known, relaxed = _lower_bound(train, weights, noise, len(growth.order), objective)
        except NumericalError as error:
            growth.unverified = f"{growth.unverified}; {error}" if growth.unverified else str(error)
            return
        every = np.zeros(job.total)
        every[job.rows] = relaxed.cpu().numpy()
        growth.details |= known | {"relaxed_weights": every.tolist()}

    def _prior(self, job: Job) -> KernelOperator:
        return self._space.operator(job)

    def _noise(self, train: KernelOperator) -> float:
        if self.noise != "auto":
            return float(self.noise)
        mean = float(train.diagonal().double().mean())
        if not mean > 0:
            raise InputError(
                "every point has prior variance zero, and noise='auto' goes by it; give noise, or "
                "other features."
            )
        return NOISE_SHARE * mean

    @abstractmethod
    def _outer(self, train: KernelOperator, job: Job) -> tuple[KernelOperator, Tensor]:
        """Where the variance is to be small, and how much each place counts."""


@dataclass(frozen=True)
class VDesign(_Design):
    """Bayesian V-design: points that leave the least mean variance of the predictions.

    Greedily, by its exact gain, the point that lowers G(S) = ½ Σ_i v_i K'_ii most, the posterior
    variance over the data (the paper's Bayesian V-objective). No labels are looked at: use it to
    choose what is to be labelled for a model that is linear in the space. ``objectives`` hold G;
    ``info["submodularity_ratio"]`` and ``info["guarantee"]`` say what share of the best decrease
    greedy selection is sure to reach. The last objective is computed again in
    float64; if the two differ, because the noise is too small for the precision, the status is
    ``"unverified"``.

    Parameters
    ----------
    over : str, Space or Kernel
        The prior covariance of the model: "features", "embedding", "gradients", "predictions", a
        Space or a Kernel.
    noise : float or str, optional
        The variance σ² of the noise, or "auto" for a tenth of the mean prior variance.
    certify : bool, optional
        Solve the relaxed problem over 0 ≤ w ≤ 1, Σw ≤ m too, and report how far the choice can be
        from the best one: ``info["lower_bound"]`` holds for every choice of that size,
        ``info["relaxed_weights"]`` has a weight for every row. Costs the cube of the number of
        features (or of points).

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 2.0]])
    >>> picked = VDesign(noise=0.1, certify=True).select(Dataset(x), 2)
    >>> picked.indices.tolist()
    [3, 0]
    >>> bool(picked.info["lower_bound"] <= picked.objective)
    True
    """

    @property
    def name(self) -> str:
        return f"V-design over {self._space.name}"

    def _outer(self, train: KernelOperator, job: Job) -> tuple[KernelOperator, Tensor]:
        return train, (job.weights / job.weights.sum()).to(train.like)


@dataclass(frozen=True)
class ADesign(_Design):
    """Bayesian A-design: points that leave the least variance of the parameters.

    Greedily, by its exact gain, the point that lowers G(S) = ½ tr Cov(θ | S) most. The parameters
    are those of the feature map; a kernel without one has those of its matrix's square root. Use it
    where the parameters themselves are of interest, and ``VDesign`` where predictions are.
    ``objectives`` hold G, and ``info`` what it does for :class:`VDesign`.

    Parameters
    ----------
    over : str, Space or Kernel
        The prior covariance of the model: "features", "embedding", "predictions", a Space or a
        Kernel.
    noise : float or str, optional
        The variance σ² of the noise, or "auto" for a tenth of the mean prior variance.
    certify : bool, optional
        Solve the relaxed problem over 0 ≤ w ≤ 1, Σw ≤ m too, and report how far the choice can be
        from the best one, as for :class:`VDesign`.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 2.0]])
    >>> ADesign(noise=0.1).select(Dataset(x), 2).indices.tolist()
    [3, 0]
    """

    @property
    def name(self) -> str:
        return f"A-design over {self._space.name}"

    def _prior(self, job: Job) -> KernelOperator:
        """In float64: every direction counts alike, also those float32 takes for rounding."""
        runtime = replace(job.context.runtime, dtype="float64")
        return super()._prior(replace(job, context=replace(job.context, runtime=runtime)))

    def _outer(self, train: KernelOperator, job: Job) -> tuple[KernelOperator, Tensor]:
        parameters = parameters_of(train)
        return parameters, parameters.like.new_ones(parameters.shape[0])


class Variances:
    """The variances that the points chosen so far leave, by rank-one updates in float64."""

    def __init__(
        self,
        train: KernelOperator,
        outer: KernelOperator,
        weights: Tensor,
        noise: float,
        capacity: int,
    ) -> None:
        self.noise = noise
        self.weights = weights.double()
        self.posterior = posterior_of(train, outer, weights, capacity)
        self.variance = train.diagonal().double().clone()
        self.power = outer.weighted_column_norms(weights).double()
        self.objective = 0.5 * float(self.weights @ prior_variances(outer, train).double())
        self.allowed = rounding_allowed(train.like.dtype, float(self.variance.max()), noise)

    def gains(self) -> Tensor:
        """By how much the objective falls when a point is added, for every point."""
        return self.power / (2 * (self.noise + self.variance))

    def add(self, place: int) -> None:
        """Observe a point."""
        columns = self.posterior.columns(torch.tensor([place], device=self.variance.device))
        divisor = self.variance[place] + self.noise
        step = self.posterior.join(columns, divisor.sqrt().view(1, 1))
        self.objective -= float(self.power[place] / (2 * divisor))
        step.energy(self.power)
        step.variance(self.variance)
        check_variance(float(self.variance.min()), self.allowed)
        self.variance.clamp_min_(0)


def prior_variances(outer: KernelOperator, train: KernelOperator) -> Tensor:
    """k(o, o) over the outer set: the points themselves, or parameters, of which each has 1."""
    return train.diagonal() if outer is train else train.like.new_ones(outer.shape[0])


def guarantee(train: KernelOperator, noise: float) -> dict[str, float]:
    """The weak-submodularity ratio γ, and the share of the best decrease that greedy is sure of."""
    ratio = 1 / (1 + float(train.diagonal().double().max()) / noise)
    return {"submodularity_ratio": ratio, "guarantee": 1 - math.exp(-ratio)}


@singledispatch
def parameters_of(train: KernelOperator) -> KernelOperator:
    """The covariance of the model's parameters (rows) with its values at the points (columns)."""
    return Gram(square_root(train).T.contiguous())


@parameters_of.register
def _weights_of_features(train: Features) -> KernelOperator:
    identity = torch.eye(train.cols.shape[1]).to(train.like)
    return Features(identity, train.cols)


@singledispatch
def square_root(train: KernelOperator) -> Tensor:
    """Φ (n × rank) with K = ΦΦᵀ."""
    raise MemoryLimitError(
        f"this design needs the {train.shape[0]} × {train.shape[1]} matrix itself, which does not "
        "fit the memory limit; raise Runtime(memory=…), or use a kernel with features (Nyström)."
    )


@square_root.register
def _root_of_features(train: Features) -> Tensor:
    return train.cols.double()


@square_root.register
def _root_of_matrix(train: Gram) -> Tensor:
    # One call that no clock can interrupt: not begun where it would not end in time.
    checkpoint(needs=EIGENVECTORS * len(train.matrix) ** 3)
    values, vectors = torch.linalg.eigh(train.matrix.double())
    kept = values > RANK_TOLERANCE * values.max()
    root: Tensor = vectors[:, kept] * values[kept].sqrt()
    return root


def _lower_bound(
    train: KernelOperator, weights: Tensor | None, noise: float, size: int, objective: float
) -> tuple[dict[str, Any], Tensor]:
    """Return a lower bound of every choice of this size, and the relaxed weights."""
    features = square_root(train)
    relaxed = relax(features, _moment(features, weights), noise, size)
    if not relaxed.bound <= objective + TOLERANCE[train.like.dtype] * objective:
        raise NumericalError(
            f"certify: the lower bound {relaxed.bound:.9g} is above the objective "
            f"{objective:.9g}, so it was left out; {suggest_fix(train, 'noise')}"
        )
    known = {
        "lower_bound": relaxed.bound,
        "relaxed_objective": relaxed.objective,
        "gap": _gap(objective, relaxed.bound),
    }
    return known, relaxed.weights


def _gap(objective: float, bound: float) -> float:
    """How far above the bound, as a share of it; rounding takes it no lower than none."""
    if objective <= bound:
        return 0.0
    return objective / bound - 1 if bound > 0 else math.inf


def _moment(features: Tensor, weights: Tensor | None) -> Tensor:
    """ΦᵀDΦ over the points; the identity where each parameter counts by itself."""
    if weights is None:
        return torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    return summed_over_rows(features, features, weights.double())
