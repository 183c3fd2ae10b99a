"""What people see while a selection runs."""

from __future__ import annotations

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

    def update(self, done: int, objective: float) -> None:
        """Tell of a point.

        Parameters
        ----------
        done : int
            Points so far.
        objective : float
            The outer objective with them.
        """
        step = Step(done, self.total, objective, self.clock.seconds)
        if self.callback is not None:
            self.callback(step)
            return
        wait = PROGRESS_EVERY_SECONDS if self.written else PROGRESS_AFTER_SECONDS
        if self.visible and step.seconds - self.last > wait:
            self.last = step.seconds
            self.written = True
            text = (
                f"{self.label} {done}/{self.total}  objective {objective:.6g}  about "
                f"{step.seconds_left:.0f} s left"
            )
            print(f"\r{text:<{PROGRESS_WIDTH}}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Wipe the line, if one was written."""
        if self.written:
            print(f"\r{'':<{PROGRESS_WIDTH}}\r", end="", file=sys.stderr, flush=True)
