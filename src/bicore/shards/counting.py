"""The rows of a part, and the first pass over them: sums, lengths and counts of classes.

Work on a part can be sent to another process. It reads the rows and processes them in blocks: small
ones that fit the cache of a processor, or large ones on a device. Sums and the features of selected
rows are in float64, products of scores in float32, so that executors agree up to the last digits.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.moments.features import FeatureMap
from bicore.moments.moments import Moments
from bicore.numerics.linear_algebra import row_products
from bicore.sources.parts import Part, ShardSource, check_values

T = TypeVar("T", covariant=True)

#: Numbers in a block on the CPU, 4 MB of float32: smaller ones cost more calls than they save.
BLOCK = 2**20
#: Numbers in a block on a device (256 MB of float32), and in a block summed in float64.
DEVICE_BLOCK, DEVICE_SUMS = 2**26, 2**23
X86 = platform.machine().lower() in ("x86_64", "amd64")


@dataclass(eq=False)
class PartRows:
    """The rows of a part: arrays in memory, or features as a tensor on a device."""

    part: Part
    x: Any
    y: Array | None = None
    weight: Array | None = None
    #: Number of skipped rows.
    bad: int = 0
    _codes: tuple[Array, Tensor] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def device(self) -> torch.device:
        """The device of the features."""
        return self.x.device if torch.is_tensor(self.x) else torch.device("cpu")

    def slices(self, numbers: int, device_numbers: int) -> Iterator[slice]:
        """Yield slices of rows with about this many numbers."""
        block = device_numbers if torch.is_tensor(self.x) else numbers
        size = max(1, block // max(1, int(np.prod(self.x.shape[1:]))))
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows; float16 becomes float32 on the CPU.

        On the CPU all blocks share one buffer: the first use of new memory takes five times as long
        as the conversion.
        """
        buffer: Any = None
        for rows in self.slices(BLOCK, DEVICE_BLOCK):
            if torch.is_tensor(self.x):
                yield rows, self.x[rows]
                continue
            count = rows.stop - rows.start
            if buffer is None:
                buffer = np.empty((count, *self.x.shape[1:]), dtype=self.x.dtype)
                single = np.empty(buffer.shape if _is_half(buffer) else 0, dtype=np.float32)
            np.copyto(buffer[:count], self.x[rows])
            if _is_half(buffer):
                yield rows, _widen(buffer[:count], single[:count])
            else:
                yield rows, torch.from_numpy(buffer[:count])

    def features(self, map: FeatureMap, rows: Any) -> Any:
        """Compute features of some rows in float64, as an array or on the device."""
        if torch.is_tensor(self.x):
            return map.exact(self.x[rows])
        # A copy, because torch needs writable memory and a mapped file is not.
        x = np.array(self.x[rows])
        tensor = _widen(x, np.empty(x.shape, np.float32)) if _is_half(x) else torch.from_numpy(x)
        return map.exact(tensor).numpy()

    def codes(self, classes: Array) -> Tensor:
        """Return the index of every label among sorted classes, on the device; cached."""
        if self._codes is None or self._codes[0] is not classes:
            counted = True if self.weight is None else self.weight > 0
            codes = torch.as_tensor(encode(self.y, classes, counted), device=self.device)
            self._codes = (classes, codes)
        return self._codes[1]


def _is_half(x: Array) -> bool:
    return x.dtype == np.float16


def _widen(half: Array, single: Array) -> Tensor:
    """Convert float16 to float32: on x86 torch is 20 times as fast as NumPy, elsewhere slower."""
    tensor = torch.from_numpy(single)
    if X86:
        return tensor.copy_(torch.from_numpy(half))
    np.copyto(single, half)
    return tensor


def encode(y: Any, classes: Array, counted: Any = True) -> Array:
    """Return the index of every label among sorted classes; labels not counted may be unknown."""
    labels = np.asarray(y).reshape(-1)
    if classes.dtype.kind == "i" and labels.dtype == np.int64 and len(labels):
        are_codes = np.array_equal(classes, np.arange(len(classes)))
        if are_codes and labels.min() >= 0 and labels.max() < len(classes):
            return np.array(labels)  # labels 0, 1, 2, … need no search in every pass
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    unknown = np.flatnonzero(counted & (classes[codes] != labels))
    if len(unknown):
        wrong = f"y holds the class {labels[unknown[0]]!r}, which the first pass did not see"
        raise InputError(f"{wrong}: the source has changed; select again.")
    return np.asarray(codes)


class PartWork(ABC, Generic[T]):
    """Work on a part, which runs on the host or on a device."""

    def read(self, source: ShardSource, part: Part) -> PartRows:
        """Read the rows of a part for this work."""
        chunk, bad = self._read_chunk(source, part)
        return PartRows(part, chunk.x, chunk.y, chunk.weight, bad)

    @abstractmethod
    def _read_chunk(self, source: ShardSource, part: Part) -> tuple[Any, int]:
        """Read a chunk and count the skipped rows."""

    @abstractmethod
    def run(self, rows: PartRows) -> T:
        """Process the rows; return the result in main memory."""

    def __call__(self, source: ShardSource, part: Part) -> T:
        return self.run(self.read(source, part))


@dataclass(frozen=True, eq=False)
class PartCounts:
    """The result of the first pass for a part."""

    moments: Moments | None
    #: Number of rows skipped because they are not finite.
    bad: int
    #: The largest ‖φ‖².
    largest_square: float
    #: Number of rows of each class that may be selected; empty for targets.
    available: Counter[Any]


@dataclass(frozen=True, eq=False)
class CountWork(PartWork[PartCounts]):
    """Add the rows of a part to empty moments; with ``empty=None`` only measure the rows."""

    map: FeatureMap
    empty: Moments | None
    skip_bad: bool = False
    #: Subtracted from targets to keep the digits of their squares; None for classes.
    shift: Array | None = None

    def _read_chunk(self, source: ShardSource, part: Part) -> tuple[Any, int]:
        return check_values(source.read(part), part, self.skip_bad)

    def run(self, rows: PartRows) -> PartCounts:
        moments, largest, y = self.empty, 0.0, rows.y
        if y is not None and self.shift is not None:
            y = np.asarray(y, np.float64).reshape(-1, len(self.shift)) - self.shift
        # The label of a part without good rows is invented.
        classes = y is not None and y.dtype.kind != "f" and rows.bad < len(rows)
        available = _count_classes(y, rows.weight) if classes else Counter()
        for some in rows.slices(BLOCK, DEVICE_SUMS):
            features = rows.features(self.map, some)
            weight = None if rows.weight is None else rows.weight[some]
            if moments is not None and (weight is None or np.any(weight > 0)):
                moments = moments.with_rows(features, None if y is None else y[some], weight)
            largest = max(largest, float(row_products(features, features).max()))
        return PartCounts(moments, rows.bad, largest, available)


def _count_classes(y: Any, weight: Array | None) -> Counter[Any]:
    """Count the rows of each class whose weight is above 0."""
    names = np.unique(y)
    usable = None if weight is None else weight > 0
    counts = np.bincount(encode(y, names), usable, len(names)).astype(int)
    return Counter(dict(zip(names.tolist(), counts.tolist(), strict=True)))


@dataclass(frozen=True, eq=False)
class FetchWork:
    """Compute the features of some rows of a source; other parts are not read."""

    map: FeatureMap
    positions: Array

    def __call__(self, source: ShardSource, part: Part) -> Array:
        first, last = np.searchsorted(self.positions, (part.start, part.stop))
        if first == last:
            return np.empty((0, self.map.width))
        rows = PartRows(part, source.read(part).x)
        found: Array = rows.features(self.map, self.positions[first:last] - part.start)
        return found
