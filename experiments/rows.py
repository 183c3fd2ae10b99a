"""Rows of tables: a key, and all settings of the runs.

Nothing is decided by a key. Each experiment has a kind of row of its own, which knows what it
tries, how it is run and what it looks like as a toy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from experiments.problems import Problem
from experiments.tasks import Task

#: By how much a toy has fewer rows of memory; the smallest still has one for each of ten classes.
QUICK_SHARE = 5
#: A mean of the paper and its standard deviation.
Number = dict[str, float]
#: What came out, by what was tried.
Results = Iterator[tuple[float, dict[str, Any]]]


@dataclass(frozen=True)
class Trials:
    """Values that a row tries or varies, those of its toy, and what they are called in a record.

    Most are β; VCL tries weights of its divergence, and where the size itself varies it takes the
    memory's place. Without a name there is nothing to try.
    """

    values: tuple[float, ...] = (0.0,)
    toy: tuple[float, ...] = (0.0,)
    name: str | None = None

    @classmethod
    def of_beta(cls, betas: Sequence[float]) -> Trials:
        """A toy has the first; it needs one even where none has been chosen."""
        first = 1.0 if math.isnan(betas[0]) else betas[0]
        return cls(tuple(betas), (first,), "beta")

    def to_record(self, value: float) -> dict[str, Any]:
        """A value as a record has it."""
        if self.name is None:
            return {}
        return {self.name: int(value) if self.name == "memory" else value}


@dataclass(frozen=True)
class Job:
    """Runs of a row that go side by side: their seed, what they try, where they are computed, and
    whether products may use fewer bits there."""

    seed: int
    values: Sequence[float]
    device: str = "cpu"
    fast: bool = True


@dataclass(frozen=True)
class Source:
    """The experiment, and the key, under which the runs of a row are recorded already; where a run
    was measured in several ways, by which of them."""

    experiment: str
    key: str
    measured: str = ""


@dataclass(frozen=True, kw_only=True)
class Row(ABC):
    """``key`` is the method's name in records and tables.

    ``paper`` is the published number, ``source`` where its runs are if another table has them, and
    a ``reference`` is the paper's own method or the one that is proposed in its place: the other
    rows are compared with it.
    """

    problem: Problem
    key: str
    memory: int
    paper: Number | None = None
    source: Source | None = None
    reference: bool = False

    @property
    def trials(self) -> Trials:
        """What is tried; nothing by default."""
        return Trials()

    @property
    def normalisation(self) -> str:
        """By what its network is, if it is: rows are compared with those of the same alone."""
        return ""

    @abstractmethod
    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        """The result of every value of the job, as they come."""

    def toy(self) -> Self:
        """The same row at a size that runs in seconds; nothing is kept in the middle of it."""
        return replace(
            self, memory=toy_memory(self.memory), problem=replace(self.problem, long=False)
        )

    def configuration(self, seed: int, value: float) -> dict[str, Any]:
        """Of one run: by this its record is found."""
        return {
            "dataset": self.problem.name,
            "method": self.key,
            "memory": self.memory,
            **self.trials.to_record(value),
            "seed": seed,
        }

    def variant(self, key: str, **facts: Any) -> Self:
        """A row that differs in these facts."""
        return replace(self, key=key, **facts)

    def borrow(self, experiment: str, key: str) -> Self:
        """This row of an experiment as a row of another table, under another key."""
        return self.variant(key, source=Source(experiment, self.key))


def toy_memory(memory: int) -> int:
    return max(4, memory // QUICK_SHARE)


@dataclass(frozen=True)
class Experiment:
    """One table of the paper. Its rows are made anew at every call: some of their facts are found
    by other experiments."""

    name: str
    title: str
    rows: Callable[[], list[Row]]
    #: Whether it is run with seed 0 alone.
    one_seed: bool = False

    def seeds(self, wanted: int) -> Sequence[int]:
        """The seeds to run, if ``wanted`` are asked for."""
        return range(min(1, wanted) if self.one_seed else wanted)


EXPERIMENTS: dict[str, Experiment] = {}
Make = TypeVar("Make", bound=Callable[..., Sequence[Row]])


def experiment(
    name: str, title: str, problems: Sequence[Problem] = (), one_seed: bool = False
) -> Callable[[Make], Make]:
    """Register a function that makes the rows of an experiment, of each problem if there are
    some."""

    def register(make: Make) -> Make:
        def rows() -> list[Row]:
            parts = [make(problem) for problem in problems] if problems else [make()]
            return [row for part in parts for row in part]

        EXPERIMENTS[name] = Experiment(name, title, rows, one_seed)
        return make

    return register
