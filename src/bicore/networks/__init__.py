"""The user's own network: its outputs, and the bilevel problem on its parameters."""

from bicore.networks.observe import Observed, dropout_probabilities, observe
from bicore.networks.problem import FlatModule, NetworkProblem, Rows
from bicore.networks.solvers import (
    ConjugateGradients,
    InverseHessian,
    NeumannSeries,
    QuasiNewton,
    Stochastic,
    Training,
)

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
