"""Jobs of a list, taken by several processes until none is left or the time is up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Job = TypeVar("Job")


@dataclass(frozen=True)
class Until:
    """When nothing more is begun: after a moment on the clock that all processes share, and in one
    that was started here when the ``parent`` is gone."""

    moment: float
    parent: int | None = None

    @property
    def over(self) -> bool:
        left = self.parent is not None and os.getppid() != self.parent
        return left or time.time() > self.moment


#: Takes jobs and does them: its number, the jobs, and until when.
Work = Callable[[int, Iterator[Any], Until], None]


def shared(work: Work, jobs: Sequence[Any], workers: int, until: float) -> list[int]:
    """Let ``work`` take jobs in so many processes; how each of them ended.

    It keeps what it does as it goes: a process that breaks down leaves its jobs half done and the
    others alone, and SIGTERM ends all of them, so that what is there can still be gathered. With
    one worker it is this process.
    """
    try:
        with _interrupted():
            if workers > 1:
                return _in_processes(work, jobs, min(workers, len(jobs)), until)
            limit = Until(until)
            work(0, _while_there_is_time(iter(jobs), limit), limit)
    except KeyboardInterrupt:
        print("asked to end; the same command goes on", file=sys.stderr)
    return []


def _in_processes(work: Work, jobs: Sequence[Any], workers: int, until: float) -> list[int]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when a process begins
    context = multiprocessing.get_context("spawn")
    taken = context.Value("i", 0)
    limit = Until(until, os.getpid())
    processes = [
        context.Process(target=_alone, args=(work, number, jobs, taken, limit), daemon=True)
        for number in range(workers)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    finally:
        begun = [process for process in processes if process.pid is not None]
        for process in begun:
            process.terminate()
        for process in begun:
            process.join()
    return [process.exitcode or 0 for process in processes]


@contextmanager
def _interrupted() -> Iterator[None]:
    """By SIGTERM as by a key."""

    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _alone(work: Work, number: int, jobs: Sequence[Any], taken: Any, limit: Until) -> None:
    """One process; it has one thread, and an interrupt is the affair of the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    work(number, _while_there_is_time(_next(jobs, taken), limit), limit)


def _next(jobs: Sequence[Job], taken: Any) -> Iterator[Job]:
    """The jobs that no other process took."""
    while True:
        with taken.get_lock():
            place = taken.value
            taken.value += 1
        if place >= len(jobs):
            return
        yield jobs[place]


def _while_there_is_time(jobs: Iterator[Job], limit: Until) -> Iterator[Job]:
    for job in jobs:
        if limit.over:
            return
        yield job
