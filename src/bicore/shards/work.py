"""What is done to a part of a source: counted into moments, or scored. Both can be sent elsewhere.

Called with a source and a part, work reads the rows and looks at them on the host, in blocks that
fit a processor's cache; ``on`` looks at rows that lie on a device already. Products of scores are
in float32, sums and the features of found rows in float64: engines agree to the last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels.scaling import unit_rows
from bicore.moments.features import FeatureMap
from bicore.moments.features.checked import in_full_precision
from bicore.moments.moments import Moments
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources.checking import checked

#: Numbers of a block on the host, 4 MB of float32: smaller ones cost more calls than they save.
BLOCK = 2**20
#: Numbers of a block on a device: 256 MB of float32, enough to keep a card busy.
DEVICE_BLOCK = 2**26
#: Squared lengths outside of these may have lost digits in float32.
LEAST_SQUARE, MOST_SQUARE = 1e-30, 1e30

T = TypeVar("T", covariant=True)


@dataclass(eq=False)
class Held:
    """The rows of a part on a device.

    Parameters
    ----------
    part : Part
        Which rows.
    x : Tensor
        Features as they are stored.
    y : array, optional
        Labels or targets, on the host.
    weight : Tensor, optional
        How much each row counts.
    bad : int
        Rows that were set aside.

    Examples
    --------
    >>> held = Held(Part(0, 0, 2), torch.zeros(2, 3), np.array([5, 7]))
    >>> held.codes(np.array([5, 7])).tolist()
    [0, 1]
    """

    part: Part
    x: Tensor
    y: Array | None = None
    weight: Tensor | None = None
    bad: int = 0

    def __post_init__(self) -> None:
        self._codes: Tensor | None = None
        self._classes: Array | None = None

    def codes(self, classes: Array) -> Tensor:
        """Places of the labels among the classes, kept for the next pass.

        Parameters
        ----------
        classes : array
            All labels, in order.

        Returns
        -------
        Tensor
            On the device.
        """
        if self._codes is None or self._classes is not classes:
            self._codes = torch.as_tensor(codes_of(self.y, classes), device=self.x.device)
            self._classes = classes
        return self._codes

    def targets(self) -> Tensor:
        """Targets of rows in float64.

        Returns
        -------
        Tensor (n, C)
            On the device.
        """
        y = np.asarray(self.y, dtype=np.float64).reshape(len(self.x), -1)
        return torch.as_tensor(y, device=self.x.device)


class DeviceWork(Protocol, Generic[T]):
    """Work that has a form for rows on a device."""

    def chunk(self, source: ShardSource, part: Part) -> tuple[Chunk, int]:
        """The rows as this work wants them, and how many were set aside.

        Parameters
        ----------
        source : ShardSource
            The rows.
        part : Part
            Which of them.

        Returns
        -------
        tuple of Chunk and int
            On the host.
        """

    def on(self, held: Held) -> T:
        """What a call with the source and the part would give.

        Parameters
        ----------
        held : Held
            The rows.

        Returns
        -------
        object
            On the host.
        """


@dataclass(frozen=True, eq=False)
class Counted:
    """The moments of a part, and what else is known once all rows were seen."""

    moments: Moments
    rows: int
    #: Rows left out for values that are not finite.
    bad: int
    #: The largest ‖φ‖².
    longest: float


@dataclass(frozen=True, eq=False)
class Counting:
    """Moments of a part."""

    map: FeatureMap
    empty: Moments
    skip_bad: bool = False

    def chunk(self, source: ShardSource, part: Part) -> tuple[Chunk, int]:
        return checked(source.read(part), part, self.skip_bad)

    def __call__(self, source: ShardSource, part: Part) -> Counted:
        chunk, bad = self.chunk(source, part)
        moments, longest = self.empty, 0.0
        for rows in _slices(len(chunk), _row_size(chunk.x), BLOCK):
            exact = exact_features(chunk.x[rows], self.map)
            weight = None if chunk.weight is None else chunk.weight[rows]
            if weight is None or np.any(weight > 0):
                y = None if chunk.y is None else chunk.y[rows]
                moments = moments.with_rows(exact, y, weight)
            longest = max(longest, float(np.einsum("ij,ij->i", exact, exact).max()))
        return Counted(moments, len(chunk), bad, longest)

    def on(self, held: Held) -> Counted:
        """The same sums as products on a device, in float64.

        Parameters
        ----------
        held : Held
            The rows.

        Returns
        -------
        Counted
            On the host.
        """
        labels = None if self.empty.classes is None else np.unique(np.asarray(held.y))
        known = self.empty if labels is None else self.empty.with_classes(labels.tolist())
        sums = _Sums(known, held, labels)
        longest = 0.0
        for rows in _slices(len(held.x), _row_size(held.x), DEVICE_BLOCK):
            features = _exact(held.x[rows], self.map)
            sums.add(rows, features)
            longest = max(longest, float((features * features).sum(1).max()))
        return Counted(sums.moments(), len(held.x), held.bad, longest)


class _Sums:
    """Σ v φφᵀ, Σ v φyᵀ, Σ v and Σ v‖y‖² of rows on a device."""

    def __init__(self, known: Moments, held: Held, labels: Array | None) -> None:
        self.known = known
        device, width = held.x.device, known.width
        count = len(held.x)
        self.weight = (
            torch.ones(count, dtype=torch.float64, device=device)
            if held.weight is None
            else held.weight.double()
        )
        self.codes = self.targets = None
        if labels is None:
            self.targets = held.targets()
        else:
            assert known.classes is not None
            place = {label: number for number, label in enumerate(known.classes)}
            order = torch.tensor([place[label] for label in labels.tolist()], device=device)
            self.codes = order[held.codes(labels)]
        self.outputs = known.cross.shape[1]
        self.second = [
            torch.zeros(width, width, dtype=torch.float64, device=device) for _ in known.second
        ]
        self.cross = torch.zeros(width, self.outputs, dtype=torch.float64, device=device)

    def add(self, rows: slice, features: Tensor) -> None:
        weight = self.weight[rows]
        weighed = features * weight[:, None]
        if self.known.apart and self.codes is not None:
            codes = self.codes[rows]
            for code in np.unique(codes.cpu().numpy()).tolist():
                own = codes == code
                self.second[code] += weighed[own].T @ features[own]
        else:
            self.second[0] += weighed.T @ features
        # One-hot columns rather than sums by index: those have no fixed order on a card.
        step = max(1, BLOCK // max(1, self.outputs))
        for some in _slices(len(features), 1, step):
            self.cross += weighed[some].T @ self._outputs(rows)[some]

    def _outputs(self, rows: slice) -> Any:
        if self.codes is None:
            assert self.targets is not None
            return self.targets[rows]
        return _OneHot(self.codes[rows], self.outputs)

    def moments(self) -> Moments:
        if self.codes is None:
            assert self.targets is not None
            counts = np.array([float(self.weight.sum())])
            constant = float((self.weight[:, None] * self.targets**2).sum())
        else:
            counts = np.bincount(
                self.codes.cpu().numpy(), self.weight.cpu().numpy(), minlength=self.outputs
            )
            constant = float(self.weight.sum())
        return replace(
            self.known,
            second=tuple(np.asfortranarray(one.cpu().numpy()) for one in self.second),
            cross=self.cross.cpu().numpy(),
            counts=counts,
            constant=constant,
        )


@dataclass(frozen=True, eq=False)
class _OneHot:
    """One-hot rows of labels, written out only as far as they are asked for."""

    codes: Tensor
    outputs: int

    def __getitem__(self, rows: slice) -> Tensor:
        return torch.nn.functional.one_hot(self.codes[rows], self.outputs).double()


@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of a part whose rows may be chosen and are not judged by."""

    bad: int
    longest: float
    classes: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Measuring:
    """What a pass needs to know of rows, where another set is what the moments are of."""

    map: FeatureMap
    skip_bad: bool = False

    def chunk(self, source: ShardSource, part: Part) -> tuple[Chunk, int]:
        return checked(source.read(part), part, self.skip_bad)

    def __call__(self, source: ShardSource, part: Part) -> Measured:
        chunk, bad = self.chunk(source, part)
        longest = 0.0
        for rows in _slices(len(chunk), _row_size(chunk.x), BLOCK):
            exact = exact_features(chunk.x[rows], self.map)
            longest = max(longest, float(np.einsum("ij,ij->i", exact, exact).max()))
        return Measured(bad, longest, _labels(chunk.y))

    def on(self, held: Held) -> Measured:
        """The same of rows on a device.

        Parameters
        ----------
        held : Held
            The rows.

        Returns
        -------
        Measured
            On the host.
        """
        longest = 0.0
        for rows in _slices(len(held.x), _row_size(held.x), DEVICE_BLOCK):
            features = _exact(held.x[rows], self.map)
            longest = max(longest, float((features * features).sum(1).max()))
        return Measured(held.bad, longest, _labels(held.y))


@dataclass(frozen=True, eq=False)
class Found:
    """The rows of a part that are worth a closer look."""

    positions: Array
    features: Array
    y: Array | None
    #: The best value among the rows that are not here.
    below: float


@dataclass(frozen=True, eq=False)
class Scoring:
    """The steepest rows of a part.

    ``change`` and ``model`` are M and W; of classes, ``classes`` says in which order their columns
    are and ``centre`` what is subtracted from one-hot labels.
    """

    map: FeatureMap
    change: Array
    model: Array
    centre: Array
    classes: Array | None
    count: int
    taken: Array
    #: Whether the first pass found rows to leave out: no others are looked for.
    some_bad: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scorers", {})

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made from the rest."""
        return {**vars(self), "_scorers": {}}

    def scorer(self, device: torch.device) -> _Scorer:
        """What all parts are scored by, made once: for many classes that is a product of p²C.

        Parameters
        ----------
        device : torch.device
            Where rows are.

        Returns
        -------
        _Scorer
            The same for all parts.
        """
        made: dict[torch.device, _Scorer] = vars(self)["_scorers"]
        if device not in made:
            made[device] = _Scorer(self, device)
        return made[device]

    def chunk(self, source: ShardSource, part: Part) -> tuple[Chunk, int]:
        chunk = source.read(part)
        return checked(chunk, part, skip_bad=True) if self.some_bad else (chunk, 0)

    def __call__(self, source: ShardSource, part: Part) -> Found:
        chunk, _ = self.chunk(source, part)
        scorer = self.scorer(torch.device("cpu"))
        outputs = self._outputs(chunk.y, torch.device("cpu"))
        values = torch.empty(len(chunk), dtype=torch.float32)
        for rows in _slices(len(chunk), _row_size(chunk.x), BLOCK):
            # NumPy converts float16 ten times as fast as torch does on a processor.
            values[rows] = scorer.values(torch.from_numpy(_single(chunk.x[rows])), outputs[rows])
        if chunk.weight is not None:
            values[torch.from_numpy(~(chunk.weight > 0))] = -torch.inf
        best, below = self._best(values, part)
        places = best.numpy()
        features = exact_features(chunk.x[places], self.map)
        return Found(places + part.start, features, _some(chunk.y, places), below)

    def on(self, held: Held) -> Found:
        """The same for rows on a device.

        Parameters
        ----------
        held : Held
            The rows.

        Returns
        -------
        Found
            On the host.
        """
        device = held.x.device
        scorer = self.scorer(device)
        codes = self.classes is not None
        outputs = held.codes(self.classes) if codes else self._outputs(held.y, device)  # type: ignore[arg-type]
        values = torch.empty(len(held.x), dtype=torch.float32, device=device)
        with in_full_precision(held.x):
            for rows in _slices(len(held.x), _row_size(held.x), DEVICE_BLOCK):
                values[rows] = scorer.values(held.x[rows], outputs[rows])
        if held.weight is not None:
            values[~(held.weight > 0)] = -torch.inf
        best, below = self._best(values, held.part)
        features = _exact(held.x[best], self.map).cpu().numpy()
        places = best.cpu().numpy()
        return Found(places + held.part.start, features, _some(held.y, places), below)

    def _outputs(self, y: Any, device: torch.device) -> Tensor:
        if self.classes is not None:
            return torch.as_tensor(codes_of(y, self.classes), device=device)
        targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1) - self.centre
        return torch.as_tensor(targets.astype(np.float32), device=device)

    def _best(self, values: Tensor, part: Part) -> tuple[Tensor, float]:
        own = self.taken[(self.taken >= part.start) & (self.taken < part.stop)] - part.start
        values[torch.as_tensor(own, device=values.device)] = -torch.inf
        return largest(values, self.count)


class _Scorer:
    """Slopes of rows by two products, or for many classes by a quadratic form."""

    def __init__(self, scoring: Scoring, device: torch.device) -> None:
        self.map = scoring.map.plain
        self.whole = scoring.map
        self.unit = self.map is not scoring.map
        self.classes = scoring.classes is not None
        width, outputs = scoring.change.shape
        self.quadratic = self.classes and 2 * outputs > width + 2
        change, model = scoring.change, scoring.model

        def single(array: Array) -> Tensor:
            return torch.tensor(array, dtype=torch.float32, device=device)

        if self.quadratic:
            form = change @ model.T
            self.form = single(0.5 * (form + form.T))
            self.columns = single((change - (change @ scoring.centre)[:, None]).T.copy())
        else:
            self.both = single(np.hstack([change, model]))
            self.centre = single(scoring.centre)

    def values(self, x: Tensor, outputs: Tensor) -> Tensor:
        """Slopes; lengths are divided by at the end, not in every row."""
        features = self.map.glanced(x).float()
        scale = None
        if self.unit:
            squares = _squares(features)
            low, high = float(squares.min()), float(squares.max())
            if not (low >= LEAST_SQUARE and high <= MOST_SQUARE):
                return self._values(self.whole.features(x).float(), outputs, None)
            scale = squares.rsqrt_()
        found = self._values(features, outputs, scale)
        if not np.isfinite(float(found.sum())):
            self.whole.features(x)  # names the rows that are not finite
        return found

    def _values(self, features: Tensor, outputs: Tensor, scale: Tensor | None) -> Tensor:
        if self.quadratic:
            own = (features * self.columns[outputs]).sum(1)
            turned = (features @ self.form).mul_(features).sum(1)
            return own - turned if scale is None else scale * (own - scale * turned)
        products = features @ self.both
        if scale is not None:
            products *= scale[:, None]
        slopes, predicted = products.tensor_split(2, 1)
        if not self.classes:
            return (slopes * (outputs - predicted)).sum(1)
        own = slopes.gather(1, outputs[:, None])[:, 0]
        return own - (slopes * (predicted + self.centre)).sum(1)


def _squares(features: Tensor) -> Tensor:
    """‖φ‖² of rows; NumPy writes no squares out."""
    if features.is_cuda:
        return (features * features).sum(1)
    rows = features.numpy()
    return torch.from_numpy(np.einsum("ij,ij->i", rows, rows))


def largest(values: Tensor, count: int) -> tuple[Tensor, float]:
    """Places of the largest values that are not −∞, in order, and the largest of the others.

    Of equal values the first are taken, wherever they are looked at.

    Parameters
    ----------
    values : Tensor (n,)
        On any device.
    count : int
        How many places.

    Returns
    -------
    tuple of Tensor and float
        Places; −∞ where there are no others.

    Examples
    --------
    >>> places, below = largest(torch.tensor([1.0, 3.0, 2.0, 2.0]), 2)
    >>> places.tolist(), below
    ([1, 2], 2.0)
    """
    top = torch.topk(values, min(count + 1, len(values))).values
    if count >= len(values):
        return torch.nonzero(values > -torch.inf)[:, 0], -np.inf
    least, below = float(top[count - 1]), float(top[count])
    places = torch.nonzero((values >= least) & (values > -torch.inf))[:, 0]
    if len(places) > count:
        equal = torch.nonzero(values[places] == least)[:, 0]
        kept = torch.ones(len(places), dtype=torch.bool, device=values.device)
        kept[equal[len(equal) - (len(places) - count) :]] = False
        places = places[kept]
    return places, below


def exact_features(x: Array, map: FeatureMap) -> Array:
    """Features of rows in float64: lengths are taken in that precision.

    Parameters
    ----------
    x : array (n, …)
        Rows as they are stored.
    map : FeatureMap
        A settled one.

    Returns
    -------
    array (n, p)
        The same on every engine, to the last digits.

    Examples
    --------
    >>> from bicore.moments.features import Rows
    >>> x = np.array([[3.0, 4.0]], dtype=np.float16)
    >>> exact_features(x, Rows().unit().settled(x))
    array([[0.6, 0.8]])
    """
    found: Array = _exact(torch.from_numpy(_single(x)), map).numpy()
    return found


def _exact(x: Tensor, map: FeatureMap) -> Tensor:
    features = map.plain.features(x).double()
    return features if map.plain is map or not len(features) else unit_rows(features)


def _single(x: Array) -> Array:
    """Float16 as float32, others as a copy: a map of a file is not writable, and torch asks it."""
    return x.astype(np.float32) if x.dtype == np.float16 else np.array(x)


def _some(y: Array | None, places: Array) -> Array | None:
    return None if y is None else y[places]


def _labels(y: Array | None) -> tuple[Any, ...]:
    """The classes among labels; none where y holds targets."""
    if y is None or y.dtype.kind == "f":
        return ()
    return tuple(np.unique(y).tolist())


def _row_size(x: Any) -> int:
    return max(1, int(np.prod(x.shape[1:])))


def _slices(count: int, numbers: int, block: int) -> Iterator[slice]:
    """Some rows at a time."""
    size = max(1, block // numbers)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def codes_of(y: Any, classes: Array) -> Array:
    """Places of labels among the classes, which are in order."""
    labels = np.asarray(y).reshape(-1)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    strange = np.flatnonzero(classes[codes] != labels)
    if len(strange):
        raise InputError(
            f"y holds the class {labels[strange[0]]!r}, which the first pass did not see: the "
            "source has changed; select again."
        )
    return np.asarray(codes)
