"""Cross-entropy on a GPU: a step of fixed shapes, recorded once as a CUDA graph and replayed.

The first points, whose fits change most, are taken by the general engine. Then its state is copied
into tables padded to its capacity. A step is always the same list of operations, with a fixed
number of Newton and conjugate-gradient iterations, and the host does not wait for it. The residual
of each fit is logged. If a fit needed more iterations, the general engine fits its points again and
takes the next one.

The equations are those of :mod:`bicore.bilevel.engines.implicit` and
:mod:`bicore.bilevel.solvers.softmax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bicore.bilevel.contract import DeviceChooser, Quantity, Requirements, Rule, StepOptions
from bicore.bilevel.engines.implicit import GRADIENT_TOLERANCE, ImplicitEngine
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers import inner
from bicore.bilevel.solvers.inner import Solvers
from bicore.bilevel.solvers.softmax import BORDER_FLOOR, PRECONDITIONER_FLOOR, scaled_gram
from bicore.losses import Curvature
from bicore.numerics.descent import NOISE, suffices
from bicore.numerics.linear_algebra import ConjugateIteration, cholesky_factor

#: Lengths of a step on the device: all are evaluated, the first that lowers the objective is used.
DEVICE_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)
#: Increments of the iteration numbers if a fit is not solved …
MORE_NEWTON = 2
MORE_INNER = 4
MORE_OUTER = 16
#: … and the number of increments before the general engine takes all points.
TRIES = 8
#: Number of points that the general engine takes first.
FIRST_POINTS = 16
#: Steps before one is recorded: libraries initialise in their first calls, which a graph must not
#: contain.
WARM_UP = 3


@dataclass
class Iterations:
    """Per recorded step: Newton steps of a fit, iterations of each of its systems, and of the
    gradient's system."""

    newton: int = 4
    inner: int = 12
    outer: int = 24


class PaddedState:
    """The state of an engine, padded to its capacity, and the operations of a step on it.

    An empty place has weight 0: its row of every system is that of the identity, and its
    coefficients are zero.
    """

    def __init__(self, engine: ImplicitEngine, iterations: Iterations) -> None:
        self.iterations = iterations
        self.problem = problem = engine.problem
        support, count = engine.support, len(engine.chosen)
        self.gram, self.index = support.padded_gram, support.padded_index
        self.train, self.outer = support.padded_train, support.padded_outer
        for table in (self.gram, self.gram.T, self.index, self.train, self.outer):
            table[count:] = 0
        capacity = len(self.index)
        like = problem.train.like
        self.alpha = like.new_zeros(capacity, problem.outputs)
        self.targets = torch.zeros_like(self.alpha)
        self.weights = like.new_zeros(capacity)
        self.alpha[:count] = engine.alpha
        self.targets[:count] = problem.inner_targets[support.index]
        self.weights[:count] = 1
        #: The predictions at the places, Kα.
        self.fitted = self.gram @ self.alpha
        self.predictions = engine.predictions.clone()
        self.count = torch.full((1,), count, device=like.device)
        sizes = range(capacity + 1)
        self.shifts = like.new_tensor([2 * problem.regulariser.rho(size) for size in sizes])
        self.lengths = like.new_tensor(DEVICE_LENGTHS)
        self.roots = like.new_ones(capacity, 1)
        self.inverse = like.new_zeros(capacity, capacity)
        self.inverse_shift = self.shifts[:1].clone()  # the shift of the stored inverse
        #: Per point: its index, the objective, and the residuals of its fit and of the scores
        #: before it.
        self.log = torch.zeros(capacity, 4, dtype=torch.float64, device=like.device)
        self.gradient_residual = self.log.new_zeros(1)
        self.refresh(count)

    def curvature(self) -> Curvature:
        """Return the weighted curvature of the loss at every place."""
        return self.problem.inner_loss.curvature(self.fitted, self.targets).scale_by(self.weights)

    def gradient(self) -> Tensor:
        """Return ∂G/∂w of every training point."""
        problem = self.problem
        shift = self.shifts[self.count]
        pull = problem.cross.transposed_matmul(problem.outer_gradient(self.predictions))
        curvature = self.curvature()
        right = curvature.apply(pull[self.index])
        z, residual = self._solve(right, curvature, shift, self.iterations.outer)
        self.gradient_residual.copy_(residual)
        fitted = self.predictions if problem.same else self.train.T @ self.alpha
        slopes = problem.inner_loss.gradient(fitted, problem.inner_targets)
        return (torch.addmm(pull, self.train.T, z, alpha=-1) * slopes).sum(1) / -shift

    def advance(self, k: Tensor) -> None:
        """Add the point whose index is in the tensor and fit again, without reading results."""
        place = self.count.clone()
        problem = self.problem
        self.train.index_copy_(0, place, problem.train.columns(k).T)
        if not problem.same:
            self.outer.index_copy_(0, place, problem.cross.columns(k).T)
        self.index.index_copy_(0, place, k)
        self.weights.index_fill_(0, place, 1.0)
        self.targets.index_copy_(0, place, problem.inner_targets[k])
        row = self.train.index_select(1, k)
        self.gram.index_copy_(1, place, row)
        self.gram.index_copy_(0, place, row.T)
        self.count += 1
        self.fitted.copy_(self.gram @ self.alpha)
        self._add_border(place, row)
        size = self._fit(self.shifts[self.count])
        self.predictions.copy_(self.outer.T @ self.alpha)
        losses = problem.outer_loss.value(self.predictions, problem.outer_targets)
        objective = torch.dot(losses.double(), problem.outer_weights.double())
        line = [k.double(), objective.view(1), size.double().view(1), self.gradient_residual]
        self.log.index_copy_(0, place, torch.cat(line)[None])

    def refresh(self, count: int) -> None:
        """Recompute the stored inverse, because the curvature of earlier points has changed."""
        self.roots.copy_(self._root_curvature())
        self.inverse_shift.copy_(self.shifts[count])
        matrix = scaled_gram(
            self.gram[:count, :count], self.roots[:count, 0], float(self.inverse_shift)
        )
        self.inverse.zero_()
        self.inverse[:count, :count] = torch.cholesky_inverse(cholesky_factor(matrix))

    def _fit(self, shift: Tensor) -> Tensor:
        """Take Newton steps from the last fit and return the relative residual."""
        value = self._objectives(self.alpha[None], self.fitted[None], shift)[0]
        lengths = self.lengths[:, None, None]
        for _ in range(self.iterations.newton):
            r, _ = self._residual(shift)
            step, _ = self._solve(-r, self.curvature(), shift, self.iterations.inner)
            moved = self.gram @ step
            slope = (r * moved).sum().clamp_max(0.0)
            values = self._objectives(
                self.alpha + lengths * step, self.fitted + lengths * moved, shift
            )
            noise = NOISE * torch.finfo(r.dtype).eps * value.abs()
            accepted = suffices(values, value, self.lengths * slope, noise)
            # a tensor without dimensions would be read back
            first = accepted.int().argmax().view(1)
            self.alpha.addcmul_(step, self.lengths[first])
            self.fitted.addcmul_(moved, self.lengths[first])
            value = values[first][0]
        return self._residual(shift)[1]

    def _residual(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Return r = w ∇ℓ + s α and its size relative to the two terms."""
        slopes = self.problem.inner_loss.gradient(self.fitted, self.targets)
        data, own = self.weights[:, None] * slopes, shift * self.alpha
        r = data + own
        scale = torch.linalg.vector_norm(data) + torch.linalg.vector_norm(own)
        return r, torch.linalg.vector_norm(r) / scale.clamp_min(torch.finfo(r.dtype).tiny)

    def _objectives(self, alpha: Tensor, fitted: Tensor, shift: Tensor) -> Tensor:
        """Return the inner objective at each of several α with their predictions."""
        losses = torch.logsumexp(fitted, 2) - (fitted * self.targets).sum(2)
        return losses @ self.weights + shift * (alpha * fitted).sum((1, 2)) / 2

    def _solve(
        self, right: Tensor, curvature: Curvature, shift: Tensor, iterations: int
    ) -> tuple[Tensor, Tensor]:
        """Solve (s I + A K) z = right by a fixed number of iterations; return also the residual."""

        def image(direction: Tensor, gram_direction: Tensor) -> Tensor:
            return curvature.apply(gram_direction) + direction * shift

        run = ConjugateIteration(right, self._precondition, image)
        run.advance(iterations)
        # A residual without energy lies in the null space of K, where the operator is s times the
        # identity.
        spent = run.energy <= 0
        z = torch.where(spent, run.z + run.residual / shift, run.z)
        goal = torch.linalg.vector_norm(right).clamp_min(torch.finfo(right.dtype).tiny)
        return z, torch.where(spent, 0.0, torch.linalg.vector_norm(run.residual) / goal)

    def _precondition(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return P r and K P r of :class:`bicore.bilevel.solvers.softmax.Preconditioner`, with the
        shift on the device."""
        scaled = residual / self.roots
        solved = self.inverse @ scaled
        paired = torch.addcmul(scaled, solved, self.inverse_shift, value=-1) / self.roots
        return solved * self.roots, paired

    def _root_curvature(self) -> Tensor:
        """Return the root of the mean eigenvalue of every curvature block; 1 at empty places."""
        typical = self.curvature().typical()
        floor = PRECONDITIONER_FLOOR * typical.max() + torch.finfo(typical.dtype).tiny
        roots = torch.maximum(typical, floor).sqrt()
        return torch.where(self.weights > 0, roots, 1.0)[:, None]

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


class RecordedSoftmaxEngine(ImplicitEngine):
    """The engine for cross-entropy, uniform weights and the gradient rule on a GPU."""

    _chooser: DeviceChooser
    _step: _RecordedStep

    @classmethod
    def supports(cls, requirements: Requirements) -> bool:
        plain = not (requirements.closed_form or requirements.reweighs)
        gradients = requirements.needs == {Quantity.GRADIENT}
        return super().supports(requirements) and requirements.repeats and plain and gradients

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Return whether this is a softmax problem on a GPU with stored matrices."""
        stored = problem.train.stored and problem.cross.stored
        softmax = problem.inner_loss.softmax and problem.outer_loss.softmax
        return stored and softmax and problem.train.like.is_cuda

    def __init__(self, problem: Problem, capacity: int, solvers: Solvers) -> None:
        #: The state on the device, if it is that of the last fit.
        self._state: PaddedState | None = None
        self.failures = 0
        self.iterations = Iterations()
        super().__init__(problem, capacity, solvers)

    @property
    def operation_counts(self) -> Mapping[str, int]:
        return {}  # recorded steps are not counted

    def fit(self) -> None:
        self._state = None
        super().fit()

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        if self._state is None or what is not Quantity.GRADIENT or columns is not None:
            return super().quantity(what, columns)
        return self._state.gradient()

    def take_best(self, rule: Rule, options: StepOptions) -> list[float]:
        """Take points without reading results; a repeated step is recorded and replayed."""
        few = len(self.chosen) < FIRST_POINTS
        if few or self.failures > TRIES or not options.one_by_one:
            return super().take_best(rule, options)
        if self._state is None or not self._chooser.matches(options):
            self._begin(rule, options)
        for _ in range(options.unread_steps):
            self._step()
        return self._read_back() or super().take_best(rule, options)

    def _begin(self, rule: Rule, options: StepOptions) -> None:
        """Copy the last fit to the device, and define a step from there."""
        state = PaddedState(self, self.iterations)
        chooser = DeviceChooser(options, state.log.device)
        self._state, self._chooser = state, chooser
        self._step = _RecordedStep(
            lambda: chooser.step(self.scores(rule), state.advance), state.log.is_cuda
        )

    def _read_back(self) -> list[float]:
        """Read the new points and their objectives, up to the first fit that is not solved.

        In that case the general engine fits the points before it, and later steps have more
        iterations.
        """
        state, before = self._state, len(self.chosen)
        assert state is not None
        count, *numbers = torch.cat([state.count.double(), state.log.flatten()]).tolist()
        lines = [numbers[4 * place : 4 * place + 4] for place in range(before, int(count))]
        dtype = state.alpha.dtype
        fitted = [line[2] <= inner.TOLERANCE[dtype] for line in lines]
        scored = [line[3] <= GRADIENT_TOLERANCE[dtype] and math.isfinite(line[1]) for line in lines]
        solved = [*map(all, zip(fitted, scored, strict=True)), False].index(False)
        self.support.indices += [int(line[0]) for line in lines[:solved]]
        self.weights = self.weights.new_ones(len(self.chosen))
        self.alpha = state.alpha[: len(self.chosen)]
        objectives = [line[1] for line in lines[:solved]]
        if solved == len(lines):
            self._chooser.check(self.chosen[before:])
            state.refresh(len(self.chosen))
            self.predictions, self.objective = state.predictions, objectives[-1]
            self.fitted = state.fitted[: len(self.chosen)]
            return objectives
        self.failures += 1
        if fitted[solved]:
            self.iterations.outer += MORE_OUTER
        else:
            self.iterations.newton += MORE_NEWTON
            self.iterations.inner += MORE_INNER
        if not bool(torch.isfinite(self.alpha).all()):
            self.alpha = torch.zeros_like(self.alpha)
        self.fit()
        return objectives


@dataclass(eq=False)
class _RecordedStep:
    """A fixed list of operations, recorded as a CUDA graph after the first calls on a GPU."""

    step: Callable[[], None]
    on_gpu: bool
    graph: Any = None
    warm: int = 0

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif not self.on_gpu:
            self.step()
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
