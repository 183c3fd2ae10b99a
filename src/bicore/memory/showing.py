"""What a memory is shown by torch: tensors, data sets and loaders, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from bicore.errors import InputError
from bicore.networks.loading import BATCH, Fields, is_loader, is_torch_data

#: Which field of an item each further column is.
Extra = Mapping[str, str | int]


def shown(data: Any, fields: Fields, extra: Extra | None) -> Iterator[dict[str, Any]]:
    """Batches as the arguments of ``update``; a loader's own order is that of the stream."""
    if not (is_loader(data) or is_torch_data(data)):
        yield _arguments(data)
        return
    for batch in data if is_loader(data) else DataLoader(data, batch_size=BATCH):
        columns = {name: _field(batch, field) for name, field in (extra or {}).items()}
        yield {**fields.of(batch), "extra": columns or None}


def gathered(batches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of all batches as those of one."""
    parts = [dict(batch) for batch in batches]
    if not parts:
        raise InputError("data gives no batch; a task has at least one row.")
    extras = [part.pop("extra", None) or {} for part in parts]
    whole = {name: _joined([part[name] for part in parts]) for name in parts[0]}
    extra = {name: _joined([part[name] for part in extras]) for name in extras[0]}
    return {**whole, "extra": extra or None}


def _field(batch: Any, field: str | int) -> Any:
    try:
        return batch[field]
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"extra asks for the field {field!r}, which no item has.") from error


def _joined(parts: list[Any]) -> Any:
    return np.concatenate([part.cpu() if torch.is_tensor(part) else part for part in parts])


@singledispatch
def _arguments(data: Any) -> dict[str, Any]:
    return {"x": data}


@_arguments.register(tuple)
@_arguments.register(list)
def _(data: Any) -> dict[str, Any]:
    return dict(zip(("x", "y", "weight"), data, strict=False))
