"""What all comparisons have in common: pools, judges, and rows that are written as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from bicore.data import Dataset
from bicore.errors import BicoreError
from bicore.evaluate.judges import Judge, MajorityJudge, Measures, Sample, as_sample
from bicore.evaluate.judges.tuning import drawn
from bicore.evaluate.pools import Pools, labels_of
from bicore.evaluate.records import Records, Row
from bicore.runtime import Runtime

#: The names under which the judge trained on the whole pool is recorded, and who knows of the pool
#: nothing but its majority class or mean.
WHOLE = "everything"
MAJORITY = "majority"


#: Measures of one selection by the judges' names.
Found = dict[str, Measures]
#: What is compared: selectors, or buffers of a stream.
Method = TypeVar("Method")


@dataclass(frozen=True)
class Chosen:
    """Rows of the source that a method selected, in order, and their weights; none if all are 1."""

    rows: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Grid(Generic[Method]):
    """What is compared: every method at every size for every seed.

    Parameters
    ----------
    methods : mapping
        Selectors, or makers of buffers, by the name that tables show.
    sizes : sequence of int
        How many points are selected; of a stream, how many rows were seen.
    seeds : sequence of int
        Repetitions, each with a pool and a judge of its own.

    Examples
    --------
    >>> from bicore.evaluate import Grid
    >>> from bicore.selectors import ClassBalanced, Uniform
    >>> Grid({"uniform": Uniform(), "balanced": ClassBalanced()}, [5, 10], range(3)).cells()
    12
    """

    methods: Mapping[str, Method]
    sizes: Sequence[int]
    seeds: Sequence[int]

    def cells(self) -> int:
        """How many rows there will be.

        Returns
        -------
        int
            The number of methods, times that of sizes, times that of seeds.
        """
        return len(self.methods) * len(self.sizes) * len(self.seeds)


@dataclass
class Judging(Generic[Method]):
    """A grid of methods, the judges of what they choose, and the rows of both.

    Selections and streams fill it in their own ways; see :class:`bicore.evaluate.Comparison`
    for the fields.
    """

    pools: Pools
    grid: Grid[Method]
    judge: Judge
    records: Records
    runtime: Runtime
    whole: bool = False
    tell: Callable[[int, str], None] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    others: Sequence[Judge] = ()
    majority: bool = False
    #: Whether rows say what was chosen; what a buffer keeps changes along its stream.
    keeps_picks: ClassVar[bool] = False

    def run(self) -> None:
        """Fill every cell that has no row yet; a method that fails is left out from there on."""
        raise NotImplementedError

    @property
    def judges(self) -> tuple[Judge, ...]:
        """All judges, the one that gives the score first."""
        return (self.judge, *self.others)

    def done(self) -> int:
        """How many cells have a row.

        Returns
        -------
        int
            At most :meth:`Grid.cells`.
        """
        wanted = self.grid
        return sum(
            row.method in wanted.methods and row.size in wanted.sizes and row.seed in wanted.seeds
            for row in self.records.rows.values()
        )

    def say(self, words: str) -> None:
        """Hand on how far the run is.

        Parameters
        ----------
        words : str
            What is being done.
        """
        if self.tell is not None:
            self.tell(self.done(), words)

    def _missing(self, size: int, seed: int) -> list[str]:
        known = self.records.rows
        return [
            name
            for name in self.grid.methods
            if name not in self.failed and (name, size, seed) not in known
        ]

    def _missing_references(self, seed: int) -> list[str]:
        asked = {MAJORITY: self.majority, WHOLE: self.whole}
        known = self.records.rows
        return [
            name
            for name, wanted in asked.items()
            if wanted and name not in self.failed and (name, self.pools.size, seed) not in known
        ]

    def _judged(
        self, stage: SeedData, samples: list[Sample], judges: Sequence[Judge]
    ) -> list[Found]:
        """For each sample what every judge says."""
        outputs = self.pools.outputs
        by_judge = [
            judge.tuned_by(stage.rows).measures(samples, stage.test, outputs, stage.seed)
            for judge in judges
        ]
        names = [judge.name for judge in self.judges]
        return [dict(zip(names, own, strict=True)) for own in zip(*by_judge, strict=True)]

    def _refer(self, stage: SeedData, name: str) -> None:
        """The row of all of the pool: of the judges trained on it, or of its majority."""
        self.say(f"{name}, the whole pool of seed {stage.seed}")
        judges = self.judges if name == WHOLE else [MajorityJudge()] * len(self.judges)
        try:
            found = self._judged(stage, [stage.sample(stage.pool)], judges)[0]
        except BicoreError as error:
            self.failed[name] = f"seed {stage.seed}: {error}"
            return
        self._record(name, self.pools.size, stage.seed, found, 0.0, 0.0)

    def _record(
        self,
        method: str,
        size: int,
        seed: int,
        found: Found,
        seconds: float,
        model: float,
        chosen: Chosen | None = None,
    ) -> None:
        measures = {judge: dict(own.values) for judge, own in found.items()}
        classes = {judge: list(own.by_class) for judge, own in found.items() if own.by_class}
        score = found[self.judge.name].main
        row = Row(method, size, seed, score, seconds, model, measures, classes)
        if chosen is not None:
            row = replace(row, picks=chosen.rows, weights=chosen.weights)
        self.records.add(row)


class SeedData:
    """One seed: its pool and test data as judges see them."""

    def __init__(self, run: Judging[Any], seed: int, in_order: bool = False) -> None:
        self.run = run
        self.seed = seed
        self.pool, test = run.pools.of(seed, in_order)
        self.test = self.sample(test)
        #: Of the pool, that judges are tuned by.
        self.rows = self.sample(self.pool[drawn(len(self.pool), seed)])

    def sample(self, data: Dataset) -> Sample:
        """Rows as the judge sees them.

        Parameters
        ----------
        data : Dataset
            Rows of the pool or of the test data.

        Returns
        -------
        Sample
            On the device of the run.
        """
        pools = self.run.pools
        labels = labels_of(data, pools.classification)
        device = self.run.runtime.torch_device
        return as_sample(data.x, labels, data.weights, device, pools.classification)
