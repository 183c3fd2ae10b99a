"""Networks as evaluation models.

Networks of one shape are trained together as a stack. They start from the same weights and drop the
same units. Differences between selections of one seed therefore come from the selections, and a
score does not depend on the rest of the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore.errors import InputError, NumericalError
from bicore.evaluate.model import Judge, Trainer, in_parts
from bicore.evaluate.samples import Sample

BATCH = 256
TEST_BATCH = 500
#: On a GPU small stacks use other algorithms than large ones, and a single network is not even
#: deterministic. From nine on, scores did not depend on the rest of the stack (H200), so smaller
#: stacks are filled up to this.
SMALLEST_STACK = 9
#: Limit of networks times points in a stack, so that it fits the memory of a small machine.
STACKED_POINTS = {"cpu": 2000, "cuda": 20000}


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
        With new weights from torch's global generator.

    Examples
    --------
    >>> import torch
    >>> perceptron((1, 8, 8), 10)(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """
    first = [nn.Linear(int(np.prod(shape)), 100), nn.ReLU(), nn.Dropout(0.2)]
    second = [nn.Linear(100, 100), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(nn.Flatten(), *first, *second, nn.Linear(100, outputs))


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
        With new weights from torch's global generator.

    Raises
    ------
    InputError
        If points are not images of at least 16×16.

    Examples
    --------
    >>> import torch
    >>> convolutional((1, 28, 28), 10)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    """
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise InputError(
            "judge='cnn' needs images (channels, height, width) of at least 16×16; got points of "
            f"shape {shape}. Use judge='mlp'."
        )
    channels, *sides = shape
    first = [nn.Conv2d(channels, 32, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
    third = [nn.Linear(64 * height * width, 128), nn.Dropout(0.5), nn.ReLU()]
    return nn.Sequential(*first, *second, *third, nn.Linear(128, outputs))


@dataclass(frozen=True)
class NetworkJudge(Judge):
    """A network trained with Adam, in batches of 256 if there are more points.

    Parameters
    ----------
    name : str
        Its name in tables and messages.
    build : callable
        Makes a network from the shape of a point and the number of outputs.
    steps : int
        Training steps.
    rate : float
        Adam's step size.

    Examples
    --------
    >>> from bicore.evaluate.networks import perceptron
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> judge = NetworkJudge("mlp", perceptron, steps=200)
    >>> judge.scores([points, points], points, outputs=2, seed=0)
    [1.0, 1.0]
    """

    name: str
    build: Callable[[tuple[int, ...], int], nn.Module]
    steps: int = 1000
    rate: float = 5e-4

    def check(self, shape: tuple[int, ...], outputs: int) -> None:
        with torch.random.fork_rng(devices=[]):
            self.build(shape, outputs)

    def at_once(self, size: int, device: torch.device) -> int:
        return max(1, STACKED_POINTS[device.type] // size)

    @property
    def trainer(self) -> Trainer:
        return self

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        template, parameters = self.trained(selections, outputs, seed)
        return _stacked_predictions(template, parameters, test)

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """Train one network.

        Parameters
        ----------
        sample : Sample
            The training points.
        outputs : int
            The number of classes or targets.
        seed : int
            Seed of its initial weights and its training.

        Returns
        -------
        torch.nn.Module
            In eval mode, on the sample's device.

        Raises
        ------
        NumericalError
            If the training diverges.
        """
        template, parameters = self.trained([sample], outputs, seed)
        with torch.no_grad():
            for name, value in template.named_parameters():
                value.copy_(parameters[name][0])
        return template.eval()

    def trained(
        self, selections: Sequence[Sample], outputs: int, seed: int
    ) -> tuple[nn.Module, dict[str, Tensor]]:
        """Train networks together, one per selection.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        outputs : int
            The number of classes or targets.
        seed : int
            Seed of the initial weights and the training, which the networks share.

        Returns
        -------
        template : torch.nn.Module
            The architecture.
        parameters : dict of Tensor
            The trained parameters by name, stacked along the first axis.

        Raises
        ------
        NumericalError
            If a training diverges.
        """
        wanted = len(selections)
        if selections[0].x.device.type == "cuda":
            selections = [*selections, *[selections[-1]] * (SMALLEST_STACK - wanted)]
        x = torch.stack([sample.x for sample in selections])
        y = torch.stack([sample.y for sample in selections])
        weight = torch.stack([sample.weight for sample in selections])
        forked = [x.device] if x.device.type == "cuda" else []
        with torch.random.fork_rng(devices=forked), torch.enable_grad():
            torch.manual_seed(seed)
            template = self.build(tuple(x.shape[2:]), outputs).to(x.device, x.dtype)
            parameters = {
                name: value.detach().expand(len(x), *value.shape).clone()
                for name, value in template.named_parameters()
            }
            self._train(template.train(), parameters, x, y, weight, seed)
        for value in parameters.values():
            if not torch.isfinite(value).all():
                raise NumericalError(
                    f"training of the evaluation model {self.name} diverged; scale the features, "
                    "or use another model."
                )
        return template, {name: value[:wanted] for name, value in parameters.items()}

    def _train(
        self,
        template: nn.Module,
        parameters: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        seed: int,
    ) -> None:
        from torch.func import functional_call, grad, vmap  # here: importing bicore stays light

        def loss(
            values: dict[str, Tensor], inputs: Tensor, labels: Tensor, weights: Tensor
        ) -> Tensor:
            predicted: Tensor = functional_call(template, (values, {}), (inputs,))
            if labels.dim() == 1:
                return (weights * F.cross_entropy(predicted, labels, reduction="none")).mean()
            return (weights * (predicted - labels).square().sum(1)).mean()

        gradients = vmap(grad(loss), randomness="same")
        optimiser = torch.optim.Adam(list(parameters.values()), lr=self.rate)
        rng = np.random.default_rng(seed)
        count = x.shape[1]
        for _ in range(self.steps):
            part: Any = slice(None)
            if count > BATCH:
                part = torch.from_numpy(rng.choice(count, BATCH, replace=False)).to(x.device)
            found = gradients(parameters, x[:, part], y[:, part], weight[:, part])
            for name, value in parameters.items():
                value.grad = found[name].detach()
            optimiser.step()


def _stacked_predictions(
    template: nn.Module, parameters: dict[str, Tensor], test: Sample
) -> list[Tensor]:
    from torch.func import functional_call, vmap

    template.eval()
    predict = vmap(
        lambda values, inputs: functional_call(template, (values, {}), (inputs,)), in_dims=(0, None)
    )
    plain = {name: value.detach() for name, value in parameters.items()}
    with torch.no_grad():
        parts = [predict(plain, part) for part in in_parts(test.x, TEST_BATCH)]
    return list(torch.cat(parts, 1))
