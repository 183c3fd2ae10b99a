"""The time since a call began, and whether its limit is over."""

from __future__ import annotations

import time


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
        self.start = time.perf_counter()
        self.max_seconds = max_seconds

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.perf_counter() - self.start

    @property
    def over(self) -> bool:
        """Whether the limit is reached; never without one."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds
