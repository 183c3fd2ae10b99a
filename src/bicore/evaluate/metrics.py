"""Metrics of predictions, the main one of a task first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError, NumericalError, unknown_name
from bicore.evaluate.samples import Sample


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
