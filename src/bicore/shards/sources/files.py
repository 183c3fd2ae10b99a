"""From what a caller gives to files in a fixed order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

from bicore.errors import InputError

#: What names files: one, a folder, a pattern, or several of these.
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
#: Names that writers of tables leave beside their parts begin with one of these: _SUCCESS, .x.crc.
_PASSED_OVER = ("_", ".")


def find_files(given: Files, endings: tuple[str, ...], argument: str = "files") -> tuple[Path, ...]:
    """Files in the order of their names; several things given keep the order they were given in.

    Paths are absolute: whoever reads them may work in another folder.
    """
    return tuple(path.absolute() for path in _found(given, endings, argument))


@singledispatch
def _found(given: Any, endings: tuple[str, ...], argument: str) -> list[Path]:
    raise InputError(
        f"{argument} is a {type(given).__name__}; give a file, a folder, a pattern such as "
        f"'part-*{endings[0]}', or a list of files."
    )


@_found.register(str)
@_found.register(os.PathLike)
def _(given: str | os.PathLike[str], endings: tuple[str, ...], argument: str) -> list[Path]:
    path = Path(given)
    if path.is_dir():
        return _inside(path, endings, argument)
    if path.exists():
        return [path]
    if not glob.has_magic(str(given)):
        raise InputError(f"{argument}: {path} does not exist; check the name.")
    found = [Path(name) for name in sorted(glob.glob(str(given), recursive=True))]
    found = [path for path in found if path.is_file()]
    if not found:
        raise InputError(
            f"{argument}: no file matches {str(given)!r}; check the pattern and the folder it is "
            "seen from."
        )
    return found


@_found.register(list)
@_found.register(tuple)
def _(given: Sequence[Any], endings: tuple[str, ...], argument: str) -> list[Path]:
    if not given:
        raise InputError(f"{argument} is an empty list; give at least one file.")
    return [path for one in given for path in _found(one, endings, argument)]


def files_below(folder: Path) -> list[Path]:
    """All files of a folder and its folders in the order of their names, but those no reader of
    data wants."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        path
        for path in found
        if not any(name.startswith(_PASSED_OVER) for name in path.relative_to(folder).parts)
    )


def _inside(folder: Path, endings: tuple[str, ...], argument: str) -> list[Path]:
    found = [path for path in files_below(folder) if path.suffix.lower() in endings]
    if not found:
        raise InputError(
            f"{argument}: the folder {folder} holds no {' or '.join(endings)} file; check the name."
        )
    return found


def common_name(files: Sequence[Path]) -> str:
    """What a report calls these files: the one, or the folder and how many."""
    if len(files) == 1:
        return files[0].name
    return f"{common_folder(files).name} ({len(files)} files)"


def common_folder(files: Iterable[Path]) -> Path:
    """The deepest folder that holds them all."""
    return Path(os.path.commonpath([path.parent for path in files]))
