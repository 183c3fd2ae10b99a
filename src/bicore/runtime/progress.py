"""What people see while a selection runs."""

from __future__ import annotations

import sys

from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime, Step

#: A progress line appears only once work has lasted this long.
PROGRESS_AFTER_SECONDS = 2.0


class ProgressLine:
    """A single rewritten line on standard error; nothing at all when that is not a terminal."""

    def __init__(self, runtime: Runtime, clock: Clock, total: int, label: str) -> None:
        choice = runtime.progress
        self.callback = choice if callable(choice) else None
        self.visible = choice is True or (choice is None and sys.stderr.isatty())
        self.clock = clock
        self.total = total
        self.label = label
        self.shown = 0.0
        self.written = False

    def update(self, done: int, objective: float) -> None:
        step = Step(done, self.total, objective, self.clock.seconds)
        if self.callback is not None:
            self.callback(step)
        elif self.visible and step.seconds - self.shown > (
            0.2 if self.written else PROGRESS_AFTER_SECONDS
        ):
            self.shown = step.seconds
            self.written = True
            text = (
                f"{self.label} {done}/{self.total}  objective {objective:.6g}  about "
                f"{step.seconds_left:.0f} s left"
            )
            print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.written:
            print(f"\r{'':<78}\r", end="", file=sys.stderr, flush=True)
