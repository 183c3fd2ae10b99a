"""Ridge regression from sums over all rows seen, without the rows.

With means m and t of features and targets, and sums divided by their weight N,

    S = A/N − mmᵀ      C = B/N − mtᵀ      W = (S + λI)⁻¹C      b = t − Wᵀm

is ridge regression with an intercept that is not penalised (alpha = Nλ). The loss on held-out rows,
tr WᵀS_vW − 2 tr WᵀC_v + c_v + ‖t_v − b − Wᵀm_v‖², follows from their sums in the same way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from bicore._deprecated import renamed_fields, renamed_keywords
from bicore.arguments import as_seed
from bicore.data import Array, Task, as_features, as_labels, as_tensor, read_targets
from bicore.errors import InputError, NumericalError, check_integer, check_number
from bicore.files import FORMAT, read_state, refuse_damage, strip_prefix, write_state
from bicore.moments.features import FeatureMap
from bicore.moments.features.base import WithConstant
from bicore.moments.features.maps import Rows
from bicore.moments.features.registry import (
    AutomaticFeatures,
    as_feature_map,
    map_from_state,
    map_to_state,
)
from bicore.moments.moments import GONE, OLD_PRIORS, Moments, Prior, hold_out
from bicore.numerics.linear_algebra import symmetric_product
from bicore.runtime.threads import all_threads, single_thread
from bicore.types import Matrix, Numbers, RandomState

__all__ = ["Head", "HeadClassifier", "HeadRegressor", "make_head"]

#: Functions that write head files, for errors.
WRITER = "Head.save or bicore stream --head"

#: Regularisation is searched among powers of ten times the mean eigenvalue of S.
SHARES = 10.0 ** np.arange(-8, 4)
#: Index of the share at which the search starts.
START = 6
#: Shares compared by held-out loss, the maximum distance (in decades) between the best share and a
#: pole, and the maximum number of poles.
FINE_SHARES = 10.0 ** np.linspace(-8.0, 3.0, 111)
NEAR = 1.0
POLES = 5
#: Minimum width for a search in float32, which is twice as fast.
SINGLE = 2048
#: Rows whose features are computed at a time.
ROWS_AT_ONCE = 4096
#: Widths compared on request, as fractions 1/k of all features.
WIDTHS = (1, 2, 4, 8)
#: Minimum and maximum number of rows to choose a feature map.
FEW_ROWS, MANY_ROWS = 200, 512
#: Variances below this share of the squared mean are rounding errors.
CONSTANT = 1e-14
#: Score of classes that have no rows.
UNSEEN = -1e4
#: Maximum number of later rows before a new factorisation, as a fraction 1/k of the features.
LATER = 4


@dataclass(frozen=True)
class Centred:
    """Sums over rows, divided by their weight and centred.

    Only the lower triangle of ``second`` is valid.
    """

    second: Tensor
    cross: Tensor
    constant: float
    mean: Tensor
    target: Tensor
    weight: float

    def to_single(self) -> Centred:
        """Return the sums in float32."""
        second, cross = self.second.float(), self.cross.float()
        mean, target = self.mean.float(), self.target.float()
        return replace(self, second=second, cross=cross, mean=mean, target=target)

    @property
    def scale(self) -> float:
        """The mean eigenvalue of S; 1 if the features are constant, but for rounding errors."""
        mean = float(self.second.diagonal().mean())
        return mean if mean > CONSTANT * float(self.mean.square().mean()) else 1.0

    def solve(self, ridge: float) -> tuple[Tensor, Tensor] | None:
        """Return W and the Cholesky factor of S + λI; None if that is not positive definite."""
        diagonal = self.second.diagonal()
        before = diagonal.clone()
        diagonal.add_(ridge)  # in place, to avoid a copy of p² numbers
        factor, failed = torch.linalg.cholesky_ex(self.second)
        diagonal.copy_(before)
        if failed:
            return None
        return torch.cholesky_solve(self.cross, factor), factor

    def solve_or_raise(self, ridge: float) -> tuple[Tensor, Tensor]:
        """Return W and the Cholesky factor of S + λI."""
        found = self.solve(ridge)
        if found is None:
            raise NumericalError(
                f"the sums with alpha={ridge * self.weight:.3g} are not positive definite; raise "
                "alpha, or scale the features."
            )
        return found

    def multiply(self, model: Tensor) -> Tensor:
        """Multiply by S."""
        if self.second.is_cuda:
            lower = torch.tril(self.second)
            return lower @ model + lower.T @ model - lower.diagonal()[:, None] * model
        return torch.from_numpy(symmetric_product(self.second.numpy(), model.numpy()))

    def leading(self, width: int) -> Centred:
        """Return the sums of the first features."""
        second, cross = self.second[:width, :width], self.cross[:width]
        return replace(self, second=second, cross=cross, mean=self.mean[:width])

    def loss(self, model: Tensor, of: Centred) -> float:
        """Compute the mean loss of W on these rows, with the intercept of the rows ``of``."""
        quadratic = (model * (self.multiply(model) - 2.0 * self.cross)).sum()
        missed = self.target - of.target - (self.mean - of.mean) @ model
        return float(quadratic) + self.constant + float(missed.square().sum())

    def gcv_score(self, model: Tensor, factor: Tensor, ridge: float) -> float:
        """Return the generalised cross-validation score of these rows."""
        inverse = torch.cholesky_inverse(factor)
        fitted = len(inverse) - ridge * float(inverse.diagonal().sum()) + 1.0  # the intercept
        left = 1.0 - fitted / self.weight
        return self.loss(model, self) / left**2 if left > 0 else math.inf


def centre(moments: Moments, prior: Prior, intercept: float | None) -> Centred:
    """Divide sums by their weight under a class prior, and subtract the means."""
    pooled = prior != "data" and not moments.apart and moments.classes is not None
    outer = moments.outer("data" if pooled else prior)
    second = torch.as_tensor(outer.second) * outer.share
    cross = torch.as_tensor(outer.cross).to(second)
    mean, target = (torch.as_tensor(one).to(cross) for one in outer.means(intercept))
    if pooled:
        present = target > GONE
        means = cross[:, present] / target[present]
        second -= (means * target[present]) @ means.T  # the rest varies within classes
        target = torch.as_tensor(moments.shares(prior, pooled=True)).to(second)
        cross = torch.zeros_like(cross)
        cross[:, present] = means * target[present]
        second += cross[:, present] @ means.T
        mean = cross.sum(1)
    second.addr_(mean, mean, alpha=-1.0)
    cross = cross - torch.outer(mean, target)
    constant_term = (1.0 if pooled else outer.constant) - float(target.square().sum())
    return Centred(second, cross, constant_term, mean, target, moments.weight)


@dataclass(frozen=True, eq=False)
class UpdatedFactor:
    """A factorisation NS + αI = LLᵀ that is corrected for later rows.

    With later rows φ of weight v, which change the mean from m₀ to m,

        N'S' + αI = L(I + HDHᵀ)Lᵀ,  H = L⁻¹[√v(φ − m₀), …, √N'(m − m₀)],  D = diag(1, …, 1, −1)
    """

    lower: Tensor
    mean: Tensor
    alpha: float
    later: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, sums: Centred, alpha: float) -> UpdatedFactor:
        """Factorise the sums of all rows so far."""
        _, factor = sums.solve_or_raise(alpha / sums.weight)
        return cls(factor.mul_(sums.weight**0.5), sums.mean, alpha)

    def with_rows(self, features: Any, weights: Array) -> UpdatedFactor | None:
        """Add rows; None if another factorisation is cheaper."""
        rows = torch.as_tensor(features).to(self.lower)
        if sum(one.shape[1] for one in self.later) + len(rows) > len(self.lower) // LATER:
            return None
        moved = (rows - self.mean) * torch.as_tensor(weights).to(rows).sqrt()[:, None]
        reach = torch.linalg.solve_triangular(self.lower, moved.T, upper=False)
        return replace(self, later=(*self.later, reach))

    def solve(self, moments: Moments, intercept: float | None) -> tuple[Tensor, Tensor]:
        """Return W and b of all rows."""
        weight, cross = moments.weight, torch.as_tensor(moments.cross).to(self.lower)
        means = moments.outer().means(intercept)
        mean, target = (torch.as_tensor(one).to(self.lower) for one in means)
        moved = torch.column_stack(
            [weight**0.5 * (mean - self.mean), cross - weight * torch.outer(mean, target)]
        )
        both = torch.linalg.solve_triangular(self.lower, moved, upper=False)
        reach, goals = torch.cat([*self.later, both[:, :1]], 1), both[:, 1:]
        inner = reach.T @ reach
        inner.diagonal().add_(1.0)
        inner[-1, -1] -= 2.0
        goals = goals - reach @ torch.linalg.solve(inner, reach.T @ goals)
        model = torch.linalg.solve_triangular(self.lower.T, goals, upper=True)
        return model, target - mean @ model


def choose_share(train: Centred, held: Centred) -> float:
    """Choose λ, as a share of the mean eigenvalue, by the loss on held-out rows.

    One factorisation at a pole λ₀ gives the models of all λ nearby: each column of W(λ) is the best
    one in the space of (S + λ₀I)⁻ᵏC for k = 1 … 4. The pole moves until the best λ is near it. Many
    features start at the best λ of a quarter of them.
    """
    shares = torch.as_tensor(FINE_SHARES).to(train.second)
    share, width = float(SHARES[START]), len(train.second)
    if width >= SINGLE:
        few = train.leading(width // 4)
        share = choose_share(few, held.leading(width // 4)) * few.scale / train.scale
        share = min(max(share, SHARES[0]), SHARES[-1])
    for _ in range(POLES):
        found = train.solve(share * train.scale)
        if found is None:  # too small compared with rounding errors
            share *= 100.0
            continue
        best = float(shares[_losses(train, held, *found, shares * train.scale).argmin()])
        if abs(math.log10(best / share)) < NEAR:
            return best
        share = best
    return share


def _losses(train: Centred, held: Centred, model: Tensor, factor: Tensor, ridges: Tensor) -> Tensor:
    """Compute the losses on held-out rows of the models of many λ."""
    powers = [model]
    for _ in range(3):
        longer = torch.cholesky_solve(powers[-1], factor)
        powers.append(longer / longer.norm(dim=0).clamp_min(torch.finfo(longer.dtype).tiny))
    basis = torch.linalg.qr(torch.stack(powers, 2).transpose(0, 1))[0]  # (C, p, 4)
    flat = basis.transpose(0, 1).flatten(1)
    inner, outer = (
        basis.mT @ one.multiply(flat).reshape(len(flat), *basis.shape[::2]).transpose(0, 1)
        for one in (train, held)
    )
    values, vectors = torch.linalg.eigh(inner)
    turned = basis @ vectors
    goals, held_goals = ((turned.mT @ one.cross.T[..., None])[..., 0] for one in (train, held))
    moved = (held.mean - train.mean) @ turned
    models = goals / (values + ridges[:, None, None])  # (λ, C, 4)
    quadratic = ((models[..., None, :] @ (vectors.mT @ outer @ vectors))[..., 0, :] * models).sum(2)
    missed = held.target - train.target - (models * moved).sum(2)
    losses: Tensor = (quadratic - 2.0 * (models * held_goals).sum(2) + missed.square()).sum(1)
    return losses


def choose_ridge(fitted: Centred) -> float:
    """Choose λ by generalised cross-validation."""

    @cache
    def loss(place: int) -> float:
        ridge = SHARES[place] * fitted.scale
        found = fitted.solve(ridge)
        return math.inf if found is None else fitted.gcv_score(*found, ridge)

    before, place = -1, START
    while place != before:
        before, below, above = place, max(place - 1, 0), min(place + 1, len(SHARES) - 1)
        place = min((place, below, above), key=loss)  # the first of equal ones
    # minimum of the parabola through three losses, in steps from the middle one
    left, middle, right = map(loss, (below, place, above))
    bend = left - 2.0 * middle + right
    step = 0.5 * (left - right) / bend if math.isfinite(bend) and bend > 0 else 0.0
    return fitted.scale * math.pow(10.0, math.log10(SHARES[place]) + step)


@renamed_fields(values=OLD_PRIORS, features="feature_map")
class Head(BaseEstimator):  # type: ignore[misc]
    """A linear model on the features of a map, fitted from sums over rows.

    ``MomentMemory.head``, :func:`make_head` and :meth:`load` return fitted heads, and :meth:`fit`
    fits one to rows: the result is the same as ridge regression on all rows that were counted.

    Parameters
    ----------
    feature_map : str, FeatureMap or torch.nn.Module
        The feature map, as in :class:`bicore.streaming.MomentMemory`.
    alpha : float or "auto"
        Regularisation strength, as in scikit-learn's ``Ridge``. "auto" chooses it by the loss on a
        tenth of the rows, and the model uses all of them.
    prior : {"data", "equal"} or mapping
        Importance of each class: as it came, the same, or shares by label.
    random_state : int, Generator, RandomState or None
        Seed for random features.

    Attributes
    ----------
    coef_, intercept_ : array (p, C), (C,)
        The linear model; a column for each class or target.
    alpha_ : float
        The regularisation strength.
    n_features_in_ : int
        Numbers in a row, before the feature map.
    feature_map_ : FeatureMap
        The fitted map.

    Examples
    --------
    >>> issubclass(HeadClassifier, Head), issubclass(HeadRegressor, Head)
    (True, True)
    """

    #: The fitted columns of a table that ``bicore stream`` read, to encode other tables like it.
    _columns: list[dict[str, Any]] | None = None

    def __init__(
        self,
        feature_map: str | FeatureMap | torch.nn.Module = "auto",
        alpha: float | str = "auto",
        prior: str | Mapping[Any, float] = "data",
        random_state: RandomState = 0,
    ) -> None:
        self.feature_map = feature_map
        self.alpha = alpha
        self.prior = prior
        self.random_state = random_state

    def fit(self, x: Matrix, y: Numbers) -> Self:
        """Fit the head to rows, in one pass.

        Parameters
        ----------
        x : array (n, …)
            Rows.
        y : array (n,) or (n, C)
            Labels, or targets for a regressor.

        Returns
        -------
        Head
            The head itself.

        Raises
        ------
        InputError
            If rows or labels are invalid.
        """
        rows = np.asarray(as_features(x, "x"))
        goals = as_labels(y, len(rows))
        given = as_feature_map(self.feature_map, as_seed(self.random_state))
        if isinstance(self, ClassifierMixin):
            if np.asarray(y).dtype.kind == "b":
                goals = goals.astype(bool)
            fitted = fit_map(given, rows, goals)
            whole = Moments.empty(fitted.width, apart=self.prior != "data")
        else:
            goals = read_targets(goals, Task.REGRESSION).values
            fitted = WithConstant(fit_map(given, rows, None)).fit(rows)
            whole = Moments.empty(fitted.width, classes=None, targets=goals.shape[1])
        held = whole
        for top in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(top, top + ROWS_AT_ONCE)
            values, chosen = fitted.features(as_tensor(rows[part])), hold_out(rows[part])
            whole = whole.with_rows(values, goals[part])
            held = held.with_rows(values[chosen], goals[part][chosen])
        self._set(whole, held, fitted, rows.shape[1:])
        return self

    def _set(
        self,
        moments: Moments,
        held: Moments | None,
        features: FeatureMap,
        shape: tuple[int, ...],
        factor: UpdatedFactor | None = None,
    ) -> None:
        """Solve for the linear model, and set the attributes that end in an underscore."""
        intercept = features.intercept
        if factor is not None:
            self.alpha_ = factor.alpha
            with single_thread(), all_threads(float(moments.cross.size) * moments.width):
                model, shift = factor.solve(moments, intercept)
        else:
            whole = centre(moments, self.prior, intercept)
            if self.alpha == "auto":
                parts = _split(moments, held, self.prior, intercept)
                ridge = choose_ridge(whole) if parts is None else choose_share(*parts) * whole.scale
            else:
                ridge = check_number("alpha", self.alpha, above=0) / whole.weight
            self.alpha_ = ridge * whole.weight
            model, _ = whole.solve_or_raise(ridge)
            shift = whole.target - whole.mean @ model
        self.coef_, self.intercept_ = model.cpu().numpy(), shift.cpu().numpy()
        self.feature_map_, self._shape = features, tuple(map(int, shape))
        self.n_features_in_ = math.prod(self._shape)
        if moments.classes is not None:
            present = np.flatnonzero(moments.counts > GONE)
            names = np.array([moments.classes[place] for place in present])
            order = np.argsort(names)
            self.classes_ = names[order]
            self.coef_ = self.coef_[:, present[order]]
            self.intercept_ = self.intercept_[present[order]]

    def _scores(self, x: Matrix) -> Array:
        """Compute the linear model's outputs."""
        check_is_fitted(self)
        rows = np.asarray(as_features(x, "x"))
        if rows.shape[1:] == (self.n_features_in_,):
            rows = rows.reshape(len(rows), *self._shape)  # images may be given as flat rows
        found = []
        for top in range(0, len(rows), ROWS_AT_ONCE):
            values = self.feature_map_.features(as_tensor(rows[top : top + ROWS_AT_ONCE]))
            found.append(values.double().numpy() @ self.coef_ + self.intercept_)
        return np.concatenate(found)

    def to_torch(self, outputs: int | None = None) -> nn.Module:
        """Return the head as a module: the feature map, then a linear layer in float32.

        Parameters
        ----------
        outputs : int, optional
            The number of classes, if labels are 0, 1, 2, …: column c is then the score of class c,
            and very low for classes that have not come yet.

        Returns
        -------
        torch.nn.Module
            Its outputs are a column for each class, in the order of ``classes_``, or target. The
            features have no gradients; the linear layer can be trained further.

        Examples
        --------
        >>> from bicore.sources import digits
        >>> x, y = digits()
        >>> head = HeadClassifier("rows").fit(x, y)
        >>> head.to_torch()(torch.as_tensor(x[:5])).shape
        torch.Size([5, 10])
        """
        check_is_fitted(self)
        width, count = self.coef_.shape
        columns = np.arange(count)
        if outputs is not None:
            top, labels = check_integer("outputs", outputs) - 1, getattr(self, "classes_", ["none"])
            try:
                columns = np.asarray(labels, dtype=int)
            except ValueError:  # text
                columns = np.array([-1])
            if not 0 <= columns.min() <= columns.max() <= top:
                wrong = f"and the labels of this head are {', '.join(map(str, labels))}"
                fix = "leave outputs out, or change it"
                raise InputError(f"outputs={outputs} needs labels from 0 to {top}, {wrong}; {fix}.")
        linear = nn.Linear(width, outputs or count)
        with torch.no_grad():
            linear.weight.zero_()
            linear.bias.fill_(UNSEEN)
            linear.weight[columns] = torch.from_numpy(self.coef_.T).float()
            linear.bias[columns] = torch.from_numpy(self.intercept_).float()
        return nn.Sequential(_Features(self.feature_map_), linear)

    @renamed_keywords()
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the head to an ``.npz`` file without pickle, atomically.

        Parameters
        ----------
        path : path
            The file to write.

        Returns
        -------
        Path
            The file.
        """
        check_is_fitted(self)
        features, arrays = map_to_state(self.feature_map_)
        values = {"kind": type(self).__name__, "alpha": self.alpha_, "shape": self._shape}
        if self._columns is not None:
            values["columns"] = self._columns
        own = {"coef": self.coef_, "intercept": self.intercept_}
        if isinstance(self, HeadClassifier):
            own["classes"] = self.classes_
        arrays = {f"map.{name}": one for name, one in arrays.items()}
        head = {"format": FORMAT, "head": {**values, "features": features}}
        return write_state(path, head, {**own, **arrays})

    @staticmethod
    @renamed_keywords()
    def load(
        path: str | os.PathLike[str], feature_map: FeatureMap | torch.nn.Module | None = None
    ) -> Head:
        """Read a file written by :meth:`save`; never unpickles.

        Parameters
        ----------
        path : path
            The file.
        feature_map : FeatureMap or torch.nn.Module, optional
            The map of the head, if it holds a network, which a file cannot hold.

        Returns
        -------
        HeadClassifier or HeadRegressor
            The saved object.

        Raises
        ------
        InputError
            If the file is of another kind or damaged, or the network is missing.
        """
        head, arrays = read_state(path, WRITER)
        with refuse_damage(path, WRITER):
            values = head["head"]
            kinds = {one.__name__: one for one in (HeadClassifier, HeadRegressor)}
            stored = strip_prefix("map.", arrays)
            given = None if feature_map is None else as_feature_map(feature_map)
            fitted = map_from_state(values["features"], stored, given)
            found: Head = kinds[values["kind"]](fitted, values["alpha"])
            found.feature_map_, found.alpha_ = fitted, values["alpha"]
            found._shape = tuple(values["shape"])
            found._columns = values.get("columns")
            found.n_features_in_ = math.prod(found._shape)
            found.coef_, found.intercept_ = arrays["coef"], arrays["intercept"]
            if isinstance(found, HeadClassifier):
                found.classes_ = arrays["classes"]
        return found


class HeadClassifier(ClassifierMixin, Head):  # type: ignore[misc]
    """Ridge regression to labels, from sums over rows: see :class:`Head`.

    Parameters
    ----------
    feature_map : str, FeatureMap or torch.nn.Module
        The feature map, as in :class:`bicore.streaming.MomentMemory`.
    alpha : float or "auto"
        Regularisation strength, as in scikit-learn's ``Ridge``.
    prior : {"data", "equal"} or mapping
        Importance of each class: as it came, the same, or shares by label.
    random_state : int, Generator, RandomState or None
        Seed for random features.

    Attributes
    ----------
    classes_ : array (C,)
        The labels, sorted.

    Examples
    --------
    >>> from bicore.sources import digits
    >>> x, y = digits()
    >>> head = HeadClassifier("relu:256").fit(x[:1200], y[:1200])
    >>> bool(head.score(x[1200:], y[1200:]) > 0.9)
    True
    """

    classes_: Array

    def decision_function(self, x: Matrix) -> Array:
        """Compute the scores of the classes.

        Parameters
        ----------
        x : array (n, …)
            Rows.

        Returns
        -------
        array (n, C)
            A score for each class; with two classes, shape (n,), positive for the second.
        """
        scores = self._scores(x)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, x: Matrix) -> Array:
        """Predict labels.

        Parameters
        ----------
        x : array (n, …)
            Rows.

        Returns
        -------
        array (n,)
            Labels.
        """
        places = self._scores(x).argmax(1)  # refuses a head that is not fitted
        return np.asarray(self.classes_[places])

    def predict_proba(self, x: Matrix) -> Array:
        """Estimate probabilities of the classes; they are not calibrated.

        The least-squares fit to one-hot labels estimates probabilities; here negative values become
        0, and a row is scaled to sum to 1. For calibrated ones use scikit-learn's
        ``CalibratedClassifierCV`` with a ``FrozenEstimator`` of this head, and rows that were not
        counted.

        Parameters
        ----------
        x : array (n, …)
            Rows.

        Returns
        -------
        array (n, C)
            Rows that sum to 1, in the order of ``classes_``.
        """
        scores = self._scores(x)
        positive = np.maximum(scores, 0.0)
        positive[np.arange(len(scores)), scores.argmax(1)] += np.finfo(np.float64).tiny
        return np.asarray(positive / positive.sum(1, keepdims=True))


class HeadRegressor(RegressorMixin, Head):  # type: ignore[misc]
    """Ridge regression to targets, from sums over rows: see :class:`Head`.

    Parameters
    ----------
    feature_map : str, FeatureMap or torch.nn.Module
        The feature map, as in :class:`bicore.streaming.MomentMemory`.
    alpha : float or "auto"
        Regularisation strength, as in scikit-learn's ``Ridge``.
    prior : "data"
        Every row counts as it came.
    random_state : int, Generator, RandomState or None
        Seed for random features.

    Examples
    --------
    >>> x = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> head = HeadRegressor("rows").fit(x, 3.0 * x[:, 0] + 1.0)
    >>> bool(abs(head.predict([[0.5]])[0] - 2.5) < 1e-3)
    True
    """

    def predict(self, x: Matrix) -> Array:
        """Predict targets.

        Parameters
        ----------
        x : array (n, …)
            Rows.

        Returns
        -------
        array (n,) or (n, C)
            Targets.
        """
        found = self._scores(x)
        return found[:, 0] if found.shape[1] == 1 else found


class _Features(nn.Module):
    """A feature map as a module without parameters."""

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self.map = features

    def forward(self, x: Tensor) -> Tensor:
        return self.map.features(x).float()


def _shape_of(features: Any) -> tuple[int, ...]:
    """Return the shape of a row; a map may wrap the one that knows it."""
    while getattr(features, "shape", None) is None and hasattr(features, "map"):
        features = features.map
    return getattr(features, "shape", None) or (features.width,)


def _split(
    moments: Moments, held: Moments | None, prior: Prior, intercept: float | None
) -> tuple[Centred, Centred] | None:
    """Return the sums of the other rows and of held-out rows; None if there are too few of them."""
    if held is None or not 0 < held.weight < moments.weight:
        return None
    if moments.classes is not None:
        held = held.with_classes(moments.classes)
    parts = centre(moments - held, prior, intercept), centre(held, prior, intercept)
    return parts if moments.width < SINGLE else (parts[0].to_single(), parts[1].to_single())


def _choose_features(
    moments: Moments, held: Moments | None, prior: Prior, intercept: float | None
) -> Array:
    """Choose how many of the first features a head uses, by the loss on held-out rows."""
    last = [] if intercept is None else [moments.width - 1]
    losses: list[tuple[float, int, Array]] = []
    for share in WIDTHS:
        own = np.union1d(np.arange(max(1, moments.width // share)), last).astype(int)
        some = moments.select_features(own)
        parts = _split(some, None if held is None else held.select_features(own), prior, intercept)
        if parts is None:
            raise InputError("choose_width=True needs held-out rows; add rows, with holdout=True.")
        losses.append((held_out_loss(*parts), len(losses), own))
    return min(losses, key=lambda one: one[:2])[2]


def held_out_loss(train: Centred, held: Centred) -> float:
    """Return the least loss of a ridge regression on held-out rows."""
    model, _ = train.solve_or_raise(choose_share(train, held) * train.scale)
    return held.loss(model, train)


def fit_map(given: FeatureMap, x: Array, y: Array | None) -> FeatureMap:
    """Fit a map; "auto" compares a few by held-out loss on the first labelled rows."""
    if not isinstance(given, AutomaticFeatures):
        return given.fit(x)
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), MANY_ROWS)).astype(int))
    classes = [] if y is None else np.unique(y[some]).tolist()
    if len(some) < FEW_ROWS or y is None or len(classes) < 2:
        return given.fit(x)

    def loss(fitted: FeatureMap) -> float:
        values = fitted.features(as_tensor(x[some])).double().numpy()
        empty = Moments.empty(fitted.width, classes=classes)
        half = hold_out(x[some], 2)
        parts = (empty.with_rows(values[own], y[some][own]) for own in (~half, half))
        return held_out_loss(*(centre(one, "data", None) for one in parts))

    return min((one.fit(x) for one in given.candidates(x)), key=loss)


@renamed_keywords()
def make_head(
    moments: Moments,
    feature_map: FeatureMap | None = None,
    *,
    held: Moments | None = None,
    alpha: float | str = "auto",
    prior: Prior = "data",
    shape: tuple[int, ...] | None = None,
    origin: Array | float = 0.0,
    spread: Array | float = 1.0,
    choose_width: bool = False,
    factor: UpdatedFactor | None = None,
) -> Head:
    """Make the ridge regression on all rows that moments have counted.

    Parameters
    ----------
    moments : Moments
        Sums over the rows.
    feature_map : FeatureMap, optional
        The fitted map of the rows; by default the head takes rows of features.
    held : Moments, optional
        The moments of some of the rows (they are also counted in ``moments``), by whose loss
        ``alpha`` is chosen; by default it is chosen by generalised cross-validation.
    alpha : float or "auto"
        Regularisation strength, as in scikit-learn's ``Ridge``.
    prior : {"data", "equal"} or mapping
        Class prior. Unless second moments are kept for each class, all classes are assumed to vary
        alike around their means.
    shape : tuple of int, optional
        The shape of a row, with ``feature_map`` (default: that of the rows they were fitted to).
    origin, spread : array or float
        Mean subtracted from targets, and number they were divided by, before they were summed.
    choose_width : bool
        Use all features, or the first half, quarter or eighth of them, by the loss on held-out rows
        (15% more time); the other features get the weight 0.
    factor : UpdatedFactor, optional
        A factorisation of these moments with the regularisation strength ``alpha``.

    Returns
    -------
    HeadClassifier or HeadRegressor
        A fitted model.

    Raises
    ------
    InputError
        If no rows or no labels were counted.

    Examples
    --------
    >>> x, y = np.array([[0.0], [1.0], [4.0], [5.0]]), ["a", "a", "b", "b"]
    >>> make_head(Moments.empty(1).with_rows(x, y), alpha=0.1).predict([[0.5], [4.5]]).tolist()
    ['a', 'b']
    """
    if not moments.weight > GONE:
        raise InputError("the moments have counted no rows; call update first.")
    if not moments.cross.shape[1]:
        raise InputError("a head needs labels, and these rows have none; give y with every batch.")
    if feature_map is None:
        shape = (moments.width,)
        feature_map = Rows(shape=shape)
    kind = HeadRegressor if moments.classes is None else HeadClassifier
    head = kind(feature_map, alpha, prior)
    some = moments
    if choose_width:
        own = _choose_features(moments, held, prior, feature_map.intercept)
        some, held = moments.select_features(own), held and held.select_features(own)
    head._set(some, held, feature_map, shape or _shape_of(feature_map), factor)
    if choose_width:
        coef = np.zeros((moments.width, head.coef_.shape[1]))
        coef[own] = head.coef_
        head.coef_ = coef
    if moments.classes is None:
        head.coef_ = head.coef_ * spread
        head.intercept_ = head.intercept_ * spread + origin
    return head
