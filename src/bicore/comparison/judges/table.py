"""What judges of tables have in common: plain arrays, one model of a class or target.

Columns are scaled by the selection's own means and deviations, weights and all: who has kept only
these points has no others to scale by. Trees need no scaling.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.comparison.judges.base import Judge
from bicore.comparison.judges.sample import Sample
from bicore.data import Array
from bicore.errors import NumericalError
from bicore.runtime.threads import narrow

#: A column whose deviation is less than this share of its mean is the same in all rows, up to the
#: rounding of sums, and has nothing to teach.
FLAT = 1e-10


class TableJudge(Judge):
    """A model of scikit-learn's kind, trained on rows of numbers.

    Examples
    --------
    See :class:`ForestJudge`, which names the models and nothing else.
    """

    #: Whether columns are scaled to mean 0 and variance 1 first.
    scales: bool = False

    @abstractmethod
    def classifier(self, sample: Sample, seed: int) -> Any:
        """A model of classes with fit, predict_proba and classes_, not yet fitted.

        Parameters
        ----------
        sample : Sample
            What it will be fitted to: two classes or more, columns scaled.
        seed : int
            Of the training.

        Returns
        -------
        object
            Takes weights.
        """

    @abstractmethod
    def regressor(self, sample: Sample, seed: int) -> Any:
        """A model of one target with fit and predict, not yet fitted.

        Parameters
        ----------
        sample : Sample
            What it will be fitted to, columns scaled.
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
        found = []
        with narrow(1), warnings.catch_warnings():
            # a fit that stops early is the judge's, and is scored as it is
            warnings.simplefilter("ignore")
            for sample in selections:
                fitted, tested = prepared(sample, test.x, self.scales)
                one = self.predicted(fitted, tested, outputs, seed)
                found.append(torch.from_numpy(one).to(test.x.device))
        return found

    def predicted(self, sample: Sample, x: Array, outputs: int, seed: int) -> Array:
        """Train on one selection and predict.

        Parameters
        ----------
        sample : Sample
            Rows of numbers in float64 on the CPU, weights above zero.
        x : array (n, features)
            What is predicted.
        outputs : int
            The number of classes or targets.
        seed : int
            Of the training.

        Returns
        -------
        array (n, outputs)
            Probabilities of classes, 0 for those the selection lacks, or targets.
        """
        if sample.classification:
            return class_shares(self.classifier, sample, x, outputs, seed)
        rows, weight = sample.x.numpy(), sample.weight.numpy()
        columns = [
            self.regressor(sample, seed).fit(rows, goal, weight).predict(x)
            for goal in sample.y.numpy().T
        ]
        return np.stack(columns, 1)


def class_shares(build: Any, sample: Sample, x: Array, outputs: int, seed: int) -> Array:
    """Probabilities of all classes by a model of those that the sample holds."""
    shares = np.zeros((len(x), outputs))
    present = np.unique(sample.y.numpy())
    if len(present) == 1:
        shares[:, present] = 1
        return shares
    model = build(sample, seed).fit(sample.x.numpy(), sample.y.numpy(), sample.weight.numpy())
    shares[:, model.classes_] = model.predict_proba(x)
    return shares


def prepared(sample: Sample, x: Tensor, scales: bool) -> tuple[Sample, Array]:
    """The sample without points of no weight, and what is predicted, as rows of numbers."""
    rows = sample.x.double().flatten(1).cpu()
    tested = x.double().flatten(1).cpu()
    if not all(torch.isfinite(one.float()).all() for one in (rows, tested)):  # trees are so precise
        raise NumericalError(
            "features go beyond what a judge of tables can hold; scale them, or use another judge."
        )
    weight = sample.weight.double().cpu()
    kept = weight > 0
    rows, weight = rows[kept], weight[kept]
    labels = sample.y.cpu()[kept] if sample.classification else sample.y.double().cpu()[kept]
    if scales:
        share = weight / weight.sum()
        mean = share @ rows
        deviation = (share @ (rows - mean).square()).sqrt()
        flat = deviation <= FLAT * mean.abs()
        deviation = torch.where(flat, torch.ones_like(deviation), deviation)
        rows, tested = (rows - mean) / deviation, (tested - mean) / deviation
    return Sample(rows, labels, weight), tested.numpy()
