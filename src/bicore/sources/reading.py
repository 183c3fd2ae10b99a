"""Options for reading a source, the roles of columns, the memory limit, and files."""

from __future__ import annotations

import csv
import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicore._deprecated import renamed_fields
from bicore.errors import (
    BicoreError,
    InputError,
    MemoryLimitError,
    check_integer,
    did_you_mean,
    unknown_name,
)
from bicore.runtime.context import DEFAULT_MEMORY, human_bytes, parse_bytes
from bicore.types import PathLike

#: Bytes of a feature in float64.
NUMBER = 8
#: Copies of the features: the matrix, and the scaled one.
COPIES = 2
#: Copies of cells: as read, and cleaned.
CELL_COPIES = 2
#: Maximum number of columns named in a message.
MOST_NAMES = 10
#: Options of tables, and of those in text.
TABLE_OPTIONS = (
    *("target", "sample_weight", "columns", "drop", "drop_missing_target", "decimal", "missing"),
    "embeddings",
)
TEXT_OPTIONS = (*TABLE_OPTIONS, "encoding")


@dataclass(frozen=True)
class Allowance:
    """The memory that reading may take, checked before allocation; ``held`` bytes are in use."""

    limit: int = DEFAULT_MEMORY
    held: int = 0

    @classmethod
    def of(cls, memory: int | str | None) -> Allowance:
        """Parse a limit; the default is the same on every machine."""
        return cls(parse_bytes(memory) or DEFAULT_MEMORY)

    def require(self, size: int, what: str) -> None:
        """Raise an error if ``size`` bytes exceed the limit."""
        if size + self.held > self.limit:
            held = f" on top of the {human_bytes(self.held)} of its cells" if self.held else ""
            wrong = f"{what} would take {human_bytes(size)}{held}, and the memory limit is"
            fix = "raise --memory, or take fewer rows with --limit"
            raise MemoryLimitError(f"{wrong} {human_bytes(self.limit)}; {fix}.")


@renamed_fields()
@dataclass(frozen=True)
class Reading:
    """Options for reading a source."""

    target: str | None = None
    labels: str | None = None
    sample_weight: str | None = None
    data: str | None = None
    limit: int | None = None
    allowance: Allowance = Allowance()
    columns: str | Sequence[str] | None = None
    drop: str | Sequence[str] | None = None
    drop_missing_target: bool = False
    decimal: str | None = None
    missing: str | None = None
    encoding: str | None = None
    needs_target: bool = False
    resize: int | None = None
    embeddings: str | None = None

    def __post_init__(self) -> None:
        for name in ("limit", "resize"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if self.decimal not in (None, "comma", "point"):
            raise unknown_name("decimal", self.decimal, ("comma", "point"))

    @property
    def missing_words(self) -> tuple[str, ...]:
        """Additional words for a missing value."""
        return () if self.missing is None else tuple(_split(self.missing))


def refuse_unused(given: Mapping[str, Any], where: str, names: Sequence[str]) -> None:
    """Refuse options that do not apply to a kind of source; ``names`` are those that do."""
    known = (*names, "limit", "allowance", "needs_target")
    for name, value in given.items():
        if value is not None and value is not False and name not in known:
            allowed = f" Allowed: {', '.join(names)}." if names else ""
            raise InputError(f"{name}= does not apply to {where}; omit it.{allowed}")


@dataclass(frozen=True)
class Roles:
    """The role of each column of a table."""

    targets: tuple[str, ...]
    sample_weight: str | None
    features: tuple[str, ...]
    #: Whether the features were listed by name.
    named: bool
    dropped: tuple[str, ...]


def roles_of(where: str, names: list[str], reading: Reading) -> Roles:
    """Assign each column a role; every named column must exist and have one role."""
    options = ("target", "sample_weight", "drop", "columns")
    given = {option: _parse_columns(option, getattr(reading, option), names) for option in options}
    if reading.needs_target and not given["target"]:
        raise InputError(f"a table needs --target COLUMN; {where} holds {name_list(names)}.")
    double = next((name for name, count in Counter(names).items() if count > 1), None)
    if double is not None:
        raise InputError(f"{where} has two columns of one name ({double!r}); rename one.")
    taken: dict[str, str] = {}
    for option, columns in given.items():
        for name in columns:
            if name in taken:
                fix = "remove it from one"
                raise InputError(f"column {name!r} is in both {taken[name]} and {option}; {fix}.")
            taken[name] = option
    wanted = given["columns"]
    features = wanted or tuple(name for name in names if name not in taken)
    return Roles(given["target"], reading.sample_weight, features, bool(wanted), given["drop"])


def _parse_columns(
    option: str, given: str | Sequence[str] | None, names: list[str]
) -> tuple[str, ...]:
    """Return the columns named by an option: a list, or separated by commas (quoted as in CSV)."""
    if given is None:
        return ()
    found = list(given)
    if isinstance(given, str):
        found = [given] if given in names else _split(given)
    for name in found:
        if name not in names:
            raise unknown_column(option, name if len(found) > 1 else str(given), names)
    return tuple(dict.fromkeys(found))


def _split(text: str) -> list[str]:
    return [one.strip() for one in next(csv.reader([text], skipinitialspace=True), [])]


def name_list(names: Sequence[str]) -> str:
    """List up to ten names of columns, and the total number."""
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, … ({len(names)} columns)"


def unknown_column(option: str, value: str, names: Sequence[str]) -> InputError:
    """Return the error for an unknown column, with the nearest name."""
    hint = did_you_mean(value, names, 0.4)
    return InputError(f"{option}={value!r} is not known; the columns are {name_list(names)}.{hint}")


#: A file, a folder, a pattern, or several of these.
Files = PathLike | Sequence[PathLike]
#: Prefixes of files that writers of tables leave next to their parts, such as _SUCCESS and .x.crc.
_SKIPPED = ("_", ".")
#: Maximum length of a message of another library.
_LONGEST = 200


def are_paths(source: Any) -> bool:
    """Whether a source is a path, or a list of paths."""
    several = source if isinstance(source, (list, tuple)) else [source]
    return bool(several) and all(isinstance(one, (str, os.PathLike)) for one in several)


def find_files(given: Files, endings: tuple[str, ...], argument: str = "files") -> tuple[Path, ...]:
    """Find files by name, in sorted order; several arguments keep their order.

    Paths are absolute: another process may work in another folder.
    """
    if isinstance(given, (list, tuple)):
        if not given:
            raise InputError(f"{argument} is an empty list; give at least one file.")
        return tuple(path for one in given for path in find_files(one, endings, argument))
    if not isinstance(given, (str, os.PathLike)):
        fix = f"give a file, a folder, a pattern such as 'part-*{endings[0]}', or a list of files"
        raise InputError(f"{argument} has type {type(given).__name__}; {fix}.")
    path = Path(given)
    if path.is_dir():
        found = [one for one in files_below(path) if one.suffix.lower() in endings]
    elif path.exists():
        found = [path]
    elif glob.has_magic(str(given)):
        matches = map(Path, sorted(glob.glob(str(given), recursive=True)))
        found = [one for one in matches if one.is_file()]
    else:
        raise InputError(f"{argument}: {path} does not exist; check the name of the file.")
    if not found:
        advice = f"give a {' or '.join(endings)} file"
        raise InputError(f"{argument}: no file matches {str(given)!r}; {advice}.")
    return tuple(one.absolute() for one in found)


def files_below(folder: Path) -> list[Path]:
    """List all files below a folder by name, without hidden ones and logs."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(name.startswith(_SKIPPED) for name in path.relative_to(folder).parts)
    )


def common_name(files: Sequence[Path]) -> str:
    """Return a name for files in reports: the only one, or the folder and their number."""
    if len(files) == 1:
        return files[0].name
    return f"{common_folder(files).name} ({len(files)} files)"


def unreadable_error(path: Path, kind: str, error: BaseException) -> InputError:
    """Return the error for a file that is damaged, unreadable or of another format."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
        fix = "check its name and permissions"
        return InputError(f"{path} cannot be read ({error.strerror}); {fix}.")
    first = (str(error).splitlines() or [""])[0][:_LONGEST] or type(error).__name__
    what = f"{path} is not a readable {kind} ({first})"
    return InputError(f"{what}; it may be truncated or of another format.")


@contextmanager
def report_unreadable(path: Path, kind: str) -> Iterator[None]:
    """Convert any failure in the block to the error of an unreadable file.

    A damaged file fails in many ways, and each library has its own; running out of memory is one
    of them, for a damaged size asks for anything.
    """
    try:
        yield
    except BicoreError:
        raise
    except Exception as error:
        raise unreadable_error(path, kind, error) from error


def common_folder(files: Iterable[Path]) -> Path:
    """Return the deepest folder that contains all files."""
    return Path(os.path.commonpath([path.parent for path in files]))
