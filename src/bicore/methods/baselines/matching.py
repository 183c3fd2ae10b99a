"""Baselines that match the mean or the sum of the data: herding and gradient matching.

With the target L = Σ_i v_i g_i and S the chosen points, orthogonal matching pursuit and Frank–Wolfe
need ⟨L, g_i⟩ for all i and the columns ⟨g_i, g_k⟩ of the points they use. The error
‖L − Σ w_k g_k‖² follows from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import argmin_by_id
from bicore.data import Array
from bicore.errors import NumericalError, check_name
from bicore.kernels.base import Kernel
from bicore.kernels.operators import KernelOperator
from bicore.methods.baselines.base import Job, OverSpace, PartialSelection, PerClassRule, Space
from bicore.numerics.linear_algebra import jittered_cholesky

#: Correlations below this share of ‖L‖·‖g_i‖ (for a step, of ‖L‖²) are rounding.
NEGLIGIBLE = 1e-10
#: Points may be used repeatedly or leave; a search ends after this many steps per requested point.
STEPS_A_POINT = 50
#: Added to the diagonal of normal equations, relative to it, against dependent points.
JITTER = 1e-12


@dataclass(frozen=True)
class Herding(PerClassRule):
    """Herding as in iCaRL (Rebuffi et al. 2017, algorithm 4): exemplars with the mean of a class.

    The k-th exemplar of a class is the point x that brings the mean of the exemplars nearest the
    mean μ of the class: it minimises ‖μ − (φ(x) + Σ_{j<k} φ(p_j))/k‖. Classes take turns, so that
    every prefix is balanced; averages are not scaled to length 1 again. Use it for the memory of a
    nearest-mean classifier.

    Parameters
    ----------
    over : str, Space or Kernel
        The space φ: "embedding", as in iCaRL, "features", "gradients", "predictions", a Space or a
        Kernel.
    per_class : bool or str, optional
        True herds every class towards its own mean, in turns; False all points towards the mean of
        all. "proportional" or "balanced" runs the rule within each class, with as many points as
        its share of the rows, or the same number for each; targets are divided into quantiles.
    normalise : bool, optional
        Scale points to length 1 first.

    Examples
    --------
    >>> from bicore import Dataset
    >>> herding = Herding("features", per_class=False, normalise=False)
    >>> herding.select(Dataset([[0.0], [1.0], [5.0]]), 2).indices.tolist()
    [1, 2]
    """

    over: str | Kernel | Space = "embedding"
    per_class: bool | str = True
    normalise: bool = True

    rule_name = "herding"
    knows_classes = True

    def _apply(self, job: Job, selection: PartialSelection) -> None:
        codes = job.classes().values if self.per_class is True else _one_group(job)
        # Only differences from a mean matter, unless points are rescaled.
        operator = self.space.operator(job, self.normalise, centre=not self.normalise)
        herd(operator, codes, job.weights, selection)


@dataclass(frozen=True)
class GradientMatching(OverSpace):
    """A Hilbert coreset (Campbell and Broderick 2019): points whose gradients sum to the data's.

    It minimises ‖Σ_i v_i g_i − Σ_{k in S} w_k g_k‖ in the space ``over``, all classes together.
    Training steps on the coreset are then close to those on all data.

    Parameters
    ----------
    over : str, Space or Kernel
        The space of the g_i: "gradients" of the last layer, "embedding", "features", "predictions",
        a Space or a Kernel.
    weighting : str, optional
        How the weights w_k are found. "equal": all are 1, by herding towards the mean gradient (the
        paper's baseline; its code also scaled gradients to length 1: ``normalise=True``).
        "pursuit": orthogonal matching pursuit, which fits all weights >= 0 again after every point
        (GRAD-MATCH). "frank-wolfe": steps with exact line search on {w >= 0, Σ w_i‖g_i‖ =
        Σ v_i‖g_i‖}. With the last two, weights sum to about n (use ``normalise()``) and
        ``objectives`` hold ‖difference‖²/‖Σ v_i g_i‖².
    normalise : bool, optional
        Scale gradients to length 1 first.

    Examples
    --------
    >>> from bicore import Dataset
    >>> data = Dataset(np.repeat(np.eye(2), [3, 5], axis=0))
    >>> picked = GradientMatching("features", weighting="pursuit").select(data, 2)
    >>> picked.indices.tolist(), picked.weights.round(6).tolist()
    ([3, 0], [5.0, 3.0])
    """

    over: str | Kernel | Space = "gradients"
    weighting: str = "equal"
    normalise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("weighting", self.weighting, ("equal", *WEIGHTINGS))

    @property
    def name(self) -> str:
        how = "" if self.weighting == "equal" else f", {self.weighting}"
        return f"gradient matching over {self.space.name}{how}"

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        operator = self.space.operator(job, self.normalise)
        if self.weighting == "equal":
            herd(operator, _one_group(job), job.weights, selection)
        else:
            WEIGHTINGS[self.weighting](operator, job.weights, job.size + 1).run(selection)


def _one_group(job: Job) -> Array:
    return np.zeros(len(job.data), dtype=np.int64)


def herd(
    operator: KernelOperator, codes: Array, weights: Tensor, selection: PartialSelection
) -> None:
    """Take points, the groups in turns, each bringing the mean chosen nearest the group's mean."""
    index = torch.from_numpy(codes).to(weights.device)
    totals = weights.new_zeros(int(codes.max()) + 1).index_add_(0, index, weights)
    shares = weights.new_zeros(len(codes), len(totals))
    # Initial points of weight zero may form a group of weight zero, which has no mean.
    shares.scatter_(1, index[:, None], (weights / totals[index].clamp_min(1e-300))[:, None])
    means = operator.transposed_matmul(shares.to(operator.like))
    # ⟨φ(x), μ⟩ for every point and the weighted mean μ of its own group
    towards_mean = means.gather(1, index[:, None])[:, 0].double().cpu().numpy()
    squares = operator.diagonal().double().cpu().numpy()
    towards_chosen = np.zeros(len(codes))  # ⟨φ(x), Σ_j φ(p_j)⟩, p_j chosen of the group of x
    counts = np.zeros(len(totals), dtype=np.int64)

    def add(place: int) -> None:
        own = codes == codes[place]
        towards_chosen[own] += _column(operator, place)[own]
        counts[codes[place]] += 1

    for place in selection.order:
        add(place)
    while selection.needs_more():
        left = np.unique(codes[selection.open])
        group = left[np.argmin(counts[left])]
        places = np.flatnonzero(selection.open & (codes == group))
        k = counts[group] + 1
        # ‖μ − (φ(x) + Σ_j φ(p_j))/k‖² without the terms that are the same for every x
        scores = (2 * towards_chosen[places] + squares[places]) / k**2
        scores = scores - 2 * towards_mean[places] / k
        place = int(places[argmin_by_id(scores, places)])
        add(place)
        selection.take(place)


def _column(operator: KernelOperator, place: int) -> Array:
    """Return the inner products of all points with one of them."""
    index = torch.tensor([place], device=operator.like.device)
    return np.asarray(operator.columns(index)[:, 0].double().cpu().numpy())


class _Match(ABC):
    """The target, the points used so far and their weights."""

    def __init__(self, operator: KernelOperator, weights: Tensor, capacity: int) -> None:
        self.operator = operator
        total = operator.transposed_matmul(weights.to(operator.like)[:, None])[:, 0].double()
        self.toward = total.cpu().numpy()
        self.square = float(weights.double() @ total)
        self.norms = operator.diagonal().double().clamp_min(0).sqrt().cpu().numpy()
        if self.square <= 0 or not self.norms.any():
            raise NumericalError("the rows sum to zero in this space: there is nothing to match.")
        self.sigma = float(weights.double().cpu().numpy() @ self.norms)
        self._columns = np.empty((capacity, len(self.toward)))
        self.places: list[int] = []
        self.numbers: dict[int, int] = {}
        self.learned = np.empty(0)

    def run(self, selection: PartialSelection) -> None:
        """Grow until the size is reached, no point lowers the error, or the steps are used up."""
        try:
            self._begin(selection)
            for _ in range(STEPS_A_POINT * selection.size):
                if not selection.needs_more() or not self._step(selection):
                    break
        finally:
            selection.order = [place for place in selection.order if place in self.numbers]
            selection.weights = self.learned[[self.numbers[place] for place in selection.order]]

    @abstractmethod
    def _begin(self, selection: PartialSelection) -> None:
        """Give weights to the initial points."""

    @abstractmethod
    def _step(self, selection: PartialSelection) -> bool:
        """Lower the error by one step, which may take a point; False if no step does."""

    @property
    def columns(self) -> Array:
        """⟨g_k, g_i⟩, a row for each point k used."""
        return self._columns[: len(self.places)]

    def add(self, place: int) -> int:
        """Return the number of a point among those used; its column is computed once."""
        if place not in self.numbers:
            if len(self.places) == len(self._columns):
                self._columns = np.concatenate([self._columns, np.empty_like(self._columns)])
            self._columns[len(self.places)] = _column(self.operator, place)
            self.numbers[place] = len(self.places)
            self.places.append(place)
            self.learned = np.append(self.learned, 0.0)
        return self.numbers[place]

    def error(self) -> float:
        """Return ‖L − Σ w_k g_k‖²/‖L‖²."""
        own = self.columns[:, self.places]
        towards = 2 * self.learned @ self.toward[self.places]
        missing = float(self.square - towards + self.learned @ own @ self.learned)
        return max(missing, 0.0) / max(self.square, np.finfo(float).tiny)

    def best(self, among: Array) -> tuple[int, float]:
        """Return the point with the largest ⟨L − Σ w_k g_k, g_i⟩/‖g_i‖, and that value."""
        missing = self.toward - self.learned @ self.columns
        usable = among & (self.norms > 0)
        scores = np.divide(missing, self.norms, out=np.full_like(missing, -np.inf), where=usable)
        place = argmin_by_id(-scores, np.arange(len(scores)))
        return place, float(scores[place])


class _OrthogonalPursuit(_Match):
    """Take the point that correlates most with the difference, then fit all weights >= 0 again.

    A point whose weight is zero leaves.
    """

    def _begin(self, selection: PartialSelection) -> None:
        for place in selection.order:
            self.add(place)
        self._fit(selection.order)

    def _step(self, selection: PartialSelection) -> bool:
        if not (selection.open & (self.norms > 0)).any():
            return False
        best, correlation = self.best(selection.open)
        if correlation <= NEGLIGIBLE * self.square**0.5:
            return False
        self.add(best)
        self._fit([*selection.order, best])
        selection.take(best)
        selection.order = [p for p in selection.order if self.learned[self.numbers[p]] > 0]
        before = selection.objectives[: max(len(selection.order) - 1, 0)]
        selection.objectives = [*before, self.error()]
        return True

    def _fit(self, support: list[int]) -> None:
        numbers = [self.numbers[place] for place in support]
        self.learned = np.zeros_like(self.learned)
        if support:
            gram = self.columns[np.ix_(numbers, support)]
            self.learned[numbers] = fit_nonnegative(gram, self.toward[support])


def fit_nonnegative(gram: Array, right: Array) -> Array:
    """Minimise ½wᵀGw − rᵀw over w >= 0."""
    from scipy.linalg import solve_triangular  # loaded only when needed
    from scipy.optimize import nnls

    jitter = JITTER * max(float(gram.diagonal().mean()), 1e-300)
    lower = jittered_cholesky(torch.from_numpy(gram), jitter)[0].numpy()
    half = solve_triangular(lower, right, lower=True)
    free = solve_triangular(lower.T, half)
    return np.asarray(free if (free > 0).all() else nnls(lower.T, half)[0])


class _FrankWolfe(_Match):
    """Move towards the vertex (σ/σ_k) g_k that correlates most with the difference.

    σ_i = ‖g_i‖ and σ = Σ v_i σ_i.
    """

    def _begin(self, selection: PartialSelection) -> None:
        selection.order = [place for place in selection.order if self.norms[place] > 0]
        for place in selection.order:
            self._move(place)

    def _step(self, selection: PartialSelection) -> bool:
        among = selection.open.copy()
        among[selection.order] = True
        best, _ = self.best(among)
        if not self._move(best):
            return False
        if selection.open[best]:
            selection.take(best, self.error())
        else:
            selection.objectives[-1:] = [self.error()]
        return True

    def _move(self, place: int) -> bool:
        """Move to (1 − γ)w + γ(σ/σ_k)e_k with the best γ in 0 … 1; False if none is better."""
        number = self.add(place)
        vertex = np.zeros_like(self.learned)
        vertex[number] = self.sigma / max(self.norms[place], np.finfo(float).tiny)
        if len(self.places) == 1:
            self.learned = vertex
            return True
        direction = vertex - self.learned
        gram = self.columns[:, self.places]
        slope = float(direction @ (self.toward[self.places] - gram @ self.learned))
        curvature = float(direction @ gram @ direction)
        if slope <= NEGLIGIBLE * self.square or curvature <= 0:
            return False
        self.learned = self.learned + min(slope / curvature, 1.0) * direction
        return True


#: How the weights of gradient matching are found.
WEIGHTINGS: dict[str, type[_Match]] = {"pursuit": _OrthogonalPursuit, "frank-wolfe": _FrankWolfe}
