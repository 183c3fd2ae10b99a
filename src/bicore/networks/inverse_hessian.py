"""How the inverse Hessian of a network's inner problem is applied: from products with it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bicore.errors import NumericalError
from bicore.numerics.linear_algebra import conjugate_gradients

#: Multiplies a direction by the Hessian, of a mini-batch of the step given where batches are drawn.
Product = Callable[[Tensor, int], Tensor]

#: A term of a converging series is not larger than an earlier one, but for what mini-batches add.
GROWTH_ALLOWED = 2.0


class InverseHessian(ABC):
    """How (∇²inner + damping) u = g is solved.

    Examples
    --------
    The identity in its place: scores become products of gradients, without an inverse.

    >>> class Identity(InverseHessian):
    ...     def solve(self, product, gradient):
    ...         return gradient
    >>> Identity().mini_batch is None
    True
    """

    @property
    def mini_batch(self) -> int | None:
        """How many rows of the coreset a product looks at, drawn for each step; None: all."""
        return None

    @abstractmethod
    def solve(self, product: Product, gradient: Tensor) -> Tensor:
        """The direction u.

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
            Where the Hessian does not allow it; the message names the mend.
        """


@dataclass(frozen=True)
class ConjugateGradients(InverseHessian):
    """Conjugate gradients on products with the Hessian: few products, a positive Hessian.

    Parameters
    ----------
    steps : int, optional
        At most so many products a solve.
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
            indefinite=self._not_positive,
        ).z

    def _not_positive(self, curvature: float) -> NumericalError:
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
                raise self._diverges(size, largest)
            largest = max(largest, size)
            total += term
        return self.rate * total

    def _diverges(self, size: float, largest: float) -> NumericalError:
        return NumericalError(
            f"the Neumann series diverges (a term of norm {size:.3g} after one of {largest:.3g}); "
            f"lower rate={self.rate:g} below 2 over the largest eigenvalue of the Hessian, or use "
            "ConjugateGradients."
        )
