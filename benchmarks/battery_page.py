"""docs/battery.md from the battery's records: what the defaults were chosen by and shown on."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

from benchmarks.battery.sets import SETS
from benchmarks.pages import DOCS, read_record, render, spread, table, unique, where

PAGE = DOCS / "battery.md"
#: A difference over paired seeds is told apart from none at this level.
LEVEL = 0.05

Cell = tuple[str, int, str]
Scores = dict[Cell, dict[str, dict[int, float]]]


def scores(rows: list[dict[str, Any]], measure: int = 0) -> Scores:
    """By set, size and judge: for every method its score of each seed."""
    found: Scores = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["method"] != "all data":
            for judge, own in row["scores"].items():
                found[row["set"], row["size"], judge][row["method"]][row["seed"]] = own[measure]
    return found


def verdict(
    own: dict[int, float], other: dict[int, float], larger: bool = True
) -> tuple[int, float]:
    """(+1, 0 or −1, the mean difference): better, not told apart, worse."""
    sign = 1 if larger else -1
    differences = sign * np.array([own[seed] - other[seed] for seed in sorted(own)])
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        return int(np.sign(mean)), mean
    error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    told = abs(mean) > _critical(len(differences)) * error
    return (int(np.sign(mean)) if told else 0), mean


@cache
def _critical(count: int) -> float:
    """How many standard errors a mean of so many seeds is from none, at the level."""
    from scipy.stats import t

    return float(t.ppf(1 - LEVEL / 2, count - 1))


def standing(
    rows: list[dict[str, Any]], regression: bool, measure: int = 0
) -> list[dict[str, Any]]:
    """A line a method: how often it is better and worse than chance, its mean rank and gain."""
    chance = "uniform" if regression else "class-balanced"
    larger = not (regression and measure == 1)
    cells = {
        cell: own
        for cell, own in scores(rows, measure).items()
        if SETS[cell[0]].regression is regression and chance in own
    }
    methods = list(dict.fromkeys(name for own in cells.values() for name in own))
    means = [
        {name: float(np.mean(list(values.values()))) for name, values in own.items()}
        for own in cells.values()
    ]
    lines = []
    for name in methods:
        found = [verdict(own[name], own[chance], larger) for own in cells.values() if name in own]
        ranks = [_rank(own, name, larger) for own in means if name in own]
        lines.append(
            {
                "method": name,
                "cells": len(found),
                "better": sum(sign > 0 for sign, _ in found),
                "worse": sum(sign < 0 for sign, _ in found),
                "rank": float(np.mean(ranks)),
                "gain": float(np.mean([np.clip(mean, -1, 1) for _, mean in found])),
            }
        )
    return sorted(lines, key=lambda line: line["rank"])


def of_default(rows: list[dict[str, Any]], regression: bool, measure: int = 0) -> dict[str, Any]:
    """The line of the default."""
    lines = standing(rows, regression, measure)
    return next(line for line in lines if line["method"] == "default")


def _rank(means: dict[str, float], name: str, larger: bool) -> int:
    sign = 1 if larger else -1
    return 1 + sum(sign * (value - means[name]) > 1e-12 for value in means.values())


def losses(rows: list[dict[str, Any]], regression: bool) -> list[str]:
    """The cells where the default is told apart from chance, and below."""
    chance = "uniform" if regression else "class-balanced"
    found = []
    for (name, size, judge), own in scores(rows).items():
        if SETS[name].regression is regression and chance in own:
            sign, mean = verdict(own["default"], own[chance])
            if sign < 0:
                found.append(f"{name}, {size} points, {judge} ({mean:+.3f})")
    return found


def standing_table(rows: list[dict[str, Any]], regression: bool) -> str:
    head = ["method", "better", "not told apart", "worse", "mean rank", "mean difference"]
    body = []
    for line in standing(rows, regression):
        name, cells, better, worse = (line[key] for key in ("method", "cells", "better", "worse"))
        counts = [share(one, cells) for one in (better, cells - better - worse, worse)]
        shown = f"**{name}**" if name == "default" else name
        body.append([shown, *counts, f"{line['rank']:.2f}", f"{line['gain']:+.3f}"])
    return table(head, body)


def share(count: int, of: int) -> str:
    """A count, and its share of the whole."""
    return f"{count} ({count / of:.0%})"


def text() -> str:
    helpers = (standing_table, of_default, below, share, large_table, large_verdict)
    names = {one.__name__: one for one in (*helpers, wrong_label_table, first_table)}
    return render("battery.md", SETS=SETS, **names)


def large_table() -> str:
    """Show mean and worst scores of large tables, by the rows that a selection sees."""
    rows = read_record("large")["rows"]
    lines = []
    for name, size in sorted({(row["table"], row["size"]) for row in rows}):
        own = where(rows, table=name, size=size)
        cells = [f"{name} ({own[0]['rows']:,} rows)", str(size)]
        for pool in ("uniform", 5000, 0):
            scored = np.array([row["scores"] for row in where(own, pool=pool)])
            means = " ".join(f"{mean:.3f}" for mean in scored.mean(0))
            cells.append(f"{means} ({scored.mean(1).min():.3f})")
        seconds = np.median([row["seconds"] for row in where(own, pool=0)])
        lines.append([*cells, f"{seconds:.0f}"])
    heads = ["table", "points", "uniform", "default, 5,000 rows", "default, all rows", "seconds"]
    return table(heads, lines)


def large_verdict(pool: str | int) -> str:
    """Count the tables and sizes where all rows differ significantly from ``pool``."""
    scored: dict[Any, dict[tuple[str, int], dict[int, float]]] = {}
    for row in read_record("large")["rows"]:
        cell = scored.setdefault(row["pool"], {}).setdefault((row["table"], row["size"]), {})
        cell[row["seed"]] = float(np.mean(row["scores"]))
    found = []
    for cell, own in scored[0].items():
        seeds = own.keys() & scored[pool][cell].keys()
        found.append(
            verdict(*({seed: one[seed] for seed in seeds} for one in (own, scored[pool][cell])))
        )
    better, worse = (sum(sign == side for sign, _ in found) for side in (1, -1))
    lead = float(np.mean([mean for _, mean in found]))
    counts = f"better in {better} and worse in {worse} of {len(found)} tables and sizes"
    return f"{counts} (mean lead {lead:.3f})"


def below(rows: list[dict[str, Any]]) -> str:
    """Where the default is below chance."""
    found = [*losses(rows, False), *losses(rows, True)]
    words = "; ".join(found) if found else "nowhere that these seeds could tell"
    return f"\nWhere the default is below chance: {words}.\n"


def wrong_label_table(rows: list[dict[str, Any]]) -> str:
    """The share of wrong labels among the picks, and the mean score, by their share in the pool."""
    methods = ["default", "labels as given", "class-balanced", "uniform"]
    lines = []
    for flips in sorted(unique(rows, "flips")):
        cells = [f"{flips:.0%}"]
        for method in methods:
            own = where(rows, flips=flips, method=method)
            wrong = float(np.mean([row["wrong"] for row in own]))
            score = float(np.mean([one[0] for row in own for one in row["scores"].values()]))
            cells.append(f"{wrong:.1%}, {score:.3f}")
        lines.append(cells)
    return table(["wrong in the pool", *methods], lines)


#: The baselines that the first pages compare the default with.
BASELINES = (
    "uniform",
    "class-balanced",
    "herding per class",
    "k-means per class",
    "facility location per class",
)


def held_out_table() -> str:
    """Compare the default with each baseline on the held-out classification sets."""
    cells = scores(read_record("battery_aside")["rows"])
    lines = []
    for baseline in BASELINES:
        found = [
            verdict(own["default"], own[baseline])
            for (name, _, _), own in cells.items()
            if not SETS[name].regression
        ]
        signs = [sign for sign, _ in found]
        gain = float(np.mean([mean for _, mean in found]))
        counts = [signs.count(sign) for sign in (1, 0, -1)]
        lines.append([baseline, *map(str, counts), f"{gain:+.3f}"])
    return table(["baseline", "better", "no difference", "worse", "mean difference"], lines)


def first_table() -> str:
    """The first table, with the default in a column of its own."""
    rows = [*read_record("battery_first")["rows"], *read_record("battery_first-images")["rows"]]
    methods = ["uniform", "class-balanced", "paper", "gain", "normalised", "elimination"]
    methods += ["exchange", "default"]
    lines = []
    for (name, size, judge), own in scores(rows).items():
        if "default" in own:
            cells = [spread(list(own[method].values()), ".3f") for method in methods]
            lines.append([f"{name}, {size}, {judge}", *cells])
    return table(["set, points, judge", *methods[:-1], "**default**"], lines)
