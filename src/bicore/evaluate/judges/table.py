"""What judges of tables have in common: plain arrays, one model of a class or target."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.evaluate.judges.base import Judge
from bicore.evaluate.judges.sample import Sample
from bicore.evaluate.judges.tuning import Scaling, apart, best, plain, scaling
from bicore.runtime.threads import narrow


@dataclass(frozen=True)
class TableJudge(Judge):
    """A model of scikit-learn's kind, trained on rows of numbers.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that settings are chosen by, and columns scaled.

    Examples
    --------
    See :class:`ForestJudge`, which names the models and nothing else.
    """

    rows: Sample | None = field(default=None, compare=False, repr=False)

    #: What is tried on rows of the pool: a scaling, and a number that the models read; the first
    #: where there are none.
    settings: ClassVar[tuple[tuple[Scaling, float], ...]] = ((Scaling.NONE, 0.0),)

    def tuned_by(self, rows: Sample) -> Self:
        return replace(self, rows=plain(rows))

    @abstractmethod
    def classifier(self, number: float, seed: int) -> Any:
        """A model of classes with fit, predict_proba and ``classes_``, not yet fitted.

        Parameters
        ----------
        number : float
            That of the setting.
        seed : int
            Of the training.

        Returns
        -------
        object
            Takes weights.
        """

    @abstractmethod
    def regressor(self, number: float, seed: int) -> Any:
        """A model of one target with fit and predict, not yet fitted.

        Parameters
        ----------
        number : float
            That of the setting.
        seed : int
            Of the training.

        Returns
        -------
        object
            Takes weights.
        """

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        tested = plain(Sample(test.x, test.y, torch.ones(len(test))))
        found = []
        with narrow(1), warnings.catch_warnings():
            # a fit that stops early is the judge's, and is scored as it is
            warnings.simplefilter("ignore")
            for sample in selections:
                one = self._predicted(plain(sample), tested.x, outputs, seed)
                found.append(torch.from_numpy(one).to(test.x.device))
        return found

    def _predicted(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Array:
        def of(setting: tuple[Scaling, float], points: Sample, asked: Tensor) -> Array:
            scaled = scaling(self.rows or sample, setting[0])
            inside = Sample(scaled(points.x), points.y, points.weight)
            return self._said(inside, scaled(asked).numpy(), outputs, setting[1], seed)

        chosen = self.settings[0]
        if self.rows is not None and len(self.settings) > 1:
            points, rows = apart(sample, self.rows)
            if len(points):
                chosen = best(self.settings, rows, outputs, lambda one: of(one, points, rows.x))
        return of(chosen, sample, x)

    def _said(self, sample: Sample, x: Array, outputs: int, number: float, seed: int) -> Array:
        """Train on one selection and predict: probabilities of classes, 0 for those that it lacks,
        or targets."""
        rows, weight = sample.x.numpy(), sample.weight.numpy()
        if not sample.classification:
            columns = [
                self.regressor(number, seed).fit(rows, goal, weight).predict(x)
                for goal in sample.y.numpy().T
            ]
            return np.stack(columns, 1)
        labels = sample.y.numpy()
        shares = np.zeros((len(x), outputs))
        present = np.unique(labels)
        if len(present) == 1:
            shares[:, present] = 1
            return shares
        model = self.classifier(number, seed).fit(rows, labels, weight)
        shares[:, model.classes_] = model.predict_proba(x)
        return shares
