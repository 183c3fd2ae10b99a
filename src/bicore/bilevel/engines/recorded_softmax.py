"""Cross-entropy on a GPU without waiting for it: every shape fixed from the start, every decision
taken on the device.

The state of :mod:`bicore.bilevel.engines.implicit` for a softmax, padded to its capacity: a point
that is not chosen yet has weight 0, which leaves its row of every system an identity and its
coefficients zero. A step is then the same list of operations every time, with a fixed number of
Newton and conjugate-gradient iterations, so that it can be recorded once as a CUDA graph and
replayed. How well each fit was solved is written beside it; :meth:`SoftmaxResident.settle` reads
that back and sees where the numbers did not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bicore.bilevel import hypergradient
from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers import inner
from bicore.bilevel.solvers.factors import lower_factor, shifted
from bicore.bilevel.solvers.linear import DeviceIteration
from bicore.bilevel.solvers.preconditioner import BORDER_FLOOR, PRECONDITIONER_FLOOR
from bicore.bilevel.solvers.softmax import ARMIJO
from bicore.kernels.operators import Features, Gram
from bicore.losses import CrossEntropy

#: Newton steps of a fit, iterations of each of its systems, and of the system of the gradient, in a
#: recorded step.
NEWTON = 4
INNER = 12
OUTER = 24
#: They grow by these where they did not suffice, this many times before the general engine takes
#: over.
MORE_NEWTON = 2
MORE_INNER = 4
MORE_OUTER = 16
TRIES = 8
#: Rounds of Newton steps while somebody watches: for the first points, and after a fit that was not
#: solved.
ROUNDS = 20
#: Lengths that a Newton step may have: the first that lowers the objective enough is taken.
LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)


def fits(problem: Problem) -> bool:
    """Whether the problem is a softmax whose operators give columns without a word to the host."""
    stored = all(
        isinstance(operator, (Gram, Features)) for operator in (problem.train, problem.cross)
    )
    softmax = isinstance(problem.inner_loss, CrossEntropy) and isinstance(
        problem.outer_loss, CrossEntropy
    )
    return stored and softmax


class SoftmaxResident:
    """The state of a growing coreset under the cross-entropy, binary weights."""

    def __init__(
        self, problem: Problem, capacity: int, general: Callable[[], ImplicitForward]
    ) -> None:
        like = problem.train.like
        outputs = problem.outputs
        self.problem = problem
        self.capacity = capacity
        self._general = general
        self.same = problem.cross is problem.train
        self.indices: list[int] = []
        #: Whether a fit needed more than the fixed iterations; then :meth:`recover`, or else
        #: :meth:`general`.
        self.stuck = False
        self.newton = NEWTON
        self.inner = INNER
        self.gradient = OUTER
        self.tries = 0
        #: Whether the host watches every fit: for the first points, and after one that was not
        #: solved.
        self.patient = True
        self.count = torch.zeros(1, dtype=torch.long, device=like.device)
        self.index = torch.zeros(capacity, dtype=torch.long, device=like.device)
        self.shifts = like.new_tensor(
            [2 * problem.regulariser.rho(size) for size in range(capacity + 1)]
        )
        self.lengths = like.new_tensor(LENGTHS)
        self.weights = like.new_zeros(capacity, 1)
        self.roots = like.new_ones(capacity, 1)
        self.targets, self.alpha, self.shown = (like.new_zeros(capacity, outputs) for _ in range(3))
        self.gram = like.new_zeros(capacity, capacity)
        self.inverse = like.new_zeros(capacity, capacity)
        self.made = self.shifts[:1].clone()  # the shift of the stored inverse
        self.train = like.new_zeros(capacity, problem.train.shape[1])
        self.outer = self.train if self.same else like.new_zeros(capacity, problem.cross.shape[0])
        self.predictions = like.new_zeros(problem.cross.shape[0], outputs)
        self.objective = problem.outer_value(self.predictions)
        #: For every point its number, the objective, and how far its fit and the scores before it
        #: were from solved.
        self.log = torch.zeros(capacity, 4, dtype=torch.float64, device=like.device)
        self.reached = torch.zeros(1, dtype=torch.float64, device=like.device)

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.alpha.device

    @property
    def on_device(self) -> bool:
        """Whether reading a number back costs a wait."""
        return self.alpha.is_cuda

    def general(self) -> ImplicitForward:
        """The engine without fixed numbers of iterations, with the points settled so far."""
        engine = self._general()
        if self.indices:
            engine.extend(self.indices, [1.0] * len(self.indices))
        return engine

    def recover(self) -> bool:
        """Go back to the points settled so far and allow a step more iterations; False where that
        was done often enough."""
        m = len(self.indices)
        self.stuck = False
        self.tries = self.tries + 1
        if self.tries > TRIES:
            return False
        padded = (
            self.train,
            self.outer,
            self.gram,
            self.gram.T,
            self.weights,
            self.targets,
            self.alpha,
            self.log,
            self.index,
        )
        for values in padded:
            values[m:] = 0
        if not bool(torch.isfinite(self.alpha).all()):
            self.alpha.zero_()
        self.roots[m:] = 1
        self.count.fill_(m)
        self.shown.copy_(self.gram @ self.alpha)
        self._refresh(m)
        self.patient = True
        solved = m == 0 or float(self._fit(self.shifts[m])) <= inner.TOLERANCE[self.alpha.dtype]
        self.predictions.copy_(self.outer.T @ self.alpha)
        return solved

    def add(self, k: int, weight: float = 1.0) -> None:
        """Take point k into the coreset."""
        assert weight == 1.0, "weights are binary here"
        self.advance(torch.tensor([k], device=self.alpha.device))
        self.settle()

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """Take several points, one after the other."""
        for k, weight in zip(points, weights, strict=True):
            self.add(k, weight)

    def scores(self, columns: Tensor | None = None) -> Tensor:
        """∂G/∂w of every training point, as :mod:`bicore.bilevel.hypergradient` has it."""
        problem = self.problem
        shift = self.shifts[self.count]
        pull = problem.cross.transposed_matmul(problem.outer_gradient(self.predictions))
        probabilities = torch.softmax(self.shown, 1)
        right = self._curved(probabilities, pull[self.index])
        z, reached = self._solve(
            right, probabilities, shift, self.gradient * (4 if self.patient else 1)
        )
        self.reached.copy_(reached)
        shown = self.predictions if self.same else self.train.T @ self.alpha
        slopes = problem.inner_loss.gradient(shown, problem.inner_targets)
        values = (torch.addmm(pull, self.train.T, z, alpha=-1) * slopes).sum(1) / -shift
        return values if columns is None else values[columns]

    def first_order(self, columns: Tensor | None = None) -> Tensor:
        raise AssertionError("only the gradient rule is resident")

    def losses(self) -> Tensor:
        raise AssertionError("only the gradient rule is resident")

    def advance(self, k: Tensor) -> None:
        """Take the point whose number the tensor holds and fit again; nothing is read back."""
        place = self.count.clone()
        self.train.index_copy_(0, place, self.problem.train.columns(k).T)
        if not self.same:
            self.outer.index_copy_(0, place, self.problem.cross.columns(k).T)
        self.index.index_copy_(0, place, k)
        self.weights.index_fill_(0, place, 1.0)
        self.targets.index_copy_(0, place, self.problem.inner_targets[k])
        row = self.train.index_select(1, k)
        self.gram.index_copy_(1, place, row)
        self.gram.index_copy_(0, place, row.T)
        self.count += 1
        self.shown.copy_(self.gram @ self.alpha)
        self._border(place, row)
        size = self._fit(self.shifts[self.count])
        self.predictions.copy_(self.outer.T @ self.alpha)
        losses = self.problem.outer_loss.value(
            self.predictions, self.problem.outer_targets
        ).double()
        objective = torch.dot(losses, self.problem.outer_weights.double())
        told = torch.cat([k.double(), objective.view(1), size.double().view(1), self.reached])
        self.log.index_copy_(0, place, told[None])

    def settle(self) -> list[float]:
        """Read back the points since the last time and the objective after each, up to one whose
        fit is not solved."""
        numbers = torch.cat([self.count.double(), self.log.flatten()]).tolist()
        count = int(numbers[0])
        known = len(self.indices)
        objectives = list[float]()
        fit = inner.TOLERANCE[self.alpha.dtype]
        gradient = hypergradient.TOLERANCE[self.alpha.dtype]
        for place in range(known, count):
            k, objective, size, reached = numbers[1 + 4 * place : 5 + 4 * place]
            if not (size <= fit and reached <= gradient and math.isfinite(objective)):
                self.stuck = True
                if not size <= fit:
                    self.newton = self.newton + MORE_NEWTON
                    self.inner = self.inner + MORE_INNER
                else:
                    self.gradient += MORE_OUTER
                break
            self.indices.append(int(k))
            objectives.append(objective)
        if objectives:
            self.objective = objectives[-1]
        if not self.stuck:
            self._refresh(count)
        return objectives

    def _curved(self, probabilities: Tensor, rows: Tensor) -> Tensor:
        """A · rows, with A_i = w_i (diag p_i − p_i p_iᵀ)."""
        return self.weights * probabilities * (rows - (probabilities * rows).sum(1, keepdim=True))

    def _solve(
        self, right: Tensor, probabilities: Tensor, shift: Tensor, iterations: int
    ) -> tuple[Tensor, Tensor]:
        """z with (s I + A K) z = right after so many conjugate-gradient iterations, and the
        relative residual."""
        run = DeviceIteration(
            right, self._preconditioned, lambda rows: self._curved(probabilities, rows), shift
        )
        run.advance(iterations)
        # What is left when the energy is spent lies in the null space of K, where the operator is s
        # times the identity.
        spent = run.energy <= 0
        z = torch.where(spent, run.z + run.residual / shift, run.z)
        goal = torch.linalg.vector_norm(right).clamp_min(torch.finfo(right.dtype).tiny)
        return z, torch.where(spent, 0.0, torch.linalg.vector_norm(run.residual) / goal)

    def _preconditioned(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """P r and K P r, as :class:`bicore.bilevel.solvers.preconditioner.Preconditioner` has them,
        with the shift on the device."""
        scaled = residual / self.roots
        solved = self.inverse @ scaled
        return solved * self.roots, torch.addcmul(scaled, solved, self.made, value=-1) / self.roots

    def _fit(self, shift: Tensor) -> Tensor:
        """Newton's method from the last fit; the relative residual it ends with."""
        value = self._values(self.alpha[None], self.shown[None], shift)[0]
        lengths = self.lengths[:, None, None]
        for _ in range(self.newton * (ROUNDS if self.patient else 1)):
            probabilities, r, size = self._residual(shift)
            if self.patient and float(size) <= inner.TOLERANCE[r.dtype]:
                break
            step, _ = self._solve(-r, probabilities, shift, self.inner)
            moved = self.gram @ step
            slope = (r * moved).sum().clamp_max(0.0)
            values = self._values(self.alpha + lengths * step, self.shown + lengths * moved, shift)
            noise = 10 * torch.finfo(r.dtype).eps * value.abs()
            enough = values <= value + ARMIJO * self.lengths * slope + noise
            # of no dimensions, it would be read back to index with
            first = enough.int().argmax().view(1)
            length = self.lengths[first]
            self.alpha.addcmul_(step, length)
            self.shown.addcmul_(moved, length)
            value = values[first][0]
        return self._residual(shift)[2]

    def _residual(self, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p, r = w g + 2ρ α, and the size of r relative to its two terms."""
        probabilities = torch.softmax(self.shown, 1)
        data = self.weights * (probabilities - self.targets)
        own = shift * self.alpha
        scale = torch.linalg.vector_norm(data) + torch.linalg.vector_norm(own)
        r = data + own
        return (
            probabilities,
            r,
            torch.linalg.vector_norm(r) / scale.clamp_min(torch.finfo(r.dtype).tiny),
        )

    def _values(self, alpha: Tensor, shown: Tensor, shift: Tensor) -> Tensor:
        """The inner objective at each of several α with their predictions."""
        losses = torch.logsumexp(shown, 2) - (shown * self.targets).sum(2)
        return losses @ self.weights[:, 0] + shift * (alpha * shown).sum((1, 2)) / 2

    def _typical(self) -> Tensor:
        """The square root of a typical eigenvalue of every block of curvature; 1 for places not
        taken."""
        probabilities = torch.softmax(self.shown, 1)
        trace = (
            self.weights
            * (1 - probabilities.square().sum(1, keepdim=True))
            / max(probabilities.shape[1] - 1, 1)
        )
        floor = PRECONDITIONER_FLOOR * trace.max() + torch.finfo(trace.dtype).tiny
        return torch.where(self.weights > 0, torch.maximum(trace, floor).sqrt(), 1.0)

    def _border(self, place: Tensor, row: Tensor) -> None:
        """The stored inverse of s I + D^½ K D^½ with one more row and column."""
        self.roots.index_copy_(0, place, self._typical()[place])
        own = self.roots[place]
        border = row * self.roots * own
        corner = self.made + border[place]
        border.index_fill_(0, place, 0.0)
        solved = self.inverse @ border
        schur = torch.maximum(corner - (border * solved).sum(), self.made * BORDER_FLOOR)
        last = (-solved).index_fill_(0, place, 1.0)
        self.inverse.add_(last @ (last / schur).T)

    def _refresh(self, count: int) -> None:
        """Make the stored inverse anew for the points so far: their curvature has changed since
        they joined."""
        if count == 0:
            return
        self.roots.copy_(self._typical())
        self.made.copy_(self.shifts[count])
        matrix = shifted(self.gram[:count, :count], self.roots[:count, 0], float(self.made))
        self.inverse.zero_()
        self.inverse[:count, :count] = torch.cholesky_inverse(lower_factor(matrix))
