"""All methods and three published peers on MNIST, judged by the paper's CNN.

    # the pools, for the peers' own environments
    python -m benchmarks comparison --data DIR --pools POOLS.npz
    ENV/bin/python benchmarks/peers/apricot_picks.py POOLS.npz PICKS.json  # see the head of each
    file under benchmarks/peers python -m benchmarks comparison --data DIR --device cuda --picks
    PICKS.json,… --record

The rows of our own methods are those of ``bicore compare mnist --data DIR --pool 1000 --sizes
50,100,250 --judge cnn --methods all
--seeds 10 --everything``; the peers' picks are judged by the same judge on the same pools.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import data_folder, report, slim
from bicore.evaluate.comparison import Comparison, Grid, Stage
from bicore.evaluate.models import as_judge
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Row
from bicore.methods.registry import METHODS, as_selector
from bicore.runtime.context import Runtime
from bicore.sources.opening import open_source, open_test

SIZES = [50, 100, 250]
POOL = 1000
JUDGE = "cnn"
STEPS = 1000


def mnist_pools(folder: str) -> Pools:
    source = open_source("mnist", folder=folder, later=True)
    test = open_test("mnist", folder)
    assert test is not None
    return make_pools(source, test.data, "auto", POOL, POOL)


def export(folder: str, seeds: int, path: Path) -> None:
    """The pools as plain arrays."""
    pools = mnist_pools(folder)
    arrays: dict[str, np.ndarray] = {"sizes": np.array(SIZES)}
    for seed in range(seeds):
        pool, _ = pools.of(seed)
        arrays |= {
            f"x_{seed}": pool.x.reshape(len(pool), -1).astype(np.float32),
            f"y_{seed}": pool.y,
        }
    np.savez_compressed(path, **arrays)


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    if arguments.pools:
        export(folder, arguments.seeds, Path(arguments.pools))
        return {"pools": True}
    pools = mnist_pools(folder)
    selectors = {name: as_selector(name) for name in METHODS}
    settings = {
        "pool": POOL,
        "judge": JUDGE,
        "steps": STEPS,
        "test": pools.test_size,
        "kernel": "ntk",
    }
    store = Records(Path(arguments.rows), settings)
    grid = Grid(selectors, SIZES, range(arguments.seeds))
    judged = (as_judge(JUDGE, STEPS), store, Runtime(arguments.device))
    comparison = Comparison(pools, grid, *judged, whole=True, tell=_tell)
    paths = arguments.picks.split(",") if arguments.picks else []
    picks = [json.loads(Path(path).read_text()) for path in paths]
    for seed in range(arguments.seeds):
        judge_peers(comparison, picks, seed)
    comparison.run()
    peers = {
        row["method"]: picked["versions"] | {"notes": picked["notes"]}
        for picked in picks
        for row in picked["rows"]
    }
    facts = {**settings, "sizes": SIZES, "failed": comparison.failed, "peers": peers}
    return {**facts, "rows": [slim(row) for row in store.rows.values()]}


def judge_peers(comparison: Comparison, picks: list[dict[str, Any]], seed: int) -> None:
    """The peers' selections of one seed, each size as a stack."""
    rows = [
        row
        for picked in picks
        for row in picked["rows"]
        if row["seed"] == seed and (row["method"], row["size"], seed) not in comparison.records.rows
    ]
    stage = Stage(comparison, seed) if rows else None
    for size in SIZES:
        own = [row for row in rows if row["size"] == size]
        if own and stage is not None:
            _tell(0, f"peers, {size} points, seed {seed}")
            samples = [stage.sample(stage.pool[row["indices"]]) for row in own]
            scores = comparison.judge.scores(samples, stage.test, comparison.pools.outputs, seed)
            for row, score in zip(own, scores, strict=True):
                comparison.records.add(
                    Row(row["method"], size, seed, score, row["selection_seconds"])
                )


def _tell(done: int, words: str) -> None:
    if words:
        report(f"{done} rows; {words}")
