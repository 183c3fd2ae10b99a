"""docs/unseen.md, docs/choosing.md and docs/tables/battery.md from the battery's records."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.battery.sets import SETS
from benchmarks.pages import cells, figure, format_count, read_record, table, unique, where
from bicore.methods.large import human_seconds
from bicore.runtime.context import human_bytes
from experiments.statistics import Gap, paired_gap

#: Scores (R² above all) are compared within ±1: a single failed fit would outweigh all others.
BOUND = 1.0
#: Names that say what a method does, if the record has another.
NAMES = {"k-means": "k-means++", "k-means per class": "k-means++ per class"}
#: The baselines that the first pages compare the default with; the last three see labels.
BASELINES = ("uniform", "class-balanced", "herding per class", "k-means per class")
BASELINES += ("facility location per class",)
#: The word of ``model=`` for each evaluation model.
WORDS = {"logistic": "linear", "mlp": "network", "forest": "trees", "boosting": "trees"}
WORDS |= dict.fromkeys(("knn", "1-nn", "5-nn"), "neighbours")
#: Kernels of the table of times, in addition to the default kernel.
KERNELS = ("linear", "laplace", "ntk")
#: Records of the figure and their titles; methods with markers and greys.
TITLES = {"battery_aside": "held-out sets", "battery_kept": "development sets"}
SHOWN = {"default": ("o", "black"), "paper": ("s", "0.45"), "facility location": ("^", "0.7")}

Rows = list[dict[str, Any]]
Scores = dict[tuple[str, int, str], dict[str, dict[int, float]]]


def scores(rows: Rows, regression: bool, measure: int = 0) -> Scores:
    """By set, size and evaluation model: for every method its score of each seed."""
    found: Scores = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["method"] != "all data" and SETS[row["set"]].regression is regression:
            for model, own in row["scores"].items():
                found[row["set"], row["size"], model][row["method"]][row["seed"]] = own[measure]
    return found


def compare(own: dict[int, float], other: dict[int, float], larger: bool = True) -> Gap:
    """The mean difference over the seeds of both, positive if ``own`` is better."""
    sign = 1 if larger else -1
    return paired_gap([sign * (own[seed] - other[seed]) for seed in own if seed in other])


def mean_gain(gaps: list[Gap]) -> float:
    return float(np.mean([np.clip(gap.value, -BOUND, BOUND) for gap in gaps]))


def chance_of(regression: bool) -> str:
    """The method that draws at random."""
    return "uniform" if regression else "class-balanced"


def standing(rows: Rows, regression: bool, measure: int = 0) -> Rows:
    """One line per method: how often it is better and worse than chance, its mean rank and gain;
    ties share the mean of their ranks."""
    chance, larger = chance_of(regression), not (regression and measure == 1)
    gaps, ranks = defaultdict(list), defaultdict(list)
    for own in scores(rows, regression, measure).values():
        if chance in own:
            means = [round(sum(one.values()) / len(one), 12) for one in own.values()]
            places = rankdata([-mean if larger else mean for mean in means])
            for (name, one), place in zip(own.items(), places, strict=True):
                gaps[name].append(compare(one, own[chance], larger))
                ranks[name].append(place)
    lines = [
        {
            "method": name,
            "cells": len(found),
            "better": sum(gap.above for gap in found),
            "worse": sum(gap.below for gap in found),
            "rank": float(np.mean(ranks[name])),
            "gain": mean_gain(found),
        }
        for name, found in gaps.items()
    ]
    return sorted(lines, key=lambda line: line["rank"])


def of_default(rows: Rows, regression: bool, measure: int = 0) -> dict[str, Any]:
    """The line of the default."""
    return where(standing(rows, regression, measure), method="default")[0]


def losses(rows: Rows, regression: bool) -> list[str]:
    """The cells where the default is significantly below chance."""
    found = []
    for (name, size, model), own in scores(rows, regression).items():
        if chance_of(regression) in own:
            gap = compare(own["default"], own[chance_of(regression)])
            found += [f"{name}, {size} rows, {model} ({gap.value:+.3f})"] if gap.below else []
    return found


def standing_table(rows: Rows, regression: bool) -> str:
    head = ["method", "better", "no difference", "worse", "mean rank", "mean difference"]
    body = []
    for line in standing(rows, regression):
        name, count, better, worse = (line[key] for key in ("method", "cells", "better", "worse"))
        counts = [share(one, count) for one in (better, count - better - worse, worse)]
        shown = f"**{name}**" if name == "default" else NAMES.get(name, name)
        body.append([shown, *counts, f"{line['rank']:.2f}", f"{line['gain']:+.3f}"])
    return table(head, body)


def share(count: int, of: int) -> str:
    """A count, and its share of the whole."""
    return f"{count} ({count / of:.0%})"


def hard_table() -> str:
    """Show mean and worst scores of hard problems, by the way their rows were chosen."""
    ways = ("uniform", "earlier", "default", "model")
    body = [
        [row["problem"], row["judge"], str(row["size"])]
        + [f"{np.mean(row[way]):.3f} ({min(row[way]):.3f})" for way in ways]
        for row in read_record("hard")["rows"]
    ]
    head = ["problem", "model", "rows", "uniform", "earlier", "default", "for the model"]
    return table(head, body)


def large_table() -> str:
    """Show mean and worst scores of large tables, by the rows that a selection sees."""
    rows = read_record("large")["rows"]
    lines = []
    for name, size in sorted({(row["table"], row["size"]) for row in rows}):
        own = where(rows, table=name, size=size)
        line = [f"{name} ({own[0]['rows']:,} rows)", str(size)]
        for pool in ("uniform", 5000, 20_000, 50_000, 0):
            found = np.array([row["scores"] for row in where(own, pool=pool)])
            shown = ""  # the table is smaller, or the size was not selected there
            if len(found):
                means = " ".join(f"{mean:.3f}" for mean in found.mean(0))
                shown = f"{means} ({found.mean(1).min():.3f})"
            line.append(shown)
        seconds = np.median([row["seconds"] for row in where(own, pool=0)])
        lines.append([*line, f"{seconds:.0f}"])
    pools = ("5,000 rows", "20,000 rows", "50,000 rows", "all rows")
    heads = ["table", "rows", "uniform", *(f"default, {pool}" for pool in pools), "seconds"]
    return table(heads, lines)


def large_verdict(pool: str | int) -> str:
    """Count the tables and sizes where all rows differ significantly from ``pool``."""
    found: dict[Any, dict[Any, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_record("large")["rows"]:
        found[row["pool"]][row["table"], row["size"]][row["seed"]] = float(np.mean(row["scores"]))
    pairs = [(own, found[pool][cell]) for cell, own in found[0].items()]
    gaps = [compare(own, other) for own, other in pairs if len(own.keys() & other.keys()) > 1]
    better, worse = sum(gap.above for gap in gaps), sum(gap.below for gap in gaps)
    counts = f"better in {better} and worse in {worse} of {len(gaps)} tables and sizes"
    return f"{counts} (mean difference {np.mean([gap.value for gap in gaps]):+.3f})"


def large_worst_seeds(margin: float = 0.1) -> str:
    """Count the tables, sizes and models whose worst seed is near that of random samples."""
    found: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in read_record("large")["rows"]:
        found[row["pool"]][row["table"], row["size"]].append(row["scores"])
    pairs = [(own, found["uniform"][cell]) for cell, own in found[0].items()]
    near = [np.min(own, 0) >= np.min(other, 0) - margin for own, other in pairs]
    return f"{np.sum(near)} of {np.size(near)}"


def below(rows: Rows) -> str:
    """Where the default is below chance."""
    found = [*losses(rows, False), *losses(rows, True)]
    chance = "the class-balanced sample (targets: the uniform one)"
    return f"The default is significantly below {chance} in: {'; '.join(found) or 'none'}.\n"


def wrong_label_table(rows: Rows) -> str:
    """The share of wrong labels among the picks, and the mean score, by their share in the pool."""
    methods = ["default", "labels as given", "class-balanced", "uniform"]
    lines = []
    for flips in sorted(unique(rows, "flips")):
        line = [f"{flips:.0%}"]
        for method in methods:
            own = where(rows, flips=flips, method=method)
            wrong = np.mean([row["wrong"] for row in own])
            score = np.mean([one[0] for row in own for one in row["scores"].values()])
            line.append(f"{wrong:.1%}, {score:.3f}")
        lines.append(line)
    return table(["wrong in the pool", *methods], lines)


@cache
def held_out_scores(regression: bool) -> Scores:
    return scores(read_record("battery_aside")["rows"], regression)


def baseline_table(found: Scores, baselines: tuple[str, ...] = BASELINES) -> str:
    """Compare the default with each baseline."""
    lines = []
    for baseline in baselines:
        gaps = [compare(own["default"], own[baseline]) for own in found.values()]
        better, worse = sum(gap.above for gap in gaps), sum(gap.below for gap in gaps)
        row = {"name": NAMES.get(baseline, baseline), "better": better, "worse": worse}
        lines.append({**row, "level": len(gaps) - better - worse, "gain": 100 * mean_gain(gaps)})
    head = ["baseline", "better", "no difference", "worse", "mean difference (points)"]
    return table(head, cells(lines, "{name} | {better} | {level} | {worse} | {gain:+.1f}"))


def set_gaps(name: str, baseline: str, regression: bool = False, model: str = "") -> np.ndarray:
    """Default minus baseline in points, one per seed, mean over sizes and models; of all sets if
    ``name`` is empty, of all models if ``model`` is."""
    found = [
        [own["default"][seed] - own[baseline][seed] for seed in sorted(own["default"])]
        for cell, own in held_out_scores(regression).items()
        if name in ("", cell[0]) and model in ("", *cell)
    ]
    return np.asarray(100 * np.mean(np.clip(found, -BOUND, BOUND), axis=0))


def held_out_gaps() -> dict[str, np.ndarray]:
    """Differences of each seed, by the baseline: class-balanced samples, and those that see labels."""
    return {NAMES.get(name, name): set_gaps("", name) for name in BASELINES[1:]}


def set_table(regression: bool) -> str:
    """For each held-out set, the default minus each baseline in points, and its worst seed."""
    baselines = ("uniform", "k-means", "facility location", "herding") if regression else BASELINES
    lines = []
    for name in dict.fromkeys(cell[0] for cell in held_out_scores(regression)):
        gaps = [set_gaps(name, baseline, regression) for baseline in baselines]
        shown = [f"{gap.mean():+.1f} ({gap.min():+.1f})" for gap in gaps]
        lines.append([f"{name}: {SETS[name].kind}", *shown])
    return table(["set", *(NAMES.get(one, one) for one in baselines)], lines)


def model_table() -> str:
    """For each evaluation model, the default and ``model=`` against baselines that see labels."""
    lines = []
    for model, word in WORDS.items():
        cells = [own for cell, own in held_out_scores(False).items() if cell[2] == model]
        gaps = [compare(own["default"], own[BASELINES[-1]]) for own in cells]
        counts = sum(gap.above for gap in gaps), sum(gap.below for gap in gaps)
        line = [model, f"{100 * mean_gain(gaps):+.1f}", *map(str, counts)]
        line += [_not_worse("default", cells, False), _not_worse(f"model={word}", cells, False)]
        lines.append([*line, _not_worse(f"model={word}", cells, True), f'`"{word}"`'])
    head = ["model", "mean difference (points)", "better", "worse", "default not worse"]
    return table(
        [*head, "`model=` not worse", "`model=` not worse than the best each time", "`model=`"],
        lines,
    )


def _not_worse(method: str, cells: list[dict[str, dict[int, float]]], each: bool) -> str:
    """Count the cases in which a method is not worse than the best baseline, which is that of
    ``each`` case or the one with the best mean."""

    def mean_score(name: str, some: list[dict[str, dict[int, float]]]) -> float:
        return float(np.mean([np.mean(list(own[name].values())) for own in some]))

    best = max(BASELINES, key=lambda name: mean_score(name, cells))
    worse = 0
    for own in cells:
        other = max(BASELINES, key=lambda name: mean_score(name, [own])) if each else best
        worse += compare(own[method], own[other]).below
    return share(len(cells) - worse, len(cells))


def time_table(record: dict[str, Any]) -> str:
    """A line for every number of rows and features."""
    lines = []
    for row in record["rows"]:
        ways = row["ways"]
        own = ways.get("default") or ways["files"]
        kernel = re.sub(r"\(.*?\)", "", own["kernel"] or "linear on unit rows")
        shown = [_cost(one) for one in (own, *(ways.get(name) for name in KERNELS))]
        lines.append([f"{format_count(row['rows'])} × {row['width']}", kernel, *shown])
    heads = [f'`kernel="{name}"`' for name in KERNELS]
    return table(["rows × features", "chosen kernel", "default", *heads], lines)


def _cost(way: dict[str, Any] | None) -> str:
    if way is None:
        return ""
    mark = "*" if way["stand_in"] else ""
    return f"{human_seconds(way['seconds'])}, {human_bytes(way['bytes'])}{mark}"


@figure("images/choosing.png", 1, 2, dpi=110, figsize=(10, 4.6), sharex=True)
def draw_sets(axes: Any) -> None:
    """For every set the mean difference from chance: the default, bilevel-ntk, a baseline."""
    for axis, (record, title) in zip(axes, TITLES.items(), strict=True):
        gaps: dict[str, dict[str, list[Gap]]] = defaultdict(lambda: defaultdict(list))
        for regression in (False, True):
            for (name, _, _), own in scores(read_record(record)["rows"], regression).items():
                for method in SHOWN.keys() & own.keys() if chance_of(regression) in own else ():
                    gaps[name][method].append(compare(own[method], own[chance_of(regression)]))
        means = {
            name: {method: mean_gain(found) for method, found in own.items()}
            for name, own in gaps.items()
        }
        names = sorted(means, key=lambda name: means[name]["default"])
        for method, (marker, colour) in SHOWN.items():
            places = [place for place, name in enumerate(names) if method in means[name]]
            values = [means[names[place]][method] for place in places]
            label = "bilevel-ntk" if method == "paper" else method
            axis.plot(values, places, marker, color=colour, label=label)
        axis.axvline(0, color="0.8", zorder=0)
        axis.set_yticks(range(len(names)), names)
        axis.set(title=title, xlabel="mean score minus class-balanced (regression: random)")
    axes[0].legend(loc="upper left", frameon=False)
