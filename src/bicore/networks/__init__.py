"""The user's own network: its outputs, and the bilevel problem on its parameters."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved
from bicore.networks.observe import observe
from bicore.networks.problem import (
    ConjugateGradients,
    QuasiNewton,
    Stochastic,
    Training,
)

__all__ = [
    "ConjugateGradients",
    "QuasiNewton",
    "Stochastic",
    "Training",
    "observe",
]

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)
