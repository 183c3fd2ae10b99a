"""State files: a JSON head and plain arrays in an ``.npz``, with a checksum and without pickle,
written beside and renamed."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.data import Array
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
        np.savez(file, **columns)
    return target


def read_state(
    path: str | os.PathLike[str], writer: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What :func:`write_state` wrote, its checksum verified; ``writer`` is the method that errors
    refer to."""
    content = io.BytesIO(Path(path).read_bytes())  # what the disk refuses is not the file's fault
    try:
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


def damaged(path: str | os.PathLike[str], writer: str, why: str) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is not a state file, or damaged ({why}); give a file written by {writer}."
    )


def fingerprint(configuration: object) -> str:
    """Sixteen characters that name a configuration: the values it holds, arrays, networks and
    functions by their content.

    A function counts by its code, constants and what it closes over, not by what those call in
    turn.
    """
    return hashlib.sha256(_described(configuration).encode()).hexdigest()[:16]


def _described(value: Any) -> str:
    if isinstance(value, torch.nn.Module):
        return repr(value) + _described(value.state_dict())
    if isinstance(value, torch.Tensor):
        return _described(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        code = value.__code__
        inner = [part for part in code.co_consts if not isinstance(part, types.CodeType)]
        return f"{value.__qualname__}{code.co_code.hex()}{code.co_names}" + _described(
            [inner, cells, value.__defaults__]
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value).__name__ + _described(fields)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name!r}:{_described(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_described(part) for part in value) + "]"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        column = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{column.dtype.str}{column.shape}".encode())
        digest.update(column.tobytes())
    return digest.hexdigest()
