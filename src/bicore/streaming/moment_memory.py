"""A memory that selects rows by sums over the whole stream."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from bicore._deprecated import renamed_fields, renamed_keywords
from bicore.arguments import Relative
from bicore.data import Array, Dataset, as_weights, join_datasets, read_targets
from bicore.errors import InputError, check_name, check_number, check_type
from bicore.files import strip_prefix
from bicore.moments.features import FeatureMap
from bicore.moments.features.base import WithConstant
from bicore.moments.features.maps import Rows, Standardised
from bicore.moments.features.registry import (
    FAR,
    AutomaticFeatures,
    as_feature_map,
    map_from_state,
    map_to_state,
)
from bicore.moments.moments import (
    DEFAULT_REG,
    OLD_PRIORS,
    Moments,
    Outer,
    Prior,
    RunningMoments,
    as_half_life,
    as_inner_reg,
    as_prior,
    as_python_value,
    check_room,
    decay_weights,
    hold_out,
)
from bicore.moments.ridge import SEARCHES
from bicore.runtime.context import Context, Runtime
from bicore.streaming.base import Arrays, PathLike, State, as_context, read_columns, store_columns
from bicore.streaming.buffer import MergingBuffer
from bicore.types import Label, Matrix, Numbers, RandomState

if TYPE_CHECKING:
    from bicore.moments.heads import Head, UpdatedFactor

#: Number of new rows processed at a time, unless the capacity is larger.
LEAST_PART = 128
#: Number of rows that wait, if the capacity holds them, before features are fitted: a single row
#: does not show whether it is an embedding or a table.
FIRST = 32
#: Number of directions in feature space whose projections replace labels, if there are none.
DIRECTIONS = 10
#: The strategy that depends on whether targets are numeric.
AUTO = "auto"
#: When rows are selected: with every batch, or on access.
KEEP = ("always", "lazy")
#: Number of rows buffered before they are added to the sums.
BLOCK = 1024
#: Number of held-out rows buffered.
HELD_BLOCK = 128
#: Size of the pool with keep="lazy", as a multiple of the rows processed at a time.
POOL = 4
#: Attributes that are arrays in state files.
_ARRAYS = ("_origin", "_spread", "_features", "_directions")


@renamed_fields(values=OLD_PRIORS, features="feature_map", rule="strategy")
class MomentMemory(MergingBuffer):
    """The rows of a stream from which a model learns most about all of it.

    The stream is summarised by moments in a feature space, p² numbers. The memory is chosen from
    the rows kept and the new ones so that a ridge regression on it has the least loss on everything
    seen (``bicore.moments.moments.Moments``). No second pass over the stream is needed.

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    feature_map : str, FeatureMap or torch.nn.Module
        The features in which rows are compared: "auto" (chosen by the first rows: the rows
        themselves for embeddings, random features for pixels and tables, standardised columns for
        tables with targets), a name of ``bicore.moments.features.registry.FEATURES``, a map, or a
        frozen network. For targets a constant feature is appended.
    strategy : {"auto", "elimination", "gradient", "gain", "exchange"}
        Search for the rows. "elimination" removes, one by one, the row whose removal raises the
        loss least; "gradient" and "gain" add rows by the slope or by the exact gain; "exchange"
        exchanges rows after elimination. "auto" is "gain" for numeric targets and "elimination"
        otherwise.
    inner_reg : float, Relative or "auto"
        Regulariser ρ of the regression; ``"relative:0.01"`` or ``Relative(0.01)`` is a share of the
        mean of ‖φ‖², and "auto" is ``Relative(0.1)``.
    prior : {"data", "equal"} or mapping
        Weight of each class: by frequency ("data"), "equal", or shares by label.
    half_life : float, optional
        Half-life of a row's weight in the moments, in rows: for streams that drift.
    random_state : int, Generator, RandomState or None
        Seed for random features.
    per_class : bool
        Keep second moments for each class, C·p² numbers: :meth:`forget_class` needs them, and the
        prior of :meth:`head` is exact. Priors other than "data" keep them always.
    holdout : bool
        Also keep sums over a tenth of the rows, on which :meth:`head` chooses its regularisation.
        Without them the state is half as large, and generalised cross-validation is used.
    keep : {"always", "lazy"}
        When rows are selected: with every batch; or on access, from a random sample of the rows
        since the last selection, which is much faster.

    Raises
    ------
    InputError
        If a parameter is out of its range.

    Notes
    -----
    If the rows of a stream are independent draws, later rows replace earlier ones of equal value,
    so most rows kept are recent. This does not lower the quality: the loss on the whole stream
    decides, and a recent row of such a stream is as informative as an early one.

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

    def __init__(
        self,
        capacity: int,
        feature_map: str | FeatureMap | torch.nn.Module = "auto",
        strategy: str = AUTO,
        inner_reg: float | str | Relative = "auto",
        prior: Prior = "data",
        half_life: float | None = None,
        random_state: RandomState = 0,
        per_class: bool = False,
        holdout: bool = True,
        keep: str = "always",
    ) -> None:
        super().__init__(capacity, random_state)
        for name, value in (("per_class", per_class), ("holdout", holdout)):
            check_type(name, value, bool, "True or False")
        self.per_class, self.holdout = per_class, holdout
        self.keep = check_name("keep", keep, KEEP)
        self.strategy = strategy
        check_name("strategy", strategy, (AUTO, *SEARCHES))
        self.inner_reg, self._reg = inner_reg, as_inner_reg(inner_reg)
        self.prior, self._prior = prior, as_prior(prior)
        self.needs_labels = self.needs_classes = self._prior != "data"
        self.half_life = as_half_life(half_life)
        self.feature_map = feature_map
        self._map = as_feature_map(feature_map, random_state=self.random_state)
        self._stored_map = map_to_state(self._map)  # fails now instead of on saving
        self._clear_fit()
        #: The means of the outputs in the objective.
        self._mean: Array | float = 0.0

    def _clear_fit(self) -> None:
        """Reset the features and everything that is computed from them."""
        self.feature_map_: FeatureMap | None = None
        #: Sums over all rows, and over the held-out tenth.
        self._sums: RunningMoments | None = None
        self._held: RunningMoments | None = None
        #: Mean and spread of the targets among the first rows, if y holds numeric targets.
        self._origin: Array | None = None
        self._spread: Array | None = None
        #: Features Φ of the rows kept; ΦΦᵀ and ΦAΦᵀ, with A the second moments.
        self._features: Array | None = None
        self._products: tuple[Array, Array] | None = None
        self._directions: Array | None = None
        #: With keep="lazy": the sampled rows that wait for a selection, and random priorities.
        self._pool: Dataset | None = None
        self._priorities: Array = np.empty(0)
        #: The factorisation of the last head with a given alpha, corrected for later rows.
        self._factor: UpdatedFactor | None = None

    @property
    def moments(self) -> Moments | None:
        """The sums over all rows; None before the features are fitted."""
        if self._sums is not None:
            self._sums = self._sums.fold()
        return None if self._sums is None else self._sums.moments

    @property
    def held_out(self) -> Moments | None:
        """The sums over the held-out rows; None without them."""
        if self._held is not None:
            self._held = self._held.fold()
        return None if self._held is None else self._held.moments

    def _set_moments(self, moments: Moments, held: Moments | None) -> None:
        self._factor = None
        self._sums = RunningMoments(moments, BLOCK if self.keep == "lazy" else 1)
        self._held = None if held is None else RunningMoments(held, HELD_BLOCK)

    def ridge(self, outer: Outer) -> float:
        """Return the regulariser ρ for an objective.

        Parameters
        ----------
        outer : Outer
            The objective; a share refers to its mean of ‖φ‖².

        Returns
        -------
        float
            A number above 0.
        """
        return outer.rho(self._reg)

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        if self.feature_map_ is not None:
            self._count_and_choose(batch, context)
            return
        rows = self._join_kept(batch)
        self.kept = None
        self._count_and_choose(rows, context)  # refuses rows that could never be counted
        if len(rows) < FIRST and len(rows) <= self.capacity:
            self._clear_fit()
            self.kept = rows  # kept with their weights until there are more

    def _count_and_choose(self, batch: Dataset, context: Context) -> None:
        if self.feature_map_ is None:
            self._fit(batch, context)
        lazy = self.keep == "lazy"
        features = self._compute_features(batch.x, context, stay=lazy)
        self._products = None if lazy else self._add_to_products(features, batch.weights)
        self._count(features, batch, context)
        if lazy:
            self._sample(batch)
        else:
            self._choose_from(batch, features)

    def _choose_from(self, batch: Dataset, features: Array) -> None:
        """Select from the rows kept and new ones, in parts."""
        assert self.moments is not None
        outer = self._outer(self.moments.on_host())
        part = max(LEAST_PART, self.capacity)
        for start in range(0, len(batch), part):
            rows = slice(start, start + part)
            self._choose(batch[rows], features[rows], outer)

    def _sample(self, batch: Dataset) -> None:
        """Add new rows to the pool, and reduce it at random if it is too large."""
        pool = batch if self._pool is None else join_datasets(self._pool, batch)
        fresh = self.rng.random(len(batch)) ** (1.0 / batch.weights)
        priorities = np.concatenate([self._priorities, fresh])
        most = POOL * max(LEAST_PART, self.capacity)
        if len(pool) > most:
            remaining = np.sort(np.argpartition(-priorities, most)[:most])
            pool, priorities = pool[remaining], priorities[remaining]
        self._pool, self._priorities = pool, priorities

    def _choose_from_pool(self, context: Context | None = None) -> None:
        """Select from the pool."""
        if self._pool is None:
            return
        context, pool = context or Context(), self._pool
        with self._all_or_nothing(), context.runtime.apply():
            self._pool, self._priorities = None, np.empty(0)
            self._choose_from(pool, self._compute_features(pool.x, context))

    def __len__(self) -> int:
        """The number of rows kept."""
        waiting = 0 if self._pool is None else len(self._pool)
        return min(self.capacity, super().__len__() + waiting)

    def snapshot(self) -> Dataset:
        self._choose_from_pool()
        return super().snapshot()

    def _check_columns(self, rows: Dataset) -> None:
        super()._check_columns(rows)
        if self._pool is not None:
            join_datasets(self._pool[:0], rows[:0])

    def _fit(self, batch: Dataset, context: Context) -> None:
        """Fit the features, and determine the kind of targets, by the first rows."""
        from bicore.moments.heads import fit_map  # imported late: scikit-learn takes time

        targets = None if batch.y is None else read_targets(batch.y)
        labelled = targets is not None and targets.classes is not None
        fitted, outputs = fit_map(self._map, batch.x, batch.y if labelled else None), 0
        if targets is not None and not labelled:
            fitted, outputs = self._for_targets(fitted).fit(batch.x), targets.outputs
            self._origin = targets.values.mean(0)
            spread = targets.values.std(0)
            self._spread = np.where(spread > 0, spread, 1.0)
        width = fitted.width
        self._check_room(width, max(1, outputs), False, context)
        self.feature_map_ = fitted
        device = context.runtime.torch_device
        on_device = self.keep == "lazy" and device.type == "cuda"
        empty = Moments.empty(
            width,
            classes=() if labelled else None,
            targets=outputs,
            apart=labelled and (self.per_class or self._prior != "data"),
            half_life=self.half_life,
            map=fitted.identity,
            device=device if on_device else None,
        )
        self._set_moments(empty, empty if self.holdout and targets is not None else None)
        if targets is None:
            rng = np.random.default_rng(self.random_state)
            start = rng.normal(size=(width, min(DIRECTIONS, width)))
            self._directions = np.linalg.qr(start)[0]

    def _for_targets(self, fitted: FeatureMap) -> FeatureMap:
        """Return the map for targets: with an intercept, and linear in the columns of a table."""
        if isinstance(self._map, AutomaticFeatures) and fitted.reason == "table":
            fitted = Standardised(Rows(), beyond=FAR, reason=fitted.reason)
        return fitted if isinstance(fitted, WithConstant) else WithConstant(fitted)

    def _compute_features(self, x: Array, context: Context, stay: bool = False) -> Any:
        """Compute features as an array; with ``stay`` they remain on a GPU."""
        assert self.feature_map_ is not None
        rows = torch.from_numpy(np.ascontiguousarray(x)).to(context.runtime.torch_device)
        found = self.feature_map_.features(rows)
        return found if stay and found.is_cuda else found.to("cpu", torch.float64).numpy()

    def _check_room(self, width: int, outputs: int, apart: bool, context: Context) -> None:
        limit = context.runtime.memory_bytes()
        check_room(width, outputs, apart, limit // (1 + self.holdout))

    def _count(self, features: Any, batch: Dataset, context: Context) -> None:
        """Add rows to the sums, and some of them to the held-out sums."""
        assert self._sums is not None
        sums, y = self._sums.moments, batch.y
        if self._origin is not None:
            y = self._targets(batch)
        elif sums.apart and y is not None:
            classes = {*(sums.classes or ()), *y.reshape(-1).tolist()}
            if len(classes) > len(sums.classes or ()):
                self._check_room(sums.width, len(classes), True, context)
        decay, weights = decay_weights(batch.weights, self.half_life)
        self._sums = self._sums.add(features, y, decay, weights)
        if self._factor is not None:
            self._factor = self._factor.with_rows(features, weights) if decay == 1 else None
        if self._held is not None and y is not None:
            own = np.flatnonzero(hold_out(batch.x))
            self._held = self._held.add(features[own], y[own], decay, weights[own])

    def _add_to_products(self, features: Array, weights: Array) -> tuple[Array, Array] | None:
        """Update the products of the rows kept for new rows in the moments.

        A row φ adds v·φφᵀ to A, and so (Φφ)(Φφ)ᵀ to ΦAΦᵀ: no product with A is needed again.
        """
        if self._products is None or self._prior != "data":
            return None
        assert self._features is not None
        gram, quadratic = self._products
        decay, counted = decay_weights(weights, self.half_life)
        reach = self._features @ features.T
        return gram, decay * quadratic + (reach * counted) @ reach.T

    def _outer(self, moments: Moments) -> Outer:
        """Return the objective; without labels, to predict the leading feature directions."""
        outer = moments.outer(self._prior)
        if self._directions is None:
            assert self.feature_map_ is not None
            outer, self._mean = outer.centre(self.feature_map_.intercept)
            return outer
        moved = outer.multiply(np.ascontiguousarray(self._directions.T)).T
        # One step of subspace iteration per batch: the directions converge with the moments.
        self._directions = np.linalg.qr(moved)[0]
        cross = outer.multiply(np.ascontiguousarray(self._directions.T)).T
        constant = float(np.vdot(self._directions, cross))
        return Outer(outer.second, cross, constant, outer.share)

    def _targets(self, rows: Dataset, features: Array | None = None) -> Array:
        """Return the outputs of the ridge regression before centring."""
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
        return np.asarray(np.eye(len(number))[codes])

    def _choose(self, fresh: Dataset, features: Array, outer: Outer) -> None:
        rows = self._join_kept(fresh)
        if self._features is not None:
            features = np.vstack([self._features, features])
        if len(rows) <= self.capacity:
            self.kept, self._features, self._products = rows, features, None
            return
        automatic = "elimination" if self._origin is None else "gain"
        search = SEARCHES[automatic if self.strategy == AUTO else self.strategy]
        targets = self._targets(rows, features) - self._mean
        known = self._products and (self._products[0], outer.share * self._products[1])
        found = search(outer, features, targets, self.ridge(outer), self.capacity, known)
        chosen = np.flatnonzero(found.inside)
        self.kept, self._features = rows[chosen], features[chosen]
        own = np.ix_(chosen, chosen)
        self._products = (found.gram[own], found.quadratic[own] / outer.share)

    @renamed_keywords()
    def with_features(
        self, feature_map: str | FeatureMap | torch.nn.Module, *, runtime: Runtime | None = None
    ) -> MomentMemory:
        """Return a memory that continues with other features.

        Sums over one map's features say nothing about another's. The new memory knows the past only
        by the rows kept, each with an equal share of the weight that has not faded; later rows
        count exactly. Change the features of a network in training rarely, such as after 1, 2, 4,
        8, … batches.

        Parameters
        ----------
        feature_map : str, FeatureMap or torch.nn.Module
            The features in which rows are compared from now on.
        runtime : Runtime, optional
            Device, precision and limits.

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
        >>> memory = MomentMemory(capacity=20, feature_map="rows").update(x[:200], y[:200])
        >>> memory.with_features("relu").update(x[200:300], y[200:300])
        MomentMemory(20 of 20 rows kept, 300 seen)
        """
        context = as_context(None, runtime)
        self._choose_from_pool(context)
        changed = {"feature_map": feature_map, "half_life": None}
        memory = MomentMemory(**{**self.get_params(deep=False), **changed})
        memory.position, memory.counted, memory.seen = self.position, self.counted, self.seen
        memory.mark = dict(self.mark)
        if self.moments is None:
            memory.kept = self.kept  # rows that wait
        elif self.kept is not None:
            # Weights that have decayed must not decay again.
            weight = np.full(len(self), self.moments.weight / len(self))
            rows = self.snapshot().with_columns(sample_weight=weight)
            with context.runtime.apply():
                memory._count_and_choose(rows, context)
            assert memory.moments is not None
            held, later = memory.held_out, dict[str, Any](half_life=self.half_life)
            memory._set_moments(replace(memory.moments, **later), held and replace(held, **later))
        memory.half_life = self.half_life
        return memory

    def _differences(self, other: Self) -> list[str]:
        changed = self.list_differences(other)
        if self.feature_map_ is None or other.feature_map_ is None:
            return changed
        if self.feature_map_ != other.feature_map_:
            raise InputError(
                f"other has another feature map ({other.feature_map_.identity}; this memory has "
                f"{self.feature_map_.identity}); build it with feature_map=memory.feature_map_."
            )
        return [name for name in changed if name != "feature_map"]

    def _merge_state(self, other: Self, moved: int, context: Context) -> None:
        if other.kept is None and other._pool is None:
            return  # its rows have no weight, but positions
        self._choose_from_pool(context)
        other._choose_from_pool(context)
        assert other.kept is not None
        rows = other.kept.with_columns(ids=other.kept.ids + moved)
        if other.moments is None:
            self._process_batch(rows, context)  # they wait there
            return
        assert other._features is not None
        if self.moments is None:
            self._copy_fit(other, context)
        own, others = (np.array([one._origin, one._spread]) for one in (self, other))
        if self._origin is not None and not np.array_equal(own, others):
            raise InputError(
                "other standardises its targets by different first rows; load both memories from "
                "one saved memory that has seen rows."
            )
        # With a half-life, the other stream comes after this one.
        decay = 1.0 if self.half_life is None else 2.0 ** (-other.counted / self.half_life)
        assert self.moments is not None
        held, more = self.held_out, other.held_out
        both = None if held is None or more is None else held.scale_by(decay) + more
        self._set_moments(self.moments.scale_by(decay) + other.moments, both)
        self._products = None
        self._choose_from(rows, other._features)

    def _copy_fit(self, other: Self, context: Context) -> None:
        """Copy what another memory fitted on its first rows; count only the rows waiting here."""
        assert other.moments is not None
        for name in ("feature_map_", *_ARRAYS):
            setattr(self, name, getattr(other, name))
        held = other.held_out
        self._set_moments(other.moments.scale_by(0.0), None if held is None else held.scale_by(0.0))
        self._features = self._products = None
        if self.kept is not None:
            self._features = self._compute_features(self.kept.x, context)
            self._count(self._features, self.kept, context)

    # Heads and forgetting.

    @renamed_keywords(values=OLD_PRIORS)
    def head(
        self, alpha: float | str = "auto", prior: Prior | None = None, choose_width: bool = False
    ) -> Head:
        """Return the ridge regression on all rows counted, as a fitted model.

        It does not depend on the order of the rows or on the rows kept, and changes neither. With a
        number for ``alpha`` the factorisation is kept, p² numbers, and corrected for later rows
        until they are a quarter as many as the features: heads after every small batch are fast.

        Parameters
        ----------
        alpha : float or "auto"
            Regularisation strength, as in scikit-learn's ``Ridge``; "auto" chooses it by the loss
            on a tenth of the rows, and the model uses all of them.
        prior : {"data", "equal"} or mapping, optional
            Importance of each class (default: as in the memory). Without ``per_class`` all
            classes are assumed to vary alike around their means.
        choose_width : bool
            Use all features, or the first half, quarter or eighth of them, by the loss on held-out
            rows.

        Returns
        -------
        HeadClassifier or HeadRegressor
            With the methods of scikit-learn, :meth:`~bicore.moments.heads.Head.save` and
            :meth:`~bicore.moments.heads.Head.to_torch`.

        Raises
        ------
        InputError
            If no rows were seen, or rows without labels.

        Examples
        --------
        >>> from bicore.sources import digits
        >>> x, y = digits()
        >>> memory = MomentMemory(capacity=20).update(x[:1000], y[:1000])
        >>> bool(memory.head().score(x[1000:], y[1000:]) > 0.9)
        True
        """
        from bicore.moments.heads import UpdatedFactor, centre, make_head

        if self.moments is None and self.kept is not None:
            fitted = copy.copy(self)  # fewer rows than needed to fit features
            fitted.rng = copy.deepcopy(self.rng)
            rows, fitted.kept = self.kept, None
            fitted._count_and_choose(rows, Context())
            return fitted.head(alpha, prior, choose_width)
        if self.moments is None:
            raise InputError("the memory has seen no rows; call update before head.")
        seen = self.kept if self.kept is not None else self._pool
        prior = self._prior if prior is None else as_prior(prior)
        moments, factor = self.moments, None
        if alpha != "auto" and prior == "data" and len(moments.second) == 1 and not choose_width:
            alpha = check_number("alpha", alpha, above=0)
            if self._factor is None or self._factor.alpha != alpha:
                assert self.feature_map_ is not None
                sums = centre(moments, prior, self.feature_map_.intercept)
                self._factor = UpdatedFactor.of(sums, alpha)
            factor = self._factor
        return make_head(
            moments,
            self.feature_map_,
            held=self.held_out if factor is None else None,
            alpha=alpha,
            prior=prior,
            choose_width=choose_width,
            factor=factor,
            shape=None if seen is None else seen.x.shape[1:],
            origin=0.0 if self._origin is None else self._origin,
            spread=1.0 if self._spread is None else self._spread,
        )

    @renamed_keywords()
    def forget(
        self,
        x: Matrix,
        y: Numbers | None = None,
        sample_weight: Numbers | None = None,
        *,
        runtime: Runtime | None = None,
    ) -> Self:
        """Subtract rows given again, and remove them from the rows kept.

        The sums are as if the rows had never come. The feature map stays as the first rows made it,
        and rows that were not kept because of forgotten ones do not come back.

        Parameters
        ----------
        x, y, sample_weight : array
            The rows, as they were given to :meth:`update`.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        MomentMemory
            The memory itself.

        Raises
        ------
        InputError
            If rows were never counted, as far as the sums show, or the memory has a half-life and
            fitted features; nothing has changed then.

        Examples
        --------
        >>> from bicore.sources import digits
        >>> x, y = digits()
        >>> memory = MomentMemory(capacity=20).update(x[:500], y[:500])
        >>> memory.forget(x[:100], y[:100]).moments.weight
        400.0
        """
        context = as_context(None, runtime)
        rows = Dataset(x, y)
        self._check(rows, context)
        weights = as_weights(sample_weight, len(rows), all_zero=True)
        rows = rows.with_columns(sample_weight=weights)[np.flatnonzero(weights)]
        if not len(rows):
            return self  # rows of weight 0 are never counted
        with self._all_or_nothing(), context.runtime.apply():
            self._choose_from_pool(context)
            # rows that wait have their own weights
            places = _find_rows(self.kept, rows, weighted=self._sums is None)
            if self._sums is not None:
                self._subtract(rows, context)
            elif len(places) < len(rows):
                raise InputError(
                    "some of these rows were never counted, or had other weights; no row was "
                    "forgotten. Pass rows and weights that the memory has seen."
                )
            self._drop(places)
            self.seen -= float(weights.sum())
        return self

    def forget_class(self, label: Label) -> Self:
        """Remove a class from the sums and the rows kept.

        Parameters
        ----------
        label : object
            The label.

        Returns
        -------
        MomentMemory
            The memory itself, as if no row of the class had ever come.

        Raises
        ------
        InputError
            If the label is unknown, or ``per_class`` is False; nothing has changed then.
        """
        with self._all_or_nothing():
            self._choose_from_pool()
            kept = None if self.kept is None else self.kept.y
            labels = [] if kept is None else kept.reshape(-1).tolist()
            places = [place for place, one in enumerate(labels) if one == label]
            if self.moments is None:
                if self.kept is None or not places:
                    raise InputError(f"label={label!r} was never counted.")
                self.seen -= float(self.kept.weights[places].sum())
            else:
                remaining, held = self.moments.without_class(label), self.held_out
                if held is not None and as_python_value(label) in (held.classes or ()):
                    held = held.without_class(label)
                self.seen -= self.moments.weight - remaining.weight
                self._set_moments(remaining, held)
            self._drop(places)
        return self

    def _subtract(self, rows: Dataset, context: Context) -> None:
        assert self.moments is not None
        features = self._compute_features(rows.x, context)
        y = rows.y if self._origin is None else self._targets(rows)
        held, held_rows = self.held_out, np.flatnonzero(hold_out(rows.x))
        remaining = self.moments.without_rows(features, y, rows.weights)
        if held is not None and y is not None and len(held_rows):
            held = held.without_rows(features[held_rows], y[held_rows], rows.weights[held_rows])
        self._set_moments(remaining, held)

    def _drop(self, places: list[int]) -> None:
        """Drop rows from those kept."""
        if self.kept is None or not places:
            return
        remaining = np.delete(np.arange(len(self.kept)), places)
        self.kept = self.kept[remaining] if len(remaining) else None
        self._products = None
        if self._features is not None:
            self._features = self._features[remaining] if len(remaining) else None

    # State.

    def _configuration(self) -> dict[str, Any]:
        # Stored as pairs, because labels may be numbers, which cannot be keys in JSON.
        given, reg = self._prior, self._reg
        prior = given if isinstance(given, str) else list(map(list, given.items()))
        return {
            **super()._configuration(),
            "feature_map": self._stored_map[0],
            "inner_reg": f"relative:{reg.share}" if isinstance(reg, Relative) else f"rho:{reg}",
            "prior": prior,
        }

    def _state(self) -> State:
        head, own_arrays = super()._state()
        if self.feature_map_ is None or self.moments is None:
            head["values"]["settled"] = None
            return head, own_arrays
        values, moments = self.moments.to_state()
        held_values, held_arrays = (None, {}) if self.held_out is None else self.held_out.to_state()
        pool = {} if self._pool is None else store_columns(self._pool)
        pool["priorities"] = self._priorities
        map_values, map_arrays = map_to_state(self.feature_map_)
        own = {name.removeprefix("_"): getattr(self, name) for name in _ARRAYS}
        own["gram"], own["quadratic"] = self._products or (None, None)
        groups = {"moments": moments, "held": held_arrays, "map": map_arrays, "pool": pool}
        groups |= {"given": self._stored_map[1], "own": own}
        arrays = {
            f"{group}.{name}": one
            for group, columns in groups.items()
            for name, one in columns.items()
            if one is not None
        }
        head["values"] |= {"settled": map_values, "moments": values, "held": held_values}
        return head, own_arrays | arrays

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        super()._restore(head, arrays)
        self._clear_fit()
        values = head["values"]
        if values["settled"] is None:
            return
        fitted = strip_prefix("map.", arrays)
        self.feature_map_ = map_from_state(values["settled"], fitted, self._map)
        held = values.get("held")  # earlier versions had no held-out rows
        held = held and Moments.from_state(held, strip_prefix("held.", arrays))
        moments = Moments.from_state(values["moments"], strip_prefix("moments.", arrays))
        self._set_moments(moments, held)
        pool = strip_prefix("pool.", arrays)
        self._pool = read_columns(pool) if "x" in pool else None
        self._priorities = pool.get("priorities", np.empty(0))
        own = strip_prefix("own.", arrays)
        for name in _ARRAYS:
            setattr(self, name, own.get(name.removeprefix("_")))
        if "gram" in own:
            self._products = own["gram"], own["quadratic"]

    @classmethod
    @renamed_keywords()
    def load(
        cls, path: PathLike, feature_map: str | FeatureMap | torch.nn.Module | None = None
    ) -> Self:
        """Read a file that :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        feature_map : FeatureMap or torch.nn.Module, optional
            The map the memory was built with, if it holds a network, which a file cannot hold.

        Returns
        -------
        MomentMemory
            The saved object.

        Raises
        ------
        InputError
            If the map is missing or another, or the file is of another class or format, or damaged.
        """
        return cls._load(path, feature_map)

    @classmethod
    def _read_configuration(cls, head: Mapping[str, Any]) -> dict[str, Any]:
        found = super()._read_configuration(head)
        if not isinstance(found["inner_reg"], str):  # a share, or None for the default
            found["inner_reg"] = f"relative:{found['inner_reg'] or DEFAULT_REG.share}"
        return found

    @classmethod
    def _from_configuration(cls, configuration: dict[str, Any], arrays: Arrays, given: Any) -> Self:
        known, prior = configuration.pop("feature_map"), configuration.pop("prior")
        if given is None:
            features = map_from_state(known, strip_prefix("given.", arrays))
        else:
            features = as_feature_map(given, configuration["random_state"])
            if features.identity != known["identity"]:
                raise InputError(
                    f"feature_map={features.identity} is not that of the file, "
                    f"{known['identity']}; give the map it was built with."
                )
        kind, _, number = configuration.pop("inner_reg").partition(":")
        reg = Relative(float(number)) if kind == "relative" else float(number)
        prior = prior if isinstance(prior, str) else dict(prior)
        return cls(feature_map=features, prior=prior, inner_reg=reg, **configuration)


def _find_rows(kept: Dataset | None, rows: Dataset, weighted: bool) -> list[int]:
    """Return the places of equal rows and labels (and weights), each place once."""
    if kept is None:
        return []
    kind, places = kept.x.dtype, defaultdict(list)
    for place, key in enumerate(_row_keys(kept, kind, weighted)):
        places[key].append(place)
    return sorted(places[key].pop() for key in _row_keys(rows, kind, weighted) if places[key])


def _row_keys(rows: Dataset, kind: Any, weighted: bool) -> Iterator[Any]:
    labels = [None] * len(rows) if rows.y is None else rows.y.tolist()
    weights = rows.weights if weighted else np.ones(len(rows))
    for row, label, weight in zip(rows.x.astype(kind), labels, weights, strict=True):
        yield row.tobytes(), str(label), weight
