"""The user's network: its outputs, and the bilevel problem on its parameters."""

from bicore._deprecated import keep_old_names
from bicore.networks.observe import observe
from bicore.networks.problem import ConjugateGradients, QuasiNewton, Stochastic, Training

__all__ = ["ConjugateGradients", "QuasiNewton", "Stochastic", "Training", "observe"]

keep_old_names(__name__)
