"""Judges of a selection: models trained on the chosen points, tested on data that no method saw.

Networks of one shape are trained together as a stack. They start from the same weights and drop the
same units, so that a difference between two selections of one seed is the selections', and so that
a score does not depend on what it was stacked with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore.data import Array, of_mean_one
from bicore.errors import InputError, NumericalError, unknown_name
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF

#: Regulariser of the kernel judge, relative to the mean of the kernel's diagonal.
RIDGE = 1e-3
BATCH = 256
TEST_BATCH = 500
#: On a GPU the algorithms of small stacks differ from those of large ones, and that of a single
#: network is not even deterministic; from nine on, scores were the same to the last bit whatever
#: stood beside them (H200). Smaller stacks are filled up to this.
SMALLEST_STACK = 9
#: At most so many networks are trained at once, times the points each sees, so that a stack fits a
#: small machine's memory.
STACKED_POINTS = {"cpu": 2000, "cuda": 20000}
#: Test points that a kernel judge predicts at a time.
KERNEL_ROWS = 1000


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


class Judge(ABC):
    """Scores of several selections of the same size: accuracy for classes, R² for targets.

    Examples
    --------
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name: str

    def check(self, shape: tuple[int, ...], outputs: int) -> None:  # noqa: B027 (most judges take any points)
        """Refuse points that this judge cannot read, before any work.

        Parameters
        ----------
        shape : tuple of int
            The shape of one point.
        outputs : int
            The number of classes or targets.

        Raises
        ------
        InputError
            Where it cannot read them.
        """

    def at_once(self, size: int, device: torch.device) -> int:
        """How many selections are best scored together.

        Parameters
        ----------
        size : int
            Points of each selection.
        device : torch.device
            Where they are.

        Returns
        -------
        int
            1, unless the judge gains by more.
        """
        return 1

    def network(self, steps: int) -> NetworkJudge:
        """What trains the model that some methods look at.

        Parameters
        ----------
        steps : int
            How long it is trained, where the judge itself is no network.

        Returns
        -------
        NetworkJudge
            The judge itself where it is a network, else the paper's fully connected one.
        """
        return NetworkJudge("mlp", perceptron, steps)

    @abstractmethod
    def scores(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[float]:
        """Train on each selection from scratch and test.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            What is tested on.
        outputs : int
            The number of classes or targets.
        seed : int
            Of the training.

        Returns
        -------
        list of float
            One score a selection.

        Raises
        ------
        NumericalError
            Where a training or its test ends in numbers that are not finite.
        """


@dataclass(frozen=True)
class RidgeJudge(Judge):
    """Kernel ridge regression.

    Parameters
    ----------
    kernel : Kernel, optional
        By default an RBF whose bandwidth is the median distance of the test points.

    Examples
    --------
    >>> from bicore import Laplace
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge(Laplace(1.0)).scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    kernel: Kernel | None = None
    name = "ridge"

    def scores(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[float]:
        kernel = self.kernel or RBF().fitted(test.x.double().cpu().numpy())
        return [self._score(kernel, sample, test, outputs) for sample in selections]

    def _score(self, kernel: Kernel, sample: Sample, test: Sample, outputs: int) -> float:
        x = sample.x.double()
        gram = kernel.gram(x)
        targets = (F.one_hot(sample.y, outputs) if sample.classification else sample.y).double()
        weight = sample.weight.double().clamp_min(torch.finfo(torch.float64).tiny)
        centre = (weight / weight.sum()) @ targets
        shift = torch.diag(RIDGE * gram.diagonal().mean() / weight)
        alpha = torch.linalg.solve(gram + shift, targets - centre)
        parts = _parts(test.x, KERNEL_ROWS)
        predicted = torch.cat([kernel.evaluate(part.double(), x) @ alpha for part in parts])
        return _score(predicted + centre, test)


@dataclass(frozen=True)
class NetworkJudge(Judge):
    """A network trained with Adam, in batches of 256 where there are more points than that.

    Parameters
    ----------
    name : str
        What tables and errors call it.
    build : callable
        Makes one from the shape of a point and the number of outputs.
    steps : int
        Training steps.
    rate : float
        Adam's step size.

    Examples
    --------
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

    def network(self, steps: int) -> NetworkJudge:
        return self

    def scores(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[float]:
        template, parameters = self.trained(selections, outputs, seed)
        return _stacked_scores(template, parameters, test)

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """One network, trained.

        Parameters
        ----------
        sample : Sample
            What it is trained on.
        outputs : int
            The number of classes or targets.
        seed : int
            Of its first weights and its training.

        Returns
        -------
        torch.nn.Module
            In eval mode, on the sample's device.

        Raises
        ------
        NumericalError
            Where the training diverges.
        """
        template, parameters = self.trained([sample], outputs, seed)
        with torch.no_grad():
            for name, value in template.named_parameters():
                value.copy_(parameters[name][0])
        return template.eval()

    def trained(
        self, selections: Sequence[Sample], outputs: int, seed: int
    ) -> tuple[nn.Module, dict[str, Tensor]]:
        """Networks, one a selection, trained together.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        outputs : int
            The number of classes or targets.
        seed : int
            Of the first weights and the training, which the networks share.

        Returns
        -------
        template : torch.nn.Module
            The architecture.
        parameters : dict of Tensor
            The trained parameters by name, stacked along the first axis.

        Raises
        ------
        NumericalError
            Where a training diverges.
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
                    f"the {self.name} judge's training diverged; scale the features, or use "
                    "another judge."
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


def _parts(x: Tensor, rows: int) -> list[Tensor]:
    """So many rows at a time."""
    return [x[start : start + rows] for start in range(0, len(x), rows)]


def _stacked_scores(
    template: nn.Module, parameters: dict[str, Tensor], test: Sample
) -> list[float]:
    from torch.func import functional_call, vmap

    template.eval()
    predict = vmap(
        lambda values, inputs: functional_call(template, (values, {}), (inputs,)), in_dims=(0, None)
    )
    plain = {name: value.detach() for name, value in parameters.items()}
    with torch.no_grad():
        parts = [predict(plain, part) for part in _parts(test.x, TEST_BATCH)]
    return [_score(one, test) for one in torch.cat(parts, 1)]


def _score(predicted: Tensor, test: Sample) -> float:
    """Accuracy, or R² = 1 − Σ‖y − h‖²/Σ‖y − ȳ‖²."""
    if not torch.isfinite(predicted).all():
        raise NumericalError(
            "a judge's predictions are not finite; scale the features, or use another judge."
        )
    if test.classification:
        return float((predicted.argmax(1) == test.y).double().mean())
    goal = test.y.double()
    spread = float((goal - goal.mean(0)).square().sum())
    if not spread > 0:
        raise NumericalError(
            "the targets tested on are all equal, so R² means nothing; test on more points."
        )
    score = 1 - float((goal - predicted.double()).square().sum()) / spread
    if not np.isfinite(score):
        raise NumericalError("R² is not finite; scale the targets.")
    return score


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


#: The networks among the judges, by name.
NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "mlp": perceptron,
    "cnn": convolutional,
}
JUDGES = ("ridge", *NETWORKS)


def as_judge(name: str, steps: int) -> Judge:
    """A judge by name.

    Parameters
    ----------
    name : {"ridge", "mlp", "cnn"}
        Kernel ridge regression, or one of the paper's networks.
    steps : int
        Training steps of a network.

    Returns
    -------
    Judge
        The judge.

    Raises
    ------
    InputError
        Where the name is not known.

    Examples
    --------
    >>> as_judge("mlp", steps=500).name
    'mlp'
    """
    if name == "ridge":
        return RidgeJudge()
    if name in NETWORKS:
        return NetworkJudge(name, NETWORKS[name], steps)
    raise unknown_name("judge", name, JUDGES)


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
