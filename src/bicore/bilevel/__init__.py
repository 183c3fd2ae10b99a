"""The method: the bilevel problem, its rules, engines, solvers and strategies.

See :mod:`bicore.bilevel.problem` for the two equations.
"""

from bicore.bilevel.problem import Constant, Learned, PerPoint
from bicore.bilevel.regularisation import Automatic
from bicore.bilevel.rules import FirstOrder, Gain, Gradient, ReducibleLoss, Rule
from bicore.bilevel.solvers.inner import LBFGS, Newton, Ridge
from bicore.bilevel.solvers.linear import Adaptive, Cholesky, ConjugateGradient, Neumann
from bicore.bilevel.solvers.weights import Adam, ProjectedGradient, WeightMode

__all__ = [
    "LBFGS",
    "Adam",
    "Adaptive",
    "Automatic",
    "Cholesky",
    "ConjugateGradient",
    "Constant",
    "FirstOrder",
    "Gain",
    "Gradient",
    "Learned",
    "Neumann",
    "Newton",
    "PerPoint",
    "ProjectedGradient",
    "ReducibleLoss",
    "Ridge",
    "Rule",
    "WeightMode",
]
