"""Comparisons of methods and of stream memories, with the same pools and held-out test data.

The selections of a seed and size are evaluated together, and their rows written as they come.
Findings summarise the rows for each evaluation model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from bicore._deprecated import renamed_methods
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset
from bicore.errors import BicoreError, as_option, check_integer
from bicore.evaluate import models
from bicore.evaluate.pools import Pools, labels_of
from bicore.evaluate.records import Entry, Records, Result, Summary, results_with_score, summarise
from bicore.evaluate.worth import Equivalent, worth_of_results
from bicore.methods.base import Selector
from bicore.networks.observe import Observed, observe
from bicore.runtime.clock import Clock
from bicore.runtime.context import Context, Runtime

#: Names in the records of models trained on the whole pool, and of the majority class or mean.
WHOLE = "everything"
MAJORITY = "majority"

#: Metrics of one selection, by evaluation model.
Found = dict[str, models.Measures]
#: Entries by the key of a metric.
Entries = dict[str, Entry]
#: A method's name, its selection, and the seconds it took.
Picked = tuple[str, Coreset, float]


@dataclass(frozen=True)
class Grid:
    """The cells of a comparison: every method at every size for every seed."""

    methods: Mapping[str, Any]
    sizes: Sequence[int]
    seeds: Sequence[int]

    def cells(self) -> int:
        """Number of results of a complete comparison."""
        return len(self.methods) * len(self.sizes) * len(self.seeds)


@renamed_methods(rows="results")
@dataclass
class BaseComparison:
    """A grid of methods, the evaluation models, and the rows of results.

    See :class:`Comparison` for the fields.
    """

    pools: Pools
    grid: Grid
    judge: models.Judge
    records: Records
    runtime: Runtime
    whole: bool = False
    callback: Callable[[int, str], None] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    others: Sequence[models.Judge] = ()
    majority: bool = False
    #: What sizes and seconds mean, for tables.
    along: ClassVar[str] = "rows selected"
    seconds_of: ClassVar[str] = "one selection, largest size"

    def facts(self) -> dict[str, Any]:
        """The settings of this kind of comparison."""
        return {"pool": self.pools.size}

    def result_to_json(self, result: Result) -> dict[str, Any]:
        """Convert a result for JSON."""
        skipped = ("classes", "picks", "weights")
        return {name: one for name, one in result.as_record().items() if name not in skipped}

    def run(self) -> None:
        """Fill every empty cell; a failing method is skipped from then on."""
        asked = {MAJORITY: self.majority, WHOLE: self.whole}
        for seed in self.grid.seeds:
            sizes = [size for size in self.grid.sizes if self._missing(size, seed)]
            wanted = [name for name, one in asked.items() if one]
            references = self._missing(self.pools.size, seed, wanted)
            if sizes or references:
                stage = Stage(self, seed)
                self._fill(stage, sizes)
                for name in references:
                    self._refer(stage, name)

    def _fill(self, stage: Stage, sizes: list[int]) -> None:
        """Fill the empty cells of one seed at these sizes."""
        raise NotImplementedError

    @property
    def judges(self) -> tuple[models.Judge, ...]:
        """All evaluation models; the first gives the score."""
        return (self.judge, *self.others)

    def results(self) -> list[Result]:
        """The results of the grid so far."""
        grid, known = self.grid, self.records.results.values()
        of_seeds = [one for one in known if one.seed in grid.seeds and one.size in grid.sizes]
        return [one for one in of_seeds if one.method in grid.methods]

    def done(self) -> int:
        """Number of filled cells."""
        return len(self.results())

    def say(self, words: str) -> None:
        """Report progress."""
        if self.callback is not None:
            self.callback(self.done(), words)

    def _missing(self, size: int, seed: int, names: Sequence[str] | None = None) -> list[str]:
        """Return the methods, or names of references, without a result."""
        known = self.records.results
        every = list(self.grid.methods) if names is None else names
        return [one for one in every if one not in self.failed and (one, size, seed) not in known]

    def _evaluate(
        self, stage: Stage, rows: list[models.Sample], judges: Sequence[models.Judge]
    ) -> list[Found]:
        """Return the metrics of every model for each sample."""
        by_judge = [
            judge.tune(stage.rows).measures(rows, stage.test, self.pools.outputs, stage.seed)
            for judge in judges
        ]
        names = [judge.name for judge in self.judges]
        return [dict(zip(names, own, strict=True)) for own in zip(*by_judge, strict=True)]

    def _refer(self, stage: Stage, name: str) -> None:
        """Add the row of a whole pool: of models trained on it, or of its majority class."""
        self.say(f"{name}, all rows of the pool of seed {stage.seed}")
        judges = self.judges if name == WHOLE else [models.MajorityJudge()] * len(self.judges)
        try:
            found = self._evaluate(stage, [stage.sample(stage.pool)], judges)[0]
        except BicoreError as error:
            self.failed[name] = f"seed {stage.seed}: {error}"
            return
        self._record(name, self.pools.size, stage.seed, found, 0.0)

    def _record(
        self, method: str, size: int, seed: int, found: Found, seconds: float, **more: Any
    ) -> None:
        score = found[self.judge.name].main
        measures = {judge: dict(own.values) for judge, own in found.items()}
        classes = {judge: list(own.by_class) for judge, own in found.items() if own.by_class}
        own = {"measures": measures, "classes": classes, **more}
        self.records.add(Result(method, size, seed, score, seconds, **own))


class Stage:
    """One seed of a comparison: pool, test and tuning rows, and the model that some methods need.

    The model is trained on the whole pool at the first use.
    """

    def __init__(self, comparison: BaseComparison, seed: int) -> None:
        self.comparison, self.seed = comparison, seed
        self.pool, test = comparison.pools.of(seed, isinstance(comparison, StreamComparison))
        self.test = self.sample(test)
        self.rows = self.sample(self.pool[models.draw_tuning_rows(len(self.pool), seed)])
        self.model_seconds = 0.0
        self.module: nn.Module | None = None
        self.observed: Observed | None = None

    def sample(self, data: Dataset) -> models.Sample:
        """Return rows as input of an evaluation model."""
        return self.comparison.pools.sample(data, self.comparison.runtime.torch_device)

    def picks_and_weights(self, coreset: Coreset) -> dict[str, list[Any]]:
        """Return the picks and weights of a selection for its row."""
        run = self.comparison
        if self.seed != run.grid.seeds[0]:
            return {}
        rows = run.pools.rows(self.seed)[coreset.indices].tolist()
        return {"picks": rows, "weights": [] if coreset.binary else coreset.weights.tolist()}

    def context(self, selector: Selector) -> Context:
        """Return the context of a selection."""
        quiet = replace(self.comparison.runtime, progress=False)
        if not selector.needs_model:
            return Context(runtime=quiet)
        if self.module is None:
            self._train()
        return Context(self.module if selector.fits_model else self.observed, quiet)

    def _train(self) -> None:
        run = self.comparison
        assert isinstance(run, Comparison)
        clock = Clock()
        run.say(f"training the model on the pool of seed {self.seed}")
        self.module = run.trainer.module(self.sample(self.pool), run.pools.outputs, self.seed)
        self.observed = observe(self.module, self.pool.x)
        if run.runtime.torch_device.type == "cuda":
            torch.cuda.synchronize()
        self.model_seconds = clock.seconds


@dataclass
class Comparison(BaseComparison):
    """A comparison of selection methods."""

    model_steps: int = 1000

    @property
    def trainer(self) -> models.Judge:
        """The evaluation model that trains the network for some methods."""
        own = (judge for judge in self.judges if judge.is_network)
        return next(own, models.NetworkJudge("mlp", models.perceptron, self.model_steps))

    def _fill(self, stage: Stage, sizes: list[int]) -> None:
        """Select with each method, and evaluate once a stack is complete."""
        for size in sizes:
            most = max(judge.stack_size(size, self.runtime.torch_device) for judge in self.judges)
            waiting: list[Picked] = []
            for name in self._missing(size, stage.seed):
                self.say(f"{name}, {size} rows, seed {stage.seed}")
                waiting += self._select(stage, name, size)
                if len(waiting) == most:
                    self._record_all(stage, size, waiting)
                    waiting = []
            self._record_all(stage, size, waiting)

    def _select(self, stage: Stage, name: str, size: int) -> list[Picked]:
        """Select with one method; return an empty list if it fails."""
        selector = self.grid.methods[name]
        try:
            context = stage.context(selector)
            clock = Clock()
            coreset = selector.select(stage.pool, size, random_state=stage.seed, **context.keywords)
        except BicoreError as error:
            self.failed[name] = f"seed {stage.seed}, {size} rows: {error}"
            return []
        if coreset.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # a partial selection is not a row
        return [(name, coreset, clock.seconds)]

    def _record_all(self, stage: Stage, size: int, waiting: list[Picked]) -> None:
        """Evaluate and record; smaller coresets are evaluated separately, because a stack has
        one size."""
        by_length: dict[int, list[Picked]] = {}
        for picked in waiting:
            by_length.setdefault(len(picked[1]), []).append(picked)
        for stack in by_length.values():
            for (name, coreset, seconds), found in self._measures(stage, stack):
                model = stage.model_seconds if self.grid.methods[name].needs_model else 0.0
                more = {"model_seconds": model, **stage.picks_and_weights(coreset)}
                self._record(name, size, stage.seed, found, seconds, **more)
        self.say("")

    def _measures(self, stage: Stage, stack: list[Picked]) -> list[tuple[Picked, Found]]:
        """Evaluate a stack; if that fails, each selection alone."""
        try:
            samples = [stage.sample(coreset.normalise().of(stage.pool)) for _, coreset, _ in stack]
            return list(zip(stack, self._evaluate(stage, samples, self.judges), strict=True))
        except BicoreError as error:
            if len(stack) > 1:
                return [found for picked in stack for found in self._measures(stage, [picked])]
            self.failed[stack[0][0]] = f"seed {stage.seed}: {error}"
            return []


class Order(StrEnum):
    """The order of a stream's rows."""

    #: The order of the source.
    GIVEN = "given"
    #: A random order for each seed.
    RANDOM = "random"
    #: By label or target, the hardest order for a memory.
    SORTED = "sorted"


@dataclass(frozen=True)
class Stream:
    """The capacity of memories, the order of a stream, its batches and its evaluations."""

    capacity: int = 50
    order: str = "given"
    batch: int = 125
    points: int = 5

    def __post_init__(self) -> None:
        for name in ("capacity", "batch", "points"):
            check_integer(name, getattr(self, name))
        as_option("order", self.order, Order)

    def positions(self, rows: int) -> list[int]:
        """Return the numbers of rows after which memories are evaluated."""
        wanted = [rows * number / self.points for number in range(1, self.points + 1)]
        return sorted({min(rows, int(-(-place // self.batch)) * self.batch) for place in wanted})


@dataclass
class StreamComparison(BaseComparison):
    """A comparison of buffers on streams.

    A seed's stream is its pool in a given order. After each of ``grid.sizes`` rows the evaluation
    models are trained on the snapshot of a buffer, with its weights. The test data stay the same,
    so classes that were not seen yet are tested too. The size of a row is the number of stream
    rows seen, its seconds are those of all updates until then.
    """

    stream: Stream = Stream()
    along: ClassVar[str] = "rows seen"
    seconds_of: ClassVar[str] = "all updates; a column is evaluated after that many rows"

    def facts(self) -> dict[str, Any]:
        own = {name: getattr(self.stream, name) for name in ("capacity", "order", "batch")}
        return {"stream": self.pools.size, **own, "positions": list(self.grid.sizes)}

    def result_to_json(self, result: Result) -> dict[str, Any]:
        seconds = result.selection_seconds
        return {
            "buffer": result.method,
            "position": result.size,
            "seed": result.seed,
            "accuracy": result.score,
            "update_seconds": seconds,
            "rows_per_second": result.size / seconds if seconds else None,
            "measures": result.measures,
        }

    def _fill(self, stage: Stage, sizes: list[int]) -> None:
        """Feed each buffer without a result."""
        rows = stage.pool[self._sort_rows(stage.pool, stage.seed)]
        stream = Dataset(rows.x, rows.y)
        for name in self.grid.methods:
            missing = [size for size in sizes if name in self._missing(size, stage.seed)]
            try:
                if missing:
                    self._feed(stage, stream, name, missing)
            except BicoreError as error:
                self.failed[name] = f"seed {stage.seed}: {error}"

    def _sort_rows(self, pool: Dataset, seed: int) -> Array:
        """Return the rows of a pool in the order of the stream."""
        order = Order(self.stream.order)
        if order is Order.GIVEN:
            return np.arange(len(pool))
        if order is Order.RANDOM:
            # the draw of the pool has 0 in this place
            return np.random.default_rng((seed, 1)).permutation(len(pool))
        labels = labels_of(pool, self.pools.classification)
        # several targets: sorted by the first
        return np.argsort(labels.reshape(len(pool), -1)[:, 0], kind="stable")

    def _feed(self, stage: Stage, stream: Dataset, name: str, missing: list[int]) -> None:
        """Feed a buffer, and evaluate it at positions without a result."""
        buffer = self.grid.methods[name](stage.seed)
        context = Context(runtime=replace(self.runtime, progress=False))
        seconds, batch = 0.0, self.stream.batch
        for start in range(0, missing[-1], batch):
            rows = stream[start : start + batch]
            clock = Clock()
            buffer.update(rows.x, rows.y, model=context)
            seconds += clock.seconds
            if buffer.position in missing:
                self.say(f"{name}, {buffer.position} rows, seed {stage.seed}")
                found = self._evaluate(stage, [stage.sample(buffer.snapshot())], self.judges)[0]
                self._record(name, buffer.position, stage.seed, found, seconds)
        self.say("")


@dataclass(frozen=True, eq=False)
class Findings:
    """The results of one evaluation model by one metric."""

    judge: models.Judge
    measure: models.Measure
    summary: Summary
    majority: Entries
    whole: Entries
    note: str
    worth: dict[tuple[str, int], Equivalent]

    def rows(self) -> list[dict[str, Any]]:
        """Return the summary for JSON, with the worth of each method and size in words."""
        worths = {cell: one.short() for cell, one in self.worth.items()}
        entries = self.summary.entries
        return [one.as_json() | {"worth": worths.get((one.method, one.size))} for one in entries]


def findings_of(run: BaseComparison, measure: models.Measure) -> list[Findings]:
    """Summarise a comparison for each evaluation model."""
    return [_of_judge(run, judge, measure) for judge in run.judges]


def _of_judge(run: BaseComparison, judge: models.Judge, measure: models.Measure) -> Findings:
    results = _results(run, judge, measure)
    higher = measure.higher_is_better
    summary = summarise(results, list(run.grid.methods), run.grid.sizes, higher)
    majority, whole = _reference(run, judge, MAJORITY), _reference(run, judge, WHOLE)
    note = _note(run, judge, majority, whole)
    # random scores must rise with the size
    rising = results if higher else [replace(one, score=-one.score) for one in results]
    worth = worth_of_results(rising, list(run.grid.methods), run.grid.sizes)
    return Findings(judge, measure, summary, majority, whole, note, worth)


def _results(run: BaseComparison, judge: models.Judge, measure: models.Measure) -> list[Result]:
    """Return the run's results, scored by a model and a metric."""
    results = [one for one in run.records.results.values() if one.seed in run.grid.seeds]
    if judge is run.judge and measure is models.measures_of(run.pools.classification)[0]:
        return results  # older files have no other metrics
    return results_with_score(results, judge.name, measure.key)


def _reference(run: BaseComparison, judge: models.Judge, name: str) -> Entries:
    """Return all metrics of the results of a reference."""
    size = run.pools.size
    found: Entries = {}
    for measure in models.measures_of(run.pools.classification):
        entry = summarise(_results(run, judge, measure), [name], [size]).of(name, size)
        if entry is not None:
            found[measure.key] = entry
    return found


def _note(run: BaseComparison, judge: models.Judge, majority: Entries, whole: Entries) -> str:
    main = models.measures_of(run.pools.classification)[0]
    plain, trained = majority.get(main.key), whole.get(main.key)
    if not (plain and trained and plain.seeds == trained.seeds and trained.mean < plain.mean):
        return ""
    reference = "majority class" if run.pools.classification else "mean of the targets"
    model = f"the {judge.title(run.pools.classification)} model trained on all data"
    worse = f"is worse than the {reference} ({plain.mean:.4f}), so its scores say little here"
    return f"{model} ({main.title} {trained.mean:.4f}) {worse}"
