"""Points as judges see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, of_mean_one


@dataclass(frozen=True, eq=False)
class Sample:
    """Points as a judge sees them.

    Parameters
    ----------
    x : Tensor (n, …)
        Features.
    y : Tensor (n,) or (n, outputs)
        Class codes, or targets.
    weight : Tensor (n,)
        Weights of mean 1.

    Examples
    --------
    >>> Sample(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]), torch.ones(4)).classification
    True
    """

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def classification(self) -> bool:
        """Whether y holds classes."""
        return self.y.dim() == 1


def as_sample(
    x: Array, y: Array, weight: Array, device: torch.device, classification: bool
) -> Sample:
    """Arrays as a judge's tensors: float32 features, weights scaled to mean 1.

    Parameters
    ----------
    x : array (n, …)
        Features.
    y : array (n,) or (n, outputs)
        Class codes, or targets.
    weight : array (n,)
        Weights of any scale.
    device : torch.device
        Where the tensors go.
    classification : bool
        Whether y holds classes.

    Returns
    -------
    Sample
        The same points.

    Examples
    --------
    >>> cpu = torch.device("cpu")
    >>> as_sample(np.eye(2), np.array([0, 1]), np.array([1.0, 3.0]), cpu, True).weight.tolist()
    [0.5, 1.5]
    """
    labels = torch.from_numpy(np.ascontiguousarray(y)).to(device)
    scaled = torch.from_numpy(np.ascontiguousarray(of_mean_one(weight))).to(device, torch.float32)
    features = torch.from_numpy(np.ascontiguousarray(x)).to(device, torch.float32)
    return Sample(features, labels.long() if classification else labels.to(torch.float32), scaled)
