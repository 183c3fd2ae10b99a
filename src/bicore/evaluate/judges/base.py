"""What every judge can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from bicore.evaluate.judges.measures import Measures, measured
from bicore.evaluate.judges.sample import Sample


class Trainer(Protocol):
    """What trains the network that some methods look at."""

    @property
    def name(self) -> str:
        """What errors call it."""

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """One network, trained."""


class Judge(ABC):
    """Scores of several selections of the same size: accuracy for classes, R² for targets.

    A model is trained on the selection alone. How strongly it is held back, and how columns are
    scaled, is chosen by other rows of the pool (:meth:`tuned_by`), the same for all selections.

    Examples
    --------
    >>> from bicore.evaluate import RidgeJudge
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

    @property
    def trainer(self) -> Trainer | None:
        """What trains the model that some methods look at: the judge itself if it is a network."""
        return None

    def title(self, classification: bool) -> str:
        """What tables call it.

        Parameters
        ----------
        classification : bool
            Whether labels are classes.

        Returns
        -------
        str
            Its name, unless it is another model for targets.
        """
        return self.name

    def tuned_by(self, rows: Sample) -> Judge:
        """The same judge with other rows of the pool to choose its settings by.

        Parameters
        ----------
        rows : Sample
            The same for all selections that are compared.

        Returns
        -------
        Judge
            Itself where it has nothing to choose.
        """
        return self

    @abstractmethod
    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        """Train on each selection from scratch and predict.

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
        list of Tensor
            For each selection (n, outputs): a number a class, of which the largest counts, or
            targets.

        Raises
        ------
        NumericalError
            Where a training ends in numbers that are not finite.
        """

    def measures(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Measures]:
        """Train on each selection from scratch and test, by every measure of the task.

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
        list of Measures
            Those of each selection.

        Raises
        ------
        NumericalError
            Where a training or its test ends in numbers that are not finite.
        """
        found = self.predictions(selections, test, outputs, seed)
        return [measured(one, test) for one in found]

    def scores(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[float]:
        """Train on each selection from scratch and test, by the main measure.

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
            One score a selection: accuracy, or R².

        Raises
        ------
        NumericalError
            Where a training or its test ends in numbers that are not finite.
        """
        return [one.main for one in self.measures(selections, test, outputs, seed)]


def in_parts(x: Tensor, rows: int) -> list[Tensor]:
    """So many rows at a time."""
    return [x[start : start + rows] for start in range(0, len(x), rows)]
