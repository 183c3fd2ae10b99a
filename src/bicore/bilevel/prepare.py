"""From arguments to a bilevel problem with its solvers, ready to run, and what a coreset is told
about it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bicore._version import __version__
from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.problem import Constant, PerPoint, Problem, Regulariser
from bicore.bilevel.regularisation import SUBSET_SIZE, automatic
from bicore.bilevel.solvers.inner import InnerSolver, Newton, Ridge
from bicore.bilevel.solvers.linear import Adaptive, LinearSolver
from bicore.bilevel.strategies.base import as_strategy
from bicore.data import Array, Dataset, Targets, as_tensor, read_targets
from bicore.errors import InputError
from bicore.kernels.base import Kernel
from bicore.kernels.operators import Reserve, build_operators
from bicore.losses import Loss, SquaredError, encoded
from bicore.runtime import Clock, Runtime
from bicore.selectors.names import as_kernel, as_loss, as_regulariser

#: The model of all data that the reducible rule compares with is fitted on at most this many
#: points, drawn at random beyond.
REFERENCE_POINTS = 2000


class Configured(Protocol):
    """The settings of a selector that decide its problem, or that a coreset keeps a note of."""

    @property
    def name(self) -> str: ...
    @property
    def inner_reg(self) -> Any: ...
    @property
    def weights(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def candidates(self) -> int | None: ...
    @property
    def first(self) -> str: ...
    @property
    def optimiser(self) -> Any: ...
    @property
    def kernel(self) -> Any: ...
    @property
    def loss(self) -> Any: ...
    @property
    def outer_loss(self) -> Any: ...
    @property
    def strategy(self) -> Any: ...
    @property
    def task(self) -> str: ...
    @property
    def classes(self) -> Any: ...
    @property
    def inner(self) -> InnerSolver | None: ...
    @property
    def linear(self) -> LinearSolver | None: ...


def fitting(loss: Loss, targets: Targets, data: Dataset) -> Loss:
    """The loss itself, but for rows that show one class only uncentred: centring would leave
    nothing to fit."""
    centred = (
        isinstance(loss, SquaredError)
        and loss.centre
        and targets.classes is not None
        and len(targets.classes) > 1
    )
    if centred and len(np.unique(targets.values[data.weights > 0])) == 1:
        return SquaredError(centre=False)
    return loss


@dataclass(frozen=True)
class Prepared:
    """A problem with its solvers, ready to run."""

    problem: Problem
    kernel: Kernel
    targets: Targets
    inner: InnerSolver
    linear: LinearSolver

    def implicit(self, capacity: int) -> ImplicitForward:
        return ImplicitForward(self.problem, max(capacity, 1), self.inner, self.linear)

    def decoded(self, predictions: Tensor) -> Array:
        """Labels or targets of the model's outputs."""
        if isinstance(self.problem.inner_loss, SquaredError):  # what centring took off
            like = self.problem.train.like
            predictions = (
                predictions + (encoded(self.targets, like) - self.problem.inner_targets)[:1]
            )
        classes = self.targets.classes
        if classes is None:
            values: Array = predictions.double().cpu().numpy()
            return values[:, 0] if values.shape[1] == 1 else values
        codes = (
            (predictions[:, 0] > 0).long() if predictions.shape[1] == 1 else predictions.argmax(1)
        )
        labels: Array = classes[codes.cpu().numpy()]
        return labels

    def configuration(self, selector: Configured, outer: Dataset | None) -> str:
        """A digest of all that decides the objective: kernel, losses, regulariser, kind of weights,
        outer set."""
        problem = self.problem
        classes = None if self.targets.classes is None else self.targets.classes.tolist()
        parts = (
            self.kernel,
            problem.inner_loss,
            problem.outer_loss,
            problem.regulariser,
            selector.weights,
            classes,
        )
        words = "|".join(map(repr, parts)) + ("" if outer is None else outer.fingerprint())
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def info(self, selector: Configured, data: Dataset, seed: int, clock: Clock) -> dict[str, Any]:
        regulariser: Regulariser = self.problem.regulariser
        like = self.problem.train.like
        return {
            "method": selector.name,
            "n": len(data),
            "kernel": self.kernel.name,
            "kernel_parameters": repr(self.kernel),
            "solvers": repr((self.inner, self.linear, selector.optimiser)),
            "loss": self.problem.inner_loss.name,
            "outer_loss": self.problem.outer_loss.name,
            "inner_reg": regulariser.value,
            "inner_reg_form": "per point" if isinstance(regulariser, PerPoint) else "constant",
            "inner_reg_auto": as_regulariser(selector.inner_reg) is None,
            "weights": selector.weights,
            "rule": selector.rule,
            "candidates": selector.candidates,
            "first": selector.first,
            "task": self.targets.task,
            "classes": None if self.targets.classes is None else self.targets.classes.tolist(),
            "operator": type(self.problem.train).__name__.lower(),
            "dtype": str(like.dtype).removeprefix("torch."),
            "device": str(like.device),
            "seed": seed,
            "seconds": clock.seconds,
            "fingerprint": data.fingerprint(),
            "versions": {
                "bicore": __version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
        }


def losses_of(selector: Configured) -> tuple[Loss, Loss]:
    """Of the inner and of the outer problem."""
    inner = as_loss(selector.loss)
    return inner, inner if selector.outer_loss is None else as_loss(
        selector.outer_loss, "outer_loss"
    )


def squared(selector: Configured) -> bool:
    """Whether both losses are the squared error, so that closed forms hold."""
    inner, outer = losses_of(selector)
    return isinstance(inner, SquaredError) and outer == inner


def prepare(
    selector: Configured,
    data: Dataset,
    outer: Dataset | None,
    count: int,
    seed: int,
    runtime: Runtime,
) -> Prepared:
    """Check, encode, allocate: everything before the first point."""
    targets, outer_targets = targets_of(selector, data, outer)
    inner_loss, outer_loss = (fitting(loss, targets, data) for loss in losses_of(selector))
    outputs = inner_loss.outputs(targets)
    if outer_loss.outputs(targets) != outputs:
        other = outer_loss.outputs(targets)
        raise InputError(
            f"loss={inner_loss.name!r} predicts {outputs} numbers and "
            f"outer_loss={outer_loss.name!r} {other}; they must agree."
        )
    kernel = as_kernel(selector.kernel).fitted(
        data.x if (np.diff(data.ids) > 0).all() else data.x[np.argsort(data.ids)]
    )
    rows = len(data) + (0 if outer is None else len(outer))
    width = max(count, SUBSET_SIZE if as_regulariser(selector.inner_reg) is None else 0)
    reserve = _reserve(selector, rows, width, outputs, runtime)
    train, cross = build_operators(
        kernel, data.x, None if outer is None else outer.x, reserve, runtime
    )
    weights = as_tensor(data.weights).to(train.like)
    outer_weights = weights if outer is None else as_tensor(outer.weights).to(train.like)
    problem = Problem(
        train,
        cross,
        inner_loss,
        outer_loss,
        inner_loss.prepare(targets, targets, weights, train.like),
        outer_loss.prepare(outer_targets, targets, weights, train.like),
        outer_weights / outer_weights.sum(),
        outputs,
        as_regulariser(selector.inner_reg) or Constant(1.0),
    )
    closed = isinstance(inner_loss, SquaredError)
    inner = selector.inner or (Ridge() if closed else Newton(selector.linear or Adaptive()))
    prepared = Prepared(problem, kernel, targets, inner, selector.linear or Adaptive())
    if as_regulariser(selector.inner_reg) is None:
        counted = np.flatnonzero(data.weights > 0)
        # row order plays no part
        eligible = torch.from_numpy(counted[np.argsort(data.ids[counted], kind="stable")])
        own = problem
        if outer is not None:  # the rule looks at the training data alone
            aims = outer_loss.prepare(targets, targets, weights, train.like)
            own = replace(
                problem, cross=train, outer_targets=aims, outer_weights=weights / weights.sum()
            )
        chosen = automatic(own, eligible, prepared.inner, prepared.linear, seed)
        prepared = replace(prepared, problem=replace(problem, regulariser=chosen))
    return prepared


def _reserve(
    selector: Configured, rows: int, width: int, outputs: int, runtime: Runtime
) -> Reserve:
    """The engine's own memory: kernel rows of the chosen points, a few vectors a data point, a few
    m×m matrices."""
    vectors = 8 * rows * outputs * 8
    squares = 3 * width * width * runtime.itemsize
    # the columns of all points taken, and their products
    refines = as_strategy(selector.strategy).refines
    factor = (
        rows * width * runtime.itemsize * ((2 if selector.weights == "final" else 1) + 2 * refines)
    )
    closed = (
        squared(selector)
        and selector.weights == "binary"
        and as_regulariser(selector.inner_reg) is not None
    )
    closed = closed and selector.rule in ("gradient", "gain") and not refines
    if selector.rule == "reducible":
        factor += min(rows, REFERENCE_POINTS) * rows * runtime.itemsize
    return Reserve(factor + vectors + squares, vectors if closed else factor + vectors + squares)


def targets_of(
    selector: Configured, data: Dataset, outer: Dataset | None
) -> tuple[Targets, Targets]:
    """The labels or targets of the data and of the outer set, as the losses read them."""
    if data.y is None:
        raise InputError(
            f"{selector.name} needs labels or targets, and data has none; give y, or a method "
            "without labels."
        )
    targets = read_targets(data.y, selector.task, selector.classes)
    if targets.classes is not None and len(targets.classes) == 1 and len(data) > 1:
        raise InputError(
            f"y holds a single class ({targets.classes.tolist()[0]!r}); two are needed (or give "
            "classes=…, task='regression')."
        )
    if outer is None:
        return targets, targets
    if outer.y is None:
        raise InputError("the outer set has no labels; the outer objective needs them.")
    if outer.x.shape[1:] != data.x.shape[1:]:
        raise InputError(
            f"the outer set has rows of shape {outer.x.shape[1:]} and data of {data.x.shape[1:]}; "
            "they must match."
        )
    other = read_targets(outer.y, targets.task, targets.classes)
    if other.task == "regression" and other.values.shape[1] != targets.values.shape[1]:
        raise InputError(
            f"the outer set has {other.values.shape[1]} targets and data "
            f"{targets.values.shape[1]}; they must match."
        )
    return targets, other
