"""docs/battery.md from the battery's records: what the defaults were chosen by and shown on."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.battery.sets import SETS
from benchmarks.common import RECORDS, read_record, table

DOCS = Path(__file__).parents[1] / "docs"
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
    lines = []
    for name in methods:
        found = [verdict(own[name], own[chance], larger) for own in cells.values() if name in own]
        ranks = [_rank(own, name, larger) for own in cells.values() if name in own]
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


def _rank(own: dict[str, dict[int, float]], name: str, larger: bool) -> int:
    sign = 1 if larger else -1
    means = {other: sign * float(np.mean(list(values.values()))) for other, values in own.items()}
    return 1 + sum(value > means[name] + 1e-12 for value in means.values())


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


def _standing_table(rows: list[dict[str, Any]], regression: bool) -> str:
    head = ["method", "better", "not told apart", "worse", "mean rank", "mean difference"]
    lines = [
        [
            f"**{line['method']}**" if line["method"] == "default" else line["method"],
            share(line["better"], line["cells"]),
            share(line["cells"] - line["better"] - line["worse"], line["cells"]),
            share(line["worse"], line["cells"]),
            f"{line['rank']:.2f}",
            f"{line['gain']:+.3f}",
        ]
        for line in standing(rows, regression)
    ]
    return table(head, lines)


def share(count: int, of: int) -> str:
    """A count, and how much of the whole that is."""
    return f"{count} ({count / of:.0%})"


def records() -> list[str]:
    """Of the sets put aside and of the others, where they are there."""
    known = ("battery_aside", "battery_kept")
    return [name for name in known if (RECORDS / f"{name}.json").exists()]


def text() -> str:
    aside = read_record("battery_aside")
    rows = aside["rows"]
    seeds = 1 + max(row["seed"] for row in rows)
    aside_sets = sum(one.aside for one in SETS.values())
    parts = [OPENING.format(sets=len(SETS), aside=aside_sets)]
    parts.append(EVIDENCE.format(seeds=seeds, sets=len({row["set"] for row in rows})))
    parts.append(_standing_table(rows, False))
    parts.append("\nThe same for targets, beside uniform samples (R²):\n")
    parts.append(_standing_table(rows, True))
    parts.append(_below(rows))
    own = of_default(rows, False, 1)
    parts.append(
        f"By balanced accuracy the default is better in {share(own['better'], own['cells'])} and worse in "
        f'{share(own["worse"], own["cells"])}: rare classes are served as their rows count. `prior="equal"` counts classes the same.\n'
    )
    parts += [LARGE, _large_table(), COLLAPSE, _collapse_table()]
    if "battery_kept" in records():
        parts.append(KEPT)
        kept = read_record("battery_kept")["rows"]
        parts.append(_standing_table(kept, False))
        parts.append("")
        parts.append(_standing_table(kept, True))
        parts.append(_below(kept))
    if (RECORDS / "battery_images.json").exists():
        parts.append(IMAGES)
        parts.append(_standing_table(read_record("battery_images")["rows"], False))
    if (RECORDS / "battery_wrong-labels.json").exists():
        parts.append(WRONG)
        parts.append(_wrong_labels(read_record("battery_wrong-labels")["rows"]))
    if (RECORDS / "battery_variants.json").exists():
        variants = read_record("battery_variants")["rows"]
        parts.append(VARIANTS)
        parts.append(_standing_table(variants, False))
        parts.append("")
        parts.append(_standing_table(variants, True))
    parts.extend(_memories())
    if (RECORDS / "battery_first.json").exists():
        parts.append(FIRST)
        parts.append(_first())
    if (RECORDS / "worth.json").exists():
        parts.append(WORTH)
        parts.append(worth_table())
    parts.append(CLOSING)
    return "\n".join(parts)


def _large_table() -> str:
    """Show mean and worst scores of large tables, by the rows that a selection sees."""
    rows = read_record("large")["rows"]
    lines = []
    for name in sorted({row["table"] for row in rows}):
        for size in sorted({row["size"] for row in rows}):
            own = [row for row in rows if row["table"] == name and row["size"] == size]
            cells = [f"{name} ({own[0]['rows']:,} rows)", str(size)]
            for way in ("uniform", "5,000 rows", "all rows"):
                scored = np.array([row["scores"] for row in own if row["way"] == way])
                means = " ".join(f"{mean:.3f}" for mean in scored.mean(0))
                cells.append(f"{means} ({scored.mean(1).min():.3f})")
            seconds = max(row["seconds"] for row in own if row["way"] == "all rows")
            lines.append([*cells, f"{seconds:.1f}"])
    heads = ["table", "points", "uniform", "default, 5,000 rows", "default, all rows", "seconds"]
    return table(heads, lines)


def _collapse_table() -> str:
    """Show single-class answers and accuracies of Gaussian classes."""
    lines = [
        [
            f"{cell['share']:.0%}",
            str(cell["size"]),
            f"{cell['single_class']} of {cell['seeds']}",
            "{:.3f} ({:.3f})".format(*cell["accuracy"]),
            "{:.3f} ({:.3f})".format(*cell["uniform"]),
        ]
        for cell in read_record("collapse")["cells"]
    ]
    return table(["rare class", "points", "of one class", "default", "uniform"], lines)


def _below(rows: list[dict[str, Any]]) -> str:
    below = [*losses(rows, False), *losses(rows, True)]
    said = "; ".join(below) if below else "nowhere that these seeds could tell"
    return f"\nWhere the default is below chance: {said}.\n"


def _wrong_labels(rows: list[dict[str, Any]]) -> str:
    """A line a share of wrong labels: the share among the picks, and the mean score."""
    methods = ["default", "labels as given", "class-balanced", "uniform"]
    lines = []
    for flips in sorted({row["flips"] for row in rows}):
        cells = [f"{flips:.0%}"]
        for method in methods:
            own = [row for row in rows if row["flips"] == flips and row["method"] == method]
            wrong = float(np.mean([row["wrong"] for row in own]))
            score = float(np.mean([own[0] for row in own for own in row["scores"].values()]))
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


def worth_table() -> str:
    """What the picks of all 50 000 embeddings are worth in random rows."""
    lines = []
    for row in read_record("worth")["rows"]:
        worth = {
            name: f"{own[0]:.0f} ({own[1]:.0f}–{own[2]:.0f})" for name, own in row["worth"].items()
        }
        lines.append(
            [str(row["size"]), f"{row['score']:.3f}", worth["uniform"], worth["class-balanced"]]
        )
    return table(["rows", "accuracy", "random rows", "class-balanced rows"], lines)


def _memories() -> list[str]:
    """What memories ended with, as tasks and as a stream; nothing without a record."""
    known = [name for name in MEMORY_WORDS if (RECORDS / f"battery_{name}.json").exists()]
    parts = [MEMORIES] if known else []
    for name in known:
        rows = read_record(f"battery_{name}")["rows"]
        seeds = 1 + max(row["seed"] for row in rows)
        sets = len({row["set"] for row in rows})
        parts.append(MEMORY_WORDS[name].format(seeds=seeds, sets=sets))
        parts.append(_standing_table(rows, False))
        parts.append("")
    return parts


def _first() -> str:
    """The first table, with the default in a column of its own."""
    rows = list(read_record("battery_first")["rows"])
    if (RECORDS / "battery_first-images.json").exists():
        rows += read_record("battery_first-images")["rows"]
    methods = [
        "uniform", "class-balanced", "paper", "gain", "normalised", "elimination", "exchange", "default",
    ]  # fmt: skip
    lines = []
    for (name, size, judge), own in scores(rows).items():
        if "default" in own:
            cells = [f"{name}, {size}, {judge}"]
            for method in methods:
                values = list(own[method].values())
                error = np.std(values, ddof=1) / len(values) ** 0.5
                cells.append(f"{np.mean(values):.3f} ± {error:.3f}")
            lines.append(cells)
    return table(["set, points, judge", *methods[:-1], "**default**"], lines)


OPENING = """# The battery behind the defaults

{sets} real data sets, {aside} of which were put aside before anything was tried. What follows from them is on
[one page](choosing.md); here is every table.
"""
EVIDENCE = """## On sets that played no part in the choice

{sets} sets were held out from every choice (`python -m benchmarks battery --protocol aside --sets SETS`):
pools of up to 1000 rows, sizes from one point a class to a fifth of the pool, {seeds} paired seeds, judges that differ (kernel ridge,
logistic, forest, boosting up to five classes, nearest neighbours, a network), all tuned by the same rows of the pool. A cell is a set, a
size and a judge; better and worse mean significantly different from a class-balanced sample by a paired t-test at 5%, so that about one
in forty would fall on either side by chance. Methods "per class" select within each class, with as many points as its share of the rows.
CIFAR-10, the eleventh set, is not in this record yet.
"""
LARGE = """
## Large tables

Scores of a linear model, a forest and the nearest neighbour (accuracy, or R²), means over four seeds; in brackets the mean of the three in
the worst seed (`python -m benchmarks large --sets ARCHIVES --seeds 4`). A part of the diamonds is also among the
sets the defaults were chosen on; the other tables are not. Seconds are the processor's, on one thread, of the slowest selection from all rows.
"""
COLLAPSE = """
## Answers from a single class

Two Gaussian classes, 600 rows, the accuracy of logistic regression on the picks, mean and worst of 200 seeds (`python -m benchmarks collapse
--seeds 200`). Of all 45 pairs of MNIST digits, none has ten picks of one class, with the default kernel or the linear one.
"""
KEPT = """
## On the sets it was chosen on

The same table where choices were made (`--protocol kept`): it flatters. This table and those below were recorded with version 0.2, whose
default had another kernel and no intercept.
"""
IMAGES = """
## Networks on images

MNIST and CIFAR-10 pixels, a convolutional network trained on the picks (`--protocol images --device cuda`, ten seeds):
"""
WRONG = """
## Wrong labels

Labels of the pool changed at random: the share of them among the picks, and the mean score over sets, sizes and judges
(`--protocol wrong-labels`, five seeds). What is denied by the others is not chosen:
"""
VARIANTS = """
## One thing changed at a time

On the sets it was chosen on, three judges, five seeds (`--protocol variants`): classes, then targets.
"""
WORTH = """
## What it is worth

Recorded with version 0.2. All 50 000 rows of the frozen embedding as the pool, a logistic head, the embedding's own test set: how many random rows
give the same accuracy, with 95% intervals over five seeds (`python -m benchmarks worth --data DIR --record`).
"""
MEMORIES = """
## Memories

A memory chooses from a part of the problem at a time and shrinks by cutting or by choosing again, so its default is another one: the
network kernel, normalised, on standardised columns (no labels of a part decide it), greedy by the gradient, one point of every class a
round, labels as given. Judged as above, by logistic regression, nearest neighbours, a network and kernel ridge on the test rows of all
classes, with three and ten rows a class; the choice was made on these sets, so they flatter it. "auto" leaves the kernel alone open
and has no balance; "standardised" is the default without its balance, "equal classes" balances the objective in place of the points; the last
three change the targets or the kernel of the default.
"""
MEMORY_WORDS = {
    "replay": "Tasks of two classes each in a replay memory ({sets} sets, {seeds} seeds, `--protocol replay`):\n",
    "merge-reduce": "A stream sorted by class in a merge-reduce buffer of one slot ({sets} sets, {seeds} seeds, `--protocol "
    "merge-reduce`); the reservoirs choose by chance:\n",
}
FIRST = """
## The table that asked for it

Accuracy of a judge trained on the picks, mean ± standard error over five seeds. "paper" was the default; "gain", "elimination" and
"exchange" change its rule or strategy, "normalised" its kernel (`--protocol first`).
"""
CLOSING = """
## The sets

`python -m benchmarks.battery.sets --fetch --packages DIR --data DIR --out SETS` brings the tables out of packages of the registry; MNIST,
CIFAR-10 and the embedding lie under `--data`.
"""
