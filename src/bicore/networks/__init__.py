"""The user's own network: what it says about points, and the bilevel problem on its parameters."""

from bicore.networks.dropout import dropout_probabilities
from bicore.networks.observe import Observed, observe

__all__ = ["Observed", "dropout_probabilities", "observe"]
