"""The bilevel problem on a network's own parameters: the paper's formulation, without a proxy.

    inner   θ*(w) = argmin_θ f(θ, w),   f = Σ_{i∈S} w_i ℓ_i(θ) + ρ‖θ‖² + f₁(θ, w)
    outer   G(w) = g(θ*(w), w),         g = Σ_j v_j ℓ_j(θ) + g₁(θ, w)
    dG/dw_k = ∂g/∂w_k − ⟨∂²f/∂w_k∂θ, u⟩,   (∇²f + damping) u = ∇g(θ*)

f₁ and g₁ are terms of the user's that depend on the weights of all points, zero by default; the
rest of ∂²f/∂w_k∂θ is ∇ℓ_k. A score is a derivative of a loss along u, so one forward pass with
tangents scores every point; a product with the Hessian costs about two gradients. Rows come in
batches, and everything is a function of one flat vector θ. ``solvers.py`` computes θ* and u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp

from bicore.errors import InputError, NumericalError
from bicore.runtime.clock import checkpoint

#: Rows of one batch.
BATCH = 512

#: Losses of the rows of a batch, from outputs and targets.
Criterion = Callable[[Tensor, Tensor], Tensor]
#: A number that depends on θ and the weights of all points.
Term = Callable[[Tensor, Tensor], Tensor]


def no_term(theta: Tensor, weights: Tensor) -> Tensor:
    """Zero, for objectives without a term of their own."""
    return theta.new_zeros(())


class FlatModule:
    """A module as a function of one vector of all its parameters that can be trained."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        values = {name: one for name, one in module.named_parameters() if one.requires_grad}
        if not values:
            raise InputError("the model has no parameter to train; set requires_grad.")
        self.names = list(values)
        self.shapes = [one.shape for one in values.values()]
        self.start = torch.cat([one.detach().flatten() for one in values.values()])

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        parts = torch.split(theta, [shape.numel() for shape in self.shapes])
        named = {
            name: part.view(shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }
        outputs: Tensor = functional_call(self.module, named, (x,))
        return outputs


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs, targets and weights of some points."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> Rows:
        return Rows(self.x[rows], self.y[rows], self.weight[rows])

    def batches(self, size: int = BATCH) -> Iterator[Rows]:
        """All points in order, some at a time."""
        for start in range(0, len(self), size):
            checkpoint(start / len(self))
            part = slice(start, start + size)
            yield Rows(self.x[part], self.y[part], self.weight[part])


class Pool(Protocol):
    """Points that come in batches, always in the same order, and one by one."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Tensor) -> Rows: ...
    def batches(self) -> Iterator[Rows]: ...


@dataclass(frozen=True, eq=False)
class Loaded:
    """Points whose inputs a DataLoader brings, batch by batch; only targets and weights are kept.

    ``like`` has the device and the precision that inputs are brought to.
    """

    loader: Any
    y: Tensor
    weight: Tensor
    like: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor) -> Rows:
        items = [self.loader.dataset[int(row)] for row in rows]
        inputs = self.loader.collate_fn(items)[0] if items else self.like.new_empty(0)
        return Rows(inputs.to(self.like), self.y[rows], self.weight[rows])

    def batches(self) -> Iterator[Rows]:
        start = 0
        for inputs, *_ in self.loader:
            checkpoint(start / len(self))
            stop = start + len(inputs)
            yield Rows(inputs.to(self.like), self.y[start:stop], self.weight[start:stop])
            start = stop
        if start != len(self):
            raise InputError(f"the loader gave {start} rows instead of {len(self)} as before.")


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """A network with a loss and the regulariser ρ: the inner and the outer problem in θ."""

    module: FlatModule
    criterion: Criterion
    rho: float
    gauss_newton: bool = False
    inner_term: Term = field(default_factory=lambda: no_term)
    outer_term: Term = field(default_factory=lambda: no_term)
    weights: Tensor = field(default_factory=partial(torch.zeros, 0))

    def losses(self, theta: Tensor, rows: Rows) -> Tensor:
        """The loss of each row, not weighted."""
        return self.criterion(self.module(theta, rows.x), rows.y)

    def weighted(self, theta: Tensor, rows: Rows) -> Tensor:
        """The weighted sum of the losses."""
        return self.losses(theta, rows) @ rows.weight

    def inner(self, theta: Tensor, rows: Rows) -> Tensor:
        """The inner objective Σ w ℓ + ρ‖θ‖² + f₁."""
        return self.weighted(theta, rows) + self.penalty(theta)

    def penalty(self, theta: Tensor) -> Tensor:
        """The part of the inner objective that no row has: ρ‖θ‖² + f₁."""
        return self.rho * theta.square().sum() + self.inner_term(theta, self.weights)

    def outer_value(self, theta: Tensor, rows: Pool) -> float:
        """The outer objective, the weighted sum of the losses of all data."""
        with torch.no_grad():
            value = float(sum(float(self.weighted(theta, part)) for part in rows.batches()))
            value += float(self.outer_term(theta, self.weights))
        if not np.isfinite(value):
            raise NumericalError(
                f"the outer objective became {value}; use a larger inner_reg, a smaller step, or "
                "scale x."
            )
        return value

    def outer_gradient(self, theta: Tensor, rows: Pool) -> Tensor:
        """The gradient of the outer objective in θ."""
        total: Tensor = grad(self.outer_term)(theta, self.weights)
        for part in rows.batches():
            total += grad(self.weighted)(theta, part)
        return total

    def hessian_product(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """The inner problem's Hessian, or its Gauss–Newton part, times a direction."""
        product = self._gauss_newton_product if self.gauss_newton else self._full_product
        total: Tensor = jvp(grad(self.penalty), (theta,), (direction,))[1]
        for part in rows.batches():
            total = total + product(theta, part, direction)
        return total

    def _full_product(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """∇²(Σ w ℓ) · direction, the tangent of the gradient."""
        gradient = partial(grad(self.weighted), rows=rows)
        product: Tensor = jvp(gradient, (theta,), (direction,))[1]
        return product

    def _gauss_newton_product(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """Jᵀ ∇²ℓ J · direction, J being the derivative of the outputs in θ."""
        outputs = partial(self.module, x=rows.x)

        def loss(values: Tensor) -> Tensor:
            return self.criterion(values, rows.y) @ rows.weight

        values, tangent, *_ = jvp(outputs, (theta,), (direction,))
        curved = jvp(grad(loss), (values,), (tangent,))[1]
        product: Tensor = vjp(outputs, theta)[1](curved)[0]
        return product

    def along(self, theta: Tensor, rows: Pool, direction: Tensor) -> Tensor:
        """⟨∇ℓ_k, direction⟩ of every row."""
        found = []
        for part in rows.batches():
            # the derivative of every loss along the direction, in one pass with tangents
            slopes = jvp(partial(self.losses, rows=part), (theta,), (direction,))[1]
            found.append(slopes.detach())
        return torch.cat(found)

    def term_slopes(self, theta: Tensor, direction: Tensor) -> Tensor:
        """∂g₁/∂w_k − ⟨∂²f₁/∂w_k∂θ, direction⟩ of every point."""

        def along(weights: Tensor) -> Tensor:
            tangent: Tensor = jvp(
                lambda inside: self.inner_term(inside, weights), (theta,), (direction,)
            )[1]
            return tangent

        slopes: Tensor = grad(self.outer_term, argnums=1)(theta, self.weights)
        slopes = slopes - grad(along)(self.weights)
        return slopes
