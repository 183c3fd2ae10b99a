"""The bilevel problem on a network's own parameters: the paper's standard formulation, without a
proxy.

    inner   θ*(w) = argmin_θ Σ_{i∈S} w_i ℓ_i(θ) + ρ‖θ‖²        outer   G(w) = Σ_j v_j ℓ_j(θ*)
    ∂G/∂w_k = −⟨∇ℓ_k(θ*), u⟩,   (∇²inner + damping) u = ∇G(θ*)

A score is a derivative of a loss along u, so one forward pass with tangents scores every point; a
product with the Hessian costs about two gradients. Rows come in batches, and everything is a
function of one flat vector θ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp

from bicore.errors import InputError, NumericalError

#: Rows of one batch.
BATCH = 512

#: Losses of the rows of a batch, from outputs and targets.
Criterion = Callable[[Tensor, Tensor], Tensor]


class FlatModule:
    """A module as a function of one vector of all its parameters that can be trained."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.names = [name for name, value in module.named_parameters() if value.requires_grad]
        values = dict(module.named_parameters())
        if not self.names:
            raise InputError(
                "the model has no parameter that can be trained; set requires_grad, or give "
                "another."
            )
        self.shapes = [values[name].shape for name in self.names]
        self.start = torch.cat([values[name].detach().flatten() for name in self.names])

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
        for start in range(0, len(self), size):
            yield Rows(
                self.x[start : start + size],
                self.y[start : start + size],
                self.weight[start : start + size],
            )


class Pool(Protocol):
    """Points that come in batches, always in the same order, and one by one."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Tensor) -> Rows: ...
    def batches(self) -> Iterator[Rows]: ...


@dataclass(frozen=True, eq=False)
class Loaded:
    """Points whose inputs a DataLoader brings, batch by batch: nothing but targets and weights is
    kept."""

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
            stop = start + len(inputs)
            yield Rows(inputs.to(self.like), self.y[start:stop], self.weight[start:stop])
            start = stop
        if start != len(self):
            raise InputError(
                f"the loader brought {start} rows where it had {len(self)} before; it must bring "
                "the same every time."
            )


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """A module with a loss and the regulariser ρ."""

    module: FlatModule
    criterion: Criterion
    rho: float
    gauss_newton: bool = False

    def losses(self, theta: Tensor, rows: Rows) -> Tensor:
        return self.criterion(self.module(theta, rows.x), rows.y)

    def weighted(self, theta: Tensor, rows: Rows) -> Tensor:
        return self.losses(theta, rows) @ rows.weight

    def inner(self, theta: Tensor, rows: Rows) -> Tensor:
        return self.weighted(theta, rows) + self.rho * theta.square().sum()

    def outer_value(self, theta: Tensor, rows: Pool) -> float:
        with torch.no_grad():
            value = float(sum(float(self.weighted(theta, part)) for part in rows.batches()))
        if not np.isfinite(value):
            raise NumericalError(
                f"the outer objective became {value}; use a larger inner_reg, a smaller step, or "
                "scale x."
            )
        return value

    def outer_gradient(self, theta: Tensor, rows: Pool) -> Tensor:
        total = torch.zeros_like(theta)
        for part in rows.batches():
            total += grad(self.weighted)(theta, part)
        return total

    def hessian_product(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """∇²inner · direction, the tangent of the gradient; or its Gauss–Newton part, which is
        never negative."""
        total = 2 * self.rho * direction
        for part in rows.batches():
            if self.gauss_newton:
                total = total + self._gauss_newton(theta, part, direction)
            else:
                total = (
                    total
                    + jvp(
                        lambda point, part=part: grad(self.weighted)(point, part),
                        (theta,),
                        (direction,),
                    )[1]
                )
        return total

    def _gauss_newton(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """Jᵀ ∇²ℓ J · direction, J being the derivative of the outputs in θ."""

        def outputs(point: Tensor) -> Tensor:
            return self.module(point, rows.x)

        def loss(values: Tensor) -> Tensor:
            return self.criterion(values, rows.y) @ rows.weight

        both = jvp(outputs, (theta,), (direction,))
        pulled: Tensor = vjp(outputs, theta)[1](jvp(grad(loss), (both[0],), (both[1],))[1])[0]
        return pulled

    def along(self, theta: Tensor, rows: Pool, direction: Tensor) -> Tensor:
        """⟨∇ℓ_k, direction⟩ of every row."""
        return torch.cat(
            [
                jvp(lambda point, part=part: self.losses(point, part), (theta,), (direction,))[
                    1
                ].detach()
                for part in rows.batches()
            ]
        )


class Training(ABC):
    """How the inner problem is solved."""

    @abstractmethod
    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        """The parameters fitted to the rows, from ``start``."""


@dataclass(frozen=True)
class QuasiNewton(Training):
    """L-BFGS with a strong Wolfe search over all rows at once: for inner problems that are to be
    solved."""

    iterations: int = 200
    tolerance: float = 1e-9

    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        theta = start.detach().clone().requires_grad_(True)
        optimiser = torch.optim.LBFGS(
            [theta],
            max_iter=self.iterations,
            tolerance_grad=self.tolerance,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = problem.inner(theta, rows)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        return _finite(theta.detach())


@dataclass(frozen=True)
class Stochastic(Training):
    """Adam over mini-batches: for networks and coresets of any size, solved as well as one would
    train."""

    epochs: int = 100
    batch: int = 64
    rate: float = 1e-3

    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        theta = start.detach().clone().requires_grad_(True)
        optimiser = torch.optim.Adam([theta], lr=self.rate)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.epochs):
            for part in torch.randperm(len(rows), generator=generator).split(self.batch):  # type: ignore[no-untyped-call]
                some = rows[part.to(theta.device)]
                with torch.enable_grad():
                    loss = (
                        problem.weighted(theta, some) * (len(rows) / len(some))
                        + problem.rho * theta.square().sum()
                    )
                    (theta.grad,) = torch.autograd.grad(loss / len(rows), theta)
                optimiser.step()
        return _finite(theta.detach())


class InverseHessian(ABC):
    """How (∇²inner + damping) u = g is solved."""

    @abstractmethod
    def solve(self, product: Callable[[Tensor, int], Tensor], gradient: Tensor) -> Tensor:
        """u; ``product(v, step)`` multiplies by the Hessian, of a mini-batch of that step where
        batches are drawn."""


@dataclass(frozen=True)
class ConjugateGradients(InverseHessian):
    """CG on products with the Hessian of the whole coreset, or of ``mini_batch`` of its rows, drawn
    once for every solve."""

    steps: int = 50
    damping: float = 0.0
    tolerance: float = 1e-8
    mini_batch: int | None = None

    def solve(self, product: Callable[[Tensor, int], Tensor], gradient: Tensor) -> Tensor:
        solution = torch.zeros_like(gradient)
        residual = gradient.clone()
        direction = residual.clone()
        power = float(residual @ residual)
        goal = self.tolerance**2 * power
        for _ in range(self.steps):
            if power <= goal:
                break
            image = product(direction, 0) + self.damping * direction
            curvature = float(direction @ image)
            if not curvature > 0:
                raise NumericalError(
                    "the Hessian of the inner problem is not positive definite (curvature "
                    f"{curvature:.3g}); raise inner_reg or "
                    f"damping={self.damping:g}, fit the inner problem further, or use "
                    "curvature='gauss-newton'."
                )
            length = power / curvature
            solution += length * direction
            residual -= length * image
            previous = power
            power = float(residual @ residual)
            direction = residual + (power / previous) * direction
        return solution


@dataclass(frozen=True)
class NeumannSeries(InverseHessian):
    """u = η Σ_t (I − η(H + damping))ᵗ g, a product a term; ``rate`` η must be below 2/‖H‖. With
    ``mini_batch`` rows of the coreset are drawn for every term.
    """

    steps: int = 100
    rate: float = 1e-2
    damping: float = 0.0
    mini_batch: int | None = None

    def solve(self, product: Callable[[Tensor, int], Tensor], gradient: Tensor) -> Tensor:
        term = gradient.clone()
        total = gradient.clone()
        largest = float(gradient.norm())
        for step in range(1, self.steps):
            term = term - self.rate * (product(term, step) + self.damping * term)
            size = float(term.norm())
            if not size <= 2 * largest:
                raise NumericalError(
                    f"the Neumann series diverges (a term of norm {size:.3g} after one of "
                    f"{largest:.3g}); lower rate={self.rate:g} "
                    "below 2 over the largest eigenvalue of the Hessian, or use ConjugateGradients."
                )
            largest = max(largest, size)
            total += term
        return self.rate * total


def _finite(theta: Tensor) -> Tensor:
    if not bool(torch.isfinite(theta).all()):
        raise NumericalError(
            "the inner problem diverged; use a smaller step, a larger inner_reg, or scale x."
        )
    return theta
