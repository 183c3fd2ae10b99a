"""What each method of a comparison chose at the first seed, and whom it serves.

The rows of the records say it: nothing is selected or trained again. Rows of older files, and those
of streams, do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.evaluate.comparison import BaseComparison
from bicore.evaluate.records import Row
from bicore.report.pages.by_class import class_scores
from bicore.report.pages.groups import groups_of
from bicore.report.pages.shown import Shown, shown_as
from bicore.report.pages.view import View

#: Of a selection at most so many picks are shown one by one, and of all selections together about
#: so many rows: images of as many take a few megabytes.
MOST_CARDS, MOST_ROWS = 500, 2000


@dataclass(frozen=True, eq=False)
class Contenders:
    """The selections of the first seed, by method and size; those that are known."""

    run: BaseComparison[Any]
    known: dict[tuple[str, int], Row]

    @property
    def seed(self) -> int:
        """Whose pool they chose from."""
        return int(self.run.grid.seeds[0])

    def missing(self) -> list[str]:
        """Methods that were judged, and of which no row says what they chose."""
        judged = {row.method for row in self.run.records.rows.values() if row.seed == self.seed}
        told = {method for method, _ in self.known}
        return [name for name in self.run.grid.methods if name in judged - told]

    def as_json(self) -> dict[str, Any]:
        """The picks, the groups of the pool, its map, and how rows are shown."""
        view = self._view()
        numbers = view.numbers
        assert numbers is not None
        order = np.argsort(numbers)
        picked = np.unique([pick for row in self.known.values() for pick in row.picks])
        rows = order[np.searchsorted(numbers[order], picked)]
        plane, places = view.map(rows)
        depth = _depth([row.picks for row in self.known.values()])
        cards = {pick for row in self.known.values() for pick in row.picks[:depth]}
        picks = {
            **view.of(rows),
            "places": places,
            "cards": [view.card(row) if view.number(row) in cards else None for row in rows],
            "depth": depth,
            "seed": self.seed,
            "pool": len(numbers),
            "of": len(self.run.pools.source.data),
            "selections": self._selections(picked),
        }
        return {**view.as_json(), "plane": plane, "picks": picks}

    def _view(self) -> View:
        """The pool of the first seed, as its methods saw it."""
        pools = self.run.pools
        numbers = pools.rows(self.seed)
        pool, _ = pools.of(self.seed)
        targets = replace(pools.targets, values=pools.targets.values[numbers])
        return View(pool, groups_of(targets, len(pool)), _shown(self.run), numbers)

    def _selections(self, picked: Array) -> list[list[dict[str, Any] | None]]:
        """For each method and size the places of its picks among all that are picked."""
        grid = self.run.grid
        return [
            [_selection(self.known.get((method, size)), picked) for size in grid.sizes]
            for method in grid.methods
        ]


def contenders_of(run: BaseComparison[Any]) -> Contenders:
    """What the records say of the selections of the first seed."""
    grid = run.grid
    first = grid.seeds[0]
    cells = {(name, size): (name, size, first) for name in grid.methods for size in grid.sizes}
    rows = {cell: run.records.rows.get(place) for cell, place in cells.items()}
    pool = run.pools.rows(first)
    told = {cell: row for cell, row in rows.items() if row is not None and row.picks}
    # rows that were written by hand may name any
    return Contenders(
        run, {cell: row for cell, row in told.items() if np.isin(row.picks, pool).all()}
    )


def served_by(
    run: BaseComparison[Any], judge: str, random: str
) -> list[list[list[dict[str, Any]]]]:
    """For each method and size the classes that gain and lose by it, beside random rows.

    Over the seeds that both have; empty lists where the rows do not say.
    """
    grid = run.grid
    return [
        [_served(run, judge, method, random, size) for size in grid.sizes]
        for method in grid.methods
    ]


def _served(
    run: BaseComparison[Any], judge: str, method: str, random: str, size: int
) -> list[dict[str, Any]]:
    if method == random:
        return []
    rows = run.records.rows
    pairs = []
    for seed in run.grid.seeds:
        both = [rows.get((name, size, seed)) for name in (method, random)]
        shares = [[] if row is None else row.classes.get(judge, []) for row in both]
        if all(len(own) == run.pools.outputs for own in shares):
            pairs.append(shares)
    if not pairs:
        return []
    ours, theirs = np.array(pairs, dtype=np.float64).transpose(1, 0, 2)  # None becomes nan
    return [one.as_json() for one in class_scores(ours, theirs)]


def _shown(run: BaseComparison[Any]) -> Shown:
    source = run.pools.source
    columns = None if source.table is None else source.table.cells()
    return shown_as(source.data.x, source.images, columns)


def _selection(row: Row | None, picked: Array) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"at": np.searchsorted(picked, row.picks).tolist(), "weights": row.weights or None}


def _depth(selections: Sequence[Sequence[int]]) -> int:
    """How many of the first picks of every selection are shown one by one."""
    seen: set[int] = set()
    for depth in range(MOST_CARDS):
        seen |= {picks[depth] for picks in selections if depth < len(picks)}
        if len(seen) > MOST_ROWS:
            return depth
    return MOST_CARDS
