"""Newton's method for the softmax cross-entropy on a GPU: a padded problem that nobody waits for.

The equations are those of :mod:`bicore.bilevel.solvers.plain_softmax`; a step is a fixed number of
conjugate-gradient iterations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bicore.numerics.conjugate_gradients import DeviceIteration, Precondition
from bicore.numerics.line_search import NOISE, enough

#: Lengths that a step on the device may have: all are evaluated, the first that serves is taken.
DEVICE_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)


class DeviceSoftmaxFit:
    """A fit on a GPU padded to a fixed size: a place that is not taken has weight 0, which leaves
    its row of every system an identity and its coefficients zero.

    ``gram``, ``targets`` and ``weights`` are written to from outside; ``alpha`` and ``fitted`` = Kα
    are the fit.
    """

    def __init__(self, like: Tensor, capacity: int, outputs: int) -> None:
        self.gram = like.new_zeros(capacity, capacity)
        self.targets = like.new_zeros(capacity, outputs)
        self.weights = like.new_zeros(capacity, 1)
        self.alpha = like.new_zeros(capacity, outputs)
        self.fitted = like.new_zeros(capacity, outputs)
        self.lengths = like.new_tensor(DEVICE_LENGTHS)

    def probabilities(self) -> Tensor:
        """Of the fit at every place."""
        return torch.softmax(self.fitted, 1)

    def curved(self, probabilities: Tensor, rows: Tensor) -> Tensor:
        """A · rows."""
        mean = (probabilities * rows).sum(1, keepdim=True)
        return self.weights * probabilities * (rows - mean)

    def system(
        self,
        right: Tensor,
        probabilities: Tensor,
        shift: Tensor,
        precondition: Precondition,
        iterations: int,
    ) -> tuple[Tensor, Tensor]:
        """z with (s I + A K) z = right after so many iterations, and the relative residual."""

        def image(direction: Tensor, gram_direction: Tensor) -> Tensor:
            return self.curved(probabilities, gram_direction) + direction * shift

        run = DeviceIteration(right, precondition, image)
        run.advance(iterations)
        # What is left when the energy is spent lies in the null space of K, where the operator is s
        # times the identity.
        spent = run.energy <= 0
        z = torch.where(spent, run.z + run.residual / shift, run.z)
        goal = torch.linalg.vector_norm(right).clamp_min(torch.finfo(right.dtype).tiny)
        return z, torch.where(spent, 0.0, torch.linalg.vector_norm(run.residual) / goal)

    def newton(
        self,
        shift: Tensor,
        precondition: Precondition,
        steps: int,
        iterations: int,
        watched: float | None = None,
    ) -> Tensor:
        """So many Newton steps from the last fit; the relative residual it ends with.

        With ``watched`` the host looks after each step and stops at that residual.
        """
        value = self._values(self.alpha[None], self.fitted[None], shift)[0]
        lengths_of_steps = self.lengths[:, None, None]
        for _ in range(steps):
            probabilities, r, size = self.residual(shift)
            if watched is not None and float(size) <= watched:
                break
            step, _ = self.system(-r, probabilities, shift, precondition, iterations)
            moved = self.gram @ step
            slope = (r * moved).sum().clamp_max(0.0)
            values = self._values(
                self.alpha + lengths_of_steps * step, self.fitted + lengths_of_steps * moved, shift
            )
            noise = NOISE * torch.finfo(r.dtype).eps * value.abs()
            serves = enough(values, value, self.lengths * slope, noise)
            first = serves.int().argmax().view(1)  # of no dimensions, it would be read back
            length = self.lengths[first]
            self.alpha.addcmul_(step, length)
            self.fitted.addcmul_(moved, length)
            value = values[first][0]
        return self.residual(shift)[2]

    def residual(self, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p, r = w (p − y) + s α, and the size of r relative to its two terms."""
        probabilities = self.probabilities()
        data = self.weights * (probabilities - self.targets)
        own = shift * self.alpha
        scale = torch.linalg.vector_norm(data) + torch.linalg.vector_norm(own)
        r = data + own
        tiny = torch.finfo(r.dtype).tiny
        return probabilities, r, torch.linalg.vector_norm(r) / scale.clamp_min(tiny)

    def _values(self, alpha: Tensor, fitted: Tensor, shift: Tensor) -> Tensor:
        """The inner objective at each of several α with their predictions."""
        losses = torch.logsumexp(fitted, 2) - (fitted * self.targets).sum(2)
        return losses @ self.weights[:, 0] + shift * (alpha * fitted).sum((1, 2)) / 2
