"""Buffers side by side on a stream: the same rows in the same order, judged along the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import BicoreError
from bicore.evaluate.judging import Judging, SeedData
from bicore.evaluate.pools import labels_of
from bicore.memory.buffer import Buffer
from bicore.runtime import Clock, Context

#: Makes a buffer of a seed.
Maker = Callable[[int], Buffer]


class Order(StrEnum):
    """In which order a stream brings its rows.

    Examples
    --------
    >>> Order("sorted") is Order.SORTED
    True
    """

    #: That of the source.
    GIVEN = "given"
    #: Drawn anew for each seed.
    RANDOM = "random"
    #: By label or target: the hardest for a memory.
    SORTED = "sorted"


def positions_of(rows: int, points: int, batch: int) -> list[int]:
    """After how many rows a stream is judged: at the ends of batches, as evenly as those allow.

    Parameters
    ----------
    rows : int
        Of the whole stream, which is the last position.
    points : int
        How often.
    batch : int
        Rows a batch.

    Returns
    -------
    list of int
        Ascending; fewer than ``points`` where there are fewer batches.

    Examples
    --------
    >>> positions_of(1000, 5, 125)
    [250, 500, 625, 875, 1000]
    """
    wanted = [rows * number / points for number in range(1, points + 1)]
    return sorted({min(rows, int(-(-place // batch)) * batch) for place in wanted})


@dataclass
class StreamComparison(Judging[Maker]):
    """One run over streams; after it, ``failed`` holds why a buffer was left out.

    A seed's stream is its pool in the order asked for. After each of ``grid.sizes`` rows a judge is
    trained on what a buffer keeps, with the weights of its snapshot, and tested on the same data
    all along: classes that have not come yet are tested too.

    Parameters
    ----------
    pools : Pools
        What streams consist of, and what is tested on.
    grid : Grid
        Makers of buffers by name, and the numbers of rows seen at which they are judged.
    judge : Judge
        The model trained on what is kept, whose main measure is a row's score.
    records : Records
        Where rows are kept; those that are there already are not made again. The size of a row is
        how many rows of the stream were seen, its seconds those of all updates until then.
    runtime : Runtime
        Device and limits of the updates.
    whole : bool
        Whether the judges are also trained on all of each stream.
    tell : callable, optional
        Receives how many rows are done, and what is being done.
    failed : dict
        Reasons by buffer; those that stand in it from the start are left out.
    others : sequence of Judge
        Further judges of the same rows; their measures stand in the records too.
    majority : bool
        Whether the majority class or the mean of each stream is tested too.
    order : {"given", "random", "sorted"}
        In which order rows come.
    batch : int
        Rows an update.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bicore import Runtime
    >>> from bicore.evaluate import Grid, Records, RidgeJudge, make_pools
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
        """Fill every cell that has no row yet; a buffer that fails is left out from there on."""
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
        """The rows of a pool in the order in which they come."""
        order = Order(self.order)
        if order is Order.GIVEN:
            return np.arange(len(pool))
        if order is Order.RANDOM:
            # apart from the draw of the pool, which has 0 in this place
            return np.random.default_rng((seed, 1)).permutation(len(pool))
        labels = labels_of(pool, self.pools.classification)
        # of several targets the first decides
        return np.argsort(labels.reshape(len(pool), -1)[:, 0], kind="stable")

    def _follow(self, data: SeedData, stream: Dataset, name: str) -> None:
        """Feed a buffer, and judge what it keeps where that was not judged yet."""
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
                found = self._judged(data, [data.sample(buffer.snapshot())], self.judges)[0]
                self._record(name, buffer.position, data.seed, found, seconds, 0.0)
        self.say("")
