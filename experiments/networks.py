"""The paper's networks for MNIST."""

from __future__ import annotations

from torch import Tensor, nn


class FullyConnected(nn.Module):
    """784-100-100-10 with dropout 0.2 after each hidden layer."""

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
    """Two 5×5 convolutions with dropout 0.5, ReLU and max-pooling each, a hidden layer of 128."""

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Dropout(0.5),
        )  # fmt: skip
        self.head = nn.Linear(128, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


#: Which network and which kernel stands in for it, by data set.
NETWORKS = {"PermMNIST": FullyConnected, "SplitMNIST": ConvNet}
PROXIES = {"PermMNIST": "ntk", "SplitMNIST": "cntk"}
