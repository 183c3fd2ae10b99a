"""Kernels that stand in for the networks, computed on the GPU for selections that run on the host.

A choice among a thousand points is a chain of small steps that a processor takes sooner than a GPU;
the kernel before it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor

from bicore import RBF, Kernel
from experiments.problems import Problem

#: γ of the paper's RBF kernel.
GAMMA = 5e-4


@dataclass(frozen=True)
class Elsewhere(Kernel):
    """The same kernel, computed on another device than the one that asks."""

    kernel: Kernel
    device: str

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a.to(self.device), b.to(self.device)).to(a.device)

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        return self.kernel.gram(a.to(self.device), block).to(a.device)

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a.to(self.device)).to(a.device)

    @property
    def name(self) -> str:
        return self.kernel.name


class Proxy(Enum):
    """What stands in for the network that is trained."""

    NETWORK = "the kernel of that network"
    RBF = "an RBF kernel"

    def kernel(self, problem: Problem, device: str) -> Kernel:
        kernel = RBF(GAMMA) if self is Proxy.RBF else problem.kernel()
        return Elsewhere(kernel, device) if device != "cpu" else kernel
