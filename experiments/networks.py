"""The paper's networks for MNIST."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FullyConnected(nn.Module):
    """784-100-100-10 with dropout 0.2 after each hidden layer."""

    mixed = False

    @staticmethod
    def prepare(x: Tensor) -> Tensor:
        """Rows of pixels."""
        return x.flatten(1)

    def __init__(self, inputs: int = 784, hidden: int = 100, outputs: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class ConvNet(nn.Module):
    """Two 5×5 convolutions with dropout 0.5, ReLU and max-pooling each, a hidden layer of 128 with dropout 0.5.

    The first convolution meets the same images in every epoch. Its windows can be laid out once by ``prepare``; what is left of it
    is a product with a matrix, several times faster on a GPU than a convolution with a single input channel.
    """

    #: Trained in bfloat16 with float32 weights where there is a GPU, by code compiled for it.
    mixed = True
    #: Entries of a window: 25 pixels, a one for the bias, zeros up to a round number.
    entries = 32

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        self.first, self.second, self.hidden = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5), nn.Linear(1024, 128)
        self.head = nn.Linear(128, outputs)

    @classmethod
    def prepare(cls, x: Tensor) -> Tensor:
        """The windows of images (n, 1, 28, 28): (n, 576, entries)."""
        windows = F.unfold(x, 5).transpose(1, 2)
        return F.pad(torch.cat([windows, torch.ones_like(windows[:, :, :1])], 2), (0, cls.entries - 26))

    def forward(self, x: Tensor) -> Tensor:
        """Of images, or of their windows."""
        windows = self.prepare(x) if x.dim() == 4 else x
        weight = F.pad(torch.cat([self.first.weight.flatten(1), self.first.bias[:, None]], 1), (0, self.entries - 26))
        maps = self._reduced(F.linear(windows, weight).unflatten(1, (24, 24)).permute(0, 3, 1, 2))
        maps = self._reduced(self.second(maps))
        return self.head(F.dropout(F.relu(self.hidden(maps.flatten(1))), 0.5, self.training))

    def _reduced(self, maps: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(F.dropout(maps, 0.5, self.training)), 2)


#: Which network is trained, by data set.
NETWORKS = {"PermMNIST": FullyConnected, "SplitMNIST": ConvNet}
