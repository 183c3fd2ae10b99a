"""The terminal: interrupts while libraries load, printed lines, and progress on standard error.

Labels, columns and fields come from files, and a file may hold escape sequences that a terminal
would obey, or line breaks that make one line look like two. All output of the command goes through
:func:`say` and :func:`tell`, which show such characters as escapes.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from bicore.runtime import Step

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
#: Seconds between two looks at how much of a file has been read.
LOOK_SECONDS = 0.2


@contextmanager
def starting() -> Iterator[None]:
    """End the process with one line if it is interrupted while libraries are loaded.

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
    """Exit without unwinding: an exception would pass through half-loaded modules."""
    os.write(2, b"bicore: interrupted while starting; nothing was begun.\n")
    os._exit(EXIT_INTERRUPTED)


def say(*lines: object) -> None:
    """Print lines of the answer to standard output; a full disk is an error at once."""
    _print(lines, sys.stdout)


def tell(*lines: object) -> None:
    """Print notes to standard error."""
    _print(lines, sys.stderr)


def say_json(value: Any) -> None:
    """Print the answer as one JSON object."""
    # JSON escapes all control characters but this one
    _print((json.dumps(value).replace("\x7f", "\\u007f"),), sys.stdout)


def _print(lines: tuple[object, ...], stream: TextIO) -> None:
    if lines:
        print("\n".join(map(escape_controls, lines)), file=stream, flush=True)


def escape_controls(text: object) -> str:
    """One line of text, with control characters shown as escapes."""
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
    """Redirect a broken standard output to nowhere, so that Python does not flush it again."""
    try:
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()
    except (OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _objective(step: Step) -> str:
    return "" if math.isnan(step.objective) else f"objective {step.objective:.5g}"


class Bar:
    """A progress callback: one line on a terminal, elsewhere a line every few seconds.

    ``words`` describes a step next to its count; a total of 0 is unknown.
    """

    def __init__(self, label: str, words: Callable[[Step], str] = _objective) -> None:
        from bicore.runtime import Clock
        from bicore.runtime.clock import LINE_EVERY_SECONDS, PROGRESS_EVERY_SECONDS, Ticker

        live = sys.stderr.isatty()
        self.label, self.words, self.clock = label, words, Clock()
        after = PROGRESS_EVERY_SECONDS if live else LINE_EVERY_SECONDS
        self.ticker = Ticker(live, after, self.clock)
        #: The line that has not been shown yet.
        self.pending: str | None = None
        #: The share of a pass that was done at the last call, and when the pass began.
        self._share, self._began = 1.0, 0.0

    def __call__(self, step: Step) -> None:
        count = f"{step.done}/{step.total}" if step.total else f"{step.done}"
        left = step.seconds_left if step.done and step.total else None
        time = "" if left is None else f"about {_seconds(left)} left"
        self.show(count, self.words(step), time)

    def prepare(self, share: float | None) -> None:
        """Show the time before the first point; ``share`` of a pass over the data is done."""
        if share is None:
            self.show("preparing", _seconds(self.clock.seconds))
            return
        if share <= self._share:
            self._began = self.clock.seconds
        self._share = share
        spent = self.clock.seconds - self._began
        time = f"about {_seconds(spent / share * (1 - share))} left of it" if share else ""
        self.show("preparing", f"{100 * share:.0f}% of a pass", time)

    def show(self, *words: str) -> None:
        """Show words if enough time has passed since the last ones."""
        self.pending = "  ".join([f"{self.label} {words[0]}", *filter(None, words[1:])])
        if self.ticker.due():
            self._flush()

    def _flush(self) -> None:
        if self.pending is not None:
            self.ticker.write(escape_controls(self.pending))
            self.pending = None

    def close(self) -> None:
        """Show the last words on a terminal, then clear the line."""
        if self.ticker.live:
            self._flush()
        self.ticker.close()


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@contextmanager
def bar(label: str, quiet: bool, words: Callable[[Step], str] = _objective) -> Iterator[Bar | bool]:
    """Give a progress callback, or False if ``quiet``."""
    if quiet:
        yield False
        return
    shown = Bar(label, words)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def reading(word: str, quiet: bool) -> Iterator[None]:
    """Show how much of a file has been read, from a thread."""
    if quiet:
        yield
        return
    shown, ended = Bar("reading"), threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            shown.show(word, *_reading_words(word, shown.clock.seconds))

    watcher = threading.Thread(target=watch, name="bicore-reading", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        shown.pending = None
        shown.close()


def _reading_words(word: str, seconds: float) -> tuple[str, str]:
    """Seconds, or the share that is read and the time left."""
    share = _share_read(word)
    if share is None:
        return f"{seconds:.0f} s", ""
    if share >= 1:
        return f"{seconds:.0f} s", "file read, columns are encoded"
    left = f"about {_seconds(seconds / share * (1 - share))} left" if share else ""
    return f"{100 * share:.0f}%", left


def _share_read(word: str) -> float | None:
    """The share of an open file that has been read; None if the system does not say."""
    try:
        wanted = os.stat(word)
        for place in Path("/proc/self/fd").iterdir():
            if wanted.st_size and os.path.samestat(os.stat(place), wanted):
                position = Path(f"/proc/self/fdinfo/{place.name}").read_text().split()[1]
                return min(int(position) / wanted.st_size, 1.0)
    except OSError:
        pass
    return None
