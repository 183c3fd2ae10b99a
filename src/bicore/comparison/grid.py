"""The comparison itself: for each seed and size select with every method, judge the selections
together, write the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from bicore.comparison.judges import Judge, NetworkJudge, Sample, as_sample, perceptron
from bicore.comparison.pools import Pools, labels_of
from bicore.comparison.records import Records, Row
from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.errors import BicoreError
from bicore.networks.observe import observe
from bicore.runtime import Clock, Context, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.baselines.batchbald import BatchBALD

#: The name under which the judge trained on the whole pool is recorded.
WHOLE = "everything"
#: At most so many networks are trained at once, times the points each sees, so that a stack fits a
#: small machine's memory.
STACKED_POINTS = {"cpu": 2000, "cuda": 20000}


@dataclass(frozen=True)
class Grid:
    """What is compared. ``methods`` are selectors by the name shown."""

    methods: Mapping[str, Selector]
    sizes: Sequence[int]
    seeds: Sequence[int]

    def cells(self) -> int:
        return len(self.methods) * len(self.sizes) * len(self.seeds)


@dataclass
class Comparison:
    """One run. ``whole`` also trains the judge on all of each pool; ``model_steps`` train the model
    that methods look at where the judge is no network; ``failed`` holds why a method was left out.
    """

    pools: Pools
    grid: Grid
    judge: Judge
    records: Records
    runtime: Runtime
    whole: bool = False
    model_steps: int = 1000
    tell: Callable[[int, str], None] = lambda done, words: None
    failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Fill every cell that has no row yet."""
        for seed in self.grid.seeds:
            wanted = [size for size in self.grid.sizes if self._missing(size, seed)]
            reference = self.whole and (WHOLE, self.pools.size, seed) not in self.records.rows
            if not wanted and not reference:
                continue
            stage = Stage(self, seed)
            for size in wanted:
                self._fill(stage, size, seed)
            if reference:
                self.tell(self.done(), f"the judge on the whole pool of seed {seed}")
                score = self.judge.scores(
                    [stage.sample(stage.pool)], stage.test, self.pools.outputs, seed
                )[0]
                self.records.add(Row(WHOLE, self.pools.size, seed, score, 0.0))

    def _missing(self, size: int, seed: int) -> list[str]:
        known = self.records.rows
        return [
            name
            for name in self.grid.methods
            if name not in self.failed and (name, size, seed) not in known
        ]

    def done(self) -> int:
        wanted = self.grid
        return sum(
            row.method in wanted.methods and row.size in wanted.sizes and row.seed in wanted.seeds
            for row in self.records.rows.values()
        )

    def _fill(self, stage: Stage, size: int, seed: int) -> None:
        """Select with each method, and judge as soon as a stack is complete."""
        device = self.runtime.torch_device.type
        together = (
            max(1, STACKED_POINTS[device] // size) if isinstance(self.judge, NetworkJudge) else 1
        )
        waiting: list[tuple[str, Coreset, float]] = []
        names = self._missing(size, seed)
        for number, name in enumerate(names):
            self.tell(self.done(), f"{name}, {size} points, seed {seed}")
            picked = self._selected(stage, name, size, seed)
            if picked is not None:
                waiting.append(picked)
            if waiting and (len(waiting) == together or number == len(names) - 1):
                self._judge(stage, size, seed, waiting)
                waiting = []

    def _selected(
        self, stage: Stage, name: str, size: int, seed: int
    ) -> tuple[str, Coreset, float] | None:
        selector = self.grid.methods[name]
        try:
            context = stage.context(selector)
            clock = Clock()
            coreset = selector.select(stage.pool, size, rng=seed, context=context)
        except BicoreError as error:
            self.failed[name] = f"seed {seed}, {size} points: {error}"
            return None
        if coreset.status.startswith("interrupted"):
            raise KeyboardInterrupt  # a part of a selection is no row
        return name, coreset, clock.seconds

    def _judge(
        self, stage: Stage, size: int, seed: int, waiting: list[tuple[str, Coreset, float]]
    ) -> None:
        """A coreset that came back smaller than asked is judged apart: stacks need one size."""
        by_length: dict[int, list[tuple[str, Coreset, float]]] = {}
        for entry in waiting:
            by_length.setdefault(len(entry[1]), []).append(entry)
        for entries in by_length.values():
            for (name, _, seconds), score in zip(
                entries, self._scores(stage, seed, entries), strict=True
            ):
                if score is not None:
                    model = stage.model_seconds if self.grid.methods[name].needs_model else 0.0
                    self.records.add(Row(name, size, seed, score, seconds, model))
        self.tell(self.done(), "")

    def _scores(
        self, stage: Stage, seed: int, entries: list[tuple[str, Coreset, float]]
    ) -> list[float | None]:
        """The judge's scores; where it fails on the stack, each selection is judged alone, and one
        it fails on is left out."""
        try:
            samples = [
                stage.sample(coreset.normalised().of(stage.pool)) for _, coreset, _ in entries
            ]
            return list(self.judge.scores(samples, stage.test, self.pools.outputs, seed))
        except BicoreError as error:
            if len(entries) == 1:
                self.failed[entries[0][0]] = f"seed {seed}: {error}"
                return [None]
            return [self._scores(stage, seed, [entry])[0] for entry in entries]


class Stage:
    """One seed: its pool and test data, and the model that some methods look at, trained on the
    whole pool when first asked for."""

    def __init__(self, comparison: Comparison, seed: int) -> None:
        self.comparison = comparison
        self.seed = seed
        self.pool, test = comparison.pools.of(seed)
        self.test = self.sample(test)
        self.model_seconds = 0.0
        self.module: nn.Module | None = None
        self.observed: Any = None

    def sample(self, data: Dataset) -> Sample:
        pools = self.comparison.pools
        labels = labels_of(data, pools.classification)
        return as_sample(
            data.x, labels, data.weights, self.comparison.runtime.torch_device, pools.classification
        )

    def context(self, selector: Selector) -> Context:
        """The runtime, and for methods that need it the model: the module itself, or what it says
        about the pool, seen once."""
        quiet = replace(self.comparison.runtime, progress=False)
        if not selector.needs_model:
            return Context(runtime=quiet)
        if self.module is None:
            self._train()
        return Context(self.module if isinstance(selector, BatchBALD) else self.observed, quiet)

    def _train(self) -> None:
        judge = self.comparison.judge
        clock = Clock()
        network = (
            judge
            if isinstance(judge, NetworkJudge)
            else NetworkJudge("mlp", perceptron, self.comparison.model_steps)
        )
        self.comparison.tell(
            self.comparison.done(), f"training the model on the pool of seed {self.seed}"
        )
        self.module = network.module(
            self.sample(self.pool), self.comparison.pools.outputs, self.seed
        )
        self.observed = observe(self.module, self.pool.x)
        if self.comparison.runtime.torch_device.type == "cuda":
            torch.cuda.synchronize()
        self.model_seconds = clock.seconds
