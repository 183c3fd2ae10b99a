"""Evaluation models by name; a new one is a class and a line of ``JUDGES``.

A good selection holds rows that differ from one another, so leaving one out says little about it.
Settings are therefore chosen on other rows of the pool, the same for all selections. Without such
rows a model uses its first setting and scales columns by the selection itself.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cache
from itertools import product
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore._deprecated import renamed_methods
from bicore.data import Array, scale_to_mean_one
from bicore.errors import InputError, NumericalError, check_name, check_number, check_settings
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF, squared_distances
from bicore.runtime.threads import single_thread

Setting = TypeVar("Setting")

#: Number of rows of a pool that choose settings.
TUNING_ROWS = 300
#: A column whose deviation is below this share of its mean is constant up to rounding.
FLAT = 1e-10


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows as an evaluation model sees them."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def classification(self) -> bool:
        """Whether y holds classes."""
        return self.y.dim() == 1

    def take(self, rows: Tensor) -> Sample:
        """Return some of the rows."""
        return Sample(self.x[rows], self.y[rows], self.weight[rows])


#: The samples of one or several selections.
Picks = Sequence[Sample]


def as_sample(x: Array, y: Array, weight: Array, device: torch.device, classes: bool) -> Sample:
    """Convert arrays to tensors: float32 features, weights scaled to mean 1."""
    arrays = (x, y, scale_to_mean_one(weight))
    types = (torch.float32, torch.int64 if classes else torch.float32, torch.float32)
    pairs = zip(arrays, types, strict=True)
    return Sample(*(torch.from_numpy(np.ascontiguousarray(a)).to(device, t) for a, t in pairs))


def as_table(sample: Sample) -> Sample:
    """Convert rows of positive weight to float64 on the CPU."""
    rows = sample.x.double().flatten(1).cpu()
    if not torch.isfinite(rows.float()).all():
        wrong = "features exceed the range of float32, which tabular evaluation models use"
        raise NumericalError(f"{wrong}; scale them, or use another model.")
    labels = sample.y.cpu() if sample.classification else sample.y.double().cpu()
    weight = sample.weight.double().cpu()
    return Sample(rows, labels, weight).take(weight > 0)


class FeatureScaling(Enum):
    """The scaling of features before training."""

    #: No scaling: trees.
    NONE = auto()
    #: Each column to mean 0 and variance 1: tables.
    COLUMNS = auto()
    #: All columns by one number, so that their mean variance is 1: embeddings, pixels.
    TOGETHER = auto()


def fit_scaling(by: Sample, how: FeatureScaling) -> Callable[[Tensor], Tensor]:
    """Fit a scaling of features."""
    if how is FeatureScaling.NONE:
        return lambda rows: rows
    share = by.weight / by.weight.sum()
    mean = share @ by.x
    deviation = (share @ (by.x - mean).square()).sqrt()
    if how is FeatureScaling.TOGETHER:
        deviation = deviation.square().mean().sqrt().expand_as(deviation)
    deviation = torch.where(deviation <= FLAT * mean.abs(), 1.0, deviation)
    return lambda rows: (rows - mean) / deviation


def draw_tuning_rows(count: int, seed: int) -> Array:
    """Draw the rows of a pool that tune models: the same for all selections of a seed."""
    rng = np.random.default_rng((seed, TUNING_ROWS))
    return np.sort(rng.choice(count, min(count, TUNING_ROWS), replace=False))


def split_tuning_rows(sample: Sample, rows: Sample) -> tuple[Sample, Sample]:
    """Split rows into disjoint training and validation rows."""
    outside = _rows_outside(rows, sample)
    if 2 * int(outside.sum()) >= len(rows):
        return sample, rows.take(outside)
    return sample.take(_rows_outside(sample, rows)), rows


def _rows_outside(sample: Sample, other: Sample) -> Tensor:
    """Return a mask of the rows that another sample does not contain."""
    own, known = ([row.tobytes() for row in s.x.flatten(1).cpu().numpy()] for s in (sample, other))
    held = set(known)
    return torch.tensor([row not in held for row in own], device=sample.x.device)


def targets_of(sample: Sample, outputs: int) -> Tensor:
    """Return one-hot rows (n, outputs) of classes, or the targets, in float64."""
    return (F.one_hot(sample.y, outputs) if sample.classification else sample.y).double()


def choose_setting(
    settings: Sequence[Setting],
    rows: Sample,
    outputs: int,
    predict: Callable[[Setting], Tensor | Array],
) -> Setting:
    """Return the setting with the smallest squared error on rows of the pool; the first of equal
    ones."""
    targets, weight = targets_of(rows, outputs), rows.weight.double()
    misses = (torch.as_tensor(predict(one)) - targets for one in settings)
    errors = [float(weight @ miss.square().sum(1)) for miss in misses]
    return settings[int(np.argmin(errors))]


@dataclass(frozen=True)
class Measure:
    """One metric."""

    key: str
    word: str
    title: str
    higher_is_better: bool = True


CLASSES = (
    Measure("accuracy", "accuracy", "accuracy"),
    Measure("balanced_accuracy", "balanced", "balanced accuracy"),
)
TARGETS = (
    Measure("r2", "r2", "R²"),
    Measure("mean_absolute_error", "mae", "mean absolute error", higher_is_better=False),
)


@dataclass(frozen=True)
class Measures:
    """All metrics of one trained model."""

    values: dict[str, float]
    by_class: tuple[float | None, ...] = ()

    @property
    def main(self) -> float:
        """Accuracy, or R²."""
        return next(iter(self.values.values()))


def measures_of(classification: bool) -> tuple[Measure, ...]:
    """Return the metrics of a task, the main one first."""
    return CLASSES if classification else TARGETS


def measure_by(word: str | None, classification: bool) -> Measure:
    """Return a metric of a task by its name on the command line."""
    own = {one.word: one for one in measures_of(classification)}
    if word is None:
        return next(iter(own.values()))
    if check_name("metric", word, [one.word for one in (*CLASSES, *TARGETS)]) in own:
        return own[word]
    kind = "class labels" if classification else "numeric targets"
    raise InputError(f"metric={word!r} does not apply to {kind}; use {' or '.join(own)}.")


def compute_measures(predicted: Tensor, test: Sample) -> Measures:
    """Compute all metrics of a task."""
    from sklearn.metrics import accuracy_score, mean_absolute_error, recall_score

    if not torch.isfinite(predicted).all():
        fix = "scale the features, or use another model"
        raise NumericalError(f"predictions of the evaluation model are not finite; {fix}.")
    y = test.y.cpu().numpy()
    if not test.classification:
        y, found = y.astype(np.float64), predicted.double().cpu().numpy()
        error = float(mean_absolute_error(y, found))
        return Measures({"r2": _r_squared(y, found), "mean_absolute_error": error})
    found = predicted.argmax(1).cpu().numpy()
    classes = np.arange(predicted.shape[1])
    recalls = recall_score(y, found, labels=classes, average=None, zero_division=np.nan)
    balanced = float(np.nanmean(recalls))
    values = {"accuracy": float(accuracy_score(y, found)), "balanced_accuracy": balanced}
    return Measures(values, tuple(None if math.isnan(one) else one for one in recalls.tolist()))


def _r_squared(y: Array, found: Array) -> float:
    """Compute R² = 1 − Σ‖y − h‖²/Σ‖y − ȳ‖² over all targets, including constant ones."""
    spread = np.square(y - y.mean(0)).sum()
    if not spread > 0:
        raise NumericalError("the test targets are all equal, so R² is undefined; test more rows.")
    score = float(1 - np.square(y - found).sum() / spread)
    if not math.isfinite(score):
        raise NumericalError("R² is not finite; scale the targets.")
    return score


@renamed_methods(tuned_by="tune", at_once="stack_size")
class Judge(ABC):
    """An evaluation model: it scores selections by accuracy for classes and R² for targets.

    The model is trained on the selection alone. Its regularisation and the scaling of columns are
    chosen on other rows of the pool (:meth:`tune`), the same for all selections.

    Examples
    --------
    >>> from bicore.evaluate.models import RidgeJudge
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name: str
    #: Whether ``module`` trains a network, which some selection methods need.
    is_network: ClassVar[bool] = False

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """Train one network.

        Parameters
        ----------
        sample : Sample
            The training rows.
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
        raise NotImplementedError

    def check(self, shape: tuple[int, ...], outputs: int) -> None:  # noqa: B027 (most models accept any rows)
        """Refuse rows that this model cannot read, before any work.

        Parameters
        ----------
        shape : tuple of int
            The shape of one row.
        outputs : int
            The number of classes or targets.

        Raises
        ------
        InputError
            If the model cannot read them.
        """

    def stack_size(self, size: int, device: torch.device) -> int:
        """The number of selections to train together.

        Parameters
        ----------
        size : int
            Points of each selection.
        device : torch.device
            Their device.

        Returns
        -------
        int
            1, unless the model is faster with more.
        """
        return 1

    def title(self, classification: bool) -> str:
        """Return its name for tables.

        Parameters
        ----------
        classification : bool
            Whether labels are classes.

        Returns
        -------
        str
            ``name``, unless the model differs for targets.
        """
        return self.name

    def tune(self, rows: Sample) -> Judge:
        """The same model, with rows of the pool that choose its settings.

        Parameters
        ----------
        rows : Sample
            The same for all selections that are compared.

        Returns
        -------
        Judge
            Itself if it has no settings to choose.
        """
        return self

    @abstractmethod
    def predictions(self, selections: Picks, test: Sample, outputs: int, seed: int) -> list[Tensor]:
        """Train on each selection from scratch and predict.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            The test rows.
        outputs : int
            The number of classes or targets.
        seed : int
            Seed of the training.

        Returns
        -------
        list of Tensor
            For each selection (n, outputs): a number per class, of which the largest counts, or
            targets.

        Raises
        ------
        NumericalError
            If training ends in numbers that are not finite.
        """

    def measures(self, selections: Picks, test: Sample, outputs: int, seed: int) -> list[Measures]:
        """Train on each selection from scratch and compute every metric of the task.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            The test rows.
        outputs : int
            The number of classes or targets.
        seed : int
            Seed of the training.

        Returns
        -------
        list of Measures
            Those of each selection.

        Raises
        ------
        NumericalError
            If training or test ends in numbers that are not finite.
        """
        found = self.predictions(selections, test, outputs, seed)
        return [compute_measures(one, test) for one in found]

    def scores(self, selections: Picks, test: Sample, outputs: int, seed: int) -> list[float]:
        """Train on each selection from scratch and compute the main metric.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            The test rows.
        outputs : int
            The number of classes or targets.
        seed : int
            Seed of the training.

        Returns
        -------
        list of float
            One score per selection: accuracy, or R².

        Raises
        ------
        NumericalError
            If training or test ends in numbers that are not finite.
        """
        return [one.main for one in self.measures(selections, test, outputs, seed)]


BATCH = 256
TEST_BATCH = 500
#: On a GPU small stacks use other algorithms than large ones, and a single network is not even
#: deterministic. From nine on, scores did not depend on the rest of the stack (H200), so smaller
#: stacks are padded to this size.
SMALLEST_STACK = 9
#: Limit of networks times rows in a stack, so that it fits the memory of a small machine.
STACKED_POINTS = {"cpu": 2000, "cuda": 20000}


def perceptron(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The paper's fully connected network: two hidden layers of 100, dropout 0.2."""
    first = [nn.Linear(int(np.prod(shape)), 100), nn.ReLU(), nn.Dropout(0.2)]
    second = [nn.Linear(100, 100), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(nn.Flatten(), *first, *second, nn.Linear(100, outputs))


def convolutional(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The paper's CNN: two blocks of 5×5 convolution, dropout, ReLU and pooling, then 128 units."""
    if len(shape) != 3 or min(shape[1:]) < 16:
        wrong = "judge='cnn' needs images (channels, height, width) of at least 16×16"
        raise InputError(f"{wrong}; got rows of shape {shape}. Use judge='mlp'.")
    channels, *sides = shape
    first = [nn.Conv2d(channels, 32, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
    third = [nn.Linear(64 * height * width, 128), nn.Dropout(0.5), nn.ReLU()]
    return nn.Sequential(*first, *second, *third, nn.Linear(128, outputs))


@renamed_methods(trained="train_networks")
@dataclass(frozen=True)
class NetworkJudge(Judge):
    """A network trained with Adam, in batches of 256 if there are more rows.

    Parameters
    ----------
    name : str
        Its name in tables and messages.
    build : callable
        Function from the shape of a row and the number of outputs to a network.
    steps : int
        Training steps.
    rate : float
        Adam's step size.

    Examples
    --------
    >>> from bicore.evaluate.models import perceptron
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> judge = NetworkJudge("mlp", perceptron, steps=200)
    >>> judge.scores([points, points], points, outputs=2, seed=0)
    [1.0, 1.0]
    """

    name: str
    build: Callable[[tuple[int, ...], int], nn.Module]
    steps: int = 1000
    rate: float = 5e-4
    is_network = True

    def __post_init__(self) -> None:
        check_settings(self, "steps", "rate")

    def check(self, shape: tuple[int, ...], outputs: int) -> None:
        with torch.random.fork_rng(devices=[]):
            self.build(shape, outputs)

    def stack_size(self, size: int, device: torch.device) -> int:
        return max(1, STACKED_POINTS[device.type] // size)

    def predictions(self, selections: Picks, test: Sample, outputs: int, seed: int) -> list[Tensor]:
        from torch.func import functional_call, vmap  # imported late: it takes time

        template, parameters = self.train_networks(selections, outputs, seed)
        template.eval()
        predict = vmap(lambda own, x: functional_call(template, (own, {}), (x,)), in_dims=(0, None))
        plain = {name: value.detach() for name, value in parameters.items()}
        with torch.no_grad():
            parts = [predict(plain, part) for part in torch.split(test.x, TEST_BATCH)]
        return list(torch.cat(parts, 1))

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        template, parameters = self.train_networks([sample], outputs, seed)
        with torch.no_grad():
            for name, value in template.named_parameters():
                value.copy_(parameters[name][0])
        return template.eval()

    def train_networks(
        self, selections: Picks, outputs: int, seed: int
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
        parts = zip(*((sample.x, sample.y, sample.weight) for sample in selections), strict=True)
        stack = Sample(*(torch.stack(part) for part in parts))
        x = stack.x
        forked = [x.device] if x.device.type == "cuda" else []
        with torch.random.fork_rng(devices=forked), torch.enable_grad():
            torch.manual_seed(seed)
            template = self.build(tuple(x.shape[2:]), outputs).to(x.device, x.dtype)
            parameters = {
                name: value.detach().expand(len(x), *value.shape).clone()
                for name, value in template.named_parameters()
            }
            self._train(template.train(), parameters, stack, seed)
        for value in parameters.values():
            if not torch.isfinite(value).all():
                wrong = f"training of the evaluation model {self.name} diverged"
                raise NumericalError(f"{wrong}; scale the features, or use another model.")
        return template, {name: value[:wanted] for name, value in parameters.items()}

    def _train(
        self, template: nn.Module, parameters: dict[str, Tensor], stack: Sample, seed: int
    ) -> None:
        from torch.func import functional_call, grad, vmap  # imported late: it takes time

        def loss(values: dict[str, Tensor], x: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
            predicted: Tensor = functional_call(template, (values, {}), (x,))
            if labels.dim() == 1:
                return (weights * F.cross_entropy(predicted, labels, reduction="none")).mean()
            return (weights * (predicted - labels).square().sum(1)).mean()

        gradients = vmap(grad(loss), randomness="same")
        optimiser = torch.optim.Adam(list(parameters.values()), lr=self.rate)
        rng = np.random.default_rng(seed)
        count = stack.x.shape[1]
        rows: Any = slice(None)
        for _ in range(self.steps):
            if count > BATCH:
                rows = torch.from_numpy(rng.choice(count, BATCH, replace=False)).to(stack.x.device)
            part = (stack.x[:, rows], stack.y[:, rows], stack.weight[:, rows])
            found = gradients(parameters, *part)
            for name, value in parameters.items():
                value.grad = found[name].detach()
            optimiser.step()


#: Penalties of kernel ridge regression, relative to the mean of the kernel's diagonal: the default
#: without tuning rows first, then half decades from a strong penalty to almost none.
RIDGES = (0.1, *(10 ** (power / 2) for power in range(4, -9, -1)))
#: Inverse penalties of logistic regression, the default first.
INVERSE_PENALTIES = (1.0, 1e-2, 1e-1, 10.0, 100.0)
#: Numbers of neighbours.
NEIGHBOURS = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100)
#: The default number of neighbours for classes (a class may have a single row) and for targets.
DEFAULT_NEIGHBOURS = {True: 1, False: 3}
#: Relative error allowed in a squared distance between neighbours.
DISTANCE_ERROR = 1e-9
#: Maximum number of rows on which kernel ridge regression tries its penalties.
MOST_TRIED = 500
#: Test rows predicted at a time.
ROWS = 1000
#: scikit-learn's classes of trees. Boosting shows each tree half of the rows, and each split some
#: of the columns: on a few dozen rows greedy trees repeat the same splits and overfit.
TREES: dict[str, tuple[str, dict[str, Any]]] = {
    "forest": ("RandomForest", {"n_estimators": 100, "n_jobs": 1}),
    "boosting": ("GradientBoosting", {"subsample": 0.5, "max_features": "sqrt"}),
}
#: Fewer rows are not halved: trees on one row of two are constant, and their class depends on the
#: order of the rows.
FEWEST_HALVED = 20
#: Predictions of a model with some setting.
Predictor = Callable[[Any], Tensor]
BOTH_SCALINGS = (FeatureScaling.COLUMNS, FeatureScaling.TOGETHER)


@dataclass(frozen=True)
class TunedJudge(Judge):
    """A model with a setting chosen by the squared error on rows of the pool."""

    rows: Sample | None = field(default=None, compare=False, repr=False, kw_only=True)

    def tune(self, rows: Sample) -> Self:
        return replace(self, rows=self._prepare(rows))

    def predictions(self, selections: Picks, test: Sample, outputs: int, seed: int) -> list[Tensor]:
        model = self._fit_to(test)
        x = self._prepare(Sample(test.x, test.y, torch.ones(len(test)))).x
        found = [model._predict(self._prepare(one), x, outputs, seed) for one in selections]
        return [one.to(test.x.device) for one in found]

    def _predict(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Tensor:
        setting = self._default(sample)
        if self.rows is not None:
            points, rows = split_tuning_rows(sample, self.rows)
            if len(points) and len(settings := self._settings(points)) > 1:
                tried = self._predictor(self._subsample(points, seed), rows.x, outputs, seed)
                setting = choose_setting(settings, rows, outputs, tried)
        return self._predictor(sample, x, outputs, seed)(setting)

    def _prepare(self, sample: Sample) -> Sample:
        """Return the rows in the form that the model needs."""
        return as_table(sample)

    def _fit_to(self, test: Sample) -> Self:
        """Return the model, adapted to the features of the test rows."""
        return self

    def _subsample(self, points: Sample, seed: int) -> Sample:
        """Return the rows on which settings are tried."""
        return points

    def _default(self, sample: Sample) -> Any:
        """Return the setting to use without rows of the pool."""
        return self._settings(sample)[0]

    @abstractmethod
    def _settings(self, points: Sample) -> Sequence[Any]:
        """Return the settings to try on some rows."""

    @abstractmethod
    def _predictor(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Predictor:
        """Return a function from a setting to the predictions of a model trained on the sample."""


@dataclass(frozen=True)
class RidgeJudge(TunedJudge):
    """Kernel ridge regression.

    Parameters
    ----------
    kernel : Kernel, optional
        By default an RBF whose bandwidth is the median distance of the test rows.
    ridge : float, optional
        The penalty, relative to the mean of the kernel's diagonal. By default the one with the
        smallest squared error on rows of the pool, or 0.1 without such rows.
    rows : Sample, optional
        Rows of the pool on which the penalty is chosen.

    Raises
    ------
    InputError
        If the penalty is not positive.

    Examples
    --------
    >>> from bicore.kernels import Laplace
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge(Laplace(1.0)).scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    kernel: Kernel | None = None
    ridge: float | None = None
    name = "ridge"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            check_number("ridge", self.ridge, above=0, fix="or None to tune it")

    def _prepare(self, sample: Sample) -> Sample:
        return sample

    def _fit_to(self, test: Sample) -> Self:
        kernel = self.kernel or RBF().fit(test.x.double().cpu().numpy())
        return replace(self, kernel=kernel)

    def _subsample(self, points: Sample, seed: int) -> Sample:
        """Draw rows at random, because every tenth row of a selection may be of one class."""
        if len(points) <= MOST_TRIED:
            return points
        rng = np.random.default_rng((seed, MOST_TRIED))
        rows = np.sort(rng.choice(len(points), MOST_TRIED, replace=False))
        return points.take(torch.from_numpy(rows).to(points.x.device))

    def _settings(self, points: Sample) -> Sequence[float]:
        return RIDGES if self.ridge is None else (self.ridge,)

    def _predictor(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Predictor:
        kernel = self.kernel
        assert kernel is not None
        own, targets = sample.x.double(), targets_of(sample, outputs)
        gram = kernel.gram(own)
        weight = sample.weight.double().clamp_min(torch.finfo(torch.float64).tiny)
        mean = (weight / weight.sum()) @ targets

        def predict(ridge: float) -> Tensor:
            shift = torch.diag(ridge * gram.diagonal().mean() / weight)
            alpha = torch.linalg.solve(gram + shift, targets - mean)
            parts = [kernel.evaluate(part.double(), own) @ alpha for part in torch.split(x, ROWS)]
            return torch.cat(parts) + mean

        return predict


@dataclass(frozen=True)
class NearestJudge(TunedJudge):
    """Nearest neighbours; a row of weight w counts as w neighbours, in fractions too.

    Rows of the pool choose the number of neighbours and the scaling of columns.
    """

    name = "knn"

    def _default(self, sample: Sample) -> tuple[FeatureScaling, int]:
        return FeatureScaling.COLUMNS, DEFAULT_NEIGHBOURS[sample.classification]

    def _settings(self, points: Sample) -> Sequence[tuple[FeatureScaling, int]]:
        counts = [count for count in NEIGHBOURS if count <= len(points)]
        return list(product(BOTH_SCALINGS, counts))

    def _predictor(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Predictor:
        targets = targets_of(sample, outputs)

        @cache
        def nearest(how: FeatureScaling) -> list[Tensor]:
            """For each row the sample's rows, nearest first; one order serves every count."""
            scale = fit_scaling(self.rows or sample, how)
            own = scale(sample.x)
            parts = torch.split(scale(x), ROWS)
            distances = (squared_distances(part, own, DISTANCE_ERROR) for part in parts)
            return [one.argsort(stable=True, dim=1) for one in distances]

        def predict(setting: tuple[FeatureScaling, int]) -> Tensor:
            how, count = setting
            parts = [_mean_of_nearest(part, targets, sample.weight, count) for part in nearest(how)]
            return torch.cat(parts)

        return predict


def _mean_of_nearest(near: Tensor, targets: Tensor, weight: Tensor, count: int) -> Tensor:
    """Return the mean over the nearest neighbours whose weights add up to the count."""
    own = weight[near]
    before = own.cumsum(1) - own
    taken = torch.minimum(own, (count - before).clamp_min(0))
    shares = taken / taken.sum(1, keepdim=True)
    return shares.new_zeros(len(near), len(targets)).scatter_(1, near, shares) @ targets


@dataclass(frozen=True)
class TableJudge(TunedJudge):
    """A scikit-learn estimator trained on rows of numbers."""

    #: Pairs of a scaling and a number that the estimator reads; the default first.
    settings: ClassVar[tuple[tuple[FeatureScaling, float], ...]] = ((FeatureScaling.NONE, 0.0),)

    @abstractmethod
    def estimator(self, classification: bool, number: float, seed: int, rows: int) -> Any:
        """Return an unfitted estimator for this number of rows that accepts weights."""

    def predictions(self, selections: Picks, test: Sample, outputs: int, seed: int) -> list[Tensor]:
        with single_thread(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that stops early is scored too
            return super().predictions(selections, test, outputs, seed)

    def _settings(self, points: Sample) -> Sequence[tuple[FeatureScaling, float]]:
        return self.settings

    def _predictor(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Predictor:
        def predict(setting: tuple[FeatureScaling, float]) -> Tensor:
            how, number = setting
            scale = fit_scaling(self.rows or sample, how)
            rows, weight, points = scale(sample.x).numpy(), sample.weight.numpy(), scale(x).numpy()
            labels = sample.y.numpy()

            def fit(y: Array) -> Any:
                found = self.estimator(sample.classification, number, seed, len(rows))
                return found.fit(rows, y, weight)

            if not sample.classification:
                return torch.from_numpy(np.stack([fit(y).predict(points) for y in labels.T], 1))
            found = np.zeros((len(points), outputs))  # 0 for classes that the sample lacks
            present = np.unique(labels)
            found[:, present] = fit(labels).predict_proba(points) if len(present) > 1 else 1
            return torch.from_numpy(found)

        return predict


@dataclass(frozen=True)
class MajorityJudge(TableJudge):
    """The majority class of a selection, or the mean of its targets, for every row."""

    name = "majority"

    def estimator(self, classification: bool, number: float, seed: int, rows: int) -> Any:
        from sklearn.dummy import DummyClassifier, DummyRegressor

        return DummyClassifier() if classification else DummyRegressor()


@dataclass(frozen=True)
class LogisticJudge(TableJudge):
    """Multinomial logistic regression; for targets ridge regression.

    Rows of the pool choose the penalty and the scaling of columns.
    """

    name = "logistic"
    settings = tuple(product(BOTH_SCALINGS, INVERSE_PENALTIES))

    def title(self, classification: bool) -> str:
        return "logistic" if classification else "linear (ridge regression)"

    def estimator(self, classification: bool, number: float, seed: int, rows: int) -> Any:
        from sklearn.linear_model import LogisticRegression, Ridge  # imported late: it takes time

        if classification:
            return LogisticRegression(C=number, max_iter=200, tol=1e-3)
        return Ridge(1 / number)


@dataclass(frozen=True)
class TreesJudge(TableJudge):
    """A random forest of 100 trees, or gradient boosting: 100 small trees on halves of the rows.

    Fewer than 20 rows are not halved.
    """

    name: str = "forest"

    def estimator(self, classification: bool, number: float, seed: int, rows: int) -> Any:
        from sklearn import ensemble

        kind, options = TREES[self.name]
        if self.name == "boosting" and rows < FEWEST_HALVED:
            options = {**options, "subsample": 1.0}
        task = "Classifier" if classification else "Regressor"
        return getattr(ensemble, f"{kind}{task}")(random_state=seed, **options)


#: Each takes the number of training steps, which only networks use.
JUDGES: dict[str, Callable[[int], Judge]] = {
    "ridge": lambda steps: RidgeJudge(),
    "logistic": lambda steps: LogisticJudge(),
    "forest": lambda steps: TreesJudge("forest"),
    "boosting": lambda steps: TreesJudge("boosting"),
    "knn": lambda steps: NearestJudge(),
    "mlp": lambda steps: NetworkJudge("mlp", perceptron, steps),
    "cnn": lambda steps: NetworkJudge("cnn", convolutional, steps),
}


def as_judge(name: str, steps: int) -> Judge:
    """Return an evaluation model by its name."""
    return JUDGES[check_name("judge", name, JUDGES)](steps)
