"""Rows of torch's data sets and loaders: which field is which, and batches in the order of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data.dataloader import default_collate

from bicore.errors import InputError

#: Items that are read together where nothing is said.
BATCH = 256
#: What a field of a dict is called by people who do not say: the first that is there is taken.
_NAMES = {
    "x": ("x", "image", "images", "img", "pixel_values", "input", "inputs", "features", "data"),
    "y": ("y", "label", "labels", "target", "targets"),
}
#: The place of a field in an item that is a tuple.
_PLACES = {"x": 0, "y": 1}


def is_torch_data(thing: Any) -> bool:
    """Whether it is a data set or loader of torch, which an array would read item by item."""
    return any(base.__module__.startswith("torch.utils.data.") for base in type(thing).__mro__)


def is_loader(thing: Any) -> bool:
    """Whether it gives batches of a data set."""
    return hasattr(thing, "batch_sampler") and hasattr(thing, "dataset")


@dataclass(frozen=True)
class Fields:
    """Which fields of an item are features, labels and weights.

    Parameters
    ----------
    x, y, weight : str or int, optional
        A key of items that are dicts, a place in items that are tuples. By default the first two
        of a tuple, and in a dict what is usually called so; weights are read where they are named.

    Raises
    ------
    InputError
        When a field is asked for that an item has not.

    Examples
    --------
    >>> Fields().of({"image": 3.5, "label": 1, "path": "a.png"})
    {'x': 3.5, 'y': 1}
    >>> Fields(y=2).of((3.5, "a.png", 1))
    {'x': 3.5, 'y': 1}
    """

    x: str | int | None = None
    y: str | int | None = None
    weight: str | int | None = None

    def of(self, item: Any) -> dict[str, Any]:
        """Features, labels and weights of an item, or of a batch of them.

        Parameters
        ----------
        item : dict, tuple, list or anything
            What a data set or a loader gives; what is none of these is features.

        Returns
        -------
        dict
            ``"x"``, and ``"y"`` and ``"weight"`` where they are there.
        """
        return _fields(item, vars(self))


@singledispatch
def _fields(item: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    for name, field in asked.items():
        if field is not None:
            raise InputError(
                f"{name}={field!r} names a field, and items are a {type(item).__name__} without "
                "fields; leave it out."
            )
    return {"x": item}


@_fields.register(Mapping)
def _(item: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, field in asked.items():
        usual = [one for one in _NAMES.get(name, ()) if one in item]
        key = field if field is not None else next(iter(usual), None)
        if key is not None and key in item:
            found[name] = item[key]
        elif field is not None or name == "x":
            given = f"{name}={field!r} is none of them" if field is not None else "none is known"
            raise InputError(
                f"items are dicts with the fields {', '.join(map(repr, item))}, and {given} as "
                f"{name}; say {name}='…'."
            )
    return found


@_fields.register(tuple)
@_fields.register(list)
def _(item: Sequence[Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, field in asked.items():
        place = field if field is not None else _PLACES.get(name)
        if type(place) is int and 0 <= place < len(item):
            found[name] = item[place]
        elif field is not None or name == "x":
            raise InputError(
                f"{name}={field!r} is no place in items of {len(item)} fields; give a number from "
                f"0 to {len(item) - 1}."
            )
    return found


class _Rows(TorchDataset[tuple[Any, ...]]):
    """The named fields of the items of a data set and nothing else of them."""

    def __init__(self, source: Any, fields: Fields, transform: Any) -> None:
        self.source = source
        self.fields = fields
        self.transform = transform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        found = self.fields.of(self.source[row])
        if self.transform is not None:
            found["x"] = self.transform(found["x"])
        return tuple(found.values())


@dataclass(frozen=True)
class _Collated:
    """What a collate function of the user's makes of items, less what is not asked for."""

    collate: Any
    fields: Fields

    def __call__(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(self.fields.of(self.collate(items)).values())


@dataclass(frozen=True, eq=False)
class Reading:
    """A data set that is read once from its first row to its last.

    Parameters
    ----------
    loader : torch.utils.data.DataLoader
        Gives tuples of the columns named, in the order of the data set.
    rows : int
        How many there are.
    columns : tuple of str
        ``"x"``, and ``"y"`` and ``"weight"`` where they are there.
    seed : int
        Of what the data set itself may draw while it is read; the caller's generator stays as it
        is.

    Examples
    --------
    >>> reading = opened(torch.utils.data.TensorDataset(torch.ones(3, 2), torch.arange(3)))
    >>> [sorted(batch) for batch in reading]
    [['x', 'y']]
    """

    loader: Any
    rows: int
    columns: tuple[str, ...]
    seed: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # The caller's generator is put back before every batch is handed out, not at the end only.
        state = torch.Generator().manual_seed(self.seed).get_state()
        batches = iter(self.loader)
        for number in range(len(self.loader)):
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                batch = _next(batches, number)
                state = torch.get_rng_state()
            yield dict(zip(self.columns, batch, strict=True))


def _next(batches: Iterator[Any], number: int) -> Any:
    try:
        return next(batches)
    except (RuntimeError, TypeError) as error:
        why = str(error).strip().splitlines()[-1]
        raise InputError(
            f"the items of batch {number} do not make a batch ({why}); give a transform= that "
            "makes tensors of one shape, or a loader with a collate_fn."
        ) from error


def opened(
    data: Any,
    fields: Fields | None = None,
    *,
    batch_size: int | None = None,
    workers: int | None = None,
    transform: Any = None,
    seed: int = 0,
) -> Reading:
    """Make ready to read a data set once, in batches and in the order of its rows.

    Parameters
    ----------
    data : torch.utils.data.Dataset, DataLoader, or anything with ``len`` and places
        Of a loader its data set is read, with its batches, workers and collate function; whether
        it shuffles plays no part.
    fields : Fields, optional
        What the fields of an item are.
    batch_size, workers : int, optional
        Items that are read together, and processes that read; default: the loader's, else 256 and
        none.
    transform : callable, optional
        Makes a tensor of the features of one item.
    seed : int
        Of what the data set draws.

    Returns
    -------
    Reading
        Nothing but the first item is read yet.

    Raises
    ------
    InputError
        Where rows have no places in the data set, or the first item is no tensors.
    """
    fields = fields or Fields()
    given = data if is_loader(data) else None
    source = data if given is None else given.dataset
    _check(source, given)
    own = given is not None and given.collate_fn is not default_collate
    if own and transform is not None:
        raise InputError(
            "transform= makes features of one item, and this loader has a collate_fn that makes "
            "batches; put the transform into it, or give the data set."
        )
    read = source if own else _Rows(source, fields, transform)
    collate = _Collated(given.collate_fn, fields) if own and given is not None else None
    size = batch_size or (given.batch_size if given is not None else BATCH)
    loader = DataLoader(
        read,
        batch_size=size,
        num_workers=_workers(workers, given),
        collate_fn=collate,
        pin_memory=bool(given is not None and given.pin_memory),
        worker_init_fn=None if given is None else given.worker_init_fn,
        multiprocessing_context=None if given is None else given.multiprocessing_context,
        generator=torch.Generator().manual_seed(seed),
    )
    return Reading(loader, len(source), _columns(source, given, fields, transform, own), seed)


def _workers(workers: int | None, given: Any) -> int:
    if workers is not None:
        return workers
    return 0 if given is None else int(given.num_workers)


def _check(source: Any, given: Any) -> None:
    """Refuse what has no places, or a loader that reads others than all rows of its data set."""
    if issubclass(type(source), IterableDataset) or not hasattr(source, "__getitem__"):
        raise InputError(
            f"{type(source).__name__} has no places that rows could be named by; give a data set "
            "with len() and [row], or embed it with bicore.shards.embedded."
        )
    if not len(source):
        raise InputError(f"{type(source).__name__} has no rows; give at least one.")
    if given is None:
        return
    sampler = given.sampler
    whole = type(sampler) in (SequentialSampler, RandomSampler)
    if not whole or getattr(sampler, "replacement", False) or given.batch_size is None:
        raise InputError(
            "this loader reads its data set by a sampler of its own, and rows would lose their "
            "places; give loader.dataset, or torch.utils.data.Subset(dataset, rows)."
        )


def _columns(source: Any, given: Any, fields: Fields, transform: Any, own: bool) -> tuple[str, ...]:
    """Which columns a batch will have, by the first item; strange ones are refused in words."""
    first = source[0]
    if own:
        return tuple(fields.of(given.collate_fn([first])))
    found = fields.of(first)
    if transform is not None:
        found["x"] = transform(found["x"])
    for name, value in found.items():
        try:
            default_collate([value])
        except TypeError as error:
            mend = "give transform=, which makes a tensor of it" if name == "x" else f"say {name}="
            raise InputError(
                f"{name} of the first item is a {type(value).__name__}, and no batch can be made "
                f"of it; {mend}."
            ) from error
    return tuple(found)
