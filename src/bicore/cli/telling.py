"""What the command prints: a line is a line, whatever the names in it hold.

Labels, columns and fields come from files, and a file may hold escape sequences that a terminal
would obey, or line breaks that make one line look like two. Whatever is printed goes through here,
a line at a time, so that these show as what they are. Nothing else in the command prints.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import unicodedata
from typing import Any, TextIO

#: Characters that steer a terminal or the order of reading: controls, formats, halves of pairs, and
#: breaks of lines and paragraphs.
STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Of these, what joins letters of some scripts and parts of pictures steers nothing.
HARMLESS = "\u200c\u200d"
#: How signs are spelt where standard output takes only plain letters.
SPELT = {
    "±": "+-",
    "★": "*",
    "≈": "~",
    "×": "x",
    "…": "...",
    "—": "-",
    "–": "-",
    "→": "->",
    "²": "^2",
    "≥": ">=",
    "≤": "<=",
}
_HANDLER = "bicore-spelt"


def visible(text: object) -> str:
    """One line of anything, whose steering characters show as escapes."""
    words = str(text)
    if words.isprintable():
        return words
    return "".join(_shown(character) for character in words)


def _shown(character: str) -> str:
    if unicodedata.category(character) in STEERING and character not in HARMLESS:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def say(*lines: object) -> None:
    """Lines of the answer, on standard output; a disk that is full is an error at once."""
    _print(lines, sys.stdout)


def tell(*lines: object) -> None:
    """Lines beside the answer, on standard error."""
    _print(lines, sys.stderr)


def say_json(value: Any) -> None:
    """The answer as one JSON object, whose strings are escaped as JSON does it."""
    text = json.dumps(value).replace("\x7f", "\\u007f")  # the one that JSON leaves as it is
    _print((text,), sys.stdout)


def _print(lines: tuple[object, ...], stream: TextIO) -> None:
    print("\n".join(visible(line) for line in lines), file=stream, flush=True)


def prepare_streams() -> None:
    """Signs that a stream cannot hold are spelt, in help texts too, rather than an error."""
    codecs.register_error(_HANDLER, _spelt)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_HANDLER)


def _spelt(error: UnicodeError) -> tuple[str, int]:
    refused = getattr(error, "object", "")[getattr(error, "start", 0) : getattr(error, "end", 0)]
    words = "".join(
        SPELT.get(one) or one.encode("ascii", "backslashreplace").decode() for one in refused
    )
    return words, getattr(error, "end", 0)


def close_output() -> None:
    """Let go of a standard output that takes nothing more, so that the end does not try again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
