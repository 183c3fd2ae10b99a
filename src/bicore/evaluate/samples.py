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
    """Points as an evaluation model sees them."""

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
        """Some of the points."""
        return Sample(self.x[rows], self.y[rows], self.weight[rows])


def as_sample(
    x: Array, y: Array, weight: Array, device: torch.device, classification: bool
) -> Sample:
    """Convert arrays to tensors: float32 features, weights scaled to mean 1."""
    arrays = (x, y, of_mean_one(weight))
    types = (torch.float32, torch.int64 if classification else torch.float32, torch.float32)
    pairs = zip(arrays, types, strict=True)
    return Sample(*(torch.from_numpy(np.ascontiguousarray(a)).to(device, t) for a, t in pairs))


def as_table(sample: Sample) -> Sample:
    """The points of positive weight as rows of float64 on the CPU."""
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


def separate(sample: Sample, rows: Sample) -> tuple[Sample, Sample]:
    """Training and validation points for a setting, without a row in common."""
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
    """The setting with the smallest squared error on rows of the pool; the first of equals."""
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
    """All metrics of one trained model."""

    values: dict[str, float]
    by_class: tuple[float | None, ...] = ()

    @property
    def main(self) -> float:
        """Accuracy, or R²."""
        return next(iter(self.values.values()))


def measures_of(classification: bool) -> tuple[Measure, ...]:
    """The metrics of a task, the main one first."""
    return CLASSES if classification else TARGETS


def measure_by(word: str | None, classification: bool) -> Measure:
    """A metric of a task by its name on the command line."""
    own = {one.word: one for one in measures_of(classification)}
    if word is None:
        return next(iter(own.values()))
    if word in own:
        return own[word]
    if word not in (known := [one.word for one in (*CLASSES, *TARGETS)]):
        raise unknown_name("metric", word, known)
    kind = "classes" if classification else "targets"
    raise InputError(
        f"metric={word!r} does not apply to {kind}, which the labels are; use {' or '.join(own)}."
    )


def measured(predicted: Tensor, test: Sample) -> Measures:
    """Compute all metrics of a task."""
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
