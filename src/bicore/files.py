"""Files: atomic replacement, locks, state files without pickle, and fingerprints of values.

A folder may be shared: another user can place a link where a file will be written, and two
processes can write the same file. Therefore new files are created under random names, files that
are continued are opened without following links, and a process locks the folder that it writes to.
A state file is an ``.npz`` of a JSON head and plain arrays.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import json
import os
import re
import secrets
import stat
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from bicore._deprecated import GONE_FIELDS, OLD_KINDS, describe_field
from bicore.errors import DamagedFileError, InputError, StorageError
from bicore.types import PathLike

#: Version of state files; files of other versions are refused with an error that names theirs.
FORMAT = 1
#: Characters of a file's name in the name of its temporary file, because the length of names is
#: limited.
MOST_STEM = 40

Array = np.ndarray[Any, Any]


@contextmanager
def replacing(path: PathLike, overwrite: bool = True) -> Iterator[Path]:
    """Yield a new file next to ``path`` to write to, and rename it if the block succeeds.

    The name of the new file is random. Without ``overwrite``, an error is raised if ``path`` exists
    when the block ends.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist; create it.")
    name = f".{target.stem[:MOST_STEM]}.{os.getpid()}-{secrets.token_hex(4)}.part{target.suffix}"
    temporary = target.with_name(name)
    mode = _mode_of(target)
    mode = 0o666 if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        if not overwrite:
            _move_new_file(temporary, target)
            return
        kept = _mode_of(target)
        if kept is not None:
            temporary.chmod(kept)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def explain_failed_writes(path: PathLike, words: str) -> Iterator[None]:
    """Raise a :class:`StorageError` with these words if the block cannot write a file."""
    try:
        yield
    except PermissionError:
        raise
    except OSError as error:
        fix = "free disk space and repeat the same call"
        raise StorageError(f"{error.strerror or error}: {words}; {fix} ({path}).") from error


def _mode_of(path: Path) -> int | None:
    """Return the permissions of a regular file; None for links and missing files."""
    with suppress(FileNotFoundError):
        found = os.lstat(path).st_mode
        return found & 0o777 if stat.S_ISREG(found) else None
    return None


def _move_new_file(finished: Path, target: Path) -> None:
    """Rename a finished file to ``target``, unless another process has created that."""
    try:
        os.link(finished, target)
    except FileExistsError as error:
        raise FileExistsError(error.errno, error.strerror, str(target)) from None
    except OSError:  # without hard links, reserve the name first
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(finished, target)


def open_regular_file(path: Path) -> int:
    """Return a descriptor of a regular file, created if missing; a link is refused."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    wrong = f"{path} must be a regular file; it is a link, a folder or a device"
    refused = InputError(f"{wrong}. Remove it.")
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise refused from None
        raise
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        raise refused
    return handle


class LockedFolder:
    """A folder that one process locks; ``fix`` is the advice in the error for other processes."""

    fix = "give another folder"

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{self.path} is not a folder; give the name of a folder.") from None
        self._lock = self._hold()
        return self

    def _hold(self) -> int:
        """Lock a file of the folder until the process ends."""
        import fcntl

        handle = open_regular_file(self.path / "lock")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 100, 0).decode(errors="replace") or "another process"
            os.close(handle)
            words = f"{self.path} is in use by {holder}; wait for it, or {self.fix}."
            raise InputError(words) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}".encode(), 0)
        return handle

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sync_folder(path: Path) -> None:
    """Flush a folder to disk, and with it the renames in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_state(
    path: PathLike,
    head: Mapping[str, Any],
    arrays: Mapping[str, Array],
    default: Callable[[Any], Any] | None = None,
) -> Path:
    """Write a JSON head, arrays and their checksum to an ``.npz`` that replaces the old file.

    ``default`` converts values that JSON does not know.
    """
    strange = [name for name, column in arrays.items() if column.dtype.kind == "O"]
    if strange:
        raise InputError(f"{', '.join(strange)} holds Python objects; use numbers or text.")
    text = json.dumps(head, default=default)
    parts = {"head": np.array(text), "checksum": np.array(_checksum(text, arrays)), **arrays}
    # np.savez of NumPy 1 leaves its archive open if a write fails.
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in parts.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
    return Path(path)


def read_state(
    path: PathLike, writer: str, version: int = FORMAT
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a file of :func:`write_state`; ``writer`` is the method that errors refer to."""
    # Read separately: an error of the disk is not damage of the file.
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; give {_file_of(writer)}.")
    content = Path(path).read_bytes()
    try:
        head, arrays = _unpack(content, version)
    except MemoryError:
        raise
    except Exception as error:  # a flipped bit can raise any error
        raise damaged_file_error(path, writer, error) from error
    if head.get("format") != version:
        kind = "coreset" if "provenance" in head else "state"
        if kind != _kind_of(writer):
            raise InputError(f"{path} is a {kind} file; give {_file_of(writer)}.")
        found = f"format {head.get('format')!r}, and this version reads format {version}"
        fix = f"give {_file_of(writer)}, or use the version that wrote it"
        raise InputError(f"{path} has {found}; {fix}.")
    return head, arrays


def _unpack(content: bytes, version: int) -> tuple[dict[str, Any], dict[str, Array]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    if any(one.compress_type != zipfile.ZIP_STORED for one in members):
        raise ValueError("its parts are compressed")
    if sum(one.file_size for one in members) > len(content):
        raise ValueError("its parts are larger than the file")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    text = str(arrays.pop("head"))
    head = json.loads(text)
    if not isinstance(head, dict):
        raise ValueError("its head is not an object")
    # Coresets of earlier versions have no checksum, states always had one.
    checksum = arrays.pop("checksum") if version == FORMAT else arrays.pop("checksum", None)
    known = checksum is not None and head.get("format") == version
    if known and str(checksum) != _checksum(text, arrays):
        raise ValueError("its checksum does not match")
    return head, arrays


def strip_prefix(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names start with a prefix, without it."""
    found = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in found}


def damaged_file_error(path: PathLike, writer: str, why: object) -> DamagedFileError:
    """Return the error for a file that cannot be read back."""
    reason = str(why).partition("\n")[0] or type(why).__name__
    reason = f"it has no {reason}" if isinstance(why, KeyError) else reason
    wrong = f"{path} is not a {_kind_of(writer)} file, or it is damaged ({reason})"
    return DamagedFileError(f"{wrong}; give {_file_of(writer)}.")


@contextmanager
def refuse_damage(path: PathLike, writer: str) -> Iterator[None]:
    """Raise the error for a damaged file if the block cannot use its content."""
    try:
        yield
    except InputError:  # about an argument
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_file_error(path, writer, repr(error)) from error


def _kind_of(writer: str) -> str:
    """Return the kind of file that a method writes, for errors."""
    return "coreset" if "Coreset" in writer else "state"


def _file_of(writer: str) -> str:
    """Return the kind of file to give instead, for errors."""
    ending = ".npz " if "Coreset" in writer else ""
    return f"a {ending}file written by {writer}"


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        column = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{column.dtype.str}{column.shape}".encode())
        digest.update(column.tobytes())
    return digest.hexdigest()


def fingerprint(configuration: object) -> str:
    """Return sixteen characters that identify a configuration by its values.

    Arrays, networks and functions count by their content, functions by their code, constants and
    closures; fields of a dataclass with the metadata ``counts=False`` do not count.
    """
    return hashlib.sha256(_describe(configuration).encode()).hexdigest()[:16]


def _describe(value: Any) -> str:
    """Return a text that equal values share, without memory addresses."""
    match value:
        case torch.nn.Module():
            return repr(value) + _describe(value.state_dict())
        case torch.Tensor():
            return _describe(value.detach().cpu().numpy())
        case np.ndarray():
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return f"{value.dtype.str}{value.shape}{content}"
        case types.FunctionType():
            return _describe_function(value)
        case Mapping():
            parts = (f"{name!r}:{_describe(part)}" for name, part in value.items())
            return "{" + ",".join(parts) + "}"
        case list() | tuple():
            return "[" + ",".join(_describe(part) for part in value) + "]"
        case _ if dataclasses.is_dataclass(type(value)):
            known = dataclasses.fields(value)
            counted = [one for one in known if one.metadata.get("in_fingerprint", True)]
            fields = {one.name: getattr(value, one.name) for one in counted}
            for one in counted:
                # A new field with its default value does not change the fingerprint.
                if one.metadata.get("added") and fields[one.name] == one.default:
                    del fields[one.name]
            kind = OLD_KINDS.get(type(value).__name__, type(value).__name__)
            texts = [describe_field(kind, name, _describe(part)) for name, part in fields.items()]
            if kind in GONE_FIELDS:
                texts.insert(*GONE_FIELDS[kind])
            return kind + "{" + ",".join(texts) + "}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _describe_function(value: types.FunctionType) -> str:
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    code = value.__code__
    # The code of an inner function is printed with an address and a file name, which are not
    # content.
    inner = [part for part in code.co_consts if not isinstance(part, types.CodeType)]
    parts = _describe([inner, cells, value.__defaults__])
    return f"{value.__qualname__}{code.co_code.hex()}{code.co_names}{parts}"
