"""Comparisons of stream buffers: the same rows in the same order, evaluated along the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import BicoreError
from bicore.evaluate.comparison import BaseComparison, SeedData
from bicore.evaluate.pools import labels_of
from bicore.memory.buffer import Buffer
from bicore.runtime import Clock, Context

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

    def run(self) -> None:
        """Fill every empty cell; a buffer that fails is left out from there on."""
        for seed in self.grid.seeds:
            wanted = [
                name
                for name in self.grid.methods
                if any(name in self._missing(size, seed) for size in self.grid.sizes)
            ]
            references = self._missing_references(seed)
            if not wanted and not references:
                continue
            data = SeedData(self, seed, in_order=True)
            rows = data.pool[self._ordered(data.pool, seed)]
            stream = Dataset(rows.x, rows.y)
            for name in wanted:
                try:
                    self._follow(data, stream, name)
                except BicoreError as error:
                    self.failed[name] = f"seed {seed}: {error}"
            for name in references:
                self._refer(data, name)

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

    def _follow(self, data: SeedData, stream: Dataset, name: str) -> None:
        """Feed a buffer, and evaluate it at the positions that have no row yet."""
        buffer = self.grid.methods[name](data.seed)
        context = Context(runtime=replace(self.runtime, progress=False))
        missing = [size for size in self.grid.sizes if name in self._missing(size, data.seed)]
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
