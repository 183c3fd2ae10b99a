"""Which solvers serve a problem, where none were asked for by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from bicore.bilevel.solvers.inner import InnerSolver, Newton, Ridge
from bicore.bilevel.solvers.linear import Adaptive, LinearSolver
from bicore.losses import Loss


@dataclass(frozen=True)
class Solvers:
    """Of the inner problem, and of the linear systems of its derivative."""

    inner: InnerSolver = field(default_factory=Newton)
    linear: LinearSolver = field(default_factory=Adaptive)


def solvers_for(loss: Loss, inner: InnerSolver | None, linear: LinearSolver | None) -> Solvers:
    """Those asked for; else the closed form for the squared error and Newton's method beyond."""
    system = linear or Adaptive()
    fitted = inner or (Ridge() if loss.quadratic else Newton(system))
    return Solvers(fitted, system)
