"""docs/unseen.md and docs/tables/battery.md from the battery's records."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import rankdata, t

from benchmarks.battery.sets import LARGE, SETS
from benchmarks.pages import read_record, render, table, unique, where

#: Level of the paired test that calls a difference significant.
LEVEL = 0.05
#: Scores (R² above all) are compared within ±1: a single failed fit would outweigh all others.
BOUND = 1.0
#: Names that say what a method does, if the record has another.
NAMES = {"k-means": "k-means++", "k-means per class": "k-means++ per class"}

Cell = tuple[str, int, str]
Scores = dict[Cell, dict[str, dict[int, float]]]


def scores(rows: list[dict[str, Any]], measure: int = 0) -> Scores:
    """By set, size and evaluation model: for every method its score of each seed."""
    found: Scores = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["method"] != "all data":
            for judge, own in row["scores"].items():
                found[row["set"], row["size"], judge][row["method"]][row["seed"]] = own[measure]
    return found


def verdict(
    own: dict[int, float], other: dict[int, float], larger: bool = True
) -> tuple[int, float]:
    """(+1, 0 or −1, the mean difference): better, no significant difference, worse."""
    sign = 1 if larger else -1
    differences = [sign * (own[seed] - other[seed]) for seed in own]
    count = len(differences)
    mean = sum(differences) / count
    squares = sum((one - mean) ** 2 for one in differences)
    error = (squares / (count - 1) / count) ** 0.5  # numpy is slow on a few numbers
    significant = abs(mean) > _critical(count) * error
    return ((mean > 0) - (mean < 0) if significant else 0), mean


@cache
def _critical(count: int) -> float:
    """The standard errors from zero at which a mean of ``count`` seeds is significant."""
    return float(t.ppf(1 - LEVEL / 2, count - 1))


def standing(
    rows: list[dict[str, Any]], regression: bool, measure: int = 0
) -> list[dict[str, Any]]:
    """One line per method: how often it is better and worse than chance, its mean rank and gain;
    ties share the mean of their ranks."""
    chance = "uniform" if regression else "class-balanced"
    larger = not (regression and measure == 1)
    cells = {
        cell: own
        for cell, own in scores(rows, measure).items()
        if SETS[cell[0]].regression is regression and chance in own
    }
    ranked = {cell: _ranks(own, larger) for cell, own in cells.items()}
    methods = list(dict.fromkeys(name for own in cells.values() for name in own))
    lines = []
    for name in methods:
        found = [verdict(own[name], own[chance], larger) for own in cells.values() if name in own]
        ranks = [ranked[cell][name] for cell, own in cells.items() if name in own]
        lines.append(
            {
                "method": name,
                "cells": len(found),
                "better": sum(sign > 0 for sign, _ in found),
                "worse": sum(sign < 0 for sign, _ in found),
                "rank": float(np.mean(ranks)),
                "gain": float(np.mean([np.clip(mean, -BOUND, BOUND) for _, mean in found])),
            }
        )
    return sorted(lines, key=lambda line: line["rank"])


def of_default(rows: list[dict[str, Any]], regression: bool, measure: int = 0) -> dict[str, Any]:
    """The line of the default."""
    lines = standing(rows, regression, measure)
    return next(line for line in lines if line["method"] == "default")


def _ranks(own: dict[str, dict[int, float]], larger: bool) -> dict[str, float]:
    means = [round(sum(values.values()) / len(values), 12) for values in own.values()]
    return dict(zip(own, rankdata([-mean if larger else mean for mean in means]), strict=True))


def losses(rows: list[dict[str, Any]], regression: bool) -> list[str]:
    """The cells where the default is significantly below chance."""
    chance = "uniform" if regression else "class-balanced"
    found = []
    for (name, size, model), own in scores(rows).items():
        if SETS[name].regression is regression and chance in own:
            sign, mean = verdict(own["default"], own[chance])
            if sign < 0:
                found.append(f"{name}, {size} points, {model} ({mean:+.3f})")
    return found


def standing_table(rows: list[dict[str, Any]], regression: bool) -> str:
    head = ["method", "better", "no difference", "worse", "mean rank", "mean difference"]
    body = []
    for line in standing(rows, regression):
        name, cells, better, worse = (line[key] for key in ("method", "cells", "better", "worse"))
        counts = [share(one, cells) for one in (better, cells - better - worse, worse)]
        shown = f"**{name}**" if name == "default" else NAMES.get(name, name)
        body.append([shown, *counts, f"{line['rank']:.2f}", f"{line['gain']:+.3f}"])
    return table(head, body)


def share(count: int, of: int) -> str:
    """A count, and its share of the whole."""
    return f"{count} ({count / of:.0%})"


def unseen() -> str:
    helpers = (of_default, share, held_out_table, set_table, set_gaps, large_verdict)
    return render("unseen.md", SETS=SETS, LARGE=LARGE, **{one.__name__: one for one in helpers})


def tables() -> str:
    helpers = (standing_table, below, large_table, wrong_label_table, hard_table)
    return render("tables/battery.md", **{one.__name__: one for one in helpers})


def hard_table() -> str:
    """Show mean and worst scores of hard problems, by the way their rows were chosen."""
    ways = ("uniform", "earlier", "default", "model")
    body = [
        [row["problem"], row["judge"], str(row["size"])]
        + [f"{np.mean(row[way]):.3f} ({min(row[way]):.3f})" for way in ways]
        for row in read_record("hard")["rows"]
    ]
    return table(
        ["problem", "model", "points", "uniform", "earlier", "default", "for the model"], body
    )


def large_table() -> str:
    """Show mean and worst scores of large tables, by the rows that a selection sees."""
    rows = read_record("large")["rows"]
    lines = []
    for name, size in sorted({(row["table"], row["size"]) for row in rows}):
        own = where(rows, table=name, size=size)
        cells = [f"{name} ({own[0]['rows']:,} rows)", str(size)]
        for pool in ("uniform", 5000, 20_000, 50_000, 0):
            scored = np.array([row["scores"] for row in where(own, pool=pool)])
            if not len(scored):  # the table is smaller, or the size was not selected there
                cells.append("")
                continue
            means = " ".join(f"{mean:.3f}" for mean in scored.mean(0))
            cells.append(f"{means} ({scored.mean(1).min():.3f})")
        seconds = np.median([row["seconds"] for row in where(own, pool=0)])
        lines.append([*cells, f"{seconds:.0f}"])
    pools = ("5,000 rows", "20,000 rows", "50,000 rows", "all rows")
    heads = ["table", "points", "uniform", *(f"default, {pool}" for pool in pools), "seconds"]
    return table(heads, lines)


def large_verdict(pool: str | int) -> str:
    """Count the tables and sizes where all rows differ significantly from ``pool``."""
    scored: dict[Any, dict[tuple[str, int], dict[int, float]]] = {}
    for row in read_record("large")["rows"]:
        cell = scored.setdefault(row["pool"], {}).setdefault((row["table"], row["size"]), {})
        cell[row["seed"]] = float(np.mean(row["scores"]))
    found = []
    for cell, own in scored[0].items():
        other = scored[pool].get(cell, {})
        seeds = own.keys() & other.keys()
        if len(seeds) > 1:
            found.append(verdict(*({seed: one[seed] for seed in seeds} for one in (own, other))))
    better, worse = (sum(sign == side for sign, _ in found) for side in (1, -1))
    lead = float(np.mean([mean for _, mean in found]))
    counts = f"better in {better} and worse in {worse} of {len(found)} tables and sizes"
    return f"{counts} (mean lead {lead:.3f})"


def below(rows: list[dict[str, Any]]) -> str:
    """Where the default is below chance."""
    found = [*losses(rows, False), *losses(rows, True)]
    return f"Default significantly below chance: {'; '.join(found) or 'nowhere'}.\n"


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


#: The baselines that the first pages compare the default with; the last three see labels.
BASELINES = (
    "uniform",
    "class-balanced",
    "herding per class",
    "k-means per class",
    "facility location per class",
)


@cache
def held_out_scores(regression: bool) -> Scores:
    """Scores of the held-out sets."""
    found = scores(read_record("battery_aside")["rows"])
    return {cell: own for cell, own in found.items() if SETS[cell[0]].regression is regression}


def held_out_table() -> str:
    """Compare the default with each baseline on the held-out classification sets."""
    lines = []
    for baseline in BASELINES:
        found = [verdict(own["default"], own[baseline]) for own in held_out_scores(False).values()]
        signs = [sign for sign, _ in found]
        gain = float(np.mean([mean for _, mean in found]))
        counts = [signs.count(sign) for sign in (1, 0, -1)]
        lines.append([NAMES.get(baseline, baseline), *map(str, counts), f"{gain:+.3f}"])
    return table(["baseline", "better", "no difference", "worse", "mean difference"], lines)


def set_gaps(name: str, baseline: str, regression: bool = False, model: str = "") -> np.ndarray:
    """Default minus baseline in points, one per seed, mean over sizes and models; of all sets if
    ``name`` is empty, of all models if ``model`` is."""
    found = [
        [
            np.clip(own["default"][seed] - own[baseline][seed], -BOUND, BOUND)
            for seed in sorted(own["default"])
        ]
        for cell, own in held_out_scores(regression).items()
        if name in ("", cell[0]) and model in ("", *cell)
    ]
    return np.asarray(100 * np.mean(found, axis=0))


def held_out_gaps() -> dict[str, np.ndarray]:
    """Differences of each seed, by the baseline: class-balanced samples, and the best of those
    that see labels."""
    return {NAMES.get(name, name): set_gaps("", name) for name in BASELINES[1:]}


def set_table(regression: bool) -> str:
    """For each held-out set, the default minus each baseline in points, and its worst seed."""
    baselines = ["uniform", "k-means", "facility location", "herding"]
    baselines = baselines if regression else list(BASELINES)
    lines = []
    for name in dict.fromkeys(cell[0] for cell in held_out_scores(regression)):
        cells = [
            f"{gaps.mean():+.1f} ({gaps.min():+.1f})"
            for gaps in (set_gaps(name, baseline, regression) for baseline in baselines)
        ]
        lines.append([f"{name}: {SETS[name].kind}", *cells])
    return table(["set", *(NAMES.get(one, one) for one in baselines)], lines)
