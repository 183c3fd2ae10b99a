"""The moment before any work: what an interrupt means while the libraries are loaded.

A KeyboardInterrupt in the middle of such an import leaves half a library behind, whose own words
follow it; some of them abort. Nothing is begun yet, so the command simply ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: What a shell expects of a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130
_WORDS = b"bicore: interrupted while starting; nothing was begun.\n"


@contextmanager
def starting() -> Iterator[None]:
    """An interrupt inside ends the process at once with a line and code 130; after it, it is one.

    The command begins inside of one, and the verb that is called has one of its own around what it
    loads: when that is left the work begins, also for the one outside. Who has interrupts ignored,
    as the jobs a shell puts into the background do, stays deaf.
    """
    if not _ours():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _ours() -> bool:
    """Whether interrupts are Python's own here; off the main thread nobody can say."""
    usual = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end)
    return usual and threading.current_thread() is threading.main_thread()


def _end(number: int, frame: object) -> None:
    """Leave without unwinding: an exception would come out of whatever is half loaded."""
    os.write(2, _WORDS)
    os._exit(EXIT_INTERRUPTED)
