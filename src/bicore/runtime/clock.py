"""The time since a call began, and whether its limit is over."""

from __future__ import annotations

import time


class Clock:
    """Seconds since the start, and whether the time limit is over."""

    def __init__(self, max_seconds: float | None = None) -> None:
        self.start = time.perf_counter()
        self.max_seconds = max_seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @property
    def over(self) -> bool:
        return self.max_seconds is not None and self.seconds >= self.max_seconds
