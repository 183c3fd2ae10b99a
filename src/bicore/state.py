"""State files: a JSON head and plain arrays in an ``.npz``, with a checksum and without pickle.

They are written beside and renamed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import types
from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.archives import write_arrays
from bicore.data import Array, Dataset
from bicore.errors import DamagedFileError, InputError
from bicore.files import replacing

#: Version of the files; another one is refused by name.
FORMAT = 1


def write_state(
    path: str | os.PathLike[str], head: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Path:
    """Write both so that a file of that name is whole at every moment."""
    text = json.dumps(head)
    target = Path(path)
    strange = [name for name, column in arrays.items() if column.dtype.kind == "O"]
    if strange:
        raise InputError(
            f"{', '.join(strange)} holds Python objects, which no state file takes; use numbers or "
            "text."
        )
    columns: dict[str, Any] = {
        "head": np.array(text),
        "checksum": np.array(_checksum(text, arrays)),
        **arrays,
    }
    with replacing(target) as beside, open(beside, "wb") as file:
        write_arrays(file, columns)
    return target


def read_state(
    path: str | os.PathLike[str], writer: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What :func:`write_state` wrote, its checksum verified.

    ``writer`` is the method that errors refer to.
    """
    # Read apart from the rest: what the disk refuses is not the file's fault.
    content = io.BytesIO(Path(path).read_bytes())
    try:
        head, arrays = _unpacked(content)
    except MemoryError:
        raise
    except Exception as error:  # a flipped bit makes the reader of the archive raise anything
        raise damaged(path, writer, str(error)) from error
    if head.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {head.get('format')!r}, and this version reads format {FORMAT}; "
            "use the one that wrote it."
        )
    return head, arrays


def _unpacked(content: io.BytesIO) -> tuple[dict[str, Any], dict[str, Array]]:
    stored = np.load(content, allow_pickle=False)
    if isinstance(stored, np.ndarray):
        raise ValueError("it holds a single array")
    with stored:
        arrays = {name: stored[name] for name in stored.files}
    text = str(arrays.pop("head"))
    checksum = str(arrays.pop("checksum"))
    head = json.loads(text)
    if not isinstance(head, dict):
        raise ValueError("its head is no object")
    if checksum != _checksum(text, arrays) and head.get("format") == FORMAT:
        raise ValueError("its checksum does not hold")
    return head, arrays


def damaged(path: str | os.PathLike[str], writer: str, why: str) -> DamagedFileError:
    """The error for a file that cannot be read back."""
    return DamagedFileError(
        f"{path} is not a state file, or damaged ({why}); give a file written by {writer}."
    )


def fingerprint(configuration: object) -> str:
    """Sixteen characters that name a configuration by the values it holds.

    Arrays, networks and functions count by their content; a function by its code, constants and
    what it closes over, not by what those call in turn.
    """
    return hashlib.sha256(_described(configuration).encode()).hexdigest()[:16]


@singledispatch
def _described(value: Any) -> str:
    """A text that two values share where they are the same; without addresses in memory."""
    if dataclasses.is_dataclass(type(value)):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value).__name__ + _described(fields)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


@_described.register(Dataset)
def _(value: Dataset) -> str:
    # Extra columns decide nothing, and fingerprints from before there were any still hold.
    columns = {name: getattr(value, name) for name in ("x", "y", "weight", "ids")}
    return type(value).__name__ + _described(columns)


@_described.register(torch.nn.Module)
def _(value: torch.nn.Module) -> str:
    return repr(value) + _described(value.state_dict())


@_described.register(torch.Tensor)
def _(value: torch.Tensor) -> str:
    return _described(value.detach().cpu().numpy())


@_described.register(np.ndarray)
def _(value: Array) -> str:
    content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return f"{value.dtype.str}{value.shape}{content}"


@_described.register(types.FunctionType)
def _(value: types.FunctionType) -> str:
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    code = value.__code__
    # The code of a function inside it shows as an address and a file name, which are no content.
    inner = [part for part in code.co_consts if not isinstance(part, types.CodeType)]
    parts = _described([inner, cells, value.__defaults__])
    return f"{value.__qualname__}{code.co_code.hex()}{code.co_names}{parts}"


@_described.register(Mapping)
def _(value: Mapping[Any, Any]) -> str:
    return "{" + ",".join(f"{name!r}:{_described(part)}" for name, part in value.items()) + "}"


@_described.register(list)
@_described.register(tuple)
def _(value: list[Any] | tuple[Any, ...]) -> str:
    return "[" + ",".join(_described(part) for part in value) + "]"


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        column = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{column.dtype.str}{column.shape}".encode())
        digest.update(column.tobytes())
    return digest.hexdigest()
