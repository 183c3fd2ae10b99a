"""Runs what has no record yet, one after the other or in several processes that share the runs."""

import math
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch

from bicore import InputError
from experiments.catalogue import EXPERIMENTS
from experiments.problems import Data
from experiments.records import Records
from experiments.rows import Job, Row


@dataclass(frozen=True)
class Order:
    """What is to be run, where, and for how long.

    ``only`` are the keys of rows, all if there are none; ``fast`` lets products use fewer bits on a
    GPU; no run begins after so many ``minutes``; of what a row tries only the ``values`` given are
    run, all if there are none; ``on`` and ``memory`` leave other data and other sizes out.
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
        """A row that there is not, or a value that no row tries, would pass for one whose runs are
        all done."""
        keys = {row.key for name in self.names for row in EXPERIMENTS[name].rows()}
        for key in self.only:
            if key not in keys:
                near = get_close_matches(key, keys, 1, 0) or ["nothing"]
                raise InputError(
                    f"--only {key!r}: no row of {', '.join(self.names)} is called so; the nearest "
                    f"is {near[0]!r}. Rows are separated by semicolons."
                )
        narrowed = self.on is not None or self.memory is not None
        if narrowed and not any(self.rows(name) for name in self.names):
            rows = [row for name in self.names for row in EXPERIMENTS[name].rows()]
            data = ", ".join(sorted({row.problem.name for row in rows}))
            raise InputError(
                f"--on {self.on}, --memory {self.memory}: no row of {', '.join(self.names)} is run "
                f"there; their data are {data}. Give one of these, or leave it out."
            )
        known = self._known() if self.values else set()
        strange = [f"{value:g}" for value in self.values if value not in known]
        if strange:
            tried = ", ".join(f"{value:g}" for value in sorted(known)) or "nothing"
            toys = " at toy size" if self.quick else ""
            raise InputError(
                f"--tried {', '.join(strange)}: no row of {', '.join(self.names)} that was asked "
                f"for tries that{toys}; they try {tried}. Give some of these, or leave out --tried."
            )

    def tried(self, row: Row) -> tuple[float, ...]:
        """What a row tries here."""
        values = self._offered(row)
        return tuple(value for value in values if not self.values or value in self.values)

    def _known(self) -> set[float]:
        """All that the rows asked for try; what has not been chosen yet is no value."""
        rows = (row for name in self.names for row in self.rows(name) if row.trials.name)
        return {value for row in rows for value in self._offered(row) if not math.isnan(value)}

    def _offered(self, row: Row) -> tuple[float, ...]:
        return row.trials.toy if self.quick else row.trials.values

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

    @property
    def words(self) -> list[str]:
        """The same order for another process."""
        precision = "fast" if self.fast else "float32"
        given = {"--seeds": self.seeds, "--device": self.device, "--records": self.folder}
        given |= {"--precision": precision, "--data": self.data, "--on": self.on}
        given |= {"--only": ";".join(self.only), "--tried": ",".join(map(repr, self.values))}
        given |= {"--memory": self.memory, "--minutes": self.minutes}
        words = [
            word for name, one in given.items() if one not in (None, "") for word in (name, one)
        ]
        return ["run", *self.names, *map(str, words), *(["--quick"] if self.quick else [])]


def shared(words: list[str], workers: int) -> int:
    """The same command in several processes; a run goes to the one that claims it first."""
    environment = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
    command = [sys.executable, "-m", "experiments", *words, "--worker"]
    processes = [subprocess.Popen(command, env=environment) for _ in range(workers)]
    try:
        codes = [process.wait() for process in processes]
        return int(any(codes))  # one that was killed has failed too
    except KeyboardInterrupt:
        for process in processes:
            process.terminate()
        raise


def one_by_one(order: Order) -> int:
    """Every run that has no record; one that fails is told and leaves the others alone."""
    data = Data(order.data, order.quick)
    start = time.perf_counter()
    failed = 0
    for name in order.names:
        records = order.records(name)
        for seed in EXPERIMENTS[name].seeds(1 if order.quick else order.seeds):
            for row in order.rows(name):
                if order.minutes is not None and time.perf_counter() - start > 60 * order.minutes:
                    _tell(f"{order.minutes} minutes are over; the same command goes on.")
                    return failed
                failed |= _tried(row, seed, data, records, order)
    return failed


def _tried(row: Row, seed: int, data: Data, records: Records, order: Order) -> int:
    """Whether its runs failed, as an exit code."""
    try:
        _run(row.toy() if order.quick else row, seed, data, records, order)
    except InputError as refusal:
        _tell(f"{row.title}, seed {seed}: {refusal}")
        return 1
    except Exception:
        _tell(f"{row.problem.name}, {row.title}, seed {seed} failed:\n{traceback.format_exc()}")
        return 1
    return 0


def _run(row: Row, seed: int, data: Data, records: Records, order: Order) -> None:
    """Run what is missing of a row, unless another process is at it."""
    values = order.tried(row)
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
    shown = f"{row.problem.name}, {row.title}, memory {row.memory}, seed {seed}"
    seconds = time.perf_counter() - begin
    print(f"{shown}: {len(missing)} runs in {seconds:.1f} s", file=sys.stderr, flush=True)


def _tell(words: str) -> None:
    print(f"experiments: {words}", file=sys.stderr, flush=True)
