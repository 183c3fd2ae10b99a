"""Points as evaluation models see them, rows that tune those models, and metrics.

A good selection holds points that differ from one another, so leaving one out says little about it.
Settings are therefore chosen on other rows of the pool, the same for all selections. Without such
rows a model uses its first setting and scales columns by the selection itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.data import Array, of_mean_one
from bicore.errors import InputError, NumericalError, unknown_name

Setting = TypeVar("Setting")

#: Rows of a pool that choose settings.
TUNING_ROWS = 300
#: A column whose deviation is below this share of its mean is constant up to rounding.
FLAT = 1e-10


@dataclass(frozen=True, eq=False)
class Sample:
    """Points as an evaluation model sees them.

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

    def take(self, rows: Tensor) -> Sample:
        """Some of the points.

        Parameters
        ----------
        rows : Tensor
            Row numbers, or a mask.

        Returns
        -------
        Sample
            In the order of ``rows``.
        """
        return Sample(self.x[rows], self.y[rows], self.weight[rows])


def as_sample(
    x: Array, y: Array, weight: Array, device: torch.device, classification: bool
) -> Sample:
    """Convert arrays to tensors: float32 features, weights scaled to mean 1.

    Parameters
    ----------
    x : array (n, …)
        Features.
    y : array (n,) or (n, outputs)
        Class codes, or targets.
    weight : array (n,)
        Weights of any scale.
    device : torch.device
        Device of the tensors.
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
    arrays = (x, y, of_mean_one(weight))
    types = (torch.float32, torch.int64 if classification else torch.float32, torch.float32)
    pairs = zip(arrays, types, strict=True)
    return Sample(*(torch.from_numpy(np.ascontiguousarray(a)).to(device, t) for a, t in pairs))


def as_table(sample: Sample) -> Sample:
    """The points of positive weight as rows of float64 on the CPU.

    Parameters
    ----------
    sample : Sample
        The points.

    Returns
    -------
    Sample
        Without points of weight 0.

    Raises
    ------
    NumericalError
        If a feature is not finite in float32, the precision of trees.
    """
    rows = sample.x.double().flatten(1).cpu()
    if not torch.isfinite(rows.float()).all():
        raise NumericalError(
            "features exceed the range of float32, which tabular evaluation models use; scale "
            "them, or use another model."
        )
    labels = sample.y.cpu() if sample.classification else sample.y.double().cpu()
    weight = sample.weight.double().cpu()
    return Sample(rows, labels, weight).take(weight > 0)


class FeatureScaling(Enum):
    """How features are scaled before a model sees them."""

    #: Not at all: trees.
    NONE = auto()
    #: Every column to mean 0 and variance 1: tables.
    COLUMNS = auto()
    #: All columns by one number, so that their mean variance is 1: embeddings, pixels.
    TOGETHER = auto()


def fit_scaling(by: Sample, how: FeatureScaling) -> Callable[[Tensor], Tensor]:
    """Fit a scaling of features.

    Parameters
    ----------
    by : Sample
        Rows of numbers, with their weights.
    how : FeatureScaling
        By column, all together, or not at all.

    Returns
    -------
    callable
        From rows to rows.

    Examples
    --------
    >>> rows = Sample(torch.tensor([[0.0, 5.0], [2.0, 5.0]]), torch.zeros(2).long(), torch.ones(2))
    >>> scale = fit_scaling(as_table(rows), FeatureScaling.COLUMNS)
    >>> scale(torch.tensor([[4.0, 6.0]]).double()).tolist()
    [[3.0, 1.0]]
    """
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
    """Draw the rows of a pool that tune models: the same for all selections of a seed.

    Parameters
    ----------
    count : int
        Rows of the pool.
    seed : int
        Seed of the draw.

    Returns
    -------
    array of int
        At most 300 of them, in order.

    Examples
    --------
    >>> len(draw_tuning_rows(1000, seed=0)), len(draw_tuning_rows(20, seed=0))
    (300, 20)
    """
    rng = np.random.default_rng((seed, TUNING_ROWS))
    return np.sort(rng.choice(count, min(count, TUNING_ROWS), replace=False))


def separate(sample: Sample, rows: Sample) -> tuple[Sample, Sample]:
    """Training and validation points for a setting, without a row in common.

    Parameters
    ----------
    sample : Sample
        The selection.
    rows : Sample
        Rows of the pool; some may belong to the selection.

    Returns
    -------
    tuple of Sample
        The selection and the rows outside it. If the selection holds most of the rows: the
        selection without them, and all the rows.

    Examples
    --------
    >>> points = Sample(torch.arange(6.0)[:, None], torch.zeros(6).long(), torch.ones(6))
    >>> [len(part) for part in separate(points.take(slice(1)), points)]
    [1, 5]
    >>> [len(part) for part in separate(points, points.take(slice(4)))]
    [2, 4]
    """
    outside = _rows_outside(rows, sample)
    if 2 * int(outside.sum()) >= len(rows):
        return sample, rows.take(outside)
    return sample.take(_rows_outside(sample, rows)), rows


def _rows_outside(sample: Sample, other: Sample) -> Tensor:
    """A mask of the points that another sample does not hold."""
    own, known = ([row.tobytes() for row in s.x.flatten(1).cpu().numpy()] for s in (sample, other))
    held = set(known)
    return torch.tensor([row not in held for row in own], device=sample.x.device)


def targets_of(sample: Sample, outputs: int) -> Tensor:
    """One-hot rows (n, outputs) of classes, or the targets, in float64."""
    return (F.one_hot(sample.y, outputs) if sample.classification else sample.y).double()


def choose_setting(
    settings: Sequence[Setting],
    rows: Sample,
    outputs: int,
    predict: Callable[[Setting], Tensor | Array],
) -> Setting:
    """The setting with the smallest squared error on rows of the pool; the first of equals.

    Parameters
    ----------
    settings : sequence
        The candidates.
    rows : Sample
        Rows of the pool.
    outputs : int
        The number of classes or targets.
    predict : callable
        Predictions (n, outputs) for these rows by a model with a setting.

    Returns
    -------
    object
        One of the settings.

    Examples
    --------
    >>> rows = Sample(torch.zeros(3, 1), torch.tensor([0, 1, 1]), torch.ones(3))
    >>> predict = lambda share: torch.tensor([[1 - share, share]] * 3)
    >>> choose_setting([0.0, 0.7, 1.0], rows, 2, predict)
    0.7
    """
    targets, weight = targets_of(rows, outputs), rows.weight.double()
    misses = (torch.as_tensor(predict(one)) - targets for one in settings)
    errors = [float(weight @ miss.square().sum(1)) for miss in misses]
    return settings[int(np.argmin(errors))]


@dataclass(frozen=True)
class Measure:
    """One metric.

    Parameters
    ----------
    key : str
        Its name in records and JSON.
    word : str
        Its name on the command line.
    title : str
        Its name in tables.
    larger : bool
        Whether larger is better.

    Examples
    --------
    >>> measure_by("mae", classification=False).larger
    False
    """

    key: str
    word: str
    title: str
    larger: bool = True


CLASSES = (
    Measure("accuracy", "accuracy", "accuracy"),
    Measure("balanced_accuracy", "balanced", "balanced accuracy"),
)
TARGETS = (
    Measure("r2", "r2", "R²"),
    Measure("mean_absolute_error", "mae", "mean absolute error", larger=False),
)


@dataclass(frozen=True)
class Measures:
    """All metrics of one trained model.

    Parameters
    ----------
    values : dict
        Numbers by the metrics' keys, the main one first: accuracy and balanced accuracy for
        classes, R² and the mean absolute error for targets.
    by_class : tuple of float or None
        The recall of each class, in the order of their codes; None for a class without test rows.
        Empty for targets.

    Examples
    --------
    >>> Measures({"accuracy": 0.9, "balanced_accuracy": 0.8}).main
    0.9
    """

    values: dict[str, float]
    by_class: tuple[float | None, ...] = ()

    @property
    def main(self) -> float:
        """Accuracy, or R²."""
        return next(iter(self.values.values()))


def measures_of(classification: bool) -> tuple[Measure, ...]:
    """The metrics of a task, the main one first.

    Parameters
    ----------
    classification : bool
        Whether labels are classes.

    Returns
    -------
    tuple of Measure
        See :class:`Measures`.
    """
    return CLASSES if classification else TARGETS


def measure_by(word: str | None, classification: bool) -> Measure:
    """A metric of a task by its name on the command line.

    Parameters
    ----------
    word : str, optional
        One of accuracy, balanced, r2 and mae; by default the main one.
    classification : bool
        Whether labels are classes.

    Returns
    -------
    Measure
        The metric.

    Raises
    ------
    InputError
        If the name is unknown, or belongs to the other task.

    Examples
    --------
    >>> measure_by("balanced", classification=True).title
    'balanced accuracy'
    """
    own = {one.word: one for one in measures_of(classification)}
    if word is None:
        return next(iter(own.values()))
    if word in own:
        return own[word]
    if word not in (known := [one.word for one in (*CLASSES, *TARGETS)]):
        raise unknown_name("score", word, known)
    kind = "classes" if classification else "targets"
    raise InputError(
        f"score={word!r} does not apply to {kind}, which the labels are; use {' or '.join(own)}."
    )


def measured(predicted: Tensor, test: Sample) -> Measures:
    """Compute all metrics of a task.

    Parameters
    ----------
    predicted : Tensor (n, outputs)
        A number for each class, of which the largest counts, or targets.
    test : Sample
        The test points.

    Returns
    -------
    Measures
        All metrics of the task.

    Raises
    ------
    NumericalError
        If predictions are not finite, or the test targets are all equal.

    Examples
    --------
    >>> test = Sample(torch.zeros(4, 1), torch.tensor([0, 0, 0, 1]), torch.ones(4))
    >>> found = measured(torch.tensor([[1.0, 0.0]]).expand(4, 2), test)
    >>> found.values, found.by_class
    ({'accuracy': 0.75, 'balanced_accuracy': 0.5}, (1.0, 0.0))
    """
    from sklearn.metrics import accuracy_score, mean_absolute_error, recall_score

    if not torch.isfinite(predicted).all():
        raise NumericalError(
            "predictions of the evaluation model are not finite; scale the features, or use "
            "another model."
        )
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
    """R² = 1 − Σ‖y − h‖²/Σ‖y − ȳ‖² over all targets, constant ones included."""
    spread = np.square(y - y.mean(0)).sum()
    if not spread > 0:
        raise NumericalError("the test targets are all equal, so R² is undefined; test more rows.")
    score = float(1 - np.square(y - found).sum() / spread)
    if not math.isfinite(score):
        raise NumericalError("R² is not finite; scale the targets.")
    return score
