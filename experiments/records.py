"""One file per experiment, one line of JSON per run; recorded runs are not repeated.

A line is appended whole and under a lock, so that several processes of a machine can record at the
same time. A run that is recorded again gets a further line, and the last one counts; ``tidy`` puts
the lines in order and leaves out those that no longer count. A process that is killed while it
writes leaves a torn line: a warning names it, and its run is repeated.
"""

import fcntl
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.common import machine
from bicore.files import replacing

FOLDER = Path(__file__).parent / "records"
#: What identifies a run within its experiment, as far as its record has it.
IDENTITY = ("dataset", "method", "memory", "beta", "penalty", "seed")
#: What is the same for all runs of a method on data, with a size of memory.
PROTOCOL = ("epochs", "steps", "precision")
Record = dict[str, Any]
Identity = tuple[Any, ...]
#: The runs of files without torn lines, by path and state: pages ask for them hundreds of times.
_PARSED: dict[tuple[Path, int, int, int], dict[Identity, Record]] = {}


class RecordError(Exception):
    """A line that no run of ours has written, or a run of another protocol."""


class TornLine(UserWarning):
    """A line that was not written to its end."""


def file_name(words: str) -> str:
    """The same words as the name of a file."""
    return re.sub(r"[^A-Za-z0-9=.+-]+", "-", words)


def identity(record: Mapping[str, Any]) -> Identity:
    """What tells a run from the others of its experiment, of its key or of its whole record."""
    return tuple(record.get(name) for name in IDENTITY)


class Records:
    """The runs of one experiment, each with its configuration and seed."""

    def __init__(self, experiment: str, folder: Path = FOLDER) -> None:
        self.experiment = experiment
        self.path = folder / f"{experiment}.jsonl"
        self._claims = folder / "claims"

    def has(self, key: Mapping[str, Any]) -> bool:
        return identity(key) in self._read()

    def write(self, key: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """``key`` is the configuration with its seed, ``result`` what came out of it."""
        record = {"experiment": self.experiment, **key, **result, "machine": machine()}
        self._check_protocol(record)
        self._append([record])

    def all(self) -> Iterator[Record]:
        """In the order of what identifies them, whatever their order in the file."""
        return iter(_sort(self._read()))

    def collect(self, others: Iterable[Record]) -> int:
        """Add the records of another machine; how many were not here, or not like this."""
        known = self._read()
        new = [record for record in others if known.get(identity(record)) != record]
        for record in new:
            self._check_protocol(record)
        self._append(new)
        return len(new)

    @contextmanager
    def claim(self, key: Mapping[str, Any]) -> Iterator[bool]:
        """Whether this process may run the configuration; the claim ends with the block, and with
        the process."""
        self._claims.mkdir(parents=True, exist_ok=True)
        words = [self.experiment, *(str(value) for value in key.values())]
        with (self._claims / (file_name("--".join(words)) + ".lock")).open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def tidy(self) -> None:
        """Write the file anew: every run once, in order, and no torn lines."""
        if not self.path.exists():
            return
        with self._open_locked("rb", fcntl.LOCK_EX) as held:
            before = held.read()
            after = b"".join(map(_to_line, _sort(self._parse(before))))
            if after != before:
                with replacing(self.path) as temporary:
                    temporary.write_bytes(after)

    def _check_protocol(self, record: Record) -> None:
        """Refuse a run made otherwise than the recorded ones of its row."""
        for known in self._read().values():
            if all(known.get(name) == record.get(name) for name in IDENTITY[:3]):
                for name in PROTOCOL:
                    if known.get(name) != record.get(name):
                        raise RecordError(
                            f"{self.path} holds runs of {record['method']!r} with {name}="
                            f"{known.get(name)!r}, not {record.get(name)!r}; give another folder "
                            "by --records."
                        )

    def _append(self, records: Iterable[Record]) -> None:
        lines = b"".join(map(_to_line, records))
        if not lines:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open_locked("a+b", fcntl.LOCK_EX) as held:
            end = held.seek(0, os.SEEK_END)
            held.seek(max(end - 1, 0))
            torn = held.read(1) not in (b"", b"\n")
            held.write(b"\n" * torn + lines)

    def _read(self) -> dict[Identity, Record]:
        """Every run by what identifies it; read again only if the file has changed."""
        if not self.path.exists():
            return {}
        now = self.path.stat()
        state = (self.path, now.st_ino, now.st_size, now.st_mtime_ns)
        if state in _PARSED:
            return _PARSED[state]
        with self._open_locked("rb", fcntl.LOCK_SH) as held:
            text = held.read()
        found = self._parse(text)
        if len(found) == text.count(b"\n") == len(text.splitlines()):
            _PARSED[state] = found
        return found

    def _parse(self, text: bytes) -> dict[Identity, Record]:
        lines = enumerate(text.splitlines(), 1)
        found = [self._read_line(line, number) for number, line in lines if line.strip()]
        return {identity(record): record for record in found if record is not None}

    def _read_line(self, line: bytes, number: int) -> Record | None:
        """The record of a line; None, and a warning, if it is torn."""
        place, record = f"{self.path}, line {number},", None
        try:
            record = json.loads(line)
        except ValueError as damage:
            if line.startswith(b"{"):
                words = f"is not a whole record ({damage}); its run is done again."
                warnings.warn(f"{place} {words}", TornLine, stacklevel=2)
                return None
        if not (isinstance(record, dict) and {"dataset", "method", "seed"} <= record.keys()):
            raise RecordError(f"{place} is not a record of a run; remove the line.")
        return record

    @contextmanager
    def _open_locked(self, mode: str, lock: int) -> Iterator[BinaryIO]:
        """The file under a lock, opened again if it was replaced while we waited for it."""
        while True:
            with self.path.open(mode) as held:
                fcntl.flock(held, lock)
                if os.path.samestat(os.fstat(held.fileno()), self.path.stat()):
                    yield held
                    return


def _sort(found: dict[Identity, Record]) -> list[Record]:
    """By what identifies runs; what a run does not have comes first."""
    keys = sorted(found, key=lambda key: [(value is not None, value) for value in key])
    return [found[key] for key in keys]


def _to_line(record: Record) -> bytes:
    return json.dumps(record).encode() + b"\n"
