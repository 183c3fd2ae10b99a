"""PyTorch: a coreset of a data set that is never held whole, and loaders that read a coreset."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import WeightedRandomSampler

from bicore.api import select
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError, MemoryLimitError, TimeLimitError
from bicore.networks.embedding import Embedder
from bicore.networks.loading import Fields, Reading, opened
from bicore.networks.observe import Observed, floats_of, observed
from bicore.picking import as_seed
from bicore.runtime import Clock, ProgressLine, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.registry import as_selector
from bicore.shards.sources.embedded import embedded, embedded_batch, frozen

__all__ = ["WeightedSubset", "select_from", "weighted_sampler"]

#: The field that a dict of a :class:`WeightedSubset` has more than that of its source.
WEIGHT = "weight"


def select_from(
    data: Any,
    size: int | float | str = 100,
    *,
    model: Any = None,
    layer: str | None = None,
    x: str | int | None = None,
    y: str | int | None = None,
    weight: str | int | None = None,
    transform: Any = None,
    outer: Any = None,
    batch_size: int | None = None,
    workers: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    seed: int | np.random.Generator = 0,
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    **options: Any,
) -> Coreset:
    """Choose rows of a torch data set by what a network says of them.

    The data set is read once, in batches; what is held are the rows' embeddings.

    Parameters
    ----------
    data : torch.utils.data.Dataset, DataLoader, or anything with ``len`` and places
        Its items are (x, y, …) or dicts. Of a loader the data set is read, with the loader's batch
        size, workers and collate function; whether it shuffles plays no part.
    size : int, float or "auto"
        As :func:`bicore.select` has it.
    model : torch.nn.Module, optional
        Embeds rows, in evaluation mode and on its own device; it is not changed. Without one items
        are vectors and compared as they are.
    layer : str, optional
        The layer whose output is the embedding, by its name; "" is what the model itself returns.
        By default what the last Linear layer takes in, where the model returns what that layer
        gives (a classifier), else what the model returns (an encoder).
    x, y, weight : str or int, optional
        The fields of an item: keys of a dict, or places in a tuple. By default the first two of a
        tuple, and in a dict what is usually called so ("image", "label", …).
    transform : callable, optional
        Makes a tensor of the features of one item, such as ``torchvision.transforms.ToTensor()``.
    outer : torch.utils.data.Dataset or DataLoader, optional
        A separate set on which the objective is measured, embedded in the same way.
    batch_size, workers : int, optional
        Rows that are embedded together, and processes that read them; default: the loader's, else
        256 and none.
    folder : path, optional
        Embeddings are written to shards there and read in parts from then on, as
        :func:`bicore.shards.embedded` does: for more rows than memory holds, or to embed once.
    seed : int or numpy.random.Generator
        Of the selection, and of what the data set's own transforms draw by torch.
    runtime : Runtime, optional
        Limits of embedding and selecting together.
    method : str or Selector
        As :func:`bicore.select` has it. One that looks at a model sees what ``model`` said of the
        rows, in the same pass.
    **options
        Further options of :func:`bicore.select`.

    Returns
    -------
    Coreset
        Its indices are places in the data set (of a loader: in ``loader.dataset``).

    Raises
    ------
    InputError
        Where the rows have no places, an item has no such field, or the model gives no vectors.
    MemoryLimitError
        Where the embeddings alone are beyond the memory limit; ``folder`` is the mend.
    TimeLimitError
        Where ``max_seconds`` is over before all rows are embedded.

    Examples
    --------
    >>> images = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> rows = torch.utils.data.TensorDataset(images, torch.arange(60) % 3)
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> picked = select_from(rows, 5, model=network, kernel="linear")
    >>> len(picked), bool(picked.indices.max() < 60)
    (5, True)
    """
    if layer is not None and model is None:
        raise InputError(f"layer={layer!r} is given and no model; give model= as well.")
    number = as_seed(seed)
    clock = Clock((runtime or Runtime()).max_seconds)
    fields = Fields(x, y, weight)

    def read(source: Any) -> Reading:
        return opened(
            source,
            fields,
            batch_size=batch_size,
            workers=workers,
            transform=transform,
            seed=number,
        )

    sight = Sight(model, layer, runtime or Runtime(), clock)
    if folder is not None:
        source = sight.on_disk(read(data), folder)
        judge = None if outer is None else sight.rows(read(outer))
        return select(
            source,
            size=size,
            outer=judge,
            seed=number,
            runtime=sight.remaining(),
            method=method,
            **options,
        )
    if _looks(method):
        rows, seen = sight.observed(read(data))
    else:
        rows, seen = sight.rows(read(data)), None
    judge = None if outer is None else sight.rows(read(outer))
    coreset = select(
        rows,
        size=size,
        outer=judge,
        seed=number,
        runtime=sight.remaining(),
        method=method,
        model=seen,
        **options,
    )
    return coreset.annotated(embedded_by=sight.name, embedding_columns=rows.x.shape[1])


def _looks(method: str | Selector) -> bool:
    """Whether a method sees what a model says; one that trains the model itself is refused."""
    selector = as_selector(method)
    if selector.fits_model:
        raise InputError(
            f"{selector.name} trains or samples the model itself and needs all rows in memory; "
            "load them and call bicore.select(x, y, size, model=…)."
        )
    return selector.needs_model


@dataclass(frozen=True)
class Sight:
    """How rows are seen: by which model, and within which limits; other doors use it as well."""

    model: Any
    layer: str | None
    runtime: Runtime
    clock: Clock

    @property
    def name(self) -> str:
        return "rows as they are" if self.model is None else type(self.model).__name__

    def remaining(self) -> Runtime:
        """What is left of the time."""
        if self.clock.max_seconds is None:
            return self.runtime
        left = max(self.clock.max_seconds - self.clock.seconds, 1e-9)
        return replace(self.runtime, max_seconds=left)

    def rows(self, reading: Reading) -> Dataset:
        """All rows embedded, with labels and weights."""
        embedder = _AsTheyAre() if self.model is None else Embedder(self.model, self.layer)
        whole: Array | None = None
        columns = _Columns()
        done = 0
        device = str(floats_of(embedder).device)
        with frozen(embedder, device):
            for batch in self._watched(reading):
                part = embedded_batch(embedder, batch["x"], device, "float32")
                if whole is None:
                    whole = self._room(reading.rows, part.shape[1])
                whole[done : done + len(part)] = part
                done += len(part)
                columns.add(batch)
        assert whole is not None
        return columns.beside(whole)

    def observed(self, reading: Reading) -> tuple[Dataset, Observed]:
        """The same, with what the model says of every row."""
        if self.model is None:
            raise InputError("method looks at a model, and none is given; give model=.")
        columns = _Columns()
        like = floats_of(self.model)

        def parts() -> Any:
            for batch in self._watched(reading):
                columns.add(batch)
                yield torch.as_tensor(batch["x"]).to(like.device, like.dtype)

        seen = observed(self.model, parts(), self.layer)
        return columns.beside(seen.embedding.float().cpu().numpy()), seen

    def on_disk(self, reading: Reading, folder: str | os.PathLike[str]) -> Any:
        """Shards of the embeddings."""
        if "weight" in reading.columns:
            raise InputError("folder keeps features and labels only; leave weight= or folder= out.")
        embedder = _AsTheyAre() if self.model is None else Embedder(self.model, self.layer)
        return embedded(reading.loader, embedder, folder, str(floats_of(embedder).device))

    def _room(self, rows: int, columns: int) -> Array:
        needed = rows * columns * np.dtype(np.float32).itemsize
        limit = self.runtime.memory_bytes()
        if needed > limit:
            raise MemoryLimitError(
                f"{rows} rows of {columns} numbers take {needed / 1e9:.2f} GB, and the limit is "
                f"{limit / 1e9:.2f} GB; give folder= to keep them on disk, or a layer with fewer "
                "outputs."
            )
        return np.empty((rows, columns), np.float32)

    def _watched(self, reading: Reading) -> Any:
        """Batches, with a line of progress and an eye on the clock."""
        # A callable hears of points that were selected, and of nothing else.
        silent = callable(self.runtime.progress)
        runtime = replace(self.runtime, progress=False) if silent else self.runtime
        line = ProgressLine(runtime, self.clock, reading.rows, "embedding")
        done = 0
        try:
            for batch in reading:
                if self.clock.over:
                    raise TimeLimitError(
                        f"max_seconds={self.clock.max_seconds:g} is over after {done} of "
                        f"{reading.rows} rows were embedded; give more time, more workers=, or "
                        "folder= to embed once."
                    )
                yield batch
                done += len(batch["x"])
                line.update(done, math.nan)
        finally:
            line.close()


class _Columns:
    """Labels and weights, batch after batch."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {"y": [], "weight": []}

    def add(self, batch: Mapping[str, Any]) -> None:
        for name, parts in self._parts.items():
            if name in batch:
                value = batch[name]
                parts.append(value.cpu().numpy() if torch.is_tensor(value) else np.asarray(value))

    def beside(self, x: Array) -> Dataset:
        y, weight = (np.concatenate(parts) if parts else None for parts in self._parts.values())
        return Dataset(x, y, weight)


class _AsTheyAre(torch.nn.Module):
    """Vectors are their own embedding."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() > 2:
            raise InputError(
                f"items have shape {tuple(x.shape[1:])}, and no model is given to make vectors of "
                "them; give model= (an encoder or a classifier)."
            )
        return x if x.dim() == 2 else x[:, None]


def weighted_sampler(
    coreset: Coreset, rows: int | None = None, *, draws: int | None = None, seed: int | None = None
) -> WeightedRandomSampler:
    """Draw the points of a coreset with replacement, as often as their weights say.

    It takes the place of a weighted loss: give it to a loader as ``sampler``.

    Parameters
    ----------
    coreset : Coreset
        The answer of a selector.
    rows : int, optional
        How many rows the data set has that the loader reads: the sampler then gives places in it.
        By default it gives places in the coreset, for a loader over
        ``torch.utils.data.Subset(dataset, coreset.indices)`` or a :class:`WeightedSubset`.
    draws : int, optional
        Points of one pass; by default as many as the coreset has.
    seed : int, optional
        Of the draws; by default torch's generator.

    Returns
    -------
    torch.utils.data.WeightedRandomSampler
        For one loader after another.

    Raises
    ------
    InputError
        Where all weights are 0, or an index is not below ``rows``.

    Examples
    --------
    >>> picked = Coreset(np.array([4, 2]), np.array([1.0, 3.0]))
    >>> set(weighted_sampler(picked, rows=6, draws=50, seed=0)) == {2, 4}
    True
    """
    weights = coreset.normalised().weights
    if rows is not None:
        if coreset.indices.max() >= rows:
            raise InputError(
                f"rows={rows} and the coreset holds row {coreset.indices.max()}; give the length "
                "of the data set it was selected from."
            )
        whole = np.zeros(rows)
        whole[coreset.indices] = weights
        weights = whole
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    count = len(coreset) if draws is None else draws
    return WeightedRandomSampler(weights.tolist(), count, replacement=True, generator=generator)


class WeightedSubset(TorchDataset[Any]):
    """Yields the chosen points in order of selection, each with its weight.

    An item (x, y, …) becomes ``(x, y, w)``; one that is a dict keeps all its fields and gets
    another, ``"weight"``.

    Parameters
    ----------
    source : torch.utils.data.Dataset or bicore.Dataset
        A map-style one whose items start with (x, y) or are dicts, or the data itself.
    coreset : Coreset
        The answer of a selector on the same rows.
    normalise : bool
        Whether weights are scaled to mean 1, the form for a mean loss.

    Raises
    ------
    InputError
        Where the coreset has rows that the source has not; or, when a point is asked for, where a
        :class:`bicore.Dataset` has no labels, or a dict has a field ``"weight"`` of its own.

    Examples
    --------
    >>> data = Dataset(np.eye(3), [0, 1, 1])
    >>> x, y, w = WeightedSubset(data, Coreset(np.array([2, 0])))[0]
    >>> int(y), float(w)
    (1, 1.0)
    """

    def __init__(self, source: Any, coreset: Coreset, normalise: bool = False) -> None:
        if len(coreset) and coreset.indices.max() >= len(source):
            raise InputError(
                f"index {coreset.indices.max()} is beyond the {len(source)} items of source; pass "
                "the data it was selected from."
            )
        self.source = source
        self.coreset = coreset.normalised() if normalise else coreset
        self._weights = torch.tensor(self.coreset.weights, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.coreset)

    def __getitem__(self, place: int) -> Any:
        row = int(self.coreset.indices[place])
        if isinstance(self.source, Dataset):
            if self.source.y is None:
                raise InputError("source has no labels; a WeightedSubset yields (x, y, w).")
            return _item(self.source.x[row]), _item(self.source.y[row]), self._weights[place]
        item = self.source[row]
        if not hasattr(item, "keys"):
            return *item[:2], self._weights[place]
        if WEIGHT in item:
            raise InputError(
                f"items have a field {WEIGHT!r} of their own; rename it, for the coreset's weight "
                "is called so."
            )
        return {**item, WEIGHT: self._weights[place]}


def _item(value: Any) -> Any:
    """A row as a float32 tensor, a label as a number tensor; text stays text."""
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return str(value)
    kind = np.float32 if array.dtype.kind == "f" else array.dtype
    return torch.from_numpy(np.array(array, dtype=kind))
