"""The method: the bilevel problem, its rules, engines, solvers and strategies.

See :mod:`bicore.bilevel.problem` for the two equations.
"""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved
from bicore.bilevel.problem import Learned, PerPoint
from bicore.bilevel.solvers.inner import LBFGS, Newton, Ridge
from bicore.bilevel.solvers.linear import Cholesky, ConjugateGradient
from bicore.bilevel.solvers.weights import Adam, ProjectedGradient
from bicore.picking import Relative

__all__ = [
    "LBFGS",
    "Adam",
    "Cholesky",
    "ConjugateGradient",
    "Learned",
    "Newton",
    "PerPoint",
    "ProjectedGradient",
    "Relative",
    "Ridge",
]

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)
