"""State files: a JSON head and plain arrays in an ``.npz``, with a checksum and without pickle, written beside and renamed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import DamagedFileError
from bicore.files import replacing

#: Version of the files; another one is refused by name.
FORMAT = 1


def write_state(path: str | os.PathLike[str], head: Mapping[str, Any], arrays: Mapping[str, Array]) -> Path:
    """Write both so that a file of that name is whole at every moment."""
    text, target = json.dumps(head), Path(path)
    with replacing(target) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, head=np.array(text), checksum=np.array(_checksum(text, arrays)), **arrays)
    return target


def read_state(path: str | os.PathLike[str], writer: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """What :func:`write_state` wrote, its checksum verified; ``writer`` is the method that errors refer to."""
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise ValueError("it holds a single array")
        with stored:
            arrays = {name: stored[name] for name in stored.files}
        text, checksum = str(arrays.pop("head")), str(arrays.pop("checksum"))
        if checksum != _checksum(text, arrays):
            raise ValueError("its checksum does not hold: the file is damaged")
        head = json.loads(text)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise damaged(path, writer, str(error)) from error
    if not isinstance(head, dict):
        raise damaged(path, writer, "its head is no object")
    return head, arrays


def damaged(path: str | os.PathLike[str], writer: str, why: str) -> DamagedFileError:
    return DamagedFileError(f"{path} is not a state file, or damaged ({why}); give a file written by {writer}.")


def fingerprint(configuration: object) -> str:
    """Sixteen characters that name a configuration; where an object lives in memory plays no part."""
    words = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(configuration))
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        column = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{column.dtype.str}{column.shape}".encode())
        digest.update(column.tobytes())
    return digest.hexdigest()
