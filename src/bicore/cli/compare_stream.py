"""``bicore compare --stream``: buffers against each other on the user's data in its own order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bicore._version import __version__
from bicore.cli.buffers import NAMES, check_name, make_buffer
from bicore.cli.compare_run import means_of, notes_of, view_of
from bicore.cli.compare_table import STREAMS, table, tables
from bicore.cli.names import BATCH, CAPACITY, DEFAULT_BUFFERS, POINTS
from bicore.cli.telling import say, say_json, tell
from bicore.errors import InputError, as_option
from bicore.evaluate.comparison import Grid
from bicore.evaluate.findings import findings_of
from bicore.evaluate.metrics import Measure
from bicore.evaluate.model import Judge
from bicore.evaluate.pools import Pools
from bicore.evaluate.records import Records
from bicore.evaluate.streams import Order, StreamComparison, positions_of
from bicore.memory.buffer import Buffer
from bicore.report.figures import draw_curves
from bicore.runtime import Runtime

#: Those that need classes: left out by default where labels are targets.
FOR_CLASSES = ("class-balanced", "prototypes")


@dataclass(frozen=True)
class StreamRequest:
    """What is asked for of streams.

    ``kernel`` is that of merge-reduce; None leaves it to the buffer.
    """

    capacity: int
    buffers: tuple[str, ...] | None
    order: Order
    points: int
    batch: int
    kernel: str | None

    def settings(self) -> dict[str, Any]:
        """What decides the rows of a record, beside the judges and the data."""
        return {
            "stream": {"capacity": self.capacity, "order": self.order.value, "batch": self.batch}
        }

    def check(self, pools: Pools) -> None:
        """Refuse a memory that would hold the whole stream."""
        if self.capacity >= pools.size:
            raise InputError(
                f"--capacity {self.capacity} holds all of a stream of {pools.size} rows, and every "
                "buffer would keep the same; give less."
            )

    def left_out(self, pools: Pools) -> list[str]:
        """Buffers that come by default but cannot work here."""
        if self.buffers is not None or pools.classification:
            return []
        return [name for name in DEFAULT_BUFFERS if name in FOR_CLASSES]

    def comparison(
        self,
        pools: Pools,
        judges: list[Judge],
        seeds: int,
        records: Records,
        runtime: Runtime,
        whole: bool,
    ) -> StreamComparison:
        """The run that was asked for."""
        left = self.left_out(pools)
        names = [name for name in self.buffers or DEFAULT_BUFFERS if name not in left]
        makers = {name: partial(_made, name, self.capacity, self.kernel) for name in names}
        positions = positions_of(pools.size, self.points, self.batch)
        first, *others = judges
        return StreamComparison(
            pools,
            Grid(makers, positions, range(seeds)),
            first,
            records,
            runtime,
            whole,
            others=others,
            majority=True,
            order=self.order.value,
            batch=self.batch,
        )


def _made(name: str, capacity: int, kernel: str | None, seed: int) -> Buffer:
    given = {"kernel": kernel} if name == "merge-reduce" else {}
    return make_buffer(name, capacity, seed, given)


def read_streams(
    wanted: bool, own: dict[str, Any], others: dict[str, Any], kernel: str
) -> StreamRequest | None:
    """The request, or None for a comparison of selections.

    ``own`` are the options of streams and ``others`` those of selections; None was not given.
    """
    refused = others if wanted else own
    for name, value in refused.items():
        if value is not None:
            mend = "leave it out" if wanted else "add --stream"
            kind = "selections" if wanted else "streams"
            raise InputError(f"--{name} {value} belongs to a comparison of {kind}; {mend}.")
    if not wanted:
        return None
    numbers = {"capacity": CAPACITY, "points": POINTS, "batch": BATCH}
    for name in numbers:
        if own[name] is not None:
            numbers[name] = own[name]
        if numbers[name] < 1:
            raise InputError(f"--{name} {numbers[name]} is below 1; give a whole number.")
    order = as_option("order", own["order"] or Order.GIVEN.value, Order)
    buffers = None if own["buffers"] is None else _buffers(own["buffers"])
    return StreamRequest(
        buffers=buffers, order=order, kernel=None if kernel == "auto" else kernel, **numbers
    )


def _buffers(text: str) -> tuple[str, ...]:
    names = NAMES if text == "all" else [word.strip() for word in text.split(",")]
    for name in names:
        check_name(name)
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"--buffers holds {repeated[0]} twice; name each buffer once.")
    return tuple(names)


def say_streams(run: StreamComparison, asked: StreamRequest) -> None:
    """What is about to be done, on standard error."""
    pools = run.pools
    which = "the source's own test set" if pools.test is not None else "held out for each seed"
    orders = {
        Order.GIVEN: "in the source's order",
        Order.RANDOM: "in random order",
        Order.SORTED: "sorted by label",
    }
    tell(
        f"{pools.source.name}: streams of {pools.size} rows {orders[asked.order]}, "
        f"{asked.capacity} kept, tested on {pools.test_size} rows ({which})"
    )
    for note in pools.source.notes:
        tell(f"  {note}")
    for name in asked.left_out(pools):
        tell(f"  {name} needs classes, and the labels are targets: left out")
    done = run.done()
    known = f", {done} of {run.grid.cells()} rows are there already" if done else ""
    tell(f"  rows are kept in {run.records.path}{known}")


def finish_streams(
    run: StreamComparison,
    asked: StreamRequest,
    measure: Measure,
    picture: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the answer, then draw: a picture that fails takes nothing with it."""
    found = findings_of(run, measure)
    for note in () if quiet else notes_of(found):
        tell(f"bicore: {note}")
    if as_json:
        answer = {
            "source": run.pools.source.name,
            "stream": run.pools.size,
            "test": run.pools.test_size,
            "capacity": asked.capacity,
            "order": asked.order.value,
            "batch": asked.batch,
            "positions": list(run.grid.sizes),
            "judge": run.judge.name,
            "score": measure.title,
            "rows": _rows(run),
            "judges": {
                one.judge.name: {
                    "summary": view_of(one)["summary"],
                    "all_data": means_of(one.whole),
                    "majority": means_of(one.majority),
                }
                for one in found
            },
            "notes": notes_of(found),
            "failed": run.failed,
            "records": str(run.records.path),
            "version": __version__,
        }
        say_json(answer)
    else:
        say(*tables(table(run, one, STREAMS) for one in found), f"records: {run.records.path}")
    if picture is not None and found[0].summary.entries:
        title = (
            f"{run.pools.source.name}, order {asked.order.value}, {asked.capacity} rows kept, "
            f"judge {run.judge.name}: mean over {len(run.grid.seeds)} seeds ± one s.e."
        )
        names = list(run.grid.methods)
        draw_curves(found[0].summary, names, title, measure.title, picture, "rows seen")
        if not as_json:
            say(f"written: {picture}")


def _rows(run: StreamComparison) -> list[dict[str, Any]]:
    """The rows of this comparison; a file may hold those of others too."""
    grid = run.grid
    return [
        {
            "buffer": row.method,
            "position": row.size,
            "seed": row.seed,
            "accuracy": row.accuracy,
            "update_seconds": row.selection_seconds,
            "rows_per_second": row.size / row.selection_seconds if row.selection_seconds else None,
            "measures": row.measures,
        }
        for row in run.records.rows.values()
        if row.method in grid.methods and row.size in grid.sizes and row.seed in grid.seeds
    ]
