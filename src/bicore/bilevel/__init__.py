"""Bilevel selection: the problem, its rules, engines, solvers and strategies.

See :mod:`bicore.bilevel.problem` for the two equations.
"""

from bicore._deprecated import keep_old_names
from bicore.arguments import Relative
from bicore.bilevel.problem import Learned, PerPoint
from bicore.bilevel.solvers.inner import LBFGS, Cholesky, ConjugateGradient, Newton, Ridge
from bicore.bilevel.weights import Adam, ProjectedGradient

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

keep_old_names(__name__)
