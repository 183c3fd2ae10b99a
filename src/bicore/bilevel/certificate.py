"""Every objective that is reported, computed again: one fit in float64 that shares nothing with the
engine but the numbers of the kernel.

Rank-one updates lose digits where k(x, x)/ρ is large, fits stop where their precision ends, and a
coreset that is worth nothing can then come with a fine number. So the points and weights that are
handed out are fitted once more from nothing, from m columns of the kernel matrix. The numbers of
the kernel are rounded themselves, and more where it takes differences of nearly equal points; what
that may do to the objective is seen by changing the last digits of the points and fitting again.
Both differences together stay within the stated tolerance, or it is an error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.prepare import Prepared
from bicore.bilevel.problem import Problem, finite_objective
from bicore.bilevel.solvers.inner import LBFGS, InnerProblem, InnerSolver, Newton, Ridge
from bicore.bilevel.solvers.linear import Adaptive
from bicore.data import Array, as_tensor
from bicore.errors import NumericalError
from bicore.kernels.base import Kernel
from bicore.kernels.operators import BLOCK_BYTES, KernelOperator, parts
from bicore.runtime import unhurried

#: A reported objective is right to this share of itself, by the precision of the kernel …
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
#: … or of this share of the objective of no points, where it is smaller: a fit that leaves less has
#: nothing left to explain, and what is left of it is a difference of equal numbers.
FLOOR = 1e-3
#: By how many roundings of the kernel's precision the numbers it is made from are taken to be off.
ROUNDINGS = 4
#: How often the fit is repeated with other last digits, and how many times the root of the mean
#: square of what changes is taken for what rounding may do.
DRAWS = 3
SAFETY = 3
#: The relative residual that an iterative refit is asked for; a hundred times as much still serves.
RESIDUAL = 1e-10
#: That of the linear system of one step more.
STEP_RESIDUAL = 1e-3


def certified(
    prepared: Prepared,
    points: Sequence[int] | Array,
    weights: Sequence[float] | Array,
    reported: float,
) -> None:
    """Compute the objective of these points again; an error where it is not what was reported.

    What a solver gave that stops where it likes (:func:`promised`) stands: no other fit is its own.
    """
    if not promised(prepared.solvers.inner):
        return
    train = prepared.problem.train
    with unhurried():  # whatever is handed out is checked, also when the time is over
        refit = Refit(prepared, points, weights)
        difference = abs(reported - refit.objective)
        # Where they differ by too much there is nothing left to see.
        uncertain = refit.uncertainty(difference) if refit.allows(difference) else 0.0
    if not refit.allows(difference + uncertain):
        raise NumericalError(
            f"the objective of {refit.size} points came out as {reported:.9g}; fitted again in "
            f"float64 they have {refit.objective:.9g}, give or take {uncertain:.2g} by the "
            f"rounding of a {precision(train)} kernel whose k(x, x)/ρ is up to "
            f"{refit.ratio:.2g}. They must agree to {refit.tolerance:.2g}; "
            f"{mend(train, 'inner_reg')}."
        )


def promised(solver: InnerSolver) -> bool:
    """Whether a solver fits the inner problem as well as the precision allows, or raises.

    A lenient one, one with a tolerance of its own and one from elsewhere promise less.
    """
    if isinstance(solver, Newton):
        return solver.tolerance is None
    return isinstance(solver, Ridge) or (isinstance(solver, LBFGS) and not solver.lenient)


def precision(operator: KernelOperator) -> str:
    """The dtype of a kernel matrix in a word."""
    return str(operator.like.dtype).removeprefix("torch.")


def mend(operator: KernelOperator, regulariser: str) -> str:
    """What to do about a kernel matrix whose rounding is too much."""
    first = "" if precision(operator) == "float64" else "float64, "
    return f"use {first}a larger {regulariser}, or scale x"


def rounding_of(operator: KernelOperator) -> float:
    """The share of themselves by which the numbers of a kernel matrix may be off."""
    return ROUNDINGS * torch.finfo(operator.like.dtype).eps


def spread_of(values: Sequence[float], expected: float) -> float:
    """How far a value that depends on last digits may be from the one expected."""
    squares = sum((value - expected) ** 2 for value in values)
    return SAFETY * math.sqrt(squares / len(values))


class Draws:
    """Other last digits: numbers off, by chance, by a share of themselves."""

    def __init__(self, relative: float, like: Tensor) -> None:
        self.relative = relative
        self._generator = torch.Generator(like.device).manual_seed(0)

    def normal(self, like: Tensor) -> Tensor:
        """Normal numbers in the shape of others."""
        return torch.randn(
            like.shape, generator=self._generator, dtype=like.dtype, device=like.device
        )

    def rows(self, rows: Tensor) -> Tensor:
        """The same rows, each number off by itself."""
        return rows * (1 + self.relative * self.normal(rows))

    def square(self, square: Tensor) -> Tensor:
        """The same symmetric matrix; entries are rounded beside √(k_ii k_jj), being sums of terms
        of both signs."""
        root = square.diagonal().clamp_min(0).sqrt()
        noise = self.normal(square)
        return square + self.relative / math.sqrt(2) * (noise + noise.T) * root[:, None] * root


class Refit:
    """The fit of given points from nothing, in float64, and the outer objective of it."""

    def __init__(
        self, prepared: Prepared, points: Sequence[int] | Array, weights: Sequence[float] | Array
    ) -> None:
        problem = self.problem = prepared.problem
        every = np.asarray(weights, dtype=np.float64)
        counted = every > 0  # the others are no part of any fit, and ρ does not count them
        chosen = np.asarray(points, dtype=np.int64)[counted]
        self.size = len(chosen)
        self.rho = problem.regulariser.rho(self.size)
        self.outer_weights = problem.outer_weights.double()
        self.outer_targets = problem.outer_targets.double()
        self.ratio = 0.0
        if not self.size:
            self.objective = self.empty
            return
        device = problem.train.like.device
        self.heaviest = float(every.max())
        self.weights = torch.from_numpy(every[counted]).to(device)
        self.index = torch.from_numpy(chosen).to(device)
        self.targets = problem.inner_targets[self.index].double()
        self.kernel = _kernel_of(prepared, chosen, self.index)
        self.gram = self.kernel.gram
        self.largest = float(self.gram.diagonal().max())
        self.ratio = self.largest * self.heaviest / self.rho
        self.alpha = self._fitted(self.gram)
        self.predictions = self.kernel.predictions(self.alpha)
        self.objective = self._value(self.predictions)

    @cached_property
    def empty(self) -> float:
        """The objective of no points."""
        shape = (len(self.outer_targets), self.problem.outputs)
        return self._value(self.outer_targets.new_zeros(shape))

    @property
    def tolerance(self) -> float:
        """How far a reported objective may be from this one."""
        return self._share * max(self.objective, FLOOR * self.empty)

    @property
    def _share(self) -> float:
        return TOLERANCE[self.problem.train.like.dtype]

    def allows(self, error: float) -> bool:
        """Whether an error is within the tolerance; most are, without a look at no points."""
        return error <= self._share * self.objective or error <= self.tolerance

    def _value(self, predictions: Tensor) -> float:
        losses = self.problem.outer_loss.value(predictions, self.outer_targets)
        return finite_objective(float(torch.dot(losses, self.outer_weights)))

    def _fitted(self, gram: Tensor) -> Tensor:
        loss = self.problem.inner_loss
        if loss.quadratic:
            matrix = gram.clone()
            matrix.diagonal().add_(self.rho / self.weights)
            return torch.cholesky_solve(self.targets, factor(matrix, "inner_reg"))
        inner = self._inner(gram)
        start = torch.zeros_like(inner.targets)
        alpha = Newton(tolerance=RESIDUAL).solve(inner, start).alpha
        return (alpha + self._step(inner, alpha)).to(gram.device)

    def _inner(self, gram: Tensor) -> InnerProblem:
        """The fit with the host, where small matrices are quicker than on any device."""
        host = [one.cpu() for one in (gram, self.targets, self.weights)]
        return InnerProblem(host[0], host[1], host[2], self.rho, self.problem.inner_loss)

    def _step(self, inner: InnerProblem, alpha: Tensor) -> Tensor:
        """A step of Newton's method: by how much coefficients are off, as far as can be seen."""
        predictions = inner.gram @ alpha
        system = inner.system(predictions)
        residual = inner.residual(alpha, predictions)[0]
        return Adaptive().solve(system, -residual, STEP_RESIDUAL).z

    def _unsolved(self) -> float:
        """What another step would do to the objective: residuals are small beside the data, and
        with them may be all that decides it."""
        if self.problem.inner_loss.quadratic:
            return 0.0
        step = self._step(self._inner(self.gram), self.alpha.cpu()).to(self.alpha.device)
        return abs(self._value(self.kernel.predictions(self.alpha + step)) - self.objective)

    def uncertainty(self, difference: float) -> float:
        """What the rounding of the kernel's numbers may do to the objective: a bound where that is
        enough for what differs already, and what it does where not."""
        if not self.size:
            return 0.0
        draws = Draws(rounding_of(self.problem.train), self.weights)
        first = self.kernel.redrawn(draws)
        unsolved = self._unsolved()
        bound = unsolved + self._bound(first.worst)
        if self.allows(difference + bound):
            return bound
        others = [first, *(self.kernel.redrawn(draws) for _ in range(DRAWS - 1))]
        values = [self._value(self._moved(one, draws)) for one in others]
        return unsolved + spread_of(values, self.objective)

    def _moved(self, other: Redrawn, draws: Draws) -> Tensor:
        """The predictions when the kernel's last digits are others."""
        alpha = self._fitted(other.kernel.gram)
        moved = other.kernel.predictions(alpha)
        moved.addcmul_(other.kernel.spread(alpha), draws.normal(moved), value=other.usual)
        same = self.kernel.same
        moved[same.outer] = (other.kernel.gram @ alpha)[same.points]
        return moved

    def _bound(self, share: float) -> float:
        """More than numbers off by chance by this share of √(k_ii k_jj) do, to first order.

        With A the weighted curvature, δh = δK α − K[:, S](2ρ + A K_SS)⁻¹A δK_SS α, where a row of
        K[:, S](2ρ + A K_SS)⁻¹A has a norm of at most ½ √(k a/2ρ).
        """
        loss = self.problem.inner_loss
        outputs = self.problem.outputs
        steepest = 2 * self.heaviest
        if not loss.quadratic:
            curvature = loss.curvature(self.gram @ self.alpha, self.targets).scaled(self.weights)
            steepest = float(curvature.typical().max()) * outputs  # a trace
        largest = max(self.largest, self.kernel.largest())
        across = 0.5 * math.sqrt(largest * steepest / (2 * self.rho))
        own = math.sqrt(self.largest) * float(torch.linalg.vector_norm(self.alpha))
        shift = SAFETY * share * math.sqrt(largest) * own * (1 + across)
        if self.problem.outer_loss.quadratic:
            slope = 2 * math.sqrt(outputs * self.objective)
        else:
            slopes = self.problem.outer_loss.gradient(self.predictions, self.outer_targets)
            slope = float(torch.mv(slopes.abs().T, self.outer_weights).sum())
        return shift * slope + outputs * shift**2


def factor(matrix: Tensor, regulariser: str) -> Tensor:
    """The Cholesky factor of K_SS with its diagonal raised, or an error in words."""
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise NumericalError(
            "the points chosen cannot be fitted again in float64: their kernel matrix is not "
            f"positive definite with {regulariser} on its diagonal; use a larger {regulariser}, "
            "scale x, or another kernel."
        )
    return lower


def _kernel_of(prepared: Prepared, chosen: Array, index: Tensor) -> _Kernel:
    problem = prepared.problem
    own = problem.train.feature_rows
    other = problem.cross.feature_rows
    if own is not None and other is not None:
        return _Features(Same.themselves(problem, index), other[0], own[1][index].double())
    if prepared.kernel.precomputed:
        return _Columns.of(Same.themselves(problem, index), problem, index, None, None)
    rows = prepared.data.x[chosen]
    every = prepared.data.x if prepared.outer is None else prepared.outer.x
    same = Same.equal(every, rows).on(index.device)
    return _Columns.of(same, problem, index, prepared.kernel, as_tensor(rows))


@dataclass(frozen=True, eq=False)
class Same:
    """Rows of the outer set that are points chosen, or equal to one: no kernel tells them apart,
    but for rounding."""

    outer: Tensor
    points: Tensor
    #: Points that are equal to each other.
    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def themselves(cls, problem: Problem, index: Tensor) -> Same:
        """The points where the outer set has them too."""
        outer = index if problem.same else index[:0]
        return cls(outer, torch.arange(len(outer), device=index.device))

    @classmethod
    def equal(cls, every: Array, rows: Array) -> Same:
        """All that are equal, number by number."""
        places: dict[bytes, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(row.tobytes(), []).append(place)
        # Rows that are equal have equal sums, which are quicker to compare than all their numbers.
        likely = np.flatnonzero(np.isin(_sums(every), _sums(rows)))
        pairs = [
            (int(number), place)
            for number in likely
            for place in places.get(every[number].tobytes(), ())
        ]
        found = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
        twins = [pair for alike in places.values() for pair in combinations(alike, 2)]
        return cls(found[:, 0], found[:, 1], tuple(twins))

    def on(self, device: torch.device) -> Same:
        """The same on a device."""
        return replace(self, outer=self.outer.to(device), points=self.points.to(device))


@dataclass(frozen=True, eq=False)
class Redrawn:
    """A kernel with other last digits, and by which share of √(k_ii k_jj) its numbers moved."""

    kernel: _Kernel
    #: At most, and as a root of the mean of squares.
    worst: float
    usual: float


@dataclass(frozen=True, eq=False)
class _Kernel(ABC):
    """K_SS and K[outer, S] of the points, in float64."""

    same: Same

    @property
    @abstractmethod
    def gram(self) -> Tensor:
        """K_SS."""

    @abstractmethod
    def largest(self) -> float:
        """The largest number between the outer set and the points."""

    @abstractmethod
    def predictions(self, alpha: Tensor) -> Tensor:
        """K[outer, S] α."""

    @abstractmethod
    def spread(self, alpha: Tensor) -> Tensor:
        """How far K[outer, S] α moves when each of the numbers moves, by chance, by its size."""

    @abstractmethod
    def redrawn(self, draws: Draws) -> Redrawn:
        """The same with other last digits of what the points are made from."""


@dataclass(frozen=True, eq=False)
class _Columns(_Kernel):
    """Columns as the operator gives them, a few at a time where they are many."""

    operator: KernelOperator
    index: Tensor
    square: Tensor
    #: All of them, where they are few.
    whole: Tensor | None
    #: What makes the numbers, from which rows; None where they were given.
    kernel: Kernel | None
    rows: Tensor | None

    @classmethod
    def of(
        cls,
        same: Same,
        problem: Problem,
        index: Tensor,
        kernel: Kernel | None,
        rows: Tensor | None,
    ) -> _Columns:
        few = problem.cross.shape[0] * len(index) * 8 <= BLOCK_BYTES
        whole = problem.cross.columns(index).double() if few else None
        held = problem.train.matrix_or_none
        if problem.same and whole is not None:
            square = whole[index]
        elif held is not None:
            square = held[index][:, index].double()
        else:
            pieces = _pieces(problem.train, index)
            square = torch.cat([columns[index] for columns, _ in pieces], 1)
        return cls(same, problem.cross, index, square, whole, kernel, rows)

    @property
    def gram(self) -> Tensor:
        return self.square

    def _blocks(self) -> Iterator[tuple[Tensor, slice]]:
        if self.whole is None:
            yield from _pieces(self.operator, self.index)
        else:
            yield self.whole, slice(None)

    def largest(self) -> float:
        return max(float(columns.abs().max()) for columns, _ in self._blocks())

    def predictions(self, alpha: Tensor) -> Tensor:
        return _added(columns @ alpha[part] for columns, part in self._blocks())

    def spread(self, alpha: Tensor) -> Tensor:
        squares = alpha.square()
        return _added(columns.square() @ squares[part] for columns, part in self._blocks()).sqrt()

    def redrawn(self, draws: Draws) -> Redrawn:
        if self.kernel is None or self.rows is None:
            moved = draws.square(self.square)
            return Redrawn(replace(self, square=moved), draws.relative, draws.relative)
        # In double and then rounded: digits that the precision does not hold are lost once more.
        rows = draws.rows(self.rows.to(self.square)).to(self.operator.like)
        moved = self.kernel.gram(rows).double()
        for i, j in self.same.pairs:
            moved[i, j] = moved[j, i] = (moved[i, i] * moved[j, j]).sqrt()
        root = self.square.diagonal().clamp_min(torch.finfo(moved.dtype).tiny).sqrt()
        shares = (moved - self.square).div_(root[:, None]).div_(root)
        usual = float(torch.linalg.vector_norm(shares)) / len(root)
        worst = max(draws.relative, float(shares.abs().max()), self._of_equal())
        return Redrawn(replace(self, square=moved), worst, max(draws.relative, usual))

    def _of_equal(self) -> float:
        """By which share the kernel has rows that are equal apart from each other."""
        own = self.square.diagonal()
        worst = 0.0
        if len(self.same.outer) <= len(self.index) and not self.same.pairs:
            return worst  # most often: none but the points themselves
        for columns, part in self._blocks():
            here = torch.arange(len(self.index), device=own.device)[part]
            inside = torch.isin(self.same.points, here)
            outer = self.same.outer[inside]
            points = self.same.points[inside]
            if len(points):
                entries = columns[outer, points - here[0]]
                worst = max(worst, float(((entries - own[points]).abs() / own[points]).max()))
        return worst


@dataclass(frozen=True, eq=False)
class _Features(_Kernel):
    """Rows of features: n·p numbers in the place of n·m, and no rounding by multiplying them."""

    outer: Tensor
    rows: Tensor

    @property
    def gram(self) -> Tensor:
        return self.rows @ self.rows.T

    def _blocks(self) -> Iterator[Tensor]:
        return blocks_of(self.outer)

    def largest(self) -> float:
        return max(float(block.square().sum(1).max()) for block in self._blocks())

    def predictions(self, alpha: Tensor) -> Tensor:
        coefficients = self.rows.T @ alpha
        return torch.cat([block @ coefficients for block in self._blocks()])

    def spread(self, alpha: Tensor) -> Tensor:
        squares = (self.rows.T @ alpha).square()
        return torch.cat([block.square() @ squares for block in self._blocks()]).sqrt()

    def redrawn(self, draws: Draws) -> Redrawn:
        moved = replace(self, rows=draws.rows(self.rows))
        return Redrawn(moved, draws.relative, draws.relative)


def _sums(rows: Array) -> Array:
    """Of every row, added up in the same order whatever the layout."""
    height = max(1, BLOCK_BYTES // (8 * max(rows[0].size, 1)))
    parts = (rows[top : top + height] for top in range(0, len(rows), height))
    return np.concatenate([np.ascontiguousarray(one).reshape(len(one), -1).sum(1) for one in parts])


def blocks_of(rows: Tensor) -> Iterator[Tensor]:
    """A matrix in float64, some rows at a time."""
    height = max(1, BLOCK_BYTES // (8 * max(rows.shape[1], 1)))
    return (block.double() for block in torch.split(rows, height))


def _pieces(operator: KernelOperator, index: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """Columns in float64 with their places among the points."""
    first = 0
    for part in parts(index, BLOCK_BYTES // (8 * operator.shape[0])):
        yield operator.columns(part).double(), slice(first, first + len(part))
        first += len(part)


def _added(terms: Iterator[Tensor]) -> Tensor:
    total = next(terms)
    for term in terms:
        total += term
    return total
