"""The state of a buffer in a folder: the two newest files, never a half-written one.

One process at a time holds the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from bicore.errors import DamagedFileError, InputError
from bicore.files import hold, sync_folder
from bicore.memory.buffer import Buffer

B = TypeVar("B", bound=Buffer)
#: Files kept: the newest, and the one before it should that be damaged.
KEPT = 2


class StateFolder:
    """A folder of states that one process holds.

    A file is named after the rows seen when it was written. Loading takes the newest; one that is
    damaged is named in ``notes`` and the one before it is used. A file of another format or
    configuration is refused, not passed over.

    Parameters
    ----------
    path : path
        The folder; it is made where there is none. Entering it raises an ``InputError`` while
        another process is in it.

    Examples
    --------
    >>> import tempfile
    >>> from bicore.memory import Reservoir
    >>> with tempfile.TemporaryDirectory() as folder, StateFolder(folder) as store:
    ...     file = store.save(Reservoir(capacity=3).update([[0.0], [1.0]]))
    ...     file.name, len(store.load(Reservoir.load))
    ('state-000000000000002.npz', 2)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.notes: list[str] = []
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(
                f"{self.path} is a file, or lies in one; a state needs a folder: give another name."
            ) from None
        self._lock = hold(self.path / "lock", str(self.path), "give another --state folder")
        for leftover in self.path.glob(".state-*.part*"):
            leftover.unlink()  # a write that a crash cut short; the lock says nobody else is at it
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def files(self) -> list[Path]:
        """State files, newest first.

        Returns
        -------
        list of Path
            At most two, but for files that were put there by hand.
        """
        return sorted(self.path.glob("state-*.npz"), reverse=True)

    def load(self, read: Callable[[Path], B]) -> B | None:
        """The newest state that is whole.

        Parameters
        ----------
        read : callable
            Makes a buffer of a file, such as ``Reservoir.load``.

        Returns
        -------
        Buffer or None
            None in an empty folder.

        Raises
        ------
        InputError
            Where every file is damaged, or one is of another format or configuration.
        """
        files = self.files()
        for path in files:
            try:
                return read(path)
            except DamagedFileError as error:
                self.notes.append(str(error).rstrip("."))
        if files:
            raise InputError(
                f"every state file in {self.path} is damaged ({'; '.join(self.notes)}); restore "
                "one, or empty the folder."
            )
        return None

    def set_aside(self, used: int) -> None:
        """Put damaged files out of the way of those that will be written.

        Parameters
        ----------
        used : int
            Rows seen by the state in use; files that are newer than it get another name.
        """
        for path in self.files():
            if path.name > f"state-{used:015d}.npz":
                path.rename(path.with_name(f"damaged-{path.name}"))

    def save(self, buffer: Buffer) -> Path:
        """Write the state beside, rename, then let go of files older than the one before.

        Parameters
        ----------
        buffer : Buffer
            What is to be found again.

        Returns
        -------
        Path
            The file, on disk.
        """
        path = buffer.save(self.path / f"state-{buffer.position:015d}.npz")
        sync_folder(self.path)
        for old in self.files()[KEPT:]:
            old.unlink()
        return path
