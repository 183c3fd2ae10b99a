"""The clock and the time limit of a call, and its progress line.

A call starts its clock (:meth:`Clock.running`). Every long loop calls :func:`checkpoint` between
two tiles of its work, which raises :class:`TimeOver` after the limit. Code that has a complete
result catches it, like an interrupt; otherwise ``running`` raises a :class:`TimeLimitError`.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from bicore.errors import TimeLimitError
from bicore.notebook import ProgressBar, in_notebook

#: Additional time beyond the limit, as a share and in seconds, for a first point and to complete
#: the result.
GRACE_SHARE, GRACE_SECONDS = 0.05, 0.25
#: A progress line appears only after work has lasted this long, …
PROGRESS_AFTER_SECONDS = 2.0
#: … and is rewritten at most this often; …
PROGRESS_EVERY_SECONDS = 0.2
#: … a file or a log gets at most one line per interval.
LINE_EVERY_SECONDS = 5.0
#: Width of a line, so that a shorter text covers a longer one.
PROGRESS_WIDTH = 78


class TimeOver(BaseException):
    """Raised internally if the time limit has passed; callers see ``TimeLimitError``.

    It derives from ``BaseException``, like ``KeyboardInterrupt``, so that ``except Exception`` in a
    kernel or a loss of the user does not swallow it.
    """


class Clock:
    """Seconds since its creation, and the time limit."""

    def __init__(self, max_seconds: float | None = None) -> None:
        self.start = self.now()
        self.max_seconds = max_seconds
        self._secured = False
        #: Called at every check with the finished share of the pass, to show progress.
        self.listener: Callable[[float | None], None] | None = None
        # Share of the current pass and its start, from which its duration is estimated.
        self._share = 1.0
        self._pass_began = 0.0

    @staticmethod
    def now() -> float:
        """Seconds on a monotonic clock."""
        return time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since its creation."""
        return self.now() - self.start

    @property
    def over(self) -> bool:
        """Whether the limit is reached; False without a limit."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds

    def secure(self) -> None:
        """Enforce the limit without grace from now on, because a result exists."""
        self._secured = True

    def look(self, share: float | None = None, needs: float = 0.0) -> None:
        """Report progress, and raise ``TimeOver`` if the limit has passed."""
        if self.listener is not None:
            self.listener(share)
        if self.max_seconds is None:
            return
        seconds = self.seconds
        if share is not None:
            if share <= self._share:
                self._pass_began = seconds
            self._share = share
        if needs > self.max_seconds - seconds and needs > self.grace:
            raise TimeOver
        if seconds < self.max_seconds:
            return
        if self._secured or seconds >= self.max_seconds + self.grace:
            raise TimeOver

    @property
    def grace(self) -> float:
        """Seconds allowed beyond the limit to complete a result; 0 without a limit."""
        limit = self.max_seconds
        return 0.0 if limit is None else GRACE_SHARE * limit + GRACE_SECONDS

    @contextmanager
    def running(self) -> Iterator[Clock]:
        """Make every :func:`checkpoint` inside check this clock."""
        before = _RUNNING.set(self)
        try:
            yield self
        except TimeOver:
            raise self._time_limit_error() from None
        finally:
            _RUNNING.reset(before)

    def closing(self) -> Clock:
        """Return a clock with the remaining seconds and the grace, to complete a result."""
        if self.max_seconds is None:
            return Clock()
        left = Clock(max(self.max_seconds - self.seconds, 0.0) + self.grace)
        left.secure()
        return left

    def _time_limit_error(self) -> TimeLimitError:
        first = ""
        if 0 < self._share < 1:
            whole = self._pass_began + (self.seconds - self._pass_began) / self._share
            first = f"; a first row takes at least {whole:.2g} s here"
        return TimeLimitError(
            f"max_seconds={self.max_seconds:.3g} was reached after {self.seconds:.2g} s of "
            f"preparation, before the first row was selected{first}. Raise max_seconds, give fewer "
            "rows, use a kernel with features (linear, Nystrom), or leave out exact=True."
        )


_RUNNING: ContextVar[Clock | None] = ContextVar("clock", default=None)


def checkpoint(share: float | None = None, needs: float = 0.0) -> None:
    """Check the time limit; long loops do so between two tiles of their work."""
    clock = _RUNNING.get()
    if clock is not None:
        clock.look(share, needs)


@contextmanager
def without_time_limit() -> Iterator[None]:
    """Disable time checks inside, for short work that must finish."""
    before = _RUNNING.set(None)
    try:
        yield
    finally:
        _RUNNING.reset(before)


@dataclass(frozen=True)
class Step:
    """What a progress callback receives after each selected point."""

    done: int
    total: int
    objective: float
    seconds: float
    left: float | None = None

    @property
    def seconds_left(self) -> float:
        """Linear estimate of the remaining seconds: too low, because steps become slower as the
        coreset grows."""
        if self.left is not None:
            return self.left
        return self.seconds / max(self.done, 1) * (self.total - self.done)


#: Progress: a callable, always, never, or on a terminal only (None).
Progress = bool | Callable[[Step], None] | None


class ProgressLine:
    """Progress on standard error: a rewritten line on a terminal, otherwise lines on request."""

    def __init__(self, choice: Progress, clock: Clock, total: int, label: str) -> None:
        self.callback = choice if callable(choice) else None
        self._prepare = getattr(choice, "prepare", None)
        self.visible = choice is True or (choice is None and sys.stderr.isatty())
        self.clock = clock
        self.total = total
        self.label = label
        self.bar = ProgressBar() if choice is True and in_notebook() else None
        #: Points and seconds at the end of the preparation, which says nothing about later points.
        self._first: tuple[int, float] | None = None
        #: Whether text is replaced by the next one; lines of a log are kept.
        self.live = sys.stderr.isatty() or self.bar is not None
        self._after = PROGRESS_AFTER_SECONDS if self.live else LINE_EVERY_SECONDS
        self._next = self._after
        self._written = False
        #: The finished share for a bar, and the last step for the end of a log.
        self._share = 0.0
        self._last = ""
        if self.visible or self._prepare is not None:
            clock.listener = self.prepare

    def update(
        self, done: int, objective: float = math.nan, left: float | None = None, words: str = ""
    ) -> None:
        """Report one selected point."""
        points, seconds = self._first = self._first or (done, self.clock.seconds)
        if left is None and done > points and self.total:
            left = (self.clock.seconds - seconds) / (done - points) * (self.total - done)
        step = Step(done, self.total, objective, self.clock.seconds, left)
        if self.clock.listener is not None:  # the first point ends the preparation
            self.clock.listener = None
            self._next = 0.0 if self._written else self._after
        if self.callback is not None:
            self.callback(step)
            return
        if not self.visible:
            return
        count = f"{self.label} {done}" + (f"/{self.total}" if self.total else "")
        value = "" if math.isnan(objective) else f"objective {objective:.6g}"
        time = "" if left is None else f"about {left:.0f} s left"
        self._last = "  ".join(filter(None, [count, value, f"after {step.seconds:.1f} s"]))
        self._share = done / self.total if self.total else 0.0
        if self._due():
            self.write("  ".join(filter(None, [count, value, words, time])))

    def prepare(self, share: float | None = None) -> None:
        """Report progress before the first point."""
        if self._prepare is not None:
            self._prepare(share)
        elif self.visible and self._due():
            part = "" if share is None else f"  {100 * share:.0f}% of a pass"
            self.write(f"{self.label}: preparing{part}  {self.clock.seconds:.0f} s")

    def _due(self) -> bool:
        """Whether to write now; if so, schedule the next time."""
        seconds = self.clock.seconds
        due = seconds >= self._next
        if due:
            self._next = seconds + (PROGRESS_EVERY_SECONDS if self.live else LINE_EVERY_SECONDS)
        return due

    def write(self, text: str) -> None:
        """Write the text."""
        if self.bar is not None:
            self.bar.draw(self._share, text)
            return
        self._written = True
        if self.live:
            width = _line_width()
            text = f"\r{text[:width]:<{min(width, PROGRESS_WIDTH)}}"
        print(text, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Clear a rewritten line; a log ends with the last step."""
        self.clock.listener = None
        if self._last and (self.bar is not None or not self.live):
            self.write(self._last)
        if self._written and self.live:
            print(f"\r{'':<{_line_width()}}\r", end="", file=sys.stderr, flush=True)
        self._last, self._written = "", False


def _line_width() -> int:
    """Return the width of a rewritten line: one less than the terminal's, so that it does not
    wrap."""
    return shutil.get_terminal_size().columns - 1
