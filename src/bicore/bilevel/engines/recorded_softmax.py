"""Cross-entropy on a GPU without waiting: every shape is fixed, every decision taken on the device.

The state of :mod:`bicore.bilevel.engines.implicit` for a softmax, padded to its capacity; the
equations are those of :mod:`bicore.bilevel.solvers.softmax`. A step is the same list of operations
every time, with a fixed number of Newton and conjugate-gradient iterations, so that it can be
recorded once as a CUDA graph and replayed. How well each fit was solved is written next to it;
:meth:`RecordedSoftmaxEngine.read_back` sees where the numbers did not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bicore.bilevel.contract import (
    DeviceChooser,
    ListedEngine,
    Quantity,
    Requirements,
    Scoring,
    StepOptions,
)
from bicore.bilevel.engines.implicit import GRADIENT_TOLERANCE, ImplicitEngine
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers import inner
from bicore.bilevel.solvers.softmax import BORDER_FLOOR, PRECONDITIONER_FLOOR, scaled_gram
from bicore.numerics.descent import NOISE, suffices
from bicore.numerics.linear_algebra import ConjugateIteration, Precondition, cholesky_factor

#: Lengths that a step on the device may have: all are evaluated, the first that serves is taken.
DEVICE_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)


class DeviceSoftmaxFit:
    """A fit on a GPU padded to a fixed size: a place that is not taken has weight 0, which leaves
    its row of every system an identity and its coefficients zero.

    ``gram``, ``targets`` and ``weights`` are written to from outside; ``alpha`` and ``fitted`` = Kα
    are the fit.
    """

    def __init__(self, like: Tensor, capacity: int, outputs: int) -> None:
        self.gram = like.new_zeros(capacity, capacity)
        self.targets = like.new_zeros(capacity, outputs)
        self.weights = like.new_zeros(capacity, 1)
        self.alpha = like.new_zeros(capacity, outputs)
        self.fitted = like.new_zeros(capacity, outputs)
        self.lengths = like.new_tensor(DEVICE_LENGTHS)

    def probabilities(self) -> Tensor:
        """Of the fit at every place."""
        return torch.softmax(self.fitted, 1)

    def curved(self, probabilities: Tensor, rows: Tensor) -> Tensor:
        """A · rows."""
        mean = (probabilities * rows).sum(1, keepdim=True)
        return self.weights * probabilities * (rows - mean)

    def system(
        self,
        right: Tensor,
        probabilities: Tensor,
        shift: Tensor,
        precondition: Precondition,
        iterations: int,
    ) -> tuple[Tensor, Tensor]:
        """Solve (s I + A K) z = right by a fixed number of iterations; return also the residual."""

        def image(direction: Tensor, gram_direction: Tensor) -> Tensor:
            return self.curved(probabilities, gram_direction) + direction * shift

        run = ConjugateIteration(right, precondition, image)
        run.advance(iterations)
        # What is left when the energy is spent lies in the null space of K, where the operator is s
        # times the identity.
        spent = run.energy <= 0
        z = torch.where(spent, run.z + run.residual / shift, run.z)
        goal = torch.linalg.vector_norm(right).clamp_min(torch.finfo(right.dtype).tiny)
        return z, torch.where(spent, 0.0, torch.linalg.vector_norm(run.residual) / goal)

    def newton(
        self,
        shift: Tensor,
        precondition: Precondition,
        steps: int,
        iterations: int,
        watched: float | None = None,
    ) -> Tensor:
        """Take a fixed number of Newton steps from the last fit; return the relative residual.

        With ``watched`` the host looks after each step and stops at that residual.
        """
        value = self._values(self.alpha[None], self.fitted[None], shift)[0]
        lengths_of_steps = self.lengths[:, None, None]
        for _ in range(steps):
            probabilities, r, size = self.residual(shift)
            if watched is not None and float(size) <= watched:
                break
            step, _ = self.system(-r, probabilities, shift, precondition, iterations)
            moved = self.gram @ step
            slope = (r * moved).sum().clamp_max(0.0)
            values = self._values(
                self.alpha + lengths_of_steps * step, self.fitted + lengths_of_steps * moved, shift
            )
            noise = NOISE * torch.finfo(r.dtype).eps * value.abs()
            serves = suffices(values, value, self.lengths * slope, noise)
            first = serves.int().argmax().view(1)  # of no dimensions, it would be read back
            length = self.lengths[first]
            self.alpha.addcmul_(step, length)
            self.fitted.addcmul_(moved, length)
            value = values[first][0]
        return self.residual(shift)[2]

    def residual(self, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p, r = w (p − y) + s α, and the size of r relative to its two terms."""
        probabilities = self.probabilities()
        data = self.weights * (probabilities - self.targets)
        own = shift * self.alpha
        scale = torch.linalg.vector_norm(data) + torch.linalg.vector_norm(own)
        r = data + own
        tiny = torch.finfo(r.dtype).tiny
        return probabilities, r, torch.linalg.vector_norm(r) / scale.clamp_min(tiny)

    def _values(self, alpha: Tensor, fitted: Tensor, shift: Tensor) -> Tensor:
        """The inner objective at each of several α with their predictions."""
        losses = torch.logsumexp(fitted, 2) - (fitted * self.targets).sum(2)
        return losses @ self.weights[:, 0] + shift * (alpha * fitted).sum((1, 2)) / 2


#: Newton steps of a fit, iterations of each of its systems, and of the system of the gradient, in a
#: recorded step.
NEWTON = 4
INNER = 12
OUTER = 24
#: They grow by these where they did not suffice …
MORE_NEWTON = 2
MORE_INNER = 4
MORE_OUTER = 16
#: … this many times before the general engine takes over.
TRIES = 8
#: Times as many Newton steps, and iterations of the gradient's system, while somebody watches.
PATIENT_STEPS = 20
PATIENT_SYSTEM = 4
#: Points whose fits are watched, because fits of the first few change the most.
WATCHED = 16
#: Steps before one is recorded: libraries set themselves up at their first calls, which a graph
#: must not contain.
WARM_UP = 3


class RecordedSoftmaxEngine(ListedEngine):
    """The state under the cross-entropy, binary weights, the gradient rule."""

    supported_quantities = frozenset({Quantity.GRADIENT})
    cheap_steps = False

    @classmethod
    def supports(cls, requirements: Requirements) -> bool:
        same_list = requirements.repeats and requirements.needs <= cls.supported_quantities
        plain = not (requirements.closed_form or requirements.reweighs or requirements.exact)
        return same_list and plain

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether it is a softmax on a GPU whose columns come without a word to the host."""
        stored = problem.train.stored and problem.cross.stored
        softmax = problem.inner_loss.softmax and problem.outer_loss.softmax
        return stored and softmax and problem.train.like.is_cuda

    @classmethod
    def build(cls, problem: Problem, requirements: Requirements) -> RecordedSoftmaxEngine:
        return cls(
            problem, requirements.capacity, lambda: ImplicitEngine.build(problem, requirements)
        )

    def __init__(
        self, problem: Problem, capacity: int, general: Callable[[], ImplicitEngine]
    ) -> None:
        like = problem.train.like
        self.problem = problem
        self.capacity = capacity
        self.same = problem.same
        self._general = general
        self._successor: ImplicitEngine | None = None
        self._chosen: list[int] = []
        self._chooser: DeviceChooser | None = None
        self._step: _RecordedStep | None = None
        #: Whether a fit needed more than the fixed iterations.
        self.stuck = False
        self.newton_steps = NEWTON
        self.inner_iterations = INNER
        self.outer_iterations = OUTER
        self.tries = 0
        #: Whether the host watches every fit: for the first points, and after one that was not
        #: solved.
        self.patient = True
        self.count = torch.zeros(1, dtype=torch.long, device=like.device)
        self.index = torch.zeros(capacity, dtype=torch.long, device=like.device)
        sizes = range(capacity + 1)
        self.shifts = like.new_tensor([2 * problem.regulariser.rho(size) for size in sizes])
        self.fit = DeviceSoftmaxFit(like, capacity, problem.outputs)
        self.roots = like.new_ones(capacity, 1)
        self.inverse = like.new_zeros(capacity, capacity)
        self.made = self.shifts[:1].clone()  # the shift of the stored inverse
        self.train = like.new_zeros(capacity, problem.train.shape[1])
        self.outer = self.train if self.same else like.new_zeros(capacity, problem.cross.shape[0])
        self.predictions = like.new_zeros(problem.cross.shape[0], problem.outputs)
        self._objective = problem.outer_value(self.predictions)
        #: For every point its number, the objective, and how far its fit and the scores before it
        #: were from solved.
        self.log = torch.zeros(capacity, 4, dtype=torch.float64, device=like.device)
        self.reached = torch.zeros(1, dtype=torch.float64, device=like.device)

    @property
    def chosen(self) -> list[int]:  # type: ignore[override]
        return self._chosen if self._successor is None else self._successor.chosen

    @property
    def objective(self) -> float:  # type: ignore[override]
        return self._objective if self._successor is None else self._successor.objective

    @property
    def operation_counts(self) -> Mapping[str, int]:
        return {} if self._successor is None else self._successor.operation_counts

    def extend(self, points: Sequence[int]) -> None:
        """Add points one after the other."""
        for place, k in enumerate(points):
            wanted = len(self.chosen) + 1
            while self._successor is None and len(self._chosen) < wanted:
                self.advance(torch.tensor([k], device=self.log.device))
                self._confirm()
            if self._successor is not None and len(self.chosen) < wanted:  # not taken over
                self._successor.extend(points[place:])
                return

    def drop(self, places: Sequence[int]) -> None:
        self._hand_over().drop(places)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        if self._successor is not None or what not in self.supported_quantities:
            return self._hand_over().quantity(what, columns)
        scores = self._gradient()
        return scores if columns is None else scores[columns]

    def take_best(self, rule: Scoring, options: StepOptions) -> list[float]:
        """Several points between two looks; a step that is always the same is replayed."""
        if self._successor is not None:
            return self._successor.take_best(rule, options)
        if not options.alone:
            return super().take_best(rule, options)
        chooser = self._chooser
        if chooser is None or not chooser.serves(options):
            chooser = self._chooser = DeviceChooser(options, self.log.device)
            self._step = None
        if self._step is None:
            self._step = _RecordedStep(lambda: chooser.step(self.scores(rule), self.advance))
        before = len(self._chosen)
        for _ in range(options.count_unread_steps(before)):
            self._step(record=self.log.is_cuda and not self.patient)
        return self._confirm()

    def _confirm(self) -> list[float]:
        """Read back what was done; undo a step that is stuck, and retry or hand over."""
        before = len(self._chosen)
        objectives = self.read_back()
        if not self.stuck:
            if self._chooser is not None:
                self._chooser.check(self._chosen[before:])
            self.patient = len(self._chosen) < WATCHED
            return objectives
        self._chooser = None  # the device has taken points that are taken back now
        self._step = None
        if not self.recover():
            self._hand_over()
        return objectives

    def _hand_over(self) -> ImplicitEngine:
        """The engine without fixed numbers of iterations, with the points confirmed so far."""
        if self._successor is None:
            successor = self._general()
            if self._chosen:
                successor.extend(self._chosen)
            self._successor = successor
        return self._successor

    def recover(self) -> bool:
        """Go back to the points confirmed so far and allow a step more iterations; False where that
        was done often enough."""
        m = len(self._chosen)
        fit = self.fit
        self.stuck = False
        self.tries += 1
        if self.tries > TRIES:
            return False
        padded = (self.train, self.outer, fit.gram, fit.gram.T, fit.weights, fit.targets, fit.alpha)
        for values in (*padded, self.log, self.index):
            values[m:] = 0
        if not bool(torch.isfinite(fit.alpha).all()):
            fit.alpha.zero_()
        self.roots[m:] = 1
        self.count.fill_(m)
        fit.fitted.copy_(fit.gram @ fit.alpha)
        self._refresh(m)
        self.patient = True
        tolerance = inner.TOLERANCE[fit.alpha.dtype]
        solved = m == 0 or float(self._newton(self.shifts[m])) <= tolerance
        self.predictions.copy_(self.outer.T @ fit.alpha)
        return solved

    def _gradient(self) -> Tensor:
        """∂G/∂w of every training point, as :mod:`bicore.bilevel.engines.implicit` has it."""
        problem = self.problem
        shift = self.shifts[self.count]
        pull = problem.cross.transposed_matmul(problem.outer_gradient(self.predictions))
        probabilities = self.fit.probabilities()
        right = self.fit.curved(probabilities, pull[self.index])
        iterations = self.outer_iterations * (PATIENT_SYSTEM if self.patient else 1)
        z, reached = self.fit.system(right, probabilities, shift, self._preconditioned, iterations)
        self.reached.copy_(reached)
        fitted = self.predictions if self.same else self.train.T @ self.fit.alpha
        slopes = problem.inner_loss.gradient(fitted, problem.inner_targets)
        return (torch.addmm(pull, self.train.T, z, alpha=-1) * slopes).sum(1) / -shift

    def advance(self, k: Tensor) -> None:
        """Take the point whose number the tensor holds and fit again; nothing is read back."""
        place = self.count.clone()
        fit = self.fit
        self.train.index_copy_(0, place, self.problem.train.columns(k).T)
        if not self.same:
            self.outer.index_copy_(0, place, self.problem.cross.columns(k).T)
        self.index.index_copy_(0, place, k)
        fit.weights.index_fill_(0, place, 1.0)
        fit.targets.index_copy_(0, place, self.problem.inner_targets[k])
        row = self.train.index_select(1, k)
        fit.gram.index_copy_(1, place, row)
        fit.gram.index_copy_(0, place, row.T)
        self.count += 1
        fit.fitted.copy_(fit.gram @ fit.alpha)
        self._border(place, row)
        size = self._newton(self.shifts[self.count])
        self.predictions.copy_(self.outer.T @ fit.alpha)
        losses = self.problem.outer_loss.value(self.predictions, self.problem.outer_targets)
        objective = torch.dot(losses.double(), self.problem.outer_weights.double())
        line = [k.double(), objective.view(1), size.double().view(1), self.reached]
        self.log.index_copy_(0, place, torch.cat(line)[None])

    def read_back(self) -> list[float]:
        """Read back the points since the last time and the objective after each, up to one whose
        fit is not solved."""
        numbers = torch.cat([self.count.double(), self.log.flatten()]).tolist()
        count = int(numbers[0])
        objectives: list[float] = []
        fit = inner.TOLERANCE[self.fit.alpha.dtype]
        gradient = GRADIENT_TOLERANCE[self.fit.alpha.dtype]
        for place in range(len(self._chosen), count):
            k, objective, size, reached = numbers[1 + 4 * place : 5 + 4 * place]
            if not (size <= fit and reached <= gradient and math.isfinite(objective)):
                self.stuck = True
                if not size <= fit:
                    self.newton_steps += MORE_NEWTON
                    self.inner_iterations += MORE_INNER
                else:
                    self.outer_iterations += MORE_OUTER
                break
            self._chosen.append(int(k))
            objectives.append(objective)
        if objectives:
            self._objective = objectives[-1]
        if not self.stuck:
            self._refresh(count)
        return objectives

    def _newton(self, shift: Tensor) -> Tensor:
        steps = self.newton_steps * (PATIENT_STEPS if self.patient else 1)
        watched = inner.TOLERANCE[self.fit.alpha.dtype] if self.patient else None
        return self.fit.newton(shift, self._preconditioned, steps, self.inner_iterations, watched)

    def _preconditioned(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """P r and K P r, as :class:`bicore.bilevel.solvers.softmax.Preconditioner` has them,
        with the shift on the device."""
        scaled = residual / self.roots
        solved = self.inverse @ scaled
        paired = torch.addcmul(scaled, solved, self.made, value=-1) / self.roots
        return solved * self.roots, paired

    def _typical(self) -> Tensor:
        """The square root of a typical eigenvalue of every block of curvature; 1 for places not
        taken."""
        probabilities = self.fit.probabilities()
        weights = self.fit.weights
        spread = 1 - probabilities.square().sum(1, keepdim=True)
        trace = weights * spread / max(probabilities.shape[1] - 1, 1)
        floor = PRECONDITIONER_FLOOR * trace.max() + torch.finfo(trace.dtype).tiny
        return torch.where(weights > 0, torch.maximum(trace, floor).sqrt(), 1.0)

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
        own = self.fit.gram[:count, :count]
        matrix = scaled_gram(own, self.roots[:count, 0], float(self.made))
        self.inverse.zero_()
        self.inverse[:count, :count] = torch.cholesky_inverse(cholesky_factor(matrix))


class _RecordedStep:
    """A step that is always the same list of operations, as a CUDA graph once it is known."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step
        self.graph: Any = None
        self.warm = 0

    def __call__(self, record: bool) -> None:
        if not record:
            self.step()
        elif self.graph is not None:
            self.graph.replay()
        elif self.warm < WARM_UP:
            self._aside()
            self.warm += 1
        else:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
            self.graph.replay()

    def _aside(self) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step()
        torch.cuda.current_stream().wait_stream(stream)
