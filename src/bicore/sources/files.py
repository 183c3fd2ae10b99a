"""Files that hold data: which ones are meant, and errors for those that cannot be read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bicore.errors import BicoreError, InputError
from bicore.sources.parts import common_folder

#: A file, a folder, a pattern, or several of these.
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
#: Files that writers of tables leave next to their parts, such as _SUCCESS and .x.crc.
_SKIPPED = ("_", ".")
_REFUSALS = {
    FileNotFoundError: "does not exist; check the name.",
    PermissionError: "cannot be read: no permission; change its mode or copy it.",
    IsADirectoryError: "is a folder; give a file.",
}
#: Characters of another library's message that are passed on.
_LONGEST = 200


def find_files(given: Files, endings: tuple[str, ...], argument: str = "files") -> tuple[Path, ...]:
    """Find files in the order of their names; several things given keep their order.

    Paths are absolute: another process may work in another folder.
    """
    if isinstance(given, (list, tuple)):
        if not given:
            raise InputError(f"{argument} is an empty list; give at least one file.")
        return tuple(path for one in given for path in find_files(one, endings, argument))
    if not isinstance(given, (str, os.PathLike)):
        raise InputError(
            f"{argument} is a {type(given).__name__}; give a file, a folder, a pattern such as "
            f"'part-*{endings[0]}', or a list of files."
        )
    path = Path(given)
    if path.is_dir():
        found = [one for one in files_below(path) if one.suffix.lower() in endings]
    elif path.exists():
        found = [path]
    elif glob.has_magic(str(given)):
        matches = map(Path, sorted(glob.glob(str(given), recursive=True)))
        found = [one for one in matches if one.is_file()]
    else:
        raise InputError(f"{argument}: {path} does not exist; check the name.")
    if not found:
        raise InputError(f"{argument}: no {' or '.join(endings)} file matches {str(given)!r}.")
    return tuple(one.absolute() for one in found)


def files_below(folder: Path) -> list[Path]:
    """All files of a folder and its folders by name, without hidden ones and logs of writers."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(name.startswith(_SKIPPED) for name in path.relative_to(folder).parts)
    )


def common_name(files: Sequence[Path]) -> str:
    """A name for files in reports: the one, or the folder and their number."""
    if len(files) == 1:
        return files[0].name
    return f"{common_folder(files).name} ({len(files)} files)"


def unreadable(path: Path, kind: str, error: BaseException) -> InputError:
    """The error for a file that is damaged, of another format or may not be read."""
    for refusal, words in _REFUSALS.items():
        if isinstance(error, refusal):
            return InputError(f"{path} {words}")
    first = (str(error).splitlines() or [""])[0][:_LONGEST] or type(error).__name__
    return InputError(
        f"{path} is not a readable {kind} ({first}); it may be truncated or of another format."
    )


@contextmanager
def foreign(path: Path, kind: str) -> Iterator[None]:
    """Report any failure inside as a file that cannot be read.

    A damaged file fails in many ways, and each library has its own; running out of memory is one
    of them, for a damaged size asks for anything.
    """
    try:
        yield
    except BicoreError:
        raise
    except Exception as error:
        raise unreadable(path, kind, error) from error
