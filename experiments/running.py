"""Run the jobs without a record, in one or several processes."""

import math
import multiprocessing
import os
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch

from benchmarks.common import report
from bicore import InputError
from experiments.catalogue import EXPERIMENTS
from experiments.problems import Data
from experiments.records import RecordError, Records
from experiments.rows import Job, Row


@dataclass(frozen=True)
class Order:
    """What is to be run, where, and for how long.

    ``only`` are the keys of rows, all if there are none; ``fast`` lets products use fewer bits on a
    GPU; no run begins after this many ``minutes``; of what a row tries only the given ``values``
    are run, all if there are none; ``on`` and ``memory`` leave other data and other sizes out.
    """

    names: tuple[str, ...]
    folder: Path
    data: str | None = None
    device: str = "cpu"
    seeds: int = 5
    quick: bool = False
    only: tuple[str, ...] = ()
    fast: bool = True
    minutes: float | None = None
    values: tuple[float, ...] = ()
    on: str | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse rows that do not exist and values that no row tries: they would pass for done."""
        every = [row for name in self.names for row in EXPERIMENTS[name].rows()]
        asked, keys = ", ".join(self.names), {row.key for row in every}
        for key in self.only:
            if key not in keys:
                near = get_close_matches(key, keys, 1, 0) or ["nothing"]
                raise InputError(
                    f"--only {key!r} is no row of {asked}; the nearest is {near[0]!r}. Separate "
                    "rows by semicolons."
                )
        narrowed = self.on is not None or self.memory is not None
        if narrowed and not any(map(self.rows, self.names)):
            data = ", ".join(sorted({row.problem.name for row in every}))
            raise InputError(
                f"--on {self.on}, --memory {self.memory}: no row of {asked} is run there; their "
                f"data are {data}. Give one of these, or leave it out."
            )
        known = self._known_values() if self.values else set()
        unknown = [f"{value:g}" for value in self.values if value not in known]
        if unknown:
            tried = ", ".join(f"{value:g}" for value in sorted(known)) or "nothing"
            toys = " at toy size" if self.quick else ""
            raise InputError(
                f"--tried {', '.join(unknown)} is tried by no row asked for of {asked}{toys}; they "
                f"try {tried}. Give some of these, or leave out --tried."
            )

        for records in map(self.records, self.names):
            if any(run.get("quick", False) != self.quick for run in records.all()):
                held = "runs at full size" if self.quick else "toys"
                raise InputError(f"{records.path} holds {held}; give another folder by --records.")

    def values_to_try(self, row: Row) -> tuple[float, ...]:
        """What a row tries here."""
        values = row.trials.toy if self.quick else row.trials.values
        return tuple(value for value in values if not self.values or value in self.values)

    def _known_values(self) -> set[float]:
        """All that the rows asked for try; what has not been chosen yet is no value."""
        rows = [row for name in self.names for row in self.rows(name) if row.trials.name]
        values = [row.trials.toy if self.quick else row.trials.values for row in rows]
        return {value for own in values for value in own if not math.isnan(value)}

    def records(self, name: str) -> Records:
        """Of one of its experiments; runs in float32 have a file of their own."""
        return Records(name if self.fast else f"{name}-float32", self.folder)

    def rows(self, name: str) -> list[Row]:
        """What is run here, and asked for."""
        return [
            row
            for row in EXPERIMENTS[name].rows()
            if row.source is None
            and (not self.only or row.key in self.only)
            and (self.on is None or row.problem.name == self.on)
            and (self.memory is None or row.memory == self.memory)
        ]


def run_order(order: Order, workers: int = 1) -> int:
    """Run what has no record, in several processes if asked; a run goes to the process that claims
    it first. Returns an exit code."""
    if workers == 1:
        return run_here(order)
    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ.setdefault(name, "1")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn) as pool:
        return max(pool.map(run_here, [order] * workers))


def run_here(order: Order) -> int:
    """Every run that has no record; one that fails is reported and leaves the others alone."""
    data = Data(order.data, order.quick)
    start = time.perf_counter()
    failed = 0
    for name in order.names:
        records = order.records(name)
        for seed in EXPERIMENTS[name].seeds(1 if order.quick else order.seeds):
            for row in order.rows(name):
                if order.minutes is not None and time.perf_counter() - start > 60 * order.minutes:
                    _tell(f"{order.minutes} minutes are over; the same command continues.")
                    return failed
                failed |= _try_row(row, seed, data, records, order)
    return failed


def _try_row(row: Row, seed: int, data: Data, records: Records, order: Order) -> int:
    """Whether its runs failed, as an exit code."""
    try:
        _run_row(row.toy() if order.quick else row, seed, data, records, order)
    except RecordError:
        raise
    except InputError as refusal:
        _tell(f"{row.key}, seed {seed}: {refusal}")
        return 1
    except Exception:
        _tell(f"{row.problem.name}, {row.key}, seed {seed} failed:\n{traceback.format_exc()}")
        return 1
    return 0


def _run_row(row: Row, seed: int, data: Data, records: Records, order: Order) -> None:
    """Run what is missing of a row, unless another process is at it."""
    values = order.values_to_try(row)
    if not values:
        return
    if any(math.isnan(value) for value in values):
        raise InputError(
            "it has no β yet; run cifar-betas and cifar-stream-betas, then `python -m experiments "
            "choose`."
        )
    with records.claim(row.configuration(seed, values[0])) as mine:
        missing = [value for value in values if not records.has(row.configuration(seed, value))]
        if not mine or not missing:
            return
        begin = time.perf_counter()
        torch.manual_seed(seed)  # dropout draws from torch's own generator
        job = Job(seed, missing, order.device, order.fast)
        for value, result in row.run(job, data.tasks(row.problem)):
            records.write(row.configuration(seed, value), {**result, "quick": order.quick})
    shown = f"{row.problem.name}, {row.key}, memory {row.memory}, seed {seed}"
    report(f"{shown}: {len(missing)} runs in {time.perf_counter() - begin:.1f} s")


def _tell(words: str) -> None:
    report(f"experiments: {words}")
