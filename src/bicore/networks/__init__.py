"""The user's own network: what it says about points, and the bilevel problem on its parameters."""

from bicore.networks.dropout import dropout_probabilities
from bicore.networks.inverse_hessian import ConjugateGradients, InverseHessian, NeumannSeries
from bicore.networks.observe import Observed, observe
from bicore.networks.problem import FlatModule, NetworkProblem, Rows
from bicore.networks.training import QuasiNewton, Stochastic, Training

__all__ = [
    "ConjugateGradients",
    "FlatModule",
    "InverseHessian",
    "NetworkProblem",
    "NeumannSeries",
    "Observed",
    "QuasiNewton",
    "Rows",
    "Stochastic",
    "Training",
    "dropout_probabilities",
    "observe",
]
