"""The bilevel problem and its solvers; see :mod:`bicore.bilevel.problem` for the two equations."""

from bicore.bilevel.problem import PerPoint
from bicore.bilevel.solvers.inner import LBFGS, Newton, Ridge
from bicore.bilevel.solvers.linear import Adaptive, Cholesky, ConjugateGradient, Neumann
from bicore.bilevel.solvers.weights import Adam, ProjectedGradient

__all__ = [
    "LBFGS",
    "Adam",
    "Adaptive",
    "Cholesky",
    "ConjugateGradient",
    "Neumann",
    "Newton",
    "PerPoint",
    "ProjectedGradient",
    "Ridge",
]
