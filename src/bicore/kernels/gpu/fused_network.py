"""What the fused kernels ask of a network, and how they say no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from bicore.errors import BicoreError
from bicore.kernels.architecture import Layer, State


class Network(Protocol):
    """A network kernel as :class:`bicore.kernels.TangentKernel` has it."""

    @property
    def layers(self) -> Sequence[Layer]: ...

    @property
    def name(self) -> str: ...

    @property
    def pooled(self) -> bool: ...

    def notes(self, a: Tensor) -> list[Tensor]: ...

    def answer(self, state: State) -> Tensor: ...


class NotCoveredError(BicoreError):
    """A network, or images, that the fused kernels are not made for; the text says why."""
