"""Baselines that leave little variance unexplained: V-design, A-design and inducing points.

The model is Bayesian and linear in the features of any kernel. With the prior f ~ GP(0, k), noise
σ² and the points of S observed, the posterior covariance is K' = K − K[:, S](K_SS + σ²I)⁻¹K[S, :].

    V-design  G(S) = ½ Σ_i v_i K'_ii, over the data (the paper's Bayesian V-objective; Σ v = 1)
    A-design  G(S) = ½ tr Cov(θ | S), over the parameters of a feature map

Adding point k lowers G by Σ_i v_i K'_ik² / (2(σ² + K'_kk)) exactly. R = G(∅) − G(S) is monotone and
weakly submodular with γ = 1/(1 + max k(x, x)/σ²), so that greedy selection reaches at least
1 − e^−γ of the best decrease of that size.

The relaxed design minimises G(w) = ½σ² tr(M F(w)⁻¹), F(w) = ΦᵀWΦ + σ²I, over 0 ≤ w ≤ 1 and Σw ≤ m.
G is convex, and −∂G/∂w_k = ½σ² φ_kᵀF⁻¹MF⁻¹φ_k ≥ 0, so that the best vertex s for a gradient is the
m points with the largest. At every w the Frank–Wolfe gap ⟨∇G(w), w − s⟩ bounds G(w) − min G, and
min G is a lower bound for every choice of m points.

A prior θ ~ N(0, I/λ) of precision λ has the kernel k/λ: all objectives above with the noise λσ²,
divided by λ. Without a prior (λ = 0, the frequentist design) G(S) = ½σ² tr(M (Φ_SᵀΦ_S)⁻¹), which is
infinite until Φ_S has full rank; until then points are chosen by a nearly flat prior.

Weights may be optimised over w ≥ 0, Σw ≤ m. Matching pursuit adds the point with the largest
−∂G/∂w_k and optimises all weights of the points so far; Frank–Wolfe moves 2/(t + 2) of the way to
that point. On the open cone G has no minimum: more of every point is always better.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import argmin_by_id
from bicore.bilevel.engines.ridge import allowed_rounding, check_variance, posterior_of
from bicore.bilevel.greedy import Outcome, unrefined_outcome
from bicore.bilevel.verification import TOLERANCE, suggest_fix
from bicore.coreset import Status
from bicore.data import Array
from bicore.errors import (
    InputError,
    MemoryLimitError,
    NumericalError,
    check_integer,
    check_name,
    check_number,
)
from bicore.kernels.base import Kernel
from bicore.kernels.operators import Features, Gram, KernelOperator, split_rows
from bicore.kernels.scaling import check_diagonal
from bicore.methods.baselines.base import Job, OverSpace, PartialSelection, Space
from bicore.numerics.descent import cap_weights, spectral_length, step_lengths, suffices
from bicore.numerics.linear_algebra import (
    cholesky_factor,
    jittered_cholesky,
    tall_product,
    transposed_product,
)
from bicore.runtime.clock import TimeOver, checkpoint

#: Default σ², as a share of the mean prior variance of a point.
NOISE_SHARE = 0.1
#: Seconds for the eigenvectors of a matrix on one core, per cube of its rows.
EIGENVECTORS = 4e-10
#: Directions with a prior variance below this share of the largest are dropped.
RANK_TOLERANCE = 1e-10
#: Relative gap at which the relaxed problem is solved, and the largest number of steps.
GAP, STEPS = 1e-3, 500
#: K'DK' is computed afresh once its largest diagonal entry has lost these digits to differences.
DIGITS_LOST = 1e-4
#: Relative gap at which pursuit ends.
PURSUIT_GAP = 1e-6
#: Precision of the prior by which a frequentist design begins, as a share of the mean of φ².
FLAT_PRIOR = 1e-6
#: How weights of a design are found.
WEIGHTINGS = ("uniform", "pursuit", "frank-wolfe")
#: Trial lengths of a step, each half as long as the one before.
ATTEMPTS = 34
#: Factor for the next step if the objective shows no curvature.
LENGTHENING = 10
#: Proposals scored at once; at most one of them is taken before the next are drawn.
PROPOSED_AT_ONCE = 16
#: Added to the diagonal of K_ZZ, relative to the mean of K's diagonal, so that more points than
#: dimensions stay solvable.
JITTER = 1e-6
#: A swap must lower the criterion by this share of the trace of K.
LEAST_GAIN = 1e-10


@dataclass(frozen=True)
class _Design(OverSpace):
    """Greedy steps, noise and certificate of V- and A-design."""

    noise: float | str = "auto"
    certify: bool = False
    precision: float = 1.0
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "auto":
            check_number("noise", self.noise, above=0, fix="or 'auto'")
        check_number("precision", self.precision, least=0)
        check_name("weighting", self.weighting, WEIGHTINGS)
        if not self.precision and (self.certify or self.weighting != "uniform"):
            raise InputError(
                f"certify={self.certify} and weighting={self.weighting!r} need precision > 0; with "
                "precision=0 use certify=False and weighting='uniform'."
            )

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        train = self._prior(job)
        check_diagonal(train, job.data.x)
        model = _Model(train, *self._outer(train, job), self._noise(train))
        if not self.precision:
            return _grow_frequentist(model, job, selection)
        details = selection.details
        try:
            if self.weighting == "uniform":
                self._grow_binary(model, job, selection)
            else:
                _run_pursuit(model, job, selection, self.weighting == "pursuit")
        finally:  # also after an interrupt
            selection.objectives = [one / self.precision for one in selection.objectives]
            for name in {"lower_bound", "relaxed_objective", "noise", "path"} & set(details):
                details[name] = np.divide(details[name], self.precision).tolist()

    def _grow_binary(self, model: _Model, job: Job, selection: PartialSelection) -> None:
        state = Variances(model, max(job.size, 1))
        _grow_by_gains(state, selection)
        objective, selection.unverified = model.verify(selection.order, state.objective)
        selection.objectives[-1:] = [objective] * bool(selection.objectives)
        # γ, and the guaranteed share of the best decrease
        ratio = 1 / (1 + float(model.train.diagonal().double().max()) / model.noise)
        known = {"submodularity_ratio": ratio, "guarantee": 1 - math.exp(-ratio)}
        selection.details |= {"noise": model.noise, **known}
        if self.certify:
            try:
                selection.details |= _lower_bound(model, job, selection, objective)
            except NumericalError as error:
                selection.unverified = "; ".join(filter(None, [selection.unverified, str(error)]))

    def _prior(self, job: Job) -> KernelOperator:
        return self.space.operator(job)

    def _noise(self, train: KernelOperator) -> float:
        """The noise for the prior of precision 1: λσ²; σ² itself without a prior."""
        if self.noise != "auto":
            return float(self.noise) * (self.precision or 1.0)
        if not self.precision:
            return 1.0
        mean = float(train.diagonal().double().mean())
        if not mean > 0:
            raise InputError("noise='auto' needs rows of prior variance > 0; give noise.")
        return NOISE_SHARE * mean

    @abstractmethod
    def _outer(self, train: KernelOperator, job: Job) -> tuple[KernelOperator, Tensor]:
        """Return where the variance is measured, and the weight of each place."""


@dataclass(frozen=True)
class VDesign(_Design):
    """Bayesian V-design: points that leave the least mean variance of the predictions.

    Greedily, by its exact gain, the point that lowers G(S) = ½ Σ_i v_i K'_ii most, the posterior
    variance over the data (the paper's Bayesian V-objective). It needs no labels: use it to choose
    points to label for a model that is linear in the space. ``objectives`` hold G;
    ``info["submodularity_ratio"]`` and ``info["guarantee"]`` bound the share of the best decrease
    that greedy selection reaches. The last objective is computed again in float64; if the two
    differ, because the noise is too small for the precision, the status is ``"unverified"``.

    Parameters
    ----------
    over : str, Space or Kernel
        The prior covariance of the model: "features", "embedding", "gradients", "predictions", a
        Space or a Kernel.
    noise : float or str, optional
        The variance σ² of the noise, or "auto" for a tenth of the mean prior variance.
    certify : bool, optional
        Also solve the relaxed problem over 0 ≤ w ≤ 1, Σw ≤ m: ``info["lower_bound"]`` holds for
        every choice of that size, ``info["relaxed_weights"]`` has a weight for every row. The cost
        is cubic in the number of features (or of points).
    precision : float, optional
        The precision λ of the prior θ ~ N(0, I/λ) of the parameters. 0 for the frequentist design,
        without a prior: it needs at least as many points as features, objectives are infinite
        before, and σ² is 1 by default.
    weighting : str, optional
        "uniform" for weights of 1, chosen by exact gains. "pursuit" (fully corrective matching
        pursuit, the paper's algorithm 1) and "frank-wolfe" optimise weights ≥ 0 of sum ``size`` by
        gradients: ``info["path"]`` holds G after every step, ``info["lower_bound"]`` bounds the
        least G of such weights.

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

    rule_name = "V-design"

    def _outer(self, train: KernelOperator, job: Job) -> tuple[KernelOperator, Tensor]:
        return train, (job.weights / job.weights.sum()).to(train.like)


@dataclass(frozen=True)
class ADesign(_Design):
    """Bayesian A-design: points that leave the least variance of the parameters.

    Greedily, by its exact gain, the point that lowers G(S) = ½ tr Cov(θ | S) most. The parameters
    are those of the feature map, or of the square root of the matrix for a kernel without one. Use
    it if the parameters themselves are of interest, and ``VDesign`` for predictions.
    ``objectives`` and ``info`` are as for :class:`VDesign`.

    Parameters
    ----------
    over : str, Space or Kernel
        The prior covariance of the model: "features", "embedding", "predictions", a Space or a
        Kernel.
    noise : float or str, optional
        The variance σ² of the noise, or "auto" for a tenth of the mean prior variance.
    certify : bool, optional
        Also solve the relaxed problem over 0 ≤ w ≤ 1, Σw ≤ m, as for :class:`VDesign`.
    precision : float, optional
        The precision of the prior, 0 for none, as for :class:`VDesign`.
    weighting : str, optional
        "uniform", "pursuit" or "frank-wolfe", as for :class:`VDesign`.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 2.0]])
    >>> ADesign(noise=0.1).select(Dataset(x), 2).indices.tolist()
    [3, 0]
    """

    rule_name = "A-design"

    def _prior(self, job: Job) -> KernelOperator:
        # In float64: all directions count equally, also those that float32 would round away.
        runtime = replace(job.context.runtime, dtype="float64")
        return super()._prior(replace(job, context=replace(job.context, runtime=runtime)))

    def _outer(self, train: KernelOperator, job: Job) -> tuple[KernelOperator, Tensor]:
        parameters = parameter_operator(train)
        return parameters, parameters.like.new_ones(parameters.shape[0])


def _grow_by_gains(state: Variances | _Information, selection: PartialSelection) -> None:
    """Take the point with the largest gain until there are enough, after the given ones."""
    for place in selection.order:
        state.add(place)
        selection.objectives.append(state.objective)
    while selection.needs_more():
        place = selection.best(state.gains().cpu().numpy())
        state.add(place)
        selection.take(place, state.objective)


@dataclass(frozen=True, eq=False)
class _Model:
    """A prior: covariances of the points, those of the outer set with them, weights v, noise σ²."""

    train: KernelOperator
    outer: KernelOperator
    weights: Tensor
    noise: float

    @property
    def prior_variances(self) -> Tensor:
        """k(o, o) over the outer set, in float64: of the points, or 1 for each parameter."""
        if self.outer is self.train:
            return self.train.diagonal().double()
        return torch.ones(self.outer.shape[0], dtype=torch.float64, device=self.weights.device)

    def features_and_moment(self) -> tuple[Tensor, Tensor]:
        """Return Φ and M: Σ v φφᵀ over the points, or the identity over the parameters."""
        features = square_root(self.train)
        if self.outer is not self.train:
            return features, torch.eye(features.shape[1]).to(features)
        return features, transposed_product(features, features, self.weights.double())

    def verify(self, points: Sequence[int], reported: float) -> tuple[float, str]:
        """Compute the objective again in float64; return it with a note if they differ."""
        try:
            value = self.remaining_variance(points)
        except NumericalError as error:
            return reported, f"objective: not verified, computing it again failed ({error})"
        share = TOLERANCE[self.train.like.dtype]
        if abs(reported - value) <= share * value:
            return reported, ""
        return value, (
            f"objective: {value:.9g} computed again in float64; the selection computed "
            f"{reported:.9g}, which differs by more than {share:g} of it; "
            f"{suggest_fix(self.train, 'noise')}"
        )

    def remaining_variance(self, points: Sequence[int]) -> float:
        """Return G(S) = ½ Σ_i v_i K'_ii, with few differences of nearly equal numbers."""
        index = torch.tensor(list(points), dtype=torch.long, device=self.train.like.device)
        own, other = self.train.feature_rows, self.outer.feature_rows
        weights, prior = self.weights.double(), self.prior_variances
        if own is not None and other is not None:
            rows = own[1][index].double()
            if rows.shape[1] <= len(rows):  # (I + ΦᵀΦ/σ²)⁻¹ directly, without differences
                lower = _factor(rows.T @ rows / self.noise, 1.0)
                variances = torch.cat([_squared_norms(lower, b.T) for b in split_rows(other[0])])
                return 0.5 * float(weights @ variances)
            lower = _factor(rows @ rows.T, self.noise)
            prior = torch.cat([block.square().sum(1) for block in split_rows(other[0])])
            known = [_squared_norms(lower, rows @ block.T) for block in split_rows(other[0])]
        else:
            columns = self.outer.columns(index)
            square = columns if self.outer is self.train else self.train.columns(index)
            lower = _factor(square[index].double(), self.noise)
            known = [_squared_norms(lower, block.T) for block in split_rows(columns)]
        return 0.5 * float(weights @ (prior - torch.cat(known)))


class Variances:
    """Posterior variances given the chosen points, by rank-one updates in float64.

    (K'DK')_kk is a square of variances: as a difference it has lost all digits when K' has lost
    half of them. So the objective falls by sums of squares, and the diagonal is renewed.
    """

    def __init__(self, model: _Model, capacity: int) -> None:
        self.noise = model.noise
        self.posterior = posterior_of(model.train, model.outer, model.weights, capacity)
        self.variance = model.train.diagonal().double().clone()
        self.power = model.outer.weighted_column_norms(model.weights).double()
        self.largest_power = float(self.power.max())  # when it was last computed from K'
        self.objective = 0.5 * float(model.weights.double() @ model.prior_variances)
        largest = float(self.variance.max())
        self.allowed = allowed_rounding(model.train.like.dtype, largest, self.noise)

    def gains(self) -> Tensor:
        """Return the decrease of the objective for every point that might be added."""
        return self.power / (2 * (self.noise + self.variance))

    def add(self, place: int) -> None:
        """Observe a point."""
        index = torch.tensor([place], device=self.variance.device)
        divisor = self.variance[place] + self.noise
        rows = self.posterior.rows_and_images(index)
        step = self.posterior.join(rows, divisor.sqrt().view(1, 1))
        self.objective -= 0.5 * float(step.spread)
        step.update_diagonals(self.variance, self.power)
        check_variance(float(self.variance.min()), self.allowed)
        self.variance.clamp_min_(0)
        if float(self.power.max()) < DIGITS_LOST * self.largest_power:
            self.power = self.posterior.energies()
            self.largest_power = float(self.power.max())


def parameter_operator(train: KernelOperator) -> KernelOperator:
    """Return the covariance of the model's parameters (rows) with its values at the points."""
    if train.feature_rows is None:
        return Gram(square_root(train).T.contiguous())
    columns = train.feature_rows[1]
    return Features(torch.eye(columns.shape[1]).to(train.like), columns)


def square_root(train: KernelOperator) -> Tensor:
    """Return Φ (n × rank) with K = ΦΦᵀ."""
    if train.feature_rows is not None:
        return train.feature_rows[1].double()
    matrix = train.matrix
    if matrix is None:
        raise MemoryLimitError(
            f"this design needs the {train.shape[0]} × {train.shape[1]} matrix, which does not fit "
            "the memory limit; raise Runtime(memory=…), or use a kernel with features (Nyström)."
        )
    # This call cannot be interrupted, so it is not begun if it would exceed the time limit.
    checkpoint(needs=EIGENVECTORS * len(matrix) ** 3)
    values, vectors = torch.linalg.eigh(matrix.double())
    kept = values > RANK_TOLERANCE * values.max()
    root: Tensor = vectors[:, kept] * values[kept].sqrt()
    return root


def _factor(matrix: Tensor, diagonal: float) -> Tensor:
    """Return the Cholesky factor with a number added to the diagonal."""
    matrix = matrix.clone()
    matrix.diagonal().add_(diagonal)
    return cholesky_factor(matrix, "noise")


def _squared_norms(lower: Tensor, columns: Tensor) -> Tensor:
    """Return ‖L⁻¹c‖² of every column c."""
    halves: Tensor = torch.linalg.solve_triangular(lower, columns, upper=False)
    return halves.square().sum(0)


def _lower_bound(
    model: _Model, job: Job, selection: PartialSelection, objective: float
) -> dict[str, Any]:
    """Return a lower bound for every choice of this size, and the relaxed weights of all rows."""
    relaxed = relax(*model.features_and_moment(), model.noise, len(selection.order))
    if not relaxed.bound <= objective + TOLERANCE[model.train.like.dtype] * objective:
        raise NumericalError(
            f"certify: the lower bound {relaxed.bound:.9g} is above the objective "
            f"{objective:.9g}, so it was left out; {suggest_fix(model.train, 'noise')}"
        )
    every = np.zeros(job.total)
    every[job.rows] = relaxed.weights.cpu().numpy()
    return {
        "lower_bound": relaxed.bound,
        "relaxed_objective": relaxed.objective,
        "gap": _gap(objective, relaxed.bound),
        "relaxed_weights": every.tolist(),
    }


def _gap(objective: float, bound: float) -> float:
    """Return by which share the objective is above the bound, at least 0."""
    if objective <= bound:
        return 0.0
    return objective / bound - 1 if bound > 0 else math.inf


class Relaxed(NamedTuple):
    """Weights, their objective and a lower bound of the best."""

    weights: Tensor
    objective: float
    bound: float


def relax(
    features: Tensor,
    moment: Tensor,
    noise: float,
    size: int,
    tolerance: float = GAP,
    start: Tensor | None = None,
) -> Relaxed:
    """Run spectral projected gradients until the certified gap is closed; start: equal weights."""
    count = min(size, len(features))
    weights = features.new_full((len(features),), count / len(features)) if start is None else start
    objective, gradient = relaxed_objective(features, moment, noise, weights)
    steepest = float(gradient.abs().max())
    length = 1 / steepest if steepest else 1.0
    bound = 0.0
    for _ in range(STEPS):
        best = gradient.topk(count, largest=False).values.sum()
        bound = max(bound, objective - float(gradient @ weights - best))
        if objective - bound <= tolerance * objective:
            break
        direction = cap_weights(weights - length * gradient, count) - weights
        slope = float(gradient @ direction)
        for share in step_lengths(1.0, ATTEMPTS):
            moved = (weights + share * direction).clamp(0, 1)
            tried, fresh = relaxed_objective(features, moment, noise, moved)
            if suffices(tried, objective, share * slope):
                break
        length = spectral_length(moved - weights, fresh - gradient, LENGTHENING * length)
        weights, objective, gradient = moved, tried, fresh
    return Relaxed(weights, objective, bound)


def relaxed_objective(
    features: Tensor, moment: Tensor, noise: float, weights: Tensor
) -> tuple[float, Tensor]:
    """Return G(w) and its gradient."""
    matrix = transposed_product(features, features, weights) / noise
    matrix.diagonal().add_(1)
    inverse = torch.cholesky_inverse(cholesky_factor(matrix, "noise"))
    gradient = -0.5 / noise * (tall_product(features, inverse @ moment @ inverse) * features).sum(1)
    return 0.5 * float((inverse * moment).sum()), gradient


def _run_pursuit(model: _Model, job: Job, selection: PartialSelection, corrective: bool) -> None:
    """Grow weights with Σw ≤ m along the steepest coordinates.

    ``corrective`` optimises all weights after every step. The budget m is part of the features, so
    that weights are shares of it.
    """
    (features, moment), noise = model.features_and_moment(), model.noise
    scaled = features * math.sqrt(job.size)
    shares = features.new_zeros(len(features))
    shares[selection.order] = 1 / job.size
    objective, gradient = relaxed_objective(scaled, moment, noise, shares)
    path, bound = [objective] * len(selection.order), 0.0
    selection.objectives = list(path)
    for step in range(1, job.size + 1):
        place = argmin_by_id(gradient.cpu().numpy(), job.data.ids)
        gap = float(gradient @ shares - gradient[place])
        bound = max(bound, objective - gap)
        if (gap <= PURSUIT_GAP * objective and selection.order) or not selection.needs_more():
            break
        moved = 2 / (step + 2) if len(selection.order) else 1.0
        shares = shares * (1 - moved)
        shares[place] += moved
        fresh = bool(selection.open[place])
        support = torch.tensor(selection.order + [place] * fresh, device=shares.device)
        if corrective:
            found = relax(scaled[support], moment, noise, 1, PURSUIT_GAP, start=shares[support])
            shares[support] = found.weights
        objective, gradient = relaxed_objective(scaled, moment, noise, shares)
        path.append(objective)
        selection.weights = job.size * shares[support].cpu().numpy()
        if fresh:
            selection.take(place, objective)  # may be interrupted
        else:
            selection.objectives[-1] = objective
    if len(selection.order) < job.size and selection.outcome.status is Status.COMPLETE:
        words = f"{len(selection.order)} of {job.size} rows: no other row would get a weight > 0"
        selection.outcome = Outcome(Status.FEWER, words)
    selection.details |= {"noise": noise, "lower_bound": bound, "path": path}


def _grow_frequentist(model: _Model, job: Job, selection: PartialSelection) -> None:
    """Grow by G(S) = ½σ² tr(M (Φ_SᵀΦ_S)⁻¹), after points that span all features."""
    features, moment = model.features_and_moment()
    state = _Information(features, moment, model.noise)
    if job.size < features.shape[1]:
        raise InputError(
            f"size={job.size} leaves the information matrix of {features.shape[1]} features "
            "singular; ask for at least as many rows, or give a precision > 0."
        )
    _grow_by_gains(state, selection)
    if math.isinf(state.objective) and len(selection.order) == job.size:
        raise InputError(
            f"the information matrix of {job.size} rows in {features.shape[1]} features is "
            "singular; drop columns that depend on others, or give a precision > 0."
        )
    selection.details |= {"noise": model.noise}


class _Information:
    """Φ_SᵀΦ_S of a growing set and its inverse, with a nearly flat prior until it has one."""

    def __init__(self, features: Tensor, moment: Tensor, noise: float) -> None:
        self.features, self.moment, self.noise = features, moment, noise
        self.prior = FLAT_PRIOR * float(features.square().mean()) or 1.0
        self.inverse = torch.eye(features.shape[1]).to(features) / self.prior
        self.places: list[int] = []
        self.objective = math.inf

    def gains(self) -> Tensor:
        """Compute the decrease of the objective by each point."""
        own = (self.features @ self.inverse * self.features).sum(1)
        image = self.features @ (self.inverse @ self.moment @ self.inverse)
        return self.noise / 2 * (image * self.features).sum(1) / (1 + own)

    def add(self, place: int) -> None:
        """Observe a point."""
        self.places.append(place)
        rows = self.features[self.places]
        matrix = rows.T @ rows
        regular = math.isfinite(self.objective)
        if not regular and len(rows) >= len(matrix):
            rank = torch.linalg.matrix_rank(matrix, rtol=RANK_TOLERANCE, hermitian=True)
            regular = int(rank) == len(matrix)
        matrix.diagonal().add_(0.0 if regular else self.prior)
        self.inverse = torch.cholesky_inverse(cholesky_factor(matrix, "precision"))
        if regular:
            self.objective = self.noise / 2 * float((self.inverse * self.moment).sum())


@dataclass(frozen=True)
class InducingPoints(OverSpace):
    """FRCL's selection (Titsias et al. 2020): points that leave little variance unexplained.

    Inducing points Z with a small T(Z) = Σ_i v_i (k_ii − k_iZ K_ZZ⁻¹ k_Zi), where k is the linear
    kernel of the space. A random set is refined by swaps: a random point is proposed, the point
    whose removal then costs least leaves, and the swap is kept if it lowers T. Proposals come 16 at
    a time, of which the best is taken. Use it for the memory of a model that is linear in its
    embedding. The set has no order: a prefix is an arbitrary part. A time limit ends the refinement
    early.

    Parameters
    ----------
    over : str, Space or Kernel
        The space of k: "embedding", as in FRCL, "features", "gradients", "predictions", a Space or
        a Kernel.
    proposals : int, optional
        Number of proposed rows; 0 returns the random set.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[5.0, 0.0], [4.9, 0.1], [0.0, 5.0], [0.1, 0.0], [0.0, 0.1]])
    >>> sorted(InducingPoints("features").select(Dataset(x), 2).indices.tolist())
    [0, 2]
    """

    over: str | Kernel | Space = "embedding"
    proposals: int = 1000

    rule_name = "frcl"
    all_pairs = False
    ordered = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("proposals", self.proposals, 0)

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        rng = np.random.default_rng(job.seed)
        fixed = len(selection.order)
        selection.take_all(rng.permutation(len(job.data)))
        if not self.proposals:
            return
        made = 0
        try:
            inducing = Inducing(self.space.operator(job), job.weights, selection.order, fixed)
            while made < self.proposals and selection.open.any():
                checkpoint()
                count = min(PROPOSED_AT_ONCE, self.proposals - made)
                places = np.flatnonzero(selection.open)
                proposed = rng.choice(places, min(count, len(places)), replace=False)
                swap = inducing.best_swap(proposed)
                if swap is not None:
                    inducing.swap(*swap)
                    selection.exchange(*swap)
                made += count
        except TimeOver:
            when = f"after {made} of {self.proposals} proposals: complete, not refined"
            selection.outcome = unrefined_outcome(when)
        finally:
            selection.details["proposals"] = made


class Inducing:
    """A set Z with Q = K_ZZ⁻¹, B = K_ZX D K_XZ and the explained variance tr(QB).

    D holds the data's weights. Adding c to Z raises tr(QB) by γ/s with u = Q k_Zc,
    s = k_cc − k_cZ u, γ = β − 2bᵀu + uᵀBu, b = K_ZX D k_Xc, β = k_cX D k_Xc. Removing i lowers it
    by (QBQ)_ii/Q_ii; both matrices of the set with c follow from those of Z by rank-one terms. Q is
    ``inverse``, B ``moment``, K_XZ ``cross``; the first ``fixed`` of Z stay.
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
        self.places = torch.tensor(places, device=self.weights.device)
        self.cross = operator.columns(self.places).double()
        self.moment = transposed_product(self.cross, self.cross, self.weights)
        self._refresh()

    def _refresh(self) -> None:
        """Compute Q and the diagonal of QBQ from K_ZZ and B.

        Rank-one updates lose every digit within 50 swaps if there are more points than features.
        """
        gram = self.cross[self.places]
        lower, self.jitter = jittered_cholesky((gram + gram.T) / 2, self.jitter)
        self.inverse = torch.cholesky_inverse(lower)
        self.diagonal_of_sandwich = (self.inverse @ self.moment * self.inverse).sum(1)

    def best_swap(self, proposed: Array) -> tuple[int, int] | None:
        """Return the number in Z that leaves and the place that joins, for the best swap.

        None if no swap lowers T. All numbers in Z (rows) are compared with all proposed points
        (columns) at once.
        """
        points = torch.from_numpy(proposed).to(self.places.device)
        columns = self.operator.columns(points).double()
        weighted = self.weights[:, None] * columns
        own = columns[self.places]
        b = self.cross.T @ weighted
        u = self.inverse @ own
        image = self.moment @ u
        s = (self.diagonal[points] + self.jitter - (own * u).sum(0)).clamp_min(self.jitter)
        gamma = ((columns * weighted).sum(0) - 2 * (b * u).sum(0) + (u * image).sum(0)).clamp_min(0)
        numerator = (
            self.diagonal_of_sandwich[:, None]
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
        """Replace number ``leaving`` by the point ``joining``."""
        self.places[leaving] = joining
        column = self.operator.columns(self.places[leaving : leaving + 1]).double()[:, 0]
        self.cross[:, leaving] = column
        row = self.cross.T @ (self.weights * column)
        self.moment[leaving] = row
        self.moment[:, leaving] = row
        self._refresh()
