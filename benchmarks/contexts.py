"""Contexts for TabPFN v1: selected rows against stratified samples on large tables.

    python -m benchmarks.tabpfn_v1 FOLDER
    python -m benchmarks contexts --cache FOLDER --seeds 10 --processes 5 --device cuda --record

Of each table a seed draws at most 2,000 rows to select from and at most 500 test rows. The model
reads one context, or the probabilities of eight are averaged. The log-loss counts probabilities
below 0.001 as 0.001. Rows are written as they come; a rerun continues from them.
"""

from pathlib import Path
from typing import Any

import numpy as np

import bicore
from benchmarks.battery.sets import load
from benchmarks.common import ONE_THREAD, Rows, draw_split, report, run_jobs
from benchmarks.tabpfn_v1 import TABLES, probabilities

SIZES = (50, 100, 200, 500)
#: Sizes of stratified samples alone, to tell how many random rows the selected ones are worth.
MORE_SIZES = (300, 700, 1000)
CONTEXTS = 8
POOL, TEST = 2000, 500
LEAST = 1e-3


def run(arguments: Any) -> dict[str, Any]:
    rows = Rows(arguments.rows)
    jobs = [
        (table, seed, arguments.cache, arguments.device)
        for seed in range(arguments.seeds)
        for table in TABLES
        if rows.find(table=table, seed=seed) is None
    ]
    for found in run_jobs(evaluate, jobs, arguments.processes, arguments.minutes):
        rows.add(*found)
        report(found[0]["table"], found[0]["seed"])
    return {"pool": POOL, "test": TEST, "contexts": CONTEXTS, "rows": by_case(rows)}


def by_case(rows: Rows) -> list[dict[str, Any]]:
    """One row for each table, method, size and number of contexts, with the scores of all seeds."""
    fields = ("table", "pool", "method", "size", "contexts")
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["table"], row["seed"])):
        case = {name: row[name] for name in fields}
        own = found.setdefault(tuple(case.values()), {**case, "accuracy": [], "log_loss": []})
        own["accuracy"].append(row["accuracy"])
        own["log_loss"].append(round(row["log_loss"], 4))
    return list(found.values())


def evaluate(table: str, seed: int, folder: str, device: str) -> list[dict[str, Any]]:
    """All rows of the record of one table and seed."""
    x, labels = load(table, Path(folder))
    classes, y = np.unique(labels, return_inverse=True)
    test, pool = draw_split(len(x), min(TEST, len(x) // 5), POOL, seed)
    x, y, test_x, test_y = x[pool], y[pool], x[test], y[test]

    def score(method: str, contexts: list[Any], with_test: bool = False) -> dict[str, Any]:
        parts = [
            probabilities(Path(folder), device, x[rows], y[rows], test_x, len(classes), with_test)
            for rows in contexts
        ]
        odds = np.mean(parts, axis=0)
        own = np.maximum(odds[np.arange(len(test_y)), test_y], LEAST)
        row = {"table": table, "seed": seed, "pool": len(pool), "method": method}
        row |= {"size": len(contexts[0]), "contexts": len(contexts)}
        accuracy = float((odds.argmax(1) == test_y).mean())
        return {**row, "accuracy": accuracy, "log_loss": float(-np.log(own).mean())}

    found = []
    for size in SIZES:
        chosen = bicore.contexts(x, y, size, CONTEXTS, random_state=seed, runtime=ONE_THREAD)
        drawn = [
            draw_stratified(y, size, np.random.default_rng((seed, k))) for k in range(CONTEXTS)
        ]
        found += [score("selected", chosen[:1]), score("selected", chosen)]
        found += [score("stratified", drawn[:1]), score("stratified", drawn)]
        found.append(score("selected, with test rows", chosen[:1], True))
    for size in MORE_SIZES:
        rows = draw_stratified(y, size, np.random.default_rng((seed, 0)))
        found.append(score("stratified", [rows]))
    return found


def draw_stratified(y: Any, size: int, rng: np.random.Generator) -> Any:
    """Random rows of every class, by its share, and at least one."""
    shares = np.bincount(y) / len(y) * size
    counts = np.maximum(np.floor(shares), 1).astype(int)
    while counts.sum() != size:
        step = 1 if counts.sum() < size else -1
        counts[np.argmax(step * (shares - counts))] += step
    parts = [
        rng.choice(np.flatnonzero(y == code), count, replace=False)
        for code, count in enumerate(counts)
        if count
    ]
    return np.concatenate(parts)
