"""A memory that remembers its objective: rows chosen against the moments of the whole stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch

from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError
from bicore.memory.merging import Merging
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

#: ρ as a share of the mean of ‖φ‖²; decided on streams made of sets of the battery that were kept
#: for choices: from 0.001 to 1, digits, satellite images and embeddings all liked it best.
SHARE = 0.1
#: New rows that are chosen from at a time, unless the capacity is larger: a batch that is larger is
#: looked at in parts.
LEAST_PART = 128
#: Rows that are waited for before features are settled, while there is room for all of them: of one
#: row nobody can tell an embedding from a table.
FIRST = 32
#: Directions that stand in for labels where a stream has none.
DIRECTIONS = 10
#: Priors that have a name.
NAMED = ("stream", "equal")
#: The rule that depends on whether rows have targets.
AUTO = "auto"


class MomentMemory(Merging):
    """The rows of a stream from which a model learns most about all of it.

    What the stream was like is kept as moments in a feature space, p² numbers; the memory is chosen
    from the rows kept and the new ones so that a ridge regression on it has the least loss on
    everything ever seen (:class:`~bicore.moments.Moments`). No other pass over the stream is
    needed, and none of its rows beside those kept.

    Parameters
    ----------
    capacity : int
        The most rows that are ever kept.
    features : str, FeatureMap or torch.nn.Module
        What rows are compared in: "auto" (decided on the first rows: the rows themselves for
        embeddings, random features for pixels and tables, standardised columns for tables with
        targets), a name of ``bicore.moments.FEATURES``, a map, or a frozen network. For targets a
        constant feature is appended.
    rule : {"auto", "elimination", "gradient", "gain", "exchange"}
        How rows are chosen: one after the other leaves that is missed least, or joins by the slope
        or the exact gain; exchanges after elimination. "auto" is the gain for targets and
        elimination otherwise.
    inner_reg : float or "auto"
        Regulariser of the regression as a share of the mean of ‖φ‖².
    prior : {"stream", "equal"} or mapping
        How much each class counts: as it came, the same, or shares by label.
    half_life : float, optional
        After so many further rows a row counts half in what is remembered: for streams that drift.
    seed : int
        Of random features.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

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
        features: str | FeatureMap | torch.nn.Module = "auto",
        rule: str = AUTO,
        inner_reg: float | str = "auto",
        prior: Prior = "stream",
        half_life: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, seed)
        self.rule = rule if rule == AUTO else as_way(rule)
        self.inner_reg = _as_share(inner_reg)
        self.prior = _as_prior(prior)
        #: As JSON holds it: labels may be numbers.
        self._stored_prior = (
            self.prior if self.prior in NAMED else [list(one) for one in dict(self.prior).items()]  # type: ignore[arg-type]
        )
        self.needs_labels = self.prior != "stream"
        self.half_life = as_half_life(half_life)
        self.map = as_feature_map(features, seed=self.seed)
        #: The map as it was given and as it was settled, as a state file holds them.
        self._stored_maps = [map_to_state(self.map)]
        #: Known once the first rows came.
        self.settled: FeatureMap | None = None
        self.moments: Moments | None = None
        #: Where y holds targets: their mean and spread among the first rows.
        self._origin: Array | None = None
        self._spread: Array | None = None
        #: Features of the rows kept; ΦΦᵀ of them, and ΦAΦᵀ with A as it is summed.
        self._features: Array | None = None
        self._products: tuple[Array, Array] | None = None
        self._directions: Array | None = None
        #: Of classes, as the objective counts them.
        self._shares = np.empty(0)
        #: Of targets, after the mean of the first rows is subtracted.
        self._mean: Array | float = 0.0

    @property
    def name(self) -> str:
        return "MomentMemory"

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

    def _check(self, batch: Dataset, context: Context) -> None:
        super()._check(batch, context)
        if self.needs_labels and batch.y is not None and read_targets(batch.y).classes is None:
            raise InputError(
                f"prior={self.prior!r} counts classes, and y holds targets; use prior='stream'."
            )

    def _take(self, batch: Dataset, context: Context) -> None:
        if self.settled is not None:
            self._take_in(batch, context)
            return
        rows = self._followed_by(batch)
        self.kept = None
        self._take_in(rows, context)  # refuses at once what could never be counted
        if len(rows) < FIRST and len(rows) <= self.capacity:
            self._load_own({"settled": None}, {})
            self.kept = rows  # with weights of their own, to be counted once there are more

    def _take_in(self, batch: Dataset, context: Context) -> None:
        """Count rows, and choose."""
        if self.settled is None:
            self._settle(batch, context)
        features = self._features_of(batch.x, context)
        moments = self._counted(features, batch, context)
        self._products = self._followed_by_sums(features, batch.weights)
        self.moments = moments
        outer = self._outer(moments)
        part = max(LEAST_PART, self.capacity)
        for start in range(0, len(batch), part):
            rows = slice(start, start + part)
            self._choose(batch[rows], features[rows], outer)

    def _settle(self, batch: Dataset, context: Context) -> None:
        """What is decided by the first rows, once."""
        targets = None if batch.y is None else read_targets(batch.y)
        self.settled = self.map.fit(batch.x)
        if targets is not None and targets.classes is None:
            self.settled = self._for_targets(self.settled).fit(batch.x)
        self._stored_maps = [self._stored_maps[0], map_to_state(self.settled)]
        classes: Any = ()
        if targets is None or targets.classes is None:
            classes = None
        outputs = 0
        if targets is not None and targets.classes is None:
            outputs = targets.outputs
            self._origin = targets.values.mean(0)
            spread = targets.values.std(0)
            self._spread = np.where(spread > 0, spread, 1.0)
        width = self.settled.width
        check_room(width, max(1, outputs), False, context.runtime.memory_bytes())
        self.moments = Moments.empty(
            width,
            classes=classes,
            targets=outputs,
            apart=self.prior != "stream",
            half_life=self.half_life,
            map=self.settled.identity,
        )
        if targets is None:
            rng = np.random.default_rng(self.seed)
            start = rng.normal(size=(width, min(DIRECTIONS, width)))
            self._directions = np.linalg.qr(start)[0]

    def _for_targets(self, settled: FeatureMap) -> FeatureMap:
        """The map for targets: with an intercept, and linear in the columns of a table."""
        if isinstance(self.map, AutomaticFeatures) and settled.reason == "table":
            settled = Standardised(Rows(), beyond=FAR, reason=settled.reason)
        return settled if isinstance(settled, WithConstant) else WithConstant(settled)

    def _features_of(self, x: Array, context: Context) -> Array:
        assert self.settled is not None
        rows = torch.from_numpy(np.ascontiguousarray(x)).to(context.runtime.torch_device)
        return self.settled.features(rows).to("cpu", torch.float64).numpy()

    def _counted(self, features: Array, batch: Dataset, context: Context) -> Moments:
        assert self.moments is not None
        y = batch.y
        if self._origin is not None:
            y = self._targets(batch)
        elif self.moments.apart and y is not None:
            fresh = set(y.reshape(-1).tolist()) - set(self.moments.classes or ())
            if fresh:
                classes = len(self.moments.classes or ()) + len(fresh)
                limit = context.runtime.memory_bytes()
                check_room(self.moments.width, classes, True, limit)
        return self.moments.with_rows(features, y, batch.weights)

    def _outer(self, moments: Moments) -> Outer:
        """The objective; without labels, to predict the leading directions of the features."""
        outer = moments.outer(self.prior)
        if self._directions is None:
            return self._centred(outer, moments)
        moved = outer.times(np.ascontiguousarray(self._directions.T)).T
        # One step of subspace iteration a batch: the directions follow the moments as they settle.
        self._directions = np.linalg.qr(moved)[0]
        cross = outer.times(np.ascontiguousarray(self._directions.T)).T
        constant = float(np.vdot(self._directions, cross))
        return Outer(outer.second, cross, constant, outer.share)

    def _centred(self, outer: Outer, moments: Moments) -> Outer:
        """For labels less the share of each class, or targets less their mean, as selectors do."""
        if moments.classes is not None:
            self._shares = moments.shares(self.prior)
            return outer.centred(outer.cross.sum(1), self._shares)
        if not isinstance(self.settled, WithConstant) or self.settled.value is None:
            return outer  # of a state without a constant feature
        features, self._mean = outer.means(self.settled.value)
        return outer.centred(features, self._mean)

    def _targets(self, rows: Dataset, features: Array | None = None) -> Array:
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
        rows = self._followed_by(fresh)
        if self._features is not None:
            features = np.vstack([self._features, features])
        if len(rows) <= self.capacity:
            self.kept, self._features, self._products = rows, features, None
            return
        # features that are all zero tell no row from another, with any regulariser
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

    def _followed_by_sums(self, features: Array, weights: Array) -> tuple[Array, Array] | None:
        """The products of the rows kept, with those of new rows in the moments.

        A row φ adds v·φφᵀ to A, and so (Φφ)(Φφ)ᵀ to ΦAΦᵀ: no product with A is needed again.
        """
        if self._products is None or self.prior != "stream":
            return None
        assert self._features is not None
        gram, quadratic = self._products
        faded, counted = aged(weights, self.half_life)
        reach = self._features @ features.T
        return gram, faded * quadratic + (reach * counted) @ reach.T

    def _weights(self) -> Array:
        return np.full(len(self), self.seen / len(self))

    def merge(
        self, other: Self, *, offset: int | None = None, context: Context | None = None
    ) -> Self:
        """Take in what another memory of the same kind has seen.

        Moments add, those here aged by the rows seen there where there is a half-life, and the rows
        are chosen from those of both. Features that are settled on first rows must be the same:
        begin one memory, and build the others with ``features=memory.settled``.

        Parameters
        ----------
        other : MomentMemory
            Built like this one and with the same feature map; it is left as it is.
        offset : int, optional
            What its ids are moved by; the default, the number of rows this memory has seen, is also
            the least.
        context : Context, optional
            The runtime.

        Returns
        -------
        MomentMemory
            The memory itself.

        Raises
        ------
        InputError
            Where the two are not built alike; nothing has changed then.
        """
        if not hasattr(other, "settled"):
            raise InputError(
                f"other is a {type(other).__name__}; a MomentMemory merges with another one."
            )
        changed = self.unlike(other)
        if self.settled is not None and other.settled is not None:
            self._check_maps(other.settled)
            changed = [name for name in changed if name != "features"]
        if changed:
            raise InputError(
                f"other has another {', '.join(changed)}; two memories merge when they are built "
                "alike."
            )
        self._follow(other, offset, context)
        return self

    def _check_maps(self, other: FeatureMap) -> None:
        assert self.settled is not None
        if self.settled != other:
            raise InputError(
                f"other has settled on other features ({other.identity}, here "
                f"{self.settled.identity}), by its own first rows; begin one memory, and build the "
                "others with features=memory.settled."
            )

    def with_features(
        self,
        features: str | FeatureMap | torch.nn.Module,
        *,
        context: Context | None = None,
    ) -> MomentMemory:
        """A memory that goes on from here with other features.

        Sums over one map's features say nothing of another's. The past is known to the new memory
        by the rows kept alone, each of which counts for an equal part of what has not faded; what
        comes from now on counts exactly. Features of a network in training are better changed
        seldom, and ever more seldom, such as after 1, 2, 4, 8, … batches.

        Parameters
        ----------
        features : str, FeatureMap or torch.nn.Module
            What rows are compared in from now on.
        context : Context, optional
            The runtime.

        Returns
        -------
        MomentMemory
            With the same rows, and built alike otherwise; this one is left as it is.

        Raises
        ------
        InputError
            Where the map cannot read the rows kept.

        Examples
        --------
        >>> from bicore.sources import digits
        >>> x, y = digits()
        >>> memory = MomentMemory(capacity=20, features="rows").update(x[:200], y[:200])
        >>> memory.with_features("relu").update(x[200:300], y[200:300])
        MomentMemory(20 of 20 rows kept, 300 seen)
        """
        made = MomentMemory(
            self.capacity,
            features,
            self.rule,
            "auto" if self.inner_reg is None else self.inner_reg,
            self.prior,
            seed=self.seed,
        )
        made.position, made.counted, made.seen = self.position, self.counted, self.seen
        made.mark = dict(self.mark)
        if self.moments is None:
            made.kept = self.kept  # rows that wait
        elif self.kept is not None:
            # What has faded stays faded, and does not fade once more as it is counted again.
            weight = np.full(len(self), self.moments.weight / len(self))
            context = context or Context()
            with context.runtime.applied():
                made._take_in(self.snapshot().with_columns(weight=weight), context)
            assert made.moments is not None
            made.moments = replace(made.moments, half_life=self.half_life)
        made.half_life = self.half_life
        return made

    def _absorb(self, other: Self, moved: int, context: Context) -> None:
        if other.kept is None:
            return  # what it has seen counts for nothing, but has its place
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
                "other began with other targets, and theirs are measured from their first "
                "rows; load both from one memory that has seen some rows."
            )
        assert self.moments is not None
        if self.half_life is not None:  # its stream comes after this one
            self.moments = self.moments.scaled(2.0 ** (-other.counted / self.half_life))
        self.moments = self.moments + other.moments
        self._products = None
        self._choose(rows, other._features, self._outer(self.moments))

    def _begin_like(self, other: Self, context: Context) -> None:
        """What another memory has settled on, with nothing counted but the rows that wait here."""
        waiting = self.kept
        self._load_own(*other._own())
        assert self.moments is not None
        self.moments = self.moments.scaled(0.0)
        self._features = self._products = None
        if waiting is not None:
            self._features = self._features_of(waiting.x, context)
            self.moments = self._counted(self._features, waiting, context)

    # State.

    def _configuration(self) -> dict[str, Any]:
        return {
            **super()._configuration(),
            "features": self._stored_maps[0][0],
            "rule": self.rule,
            "inner_reg": self.inner_reg,
            "prior": self._stored_prior,
            "half_life": self.half_life,
        }

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        if self.settled is None or self.moments is None:
            return {"settled": None}, {}
        values, arrays = self.moments.stored()
        map_values, map_arrays = self._stored_maps[1]
        arrays = {f"moments.{name}": one for name, one in arrays.items()}
        arrays |= {f"map.{name}": one for name, one in map_arrays.items()}
        arrays |= {f"given.{name}": one for name, one in self._stored_maps[0][1].items()}
        own = {
            "origin": self._origin,
            "spread": self._spread,
            "features": self._features,
            "directions": self._directions,
        }
        if self._products is not None:
            own |= {"gram": self._products[0], "quadratic": self._products[1]}
        arrays |= {f"own.{name}": one for name, one in own.items() if one is not None}
        return {"settled": map_values, "moments": values}, arrays

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        if values["settled"] is None:
            self.settled = self.moments = None
            self._origin = self._spread = self._features = self._directions = None
            self._products = None
            return
        self.settled = map_from_state(values["settled"], _named("map.", arrays), self.map)
        self._stored_maps = [self._stored_maps[0], map_to_state(self.settled)]
        self.moments = Moments.restored(values["moments"], _named("moments.", arrays))
        own = _named("own.", arrays)
        self._origin, self._spread = own.get("origin"), own.get("spread")
        self._features, self._directions = own.get("features"), own.get("directions")
        held = own.get("gram"), own.get("quadratic")
        self._products = held if held[0] is not None and held[1] is not None else None  # type: ignore[assignment]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        features: str | FeatureMap | torch.nn.Module | None = None,
    ) -> Self:
        """Read what :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        features : FeatureMap or torch.nn.Module, optional
            The map the memory was built with, where it holds a network, which no file restores.

        Returns
        -------
        MomentMemory
            As it was saved.

        Raises
        ------
        InputError
            Where the map is missing or another, or the file is of another class or format, or
            damaged.
        """
        head, arrays = cls._read(path)
        configuration = dict(head["configuration"])
        known = configuration.pop("features")
        if features is None:
            given = map_from_state(known, _named("given.", arrays))
        else:
            given = as_feature_map(features, configuration["seed"])
            if given.identity != known["identity"]:
                raise InputError(
                    f"{path} was written with other features ({known['identity']}, yours are "
                    f"{given.identity}); give the map it was built with."
                )
        prior = configuration.pop("prior")
        configuration["prior"] = prior if prior in NAMED else dict(prior)
        if configuration["inner_reg"] is None:
            configuration["inner_reg"] = "auto"
        return cls(features=given, **configuration)._loaded(path, head, arrays)


def _named(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {
        name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)
    }


def _as_share(inner_reg: Any) -> float | None:
    if inner_reg == "auto":
        return None
    try:
        share = float(inner_reg)
    except (TypeError, ValueError):
        share = float("nan")
    if not (np.isfinite(share) and share > 0):
        raise InputError(
            f"inner_reg={inner_reg!r} is not a positive number; give a share of the mean of ‖φ‖² "
            "such as 0.01, or 'auto'."
        )
    return share


def _as_prior(prior: Any) -> Prior:
    if str(prior) in NAMED:
        return str(prior)
    as_shares(prior, ())  # refuses what are no shares
    return {plain(label): float(share) for label, share in prior.items()}
