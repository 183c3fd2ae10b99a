"""All methods on the frozen embedding of CIFAR-10, evaluated by linear heads, in parts.

    python -m benchmarks comparison_embedding --data DIR --seeds 10 --rows ROWS.jsonl --minutes 20
    python -m benchmarks comparison_embedding --data DIR --seeds 10 --rows ROWS.jsonl --record

Two parts, each with a file of rows of its own next to ``--rows``. *pools*: for each seed 1000 rows
of the embedding, of which every method of the registry takes 50, 100 and 250. *fractions*: all
50 000 rows, of which methods that can take 0.1%, 0.5%, 1%, 5% and 10%, the sizes that are usual
since DeepCore. ``--protocol pools`` or ``fractions`` runs one of them, ``--methods A,B`` these
alone, and ``--minutes`` starts no further selection after this time. A rerun makes what is missing
from the file of rows, or from the record if there is no file.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.common import ONE_THREAD, cifar_embedding, data_folder, deadline, read_known, report
from benchmarks.comparison import sort_rows
from bicore import Dataset
from bicore.evaluate.comparison import Comparison, Grid
from bicore.evaluate.models import Judge, LogisticJudge, RidgeJudge
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Result
from bicore.kernels import Linear
from bicore.methods.registry import METHODS, as_selector
from bicore.sources.base import Source

RECORD = "comparison_embedding"
ROWS = 50_000
#: The shares of a training set at which DeepCore compares methods, up to a tenth.
FRACTIONS = (0.001, 0.005, 0.01, 0.05, 0.1)
#: Methods that are left out if all rows are the pool: seconds of one selection on one thread grow
#: with n² or with the size squared, and the whole is to take minutes.
QUADRATIC = (
    *("bilevel-ntk", "glister", "reducible-loss", "v-design", "a-design", "reconstruction"),
    *("facility-location", "craig", "frcl", "batchbald", "bilevel-cross-entropy"),
    *("bilevel-weighted", "gradient-matching-pursuit", "gradient-matching-frank-wolfe"),
)


@dataclass(frozen=True)
class Part:
    """The rows of a pool, the sizes of selections, the methods, and the heads that are trained on
    them, the one that gives the score first."""

    pool: int
    sizes: Sequence[int]
    methods: Sequence[str]
    judges: Sequence[Judge]
    #: The largest size of a method that takes too long for more.
    largest: Mapping[str, int] = field(default_factory=dict)

    def methods_at(self, size: int, wanted: Sequence[str]) -> list[str]:
        known = [name for name in self.methods if name in wanted]
        return [name for name in known if size <= self.largest.get(name, size)]


PARTS = {
    "pools": Part(
        pool=1000,
        sizes=(50, 100, 250),
        methods=tuple(METHODS),
        judges=(LogisticJudge(), RidgeJudge(Linear())),
        largest={"gradient-matching-pursuit": 100, "batchbald": 50},
    ),
    "fractions": Part(
        pool=ROWS,
        sizes=[round(share * ROWS) for share in FRACTIONS],
        methods=tuple(name for name in METHODS if name not in QUADRATIC),
        # ten settings of a logistic head on 5000 rows take minutes
        judges=(RidgeJudge(Linear()),),
    ),
}


def run(arguments: Any) -> dict[str, Any]:
    folder, rows = Path(data_folder(arguments.data)), Path(arguments.rows)
    wanted = known_methods(arguments.methods)
    asked = [arguments.protocol] if arguments.protocol in PARTS else list(PARTS)
    known = read_known(RECORD).get("parts", {})
    tell = stop_after(deadline(arguments.minutes))
    found = {}
    for name, part in PARTS.items():
        pools = embedding_pools(folder, part.pool)
        settings = {"part": name, "pool": pools.size, "test": pools.test_size}
        settings["judge"] = part.judges[0].name
        path = rows.with_name(f"{rows.stem}-{name}{rows.suffix}")
        store = open_rows(path, settings, known.get(name, {}).get("rows", ()))
        if name in asked:
            compare(part, pools, store, wanted, arguments.seeds, tell)
        rows_of_part = sort_rows(store.results.values())
        found[name] = {**settings, "sizes": list(part.sizes), "rows": rows_of_part}
    return {"parts": found}


def compare(
    part: Part, pools: Pools, store: Records, wanted: Sequence[str], seeds: int, tell: Any
) -> None:
    """Run one seed after the other, so that all but the last are complete at any moment; sizes with
    the same methods share the network that some of them look at."""
    options = {"callback": tell, "others": part.judges[1:]}
    with until_time_is_up():
        for seed in range(seeds):
            for methods, alike in groupby(part.sizes, lambda size: part.methods_at(size, wanted)):
                selectors = {method: as_selector(method) for method in methods}
                grid = Grid(selectors, list(alike), [seed])
                Comparison(pools, grid, part.judges[0], store, ONE_THREAD, **options).run()


def known_methods(given: str | None) -> list[str]:
    """The methods of ``--methods``, all by default."""
    wanted = given.split(",") if given else list(METHODS)
    for name in wanted:
        as_selector(name)  # which refuses unknown names
    return wanted


def embedding_pools(folder: Path, size: int) -> Pools:
    """As the embedding comes: no column is scaled."""
    train, test = (Dataset(*cifar_embedding(folder, part)) for part in ("train", "test"))
    return make_pools(Source("embedding", train), test, "classification", size, size)


def open_rows(
    path: Path | None, settings: dict[str, Any], known: Iterable[Mapping[str, Any]]
) -> Records:
    """The rows of a file; a new file begins with those that are known."""
    is_new = path is None or not path.exists()
    store = Records(path, settings)
    for row in known if is_new else ():
        store.add(Result.read(row))
    return store


class TimeUp(Exception):
    """No further selection is started."""


@contextmanager
def until_time_is_up() -> Iterator[None]:
    try:
        yield
    except TimeUp:
        report("the time is up; the same command continues")


def stop_after(until: float) -> Callable[[int, str], None]:
    """Report the progress of a comparison, and stop it after this time."""

    def tell(done: int, words: str) -> None:
        if words and time.time() > until:
            raise TimeUp
        if words:
            report(words)

    return tell
