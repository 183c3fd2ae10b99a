"""What is done to a part of a source: counted into moments, or scored. Both can be sent elsewhere.

Called with a source and a part, work reads the rows and looks at them on the host, in blocks that
fit a processor's cache; ``on`` looks at rows that lie on a device already. Products of scores are
in float32, sums and the features of found rows in float64: engines agree to the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.moments.features import FeatureMap
from bicore.moments.moments import Moments
from bicore.shards.blocks import (
    BLOCK,
    DEVICE_BLOCK,
    codes_of,
    exact_features,
    row_size,
    slices,
)
from bicore.sources.parts import Chunk, Part, ShardSource
from bicore.sources.rows import checked

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
        return torch.tensor(y, device=self.x.device)


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
    #: Subtracted from targets, so that their squares keep their digits; None for classes.
    shift: Array | None = None

    def chunk(self, source: ShardSource, part: Part) -> tuple[Chunk, int]:
        return checked(source.read(part), part, self.skip_bad)

    def __call__(self, source: ShardSource, part: Part) -> Counted:
        chunk, bad = self.chunk(source, part)
        moments, longest = self.empty, 0.0
        for rows in slices(len(chunk), row_size(chunk.x), BLOCK):
            exact = exact_features(chunk.x[rows], self.map)
            weight = None if chunk.weight is None else chunk.weight[rows]
            if weight is None or np.any(weight > 0):
                moments = moments.with_rows(exact, self._outputs(chunk.y, rows), weight)
            longest = max(longest, float(np.einsum("ij,ij->i", exact, exact).max()))
        return Counted(moments, len(chunk), bad, longest)

    def _outputs(self, y: Array | None, rows: slice) -> Any:
        """Labels of some rows, or their targets less the shift."""
        if y is None or self.shift is None:
            return None if y is None else y[rows]
        return np.asarray(y[rows], np.float64).reshape(-1, len(self.shift)) - self.shift

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
        sums = _Sums(known, held, labels, self.shift)
        longest = 0.0
        for rows in slices(len(held.x), row_size(held.x), DEVICE_BLOCK):
            features = self.map.exact(held.x[rows])
            sums.add(rows, features)
            longest = max(longest, float((features * features).sum(1).max()))
        return Counted(sums.moments(), len(held.x), held.bad, longest)


class _Sums:
    """Σ v φφᵀ, Σ v φyᵀ, Σ v and Σ v‖y‖² of rows on a device."""

    def __init__(
        self, known: Moments, held: Held, labels: Array | None, shift: Array | None
    ) -> None:
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
            if shift is not None:
                self.targets -= torch.tensor(shift, device=device)
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
        for some in slices(len(features), 1, step):
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
        for rows in slices(len(chunk), row_size(chunk.x), BLOCK):
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
        for rows in slices(len(held.x), row_size(held.x), DEVICE_BLOCK):
            features = self.map.exact(held.x[rows])
            longest = max(longest, float((features * features).sum(1).max()))
        return Measured(held.bad, longest, _labels(held.y))


@dataclass(frozen=True, eq=False)
class Fetching:
    """The features of some rows of a source; parts without such rows are not read."""

    map: FeatureMap
    positions: Array

    def __call__(self, source: ShardSource, part: Part) -> Array:
        first, last = np.searchsorted(self.positions, (part.start, part.stop))
        if first == last:
            return np.empty((0, self.map.width))
        rows = self.positions[first:last] - part.start
        return exact_features(source.read(part).x[rows], self.map)


def _labels(y: Array | None) -> tuple[Any, ...]:
    """The classes among labels; none where y holds targets."""
    if y is None or y.dtype.kind == "f":
        return ()
    return tuple(np.unique(y).tolist())
