"""The squared-error objective of everything ever counted, as sums that need no rows.

With features φ (n×p), targets y (n×C) and weights v the loss of any linear model W is

    Σ v‖y − Wᵀφ‖² = tr WᵀAW − 2 tr WᵀB + c,    A = Σ v φφᵀ,  B = Σ v φyᵀ,  c = Σ v‖y‖²

and A, B, c and N = Σ v add up over batches, files, processes and machines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, as_weights
from bicore.errors import InputError, MemoryLimitError, NumericalError
from bicore.moments.given import (
    Prior,
    aged,
    as_columns,
    as_half_life,
    as_shares,
    plain,
    whole_count,
)
from bicore.moments.outer import Outer
from bicore.runtime.threads import wide
from bicore.state import FORMAT, damaged, read_state, write_state

#: Bytes of a float64.
NUMBER = 8
#: A class that has faded to less than this is as one that never came: its mean could not be had.
GONE = 1e-100


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows from which the loss of every linear model on them can be had.

    A value: rows and other moments are added by making another one. Sums are in float64 whatever
    the rows; order and split do not matter beyond rounding. With a half-life rows fade by those
    that follow them in ``with_rows``, and a sum is that of two streams that end at the same time.

    Parameters
    ----------
    width : int
        Features of a row, p.
    second : tuple of array (p, p)
        Σ v φφᵀ (its lower triangle), once, or for every class apart.
    cross : array (p, C)
        Σ v φyᵀ; a column a class, or a target.
    counts : array (C,) or (1,)
        Weight counted of every class; of all rows where y holds targets.
    constant : float
        Σ v‖y‖².
    classes : tuple, optional
        The labels that columns stand for, in the order they came; None for targets.
    apart : bool
        Whether second moments are kept a class apart, so that any class prior can be asked for.
    half_life : float, optional
        After so many further rows a row counts half.
    map : str
        Which feature map the rows went through: unlike ones do not add.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(50, 3)), rng.integers(0, 2, 50)
    >>> nothing = Moments.empty(3, classes=(0, 1))
    >>> whole = nothing.with_rows(x, y)
    >>> parts = nothing.with_rows(x[20:], y[20:]) + nothing.with_rows(x[:20], y[:20])
    >>> bool(np.allclose(whole.outer().second, parts.outer().second))
    True
    """

    width: int
    second: tuple[Array, ...]
    cross: Array
    counts: Array
    constant: float
    classes: tuple[Any, ...] | None
    apart: bool = False
    half_life: float | None = None
    map: str = ""

    @classmethod
    def empty(
        cls,
        width: int,
        *,
        classes: Sequence[Any] | None = (),
        targets: int = 0,
        apart: bool = False,
        half_life: float | None = None,
        map: str = "",
    ) -> Moments:
        """Moments of no rows.

        Parameters
        ----------
        width : int
            Features of a row.
        classes : sequence, optional
            Labels known beforehand; others join as they come. None: rows have targets, or nothing.
        targets : int
            How many targets a row has, with ``classes=None``.
        apart : bool
            Keep second moments a class apart.
        half_life : float, optional
            After so many further rows a row counts half.
        map : str
            Name of the feature map.

        Returns
        -------
        Moments
            To be added to.

        Raises
        ------
        InputError
            Where a parameter is out of its range.
        """
        width, targets = (
            whole_count(name, value) for name, value in (("width", width), ("targets", targets))
        )
        half_life = as_half_life(half_life)
        if apart and classes is None:
            raise InputError("apart=True keeps classes apart, and rows with targets have none.")
        known = None if classes is None else tuple(plain(label) for label in classes)
        columns = targets if known is None else len(known)
        groups = len(known) if apart and known is not None else 1
        second = tuple(_square(width) for _ in range(groups))
        counts = np.zeros(1 if known is None else len(known))
        cross = np.zeros((width, columns))
        return cls(width, second, cross, counts, 0.0, known, bool(apart), half_life, map)

    @property
    def weight(self) -> float:
        """The weight of all rows, Σ v."""
        return float(self.counts.sum())

    @staticmethod
    def room(width: int, outputs: int = 1, apart: bool = False) -> int:
        """Bytes that moments take; twice that while rows are added.

        Parameters
        ----------
        width, outputs : int
            Features, and classes or targets.
        apart : bool
            Whether classes are kept apart.

        Returns
        -------
        int
            Bytes.

        Examples
        --------
        >>> Moments.room(1024, 10)
        8470528
        """
        return NUMBER * width * (width * (outputs if apart else 1) + outputs)

    def with_rows(self, features: Any, y: Any = None, weight: Any = None) -> Moments:
        """The moments with some rows more.

        Parameters
        ----------
        features : array (n, p)
            Rows after the feature map.
        y : array (n,) or (n, C), optional
            Labels; or targets (also one-hot, soft or logits), as many as the moments were made for.
        weight : array (n,), optional
            How much each row counts; by default 1.

        Returns
        -------
        Moments
            A new value; this one is left as it is.

        Raises
        ------
        InputError
            Where rows do not fit.
        NumericalError
            Where features or targets are not finite, or too large to be summed.
        """
        rows = self._rows(features)
        if not len(rows):
            return self
        weights = np.ones(len(rows)) if weight is None else as_weights(weight, len(rows))
        faded, weights = aged(weights, self.half_life)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
            found = (self if faded == 1 else self.scaled(faded))._plus(rows, y, weights)
            found._check_sums(rows)
        return found

    def _check_sums(self, rows: Array) -> None:
        """One row too large for a sum of squares would be in it for ever."""
        sums = (self.constant, self.cross.sum(), *(one.trace() for one in self.second))
        if not np.isfinite(sums).all():
            place = int(np.abs(rows).max(1).argmax())
            raise NumericalError(
                f"with these rows the moments are not finite: row {place} has a feature of "
                f"{np.abs(rows[place]).max():.3g}; scale rows, targets or weights, or drop that "
                "one."
            )

    def _rows(self, features: Any) -> Array:
        rows = np.ascontiguousarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(
                f"features have shape {rows.shape}, and these moments are of rows of {self.width}; "
                "use the feature map they were made with."
            )
        if not np.isfinite(rows).all():
            place = int(np.flatnonzero(~np.isfinite(rows).all(1))[0])
            raise NumericalError(
                f"the features of row {place} are not finite; scale the rows, or drop that one."
            )
        return rows

    def _plus(self, rows: Array, y: Any, weights: Array) -> Moments:
        if self.classes is None:
            return self._plus_targets(rows, as_columns(y, len(rows)), weights)
        if y is None:
            raise InputError("y is missing, and these moments have classes; give labels.")
        labels = np.asarray(y).reshape(-1).tolist()
        if len(labels) != len(rows):
            raise InputError(f"y has {len(labels)} labels for {len(rows)} rows.")
        missing = [place for place, label in enumerate(labels) if label != label]
        if missing:
            raise InputError(f"y[{missing[0]}] is not a number; give every row a label.")
        wider = self.with_classes(labels)
        assert wider.classes is not None
        number = {label: place for place, label in enumerate(wider.classes)}
        return wider._plus_codes(rows, np.array([number[label] for label in labels]), weights)

    def _plus_targets(self, rows: Array, targets: Array, weights: Array) -> Moments:
        if targets.shape[1] != self.cross.shape[1]:
            raise InputError(
                f"y has {targets.shape[1]} targets a row, and these moments {self.cross.shape[1]}."
            )
        weighed = weights[:, None] * targets
        return replace(
            self,
            second=(_added(self.second[0], rows, weights),),
            cross=self.cross + rows.T @ weighed,
            counts=self.counts + weights.sum(),
            constant=self.constant + float(np.vdot(weighed, targets)),
        )

    def _plus_codes(self, rows: Array, codes: Array, weights: Array) -> Moments:
        own = np.zeros((len(rows), len(self.counts)))
        own[np.arange(len(rows)), codes] = weights
        second = list(self.second)
        groups = np.unique(codes).tolist() if self.apart else [None]
        for group in groups:
            places = slice(None) if group is None else codes == group
            place = group or 0
            second[place] = _added(second[place], rows[places], weights[places])
        return replace(
            self,
            second=tuple(second),
            cross=self.cross + rows.T @ own,
            counts=self.counts + own.sum(0),
            constant=self.constant + float(weights.sum()),
        )

    def with_classes(self, labels: Sequence[Any]) -> Moments:
        """The same moments with a column for each of these labels.

        Parameters
        ----------
        labels : sequence
            Labels; those that are known change nothing.

        Returns
        -------
        Moments
            With the unknown ones behind the others.
        """
        assert self.classes is not None
        known = set(self.classes)
        fresh = [label for label in dict.fromkeys(labels) if label not in known]
        if not fresh:
            return self
        return replace(
            self,
            classes=(*self.classes, *fresh),
            second=(*self.second, *(_square(self.width) for _ in fresh))
            if self.apart
            else self.second,
            cross=np.hstack([self.cross, np.zeros((self.width, len(fresh)))]),
            counts=np.concatenate([self.counts, np.zeros(len(fresh))]),
        )

    def scaled(self, factor: float) -> Moments:
        """Every sum times a number: how the past is forgotten.

        Parameters
        ----------
        factor : float
            Positive.

        Returns
        -------
        Moments
            A new value.
        """
        return replace(
            self,
            second=tuple(factor * one for one in self.second),
            cross=factor * self.cross,
            counts=factor * self.counts,
            constant=factor * self.constant,
        )

    def __add__(self, other: Moments) -> Moments:
        """The moments of the rows of both."""
        self._check_alike(other)
        if self.classes is None or other.classes is None:
            first, second = self, other
        else:
            first = self.with_classes(other.classes)
            second = other.with_classes(first.classes or ())._ordered(first.classes or ())
        return replace(
            first,
            second=tuple(a + b for a, b in zip(first.second, second.second, strict=True)),
            cross=first.cross + second.cross,
            counts=first.counts + second.counts,
            constant=first.constant + second.constant,
        )

    def _check_alike(self, other: Moments) -> None:
        if not hasattr(other, "counts"):
            raise InputError(f"{other!r} is a {type(other).__name__}; moments add to moments.")
        for name in ("map", "width", "apart", "half_life"):
            own, others = getattr(self, name), getattr(other, name)
            if own != others:
                raise InputError(
                    f"these moments have {name}={own!r} and the others {others!r}; only moments "
                    "under one feature map and of one kind add."
                )
        if (self.classes is None) != (other.classes is None):
            raise InputError("some of these moments are of classes and some of targets.")
        if self.classes is None and self.cross.shape != other.cross.shape:
            raise InputError(
                f"these moments have {self.cross.shape[1]} targets and the others "
                f"{other.cross.shape[1]}."
            )

    def _ordered(self, classes: Sequence[Any]) -> Moments:
        """The same with classes in another order."""
        assert self.classes is not None
        places = [self.classes.index(label) for label in classes]
        return replace(
            self,
            classes=tuple(classes),
            second=tuple(self.second[place] for place in places) if self.apart else self.second,
            cross=self.cross[:, places],
            counts=self.counts[places],
        )

    def outer(self, prior: Prior = "stream") -> Outer:
        """The mean loss over all rows, or over classes in other shares.

        Parameters
        ----------
        prior : {"stream", "equal"} or mapping
            Rows count as they came; classes count the same; or shares by label. Other than
            "stream" needs ``apart``.

        Returns
        -------
        Outer
            The objective.

        Raises
        ------
        InputError
            Where nothing was counted, or the prior cannot be had.
        """
        if not self.weight > 0:
            raise InputError("these moments have counted no rows yet.")
        if prior == "stream":
            second = self.second[0] if len(self.second) == 1 else _sum(self.second)
            share = 1.0 / self.weight
            return Outer(second, share * self.cross, share * self.constant, share)
        shares = self.shares(prior)
        each = np.divide(shares, self.counts, out=np.zeros_like(shares), where=self.counts > GONE)
        second = _square(self.width)
        for factor, own in zip(each, self.second, strict=True):
            if factor:
                second += factor * own
        return Outer(second, self.cross * each, float(each @ self.counts))

    def shares(self, prior: Prior = "stream") -> Array:
        """How much each class counts; those that never came, or have faded away, do not.

        Parameters
        ----------
        prior : {"stream", "equal"} or mapping
            As :meth:`outer` has it.

        Returns
        -------
        array (C,)
            Their sum is 1.

        Raises
        ------
        InputError
            Where there are no classes, or the prior cannot be had.
        """
        if prior == "stream" and self.classes is not None:
            return np.asarray(self.counts / self.weight)
        if not self.apart or self.classes is None:
            raise InputError(
                f"prior={prior!r} needs moments of classes kept apart; make them with apart=True."
            )
        present = self.counts > GONE
        shares = as_shares(prior, self.classes) * present
        if not shares.sum() > 0:
            seen = ", ".join(
                repr(label) for label, there in zip(self.classes, present, strict=True) if there
            )
            raise InputError(
                f"prior={prior!r} gives no class that was counted a positive share; counted "
                f"so far: {seen}. Name one of these, or begin with a class that has a share."
            )
        return np.asarray(shares / shares.sum())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the moments to an ``.npz`` without pickle, beside and renamed.

        Parameters
        ----------
        path : path
            Where to.

        Returns
        -------
        Path
            The file.
        """
        values, arrays = self.stored()
        return write_state(path, {"format": FORMAT, "moments": values}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Moments:
        """Read what :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.

        Returns
        -------
        Moments
            As they were saved.

        Raises
        ------
        InputError
            Where the file is of another kind, or damaged.
        """
        head, arrays = read_state(path, "Moments.save")
        try:
            return cls.restored(head["moments"], arrays)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(path, "Moments.save", repr(error)) from error

    def stored(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a state file holds of the moments.

        Returns
        -------
        values : dict
            What JSON can hold.
        arrays : dict
            The rest.
        """
        values = {
            "width": self.width,
            "constant": self.constant,
            "classes": None if self.classes is None else list(self.classes),
            "apart": self.apart,
            "half_life": self.half_life,
            "map": self.map,
            "groups": len(self.second),
        }
        arrays = {f"second{place}": one for place, one in enumerate(self.second)}
        return values, {**arrays, "cross": self.cross, "counts": self.counts}

    @classmethod
    def restored(cls, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Moments:
        """The inverse of :meth:`stored`.

        Parameters
        ----------
        values, arrays : mapping
            As that gave them.

        Returns
        -------
        Moments
            The same.
        """
        width = int(values["width"])
        second = tuple(
            np.asfortranarray(arrays[f"second{place}"]) for place in range(values["groups"])
        )
        if any(one.shape != (width, width) for one in second):
            raise ValueError("second moments of another width")
        classes = values["classes"]
        return cls(
            width,
            second,
            arrays["cross"],
            arrays["counts"],
            float(values["constant"]),
            None if classes is None else tuple(classes),
            bool(values["apart"]),
            values["half_life"],
            str(values["map"]),
        )


def check_room(width: int, outputs: int, apart: bool, limit: int) -> None:
    """Refuse moments beyond a memory limit, with the width that fits."""
    needed = 2 * Moments.room(width, outputs, apart)
    if needed > limit:
        groups = outputs if apart else 1
        # groups·p² + outputs·p numbers, twice
        room = limit / (2 * NUMBER)
        fits = int(((outputs**2 + 4 * groups * room) ** 0.5 - outputs) / (2 * groups))
        raise MemoryLimitError(
            f"moments of {width} features need {needed / 1e6:.0f} MB, twice {groups} × {width}² "
            f"numbers, and the limit is {limit / 1e6:.0f} MB; take at most {fits} features, such "
            f"as features='relu:{fits}', or raise the limit."
        )


def _square(width: int) -> Array:
    return np.zeros((width, width), order="F")


def _sum(parts: Sequence[Array]) -> Array:
    total = parts[0].copy(order="F")
    for one in parts[1:]:
        total += one
    return total


def _added(second: Array, rows: Array, weights: Array) -> Array:
    """Second moments with some rows more; the lower triangle is what counts."""
    from scipy.linalg import blas  # not before it is needed: importing it takes time

    scaled = rows if (weights == 1).all() else np.sqrt(weights)[:, None] * rows
    with wide(float(len(rows)) * second.size / 2):
        result: Array = blas.dsyrk(
            1.0, scaled.T, beta=1.0, c=second.copy(order="F"), lower=1, overwrite_c=1
        )
    return result
