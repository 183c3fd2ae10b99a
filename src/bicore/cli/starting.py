"""The moment before any work: what an interrupt means while the libraries are loaded.

A KeyboardInterrupt in the middle of such an import leaves half a library behind, whose own words
follow it; some of them abort. Nothing is begun yet, so the command simply ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: What a shell expects of a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130
_WORDS = b"bicore: interrupted while starting; nothing was begun.\n"


@contextmanager
def starting() -> Iterator[None]:
    """An interrupt inside ends the process at once with a line and code 130.

    Who has interrupts ignored, as the jobs a shell puts into the background do, stays deaf; and
    off the main thread nothing can be said about signals.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: object) -> None:
    """Leave without unwinding: an exception would come out of whatever is half loaded."""
    os.write(2, _WORDS)
    os._exit(EXIT_INTERRUPTED)
