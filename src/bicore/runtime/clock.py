"""The time since a call began, whether its limit is over, and the looks at it inside long work.

A call sets its clock running; every long loop calls :func:`checkpoint` between two tiles of its
work, which raises :class:`TimeOver` once the limit is over. Whoever holds something whole catches
it where an interrupt is caught, and returns that; what nobody catches becomes a
:class:`TimeLimitError` where the clock was set running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from bicore.errors import TimeLimitError

#: What may be spent beyond the limit, as a share of it and in seconds, while there is nothing whole
#: to return yet, and on what makes it whole: a first point is worth that much.
GRACE_SHARE, GRACE_SECONDS = 0.05, 0.25


class TimeOver(BaseException):
    """The time of the running call is over; never seen by callers.

    It is no ``Exception``, just as an interrupt is none: a kernel or a loss of the user's that
    catches what goes wrong inside it must not take the end of the time for that.

    Examples
    --------
    >>> issubclass(TimeOver, Exception)
    False
    """


class Clock:
    """Seconds since it was made, and whether the time limit is over.

    Parameters
    ----------
    max_seconds : float, optional
        The limit; default: none.

    Examples
    --------
    >>> clock = Clock(max_seconds=3600)
    >>> clock.seconds >= 0, clock.over
    (True, False)
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self.start = self.now()
        self.max_seconds = max_seconds
        self._secured = False
        #: Hears of every look, with the share of a pass that is done: for a line of progress.
        self.listener: Callable[[float | None], None] | None = None
        # Where a pass over the data stands, and when it began: what an estimate is made from.
        self._share = 1.0
        self._pass_began = 0.0

    @staticmethod
    def now() -> float:
        """Seconds on a clock that never goes back.

        Returns
        -------
        float
            Since some moment.
        """
        return time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return self.now() - self.start

    @property
    def over(self) -> bool:
        """Whether the limit is reached; never without one."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds

    def secure(self) -> None:
        """Say that there is something whole to return: the limit holds to the letter from now on.

        Examples
        --------
        >>> clock = Clock(max_seconds=1e-9)
        >>> clock.look()  # nothing to return yet: a first point is waited for
        >>> clock.secure()
        >>> clock.over
        True
        """
        self._secured = True

    def look(self, share: float | None = None, needs: float = 0.0) -> None:
        """End the work at hand where the limit is over.

        Parameters
        ----------
        share : float, optional
            How much of a pass over the data is done; a smaller one than the last begins another.
        needs : float, optional
            Seconds that one call which cannot be interrupted is about to take.

        Raises
        ------
        TimeOver
            Then, and a little later while there is nothing to return yet.
        """
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
        """What may be spent beyond the limit to have something whole; 0 where there is none."""
        limit = self.max_seconds
        return 0.0 if limit is None else GRACE_SHARE * limit + GRACE_SECONDS

    @contextmanager
    def running(self) -> Iterator[Clock]:
        """Look at this clock in every :func:`checkpoint` inside.

        Yields
        ------
        Clock
            Itself.

        Raises
        ------
        TimeLimitError
            Where the time is over and nobody inside had anything to return.

        Examples
        --------
        >>> with Clock(max_seconds=60).running():
        ...     checkpoint()
        """
        before = _RUNNING.set(self)
        try:
            yield self
        except TimeOver:
            raise self._nothing() from None
        finally:
            _RUNNING.reset(before)

    def closing(self) -> Clock:
        """A clock for what makes an answer whole after the work itself: what is left, and a grace.

        Returns
        -------
        Clock
            Without a limit where this one has none.
        """
        if self.max_seconds is None:
            return Clock()
        left = Clock(max(self.max_seconds - self.seconds, 0.0) + self.grace)
        left.secure()
        return left

    def _nothing(self) -> TimeLimitError:
        first = ""
        if 0 < self._share < 1:
            whole = self._pass_began + (self.seconds - self._pass_began) / self._share
            first = f"; a first point takes at least {whole:.2g} s here"
        return TimeLimitError(
            f"max_seconds={self.max_seconds:.3g} was over after {self.seconds:.2g} s of "
            f"preparation, before a first point was chosen{first}. Raise max_seconds, choose from "
            "fewer rows, use a kernel with features (linear, Nystrom), or let bicore.select "
            "approximate it (large='approximate', the default)."
        )


_RUNNING: ContextVar[Clock | None] = ContextVar("clock", default=None)


def checkpoint(share: float | None = None, needs: float = 0.0) -> None:
    """Look at the clock of the running call; long loops do so between two tiles of their work.

    Parameters
    ----------
    share : float, optional
        How much of a pass over the data is done.
    needs : float, optional
        Seconds that one call which cannot be interrupted is about to take.

    Raises
    ------
    TimeOver
        Where the time is over.

    Examples
    --------
    >>> checkpoint()  # no call is running
    """
    clock = _RUNNING.get()
    if clock is not None:
        clock.look(share, needs)


@contextmanager
def unhurried() -> Iterator[None]:
    """No look at any clock inside: for a small piece of work that must be done as a whole.

    Yields
    ------
    None
        Until it is done.

    Examples
    --------
    >>> with Clock(max_seconds=1e-9).running() as clock:
    ...     clock.secure()
    ...     with unhurried():
    ...         checkpoint()
    """
    before = _RUNNING.set(None)
    try:
        yield
    finally:
        _RUNNING.reset(before)
