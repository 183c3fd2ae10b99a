"""The page of a comparison: the best method at each size, and the picks of the first seed.

All of it comes from the records: nothing is selected or trained again. Rows of streams have no
picks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore._deprecated import renamed_keywords
from bicore._version import __version__
from bicore.evaluate.comparison import BaseComparison, Findings
from bicore.evaluate.records import Entry, Result, finite
from bicore.report.document import RowView, write_document
from bicore.report.page_of_selection import compare_recalls
from bicore.types import PathLike

#: The random baseline that other methods are compared with.
RANDOM = "uniform"
#: Limits of the picks per selection, and of the rows of all selections, shown one by one: images of
#: 2,000 rows take a few megabytes.
MOST_CARDS, MOST_ROWS = 500, 2000

#: Results with picks of the first seed, by method and size.
Selections = dict[tuple[str, int], Result]


@renamed_keywords()
def comparison_page(
    run: BaseComparison, findings: Sequence[Findings], path: PathLike, *, command: str = ""
) -> Path:
    """Write a comparison as one HTML file that needs no network.

    It begins with the best method and its worth. A slider over the size and a choice of the method
    control the scores, the picks of the first seed, their balance, a map of its pool, and scores by
    class. It ends with how to repeat the comparison. Streams have no picks.
    """
    pools, known = run.pools, _known_selections(run)
    facts: dict[str, Any] = {
        "name": pools.source.name,
        "version": __version__,
        "along": run.along,
        "random": RANDOM,
        "sizes": [int(size) for size in run.grid.sizes],
        "start": _start(findings[0], run.grid.sizes),
        "methods": list(run.grid.methods),
        "judges": [_results(run, one) for one in findings],
        "parameters": _parameters(run),
        "notes": [*pools.source.notes, *(one.note for one in findings if one.note)],
        "failed": [[name, why] for name, why in run.failed.items()],
        "command": command,
    }
    if known:
        facts |= _picks(run, known)
    return write_document("comparison", facts, path)


def _headline(found: Findings, size: int) -> str:
    """Return the best method of one size and its worth, or that random is enough."""
    best, random = _best(found, size), found.summary.of(RANDOM, size)
    if best is None:
        return "Nothing to compare yet"
    if random is not None and (random.best or random.tied):
        return "Random is enough here"
    worth = found.worth.get((best.method, size))
    if worth is None:
        return f"{best.method} is best: {found.measure.title} {best.mean:.3f}"
    # nothing is known beyond the compared sizes
    equal = f"more than {worth.sizes[-1]} random ones" if worth.beyond else str(worth)
    return f"{size} rows by {best.method} are worth {equal}"


def _start(found: Findings, sizes: Sequence[int]) -> int:
    """Return the index of the size shown first: the largest one with a finite worth."""
    best = [_best(found, size) for size in sizes]
    worths = [one and found.worth.get((one.method, one.size)) for one in best]
    known = [place for place, one in enumerate(worths) if one and not one.beyond]
    return known[-1] if known else len(sizes) - 1


def _best(found: Findings, size: int) -> Entry | None:
    return next((one for one in found.summary.entries if one.size == size and one.best), None)


def _results(run: BaseComparison, found: Findings) -> dict[str, Any]:
    """Return the numbers of one evaluation model."""
    key, detectable = found.measure.key, found.summary.detectable
    references = {"all data": found.whole.get(key), "majority": found.majority.get(key)}
    return {
        "judge": found.judge.title(run.pools.classification),
        "measure": found.measure.title,
        "larger": found.measure.higher_is_better,
        "headlines": [_headline(found, size) for size in run.grid.sizes],
        "entries": found.rows(),
        "references": [
            {"name": name, "mean": one.mean} for name, one in references.items() if one is not None
        ],
        "classes": [
            [_class_scores(run, found.judge.name, method, size) for size in run.grid.sizes]
            for method in run.grid.methods
        ],
        "detectable": [finite(detectable.get(size, math.nan)) for size in run.grid.sizes],
    }


def _class_scores(run: BaseComparison, judge: str, method: str, size: int) -> list[dict[str, Any]]:
    """Compare recalls by class with random rows, on the seeds of both; empty if unknown."""
    pairs = []
    for seed in run.grid.seeds:
        pair = [run.records.results.get((name, size, seed)) for name in (method, RANDOM)]
        recalls = [[] if one is None else one.classes.get(judge, []) for one in pair]
        if all(len(own) == run.pools.outputs for own in recalls):
            pairs.append(recalls)
    if method == RANDOM or not pairs:
        return []
    ours, theirs = np.array(pairs, dtype=np.float64).transpose(1, 0, 2)  # None becomes nan
    return compare_recalls(ours, theirs)


def _file_name(run: BaseComparison) -> str:
    return "in memory" if run.records.path is None else run.records.path.name


def _parameters(run: BaseComparison) -> list[list[str]]:
    pools = run.pools
    values = {
        "rows of the data": len(pools.source.data),
        "pool of each seed": pools.size,
        "tested on": pools.test_size,
        "test rows": "the source's own" if pools.test is not None else "held out for each seed",
        "seeds": len(run.grid.seeds),
        "task": pools.targets.task,
        "records": _file_name(run),
        "bicore": __version__,
    }
    return [[name, str(value)] for name, value in values.items()]


def _known_selections(run: BaseComparison) -> Selections:
    """Return the recorded selections of the first seed."""
    seed = run.grid.seeds[0]
    pool = run.pools.rows(seed)
    results = [one for one in run.results() if one.seed == seed and one.picks]
    # an edited file may contain any picks
    return {(one.method, one.size): one for one in results if np.isin(one.picks, pool).all()}


def _picks(run: BaseComparison, known: Selections) -> dict[str, Any]:
    """Return the picks, the groups and the map of the pool, and the display of rows."""
    pools, grid, seed = run.pools, run.grid, int(run.grid.seeds[0])
    numbers = pools.rows(seed)
    source = pools.source
    targets = replace(pools.targets, values=pools.targets.values[numbers])
    # the map shows features as used by the methods, the cards as stored in the source
    view = RowView(pools.of(seed)[0], targets, source.images, source.cells, source.data.x, numbers)
    order = np.argsort(numbers)
    picked = np.unique([pick for row in known.values() for pick in row.picks])
    rows = order[np.searchsorted(numbers[order], picked)]
    plane, places = view.map(rows)
    selections = {
        cell: {"at": np.searchsorted(picked, row.picks).tolist(), "weights": row.weights or None}
        for cell, row in known.items()
    }
    depth = _depth([row.picks for row in known.values()])
    cards = {pick for row in known.values() for pick in row.picks[:depth]}
    picks = {
        **view.of(rows),
        "places": places,
        "cards": [view.card(row) if numbers[row] in cards else None for row in rows],
        "depth": depth,
        "seed": seed,
        "pool": len(numbers),
        "of": len(source.data),
        "selections": [
            [selections.get((method, size)) for size in grid.sizes] for method in grid.methods
        ],
    }
    return {**view.as_json(), "plane": plane, "picks": picks}


def _depth(selections: Sequence[Sequence[int]]) -> int:
    """Return the number of first picks that are shown one by one."""
    seen: set[int] = set()
    for depth in range(MOST_CARDS):
        seen |= {picks[depth] for picks in selections if depth < len(picks)}
        if len(seen) > MOST_ROWS:
            return depth
    return MOST_CARDS
