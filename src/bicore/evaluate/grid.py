"""The comparison itself: for each seed and size, every method's selection judged.

The selections of a seed and size are judged together, and their rows written as they come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from bicore.coreset import Coreset, Status
from bicore.errors import BicoreError
from bicore.evaluate.judges import NetworkJudge, perceptron
from bicore.evaluate.judges.base import Trainer
from bicore.evaluate.judging import MAJORITY as MAJORITY
from bicore.evaluate.judging import WHOLE as WHOLE
from bicore.evaluate.judging import Chosen, Found, Judging, SeedData
from bicore.evaluate.judging import Grid as Grid
from bicore.networks.observe import Observed, observe
from bicore.runtime import Clock, Context
from bicore.selectors.base import Selector


@dataclass(frozen=True, eq=False)
class Picked:
    """A selection that waits for the judge."""

    method: str
    coreset: Coreset
    seconds: float


@dataclass
class Comparison(Judging[Selector]):
    """One run; after it, ``failed`` holds why a method was left out.

    Parameters
    ----------
    pools : Pools
        What methods choose from and are tested on.
    grid : Grid
        What is compared.
    judge : Judge
        The model trained on each selection, whose main measure is a row's score.
    records : Records
        Where rows are kept; those that are there already are not made again.
    runtime : Runtime
        Device and limits of the selections.
    whole : bool
        Whether the judges are also trained on all of each pool.
    tell : callable, optional
        Receives how many rows are done, and what is being done.
    failed : dict
        Reasons by method; those that stand in it from the start are left out.
    others : sequence of Judge
        Further judges of the same selections; their measures stand in the rows too.
    majority : bool
        Whether the majority class or the mean of each pool is tested too.
    model_steps : int
        How long the model that methods look at is trained where the judge is no network.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bicore import Runtime
    >>> from bicore.evaluate import Records, RidgeJudge, make_pools
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
    def trainer(self) -> Trainer:
        """What trains the model that some methods look at: the first network among the judges."""
        own = [judge.trainer for judge in self.judges if judge.trainer is not None]
        return own[0] if own else NetworkJudge("mlp", perceptron, self.model_steps)

    def run(self) -> None:
        """Fill every cell that has no row yet; a method that fails is left out from there on."""
        for seed in self.grid.seeds:
            wanted = [size for size in self.grid.sizes if self._missing(size, seed)]
            references = self._missing_references(seed)
            if not wanted and not references:
                continue
            stage = Stage(self, seed)
            for size in wanted:
                self._fill(stage, size)
            for name in references:
                self._refer(stage, name)

    def _fill(self, stage: Stage, size: int) -> None:
        """Select with each method, and judge as soon as a stack is complete."""
        most = max(judge.at_once(size, self.runtime.torch_device) for judge in self.judges)
        waiting: list[Picked] = []
        for name in self._missing(size, stage.seed):
            self.say(f"{name}, {size} points, seed {stage.seed}")
            picked = self._selected(stage, name, size)
            if picked is not None:
                waiting.append(picked)
            if len(waiting) == most:
                self._judge(stage, size, waiting)
                waiting = []
        if waiting:
            self._judge(stage, size, waiting)

    def _selected(self, stage: Stage, name: str, size: int) -> Picked | None:
        selector = self.grid.methods[name]
        try:
            context = stage.context(selector)
            clock = Clock()
            coreset = selector.select(stage.pool, size, rng=stage.seed, context=context)
        except BicoreError as error:
            self.failed[name] = f"seed {stage.seed}, {size} points: {error}"
            return None
        if coreset.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # a part of a selection is no row
        return Picked(name, coreset, clock.seconds)

    def _judge(self, stage: Stage, size: int, waiting: list[Picked]) -> None:
        """A coreset that came back smaller than asked is judged apart: stacks need one size."""
        by_length: dict[int, list[Picked]] = {}
        for picked in waiting:
            by_length.setdefault(len(picked.coreset), []).append(picked)
        for stack in by_length.values():
            for picked, found in zip(stack, self._measures(stage, stack), strict=True):
                if found is not None:
                    looks = _looks(self.grid.methods[picked.method])
                    model = stage.model_seconds if looks else 0.0
                    chosen = stage.chosen(picked.coreset)
                    self._record(
                        picked.method, size, stage.seed, found, picked.seconds, model, chosen
                    )
        self.say("")

    def _measures(self, stage: Stage, stack: list[Picked]) -> list[Found | None]:
        """What the judges say.

        Where one fails on the stack, each selection is judged alone, and one it fails on is left
        out.
        """
        try:
            samples = [stage.sample(picked.coreset.normalised().of(stage.pool)) for picked in stack]
            return list(self._judged(stage, samples, self.judges))
        except BicoreError as error:
            if len(stack) == 1:
                self.failed[stack[0].method] = f"seed {stage.seed}: {error}"
                return [None]
            return [self._measures(stage, [picked])[0] for picked in stack]


class Stage(SeedData):
    """One seed: its pool and test data, and the model that some methods look at.

    The model is trained on the whole pool when first asked for.

    Parameters
    ----------
    comparison : Comparison
        The run it is a part of.
    seed : int
        Of the pool, the judge and the model.

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

    def chosen(self, coreset: Coreset) -> Chosen | None:
        """What a row keeps of a selection.

        Parameters
        ----------
        coreset : Coreset
            Selected from the pool.

        Returns
        -------
        Chosen or None
            In rows of the source. Kept for the first seed alone: it is what a page shows, and all
            of them would make the records several times as long.
        """
        run = self.comparison
        if self.seed != run.grid.seeds[0]:
            return None
        rows = run.pools.rows(self.seed)[coreset.indices].tolist()
        return Chosen(rows, [] if coreset.binary else coreset.weights.tolist())

    def context(self, selector: Selector) -> Context:
        """What a method is given beside the pool.

        Parameters
        ----------
        selector : Selector
            The method.

        Returns
        -------
        Context
            The runtime, and for methods that need it the model: the module itself where the method
            trains it or samples from it, else what it says about the pool, seen once.
        """
        quiet = replace(self.comparison.runtime, progress=False)
        if not _looks(selector):
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


def _looks(selector: Selector) -> bool:
    """Whether a method needs the model in any form."""
    return selector.needs_model or selector.fits_model
