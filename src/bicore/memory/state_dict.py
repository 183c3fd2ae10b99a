"""A memory's state as torch's checkpoints hold it: a dict of tensors and plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import InputError
from bicore.state import FORMAT

#: The entry beside the arrays: everything else, as JSON.
_HEAD = "head"


def packed(head: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """A head and arrays as ``torch.save`` writes and ``torch.load(…, weights_only=True)`` reads.

    Text, which no tensor holds, becomes lists. Everything is a copy.
    """
    columns = {name: _value(column) for name, column in arrays.items()}
    return {_HEAD: json.dumps(head), **columns}


def unpacked(
    state: Any, kind: str, configuration: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The inverse of :func:`packed`, for a memory of this kind and configuration and no other."""
    try:
        head = dict(json.loads(state[_HEAD]))
        arrays = {name: _array(value) for name, value in state.items() if name != _HEAD}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise no_state(repr(error)) from error
    if head.get("format") != FORMAT or head.get("buffer", head.get("memory")) != kind:
        raise InputError(
            f"state is of a {head.get('buffer', head.get('memory'))} in format "
            f"{head.get('format')!r}, and this is a {kind} that reads format {FORMAT}."
        )
    own = json.loads(json.dumps(configuration))
    given = head.get("configuration", {})
    changed = [name for name in own if own[name] != given.get(name)]
    if changed:
        words = ", ".join(f"{name}={given.get(name)!r}" for name in changed)
        raise InputError(
            f"state is of a {kind} with {words}, and here it is "
            f"{', '.join(repr(own[name]) for name in changed)}; build this one like that one."
        )
    return head, arrays


def no_state(why: str) -> InputError:
    """The error for what is no state of a memory."""
    return InputError(f"state holds no whole memory ({why}); give what state_dict() returned.")


def _value(column: Array) -> Any:
    if column.dtype.kind == "U":
        return column.tolist()
    return torch.from_numpy(np.array(column, order="C"))


def _array(value: Any) -> Array:
    if torch.is_tensor(value):
        return np.array(value.detach().cpu().numpy())
    return np.array(value, dtype=np.str_)
