"""Text of a file or of standard input as UTF-8, unpacked and decoded on the way."""

from __future__ import annotations

import codecs
import io
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bicore.errors import InputError
from bicore.frames import arrow

#: Endings of packed files, and pyarrow's names for them.
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zip": "zip"}
#: Bytes that are read before a file is taken for text, and the longest line of a table: a quote
#: that is never closed ends here too, before it takes all memory.
LONGEST = 2**24
#: Bytes in which a null means that a file is not text.
_LOOKED_AT = 4096
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class Text:
    """UTF-8 without a byte order mark, and a note if the file has another encoding."""

    stream: IO[bytes]
    notes: tuple[str, ...] = ()


@contextmanager
def open_text(path: Path | None, encoding: str | None = None) -> Iterator[Text]:
    """Text of a file, or of standard input without one; no more is unpacked than is read."""
    where = "standard input" if path is None else str(path)
    with ExitStack() as stack:
        raw: Any = sys.stdin.buffer if path is None else _unpack(path, stack)
        head = raw.read(LONGEST)
        found = find_encoding(head, where, encoding)
        stream: Any = Unread(head, raw)
        if found != "utf-8":
            pyarrow = arrow("a table")
            file = pyarrow.PythonFile(stream, mode="r")
            stream = Unread(b"", pyarrow.transcoding_input_stream(file, found, "utf-8"))
        quiet = encoding is not None or found.startswith("utf-8")
        yield Text(stream, () if quiet else (f"{where} is read as {found} text",))


def _unpack(path: Path, stack: ExitStack) -> Any:
    file: Any = stack.enter_context(path.open("rb"))
    way = PACKED.get(path.suffix.lower())
    if way is None:
        return file
    if way != "zip":
        return stack.enter_context(arrow("a packed table").CompressedInputStream(file, way))
    archive = stack.enter_context(zipfile.ZipFile(file))
    held = [one for one in archive.infolist() if not one.is_dir()]
    held = [one for one in held if not one.filename.startswith("__MACOSX")]
    if len(held) != 1:
        raise InputError(f"{path} holds {len(held)} files; give an archive of one table.")
    return stack.enter_context(archive.open(held[0]))


def find_encoding(head: bytes, where: str, encoding: str | None = None) -> str:
    """The encoding of text: the one given, by its mark, UTF-8, or else Windows or Latin-1."""
    if encoding is not None:
        try:
            return codecs.lookup(encoding).name
        except LookupError as error:
            raise InputError(
                f"encoding={encoding!r} is not known; give a name such as utf-16 or latin-1."
            ) from error
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    if b"\0" in head[:_LOOKED_AT] or head.startswith(b"PAR1"):
        raise InputError(
            f"{where} is not a text file; give a CSV file, the right ending or its encoding."
        )
    return next(name for name in ("utf-8", "cp1252", "latin-1") if _decodes(head, name))


def _decodes(head: bytes, name: str) -> bool:
    """Whether text begins with these bytes, which may end within a character."""
    decoder = codecs.getincrementaldecoder(name)()
    try:
        for start in range(0, len(head), _LOOKED_AT):
            decoder.decode(head[start : start + _LOOKED_AT])
        decoder.decode(b"", final=len(head) < LONGEST)
    except UnicodeDecodeError:
        return False
    return True


class Unread(io.RawIOBase):
    """A stream with some bytes put back in front of it."""

    def __init__(self, before: bytes, rest: IO[bytes]) -> None:
        self._before = before
        self._rest = rest

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, room: bytearray) -> int:  # type: ignore[override]  # as io calls it
        """Fill some bytes; 0 at the end."""
        if self._before:
            part, self._before = self._before[: len(room)], self._before[len(room) :]
        else:
            part = self._rest.read(len(room))
        room[: len(part)] = part
        return len(part)
