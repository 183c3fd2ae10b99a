"""How far the work is, on standard error: one line on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bicore.cli.telling import visible

if TYPE_CHECKING:
    from bicore.runtime import Step

Given = ParamSpec("Given")
Found = TypeVar("Found")

#: How often a thread looks whether there is something to tell while a file is read.
LOOK_SECONDS = 0.2


def _objective(step: Step) -> str:
    return "" if math.isnan(step.objective) else f"objective {step.objective:.5g}"


class Bar:
    """A progress callback that shows what is done, a few words, and the time left.

    ``words`` is what stands beside the count; with ``own_time`` they say what time is left. A total
    of 0 is one that nobody knows.
    """

    def __init__(
        self, label: str, words: Callable[[Step], str] = _objective, own_time: bool = False
    ) -> None:
        from bicore.runtime import Clock
        from bicore.runtime.progress import LINE_EVERY_SECONDS, PROGRESS_EVERY_SECONDS, Ticker

        live = sys.stderr.isatty()
        after = PROGRESS_EVERY_SECONDS if live else LINE_EVERY_SECONDS
        self.label = label
        self.words = words
        self.own_time = own_time
        self.clock = Clock()
        self.ticker = Ticker(live, after, self.clock)
        #: What was not shown yet; a terminal sees the last of it.
        self.pending: str | None = None
        #: The share of a pass that was done at the last look, and when the pass began.
        self._share, self._began = 1.0, 0.0

    def __call__(self, step: Step) -> None:
        count = f"{step.done}/{step.total}" if step.total else f"{step.done}"
        left = step.seconds_left if step.done and step.total and not self.own_time else None
        time = "" if left is None else f"about {_seconds(left)} left"
        self.show(count, self.words(step), time)

    def prepare(self, share: float | None) -> None:
        """The time before the first point: a pass over the data, of which a share is done."""
        if share is None:
            self.show("preparing", f"{_seconds(self.clock.seconds)}")
            return
        if share <= self._share:
            self._began = self.clock.seconds
        self._share = share
        spent = self.clock.seconds - self._began
        time = f"about {_seconds(spent / share * (1 - share))} left of it" if share else ""
        self.show("preparing", f"{100 * share:.0f}% of a pass", time)

    def show(self, *words: str) -> None:
        """Words that are shown if it is time for some."""
        self.pending = "  ".join(
            [f"{self.label} {words[0]}", *(part for part in words[1:] if part)]
        )
        if self.ticker.due():
            self.flush()

    def flush(self) -> None:
        """Show what was not."""
        if self.pending is not None:
            self.ticker.write(visible(self.pending))
            self.pending = None

    def close(self) -> None:
        """On a terminal the last words, and then nothing."""
        if self.ticker.live:
            self.flush()
        self.ticker.close()


def _seconds(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min"


@contextmanager
def bar(
    label: str,
    quiet: bool,
    words: Callable[[Step], str] = _objective,
    own_time: bool = False,
) -> Iterator[Bar | bool]:
    """A progress callback, or False where nothing should be shown."""
    if quiet:
        yield False
        return
    shown = Bar(label, words, own_time)
    try:
        yield shown
    finally:
        shown.close()


def watched(read: Callable[Given, Found], quiet: bool) -> Callable[Given, Found]:
    """The function that reads a source, which tells how far it is meanwhile."""

    def wrapped(*given: Given.args, **named: Given.kwargs) -> Found:
        with nullcontext() if quiet else _reading(str(given[0])):
            return read(*given, **named)

    return wrapped


@contextmanager
def _reading(word: str) -> Iterator[None]:
    """A thread looks how far the file is."""
    shown = Bar("reading")
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            shown.show(word, *_how_far(word, shown.clock.seconds))

    watcher = threading.Thread(target=watch, name="bicore-reading", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        shown.pending = None
        shown.close()


def _how_far(word: str, seconds: float) -> tuple[str, str]:
    """The seconds so far; and where the system tells how much is read, that and the time left."""
    share = _share_read(word)
    if share is None:
        return f"{seconds:.0f} s", ""
    if share >= 1:
        return f"{seconds:.0f} s", "all of it is read, its columns are looked at"
    left = "" if not share else f"about {_seconds(seconds / share * (1 - share))} left"
    return f"{100 * share:.0f}%", left


def _share_read(word: str) -> float | None:
    """How much of an open file has been read; None where it is not open, or nobody can say."""
    try:
        wanted = os.stat(word)
        for place in Path("/proc/self/fd").iterdir():
            if wanted.st_size and os.path.samestat(os.stat(place), wanted):
                position = Path(f"/proc/self/fdinfo/{place.name}").read_text().split()[1]
                return min(int(position) / wanted.st_size, 1.0)
    except OSError:
        pass
    return None
