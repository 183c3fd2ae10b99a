"""The squared-error objective of all rows seen, as sums.

With features φ (n×p), targets y (n×C) and weights v the loss of any linear model W is

    Σ v‖y − Wᵀφ‖² = tr WᵀAW − 2 tr WᵀB + c,    A = Σ v φφᵀ,  B = Σ v φyᵀ,  c = Σ v‖y‖²

and A, B, c and N = Σ v add up over batches, files, processes and machines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore._deprecated import renamed_methods
from bicore.arguments import Relative, as_relative
from bicore.data import Array, as_weights
from bicore.errors import (
    InputError,
    MemoryLimitError,
    NumericalError,
    check_integer,
    check_number,
    check_type,
)
from bicore.files import FORMAT, read_state, refuse_damage, write_state
from bicore.numerics.linear_algebra import symmetric_product
from bicore.runtime.threads import all_threads

#: A class prior: by frequency, equal, or shares by label.
Prior = str | Mapping[Any, float]

#: The default ρ: the best of 0.001 to 1 on streams of digits, satellite images and embeddings,
#: which are not used in results.
DEFAULT_REG = Relative(0.1)
#: Values of prior= in version 0.2.
OLD_PRIORS = {"prior": {"stream": "data"}}
#: Maximum number of classes named in an error.
MOST_NAMED = 10
#: Bytes of a float64.
NUMBER = 8
#: One row in this many is held out to choose the regularisation of a head.
HELD_OUT = 10
#: An odd constant whose multiples are evenly distributed (golden ratio).
MIXER = 0x9E3779B97F4A7C15
#: Differences of sums below this share of the sum are rounding errors.
ROUNDING = 1e-11
#: Rows of second moments updated at a time on a device.
STRIP = 1024
#: A class whose weight has decayed below this counts as absent.
GONE = 1e-100
#: Numbers from which the sum of squares of many rows could overflow.
TOO_LARGE = 1e140
#: Fields that a state file holds as they are.
_VALUES = ("width", "constant", "apart", "half_life", "map")


@dataclass(frozen=True, eq=False)
class Outer:
    """A squared-error objective of linear models, from sums under a class prior."""

    second: Array
    cross: Array
    constant: float
    share: float = 1.0
    #: The weight of each class; None for targets.
    shares: Array | None = None

    @property
    def energy(self) -> float:
        """The mean of ‖φ‖²."""
        return self.share * float(np.trace(self.second))

    def rho(self, inner_reg: float | Relative) -> float:
        """Return the regulariser ρ: the number given, or a share of the mean of ‖φ‖²."""
        return inner_reg.rho(self.energy) if isinstance(inner_reg, Relative) else inner_reg

    def means(self, intercept: float | None) -> tuple[Array, Array]:
        """Return the means of features and outputs.

        They follow from the shares of classes, or from the last feature if that is constant;
        otherwise they are unknown, and 0.
        """
        if self.shares is not None:  # the labels of a row sum to 1, and so B to the features
            return self.cross.sum(1), self.shares
        if intercept is None:
            return np.zeros(len(self.cross)), np.zeros(self.cross.shape[1])
        # The last row of a lower triangle is complete.
        last = np.asarray(torch.as_tensor(self.second[-1]).cpu())
        return self.share * last / intercept, self.cross[-1] / intercept

    def centre(self, intercept: float | None) -> tuple[Outer, Array]:
        """Return the objective for centred outputs, and their means."""
        features, outputs = self.means(intercept)
        cross = self.cross - np.multiply.outer(features, outputs)
        constant = self.constant - float(outputs @ outputs)
        return replace(self, cross=cross, constant=constant), outputs

    def multiply(self, features: Array) -> Array:
        """Multiply features by A."""
        product: Array = symmetric_product(self.second, features.T, self.share)
        return product.T

    def loss(self, model: Array) -> float:
        """Compute the mean loss of a linear model over all counted rows."""
        quadratic = float(np.vdot(self.multiply(np.ascontiguousarray(model.T)).T, model))
        return quadratic - 2.0 * float(np.vdot(model, self.cross)) + self.constant


@renamed_methods(scaled="scale_by", restricted="select_features")
@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows, from which the loss of every linear model follows.

    Moments are immutable: adding rows or other moments returns new ones. Sums are in float64 for
    rows of any precision; the order and the split of rows change them by rounding only. With a
    half-life, the weight of a row decays with every row that ``with_rows`` adds after it, and the
    sum of two moments is that of two streams that end at the same time.
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
        device: Any = None,
    ) -> Moments:
        """Return moments of no rows."""
        width = check_integer("width", width, 0)
        columns = check_integer("targets", targets, 0)
        if apart and classes is None:
            raise InputError(
                "apart=True needs class labels, and y holds numeric targets; leave it out."
            )
        known = None if classes is None else tuple(as_python_value(label) for label in classes)
        if known is not None:
            columns = len(known)
        groups = columns if apart else 1
        counts = np.zeros(1 if known is None else columns)
        return cls(
            width,
            tuple(_zeros(width, device) for _ in range(groups)),
            np.zeros((width, columns)),
            counts,
            0.0,
            known,
            bool(apart),
            as_half_life(half_life),
            map,
        )

    @property
    def _on_device(self) -> bool:
        return any(map(torch.is_tensor, self.second))

    @property
    def weight(self) -> float:
        """The weight of all rows, Σ v."""
        return float(self.counts.sum())

    @staticmethod
    def room(width: int, outputs: int = 1, apart: bool = False) -> int:
        """Return the bytes that moments take; adding rows takes twice as many."""
        return NUMBER * width * (width * (outputs if apart else 1) + outputs)

    def with_rows(self, features: Any, y: Any = None, sample_weight: Any = None) -> Moments:
        """Add rows."""
        rows = self._check_rows(features)
        if not len(rows):
            return self
        weights = as_weights(sample_weight, len(rows))
        return self.with_weighted(rows, y, *decay_weights(weights, self.half_life))

    def with_weighted(self, rows: Any, y: Any, faded: float, weights: Array) -> Moments:
        """Multiply every sum by a factor, then add rows whose weights have decayed already."""
        with np.errstate(over="ignore", invalid="ignore"):  # sums that overflow are refused
            found = (self if faded == 1 else self.scale_by(faded))._plus(rows, y, weights)
            traces = (float(one.trace()) for one in found.second)
            sums = (found.constant, found.cross.sum(), *traces)
        if not np.isfinite(sums).all():
            largest = abs(rows).max(1)
            largest = np.asarray(largest.values.cpu() if torch.is_tensor(rows) else largest)
            place = int(largest.argmax())
            raise NumericalError(
                f"with these rows the sums are not finite (row {place} has a feature of "
                f"{largest[place]:.3g}); scale rows, targets or weights, or drop that row."
            )
        return found

    def _check_rows(self, features: Any) -> Any:
        rows = features
        if not torch.is_tensor(features) or not (features.is_cuda or self._on_device):
            rows = np.ascontiguousarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(
                f"features must have {self.width} columns, like the rows of these moments; got "
                f"shape {tuple(rows.shape)}. Use the same feature map."
            )
        finite = torch.isfinite(rows).all(1) if torch.is_tensor(rows) else np.isfinite(rows).all(1)
        if not finite.all():
            place = finite.tolist().index(False)
            raise NumericalError(
                f"the features of row {place} are not finite; scale the rows, or drop that row."
            )
        return rows

    def _plus(self, rows: Any, y: Any, weights: Array) -> Moments:
        """Add Σ v φφᵀ, Σ v φyᵀ, Σ v and Σ v‖y‖² of rows."""
        codes = None
        known = self
        if self.classes is None:
            outputs = as_columns(y, len(rows))
            if outputs.shape[1] != self.cross.shape[1]:
                raise InputError(
                    f"y must have {self.cross.shape[1]} targets per row, like these moments; got "
                    f"{outputs.shape[1]}."
                )
        else:
            known, codes = self._encode(y, len(rows))
            outputs = np.zeros((len(rows), len(known.counts)))
            outputs[np.arange(len(rows)), codes] = 1.0
        weighed = weights[:, None] * outputs
        second = list(known.second)
        if codes is None or not self.apart:
            second[0] = _add_squares(second[0], rows, weights)
        else:
            for code in np.unique(codes).tolist():
                own = np.flatnonzero(codes == code)
                second[code] = _add_squares(second[code], rows[own], weights[own])
        return replace(
            known,
            second=tuple(second),
            cross=known.cross + _multiply(rows, weighed),
            counts=known.counts + (weights.sum() if codes is None else weighed.sum(0)),
            constant=known.constant + float(np.vdot(weighed, outputs)),
        )

    def _encode(self, y: Any, count: int) -> tuple[Moments, Array]:
        """Return moments that have the classes of these labels, and each label's column."""
        if y is None:
            raise InputError("y is missing, and these moments have classes; give labels.")
        labels = np.asarray(y).reshape(-1)
        if len(labels) != count:
            raise InputError(f"y has {len(labels)} labels for {count} rows.")
        missing = np.flatnonzero(labels != labels)
        if len(missing):
            raise InputError(f"y[{missing[0]}] is not a number; give every row a label.")
        names = np.unique(labels)
        classes = tuple(dict.fromkeys((*(self.classes or ()), *names.tolist())))
        columns = np.array([classes.index(label) for label in names.tolist()])
        return self.with_classes(classes), columns[np.searchsorted(names, labels)]

    def with_classes(self, classes: Sequence[Any]) -> Moments:
        """Return the same with these classes in this order; those added have no rows."""
        if classes == self.classes:
            return self
        own = {label: place for place, label in enumerate(self.classes or ())}
        places = [own.get(label, -1) for label in classes]  # the last column is added below
        second = self.second
        if self.apart:
            device = second[0].device if self._on_device else None
            found = (_zeros(self.width, device) if k < 0 else second[k] for k in places)
            second = tuple(found)
        return replace(
            self,
            classes=tuple(classes),
            second=second,
            cross=np.column_stack([self.cross, np.zeros(self.width)])[:, places],
            counts=np.append(self.counts, 0.0)[places],
        )

    def scale_by(self, factor: float) -> Moments:
        """Multiply every sum by a number, for forgetting."""
        return replace(
            self,
            second=tuple(factor * one for one in self.second),
            cross=factor * self.cross,
            counts=factor * self.counts,
            constant=factor * self.constant,
        )

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the rows of both."""
        self._check_alike(other)
        first, second = self, other
        if self.classes is not None and other.classes is not None:
            classes = tuple(dict.fromkeys((*self.classes, *other.classes)))
            first, second = self.with_classes(classes), other.with_classes(classes)
        return replace(
            first,
            second=tuple(a + b for a, b in zip(first.second, second.second, strict=True)),
            cross=first.cross + second.cross,
            counts=first.counts + second.counts,
            constant=first.constant + second.constant,
        )

    def __sub__(self, other: Moments) -> Moments:
        """Return the moments without those of some rows."""
        return self + other.scale_by(-1.0)

    def without_rows(self, features: Any, y: Any = None, sample_weight: Any = None) -> Moments:
        """Subtract counted rows, as if they had never been added."""
        if self.half_life is not None:
            raise InputError(
                f"rows cannot be subtracted with half_life={self.half_life}, because their current "
                "weight is not known; wait until it is negligible."
            )
        empty = self.scale_by(0.0)
        less = empty.with_rows(features, y, sample_weight)
        if less.classes != self.classes:
            unknown = (less.classes or ())[len(self.classes or ()) :]
            raise InputError(f"y holds {unknown[0]!r}, a label that was never counted.")
        found = self - less
        tolerance = ROUNDING * max(1.0, self.weight)
        if (found.counts < -tolerance).any() or found.constant < -ROUNDING * self.constant:
            raise InputError("more rows are subtracted than were counted; check rows and labels.")
        for before, after in zip(self.second, found.second, strict=True):
            if not _is_semidefinite(after, ROUNDING * float(before.trace())):
                raise InputError(
                    "some of these rows were never counted, or had other weights; give the rows "
                    "and weights that were added."
                )
        gone = found.counts <= tolerance
        return replace(found, counts=np.where(gone, 0.0, found.counts))

    def without_class(self, label: Any) -> Moments:
        """Remove a class and all its rows."""
        classes = self.classes or ()
        if as_python_value(label) not in classes:
            raise InputError(f"label={label!r} was never counted; the labels are {list(classes)}.")
        if not self.apart:
            raise InputError(
                "a class can only be removed from second moments for each class (apart=True, or "
                "per_class=True of a memory); give its rows to forget instead."
            )
        left = self.with_classes([one for one in classes if one != as_python_value(label)])
        return replace(left, constant=float(left.counts.sum()))

    def select_features(self, features: Array) -> Moments:
        """Return the moments of some of the features."""
        return replace(
            self,
            width=len(features),
            second=tuple(one[features][:, features] for one in self.second),
            cross=self.cross[features],
        )

    def on_host(self) -> Moments:
        """Return the moments with second moments as NumPy arrays."""
        if not self._on_device:
            return self
        return replace(
            self, second=tuple(np.asfortranarray(torch.as_tensor(one).cpu()) for one in self.second)
        )

    def _check_alike(self, other: Moments) -> None:
        check_type("other", other, Moments, "moments")
        for name in ("map", "width", "apart", "half_life"):
            own, others = getattr(self, name), getattr(other, name)
            if own != others:
                raise InputError(
                    f"these moments have {name}={own!r} and the others {others!r}; only moments "
                    "of the same feature map and kind can be added."
                )
        if (self.classes is None) != (other.classes is None):
            raise InputError("moments of class labels and of numeric targets cannot be added.")
        if self.classes is None and self.cross.shape != other.cross.shape:
            raise InputError(
                f"these moments have {self.cross.shape[1]} targets and the others "
                f"{other.cross.shape[1]}."
            )

    def outer(self, prior: Prior = "data") -> Outer:
        """Return the mean loss over all rows, or with other class weights."""
        if not self.weight > 0:
            raise InputError("these moments have no rows; add rows first.")
        if prior == "data":
            share, second = 1.0 / self.weight, reduce(add, self.second)
            counted = None if self.classes is None else self.shares()
            return Outer(second, share * self.cross, share * self.constant, share, counted)
        shares = self.shares(prior)
        each = np.divide(shares, self.counts, out=np.zeros_like(shares), where=self.counts > GONE)
        second = _zeros(self.width, self.second[0].device if self._on_device else None)
        for factor, own in zip(each, self.second, strict=True):
            if factor:
                second += factor * own
        return Outer(second, self.cross * each, float(each @ self.counts), shares=shares)

    def shares(self, prior: Prior = "data", *, pooled: bool = False) -> Array:
        """Return the weight of each class; 0 for classes without remaining rows."""
        if prior == "data" and self.classes is not None:
            return np.asarray(self.counts / self.weight)
        if self.classes is None:
            raise InputError(f"prior={prior!r} needs class labels; use prior='data' for targets.")
        if not (self.apart or pooled):
            raise InputError(
                f"prior={prior!r} needs second moments for each class; make them with apart=True."
            )
        present = self.counts > GONE
        shares = as_shares(prior, self.classes) * present
        if not shares.sum() > 0:
            seen = [self.classes[place] for place in np.flatnonzero(present)]
            raise InputError(
                f"prior={prior!r} must give a class of {seen} (counted so far) a share above 0."
            )
        return np.asarray(shares / shares.sum())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the moments to an ``.npz`` without pickle; the file is complete or absent."""
        values, arrays = self.to_state()
        return write_state(path, {"format": FORMAT, "moments": values}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Moments:
        """Read a file written by :meth:`save`; never unpickles."""
        head, arrays = read_state(path, "Moments.save")
        with refuse_damage(path, "Moments.save"):
            return cls.from_state(head["moments"], arrays)

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the content of a state file."""
        values = {name: getattr(self, name) for name in _VALUES}
        values["classes"] = None if self.classes is None else list(self.classes)
        values["groups"] = len(self.second)
        second = self.on_host().second
        arrays = {f"second{place}": _pack(one) for place, one in enumerate(second)}
        return values, {**arrays, "cross": self.cross, "counts": self.counts}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Moments:
        """Rebuild moments from the content of a state file."""
        width = int(values["width"])
        packed = [arrays[f"second{place}"] for place in range(values["groups"])]
        second = tuple(_unpack(one, width) for one in packed)
        classes = None if values["classes"] is None else tuple(values["classes"])
        own = {name: values[name] for name in _VALUES}
        own["constant"] = float(own["constant"])
        cross, counts = arrays["cross"], arrays["counts"]
        return cls(second=second, cross=cross, counts=counts, classes=classes, **own)


@dataclass(frozen=True, eq=False)
class RunningMoments:
    """Moments of a stream, updated ``block`` rows at a time.

    Every update copies the p² sums; a block of rows needs one copy.
    """

    moments: Moments
    block: int = 1
    waiting: tuple[tuple[Any, Any, Array], ...] = ()
    #: Pending decay factor of the moments.
    factor: float = 1.0

    def add(self, rows: Any, y: Any, faded: float, weights: Array) -> RunningMoments:
        """Add finite rows, and multiply everything before them by a factor."""
        numbers = [rows, y] if self.moments.classes is None and y is not None else [rows]
        if self.block > 1 and len(rows) and max(float(abs(a).max()) for a in numbers) > TOO_LARGE:
            raise NumericalError("features or targets are too large to be summed; scale the rows.")
        earlier = tuple((one, goals, faded * counted) for one, goals, counted in self.waiting)
        found = replace(
            self,
            waiting=(*earlier, (rows, y, weights)) if len(rows) else earlier,
            factor=faded * self.factor,
        )
        full = sum(len(one) for one, _, _ in found.waiting) >= self.block
        return found.fold() if full else found

    def fold(self) -> RunningMoments:
        """Add the buffered rows."""
        if not self.waiting:
            whole = self.moments if self.factor == 1 else self.moments.scale_by(self.factor)
        else:
            rows, y, weights = zip(*self.waiting, strict=True)
            joined = torch.cat(rows) if torch.is_tensor(rows[0]) else np.concatenate(rows)
            goals = None if y[0] is None else np.concatenate(y)
            counted = np.concatenate(weights)
            whole = self.moments.with_weighted(joined, goals, self.factor, counted)
        return RunningMoments(whole, self.block)


def check_room(width: int, outputs: int, apart: bool, limit: int) -> None:
    """Refuse moments beyond a memory limit, with the width that fits."""
    needed = 2 * Moments.room(width, outputs, apart)
    if needed > limit:
        groups = outputs if apart else 1
        numbers = limit / (2 * NUMBER)  # groups·p² + outputs·p numbers fit
        fits = int(((outputs**2 + 4 * groups * numbers) ** 0.5 - outputs) / (2 * groups))
        raise MemoryLimitError(
            f"moments of {width} features need {needed / 1e6:.0f} MB, and the limit is "
            f"{limit / 1e6:.0f} MB; take at most {fits} features, such as "
            f"feature_map='relu:{fits}', or raise the limit."
        )


def decay_weights(weights: Array, half_life: float | None) -> tuple[float, Array]:
    """Return the factor of earlier rows after these rows, and the weights of these rows."""
    if half_life is None:
        return 1.0, weights
    ages = np.arange(len(weights) - 1, -1, -1)
    return 2.0 ** (-len(weights) / half_life), weights * 2.0 ** (-ages / half_life)


def as_prior(prior: Any) -> Prior:
    """Check a prior; return shares by labels of Python."""
    if str(prior) in ("data", "equal"):
        return str(prior)
    as_shares(prior, ())  # refuses invalid shares
    return {as_python_value(label): float(share) for label, share in prior.items()}


def as_shares(prior: Prior, classes: Sequence[Any]) -> Array:
    """Return the weight of each class under a prior; refuse shares that are not numbers ≥ 0."""
    if str(prior) == "equal":
        return np.ones(len(classes))
    try:
        given = {as_python_value(label): float(share) for label, share in prior.items()}  # type: ignore[union-attr]
    except (AttributeError, TypeError, ValueError):
        raise InputError(
            f"prior={prior!r} is not known; use 'data', 'equal' or a share per label, such as "
            "{'cat': 0.3, 'dog': 0.7}."
        ) from None
    shares = np.array(list(given.values()))
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise InputError(f"prior={prior!r} must hold shares >= 0 with a sum above 0.")
    # Labels of the command are text.
    by_text = {str(label): share for label, share in given.items()}
    return np.array([given.get(label, by_text.get(label, 0.0)) for label in classes])


def refuse_bad_shares(prior: Prior, shares: Array, classes: Sequence[Any]) -> None:
    """Refuse unknown classes, and a single one of several: its centred labels would be zero."""
    known = f"the classes are {', '.join(map(repr, classes[:MOST_NAMED]))}"
    known += ", …" * (len(classes) > MOST_NAMED)
    labels = [] if isinstance(prior, str) else list(prior)
    unknown = [one for one in labels if one not in classes and str(one) not in classes]
    if unknown:
        raise InputError(f"prior: {unknown[0]!r} is not a class of y; {known}.")
    if np.count_nonzero(shares) < min(2, len(classes)):
        wrong = f"prior={prior!r} must give at least two classes of y a share above 0"
        raise InputError(f"{wrong}; {known}.")


def as_inner_reg(value: Any) -> float | Relative:
    """Check a regulariser: a number above 0, a share of the mean of ‖φ‖², or "auto"."""
    value = DEFAULT_REG if value == "auto" else as_relative(value)
    if isinstance(value, Relative):
        return value
    return check_number("inner_reg", value, above=0, fix="'relative:0.01' or 'auto'")


def as_half_life(value: Any) -> float | None:
    """Check a half-life: a number of rows above 0, or None."""
    return None if value is None else check_number("half_life", value, above=0)


def as_python_value(value: Any) -> Any:
    """Return a label as a Python value, which a state file can hold."""
    return value.item() if hasattr(value, "item") else value


def as_columns(y: Any, count: int) -> Array:
    """Return the targets of rows as a matrix; without columns if y is None."""
    targets = np.zeros((count, 0)) if y is None else np.asarray(y, dtype=np.float64)
    if targets.ndim == 0 or len(targets) != count:
        raise InputError(f"y has shape {targets.shape} for {count} rows.")
    targets = targets.reshape(count, -1)
    bad = np.flatnonzero(~np.isfinite(targets).all(1))
    if len(bad):
        raise NumericalError(f"the targets of row {bad[0]} are not finite; drop that row.")
    return targets


def hold_out(x: Array, every: int = HELD_OUT) -> Array:
    """Choose a tenth (or another share) of the rows by a hash of their numbers.

    Positions cannot decide: a row that is subtracted later must be in the part to which it was
    added, and equal rows must be in one part.
    """
    with np.errstate(over="ignore"):  # numbers beyond float32 share a hash
        rows = np.ascontiguousarray(x.reshape(len(x), -1), dtype=np.float32)
    rows = rows + np.float32(0)  # turns −0 into 0
    keys = (np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * np.uint64(MIXER)) | np.uint64(1)
    mixed = rows.view(np.uint32).astype(np.uint64) @ keys
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(MIXER)
    return np.asarray((mixed >> np.uint64(33)) % np.uint64(every) == 0)


def _zeros(width: int, device: Any = None) -> Any:
    if device is None:
        return np.zeros((width, width), order="F")
    return torch.zeros(width, width, dtype=torch.float64, device=device)


def _pack(second: Array) -> Array:
    """Return the lower triangle, column after column: half of the numbers."""
    from scipy.linalg import lapack  # imported late: it takes time

    packed: Array = lapack.dtrttp(second, uplo="L")[0] if second.size else second
    return packed


def _unpack(packed: Array, width: int) -> Array:
    """Invert :func:`_pack`; version 0.2 stored both triangles."""
    from scipy.linalg import lapack

    if packed.shape == (width, width):
        return np.asfortranarray(packed)
    if packed.shape != (width * (width + 1) // 2,):
        raise ValueError("second moments of a different width")
    return np.asfortranarray(np.tril(lapack.dtpttr(width, packed, uplo="L")[0]))


def _multiply(rows: Any, outputs: Array) -> Array:
    """Compute ΦᵀY, on the device of the rows."""
    if torch.is_tensor(rows):
        moved = torch.as_tensor(outputs, device=rows.device)
        return np.asarray((rows.T.double() @ moved).cpu())
    return np.asarray(rows.T @ outputs)


def _add_squares(second: Any, rows: Any, weights: Array) -> Any:
    """Add Σ v φφᵀ of rows to second moments; only the lower triangle counts."""
    if torch.is_tensor(second):
        return _add_on_device(second, rows, weights)
    if torch.is_tensor(rows):
        weighed = rows.double() * torch.as_tensor(weights, device=rows.device)[:, None]
        return np.asfortranarray(second + (weighed.T @ rows.double()).cpu().numpy())
    from scipy.linalg import blas  # imported late: it takes time

    scaled = rows if (weights == 1).all() else np.sqrt(weights)[:, None] * rows
    with all_threads(float(len(rows)) * second.size / 2):
        result: Array = blas.dsyrk(
            1.0, scaled.T, beta=1.0, c=second.copy(order="F"), lower=1, overwrite_c=1
        )
    return result


def _add_on_device(second: Any, rows: Any, weights: Array) -> Any:
    """Add strips of the lower triangle, in float64 for rows of any precision."""
    exact = rows.to(second)
    weighed = exact * torch.as_tensor(weights, device=exact.device)[:, None]
    found = second.clone()
    for top in range(0, len(second), STRIP):
        strip = slice(top, top + STRIP)
        found[strip, : top + STRIP].addmm_(weighed[:, strip].T, exact[:, : top + STRIP])
    return found


def _is_semidefinite(second: Any, tolerance: float) -> bool:
    """Whether no eigenvalue is below −tolerance; only the lower triangle is read."""
    system = torch.tril(torch.as_tensor(second))
    system.diagonal().add_(tolerance or 1.0)
    return int(torch.linalg.cholesky_ex(system)[1]) == 0
