"""How the inner problem of a network is solved: exactly, or as one would train."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.errors import NumericalError
from bicore.networks.problem import NetworkProblem, Rows
from bicore.runtime import checkpoint

#: L-BFGS ends where a step changes θ and the objective by less: far below any tolerance on the
#: gradient, so that it is the gradient that decides.
SMALLEST_CHANGE = 1e-14


class Training(ABC):
    """How the inner problem is solved.

    Examples
    --------
    One step down the gradient, for a problem where that is enough:

    >>> class OneStep(Training):
    ...     def fit(self, problem, rows, start, seed):
    ...         return start - 0.1 * torch.func.grad(problem.inner)(start, rows)
    >>> from bicore.selectors import NetworkSelector
    >>> NetworkSelector(training=OneStep()).name
    'bilevel on the network'
    """

    @abstractmethod
    def fit(self, problem: NetworkProblem, rows: Rows, start: Tensor, seed: int) -> Tensor:
        """The parameters fitted to some rows.

        Parameters
        ----------
        problem : NetworkProblem
            What is minimised.
        rows : Rows
            The coreset.
        start : torch.Tensor
            The parameters to begin at, flat; they are left as they are.
        seed : int
            Of whatever is drawn.

        Returns
        -------
        torch.Tensor
            Flat parameters, without a gradient.

        Raises
        ------
        NumericalError
            Where the parameters are not finite.
        """


@dataclass(frozen=True)
class QuasiNewton(Training):
    """L-BFGS with a strong Wolfe search over all rows at once: where it is to be solved.

    Parameters
    ----------
    iterations : int, optional
        At most so many after every point.
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
        objective = losses + problem.rho * theta.square().sum()
        (gradient,) = torch.autograd.grad(objective / count, theta)
    return gradient


def _finite(theta: Tensor) -> Tensor:
    if not bool(torch.isfinite(theta).all()):
        raise NumericalError(
            "the inner problem diverged; use a smaller step, a larger inner_reg, or scale x."
        )
    return theta
