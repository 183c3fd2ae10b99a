"""A memory chosen against the moments of the whole stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch

from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError, check_number
from bicore.memory.base import Arrays, PathLike, State, strip_prefix
from bicore.memory.buffer import MergingBuffer
from bicore.moments.choosing import WAYS, as_way
from bicore.moments.features import (
    AutomaticFeatures,
    FeatureMap,
    Rows,
    Standardised,
    WithConstant,
    as_feature_map,
    map_from_state,
    map_to_state,
)
from bicore.moments.features.registry import FAR
from bicore.moments.moments import (
    Moments,
    Outer,
    Prior,
    aged,
    as_half_life,
    as_shares,
    check_room,
    plain,
)
from bicore.runtime import Context

#: The default ρ as a share of the mean of ‖φ‖², chosen on streams of data sets that no result is
#: reported on: of 0.001 to 1 it was best on digits, satellite images and embeddings.
SHARE = 0.1
#: New rows that are chosen from at a time, unless the capacity is larger.
LEAST_PART = 128
#: Rows before features are fitted, if there is room for them: one row does not show whether it is
#: an embedding or a table.
FIRST = 32
#: Directions of the features that replace labels in a stream without labels.
DIRECTIONS = 10
#: The rule that depends on whether rows have targets.
AUTO = "auto"
#: Attributes that the first rows determine; those of the second line are arrays in state files.
_FITTED = ("feature_map", "moments", "_products")
_ARRAYS = ("_origin", "_spread", "_features", "_directions")


class MomentMemory(MergingBuffer):
    """The rows of a stream from which a model learns most about all of it.

    The stream is summarised by moments in a feature space, p² numbers. The memory is chosen from
    the rows kept and the new ones so that a ridge regression on it has the least loss on everything
    seen (:class:`~bicore.moments.Moments`). No second pass over the stream is needed.

    Parameters
    ----------
    capacity : int
        The most rows that are ever kept.
    features : str, FeatureMap or torch.nn.Module
        The features in which rows are compared: "auto" (chosen by the first rows: the rows
        themselves for embeddings, random features for pixels and tables, standardised columns for
        tables with targets), a name of ``bicore.moments.FEATURES``, a map, or a frozen network. For
        targets a constant feature is appended.
    rule : {"auto", "elimination", "gradient", "gain", "exchange"}
        How rows are chosen: remove the row with the least loss, one after the other; add rows by
        the slope or by the exact gain; or exchange rows after elimination. "auto" is the gain for
        targets and elimination otherwise.
    inner_reg : float or "auto"
        Regulariser of the regression as a share of the mean of ‖φ‖².
    prior : {"stream", "equal"} or mapping
        How much each class counts: as it came, the same, or shares by label.
    half_life : float, optional
        Half-life of a row's weight in the moments, in rows: for streams that drift.
    seed : int
        Seed for random features.

    Raises
    ------
    InputError
        If a parameter is out of its range.

    Examples
    --------
    >>> from bicore.sources import digits
    >>> x, y = digits()
    >>> memory = MomentMemory(capacity=20)
    >>> for start in range(0, 1000, 100):
    ...     _ = memory.update(x[start : start + 100], y[start : start + 100])
    >>> memory
    MomentMemory(20 of 20 rows kept, 1000 seen)
    """

    feature_map: FeatureMap | None
    moments: Moments | None
    #: Mean and spread of the targets among the first rows, if y holds targets.
    _origin: Array | None
    _spread: Array | None
    #: Features of the rows kept; ΦΦᵀ of them, and ΦAΦᵀ with A the sum of second moments.
    _features: Array | None
    _products: tuple[Array, Array] | None
    _directions: Array | None

    def __init__(
        self,
        capacity: int,
        features: str | FeatureMap | torch.nn.Module = "auto",
        rule: str = AUTO,
        inner_reg: float | str = "auto",
        prior: Prior = "stream",
        half_life: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, seed)
        self.rule = rule if rule == AUTO else as_way(rule)
        self.inner_reg: float | None = None
        if inner_reg != "auto":
            words = "give a share of the mean of ‖φ‖² such as 0.01, or 'auto'"
            self.inner_reg = check_number("inner_reg", inner_reg, above=0, fix=words)
        self.prior = _as_prior(prior)
        self.needs_labels = self.needs_classes = self.prior != "stream"
        self.half_life = as_half_life(half_life)
        self.map = as_feature_map(features, seed=self.seed)
        self._stored_map = map_to_state(self.map)  # fails now and not when the memory is saved
        self._clear_fit()
        #: Of classes, as the objective counts them; and the mean of centred targets.
        self._shares = np.empty(0)
        self._mean: Array | float = 0.0

    def _clear_fit(self) -> None:
        for name in (*_FITTED, *_ARRAYS):
            setattr(self, name, None)

    @property
    def ridge_share(self) -> float:
        """The regulariser as a share of the mean of ‖φ‖²."""
        return SHARE if self.inner_reg is None else self.inner_reg

    @property
    def way(self) -> str:
        """The rule that rows are chosen by."""
        if self.rule != AUTO:
            return self.rule
        return "elimination" if self._origin is None else "gain"

    def _take(self, batch: Dataset, context: Context) -> None:
        if self.feature_map is not None:
            self._count_and_choose(batch, context)
            return
        rows = self._kept_and(batch)
        self.kept = None
        self._count_and_choose(rows, context)  # refuses at once what could never be counted
        if len(rows) < FIRST and len(rows) <= self.capacity:
            self._clear_fit()
            self.kept = rows  # with weights of their own, to be counted once there are more

    def _count_and_choose(self, batch: Dataset, context: Context) -> None:
        if self.feature_map is None:
            self._fit(batch, context)
        features = self._compute_features(batch.x, context)
        self._products = self._add_to_products(features, batch.weights)
        self.moments = self._add_to_moments(features, batch, context)
        outer = self._outer(self.moments)
        part = max(LEAST_PART, self.capacity)
        for start in range(0, len(batch), part):
            rows = slice(start, start + part)
            self._choose(batch[rows], features[rows], outer)

    def _fit(self, batch: Dataset, context: Context) -> None:
        """Fit the features, and determine the kind of targets, by the first rows."""
        targets = None if batch.y is None else read_targets(batch.y)
        fitted = self.map.fit(batch.x)
        classes: tuple[Any, ...] | None = None if targets is None else ()
        outputs = 0
        if targets is not None and targets.classes is None:
            fitted = self._for_targets(fitted).fit(batch.x)
            classes, outputs = None, targets.outputs
            self._origin = targets.values.mean(0)
            spread = targets.values.std(0)
            self._spread = np.where(spread > 0, spread, 1.0)
        width = fitted.width
        check_room(width, max(1, outputs), False, context.runtime.memory_bytes())
        self.feature_map = fitted
        self.moments = Moments.empty(
            width,
            classes=classes,
            targets=outputs,
            apart=self.prior != "stream",
            half_life=self.half_life,
            map=fitted.identity,
        )
        if targets is None:
            rng = np.random.default_rng(self.seed)
            start = rng.normal(size=(width, min(DIRECTIONS, width)))
            self._directions = np.linalg.qr(start)[0]

    def _for_targets(self, fitted: FeatureMap) -> FeatureMap:
        """Return the map for targets: with an intercept, and linear in the columns of a table."""
        if isinstance(self.map, AutomaticFeatures) and fitted.reason == "table":
            fitted = Standardised(Rows(), beyond=FAR, reason=fitted.reason)
        return fitted if isinstance(fitted, WithConstant) else WithConstant(fitted)

    def _compute_features(self, x: Array, context: Context) -> Array:
        assert self.feature_map is not None
        rows = torch.from_numpy(np.ascontiguousarray(x)).to(context.runtime.torch_device)
        return self.feature_map.features(rows).to("cpu", torch.float64).numpy()

    def _add_to_moments(self, features: Array, batch: Dataset, context: Context) -> Moments:
        assert self.moments is not None
        y = batch.y
        if self._origin is not None:
            y = self._targets(batch)
        elif self.moments.apart and y is not None:
            classes = {*(self.moments.classes or ()), *y.reshape(-1).tolist()}
            if len(classes) > len(self.moments.classes or ()):
                limit = context.runtime.memory_bytes()
                check_room(self.moments.width, len(classes), True, limit)
        return self.moments.with_rows(features, y, batch.weights)

    def _add_to_products(self, features: Array, weights: Array) -> tuple[Array, Array] | None:
        """Update the products of the rows kept for new rows in the moments.

        A row φ adds v·φφᵀ to A, and so (Φφ)(Φφ)ᵀ to ΦAΦᵀ: no product with A is needed again.
        """
        if self._products is None or self.prior != "stream":
            return None
        assert self._features is not None
        gram, quadratic = self._products
        faded, counted = aged(weights, self.half_life)
        reach = self._features @ features.T
        return gram, faded * quadratic + (reach * counted) @ reach.T

    def _outer(self, moments: Moments) -> Outer:
        """Return the objective; without labels, to predict the leading feature directions."""
        outer = moments.outer(self.prior)
        if self._directions is None:
            return self._centre(outer, moments)
        moved = outer.times(np.ascontiguousarray(self._directions.T)).T
        # One step of subspace iteration per batch: the directions converge with the moments.
        self._directions = np.linalg.qr(moved)[0]
        cross = outer.times(np.ascontiguousarray(self._directions.T)).T
        constant = float(np.vdot(self._directions, cross))
        return Outer(outer.second, cross, constant, outer.share)

    def _centre(self, outer: Outer, moments: Moments) -> Outer:
        """Subtract the share of each class from labels, or the mean from targets."""
        if moments.classes is not None:
            self._shares = moments.shares(self.prior)
            return outer.centred(outer.cross.sum(1), self._shares)
        if not isinstance(self.feature_map, WithConstant) or self.feature_map.value is None:
            return outer  # of a state without a constant feature
        features, self._mean = outer.means(self.feature_map.value)
        return outer.centred(features, self._mean)

    def _targets(self, rows: Dataset, features: Array | None = None) -> Array:
        """The targets of the ridge regression, before their mean is subtracted."""
        if self._directions is not None:
            assert features is not None
            return np.asarray(features @ self._directions)
        assert rows.y is not None
        if self._origin is not None:
            values = read_targets(rows.y).values
            return np.asarray((values - self._origin) / self._spread)
        assert self.moments is not None
        number = {label: place for place, label in enumerate(self.moments.classes or ())}
        codes = [number[label] for label in rows.y.reshape(-1).tolist()]
        return np.asarray(np.eye(len(number))[codes] - self._shares)

    def _choose(self, fresh: Dataset, features: Array, outer: Outer) -> None:
        rows = self._kept_and(fresh)
        if self._features is not None:
            features = np.vstack([self._features, features])
        if len(rows) <= self.capacity:
            self.kept, self._features, self._products = rows, features, None
            return
        # features that are all zero leave all rows equal, with any regulariser
        ridge = self.ridge_share * (outer.energy or 1.0)
        targets = self._targets(rows, features) - self._mean
        known = None
        if self._products is not None:
            known = self._products[0], outer.share * self._products[1]
        found = WAYS[self.way](outer, features, targets, ridge, self.capacity, known)
        chosen = np.flatnonzero(found.inside)
        self.kept, self._features = rows[chosen], features[chosen]
        own = np.ix_(chosen, chosen)
        self._products = (found.gram[own], found.quadratic[own] / outer.share)

    def with_features(
        self,
        features: str | FeatureMap | torch.nn.Module,
        *,
        context: Context | None = None,
    ) -> MomentMemory:
        """Return a memory that continues from here with other features.

        Sums over one map's features say nothing about another's. The new memory knows the past only
        by the rows kept, each with an equal share of the weight that has not faded; later rows
        count exactly. Change the features of a network in training seldom, such as after 1, 2, 4,
        8, … batches.

        Parameters
        ----------
        features : str, FeatureMap or torch.nn.Module
            The features in which rows are compared from now on.
        context : Context, optional
            The runtime.

        Returns
        -------
        MomentMemory
            With the same rows and parameters; this one is left unchanged.

        Raises
        ------
        InputError
            If the map cannot read the rows kept.

        Examples
        --------
        >>> from bicore.sources import digits
        >>> x, y = digits()
        >>> memory = MomentMemory(capacity=20, features="rows").update(x[:200], y[:200])
        >>> memory.with_features("relu").update(x[200:300], y[200:300])
        MomentMemory(20 of 20 rows kept, 300 seen)
        """
        reg = self.inner_reg or "auto"
        made = MomentMemory(self.capacity, features, self.rule, reg, self.prior, seed=self.seed)
        made.position, made.counted, made.seen = self.position, self.counted, self.seen
        made.mark = dict(self.mark)
        if self.moments is None:
            made.kept = self.kept  # rows that wait
        elif self.kept is not None:
            # Weights that have faded must not fade once more as they are counted again.
            weight = np.full(len(self), self.moments.weight / len(self))
            context = context or Context()
            with context.runtime.applied():
                made._count_and_choose(self.snapshot().with_columns(weight=weight), context)
            assert made.moments is not None
            made.moments = replace(made.moments, half_life=self.half_life)
        made.half_life = self.half_life
        return made

    def _differences(self, other: Self) -> list[str]:
        changed = self.unlike(other)
        if self.feature_map is None or other.feature_map is None:
            return changed
        if self.feature_map != other.feature_map:
            raise InputError(
                f"other has fitted other features ({other.feature_map.identity}, here "
                f"{self.feature_map.identity}); build it with features=memory.feature_map."
            )
        return [name for name in changed if name != "features"]

    def _absorb(self, other: Self, moved: int, context: Context) -> None:
        if other.kept is None:
            return  # its rows count for nothing, but have their places
        rows = other.kept.with_columns(ids=other.kept.ids + moved)
        if other.moments is None:
            self._take(rows, context)  # they wait there
            return
        assert other._features is not None
        if self.moments is None:
            self._begin_like(other, context)
        own, others = self._origin, other._origin
        if own is not None and (others is None or not np.array_equal(own, others)):
            raise InputError(
                "other began with other targets, and theirs are measured from their first rows; "
                "load both from one memory that has seen some rows."
            )
        assert self.moments is not None
        if self.half_life is not None:  # its stream comes after this one
            self.moments = self.moments.scaled(2.0 ** (-other.counted / self.half_life))
        self.moments = self.moments + other.moments
        self._products = None
        self._choose(rows, other._features, self._outer(self.moments))

    def _begin_like(self, other: Self, context: Context) -> None:
        """Take the features of another memory, and count only the rows that wait here."""
        for name in (*_FITTED, *_ARRAYS):
            setattr(self, name, getattr(other, name))
        assert self.moments is not None
        self.moments = self.moments.scaled(0.0)
        self._features = self._products = None
        if self.kept is not None:
            self._features = self._compute_features(self.kept.x, context)
            self.moments = self._add_to_moments(self._features, self.kept, context)

    # State.

    def _configuration(self) -> dict[str, Any]:
        # As pairs: labels may be numbers, which JSON does not have as keys.
        prior = self.prior if isinstance(self.prior, str) else list(map(list, self.prior.items()))
        return {
            **super()._configuration(),
            "features": self._stored_map[0],
            "rule": self.rule,
            "inner_reg": self.inner_reg,
            "prior": prior,
            "half_life": self.half_life,
        }

    def _own(self) -> State:
        if self.feature_map is None or self.moments is None:
            return {"settled": None}, {}
        values, moments = self.moments.stored()
        map_values, map_arrays = map_to_state(self.feature_map)
        own = {name.removeprefix("_"): getattr(self, name) for name in _ARRAYS}
        own["gram"], own["quadratic"] = self._products or (None, None)
        groups = {"moments": moments, "map": map_arrays, "given": self._stored_map[1], "own": own}
        arrays = {
            f"{group}.{name}": one
            for group, columns in groups.items()
            for name, one in columns.items()
            if one is not None
        }
        return {"settled": map_values, "moments": values}, arrays

    def _load_own(self, values: Mapping[str, Any], arrays: Arrays) -> None:
        self._clear_fit()
        if values["settled"] is None:
            return
        self.feature_map = map_from_state(values["settled"], strip_prefix("map.", arrays), self.map)
        self.moments = Moments.restored(values["moments"], strip_prefix("moments.", arrays))
        own = strip_prefix("own.", arrays)
        for name in _ARRAYS:
            setattr(self, name, own.get(name.removeprefix("_")))
        if "gram" in own:
            self._products = own["gram"], own["quadratic"]

    @classmethod
    def load(
        cls, path: PathLike, features: str | FeatureMap | torch.nn.Module | None = None
    ) -> Self:
        """Read a file that :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        features : FeatureMap or torch.nn.Module, optional
            The map the memory was built with, if it holds a network, which a file cannot hold.

        Returns
        -------
        MomentMemory
            As it was saved.

        Raises
        ------
        InputError
            If the map is missing or another, or the file is of another class or format, or damaged.
        """
        return cls._load(path, features)

    @classmethod
    def _from_configuration(cls, configuration: dict[str, Any], arrays: Arrays, given: Any) -> Self:
        known, prior = configuration.pop("features"), configuration.pop("prior")
        if given is None:
            features = map_from_state(known, strip_prefix("given.", arrays))
        else:
            features = as_feature_map(given, configuration["seed"])
            if features.identity != known["identity"]:
                raise InputError(
                    f"features={features.identity} are not those of the file, "
                    f"{known['identity']}; give the map it was built with."
                )
        configuration["inner_reg"] = configuration["inner_reg"] or "auto"
        prior = prior if isinstance(prior, str) else dict(prior)
        return cls(features=features, prior=prior, **configuration)


def _as_prior(prior: Any) -> Prior:
    if str(prior) in ("stream", "equal"):
        return str(prior)
    as_shares(prior, ())  # refuses what are no shares
    return {plain(label): float(share) for label, share in prior.items()}
