"""How the inner problem of a network is solved, and how its inverse Hessian is applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.errors import NumericalError
from bicore.networks.problem import NetworkProblem, Rows
from bicore.numerics.linear_algebra import conjugate_gradients
from bicore.runtime.clock import checkpoint

#: L-BFGS ends if a step changes θ and the objective by less: far below any tolerance on the
#: gradient, so that the gradient decides.
SMALLEST_CHANGE = 1e-14
#: Multiplies a direction by the Hessian, of a mini-batch of the step given if batches are drawn.
Product = Callable[[Tensor, int], Tensor]
#: A term of a converging series is not larger than an earlier one, up to the noise of mini-batches.
GROWTH_ALLOWED = 2.0


class Training(ABC):
    """How the inner problem is solved.

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
            What is minimised.
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
    """L-BFGS with a strong Wolfe search over all rows at once: where it is to be solved.

    Parameters
    ----------
    iterations : int, optional
        Most steps after every point.
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
    """Adam over mini-batches: networks and coresets of any size, fitted as well as one would train.

    Parameters
    ----------
    epochs : int, optional
        Passes over the coreset after every point.
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
    """Of the inner objective over ``count`` rows, a row's share of it, estimated from some rows."""
    with torch.enable_grad():
        losses = problem.weighted(theta, some) * (count / len(some))
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
    """How (∇²inner + damping) u = g is solved."""

    @property
    def mini_batch(self) -> int | None:
        """How many rows of the coreset a product looks at, drawn for each step; None: all."""
        return None

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
    """Conjugate gradients on products with the Hessian: few products, a positive Hessian.

    Parameters
    ----------
    steps : int, optional
        Most products of a solve.
    damping : float, optional
        Added to the Hessian's diagonal, for one that is not positive.
    tolerance : float, optional
        It ends earlier where the residual has fallen to this share of the gradient.
    mini_batch : int, optional
        Rows of the coreset that the products of a solve look at, drawn once for it; default: all.

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
    """The Neumann series u = η Σ_t (I − η(H + damping))ᵗ g, with a product a term.

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
