"""Comparisons of methods and of stream memories: the same pools, test data no method saw.

The selections of a seed and size are evaluated together, and their rows written as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset
from bicore.errors import BicoreError
from bicore.evaluate.models import Judge, MajorityJudge, NetworkJudge, perceptron
from bicore.evaluate.pools import Pools, labels_of
from bicore.evaluate.records import Records, Row
from bicore.evaluate.samples import Measures, Sample, draw_tuning_rows
from bicore.memory.buffer import Buffer
from bicore.networks.observe import Observed, observe
from bicore.runtime import Clock, Context, Runtime
from bicore.selectors.base import Selector

#: Names in the records of the models trained on the whole pool, and of its majority class or mean.
WHOLE = "everything"
MAJORITY = "majority"

#: Metrics of one selection by the models' names.
Found = dict[str, Measures]
#: What is compared: selectors, or makers of buffers.
Method = TypeVar("Method")


@dataclass(frozen=True, eq=False)
class Picked:
    """A selection that is not evaluated yet."""

    method: str
    coreset: Coreset
    seconds: float


@dataclass(frozen=True)
class Grid(Generic[Method]):
    """The cells of a comparison: every method at every size for every seed.

    Parameters
    ----------
    methods : mapping
        Selectors, or makers of buffers, by their names in tables.
    sizes : sequence of int
        Numbers of selected points; for a stream, numbers of rows seen.
    seeds : sequence of int
        Repetitions, each with its own pool and training.

    Examples
    --------
    >>> from bicore.selectors import ClassBalanced, Uniform
    >>> Grid({"uniform": Uniform(), "balanced": ClassBalanced()}, [5, 10], range(3)).cells()
    12
    """

    methods: Mapping[str, Method]
    sizes: Sequence[int]
    seeds: Sequence[int]

    def cells(self) -> int:
        """The number of rows of a complete comparison.

        Returns
        -------
        int
            Methods times sizes times seeds.
        """
        return len(self.methods) * len(self.sizes) * len(self.seeds)


@dataclass
class BaseComparison(Generic[Method]):
    """A grid of methods, the evaluation models, and the rows of both.

    See :class:`Comparison` for the fields.
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
    #: Whether rows hold the picks; what a buffer keeps changes along its stream.
    keeps_picks: ClassVar[bool] = False
    #: The unit of the sizes, and the meaning of the seconds, in tables.
    unit: ClassVar[str] = "points"
    seconds_of: ClassVar[str] = "one selection, largest size"

    def facts(self) -> dict[str, Any]:
        """The settings of this kind of comparison.

        Returns
        -------
        dict
            By name, for JSON.
        """
        return {"pool": self.pools.size}

    def row_to_json(self, row: Row) -> dict[str, Any]:
        """A row for JSON.

        Parameters
        ----------
        row : Row
            One of :meth:`rows`.

        Returns
        -------
        dict
            By name, without recalls and picks.
        """
        skipped = ("classes", "picks", "weights")
        return {name: value for name, value in vars(row).items() if name not in skipped}

    def run(self) -> None:
        """Fill every empty cell; a method that fails is left out from there on."""
        for seed in self.grid.seeds:
            wanted = [size for size in self.grid.sizes if self._missing(size, seed)]
            references = self._missing_references(seed)
            if wanted or references:
                stage = self._stage(seed)
                self._fill(stage, wanted)
                for name in references:
                    self._refer(stage, name)

    def _stage(self, seed: int) -> Any:
        """The data of one seed."""
        raise NotImplementedError

    def _fill(self, stage: Any, sizes: list[int]) -> None:
        """Fill the empty cells of one seed, which are at these sizes."""
        raise NotImplementedError

    @property
    def judges(self) -> tuple[Judge, ...]:
        """All evaluation models, the one that gives the score first."""
        return (self.judge, *self.others)

    def rows(self) -> list[Row]:
        """The rows of the grid that are there.

        Returns
        -------
        list of Row
            At most :meth:`Grid.cells`.
        """
        grid = self.grid
        return [
            row
            for row in self.records.rows.values()
            if row.method in grid.methods and row.size in grid.sizes and row.seed in grid.seeds
        ]

    def done(self) -> int:
        """The number of cells that have a row.

        Returns
        -------
        int
            At most :meth:`Grid.cells`.
        """
        return len(self.rows())

    def say(self, words: str) -> None:
        """Report progress.

        Parameters
        ----------
        words : str
            The current step.
        """
        if self.tell is not None:
            self.tell(self.done(), words)

    def _without_row(self, names: Sequence[str], size: int, seed: int) -> list[str]:
        known = self.records.rows
        return [one for one in names if one not in self.failed and (one, size, seed) not in known]

    def _missing(self, size: int, seed: int) -> list[str]:
        return self._without_row(list(self.grid.methods), size, seed)

    def _missing_references(self, seed: int) -> list[str]:
        asked = {MAJORITY: self.majority, WHOLE: self.whole}
        names = [name for name, wanted in asked.items() if wanted]
        return self._without_row(names, self.pools.size, seed)

    def _evaluate(
        self, stage: SeedData, samples: list[Sample], judges: Sequence[Judge]
    ) -> list[Found]:
        """For each sample the metrics of every model."""
        by_judge = [
            judge.tuned_by(stage.rows).measures(samples, stage.test, self.pools.outputs, stage.seed)
            for judge in judges
        ]
        names = [judge.name for judge in self.judges]
        return [dict(zip(names, own, strict=True)) for own in zip(*by_judge, strict=True)]

    def _refer(self, stage: SeedData, name: str) -> None:
        """Add the row of a whole pool: of the models trained on it, or of its majority class."""
        self.say(f"{name}, the whole pool of seed {stage.seed}")
        judges = self.judges if name == WHOLE else [MajorityJudge()] * len(self.judges)
        try:
            found = self._evaluate(stage, [stage.sample(stage.pool)], judges)[0]
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
        chosen: dict[str, list[Any]] | None = None,
    ) -> None:
        measures = {judge: dict(own.values) for judge, own in found.items()}
        classes = {judge: list(own.by_class) for judge, own in found.items() if own.by_class}
        score = found[self.judge.name].main
        row = Row(method, size, seed, score, seconds, model, measures, classes, **(chosen or {}))
        self.records.add(row)


class SeedData:
    """One seed: its pool, and the test and tuning rows as evaluation models see them."""

    def __init__(self, run: BaseComparison[Any], seed: int, in_order: bool = False) -> None:
        self.run, self.seed = run, seed
        self.pool, test = run.pools.of(seed, in_order)
        self.test = self.sample(test)
        self.rows = self.sample(self.pool[draw_tuning_rows(len(self.pool), seed)])

    def sample(self, data: Dataset) -> Sample:
        """Rows as an evaluation model sees them.

        Parameters
        ----------
        data : Dataset
            Rows of the pool or of the test data.

        Returns
        -------
        Sample
            On the device of the run.
        """
        return self.run.pools.sample(data, self.run.runtime.torch_device)


@dataclass
class Comparison(BaseComparison[Selector]):
    """One comparison of selection methods.

    Parameters
    ----------
    pools : Pools
        Pools to select from, and test data.
    grid : Grid
        The cells to fill.
    judge : Judge
        The evaluation model trained on each selection; its main metric is a row's score.
    records : Records
        The rows; those that are there already are kept.
    runtime : Runtime
        Device and limits of the selections.
    whole : bool
        Whether the models are also trained on each whole pool.
    tell : callable, optional
        Receives the number of finished rows and the current step.
    failed : dict
        Why a method was left out, by method; methods in it from the start are left out.
    others : sequence of Judge
        Further evaluation models of the same selections; their metrics are in the rows too.
    majority : bool
        Whether the majority class or the mean of each pool is tested too.
    model_steps : int
        Training steps of the model that some methods need, if no evaluation model is a network.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bicore.evaluate import RidgeJudge, make_pools
    >>> from bicore.selectors import KCenter, Uniform
    >>> from bicore.sources.opening import open_source
    >>> pools = make_pools(open_source("digits", limit=200), None, "auto", 100, 2000, 50)
    >>> grid = Grid({"uniform": Uniform(), "k-center": KCenter()}, sizes=[10], seeds=range(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = Records(Path(folder) / "rows.jsonl", {})
    ...     run = Comparison(pools, grid, RidgeJudge(), records, Runtime(device="cpu"))
    ...     run.run()
    >>> run.done(), run.failed
    (4, {})
    """

    model_steps: int = 1000
    keeps_picks: ClassVar[bool] = True

    @property
    def trainer(self) -> Judge:
        """Trains the model that some methods need: the first network among the models."""
        own = (judge for judge in self.judges if judge.is_network)
        return next(own, NetworkJudge("mlp", perceptron, self.model_steps))

    def _stage(self, seed: int) -> Stage:
        return Stage(self, seed)

    def _fill(self, stage: Stage, sizes: list[int]) -> None:
        """Select with each method, and evaluate as soon as a stack is complete."""
        for size in sizes:
            most = max(judge.at_once(size, self.runtime.torch_device) for judge in self.judges)
            waiting: list[Picked] = []
            for name in self._missing(size, stage.seed):
                self.say(f"{name}, {size} points, seed {stage.seed}")
                picked = self._selected(stage, name, size)
                waiting += [] if picked is None else [picked]
                if len(waiting) == most:
                    self._record_all(stage, size, waiting)
                    waiting = []
            self._record_all(stage, size, waiting)

    def _selected(self, stage: Stage, name: str, size: int) -> Picked | None:
        """Select with one method; None if it fails."""
        selector = self.grid.methods[name]
        try:
            context = stage.context(selector)
            clock = Clock()
            coreset = selector.select(stage.pool, size, rng=stage.seed, context=context)
        except BicoreError as error:
            self.failed[name] = f"seed {stage.seed}, {size} points: {error}"
            return None
        if coreset.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # a partial selection is not a row
        return Picked(name, coreset, clock.seconds)

    def _record_all(self, stage: Stage, size: int, waiting: list[Picked]) -> None:
        """Evaluate and record; stacks need one size, so smaller coresets are evaluated apart."""
        by_length: dict[int, list[Picked]] = {}
        for picked in waiting:
            by_length.setdefault(len(picked.coreset), []).append(picked)
        for stack in by_length.values():
            for picked, found in zip(stack, self._measures(stage, stack), strict=True):
                if found is not None:
                    needs = _needs_model(self.grid.methods[picked.method])
                    times = picked.seconds, stage.model_seconds if needs else 0.0
                    chosen = stage.chosen(picked.coreset)
                    self._record(picked.method, size, stage.seed, found, *times, chosen)
        self.say("")

    def _measures(self, stage: Stage, stack: list[Picked]) -> list[Found | None]:
        """Evaluate a stack; if that fails, each selection alone, without those that fail."""
        try:
            samples = [stage.sample(picked.coreset.normalised().of(stage.pool)) for picked in stack]
            return list(self._evaluate(stage, samples, self.judges))
        except BicoreError as error:
            if len(stack) == 1:
                self.failed[stack[0].method] = f"seed {stage.seed}: {error}"
                return [None]
            return [self._measures(stage, [picked])[0] for picked in stack]


class Stage(SeedData):
    """One seed of a comparison, and the model that some methods need.

    The model is trained on the whole pool at the first use.

    Parameters
    ----------
    comparison : Comparison
        The comparison it belongs to.
    seed : int
        Seed of the pool and of all trainings.

    Examples
    --------
    See :class:`Comparison`, which makes one for each seed.
    """

    def __init__(self, comparison: Comparison, seed: int) -> None:
        super().__init__(comparison, seed)
        self.comparison = comparison
        self.model_seconds = 0.0
        self.module: nn.Module | None = None
        self.observed: Observed | None = None

    def chosen(self, coreset: Coreset) -> dict[str, list[Any]]:
        """The picks and weights of a selection that its row keeps.

        Parameters
        ----------
        coreset : Coreset
            Selected from the pool.

        Returns
        -------
        dict
            In rows of the source; empty after the first seed, the one that pages show. The picks of
            all seeds would make the records several times as long.
        """
        run = self.comparison
        if self.seed != run.grid.seeds[0]:
            return {}
        rows = run.pools.rows(self.seed)[coreset.indices].tolist()
        return {"picks": rows, "weights": [] if coreset.binary else coreset.weights.tolist()}

    def context(self, selector: Selector) -> Context:
        """The context of a selection.

        Parameters
        ----------
        selector : Selector
            The method.

        Returns
        -------
        Context
            The runtime, and for methods that need it the model: the module itself if the method
            trains it or samples from it, else its outputs on the pool.
        """
        quiet = replace(self.comparison.runtime, progress=False)
        if not _needs_model(selector):
            return Context(runtime=quiet)
        if self.module is None:
            self._train()
        return Context(self.module if selector.fits_model else self.observed, quiet)

    def _train(self) -> None:
        run = self.comparison
        clock = Clock()
        run.say(f"training the model on the pool of seed {self.seed}")
        self.module = run.trainer.module(self.sample(self.pool), run.pools.outputs, self.seed)
        self.observed = observe(self.module, self.pool.x)
        if run.runtime.torch_device.type == "cuda":
            torch.cuda.synchronize()
        self.model_seconds = clock.seconds


def _needs_model(selector: Selector) -> bool:
    """Whether a method needs the model in any form."""
    return selector.needs_model or selector.fits_model


#: Makes a buffer from a seed.
Maker = Callable[[int], Buffer]


class Order(StrEnum):
    """The order of a stream's rows.

    Examples
    --------
    >>> Order("sorted") is Order.SORTED
    True
    """

    #: The order of the source.
    GIVEN = "given"
    #: A random order for each seed.
    RANDOM = "random"
    #: By label or target, the hardest order for a memory.
    SORTED = "sorted"


def positions_of(rows: int, points: int, batch: int) -> list[int]:
    """The numbers of rows after which buffers are evaluated: ends of batches, evenly spaced.

    Parameters
    ----------
    rows : int
        Rows of the whole stream, the last position.
    points : int
        The number of positions.
    batch : int
        Rows per batch.

    Returns
    -------
    list of int
        Ascending; fewer than ``points`` if there are fewer batches.

    Examples
    --------
    >>> positions_of(1000, 5, 125)
    [250, 500, 625, 875, 1000]
    """
    wanted = [rows * number / points for number in range(1, points + 1)]
    return sorted({min(rows, int(-(-place // batch)) * batch) for place in wanted})


@dataclass
class StreamComparison(BaseComparison[Maker]):
    """One comparison of buffers on streams.

    A seed's stream is its pool in a given order. After each of ``grid.sizes`` rows the evaluation
    models are trained on the snapshot of a buffer, with its weights. The test data stay the same,
    so classes that have not come yet are tested too.

    Parameters
    ----------
    pools : Pools
        The rows of the streams, and test data.
    grid : Grid
        Makers of buffers by name, and the numbers of rows after which they are evaluated.
    judge : Judge
        The evaluation model trained on each snapshot; its main metric is a row's score.
    records : Records
        The rows; those that are there already are kept. The size of a row is the number of stream
        rows seen, its seconds are those of all updates until then.
    runtime : Runtime
        Device and limits of the updates.
    whole : bool
        Whether the models are also trained on each whole stream.
    tell : callable, optional
        Receives the number of finished rows and the current step.
    failed : dict
        Why a buffer was left out, by buffer; buffers in it from the start are left out.
    others : sequence of Judge
        Further evaluation models of the same snapshots; their metrics are in the rows too.
    majority : bool
        Whether the majority class or the mean of each stream is tested too.
    order : {"given", "random", "sorted"}
        The order of the rows.
    batch : int
        Rows per update.
    capacity : int, optional
        Rows that the buffers keep, for reports.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bicore import Runtime
    >>> from bicore.evaluate.comparison import Grid
    >>> from bicore.evaluate.records import Records
    >>> from bicore.evaluate.models import RidgeJudge
    >>> from bicore.evaluate.pools import make_pools
    >>> from bicore.memory import Reservoir
    >>> from bicore.sources.opening import open_source
    >>> pools = make_pools(open_source("digits", limit=200), None, "auto", 100, 2000, 50)
    >>> grid = Grid({"reservoir": lambda seed: Reservoir(10, seed)}, [50, 100], seeds=range(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = Records(Path(folder) / "rows.jsonl", {})
    ...     run = StreamComparison(
    ...         pools, grid, RidgeJudge(), records, Runtime(device="cpu"), batch=25
    ...     )
    ...     run.run()
    >>> run.done(), run.failed
    (4, {})
    """

    order: str = "given"
    batch: int = 125
    capacity: int | None = None
    unit: ClassVar[str] = "rows"
    seconds_of: ClassVar[str] = "all updates; a column is evaluated after that many rows"

    def facts(self) -> dict[str, Any]:
        positions = list(self.grid.sizes)
        own = {name: getattr(self, name) for name in ("capacity", "order", "batch")}
        return {"stream": self.pools.size, **own, "positions": positions}

    def row_to_json(self, row: Row) -> dict[str, Any]:
        seconds = row.selection_seconds
        return {
            "buffer": row.method,
            "position": row.size,
            "seed": row.seed,
            "accuracy": row.accuracy,
            "update_seconds": seconds,
            "rows_per_second": row.size / seconds if seconds else None,
            "measures": row.measures,
        }

    def _stage(self, seed: int) -> SeedData:
        return SeedData(self, seed, in_order=True)

    def _fill(self, stage: SeedData, sizes: list[int]) -> None:
        """Feed each buffer that lacks a row."""
        rows = stage.pool[self._ordered(stage.pool, stage.seed)]
        stream = Dataset(rows.x, rows.y)
        for name in self.grid.methods:
            missing = [size for size in sizes if name in self._missing(size, stage.seed)]
            try:
                if missing:
                    self._follow(stage, stream, name, missing)
            except BicoreError as error:
                self.failed[name] = f"seed {stage.seed}: {error}"

    def _ordered(self, pool: Dataset, seed: int) -> Array:
        """The rows of a pool in the order of the stream."""
        order = Order(self.order)
        if order is Order.GIVEN:
            return np.arange(len(pool))
        if order is Order.RANDOM:
            # the draw of the pool has 0 in this place
            return np.random.default_rng((seed, 1)).permutation(len(pool))
        labels = labels_of(pool, self.pools.classification)
        # several targets are sorted by the first
        return np.argsort(labels.reshape(len(pool), -1)[:, 0], kind="stable")

    def _follow(self, data: SeedData, stream: Dataset, name: str, missing: list[int]) -> None:
        """Feed a buffer, and evaluate it at the positions that have no row yet."""
        buffer = self.grid.methods[name](data.seed)
        context = Context(runtime=replace(self.runtime, progress=False))
        seconds = 0.0
        for start in range(0, missing[-1], self.batch):
            rows = stream[start : start + self.batch]
            clock = Clock()
            buffer.update(rows.x, rows.y, context=context)
            seconds += clock.seconds
            if buffer.position in missing:
                self.say(f"{name}, {buffer.position} rows, seed {data.seed}")
                found = self._evaluate(data, [data.sample(buffer.snapshot())], self.judges)[0]
                self._record(name, buffer.position, data.seed, found, seconds, 0.0)
        self.say("")
