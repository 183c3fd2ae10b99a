"""The terminal: interrupts while libraries load, and printed lines.

Labels, columns and fields come from files, and a file may hold escape sequences that a terminal
would obey, or line breaks that make one line look like two. All output of the command goes through
:func:`print_answer` and :func:`print_note`, which show such characters as escapes.
"""

from __future__ import annotations

import codecs
import json
import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

#: The exit code that a shell expects after Ctrl-C.
EXIT_INTERRUPTED = 130
#: Categories of characters that control a terminal or the reading direction, and exceptions that
#: join letters of some scripts and parts of emoji.
CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
HARMLESS = "\u200c\u200d"
#: Replacements of signs that standard output cannot encode.
ASCII = dict(
    zip("±★≈×…—–→²≥≤", ["+-", "*", "~", "x", "...", "-", "-", "->", "^2", ">=", "<="], strict=True)
)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """End the process with one line if it is interrupted while libraries load.

    A KeyboardInterrupt in the middle of such an import leaves half a library behind, and some of
    them abort. Interrupts that are ignored, as in background jobs, stay ignored.
    """
    usual = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _exit_at_once)
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _exit_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_at_once(number: int, frame: object) -> None:
    """Exit without unwinding, because an exception would pass through half-loaded modules."""
    os.write(2, b"bicore: interrupted while starting; nothing was begun.\n")
    os._exit(EXIT_INTERRUPTED)


def print_answer(*lines: object) -> None:
    """Print lines of the answer to standard output; a full disk is an error at once."""
    _print(lines, sys.stdout)


def print_note(*lines: object) -> None:
    """Print notes to standard error."""
    _print(lines, sys.stderr)


def interrupt(words: str) -> NoReturn:
    """Report what an interrupt left, and exit with code 130."""
    import typer

    print_note(f"bicore: interrupted{words}")
    raise typer.Exit(EXIT_INTERRUPTED)


def print_json(value: Any) -> None:
    """Print the answer as one JSON object."""
    # JSON escapes all control characters but this one
    _print((json.dumps(value).replace("\x7f", "\\u007f"),), sys.stdout)


def _print(lines: tuple[object, ...], stream: TextIO) -> None:
    if lines:
        print("\n".join(map(escape_controls, lines)), file=stream, flush=True)


def escape_controls(text: object) -> str:
    """Return one line of text, with control characters shown as escapes."""
    words = str(text)
    return words if words.isprintable() else "".join(map(_escape, words))


def _escape(character: str) -> str:
    if unicodedata.category(character) in CONTROLS and character not in HARMLESS:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def prepare_streams() -> None:
    """Replace signs that a stream cannot encode instead of failing."""
    codecs.register_error("bicore-ascii", _replace_signs)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="bicore-ascii")


def _replace_signs(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    plain = [ASCII.get(one) or one.encode("ascii", "backslashreplace").decode() for one in signs]
    return "".join(plain), error.end


def close_output() -> None:
    """Redirect a broken standard output to the null device, so that Python does not flush it."""
    try:
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()
    except (OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
