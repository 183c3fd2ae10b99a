"""The bilevel problem on the parameters of a network: the paper's formulation without a proxy.

    inner   θ*(w) = argmin_θ f(θ, w),   f = Σ_{i∈S} w_i ℓ_i(θ) + ρ‖θ‖² + f₁(θ, w)
    outer   G(w) = g(θ*(w), w),         g = Σ_j v_j ℓ_j(θ) + g₁(θ, w)
    dG/dw_k = ∂g/∂w_k − ⟨∂²f/∂w_k∂θ, u⟩,   (∇²f + damping) u = ∇g(θ*)

f₁ and g₁ are terms given by the user that depend on the weights of all rows, zero by default; the
rest of ∂²f/∂w_k∂θ is ∇ℓ_k. A score is a derivative of a loss along u, so one forward pass with
tangents scores every row; a product with the Hessian costs about two gradients. Rows come in
batches, and everything is a function of one flat vector θ. A :class:`Training` computes θ*, an
:class:`InverseHessian` u.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp

from bicore.errors import InputError, NumericalError, check_settings
from bicore.networks.loading import Reading
from bicore.numerics.linear_algebra import conjugate_gradients
from bicore.runtime.clock import checkpoint

#: Rows of one batch.
BATCH = 512
#: L-BFGS ends if a step changes θ and the objective by less: far below any tolerance of the
#: gradient, which therefore decides.
SMALLEST_CHANGE = 1e-14
#: Multiplies a direction by the Hessian, of the mini-batch of the given step if batches are drawn.
Product = Callable[[Tensor, int], Tensor]
#: Terms of a converging series do not grow, up to the noise of mini-batches.
GROWTH_ALLOWED = 2.0

#: Losses of the rows of a batch, from outputs and targets.
Criterion = Callable[[Tensor, Tensor], Tensor]
#: A number that depends on θ and the weights of all rows.
Term = Callable[[Tensor, Tensor], Tensor]


def no_term(theta: Tensor, weights: Tensor) -> Tensor:
    """Return zero, for objectives without an additional term."""
    return theta.new_zeros(())


class FlatModule:
    """A module as a function of one vector of its trainable parameters."""

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
    """Inputs, targets and weights of some rows."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> Rows:
        return Rows(self.x[rows], self.y[rows], self.weight[rows])

    def batches(self, size: int = BATCH) -> Iterator[Rows]:
        """Yield all rows in order, in batches."""
        for start in range(0, len(self), size):
            checkpoint(start / len(self))
            part = slice(start, start + size)
            yield Rows(self.x[part], self.y[part], self.weight[part])


@dataclass(frozen=True, eq=False)
class Loaded:
    """Rows whose inputs are read in batches; only targets and weights are stored.

    ``like`` has the device and the precision that inputs are brought to.
    """

    reading: Reading
    y: Tensor
    weight: Tensor
    like: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor) -> Rows:
        inputs = self.reading.items(rows.tolist()) if len(rows) else self.like.new_empty(0)
        return Rows(inputs.to(self.like), self.y[rows], self.weight[rows])

    def batches(self) -> Iterator[Rows]:
        start = 0
        for batch in self.reading:
            checkpoint(start / len(self))
            stop = start + len(batch["x"])
            yield Rows(batch["x"].to(self.like), self.y[start:stop], self.weight[start:stop])
            start = stop
        if start != len(self):
            raise InputError(f"the data set gave {start} rows instead of {len(self)} as before.")


#: Rows that come in batches, always in the same order, or one by one.
Pool = Rows | Loaded


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
        """Return the unweighted loss of each row."""
        return self.criterion(self.module(theta, rows.x), rows.y)

    def weighted_loss(self, theta: Tensor, rows: Rows) -> Tensor:
        """Return the weighted sum of the losses."""
        return self.losses(theta, rows) @ rows.weight

    def inner(self, theta: Tensor, rows: Rows) -> Tensor:
        """Return the inner objective Σ w ℓ + ρ‖θ‖² + f₁."""
        return self.weighted_loss(theta, rows) + self.penalty(theta)

    def penalty(self, theta: Tensor) -> Tensor:
        """Return the part of the inner objective without rows: ρ‖θ‖² + f₁."""
        return self.rho * theta.square().sum() + self.inner_term(theta, self.weights)

    def outer_value(self, theta: Tensor, rows: Pool) -> float:
        """Return the outer objective, the weighted sum of the losses of all data."""
        with torch.no_grad():
            value = float(sum(float(self.weighted_loss(theta, part)) for part in rows.batches()))
            value += float(self.outer_term(theta, self.weights))
        if not np.isfinite(value):
            raise NumericalError(
                f"the outer objective became {value}; use a larger inner_reg, a smaller step, or "
                "scale x."
            )
        return value

    def outer_gradient(self, theta: Tensor, rows: Pool) -> Tensor:
        """Return the gradient of the outer objective in θ."""
        total: Tensor = grad(self.outer_term)(theta, self.weights)
        for part in rows.batches():
            total += grad(self.weighted_loss)(theta, part)
        return total

    def hessian_product(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """Multiply a direction by the inner problem's Hessian or its Gauss–Newton part."""
        product = self._gauss_newton_product if self.gauss_newton else self._full_product
        total: Tensor = jvp(grad(self.penalty), (theta,), (direction,))[1]
        for part in rows.batches():
            total = total + product(theta, part, direction)
        return total

    def _full_product(self, theta: Tensor, rows: Rows, direction: Tensor) -> Tensor:
        """∇²(Σ w ℓ) · direction, the tangent of the gradient."""
        gradient = partial(grad(self.weighted_loss), rows=rows)
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

    def directional_slopes(self, theta: Tensor, rows: Pool, direction: Tensor) -> Tensor:
        """⟨∇ℓ_k, direction⟩ of every row."""
        found = []
        for part in rows.batches():
            # the derivative of every loss along the direction, in one pass with tangents
            slopes = jvp(partial(self.losses, rows=part), (theta,), (direction,))[1]
            found.append(slopes.detach())
        return torch.cat(found)

    def term_slopes(self, theta: Tensor, direction: Tensor) -> Tensor:
        """∂g₁/∂w_k − ⟨∂²f₁/∂w_k∂θ, direction⟩ of every row."""

        def along(weights: Tensor) -> Tensor:
            tangent: Tensor = jvp(
                lambda inside: self.inner_term(inside, weights), (theta,), (direction,)
            )[1]
            return tangent

        slopes: Tensor = grad(self.outer_term, argnums=1)(theta, self.weights)
        slopes = slopes - grad(along)(self.weights)
        return slopes


class Training(ABC):
    """A solver of the inner problem.

    Examples
    --------
    One step down the gradient, for a problem where that is enough:

    >>> class OneStep(Training):
    ...     def fit(self, problem, rows, start, seed):
    ...         return start - 0.1 * torch.func.grad(problem.inner)(start, rows)
    >>> from bicore.methods import NetworkSelector
    >>> NetworkSelector(training=OneStep()).name
    'bilevel on the network'
    """

    @abstractmethod
    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        """Fit the parameters to some rows.

        Parameters
        ----------
        problem : NetworkProblem
            The problem whose inner objective is minimised.
        rows : Rows
            The coreset.
        start : torch.Tensor
            The parameters to begin at, flat; they are left as they are.
        seed : int
            Seed for all random draws.

        Returns
        -------
        torch.Tensor
            Flat parameters, without a gradient.

        Raises
        ------
        NumericalError
            If the parameters are not finite.
        """


@dataclass(frozen=True)
class QuasiNewton(Training):
    """L-BFGS with a strong Wolfe line search over all rows, for accurate solutions.

    Parameters
    ----------
    iterations : int, optional
        Maximum number of steps after every row.
    tolerance : float, optional
        It ends earlier where no entry of the gradient is larger.

    Examples
    --------
    >>> from bicore.networks.problem import FlatModule
    >>> module = FlatModule(torch.nn.Linear(2, 1, bias=False))
    >>> problem = NetworkProblem(module, lambda outputs, y: (outputs - y).square().sum(1), 1.0)
    >>> rows = Rows(torch.eye(2), torch.tensor([[1.0], [2.0]]), torch.ones(2))
    >>> QuasiNewton().fit(problem, rows, torch.zeros(2), 0).tolist()
    [0.5, 1.0]
    """

    iterations: int = 200
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        check_settings(self, "iterations", others="tolerance")

    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        theta = start.detach().clone().requires_grad_(True)
        optimiser = torch.optim.LBFGS(
            [theta],
            max_iter=self.iterations,
            tolerance_grad=self.tolerance,
            tolerance_change=SMALLEST_CHANGE,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            checkpoint()
            optimiser.zero_grad()
            value = problem.inner(theta, rows)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        return _finite(theta.detach())


@dataclass(frozen=True)
class Stochastic(Training):
    """Adam over mini-batches, for networks and coresets of any size.

    Parameters
    ----------
    epochs : int, optional
        Number of passes over the coreset after every row.
    batch : int, optional
        Rows of a mini-batch.
    rate : float, optional
        The step of Adam.

    Examples
    --------
    >>> from bicore.networks.problem import FlatModule
    >>> module = FlatModule(torch.nn.Linear(2, 1, bias=False))
    >>> problem = NetworkProblem(module, lambda outputs, y: (outputs - y).square().sum(1), 1.0)
    >>> rows = Rows(torch.eye(2), torch.tensor([[1.0], [2.0]]), torch.ones(2))
    >>> fitted = Stochastic(epochs=200, rate=0.05).fit(problem, rows, torch.zeros(2), 0)
    >>> torch.allclose(fitted, torch.tensor([0.5, 1.0]), atol=0.01)
    True
    """

    epochs: int = 100
    batch: int = 64
    rate: float = 1e-3

    def __post_init__(self) -> None:
        check_settings(self, "epochs batch", "rate")

    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        theta = start.detach().clone().requires_grad_(True)
        optimiser = torch.optim.Adam([theta], lr=self.rate)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.epochs):
            shuffled = torch.randperm(len(rows), generator=generator)
            for part in shuffled.split(self.batch):  # type: ignore[no-untyped-call]
                checkpoint()
                some = rows[part.to(theta.device)]
                theta.grad = _stochastic_gradient(problem, theta, some, len(rows))
                optimiser.step()
        return _finite(theta.detach())


def _stochastic_gradient(problem: NetworkProblem, theta: Tensor, some: Rows, count: int) -> Tensor:
    """Estimate the gradient of the inner objective over ``count`` rows, per row, from some rows."""
    with torch.enable_grad():
        losses = problem.weighted_loss(theta, some) * (count / len(some))
        objective = losses + problem.penalty(theta)
        (gradient,) = torch.autograd.grad(objective / count, theta)
    return gradient


def _finite(theta: Tensor) -> Tensor:
    if not bool(torch.isfinite(theta).all()):
        raise NumericalError(
            "the inner problem diverged; use a smaller step, a larger inner_reg, or scale x."
        )
    return theta


class InverseHessian(ABC):
    """A solver of (∇²inner + damping) u = g."""

    #: Number of rows of the coreset in a product, drawn for each step; None: all.
    mini_batch: int | None = None

    @abstractmethod
    def solve(self, product: Product, gradient: Tensor) -> Tensor:
        """Solve for the direction u.

        Parameters
        ----------
        product : callable
            ``product(direction, step)`` multiplies by the Hessian; with mini-batches the same step
            draws the same rows.
        gradient : torch.Tensor
            The right-hand side g.

        Returns
        -------
        torch.Tensor
            As long as g.

        Raises
        ------
        NumericalError
            If the Hessian does not allow it.
        """


@dataclass(frozen=True)
class ConjugateGradients(InverseHessian):
    """Conjugate gradients with Hessian products: few products, but the Hessian must be positive.

    Parameters
    ----------
    steps : int, optional
        Most products of a solve.
    damping : float, optional
        Added to the Hessian's diagonal, for one that is not positive.
    tolerance : float, optional
        It ends earlier where the residual has fallen to this share of the gradient.
    mini_batch : int, optional
        Number of coreset rows in the products of a solve, drawn once per solve; default: all.

    Examples
    --------
    >>> import torch
    >>> hessian = torch.diag(torch.tensor([1.0, 4.0]))
    >>> solver = ConjugateGradients(damping=1.0)
    >>> solved = solver.solve(lambda v, step: hessian @ v, torch.tensor([2.0, 10.0]))
    >>> torch.allclose(solved, torch.tensor([1.0, 2.0]))
    True
    """

    steps: int = 50
    damping: float = 0.0
    tolerance: float = 1e-8
    mini_batch: int | None = None

    def __post_init__(self) -> None:
        check_settings(self, "steps mini_batch", others="damping tolerance")

    def solve(self, product: Product, gradient: Tensor) -> Tensor:
        def damped(direction: Tensor, same: Tensor) -> Tensor:
            return product(direction, 0) + self.damping * direction

        return conjugate_gradients(
            gradient,
            lambda residual: (residual, residual),
            damped,
            self.tolerance,
            self.steps,
            indefinite=self._indefinite,
        ).z

    def _indefinite(self, curvature: float) -> NumericalError:
        return NumericalError(
            "the Hessian of the inner problem is not positive definite (curvature "
            f"{curvature:.3g}); raise inner_reg or damping={self.damping:g}, fit the inner problem "
            "further, or use curvature='gauss-newton'."
        )


@dataclass(frozen=True)
class NeumannSeries(InverseHessian):
    """The Neumann series u = η Σ_t (I − η(H + damping))ᵗ g, with one product per term.

    It takes more products than conjugate gradients and lives with a new mini-batch for each.

    Parameters
    ----------
    steps : int, optional
        Terms of the series.
    rate : float, optional
        The η of the series, which must be below 2/‖H + damping‖.
    damping : float, optional
        Added to the Hessian's diagonal, for one that is not positive.
    mini_batch : int, optional
        Rows of the coreset that a product looks at, drawn for every term; default: all.

    Examples
    --------
    >>> import torch
    >>> hessian = torch.diag(torch.tensor([1.0, 4.0]))
    >>> solver = NeumannSeries(steps=200, rate=0.3)
    >>> solved = solver.solve(lambda v, step: hessian @ v, torch.tensor([1.0, 8.0]))
    >>> torch.allclose(solved, torch.tensor([1.0, 2.0]))
    True
    """

    steps: int = 100
    rate: float = 1e-2
    damping: float = 0.0
    mini_batch: int | None = None

    def solve(self, product: Product, gradient: Tensor) -> Tensor:
        term = gradient.clone()
        total = gradient.clone()
        largest = float(gradient.norm())
        for step in range(1, self.steps):
            term = term - self.rate * (product(term, step) + self.damping * term)
            size = float(term.norm())
            if not size <= GROWTH_ALLOWED * largest:
                raise NumericalError(
                    f"the Neumann series diverges (a term of norm {size:.3g} after {largest:.3g}); "
                    f"lower rate={self.rate:g} below 2 over the largest eigenvalue of the Hessian, "
                    "or use ConjugateGradients."
                )
            largest = max(largest, size)
            total += term
        return self.rate * total
