"""A bilevel problem with its solvers, ready to run, and what a coreset is told about it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bicore._version import __version__
from bicore.bilevel.implicit import ImplicitForward
from bicore.bilevel.inner import InnerSolver
from bicore.bilevel.linear import LinearSolver
from bicore.bilevel.problem import PerPoint, Problem, Regulariser
from bicore.data import Array, Dataset, Targets
from bicore.kernels.base import Kernel
from bicore.losses import Loss, SquaredError, encoded
from bicore.runtime import Clock
from bicore.selection.names import as_regulariser


class Configured(Protocol):
    """The settings of a selector that a coreset keeps a note of."""

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


def fitting(loss: Loss, targets: Targets, data: Dataset) -> Loss:
    """The loss itself, but for rows that show one class only uncentred: centring would leave nothing to fit."""
    centred = isinstance(loss, SquaredError) and loss.centre and targets.classes is not None and len(targets.classes) > 1
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
            predictions = predictions + (encoded(self.targets, like) - self.problem.inner_targets)[:1]
        classes = self.targets.classes
        if classes is None:
            values: Array = predictions.double().cpu().numpy()
            return values[:, 0] if values.shape[1] == 1 else values
        codes = (predictions[:, 0] > 0).long() if predictions.shape[1] == 1 else predictions.argmax(1)
        labels: Array = classes[codes.cpu().numpy()]
        return labels

    def configuration(self, selector: Configured, outer: Dataset | None) -> str:
        """A digest of all that decides the objective: kernel, losses, regulariser, kind of weights, outer set."""
        problem = self.problem
        classes = None if self.targets.classes is None else self.targets.classes.tolist()
        parts = (self.kernel, problem.inner_loss, problem.outer_loss, problem.regulariser, selector.weights, classes)
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
            "versions": {"bicore": __version__, "torch": torch.__version__, "numpy": np.__version__},
        }
