"""The user's own network: what it says about points, and the bilevel problem on its parameters."""

from bicore.networks.inverse_hessian import ConjugateGradients, InverseHessian, NeumannSeries
from bicore.networks.problem import FlatModule, NetworkProblem, Rows
from bicore.networks.training import QuasiNewton, Stochastic, Training

__all__ = [
    "ConjugateGradients",
    "FlatModule",
    "InverseHessian",
    "NetworkProblem",
    "NeumannSeries",
    "QuasiNewton",
    "Rows",
    "Stochastic",
    "Training",
]
