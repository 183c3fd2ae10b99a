"""How good predictions are: every measure of a task, the main one first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.errors import InputError, NumericalError, unknown_name
from bicore.evaluate.judges.sample import Sample


@dataclass(frozen=True)
class Measure:
    """One number of a test.

    Parameters
    ----------
    key : str
        Its name in records and JSON.
    word : str
        What a command calls it.
    title : str
        Its name in tables.
    larger : bool
        Whether more of it is better.
    of : callable
        Computes it from predictions (class codes or targets) and what they should have been.

    Examples
    --------
    >>> CLASSES[0].of(torch.tensor([0, 1]), torch.tensor([0, 0]))
    0.5
    """

    key: str
    word: str
    title: str
    larger: bool
    of: Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Measures:
    """All measures of one trained judge.

    Parameters
    ----------
    values : dict
        Numbers by the measures' keys, the main one first: accuracy and balanced accuracy for
        classes, R² and the mean absolute error for targets.
    by_class : tuple of float or None
        The share of each class that is found, in the order of their codes; None for one that is
        not tested on. Empty for targets.

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
    """The measures of a task, the main one first.

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
    """A measure of a task by the word of a command.

    Parameters
    ----------
    word : str, optional
        One of accuracy, balanced, r2 and mae; by default the main one.
    classification : bool
        Whether labels are classes.

    Returns
    -------
    Measure
        The measure.

    Raises
    ------
    InputError
        Where the word is not known, or is of the other task.

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
    if word not in {one.word for one in (*CLASSES, *TARGETS)}:
        raise unknown_name("score", word, [one.word for one in (*CLASSES, *TARGETS)])
    kind = "classes" if classification else "targets"
    raise InputError(
        f"score={word!r} does not measure {kind}, which the labels are; use {' or '.join(own)}."
    )


def measured(predicted: Tensor, test: Sample) -> Measures:
    """What a judge's predictions are worth.

    Parameters
    ----------
    predicted : Tensor (n, outputs)
        A number for each class, of which the largest counts, or targets.
    test : Sample
        What they should be.

    Returns
    -------
    Measures
        All measures of the task.

    Raises
    ------
    NumericalError
        Where predictions are not finite, or the targets have no spread.

    Examples
    --------
    >>> test = Sample(torch.zeros(4, 1), torch.tensor([0, 0, 0, 1]), torch.ones(4))
    >>> found = measured(torch.tensor([[1.0, 0.0]]).expand(4, 2), test)
    >>> found.values, found.by_class
    ({'accuracy': 0.75, 'balanced_accuracy': 0.5}, (1.0, 0.0))
    """
    if not torch.isfinite(predicted).all():
        raise NumericalError(
            "a judge's predictions are not finite; scale the features, or use another judge."
        )
    said = predicted.argmax(1) if test.classification else predicted.double()
    goal = test.y if test.classification else test.y.double()
    values = {one.key: one.of(said, goal) for one in measures_of(test.classification)}
    if not test.classification:
        return Measures(values)
    shares = _found(said, goal, predicted.shape[1]).tolist()
    return Measures(values, tuple(None if math.isnan(one) else one for one in shares))


def _accuracy(said: Tensor, goal: Tensor) -> float:
    return float((said == goal).double().mean())


def _balanced_accuracy(said: Tensor, goal: Tensor) -> float:
    """The mean, over the classes tested on, of the share of a class that is found."""
    return float(_found(said, goal, int(goal.max()) + 1).nanmean())


def _found(said: Tensor, goal: Tensor, classes: int) -> Tensor:
    """The share of each class that is found; nan for one that is not tested on."""
    right = (said == goal).double()
    found, there = (torch.bincount(goal, one, classes) for one in (right, torch.ones_like(right)))
    return found / there


def _explained(said: Tensor, goal: Tensor) -> float:
    """R² = 1 − Σ‖y − h‖²/Σ‖y − ȳ‖²."""
    spread = float((goal - goal.mean(0)).square().sum())
    if not spread > 0:
        raise NumericalError(
            "the targets tested on are all equal, so R² means nothing; test on more points."
        )
    score = 1 - float((goal - said).square().sum()) / spread
    if not math.isfinite(score):
        raise NumericalError("R² is not finite; scale the targets.")
    return score


def _absolute_error(said: Tensor, goal: Tensor) -> float:
    return float((goal - said).abs().mean())


CLASSES = (
    Measure("accuracy", "accuracy", "accuracy", True, _accuracy),
    Measure("balanced_accuracy", "balanced", "balanced accuracy", True, _balanced_accuracy),
)
TARGETS = (
    Measure("r2", "r2", "R²", True, _explained),
    Measure("mean_absolute_error", "mae", "mean absolute error", False, _absolute_error),
)
