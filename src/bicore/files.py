"""Files that are either the old one or the new one, and that nobody else can lead astray.

A folder may be shared: somebody can lie in wait with a link where a file is about to be written,
and two processes can mean the same file. So new files are made under a name that nobody can guess,
files that are gone on with are opened without following links, and who works on one holds its lock.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bicore.errors import InputError

#: Characters of a name that stand in the one of the file beside it: names have a longest length.
MOST_STEM = 40
#: How often a lock is looked for anew whose file vanished just then: more is no accident.
TRIES = 100


@contextmanager
def replacing(path: str | os.PathLike[str], overwrite: bool = True) -> Iterator[Path]:
    """Yield a new file next to ``path`` to write to, and rename it if the block succeeds.

    Nobody can guess its name. Without ``overwrite`` a file that exists by then is an error.
    """
    target = Path(path)
    name = f".{target.stem[:MOST_STEM]}.{os.getpid()}-{secrets.token_hex(4)}.part{target.suffix}"
    beside = target.with_name(name)
    mode = _mode_of(target)
    mode = 0o666 if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield beside
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        if overwrite:
            replace_keeping_mode(beside, target)
        else:
            _name_new(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def replace_keeping_mode(finished: Path, target: Path) -> None:
    """Rename a finished file to ``target``; the mode of a file that it replaces is kept."""
    mode = _mode_of(target)
    if mode is not None:
        finished.chmod(mode)
    os.replace(finished, target)


def _mode_of(path: Path) -> int | None:
    """The permissions of a regular file; None for links and if there is no file."""
    with suppress(FileNotFoundError):
        found = os.lstat(path).st_mode
        return found & 0o777 if stat.S_ISREG(found) else None
    return None


def _name_new(finished: Path, target: Path) -> None:
    """Give a finished file the name ``target``, which nobody else may have taken meanwhile."""
    try:
        os.link(finished, target)
    except FileExistsError as error:
        raise FileExistsError(error.errno, error.strerror, str(target)) from None
    except OSError:  # the file system has no hard links: take the name first
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(finished, target)


def open_own(path: Path) -> int:
    """A descriptor of a plain file, made where there is none; a link in its place is refused."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    refused = InputError(
        f"{path} is not a plain file of its own but a link, a folder or a device; remove it, or "
        "choose another place."
    )
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


def hold(path: Path, what: str, mend: str) -> int:
    """A lock that dies with the process, as the descriptor of its file; close it to let go.

    While another process holds it, ``what`` is in use, and ``mend`` says what to do instead.
    """
    import fcntl

    for _ in range(TRIES):
        handle = open_own(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 100, 0).decode(errors="replace") or "another process"
            os.close(handle)
            raise InputError(f"{what} is in use by {holder}; wait for it, or {mend}.") from None
        if _names(path, handle):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()}".encode(), 0)
            return handle
        os.close(handle)  # whoever held it removed it before it let go
    raise InputError(f"{path} is made and removed again and again; {mend}.")


def _names(path: Path, handle: int) -> bool:
    """Whether a path still is the name of an open file."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def sync_folder(path: Path) -> None:
    """A rename is on disk once the folder is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
