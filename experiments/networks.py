"""The paper's networks, and the layout of their images for training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: By which CIFAR-10's channels come standardised.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)


class Network(nn.Module):
    """Images are laid out once by ``prepare``; every step sees them through ``view``, which may
    draw at random."""

    #: Of an image.
    shape: tuple[int, int, int] = (1, 28, 28)
    #: Trained in bfloat16 with float32 weights where there is a GPU, and by code compiled for it.
    mixed = False
    compiled = False
    #: Whether it pays to look for the fastest algorithm of every convolution.
    searched = False
    #: How parameters lie in memory.
    layout = torch.contiguous_format

    @classmethod
    def prepare(cls, x: Tensor) -> Tensor:
        return x

    @classmethod
    def view(cls, x: Tensor) -> Tensor:
        return x

    def trunk(self) -> nn.Module:
        """Everything in front of the last layer, a copy."""
        bare = copy.deepcopy(self)
        bare.head = nn.Identity()
        return bare


class FullyConnected(Network):
    """784-100-100-10 with dropout 0.2 after each hidden layer."""

    @classmethod
    def prepare(cls, x: Tensor) -> Tensor:
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


class ConvNet(Network):
    """Two 5×5 convolutions with dropout 0.5, ReLU and max-pooling each, a hidden layer of 128 with
    dropout 0.5.

    The first convolution meets the same images in every epoch. Its windows can be laid out once by
    ``prepare``; what is left of it is a product with a matrix, several times faster on a GPU than a
    convolution with a single input channel.
    """

    mixed = True
    compiled = True
    #: Entries of a window: 25 pixels, a one for the bias, zeros up to a round number.
    entries = 32

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 32, 5)
        self.second = nn.Conv2d(32, 64, 5)
        self.hidden = nn.Linear(1024, 128)
        self.drops = nn.ModuleList(nn.Dropout(0.5) for _ in range(3))
        self.head = nn.Linear(128, outputs)

    @classmethod
    def prepare(cls, x: Tensor) -> Tensor:
        """The windows of images (n, 1, 28, 28): (n, 576, entries)."""
        windows = F.unfold(x, 5).transpose(1, 2)
        return F.pad(
            torch.cat([windows, torch.ones_like(windows[:, :, :1])], 2), (0, cls.entries - 26)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of images, or of their windows."""
        windows = self.prepare(x) if x.dim() == 4 else x
        weight = F.pad(
            torch.cat([self.first.weight.flatten(1), self.first.bias[:, None]], 1),
            (0, self.entries - 26),
        )
        first, second, last = self.drops
        maps = F.linear(windows, weight).unflatten(1, (24, 24)).permute(0, 3, 1, 2)
        maps = F.max_pool2d(F.relu(first(maps)), 2)
        maps = F.max_pool2d(F.relu(second(self.second(maps))), 2)
        return self.head(last(F.relu(self.hidden(maps.flatten(1)))))


#: Builds the normalisation of a number of channels.
Norm = Callable[[int], nn.Module]
#: Maximum number of groups of group normalisation.
GROUPS = 32


def no_norm(channels: int) -> nn.Module:
    return nn.Identity()


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(min(GROUPS, channels), channels)


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut, an activation after each; a 1×1 convolution where the
    shortcut must change shape."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = stride == 1 and inputs == outputs
        norms = [norm(outputs) for _ in range(3)]
        self.norms = nn.ModuleList(norms[:2])
        reshaped = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norms[2])
        self.shortcut = nn.Identity() if same else reshaped

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


class ResNet18(Network):
    """ResNet-18 for 32×32 images without biases in its convolutions; without normalisation, or with
    a ``norm`` after each of them.

    Training sees random crops of images with a black border of four pixels, half of them mirrored.
    They are laid out with the channels last, which is how a GPU likes its convolutions.
    """

    shape = (3, 32, 32)
    mixed = True
    searched = True
    layout = torch.channels_last
    border = 4

    def __init__(self, outputs: int = 10, width: int = 64, norm: Norm = no_norm) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = norm(width)
        blocks = []
        inputs = width
        for factor, first in ((1, 1), (2, 2), (4, 2), (8, 2)):
            for stride in (first, 1):
                blocks.append(Block(inputs, factor * width, stride, norm))
                inputs = factor * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, outputs)

    @classmethod
    def prepare(cls, x: Tensor) -> Tensor:
        """(n, 40, 40, 3): a black border, channels last."""
        black = -torch.tensor(MEAN, device=x.device) / torch.tensor(STD, device=x.device)
        side = cls.shape[1] + 2 * cls.border
        wide = black[:, None, None].expand(len(x), 3, side, side).clone()
        wide[:, :, cls.border : -cls.border, cls.border : -cls.border] = x
        return wide.permute(0, 2, 3, 1).contiguous()

    @classmethod
    def view(cls, x: Tensor) -> Tensor:
        """A random crop of each row, or its mirror image; (n, 3, 32, 32) in memory as (n, 32, 32,
        3)."""
        device = x.device
        top, left = torch.randint(0, 2 * cls.border + 1, (2, len(x), 1), device=device)
        mirrored = torch.randint(0, 2, (len(x), 1), device=device)
        return cls.crop(x, top, left, mirrored)

    @classmethod
    def crop(cls, x: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
        """The crops that begin at these corners, those with a 1 mirrored; all are (n, 1)."""
        size = cls.shape[1]
        along = torch.arange(size, device=x.device)
        across = left + torch.where(mirrored == 1, size - 1 - along, along)
        number = torch.arange(len(x), device=x.device)[:, None, None]
        return x[number, (top + along)[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))


@dataclass(frozen=True)
class Architecture:
    """What rows train: how a network is made, a smaller one of its kind for toys, and what
    normalises it, if anything does."""

    make: Callable[[], Network]
    small: Callable[[], Network]
    normalisation: str = ""

    def toy(self) -> Architecture:
        return Architecture(self.small, self.small, self.normalisation)


_SMALL_RESIDUAL = partial(ResNet18, width=4)
FULLY_CONNECTED = Architecture(FullyConnected, FullyConnected)
CONVOLUTIONAL = Architecture(ConvNet, ConvNet)
RESIDUAL = Architecture(ResNet18, _SMALL_RESIDUAL)
#: The same with normalisation, as one would train it today.
NORMALISED_RESIDUAL = Architecture(
    partial(ResNet18, norm=nn.BatchNorm2d),
    partial(ResNet18, width=4, norm=nn.BatchNorm2d),
    normalisation="BatchNorm",
)
#: And with groups of channels normalised, in which other rows have no part: what a stream is like
#: now does not disturb what is rehearsed.
GROUPED_RESIDUAL = Architecture(
    partial(ResNet18, norm=group_norm),
    partial(ResNet18, width=4, norm=group_norm),
    normalisation="GroupNorm",
)
