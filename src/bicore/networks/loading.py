"""Data sets and loaders of torch: the fields of an item, and batches in the order of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import default_collate

from bicore.errors import InputError, check_integer

#: Default number of items read at a time.
BATCH = 256
#: The usual place of a field in a tuple, and its names in a dict; the first that exists is used.
_USUAL: dict[str, tuple[int | str, ...]] = {
    "x": (0, "x", "image", "images", "img", "pixel_values", "input", "inputs", "features", "data"),
    "y": (1, "y", "label", "labels", "target", "targets"),
}


def is_torch_data(thing: Any) -> bool:
    """Whether this is a torch data set or loader, which NumPy would read item by item."""
    return any(base.__module__.startswith("torch.utils.data.") for base in type(thing).__mro__)


def is_loader(thing: Any) -> bool:
    """Whether this is a loader, which yields batches of a data set."""
    return hasattr(thing, "batch_sampler") and hasattr(thing, "dataset")


@dataclass(frozen=True)
class Fields:
    """The fields of an item that are features, labels and weights."""

    x: str | int | None = None
    y: str | int | None = None
    weight: str | int | None = None

    def of(self, item: Any) -> dict[str, Any]:
        """Return features, labels and weights of an item or a batch."""
        columns = _columns_of(item)
        found = {}
        for name, field in vars(self).items():
            known = _USUAL.get(name, ()) if field is None else (field,)
            key = next((one for one in known if one in columns), None)
            if key is not None:
                found[name] = columns[key]
            elif field is not None or (name == "x" and columns):
                asked = f"{name}={field!r}" if field is not None else f"the field of {name}"
                raise InputError(
                    f"{asked} was not found: the items have {_describe(item)}; name the field by "
                    f"{name}=…, or leave {name} out."
                )
        return found or {"x": item}


def _columns_of(item: Any) -> Mapping[Any, Any]:
    """Return the fields of an item by name or place; none for a tensor or an image."""
    if isinstance(item, Mapping):
        return item
    return dict(enumerate(item)) if isinstance(item, (tuple, list)) else {}


def _describe(item: Any) -> str:
    if isinstance(item, Mapping):
        return f"the fields {', '.join(map(repr, item))}"
    return f"the places 0 to {len(item) - 1}" if isinstance(item, (tuple, list)) else "no fields"


@dataclass(frozen=True)
class _Collate:
    """Builds a batch of items, with the named fields only.

    ``custom`` is the user's own function, which makes a batch of whole items.
    """

    fields: Fields
    transform: Any
    custom: Any

    def __call__(self, items: list[Any]) -> tuple[Any, ...]:
        if self.custom is not None:
            found = self.fields.of(self.custom(items))
            if len(found["x"]) != len(items):
                made = f"collate_fn made {len(found['x'])} rows of {len(items)} items"
                raise InputError(f"{made}; return one row per item, so that positions are known.")
            return tuple(found.values())
        batch: list[Any] = default_collate([tuple(self.item(item).values()) for item in items])
        return tuple(batch)

    def item(self, item: Any) -> dict[str, Any]:
        found = self.fields.of(item)
        if self.transform is not None:
            found["x"] = self.transform(found["x"])
        return found

    def columns(self, item: Any) -> tuple[str, ...]:
        """Return the columns of a batch, as in its first item."""
        return tuple(self.fields.of(item if self.custom is None else self.custom([item])))


@dataclass(frozen=True, eq=False)
class Reading:
    """A data set that is read once, from the first row to the last."""

    loader: Any
    rows: int
    columns: tuple[str, ...]
    seed: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # The caller's generator is restored before every batch, not only at the end.
        state = torch.Generator().manual_seed(self.seed).get_state()
        batches = iter(self.loader)
        for number in range(len(self.loader)):
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                batch = _next_batch(batches, number)
                state = torch.get_rng_state()
            yield dict(zip(self.columns, batch, strict=True))

    def items(self, rows: list[int]) -> Any:
        """Return the features of some rows as a batch."""
        return self.loader.collate_fn([self.loader.dataset[row] for row in rows])[0]


def _next_batch(batches: Iterator[Any], number: int) -> Any:
    try:
        return next(batches)
    except (RuntimeError, TypeError) as error:
        why = str(error).strip().splitlines()[-1]
        raise InputError(
            f"the items of batch {number} cannot be combined ({why}); give a transform that "
            "returns tensors of one shape, another field as y, or a loader with a collate_fn."
        ) from error


def open_data(
    data: Any,
    fields: Fields | None = None,
    *,
    batch_size: int | None = None,
    workers: int | None = None,
    transform: Any = None,
    seed: int = 0,
) -> Reading:
    """Prepare to read a data set once, in batches and in row order."""
    given = data if is_loader(data) else None
    source = data if given is None else given.dataset
    _check_places(source)
    custom = None
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": 0}
    if given is not None:
        _check_sampler(given)
        custom = given.collate_fn if given.collate_fn is not default_collate else None
        kept = ("batch_size", "num_workers", "worker_init_fn", "multiprocessing_context")
        options = {name: getattr(given, name) for name in kept}
        options["pin_memory"] = bool(given.pin_memory)
    if custom is not None and transform is not None:
        raise InputError(
            "transform applies to single items, and the collate_fn of this loader returns batches; "
            "apply the transform in collate_fn, or give the data set instead of the loader."
        )
    if batch_size is not None:
        options["batch_size"] = check_integer("batch_size", batch_size)
    if workers is not None:
        options["num_workers"] = check_integer("workers", workers, 0)
    collate = _Collate(fields or Fields(), transform, custom)
    with torch.random.fork_rng(devices=[]):  # the first item may draw random numbers
        columns = collate.columns(source[0])
    generator = torch.Generator().manual_seed(seed)
    loader: Any = DataLoader(source, collate_fn=collate, generator=generator, **options)
    return Reading(loader, len(source), columns, seed)


def _check_places(source: Any) -> None:
    if isinstance(source, IterableDataset) or not hasattr(source, "__getitem__"):
        raise InputError(
            f"{type(source).__name__} has no row positions; give a data set "
            "with len() and [row], or embed it with bicore.sources.embed_to_folder."
        )
    if not len(source):
        raise InputError(f"{type(source).__name__} has no rows; give at least one.")


def _check_sampler(loader: Any) -> None:
    """Refuse a loader that does not read every row exactly once."""
    whole = type(loader.sampler) in (SequentialSampler, RandomSampler)
    if not whole or getattr(loader.sampler, "replacement", False) or loader.batch_size is None:
        raise InputError(
            "this loader has its own sampler, so the positions of rows in the data set would "
            "be lost; give loader.dataset, or torch.utils.data.Subset(dataset, rows)."
        )
