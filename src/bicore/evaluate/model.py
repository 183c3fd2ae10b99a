"""The interface of evaluation models, which are trained on a selection and tested on other rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from bicore.evaluate.metrics import Measures, measured
from bicore.evaluate.samples import Sample


class Trainer(Protocol):
    """A model that can train the network that some selection methods need."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """Train one network."""


class Judge(ABC):
    """An evaluation model: it scores selections by accuracy for classes and R² for targets.

    The model is trained on the selection alone. Its regularisation and the scaling of columns are
    chosen on other rows of the pool (:meth:`tuned_by`), the same for all selections.

    Examples
    --------
    >>> from bicore.evaluate.models import RidgeJudge
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name: str

    def check(self, shape: tuple[int, ...], outputs: int) -> None:  # noqa: B027 (most models accept any points)
        """Refuse points that this model cannot read, before any work.

        Parameters
        ----------
        shape : tuple of int
            The shape of one point.
        outputs : int
            The number of classes or targets.

        Raises
        ------
        InputError
            If the model cannot read them.
        """

    def at_once(self, size: int, device: torch.device) -> int:
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

    @property
    def trainer(self) -> Trainer | None:
        """The model itself if it can train a network for selection methods."""
        return None

    def title(self, classification: bool) -> str:
        """Its name in tables.

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

    def tuned_by(self, rows: Sample) -> Judge:
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
    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        """Train on each selection from scratch and predict.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            The test points.
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

    def measures(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Measures]:
        """Train on each selection from scratch and compute every metric of the task.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            The test points.
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
        return [measured(one, test) for one in found]

    def scores(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[float]:
        """Train on each selection from scratch and compute the main metric.

        Parameters
        ----------
        selections : sequence of Sample
            All of the same size.
        test : Sample
            The test points.
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


def in_parts(x: Tensor, rows: int) -> list[Tensor]:
    """Split into parts of at most ``rows`` rows."""
    return list(torch.split(x, rows))
