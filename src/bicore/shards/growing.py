"""A growing coreset in the feature space: its size costs nothing, a row is scored by itself.

With Σ = (Φ_SᵀΦ_S + ρI)⁻¹, W = ΣΦ_SᵀY_S and M = −2Σ(AW − B) the slope of any row is
⟨Mᵀφ, y − Wᵀφ⟩; a point that joins changes the three by terms of rank one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.moments.moments import Outer
from bicore.shards.arithmetic import along, on_host, placed
from bicore.shards.arithmetic import outer as ranked


class Step(NamedTuple):
    """What a point that joined changed: terms of rank one.

    Examples
    --------
    >>> Step(np.ones(2), np.ones(2), 2.0, 0.5, np.ones(1), np.ones(1)).d
    2.0
    """

    #: Σφ and ΣAΣφ.
    reach: Any
    turned: Any
    #: 1 + φᵀΣφ and φᵀΣAΣφ.
    d: float
    own: float
    #: By what W and M change along them.
    pull: Any
    turn: Any


class Growing:
    """A coreset of any size judged by moments.

    Parameters
    ----------
    outer : Outer
        The objective.
    ridge : float
        The inner regulariser ρ.
    device : torch.device, optional
        Where its matrices are; default: arrays on the host.

    Examples
    --------
    >>> from bicore.moments import Moments
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 5)), np.eye(2)[rng.integers(0, 2, 40)]
    >>> outer = Moments.empty(5, classes=None, targets=2).with_rows(x, y).outer()
    >>> growing = Growing(outer, 0.1)
    >>> best = int(growing.slopes(x, y).argmax())
    >>> _ = growing.take(x[best], y[best])
    >>> growing.objective < outer.constant
    True
    """

    def __init__(self, outer: Outer, ridge: float, device: torch.device | None = None) -> None:
        self.outer = outer
        self.ridge = ridge
        self.device = device
        width, outputs = outer.cross.shape
        second = np.tril(outer.second) * outer.share
        second += np.tril(second, -1).T
        self.second: Any = placed(second, device)
        self.inverse: Any = placed(np.eye(width) / ridge, device)
        self.model: Any = placed(np.zeros((width, outputs)), device)
        self.change: Any = placed(2.0 * outer.cross / ridge, device)
        self.objective = outer.constant
        self.size = 0

    @classmethod
    def of(
        cls,
        outer: Outer,
        ridge: float,
        features: Array,
        targets: Array,
        device: torch.device | None = None,
    ) -> Growing:
        """The coreset of some points, fitted from nothing.

        Parameters
        ----------
        outer : Outer
            The objective.
        ridge : float
            The inner regulariser.
        features, targets : array (m, p), (m, C)
            The points.
        device : torch.device, optional
            Where its matrices are.

        Returns
        -------
        Growing
            With all of them in.
        """
        found = cls(outer, ridge, device)
        system = features.T @ features
        system[np.diag_indices(len(system))] += ridge
        inverse = np.linalg.inv(system)
        model = np.linalg.solve(system, features.T @ targets)
        found.inverse = placed(0.5 * (inverse + inverse.T), device)
        found.model = placed(model, device)
        found.change = -2.0 * (
            found.inverse @ (found.second @ found.model - placed(outer.cross, device))
        )
        found.objective = outer.loss(model)
        found.size = len(features)
        return found

    def slopes(self, features: Array, targets: Array) -> Array:
        """−∂G/∂w of rows.

        Parameters
        ----------
        features, targets : array (n, p), (n, C)
            The rows.

        Returns
        -------
        array (n,)
            By how much the objective falls, for a little weight.
        """
        features, targets = placed(features, self.device), placed(targets, self.device)
        found: Array = on_host(along(features @ self.change, targets - features @ self.model))
        return found

    def gains(self, features: Array, targets: Array) -> Array:
        """By how much the objective falls if a row joins.

        Parameters
        ----------
        features, targets : array (n, p), (n, C)
            The rows.

        Returns
        -------
        array (n,)
            Exact.
        """
        features, targets = placed(features, self.device), placed(targets, self.device)
        reached = features @ self.inverse
        d = 1.0 + along(reached, features)
        q = along(reached @ self.second, reached)
        residual = targets - features @ self.model
        slopes = along(features @ self.change, residual)
        found: Array = on_host(slopes / d - q * along(residual, residual) / d**2)
        return found

    def take(self, row: Array, target: Array) -> Step:
        """Let a point join.

        Parameters
        ----------
        row, target : array (p,), (C,)
            The point.

        Returns
        -------
        Step
            What changed.

        Raises
        ------
        NumericalError
            Where what it changes is not finite.
        """
        row, target = placed(row, self.device), placed(target, self.device)
        reach = self.inverse @ row
        d = 1.0 + float(row @ reach)
        residual = target - row @ self.model
        slope = row @ self.change
        turned = self.inverse @ (self.second @ reach)
        own = float(row @ turned)
        fall = float(slope @ residual) / d - own * float(residual @ residual) / d**2
        if not np.isfinite(fall):
            raise NumericalError(
                f"point {self.size + 1} changes the objective by {fall}; raise inner_reg "
                f"(ridge={self.ridge:.3g}), or scale the features."
            )
        step = Step(reach, turned, d, own, residual / d, slope / d - (2.0 * own / d**2) * residual)
        self.change -= ranked(reach, step.turn)
        self.change -= ranked(turned, 2.0 * step.pull)
        self.model += ranked(reach, step.pull)
        self.inverse -= ranked(reach, reach / d)
        self.objective -= fall
        self.size += 1
        return step

    def refit(self, features: Array, targets: Array) -> float:
        """The objective of some points, fitted from nothing.

        Parameters
        ----------
        features, targets : array (m, p), (m, C)
            All points that are in.

        Returns
        -------
        float
            To hold against ``objective``, which is the sum of all steps.
        """
        system = features.T @ features
        system[np.diag_indices(len(system))] += self.ridge
        return self.outer.loss(np.linalg.solve(system, features.T @ targets))
