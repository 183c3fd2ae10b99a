"""Evaluation models by name; a new one is a class and a line of ``JUDGES``."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError, unknown_name
from bicore.evaluate.model import Judge, in_parts
from bicore.evaluate.networks import NetworkJudge, convolutional, perceptron
from bicore.evaluate.samples import (
    FeatureScaling,
    Sample,
    as_table,
    choose_setting,
    fit_scaling,
    separate,
    targets_of,
)
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF, squared_distances
from bicore.runtime.threads import narrow

#: Penalties of kernel ridge regression, relative to the mean of the kernel's diagonal: the default
#: without tuning rows first, then half decades from a strong penalty to almost none.
RIDGES = (0.1, *(10 ** (power / 2) for power in range(4, -9, -1)))
#: Inverse penalties of logistic regression, the default first.
INVERSE_PENALTIES = (1.0, 1e-2, 1e-1, 10.0, 100.0)
#: Numbers of neighbours.
NEIGHBOURS = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100)
#: The default number of neighbours for classes (a class may have a single point) and for targets.
DEFAULT_NEIGHBOURS = {True: 1, False: 3}
#: Relative error allowed in a squared distance between neighbours.
DISTANCE_ERROR = 1e-9
#: Points on which kernel ridge regression tries its penalties.
MOST_TRIED = 500
#: Test points predicted at a time.
ROWS = 1000
#: Each tree sees half of the rows, and a split a random few of the columns: on a few dozen rows
#: greedy trees repeat the same splits and overfit.
BOOSTING = {
    "n_estimators": 100,
    "learning_rate": 0.1,
    "subsample": 0.5,
    "max_features": "sqrt",
    "max_depth": 3,
}
BOTH_SCALINGS = (FeatureScaling.COLUMNS, FeatureScaling.TOGETHER)


@dataclass(frozen=True)
class MajorityJudge(Judge):
    """The majority class of a selection, or the mean of its targets, for every point.

    Examples
    --------
    >>> points = Sample(torch.zeros(4, 1), torch.tensor([0, 1, 1, 1]), torch.ones(4))
    >>> MajorityJudge().scores([points], points, outputs=2, seed=0)
    [0.75]
    """

    name = "majority"

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        shares = [one.weight.double() / one.weight.double().sum() for one in selections]
        means = [
            share @ targets_of(one, outputs) for share, one in zip(shares, selections, strict=True)
        ]
        return [mean.expand(len(test), outputs) for mean in means]


@dataclass(frozen=True)
class TunedJudge(Judge):
    """A model with a setting chosen by the squared error on rows of the pool.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that choose the setting and scale columns.

    Examples
    --------
    See :class:`RidgeJudge`.
    """

    rows: Sample | None = field(default=None, compare=False, repr=False, kw_only=True)

    def tuned_by(self, rows: Sample) -> Self:
        return replace(self, rows=self._prepare(rows))

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        model = self._fit_to(test)
        x = self._prepare(Sample(test.x, test.y, torch.ones(len(test)))).x
        found = [model._predict(self._prepare(one), x, outputs, seed) for one in selections]
        return [one.to(test.x.device) for one in found]

    def _predict(self, sample: Sample, x: Tensor, outputs: int, seed: int) -> Tensor:
        setting = self._default(sample)
        if self.rows is not None:
            points, rows = separate(sample, self.rows)
            if len(points) and len(settings := self._settings(points)) > 1:
                tried = self._predictor(self._thin(points, seed), rows.x, outputs, seed)
                setting = choose_setting(settings, rows, outputs, tried)
        return self._predictor(sample, x, outputs, seed)(setting)

    def _prepare(self, sample: Sample) -> Sample:
        """Points as the model needs them."""
        return as_table(sample)

    def _fit_to(self, test: Sample) -> Self:
        """The model, adapted to the features of the test points."""
        return self

    def _thin(self, points: Sample, seed: int) -> Sample:
        """The points on which settings are tried."""
        return points

    def _default(self, sample: Sample) -> Any:
        """The setting without rows of the pool."""
        return self._settings(sample)[0]

    @abstractmethod
    def _settings(self, points: Sample) -> Sequence[Any]:
        """The settings to try with some points."""

    @abstractmethod
    def _predictor(
        self, sample: Sample, x: Tensor, outputs: int, seed: int
    ) -> Callable[[Any], Tensor]:
        """A function from a setting to the predictions of a model trained on the sample."""


@dataclass(frozen=True)
class RidgeJudge(TunedJudge):
    """Kernel ridge regression.

    Parameters
    ----------
    kernel : Kernel, optional
        By default an RBF whose bandwidth is the median distance of the test points.
    ridge : float, optional
        The penalty, relative to the mean of the kernel's diagonal. By default the one with the
        smallest squared error on rows of the pool, or 0.1 without such rows.
    rows : Sample, optional
        Rows of the pool that choose the penalty.

    Raises
    ------
    InputError
        If the penalty is not positive.

    Examples
    --------
    >>> from bicore import Laplace
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge(Laplace(1.0)).scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    kernel: Kernel | None = None
    ridge: float | None = None
    name = "ridge"

    def __post_init__(self) -> None:
        if self.ridge is not None and not self.ridge > 0:
            raise InputError(f"ridge must be positive, or None to tune it; got {self.ridge}.")

    def _prepare(self, sample: Sample) -> Sample:
        return sample

    def _fit_to(self, test: Sample) -> Self:
        kernel = self.kernel or RBF().fitted(test.x.double().cpu().numpy())
        return replace(self, kernel=kernel)

    def _thin(self, points: Sample, seed: int) -> Sample:
        """Drawn at random: every tenth point of a selection may be of one class."""
        if len(points) <= MOST_TRIED:
            return points
        rng = np.random.default_rng((seed, MOST_TRIED))
        rows = np.sort(rng.choice(len(points), MOST_TRIED, replace=False))
        return points.take(torch.from_numpy(rows).to(points.x.device))

    def _settings(self, points: Sample) -> Sequence[float]:
        return RIDGES if self.ridge is None else (self.ridge,)

    def _predictor(
        self, sample: Sample, x: Tensor, outputs: int, seed: int
    ) -> Callable[[float], Tensor]:
        kernel = self.kernel
        assert kernel is not None
        own, targets = sample.x.double(), targets_of(sample, outputs)
        gram = kernel.gram(own)
        weight = sample.weight.double().clamp_min(torch.finfo(torch.float64).tiny)
        mean = (weight / weight.sum()) @ targets

        def predict(ridge: float) -> Tensor:
            shift = torch.diag(ridge * gram.diagonal().mean() / weight)
            alpha = torch.linalg.solve(gram + shift, targets - mean)
            parts = [kernel.evaluate(part.double(), own) @ alpha for part in in_parts(x, ROWS)]
            return torch.cat(parts) + mean

        return predict


@dataclass(frozen=True)
class NearestJudge(TunedJudge):
    """Nearest neighbours; a point of weight w counts as w neighbours, in fractions too.

    Rows of the pool choose the number of neighbours and the scaling of columns.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that choose the setting and scale columns.

    Examples
    --------
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> NearestJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "knn"

    def _default(self, sample: Sample) -> tuple[FeatureScaling, int]:
        return FeatureScaling.COLUMNS, DEFAULT_NEIGHBOURS[sample.classification]

    def _settings(self, points: Sample) -> Sequence[tuple[FeatureScaling, int]]:
        counts = [count for count in NEIGHBOURS if count <= len(points)]
        return list(product(BOTH_SCALINGS, counts))

    def _predictor(
        self, sample: Sample, x: Tensor, outputs: int, seed: int
    ) -> Callable[[tuple[FeatureScaling, int]], Tensor]:
        targets = targets_of(sample, outputs)

        @cache
        def nearest(how: FeatureScaling) -> list[Tensor]:
            """For each point the sample's rows, nearest first; one order serves every count."""
            scale = fit_scaling(self.rows or sample, how)
            own = scale(sample.x)
            parts = in_parts(scale(x), ROWS)
            distances = (squared_distances(part, own, DISTANCE_ERROR) for part in parts)
            return [one.argsort(stable=True, dim=1) for one in distances]

        def predict(setting: tuple[FeatureScaling, int]) -> Tensor:
            how, count = setting
            parts = [_mean_of_nearest(part, targets, sample.weight, count) for part in nearest(how)]
            return torch.cat(parts)

        return predict


def _mean_of_nearest(near: Tensor, targets: Tensor, weight: Tensor, count: int) -> Tensor:
    """The mean over neighbours, nearest first, until their weights add up to the count."""
    own = weight[near]
    before = own.cumsum(1) - own
    taken = torch.minimum(own, (count - before).clamp_min(0))
    shares = taken / taken.sum(1, keepdim=True)
    return shares.new_zeros(len(near), len(targets)).scatter_(1, near, shares) @ targets


@dataclass(frozen=True)
class TableJudge(TunedJudge):
    """A scikit-learn estimator trained on rows of numbers.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that choose the setting and scale columns.

    Examples
    --------
    See :class:`ForestJudge`, which only names its estimators.
    """

    #: A scaling, and a number that the estimator reads; the default first.
    settings: ClassVar[tuple[tuple[FeatureScaling, float], ...]] = ((FeatureScaling.NONE, 0.0),)

    @abstractmethod
    def estimator(self, classification: bool, number: float, seed: int) -> Any:
        """An estimator that accepts weights, not yet fitted.

        Parameters
        ----------
        classification : bool
            Whether it predicts classes, or one target.
        number : float
            The number of the setting.
        seed : int
            Seed of the training.

        Returns
        -------
        object
            With fit and predict; for classes also predict_proba and ``classes_``.
        """

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        with narrow(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that stops early is scored as it is
            return super().predictions(selections, test, outputs, seed)

    def _settings(self, points: Sample) -> Sequence[tuple[FeatureScaling, float]]:
        return self.settings

    def _predictor(
        self, sample: Sample, x: Tensor, outputs: int, seed: int
    ) -> Callable[[tuple[FeatureScaling, float]], Tensor]:
        def predict(setting: tuple[FeatureScaling, float]) -> Tensor:
            how, number = setting
            scale = fit_scaling(self.rows or sample, how)
            points = Sample(scale(sample.x), sample.y, sample.weight)
            find = self._probabilities if sample.classification else self._targets
            return torch.from_numpy(find(points, scale(x).numpy(), outputs, number, seed))

        return predict

    def _targets(self, sample: Sample, x: Array, outputs: int, number: float, seed: int) -> Array:
        rows, weight = sample.x.numpy(), sample.weight.numpy()
        models = [self.estimator(False, number, seed) for _ in range(outputs)]
        pairs = zip(models, sample.y.numpy().T, strict=True)
        return np.stack([model.fit(rows, y, weight).predict(x) for model, y in pairs], 1)

    def _probabilities(
        self, sample: Sample, x: Array, outputs: int, number: float, seed: int
    ) -> Array:
        """0 for classes that the sample lacks."""
        labels = sample.y.numpy()
        found = np.zeros((len(x), outputs))
        present = np.unique(labels)
        if len(present) == 1:
            found[:, present] = 1
            return found
        model = self.estimator(True, number, seed)
        model.fit(sample.x.numpy(), labels, sample.weight.numpy())
        found[:, model.classes_] = model.predict_proba(x)
        return found


@dataclass(frozen=True)
class LogisticJudge(TableJudge):
    """Multinomial logistic regression; for targets ridge regression.

    Rows of the pool choose the penalty and the scaling of columns.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that choose the setting and scale columns.

    Examples
    --------
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> LogisticJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "logistic"
    settings = tuple(product(BOTH_SCALINGS, INVERSE_PENALTIES))

    def title(self, classification: bool) -> str:
        return "logistic" if classification else "linear (ridge regression)"

    def estimator(self, classification: bool, number: float, seed: int) -> Any:
        from sklearn.linear_model import LogisticRegression, Ridge  # here: importing stays light

        if classification:
            return LogisticRegression(C=number, max_iter=200, tol=1e-3)
        return Ridge(1 / number)


@dataclass(frozen=True)
class ForestJudge(TableJudge):
    """A random forest of 100 trees.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool; a forest has no settings to choose.

    Examples
    --------
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> ForestJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "forest"

    def estimator(self, classification: bool, number: float, seed: int) -> Any:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        kind = RandomForestClassifier if classification else RandomForestRegressor
        return kind(100, n_jobs=1, random_state=seed)


@dataclass(frozen=True)
class BoostingJudge(TableJudge):
    """Gradient boosting: 100 rounds of small trees, each on half of the rows.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool; boosting has no settings to choose.

    Examples
    --------
    >>> x = torch.linspace(0, 1, 40)[:, None]
    >>> points = Sample(x, (x[:, 0] > 0.5).long(), torch.ones(40))
    >>> BoostingJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "boosting"

    def estimator(self, classification: bool, number: float, seed: int) -> Any:
        from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

        kind = GradientBoostingClassifier if classification else GradientBoostingRegressor
        return kind(random_state=seed, **BOOSTING)


#: Each takes the number of training steps, which only networks use.
JUDGES: dict[str, Callable[[int], Judge]] = {
    "ridge": lambda steps: RidgeJudge(),
    "logistic": lambda steps: LogisticJudge(),
    "forest": lambda steps: ForestJudge(),
    "boosting": lambda steps: BoostingJudge(),
    "knn": lambda steps: NearestJudge(),
    "mlp": lambda steps: NetworkJudge("mlp", perceptron, steps),
    "cnn": lambda steps: NetworkJudge("cnn", convolutional, steps),
}


def as_judge(name: str, steps: int) -> Judge:
    """An evaluation model by name.

    Parameters
    ----------
    name : {"ridge", "logistic", "forest", "boosting", "knn", "mlp", "cnn"}
        Kernel ridge regression, logistic regression (ridge regression for targets), a random
        forest, boosted trees, nearest neighbours, or one of the paper's networks.
    steps : int
        Training steps of a network.

    Returns
    -------
    Judge
        The model.

    Raises
    ------
    InputError
        If the name is unknown.

    Examples
    --------
    >>> as_judge("mlp", steps=500).name
    'mlp'
    """
    if name not in JUDGES:
        raise unknown_name("judge", name, JUDGES)
    return JUDGES[name](steps)
