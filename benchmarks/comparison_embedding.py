"""All methods on the frozen embedding of CIFAR-10, judged by linear heads; in pieces that go on.

    python -m benchmarks comparison_embedding --data DIR --seeds 10 --rows ROWS.jsonl --minutes 20
    python -m benchmarks comparison_embedding --data DIR --seeds 10 --rows ROWS.jsonl --record

Two parts, each with a file of rows of its own beside ``--rows``. *pools*: for each seed 1000 rows
of the embedding, of which every method of the registry takes 50, 100 and 250. *fractions*: all
50 000 rows, of which methods that can take 0.1%, 0.5%, 1%, 5% and 10%, the sizes that are usual
since DeepCore. ``--protocol pools`` or ``fractions`` runs one of them, ``--methods A,B`` these
alone, and ``--minutes`` begins no further selection after so long. A rerun makes what is missing
from the file of rows, and where there is no file, from the record.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.common import RECORDS, cifar_embedding, data_folder, read_record, report, slim
from bicore import Dataset, Runtime
from bicore.errors import InputError
from bicore.evaluate.comparison import WHOLE, Comparison, Grid
from bicore.evaluate.models import Judge, LogisticJudge, RidgeJudge
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Row
from bicore.kernels import Linear
from bicore.methods.registry import METHODS, as_selector
from bicore.sources.base import Source

RECORD = "comparison_embedding"
ROWS = 50_000
#: The shares of a training set at which DeepCore compares methods, up to a tenth.
FRACTIONS = (0.001, 0.005, 0.01, 0.05, 0.1)
#: What is left out where all rows are the pool, and why: seconds of one selection on one thread
#: grow with n² or with the size squared, and the whole is to take minutes.
QUADRATIC = (
    *("bilevel-ntk", "glister", "reducible-loss", "v-design", "a-design", "reconstruction"),
    *("facility-location", "craig", "frcl", "batchbald", "bilevel-cross-entropy"),
    *("bilevel-weighted", "gradient-matching-pursuit", "gradient-matching-frank-wolfe"),
)


@dataclass(frozen=True)
class Part:
    """A pool of so many rows, how many of them are chosen and with how many seeds at most, by which
    methods, and the heads that are trained on them, the one that gives the score first."""

    pool: int
    sizes: Mapping[int, int]
    methods: Sequence[str]
    judges: Sequence[Judge]
    #: The largest size of a method that cannot take more in bearable time.
    largest: Mapping[str, int]

    def of(self, size: int, wanted: Sequence[str]) -> list[str]:
        """Methods that are run at a size."""
        return [
            name for name in self.methods if name in wanted and size <= self.largest.get(name, size)
        ]


PARTS = {
    "pools": Part(
        pool=1000,
        sizes={50: 10, 100: 10, 250: 10},
        methods=tuple(METHODS),
        judges=(LogisticJudge(), RidgeJudge(Linear())),
        largest={"gradient-matching-pursuit": 100, "batchbald": 50},
    ),
    "fractions": Part(
        pool=ROWS,
        sizes={round(share * ROWS): 10 for share in FRACTIONS},
        methods=tuple(name for name in METHODS if name not in QUADRATIC),
        # ten settings of a logistic head on 5000 rows take minutes
        judges=(RidgeJudge(Linear()),),
        largest={},
    ),
}


class TimeUp(Exception):
    """No further selection is begun."""


def run(arguments: Any) -> dict[str, Any]:
    folder = Path(data_folder(arguments.data))
    asked = [arguments.protocol] if arguments.protocol in PARTS else list(PARTS)
    wanted = known_methods(arguments.methods)
    until = time.time() + 60 * (arguments.minutes or float("inf"))
    try:
        for name in asked:
            for comparison in comparisons(name, folder, arguments, wanted, stop_after(until)):
                comparison.run()
    except TimeUp:
        report("the time is up; the same command continues")
    return {"parts": {name: kept(name, folder, arguments) for name in PARTS}}


def known_methods(given: str | None) -> list[str]:
    """The methods of ``--methods``, all by default."""
    wanted = given.split(",") if given else list(METHODS)
    unknown = [name for name in wanted if name not in METHODS]
    if unknown:
        raise InputError(f"--methods {','.join(unknown)} are not known; give names of METHODS.")
    return wanted


def in_order(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows as a record keeps them, in the order of methods, sizes and seeds."""
    place = {name: number for number, name in enumerate([*METHODS, WHOLE])}
    found = sorted(rows, key=lambda row: (place[row.method], row.size, row.seed))
    return [slim(row) for row in found]


def comparisons(
    name: str, folder: Path, arguments: Any, wanted: Sequence[str], tell: Callable[[int, str], None]
) -> Iterator[Comparison]:
    """A part in pieces, one seed after the other: what is done at any moment is whole seeds, but
    for the last. Sizes with the same methods share the network that some of them look at."""
    part = PARTS[name]
    pools = pools_of(folder, part.pool)
    store = records(name, pools, arguments)
    for seed in range(arguments.seeds):
        sizes = [size for size, most in part.sizes.items() if seed < most]
        for methods, alike in groupby(sizes, lambda size: part.of(size, wanted)):
            yield Comparison(
                pools,
                Grid({method: as_selector(method) for method in methods}, list(alike), [seed]),
                part.judges[0],
                store,
                Runtime(arguments.device, progress=False, threads=1),
                tell=tell,
                others=part.judges[1:],
            )


def pools_of(folder: Path, size: int) -> Pools:
    """As the embedding comes: no column is scaled."""
    train, test = (
        Source("embedding", Dataset(*cifar_embedding(folder, part))) for part in ("train", "test")
    )
    return make_pools(train, test.data, "classification", size, size)


def records(name: str, pools: Pools, arguments: Any) -> Records:
    """Where the rows of a part are kept; a new file begins with those of the record."""
    path = Path(arguments.rows)
    judge = PARTS[name].judges[0].name
    settings = {"part": name, "pool": pools.size, "test": pools.test_size, "judge": judge}
    beside = path.with_name(f"{path.stem}-{name}{path.suffix}")
    exists = (RECORDS / f"{RECORD}.json").exists()
    return open_rows(beside, settings, read_record(RECORD)["parts"][name]["rows"] if exists else [])


def open_rows(path: Path, settings: dict[str, Any], known: Iterable[Mapping[str, Any]]) -> Records:
    """The rows of a file; a new file begins with those that are known."""
    begun = path.exists()
    store = Records(path, settings)
    for row in () if begun else known:
        store.add(Row(**row))
    return store


def kept(name: str, folder: Path, arguments: Any) -> dict[str, Any]:
    """The rows of a part that are done, in the order of methods, sizes and seeds."""
    store = records(name, pools_of(folder, PARTS[name].pool), arguments)
    sizes = list(PARTS[name].sizes)
    return {**store.settings, "sizes": sizes, "rows": in_order(store.rows.values())}


def stop_after(until: float) -> Callable[[int, str], None]:
    """Report the progress of a comparison, and stop it after this time."""

    def tell(done: int, words: str) -> None:
        if words and time.time() > until:
            raise TimeUp
        if words:
            report(words)

    return tell
