"""The paper's networks."""

from __future__ import annotations

import numpy as np
from torch import nn

from bicore.errors import InputError


def perceptron(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The paper's fully connected network: two hidden layers of 100, dropout 0.2.

    Parameters
    ----------
    shape : tuple of int
        The shape of one point.
    outputs : int
        The number of classes or targets.

    Returns
    -------
    torch.nn.Module
        A fresh one, drawn from torch's global generator.

    Examples
    --------
    >>> import torch
    >>> perceptron((1, 8, 8), 10)(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """
    width = int(np.prod(shape))
    layers = [
        nn.Flatten(),
        nn.Linear(width, 100),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Dropout(0.2),
    ]
    return nn.Sequential(*layers, nn.Linear(100, outputs))


def convolutional(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The paper's CNN: two blocks of 5×5 convolution, dropout, ReLU and pooling, then 128 units.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of one image.
    outputs : int
        The number of classes or targets.

    Returns
    -------
    torch.nn.Module
        A fresh one, drawn from torch's global generator.

    Raises
    ------
    InputError
        Where points are no images, or smaller than 16×16.

    Examples
    --------
    >>> import torch
    >>> convolutional((1, 28, 28), 10)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    """
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise InputError(
            "judge='cnn' needs images of at least 16×16 as (channels, height, width), and a point "
            f"has shape {shape}; use mlp."
        )
    channels, *sides = shape
    first = [nn.Conv2d(channels, 32, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
    head = [
        nn.Linear(64 * height * width, 128),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.Linear(128, outputs),
    ]
    return nn.Sequential(*first, *second, *head)
