"""Targets of the outer objective: the labels as given, or smoothed by the other points.

The leave-one-out prediction of a point has less noise than its label. ``Smoothed`` uses the mean of
both as the target, so that noise in the labels counts less. It excludes points whose label
contradicts that prediction, if small subsets without such points predict held-out points better.
For regression this is not sufficient: a few points with extreme targets minimise the objective, and
other models trained on them are poor. The coreset therefore predicts the leading components of the
inputs as well, which requires points from all regions.

1. Draw at most ``REFERENCE`` points by id.
2. One eigendecomposition of their kernel matrix gives ridge regression for every ρ of a grid of
   powers of ten, with exact leave-one-out predictions. Use the ρ with the smallest error.
3. Predict the other points with that model. The leading eigenvectors are the components.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.problem import Problem
from bicore.bilevel.regularisation import EXPONENTS, predict_from_subsets
from bicore.data import Array, Targets
from bicore.errors import InputError
from bicore.kernels.operators import KernelOperator, multiply_columns, square_block
from bicore.losses import encode_targets

#: Number of reference points; the decomposition has cubic cost.
REFERENCE = 600
#: Number of components of the inputs, and the minimum number of reference points per component.
COMPONENTS, POINTS_A_COMPONENT = 50, 4
#: Eigenvalues below this share of the largest are rounding.
CUTOFF = 1e-10
#: A label is contradicted if the prediction of another class is larger by this. Correct labels of
#: hard points have smaller differences: on MNIST, 2% of clean and 90% of wrong labels are
#: contradicted.
CONTRADICTION = 0.3
#: If a larger share of a class is contradicted, the proxy does not recognise the class, and all of
#: its points stay candidates.
MOST_CONTRADICTED = 0.5
#: Size and number of the subsets (per half) compared with and without contradicted points, and the
#: minimum size.
SUBSET, SUBSETS, FEWEST = 50, 10, 2
#: Minimum share of contradicted labels for a note.
LEAST_NOTED = 0.01


@dataclass(frozen=True, eq=False)
class Retargeted:
    """A problem with other targets, and the points whose label contradicts the leave-one-out
    prediction."""

    problem: Problem
    contradicted: Array
    notes: tuple[str, ...] = ()


class OuterTargets(ABC):
    """Targets of the outer objective."""

    name: ClassVar[str]
    #: Whether it is to be replaced when the data are known.
    unset: ClassVar[bool] = False
    #: Whether the labels are used as given, which every loss allows.
    plain: ClassVar[bool] = False

    @abstractmethod
    def apply(self, problem: Problem, targets: Targets, eligible: Array, seed: int) -> Retargeted:
        """Return the problem with these targets."""

    def outputs(self, outputs: int, regression: bool) -> int:
        """Return the number of outputs of a row, for the memory estimate."""
        return outputs


@dataclass(frozen=True)
class Given(OuterTargets):
    """The labels and targets as given: the objective of the paper, for any loss."""

    name = "given"
    plain = True

    def apply(self, problem: Problem, targets: Targets, eligible: Array, seed: int) -> Retargeted:
        return Retargeted(problem, np.zeros(problem.size, dtype=bool))


@dataclass(frozen=True)
class UnsetTargets(Given):
    """A placeholder, replaced when the data are known; until then the labels as given."""

    name = "auto"
    unset = True


@dataclass(frozen=True)
class Smoothed(OuterTargets):
    """The mean of a label and its leave-one-out prediction, for the squared error.

    A separate outer set keeps its labels by default.
    """

    share: float = 0.5
    inputs: float | None = None
    doubt: bool = True
    smooth_outer: bool = False

    name = "smoothed"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError(
                f"share must be between 0 and 1 (0.5 is the mean of both); got {self.share!r}."
            )
        if self.inputs is not None and not 0 <= self.inputs < np.inf:
            raise InputError(
                f"inputs must be a number >= 0 (0 leaves them out); got {self.inputs!r}."
            )

    def outputs(self, outputs: int, regression: bool) -> int:
        return outputs + (COMPONENTS if self._weight(regression) else 0)

    def _weight(self, regression: bool) -> float:
        return float(regression) if self.inputs is None else self.inputs

    def apply(self, problem: Problem, targets: Targets, eligible: Array, seed: int) -> Retargeted:
        none = np.zeros(problem.size, dtype=bool)
        if len(eligible) < 2:
            return Retargeted(problem, none)
        reference = _Reference(problem, eligible, seed)
        predictions = reference.predictions()
        inner = problem.inner_targets
        outer = problem.outer_targets
        if problem.same and self.share > 0:
            outer = torch.lerp(inner.double(), predictions, self.share).to(inner)
        elif self.smooth_outer and self.share > 0:
            others = reference.predict(problem.cross)
            outer = torch.lerp(outer.double(), others, self.share).to(outer)
        components = self._weight(targets.classes is None)
        if components:
            inner, outer = reference.append_components(problem, inner, outer, components)
        changed = replace(problem, inner_targets=inner, outer_targets=outer, outputs=inner.shape[1])
        if not self.doubt or targets.classes is None:
            return Retargeted(changed, none)
        mean = (encode_targets(targets, problem.inner_targets) - problem.inner_targets)[:1].double()
        contradicted = none.copy()
        contradicted[eligible] = find_contradicted(
            (predictions + mean)[eligible], targets.values[eligible]
        )
        if not contradicted.any():
            return Retargeted(changed, none)
        helps = reference.exclusion_helps(mean, targets.values, seed)
        notes = _explain_contradicted(int(contradicted.sum()), len(eligible), helps)
        return Retargeted(changed, contradicted if helps else none, notes)


def find_contradicted(shares: Tensor, codes: Array) -> Array:
    """Mark the points whose label clearly contradicts the leave-one-out prediction.

    If most of a class is contradicted, the model does not recognise it, and none is marked.
    """
    found = shares.cpu().numpy()
    contradicted: Array = found.max(1) - found[np.arange(len(found)), codes] > CONTRADICTION
    for code in np.unique(codes):
        if contradicted[codes == code].mean() > MOST_CONTRADICTED:
            contradicted[codes == code] = False
    return contradicted


def _explain_contradicted(found: int, count: int, helps: bool) -> tuple[str, ...]:
    if found < LEAST_NOTED * count:
        return ()
    decision = (
        "they are excluded, because that improves the prediction of held-out rows (to keep them: "
        "smooth_labels=False)"
        if helps
        else "they stay candidates, because excluding them does not improve the prediction of "
        "held-out rows"
    )
    share = f"{found} of {count} ({found / count:.1%})"
    return (f"labels: {share} contradict the other rows; {decision}",)


class _Reference:
    """Kernel ridge regression on reference points, by the eigenvectors of their matrix."""

    def __init__(self, problem: Problem, eligible: Array, seed: int) -> None:
        drawn = eligible
        if len(eligible) > REFERENCE:
            rng = np.random.default_rng((seed, REFERENCE))
            drawn = rng.choice(eligible, REFERENCE, replace=False)
        self.operator = problem.train
        points = np.sort(drawn)
        self.points = torch.from_numpy(points).to(self.operator.like.device)
        #: Places of the points in the order of drawing, which does not depend on the order of rows.
        self.places = np.searchsorted(points, drawn)
        square = square_block(self.operator, self.points)
        self.square = (square + square.T) / 2
        values, self.vectors = torch.linalg.eigh(self.square)
        self.values = values.clamp_min(0)
        scale = float(square.diagonal().mean()) or 1.0
        self.grid = [scale * 10.0**exponent for exponent in EXPONENTS]
        self.targets = problem.inner_targets[self.points].double()
        self._fit()

    def predictions(self) -> Tensor:
        """Predict every training point from the other points; reference points by leave-one-out."""
        found = self.predict(self.operator)
        found[self.points] = self.targets - self.errors
        return found

    def predict(self, operator: KernelOperator) -> Tensor:
        """Predict the targets of other points."""
        return multiply_columns(operator, self.points, self.alpha) + self.mean

    def exclusion_helps(self, mean: Tensor, codes: Array, seed: int) -> bool:
        """Return whether small subsets predict held-out points better without contradicted points.

        Subsets of one half of the points predict the other half. Adding ``mean`` turns centred
        values into shares of the classes.
        """
        rng = np.random.default_rng((seed, SUBSET))
        drawn = self.places[rng.permutation(len(self.places))]
        own, labels = self.targets, codes[self.points.cpu().numpy()]
        totals = torch.zeros(2, len(EXPONENTS), dtype=own.dtype, device=own.device)
        for half, rest in ((drawn[::2], drawn[1::2]), (drawn[1::2], drawn[::2])):
            contradicted = find_contradicted(
                self._leave_one_out(half, own, self.rho) + mean, labels[half]
            )
            orders = [rng.permutation(len(half)) for _ in range(SUBSETS)]
            size = min(SUBSET, int((~contradicted).sum()) // 2)
            if size < FEWEST:
                return False
            subsets = [half[order[:size]] for order in orders]
            without = [half[order[~contradicted[order]][:size]] for order in orders]
            for place, some in enumerate((subsets, without)):
                totals[place] += self._held_out_errors(np.stack(some), rest, own)
        every, clean = totals.amin(1).tolist()
        return bool(clean < every)

    def _leave_one_out(self, half: Array, own: Tensor, rho: float) -> Tensor:
        """Predict each point of a half from its other points."""
        places = torch.from_numpy(half).to(self.points)
        square = self.square[places][:, places]
        square.diagonal().add_(rho)
        inverse: Tensor = torch.linalg.inv(square)
        values = own[places]
        alpha = inverse @ (values - values.mean(0))
        return values - alpha / inverse.diagonal()[:, None]

    def _held_out_errors(self, subsets: Array, rest: Array, own: Tensor) -> Tensor:
        """Squared errors on the rest by ridge regressions on subsets, for each ρ of the grid."""
        chosen, others = (torch.from_numpy(one).to(self.points) for one in (subsets, rest))
        squares = self.square[chosen[:, :, None], chosen[:, None, :]]
        crosses = self.square[chosen[:, :, None], others[None, None]]
        level = own[chosen].mean(1, keepdim=True)
        values, wanted = own[chosen] - level, own[others] - level
        found = [predict_from_subsets(squares, crosses, values, rho) for rho in self.grid]
        return torch.stack([(one - wanted).square().sum() for one in found])

    def _fit(self) -> None:
        """Fit with the best ρ of the grid, by leave-one-out errors."""
        self.mean = self.targets.mean(0)
        turned = self.vectors.T @ (self.targets - self.mean)
        damped = 1 / (self.values[:, None] + self.values.new_tensor(self.grid))
        alphas = self.vectors @ (damped[:, :, None] * turned[:, None]).flatten(1)
        alphas = alphas.view(*damped.shape, -1)
        errors = alphas / (self.vectors.square() @ damped)[:, :, None]
        totals = errors.square().sum((0, 2)).tolist()
        best = totals.index(min(totals))
        self.alpha, self.errors, self.rho = alphas[:, best], errors[:, best], self.grid[best]

    def append_components(
        self, problem: Problem, inner: Tensor, outer: Tensor, weight: float
    ) -> tuple[Tensor, Tensor]:
        """Return the targets with the leading components of the inputs."""
        count = min(COMPONENTS, len(self.points) // POINTS_A_COMPONENT)
        count = min(count, int((self.values > CUTOFF * self.values[-1]).sum()))
        if not count:
            return inner, outer
        axes = self.vectors[:, -count:] / self.values[-count:].sqrt()
        own = multiply_columns(problem.train, self.points, axes)
        mean = own[self.points].mean(0)
        own -= mean
        spread = inner[self.points].double().square().sum() / own[self.points].square().sum()
        factor = weight * float(spread.sqrt())
        if not np.isfinite(factor):
            return inner, outer
        other = own if problem.same else multiply_columns(problem.cross, self.points, axes) - mean
        own, other = (factor * own).to(inner), (factor * other).to(outer)
        return torch.cat([inner, own], 1), torch.cat([outer, other], 1)
