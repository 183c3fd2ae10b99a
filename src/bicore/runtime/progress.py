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
#: Where lines stay, in a file or a log, there is one no more often than this.
LINE_EVERY_SECONDS = 5.0
#: Characters that a line fills, so that a shorter one covers a longer one.
PROGRESS_WIDTH = 78


class Ticker:
    """Words on standard error now and then: one line written anew, or below each other in a log.

    Parameters
    ----------
    live : bool
        Whether the line is written anew; only a terminal shows that.
    after : float
        Seconds before the first.
    clock : Clock
        Of the work.

    Examples
    --------
    >>> ticker = Ticker(live=False, after=60.0, clock=Clock())
    >>> ticker.due()
    False
    """

    def __init__(self, live: bool, after: float, clock: Clock) -> None:
        self.live = live
        self.every = PROGRESS_EVERY_SECONDS if live else LINE_EVERY_SECONDS
        self.clock = clock
        self.next = after
        self.written = False

    def due(self) -> bool:
        """Whether it is time for new words.

        Returns
        -------
        bool
            True at most once in a while.
        """
        if self.clock.seconds < self.next:
            return False
        self.next = self.clock.seconds + self.every
        return True

    def write(self, text: str) -> None:
        """Show words.

        Parameters
        ----------
        text : str
            A line without its end.
        """
        self.written = True
        if self.live:
            print(f"\r{text:<{PROGRESS_WIDTH}}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Wipe a line that is written anew; those of a log stay."""
        if self.written and self.live:
            print(f"\r{'':<{PROGRESS_WIDTH}}\r", end="", file=sys.stderr, flush=True)
        self.written = False


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
        self.ticker = Ticker(True, PROGRESS_AFTER_SECONDS, clock)
        #: A callable may want to hear of the time before the first point too.
        self._preparing = getattr(self.callback, "prepare", None)
        if self._preparing is not None or (self.visible and self.callback is None):
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
            self.ticker.next = 0.0 if self.ticker.written else PROGRESS_AFTER_SECONDS
        if self.callback is not None:
            self.callback(step)
            return
        if self.visible and self.ticker.due():
            value = "" if math.isnan(objective) else f"  objective {objective:.6g}"
            self.ticker.write(
                f"{self.label} {done}/{self.total}{value}  about {step.seconds_left:.0f} s left"
            )

    def prepare(self, share: float | None = None) -> None:
        """Tell that work goes on before the first point.

        Parameters
        ----------
        share : float, optional
            How much of a pass over the data is done.
        """
        if self._preparing is not None:
            self._preparing(share)
        elif self.visible and self.ticker.due():
            part = "" if share is None else f"  {100 * share:.0f}% of a pass"
            self.ticker.write(f"preparing{part}  {self.clock.seconds:.0f} s")

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Wipe the line, if one was written."""
        self.clock.listener = None
        self.ticker.close()
