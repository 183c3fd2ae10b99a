"""All methods and three published peers on MNIST, evaluated by the paper's CNN.

    # the pools, for the peers' own environments
    python -m benchmarks comparison --data DIR --pools POOLS.npz
    # see the head of each file under benchmarks/peers
    ENV/bin/python benchmarks/peers/apricot_picks.py POOLS.npz PICKS.json
    python -m benchmarks comparison --data DIR --device cuda --picks PICKS.json,… --record

The rows of our own methods are those of ``bicore compare mnist --data DIR --pool 1000 --sizes
50,100,250 --judge cnn --methods all --seeds 10 --full-pool``; the same model evaluates the peers'
picks on the same pools.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import data_folder, report
from bicore.evaluate.comparison import WHOLE, Comparison, Grid, Stage
from bicore.evaluate.models import as_judge
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Result
from bicore.methods.registry import METHODS, as_selector
from bicore.runtime.context import Runtime
from bicore.sources.opening import open_source, open_test

SIZES = [50, 100, 250]
POOL = 1000
JUDGE = "cnn"
STEPS = 1000


def mnist_pools(folder: str) -> Pools:
    source = open_source("mnist", data=folder, later=True)
    return make_pools(source, open_test("mnist", folder).data, "auto", POOL, POOL)


def export_pools(pools: Pools, seeds: int, path: str) -> None:
    """Write the pools as plain arrays."""
    arrays: dict[str, np.ndarray] = {"sizes": np.array(SIZES)}
    for seed in range(seeds):
        pool, _ = pools.of(seed)
        arrays[f"x_{seed}"] = pool.x.reshape(len(pool), -1).astype(np.float32)
        arrays[f"y_{seed}"] = pool.y
    np.savez_compressed(path, **arrays)


def run(arguments: Any) -> dict[str, Any]:
    pools = mnist_pools(data_folder(arguments.data))
    if arguments.pools:
        export_pools(pools, arguments.seeds, arguments.pools)
        return {"pools": True}
    settings = {"pool": POOL, "judge": JUDGE, "steps": STEPS, "test": pools.test_size}
    settings["kernel"] = "ntk"
    store = Records(Path(arguments.rows), settings)
    seeds = range(arguments.seeds)
    grid = Grid({name: as_selector(name) for name in METHODS}, SIZES, seeds)
    evaluated = (as_judge(JUDGE, STEPS), store, Runtime(arguments.device))
    comparison = Comparison(pools, grid, *evaluated, whole=True, callback=_tell)
    paths = arguments.picks.split(",") if arguments.picks else []
    peers = [json.loads(Path(path).read_text()) for path in paths]
    for seed in seeds:
        evaluate_peers(comparison, [row for peer in peers for row in peer["rows"]], seed)
    comparison.run()
    notes = {
        row["method"]: peer["versions"] | {"notes": peer["notes"]}
        for peer in peers
        for row in peer["rows"]
    }
    facts = {**settings, "sizes": SIZES, "failed": comparison.failed, "peers": notes}
    return {**facts, "rows": [shorten(row) for row in store.results.values()]}


def evaluate_peers(comparison: Comparison, rows: list[dict[str, Any]], seed: int) -> None:
    """The peers' selections of one seed, each size as a stack."""
    known = comparison.records.results
    rows = [row for row in rows if row["seed"] == seed]
    rows = [row for row in rows if (row["method"], row["size"], seed) not in known]
    stage = Stage(comparison, seed) if rows else None
    for size in sorted({row["size"] for row in rows}):
        own = [row for row in rows if row["size"] == size]
        report(f"peers, {size} points, seed {seed}")
        samples = [stage.sample(stage.pool[row["indices"]]) for row in own]
        scores = comparison.judge.scores(samples, stage.test, comparison.pools.outputs, seed)
        for row, score in zip(own, scores, strict=True):
            found = Result(row["method"], size, seed, score, row["selection_seconds"])
            comparison.records.add(found)


def shorten(row: Result) -> dict[str, Any]:
    """A row without the fields that no table reads."""
    left_out = ("picks", "weights", "classes")
    return {name: value for name, value in row.as_record().items() if name not in left_out}


def sort_rows(rows: Iterable[Result]) -> list[dict[str, Any]]:
    """Rows as a record keeps them, in the order of methods, sizes and seeds."""
    place = {name: number for number, name in enumerate([*METHODS, WHOLE])}
    found = sorted(rows, key=lambda row: (place[row.method], row.size, row.seed))
    return [shorten(row) for row in found]


def _tell(done: int, words: str) -> None:
    if words:
        report(f"{done} rows; {words}")
