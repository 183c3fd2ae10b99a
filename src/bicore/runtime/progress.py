"""What people see while a selection runs."""

from __future__ import annotations

import math
import sys

from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime, Step

#: A progress line appears only once work has lasted this long.
PROGRESS_AFTER_SECONDS = 2.0
#: And is written anew no more often than this.
PROGRESS_EVERY_SECONDS = 0.2
#: Characters that a line fills, so that a shorter one covers a longer one.
PROGRESS_WIDTH = 78


class ProgressLine:
    """A single rewritten line on standard error; nothing where that is not a terminal.

    Parameters
    ----------
    runtime : Runtime
        Its ``progress`` decides: a callable receives every step instead, True writes wherever
        standard error goes, False never.
    clock : Clock
        Of the work.
    total : int
        How many points are to be selected.
    label : str
        The first words of the line.

    Examples
    --------
    >>> seen = []
    >>> line = ProgressLine(Runtime(progress=seen.append), Clock(), total=4, label="selecting")
    >>> line.update(1, objective=0.5)
    >>> line.close()
    >>> seen[0].done, seen[0].total
    (1, 4)
    """

    def __init__(self, runtime: Runtime, clock: Clock, total: int, label: str) -> None:
        choice = runtime.progress
        self.callback = choice if callable(choice) else None
        self.visible = choice is True or (choice is None and sys.stderr.isatty())
        self.clock = clock
        self.total = total
        self.label = label
        self.last = 0.0
        self.written = False
        if self.visible and self.callback is None:
            clock.listener = self.prepare

    def update(self, done: int, objective: float, left: float | None = None) -> None:
        """Tell of a point.

        Parameters
        ----------
        done : int
            Points so far.
        objective : float
            The outer objective with them; nan where there is none.
        left : float, optional
            Seconds that are left; default: a straight line through the points so far.
        """
        step = Step(done, self.total, objective, self.clock.seconds, left)
        if self.clock.listener is not None:  # from here on points are told of
            self.clock.listener = None
            self.last = 0.0 if not self.written else -PROGRESS_EVERY_SECONDS
        if self.callback is not None:
            self.callback(step)
            return
        if self._due(step.seconds):
            value = "" if math.isnan(objective) else f"  objective {objective:.6g}"
            self._write(
                f"{self.label} {done}/{self.total}{value}  about {step.seconds_left:.0f} s left"
            )

    def prepare(self, share: float | None = None) -> None:
        """Tell that work goes on before the first point.

        Parameters
        ----------
        share : float, optional
            How much of a pass over the data is done.
        """
        seconds = self.clock.seconds
        if self._due(seconds):
            part = "" if share is None else f"  {100 * share:.0f}% of a pass"
            self._write(f"preparing{part}  {seconds:.0f} s")

    def _due(self, seconds: float) -> bool:
        wait = PROGRESS_EVERY_SECONDS if self.written else PROGRESS_AFTER_SECONDS
        if not self.visible or seconds - self.last <= wait:
            return False
        self.last = seconds
        self.written = True
        return True

    def _write(self, text: str) -> None:
        print(f"\r{text:<{PROGRESS_WIDTH}}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Wipe the line, if one was written."""
        self.clock.listener = None
        if self.written:
            self.written = False
            print(f"\r{'':<{PROGRESS_WIDTH}}\r", end="", file=sys.stderr, flush=True)
