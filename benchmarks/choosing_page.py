"""docs/choosing.md from the records: the defaults, one figure, and one table of what they take."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.battery.sets import SETS
from benchmarks.battery_page import of_default, scores, share, verdict
from benchmarks.pages import DOCS, drawing, format_count, read_record, render, table
from bicore.methods.large import human_seconds
from bicore.runtime.context import human_bytes

FIGURE = DOCS / "images" / "choosing.png"
TITLES = {
    "battery_aside": "sets put aside",
    "battery_kept": "sets the choice was made on",
}
#: Markers and greys, told apart without colour.
SHOWN = {"default": ("o", "black"), "paper": ("s", "0.45"), "facility location": ("^", "0.7")}
#: Kernels that are asked for, beside the default kernel.
KERNELS = ("linear", "laplace", "ntk")

Record = dict[str, Any]


def text() -> str:
    return render("choosing.md", of_default=of_default, share=share, time_table=time_table)


def time_table(record: Record) -> str:
    """A line for every number of rows and features."""
    lines = []
    for row in record["rows"]:
        ways = row["ways"]
        own = ways.get("default") or ways["files"]
        taken = re.sub(r"\(.*?\)", "", own["kernel"] or "linear on unit rows")
        lines.append(
            [
                f"{format_count(row['rows'])} × {row['width']}",
                taken,
                _way(own),
                *(_way(ways.get(name)) for name in KERNELS),
            ]
        )
    heads = [f'`kernel="{name}"`' for name in KERNELS]
    return table(["rows × features", "default kernel", "takes", *heads], lines)


def _way(way: Record | None) -> str:
    if way is None:
        return ""
    mark = "*" if way["stand_in"] else ""
    return f"{human_seconds(way['seconds'])}, {human_bytes(way['bytes'])}{mark}"


def draw() -> None:
    """For every set the mean difference from chance: the default, the paper's setting, a baseline."""
    with drawing(FIGURE, 1, len(TITLES), dpi=110, figsize=(10, 4.6), sharex=True) as (_, axes):
        for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
            by_set = _differences(read_record(name)["rows"])
            names = sorted(by_set, key=lambda name: float(np.mean(by_set[name]["default"])))
            for method, (marker, colour) in SHOWN.items():
                places = [place for place, name in enumerate(names) if by_set[name][method]]
                means = [float(np.mean(by_set[names[place]][method])) for place in places]
                axis.plot(means, places, marker, color=colour, label=method)
            axis.axvline(0, color="0.8", zorder=0)
            axis.set_yticks(range(len(names)), names)
            axis.set(title=title, xlabel="mean score above a class-balanced (uniform) sample")
        axes[0].legend(loc="upper left", frameon=False)


def _differences(rows: list[Record]) -> dict[str, dict[str, list[float]]]:
    """By set and method: the mean difference from chance, of every size and judge."""
    by_set: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (name, _, _), own in scores(rows).items():
        chance = "uniform" if SETS[name].regression else "class-balanced"
        for method in SHOWN:
            if method in own and chance in own:
                mean = verdict(own[method], own[chance])[1]
                by_set[name][method].append(float(np.clip(mean, -1, 1)))
    return by_set
