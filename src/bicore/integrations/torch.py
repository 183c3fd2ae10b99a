"""PyTorch: select from a data set that is read in batches, and load a coreset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, WeightedRandomSampler
from torch.utils.data import Dataset as TorchDataset

from bicore._deprecated import renamed_keywords
from bicore.api import SelectorOptions, list_options, select
from bicore.arguments import as_seed
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError, MemoryLimitError, TimeLimitError, check_integer, check_type
from bicore.methods.base import Selector
from bicore.methods.registry import as_selector
from bicore.networks.loading import Fields, Reading, open_data
from bicore.networks.observe import Embedder, Observed, floats_of, observe_parts
from bicore.runtime.clock import Clock, ProgressLine
from bicore.runtime.context import Runtime, frozen, human_bytes
from bicore.sources.embedding import embed_batch, embed_to_folder
from bicore.types import Items, PathLike, RandomState

__all__ = ["WeightedSubset", "select_from", "weighted_sampler"]

#: The field that a :class:`WeightedSubset` adds to items that are dicts.
WEIGHT = "weight"


@renamed_keywords()
@list_options(SelectorOptions)
def select_from(
    data: Items | DataLoader[Any],
    size: int | float | str = 100,
    *,
    model: torch.nn.Module | None = None,
    layer: str | None = None,
    x: str | int | None = None,
    y: str | int | None = None,
    sample_weight: str | int | None = None,
    transform: Callable[[Any], Any] | None = None,
    outer: Items | DataLoader[Any] | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    folder: PathLike | None = None,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    initial: Coreset | Sequence[int] = (),
    tolerance: float | None = None,
    exact: bool = False,
    **options: Unpack[SelectorOptions],
) -> Coreset:
    """Select rows of a torch data set by their embeddings.

    The data set is read once, in batches; memory holds the embeddings of the rows.

    Parameters
    ----------
    data : torch.utils.data.Dataset, DataLoader, or anything with ``len`` and ``[row]``
        Its items are (x, y, …) or dicts. The data set of a loader is read in its own order, with
        the loader's batch size, workers and collate function.
    size : int, float or "auto"
        As in :func:`bicore.select`.
    model : torch.nn.Module, optional
        Embeds rows, in evaluation mode and on its own device; it is not changed. Without a model,
        items must be vectors.
    layer : str, optional
        The name of the layer whose output is the embedding; "" is the output of the model. By
        default the input of the last Linear layer, if its output is the output of the model (a
        classifier), else the output of the model (an encoder).
    x, y, sample_weight : str or int, optional
        The fields of an item: keys of a dict, or places in a tuple. By default the first two of a
        tuple, and the usual names in a dict ("image", "label", …).
    transform : callable, optional
        Makes a tensor of the features of one item, such as ``torchvision.transforms.ToTensor()``.
    outer : torch.utils.data.Dataset or DataLoader, optional
        A separate set on which the objective is measured, embedded in the same way.
    batch_size : int, optional
        Number of rows per batch (default: that of the loader, or 256).
    workers : int, optional
        Number of processes that read rows (default: that of the loader, or none).
    folder : path, optional
        Folder for shards of the embeddings, see
        :func:`bicore.sources.embed_to_folder`: for more rows than fit in memory, or to embed once.
    random_state : int, Generator, RandomState or None
        Seed of the selection, and of transforms of the data set that draw with torch.
    runtime : Runtime, optional
        Limits of embedding and selecting together.
    method : str or Selector
        As in :func:`bicore.select`. A method that uses a model gets the output of ``model`` from
        the same pass.
    initial, tolerance, exact : optional
        As in :func:`bicore.select`.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`bicore.BilevelSelector`.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`bicore.BilevelSelector`.
    weighting, rule, strategy, candidates, first, quotas : optional
        The search, as in :class:`bicore.BilevelSelector`.

    Returns
    -------
    Coreset
        Its indices are places in the data set (of a loader: in ``loader.dataset``).

    Raises
    ------
    InputError
        If rows cannot be indexed, an item lacks a field, or the model does not return vectors.
    MemoryLimitError
        If the embeddings exceed the memory limit; ``folder`` keeps them on disk.
    TimeLimitError
        If ``max_seconds`` is over before all rows are embedded.

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
        raise InputError(f"layer={layer!r} needs a model; give model= as well.")
    number = as_seed(random_state)
    limits = runtime or Runtime()
    embedder = RowEmbedder(model, layer, limits, Clock(limits.max_seconds))
    read = partial(open_data, fields=Fields(x, y, sample_weight), batch_size=batch_size)
    read = partial(read, workers=workers, transform=transform, seed=number)
    given = read(data)
    rows: Any
    seen = None
    if _needs_model(method, folder is not None):
        rows, seen = embedder.observe(given)
    elif folder is not None:
        rows = embedder.write_shards(given, folder)
    else:
        rows = embedder.embed(given)
    coreset = select(
        rows,
        size=size,
        outer=None if outer is None else embedder.embed(read(outer)),
        random_state=number,
        runtime=limits.for_part(embedder.clock),
        method=method,
        model=seen,
        initial=initial,
        tolerance=tolerance,
        exact=exact,
        **options,
    )
    if folder is not None:
        return coreset
    name = "rows as they are" if model is None else type(model).__name__
    return coreset.with_details(embedded_by=name, embedding_columns=rows.x.shape[1])


def _needs_model(method: str | Selector, on_disk: bool) -> bool:
    """Whether a method uses the output of a model; one that needs it in memory is refused."""
    selector = as_selector(method)
    if selector.fits_model:
        wrong = f"{selector.name} trains or samples the model itself and needs all rows in memory"
        raise InputError(f"{wrong}; load them and call bicore.select(x, y, size, model=…).")
    if selector.needs_model and on_disk:
        needed = f"{selector.name} uses the output of the model"
        raise InputError(f"{needed}, and folder= stores embeddings only; omit folder=.")
    return selector.needs_model


@dataclass(frozen=True)
class RowEmbedder:
    """The model that embeds rows, and its limits; shared by integrations."""

    model: Any
    layer: str | None
    runtime: Runtime
    clock: Clock

    def embed(self, reading: Reading) -> Dataset:
        """Embed all rows, with labels and weights."""
        module = self._module()
        columns: dict[str, list[Array]] = defaultdict(list)
        whole = np.empty((0, 0), np.float32)
        done = 0
        device = str(floats_of(module).device)
        with frozen(module.to(device)):
            for x in self._batches(reading, columns):
                part = embed_batch(module, x, device, "float32")
                if not done:
                    whole = self._allocate(reading.rows, part.shape[1])
                whole[done : done + len(part)] = part
                done += len(part)
        return _as_dataset(whole, columns)

    def observe(self, reading: Reading) -> tuple[Dataset, Observed]:
        """Embed all rows, and return the output of the model for them as well."""
        if self.model is None:
            raise InputError("this method uses the output of a model; give model=.")
        columns: dict[str, list[Array]] = defaultdict(list)
        like = floats_of(self.model)
        batches = self._batches(reading, columns)
        parts = (torch.as_tensor(x).to(like.device, like.dtype) for x in batches)
        seen = observe_parts(self.model, parts, self.layer)
        return _as_dataset(seen.embedding.float().cpu().numpy(), columns), seen

    def write_shards(self, reading: Reading, folder: PathLike) -> Any:
        """Write the embeddings to shards."""
        if "weight" in reading.columns:
            fix = "omit sample_weight= or folder="
            raise InputError(f"folder stores features and labels only; {fix}.")
        module = self._module()
        module.register_forward_pre_hook(lambda *_: self._check_time("before all"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(reading.seed)
            return embed_to_folder(reading.loader, module, folder, str(floats_of(module).device))

    def _module(self) -> torch.nn.Module:
        return _Vectors() if self.model is None else Embedder(self.model, self.layer)

    def _allocate(self, rows: int, columns: int) -> Array:
        needed, limit = rows * columns * np.dtype(np.float32).itemsize, self.runtime.memory_bytes()
        if needed > limit:
            wrong = f"{rows} rows of {columns} numbers take {human_bytes(needed)}"
            fix = "give folder= to keep them on disk, or a layer with fewer outputs"
            raise MemoryLimitError(f"{wrong}, and the limit is {human_bytes(limit)}; {fix}.")
        return np.empty((rows, columns), np.float32)

    def _batches(self, reading: Reading, columns: dict[str, list[Array]]) -> Iterator[Any]:
        """Yield features in batches, with a line of progress and the time limit."""
        # a callable gets selected rows only
        progress = False if callable(self.runtime.progress) else self.runtime.progress
        done = 0
        with ProgressLine(progress, self.clock, reading.rows, "embedding") as line:
            for batch in reading:
                self._check_time(f"after {done} of {reading.rows}")
                for name in {"y", "weight"} & batch.keys():
                    part = batch[name]
                    columns[name].append(np.asarray(part.cpu() if torch.is_tensor(part) else part))
                yield batch["x"]
                done += len(batch["x"])
                line.update(done)

    def _check_time(self, done: str) -> None:
        if self.clock.over:
            wrong = f"max_seconds={self.clock.max_seconds:g} was reached {done} rows were embedded"
            fix = "raise max_seconds, use more workers=, or folder=, which keeps finished shards"
            raise TimeLimitError(f"{wrong}; {fix}.")


def _as_dataset(x: Array, columns: dict[str, list[Array]]) -> Dataset:
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Dataset(x, whole.get("y"), whole.get("weight"))


class _Vectors(torch.nn.Module):
    """Embedding without a model: rows that are vectors or numbers."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() > 2:
            fix = "give model= (an encoder or a classifier)"
            raise InputError(f"items have shape {tuple(x.shape[1:])} and are not vectors; {fix}.")
        return x


@renamed_keywords(rows="n_rows")
def weighted_sampler(
    coreset: Coreset,
    n_rows: int | None = None,
    *,
    draws: int | None = None,
    random_state: RandomState = None,
) -> WeightedRandomSampler:
    """Draw the rows of a coreset with replacement, in proportion to their weights.

    Use it instead of a weighted loss, as the ``sampler`` of a loader.

    Parameters
    ----------
    coreset : Coreset
        The selection.
    n_rows : int, optional
        Number of rows of the data set that the loader reads: the sampler then yields rows of it.
        By default it yields places in the coreset, for a loader over
        ``torch.utils.data.Subset(dataset, coreset.indices)`` or a :class:`WeightedSubset`.
    draws : int, optional
        Points of one pass; default: the size of the coreset.
    random_state : int, Generator, RandomState or None
        Seed of the draws; default: torch's generator.

    Returns
    -------
    torch.utils.data.WeightedRandomSampler
        For any number of loaders.

    Raises
    ------
    InputError
        If all weights are 0, or an index is not below ``n_rows``.

    Examples
    --------
    >>> picked = Coreset(np.array([4, 2]), np.array([1.0, 3.0]))
    >>> set(weighted_sampler(picked, n_rows=6, draws=50, random_state=0)) == {2, 4}
    True
    """
    check_type("coreset", coreset, Coreset, "a Coreset")
    weights = coreset.normalise().weights
    if n_rows is not None:
        coreset.check_rows(check_integer("n_rows", n_rows), "data")
        weights = np.bincount(coreset.indices, weights, n_rows)
    seed = None if random_state is None else as_seed(random_state)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    count = len(coreset) if draws is None else check_integer("draws", draws)
    return WeightedRandomSampler(weights.tolist(), count, replacement=True, generator=generator)


class WeightedSubset(TorchDataset[Any]):
    """The selected rows in order of selection, each with its weight.

    An item (x, y, …) becomes ``(x, y, w)``; a dict keeps all its fields and gets a field
    ``"weight"``.

    Parameters
    ----------
    source : torch.utils.data.Dataset or bicore.Dataset
        A map-style data set whose items start with (x, y) or are dicts, or the data itself.
    coreset : Coreset
        A selection of the same rows.
    normalise : bool
        Whether to scale the weights to mean 1, for a mean loss.

    Raises
    ------
    InputError
        If the coreset has rows beyond the source; or, for a row, if a :class:`bicore.Dataset`
        has no labels, an item is no tuple or dict, or a dict has a field ``"weight"`` already.

    Examples
    --------
    >>> data = Dataset(np.eye(3), [0, 1, 1])
    >>> x, y, w = WeightedSubset(data, Coreset(np.array([2, 0])))[0]
    >>> int(y), float(w)
    (1, 1.0)
    """

    @renamed_keywords()
    def __init__(self, source: Items | Dataset, coreset: Coreset, normalise: bool = False) -> None:
        check_type("coreset", coreset, Coreset, "a Coreset")
        coreset.check_rows(len(source), "source")
        self.source = source
        self.coreset = coreset.normalise() if normalise else coreset
        self._weights = torch.tensor(self.coreset.weights, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.coreset)

    def __getitem__(self, place: int) -> Any:
        row = int(self.coreset.indices[place])
        if isinstance(self.source, Dataset):
            if self.source.y is None:
                raise InputError("source has no labels; a WeightedSubset yields (x, y, w).")
            return _item(self.source.x[row]), _item(self.source.y[row]), self._weights[place]
        item: Any = self.source[row]
        if not hasattr(item, "keys"):
            check_type("an item of source", item, (tuple, list), "(x, y, …) or a dict")
            return *item[:2], self._weights[place]
        if WEIGHT in item:
            raise InputError(f"items have a field {WEIGHT!r} already; rename it.")
        return {**item, WEIGHT: self._weights[place]}


def _item(value: Any) -> Any:
    """Convert a row to a float32 tensor and a label to a number tensor; text is unchanged."""
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return str(value)
    kind = np.float32 if array.dtype.kind == "f" else array.dtype
    return torch.from_numpy(np.array(array, dtype=kind))
