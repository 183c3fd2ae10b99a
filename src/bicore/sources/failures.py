"""Files that cannot be read, in one line with the mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bicore.errors import BicoreError, InputError

#: What the system's refusals mean for a file.
_REFUSALS = {
    FileNotFoundError: "does not exist; check the name.",
    PermissionError: "cannot be read: no permission; change its mode or copy it.",
    IsADirectoryError: "is a folder; give a file.",
}
#: Characters of somebody else's message that are passed on.
_LONGEST = 200


def unreadable(path: Path, kind: str, error: BaseException) -> InputError:
    """The error for a file that is not what its name says, cut short, or not ours to read."""
    for refusal, words in _REFUSALS.items():
        if isinstance(error, refusal):
            return InputError(f"{path} {words}")
    first = (str(error).splitlines() or [""])[0][:_LONGEST] or type(error).__name__
    return InputError(
        f"{path} is not a readable {kind} ({first}); it may be truncated or of another format."
    )


@contextmanager
def foreign(path: Path, kind: str) -> Iterator[None]:
    """Whatever fails inside while a foreign file is decoded is a file that cannot be read.

    A damaged file fails in any number of ways, and each library has its own; running out of memory
    is one of them, for a damaged size asks for anything.
    """
    try:
        yield
    except BicoreError:
        raise
    except Exception as error:
        raise unreadable(path, kind, error) from error
