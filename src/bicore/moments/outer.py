"""An objective of linear models that needs no rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bicore.data import Array
from bicore.runtime.threads import wide


@dataclass(frozen=True, eq=False)
class Outer:
    """An objective of linear models: means of moments under some class prior.

    Parameters
    ----------
    second : array (p, p)
        A up to the factor ``share``; only the lower triangle is read. Fortran order.
    cross : array (p, C)
        B = Σ v φyᵀ/N.
    constant : float
        The loss of the empty model, c = Σ v‖y‖²/N.
    share : float
        A is ``share * second``: a matrix of p² numbers is not copied to be divided.

    Examples
    --------
    >>> from bicore.moments import Moments
    >>> outer = Moments.empty(1, classes=("a",)).with_rows([[2.0], [0.0]], ["a", "a"]).outer()
    >>> outer.loss(np.array([[0.5]]))
    0.5
    """

    second: Array
    cross: Array
    constant: float
    share: float = 1.0

    @property
    def energy(self) -> float:
        """The mean of ‖φ‖²."""
        return self.share * float(np.trace(self.second))

    def means(self, constant: float) -> tuple[Array, Array]:
        """The means of the features and of the targets, if the last feature is a constant.

        Parameters
        ----------
        constant : float
            That feature.

        Returns
        -------
        tuple of array (p,), (C,)
            Both means.
        """
        # The last row of a lower triangle is whole.
        return self.share * self.second[-1] / constant, self.cross[-1] / constant

    def centred(self, features: Array, targets: Array) -> Outer:
        """The same objective for targets less their mean.

        Parameters
        ----------
        features, targets : array (p,), (C,)
            The means of both.

        Returns
        -------
        Outer
            It shares the second moments.
        """
        cross = self.cross - np.multiply.outer(features, targets)
        return replace(self, cross=cross, constant=self.constant - float(targets @ targets))

    def times(self, features: Array) -> Array:
        """The product of features with A.

        Parameters
        ----------
        features : array (n, p)
            Rows.

        Returns
        -------
        array (n, p)
            ΦA.
        """
        from scipy.linalg import blas  # not before it is needed: importing it takes time

        with wide(float(len(features)) * self.second.size):
            product: Array = blas.dsymm(self.share, self.second, features.T, lower=1)
        return product.T

    def loss(self, model: Array) -> float:
        """The mean loss of a linear model on everything that was counted.

        Parameters
        ----------
        model : array (p, C)
            Its weights.

        Returns
        -------
        float
            It is tr WᵀAW − 2 tr WᵀB + c.
        """
        quadratic = float(np.vdot(self.times(np.ascontiguousarray(model.T)).T, model))
        return quadratic - 2.0 * float(np.vdot(model, self.cross)) + self.constant
