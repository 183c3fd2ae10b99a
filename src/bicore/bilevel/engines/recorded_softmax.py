"""Cross-entropy on a GPU: a step of fixed shapes, recorded once as a CUDA graph and replayed.

The state is that of :mod:`bicore.bilevel.engines.implicit`, padded to its capacity; the equations
are those of :mod:`bicore.bilevel.solvers.softmax`. A step is always the same list of operations,
with a fixed number of Newton and conjugate-gradient iterations, and the host does not wait for it.
The residual of each fit is logged; :meth:`RecordedSoftmaxEngine.read_back` finds fits that need
more iterations.
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

#: Lengths of a step on the device: all are evaluated, the first that lowers the objective is used.
DEVICE_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)


class DeviceSoftmaxFit:
    """A fit on a GPU, padded to a fixed size.

    An empty place has weight 0: its row of every system is that of the identity, and its
    coefficients are zero. The engine writes ``gram``, ``targets`` and ``weights``; ``alpha`` and
    ``fitted`` = Kα are the fit.
    """

    def __init__(self, like: Tensor, capacity: int, outputs: int) -> None:
        self.gram = like.new_zeros(capacity, capacity)
        self.targets = like.new_zeros(capacity, outputs)
        self.weights = like.new_zeros(capacity, 1)
        self.alpha = like.new_zeros(capacity, outputs)
        self.fitted = like.new_zeros(capacity, outputs)
        self.lengths = like.new_tensor(DEVICE_LENGTHS)

    def probabilities(self) -> Tensor:
        """Return the probabilities of the fit at every place."""
        return torch.softmax(self.fitted, 1)

    def apply_curvature(self, probabilities: Tensor, rows: Tensor) -> Tensor:
        """Return A · rows, with A the curvature of the loss."""
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
            return self.apply_curvature(probabilities, gram_direction) + direction * shift

        run = ConjugateIteration(right, precondition, image)
        run.advance(iterations)
        # A residual without energy lies in the null space of K, where the operator is s times the
        # identity.
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
        """Take a fixed number of Newton steps from the last fit and return the relative residual.

        With ``watched`` the host reads the residual after each step and stops below that value.
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
            accepted = suffices(values, value, self.lengths * slope, noise)
            first = (
                accepted.int().argmax().view(1)
            )  # a tensor without dimensions would be read back
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


#: Per recorded step: Newton steps of a fit, iterations of each of its systems, and of the
#: gradient's system.
NEWTON = 4
INNER = 12
OUTER = 24
#: Increments of these numbers if a fit is not solved …
MORE_NEWTON = 2
MORE_INNER = 4
MORE_OUTER = 16
#: … and the number of increments before the general engine is used.
TRIES = 8
#: Factors for Newton steps, and for iterations of the gradient's system, if every fit is read.
CAREFUL_STEPS = 20
CAREFUL_SYSTEM = 4
#: Number of points whose fits are read one by one, because early fits change most.
WATCHED = 16
#: Steps before one is recorded: libraries initialise in their first calls, which a graph must not
#: contain.
WARM_UP = 3


class RecordedSoftmaxEngine(ListedEngine):
    """The engine for cross-entropy, uniform weights and the gradient rule on a GPU."""

    supported_quantities = frozenset({Quantity.GRADIENT})
    cheap_steps = False

    @classmethod
    def supports(cls, requirements: Requirements) -> bool:
        same_list = requirements.repeats and requirements.needs <= cls.supported_quantities
        plain = not (requirements.closed_form or requirements.reweighs or requirements.exact)
        return same_list and plain

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Return whether this is a softmax problem on a GPU with stored matrices."""
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
        self._replacement: ImplicitEngine | None = None
        self._chosen: list[int] = []
        self._chooser: DeviceChooser | None = None
        self._step: _RecordedStep | None = None
        #: Whether a fit needed more than the fixed number of iterations.
        self.stuck = False
        self.newton_steps = NEWTON
        self.inner_iterations = INNER
        self.outer_iterations = OUTER
        self.tries = 0
        #: Whether every fit is read: for the first points, and after a fit that was not solved.
        self.careful = True
        self.count = torch.zeros(1, dtype=torch.long, device=like.device)
        self.index = torch.zeros(capacity, dtype=torch.long, device=like.device)
        sizes = range(capacity + 1)
        self.shifts = like.new_tensor([2 * problem.regulariser.rho(size) for size in sizes])
        self.fit = DeviceSoftmaxFit(like, capacity, problem.outputs)
        self.roots = like.new_ones(capacity, 1)
        self.inverse = like.new_zeros(capacity, capacity)
        self.inverse_shift = self.shifts[:1].clone()  # the shift of the stored inverse
        self.train = like.new_zeros(capacity, problem.train.shape[1])
        self.outer = self.train if self.same else like.new_zeros(capacity, problem.cross.shape[0])
        self.predictions = like.new_zeros(problem.cross.shape[0], problem.outputs)
        self._objective = problem.outer_value(self.predictions)
        #: Per point: its index, the objective, and the residuals of its fit and of the scores
        #: before it.
        self.log = torch.zeros(capacity, 4, dtype=torch.float64, device=like.device)
        self.gradient_residual = torch.zeros(1, dtype=torch.float64, device=like.device)

    @property
    def chosen(self) -> list[int]:  # type: ignore[override]
        return self._chosen if self._replacement is None else self._replacement.chosen

    @property
    def objective(self) -> float:  # type: ignore[override]
        return self._objective if self._replacement is None else self._replacement.objective

    @property
    def operation_counts(self) -> Mapping[str, int]:
        return {} if self._replacement is None else self._replacement.operation_counts

    def extend(self, points: Sequence[int]) -> None:
        """Add points one by one."""
        for place, k in enumerate(points):
            wanted = len(self.chosen) + 1
            while self._replacement is None and len(self._chosen) < wanted:
                self.advance(torch.tensor([k], device=self.log.device))
                self._confirm()
            if (
                self._replacement is not None and len(self.chosen) < wanted
            ):  # the general engine took over before this point was added
                self._replacement.extend(points[place:])
                return

    def drop(self, places: Sequence[int]) -> None:
        self._switch_to_general().drop(places)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        if self._replacement is not None or what not in self.supported_quantities:
            return self._switch_to_general().quantity(what, columns)
        scores = self._gradient()
        return scores if columns is None else scores[columns]

    def take_best(self, rule: Scoring, options: StepOptions) -> list[float]:
        """Take points without reading results; a repeated step is recorded and replayed."""
        if self._replacement is not None:
            return self._replacement.take_best(rule, options)
        if not options.one_by_one:
            return super().take_best(rule, options)
        chooser = self._chooser
        if chooser is None or not chooser.matches(options):
            chooser = self._chooser = DeviceChooser(options, self.log.device)
            self._step = None
        if self._step is None:
            self._step = _RecordedStep(lambda: chooser.step(self.scores(rule), self.advance))
        before = len(self._chosen)
        for _ in range(options.count_unread_steps(before)):
            self._step(record=self.log.is_cuda and not self.careful)
        return self._confirm()

    def _confirm(self) -> list[float]:
        """Read results back; if a fit failed, undo its step and retry, or switch to the general
        engine."""
        before = len(self._chosen)
        objectives = self.read_back()
        if not self.stuck:
            if self._chooser is not None:
                self._chooser.check(self._chosen[before:])
            self.careful = len(self._chosen) < WATCHED
            return objectives
        self._chooser = None  # its mask contains points that are undone now
        self._step = None
        if not self.recover():
            self._switch_to_general()
        return objectives

    def _switch_to_general(self) -> ImplicitEngine:
        """Return the general engine with the confirmed points; it replaces this one."""
        if self._replacement is None:
            replacement = self._general()
            if self._chosen:
                replacement.extend(self._chosen)
            self._replacement = replacement
        return self._replacement

    def recover(self) -> bool:
        """Return to the confirmed points and allow more iterations; return False after too many
        tries."""
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
        self.careful = True
        tolerance = inner.TOLERANCE[fit.alpha.dtype]
        solved = m == 0 or float(self._newton(self.shifts[m])) <= tolerance
        self.predictions.copy_(self.outer.T @ fit.alpha)
        return solved

    def _gradient(self) -> Tensor:
        """Return ∂G/∂w of every training point; see :mod:`bicore.bilevel.engines.implicit`."""
        problem = self.problem
        shift = self.shifts[self.count]
        pull = problem.cross.transposed_matmul(problem.outer_gradient(self.predictions))
        probabilities = self.fit.probabilities()
        right = self.fit.apply_curvature(probabilities, pull[self.index])
        iterations = self.outer_iterations * (CAREFUL_SYSTEM if self.careful else 1)
        z, gradient_residual = self.fit.system(
            right, probabilities, shift, self._precondition, iterations
        )
        self.gradient_residual.copy_(gradient_residual)
        fitted = self.predictions if self.same else self.train.T @ self.fit.alpha
        slopes = problem.inner_loss.gradient(fitted, problem.inner_targets)
        return (torch.addmm(pull, self.train.T, z, alpha=-1) * slopes).sum(1) / -shift

    def advance(self, k: Tensor) -> None:
        """Add the point whose index is in the tensor and fit again, without reading results."""
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
        self._add_border(place, row)
        size = self._newton(self.shifts[self.count])
        self.predictions.copy_(self.outer.T @ fit.alpha)
        losses = self.problem.outer_loss.value(self.predictions, self.problem.outer_targets)
        objective = torch.dot(losses.double(), self.problem.outer_weights.double())
        line = [k.double(), objective.view(1), size.double().view(1), self.gradient_residual]
        self.log.index_copy_(0, place, torch.cat(line)[None])

    def read_back(self) -> list[float]:
        """Read the new points and their objectives, up to the first fit that is not solved."""
        numbers = torch.cat([self.count.double(), self.log.flatten()]).tolist()
        count = int(numbers[0])
        objectives: list[float] = []
        fit = inner.TOLERANCE[self.fit.alpha.dtype]
        gradient = GRADIENT_TOLERANCE[self.fit.alpha.dtype]
        for place in range(len(self._chosen), count):
            k, objective, size, gradient_residual = numbers[1 + 4 * place : 5 + 4 * place]
            if not (size <= fit and gradient_residual <= gradient and math.isfinite(objective)):
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
        steps = self.newton_steps * (CAREFUL_STEPS if self.careful else 1)
        watched = inner.TOLERANCE[self.fit.alpha.dtype] if self.careful else None
        return self.fit.newton(shift, self._precondition, steps, self.inner_iterations, watched)

    def _precondition(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return P r and K P r of :class:`bicore.bilevel.solvers.softmax.Preconditioner`, with the
        shift on the device."""
        scaled = residual / self.roots
        solved = self.inverse @ scaled
        paired = torch.addcmul(scaled, solved, self.inverse_shift, value=-1) / self.roots
        return solved * self.roots, paired

    def _root_curvature(self) -> Tensor:
        """Return the root of the mean eigenvalue of every curvature block; 1 at empty places."""
        probabilities = self.fit.probabilities()
        weights = self.fit.weights
        spread = 1 - probabilities.square().sum(1, keepdim=True)
        trace = weights * spread / max(probabilities.shape[1] - 1, 1)
        floor = PRECONDITIONER_FLOOR * trace.max() + torch.finfo(trace.dtype).tiny
        return torch.where(weights > 0, torch.maximum(trace, floor).sqrt(), 1.0)

    def _add_border(self, place: Tensor, row: Tensor) -> None:
        """Add a row and a column to the stored inverse of s I + D^½ K D^½."""
        self.roots.index_copy_(0, place, self._root_curvature()[place])
        own = self.roots[place]
        border = row * self.roots * own
        corner = self.inverse_shift + border[place]
        border.index_fill_(0, place, 0.0)
        solved = self.inverse @ border
        schur = torch.maximum(corner - (border * solved).sum(), self.inverse_shift * BORDER_FLOOR)
        last = (-solved).index_fill_(0, place, 1.0)
        self.inverse.add_(last @ (last / schur).T)

    def _refresh(self, count: int) -> None:
        """Recompute the stored inverse, because the curvature of earlier points has changed."""
        if count == 0:
            return
        self.roots.copy_(self._root_curvature())
        self.inverse_shift.copy_(self.shifts[count])
        own = self.fit.gram[:count, :count]
        matrix = scaled_gram(own, self.roots[:count, 0], float(self.inverse_shift))
        self.inverse.zero_()
        self.inverse[:count, :count] = torch.cholesky_inverse(cholesky_factor(matrix))


class _RecordedStep:
    """A fixed list of operations, recorded as a CUDA graph after the first calls."""

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
            self._warm_up()
            self.warm += 1
        else:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
            self.graph.replay()

    def _warm_up(self) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step()
        torch.cuda.current_stream().wait_stream(stream)
