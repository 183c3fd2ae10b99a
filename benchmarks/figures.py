"""Draw the figures of docs/search.md, docs/labels.md and docs/noisy-labels.md from records."""

from typing import Any

import numpy as np

from benchmarks.pages import DOCS, drawing, percent, read_record, unique, where
from bicore import Dataset
from bicore.methods import quality_curve
from bicore.methods.registry import greedy_selector
from bicore.sources import digits

#: Names of strategies by the classes that records name.
STRATEGIES = {
    "Uniform": "uniform sample",
    "Strategy": "greedy",  # in older records
    "Batches": "batches",
    "Exchange": "exchange",
    "Elimination": "elimination",
    "Simplex": "simplex",
    "Greedy": "greedy",
}
COLOURS = {kind: f"C{number}" for number, kind in enumerate(STRATEGIES)}


def draw() -> None:
    for figure in (_curve, _strategies, _noise, _active, _network, _others):
        figure()


def _panel(name: str, *shape: int, **options: Any) -> Any:
    return drawing(DOCS / "images" / f"beyond_{name}.png", *shape, **options)


def _error(values: Any) -> Any:
    return np.std(values, axis=0, ddof=1) / len(values) ** 0.5


def _strategies() -> None:
    """Loss against seconds, a panel for each size."""
    rows = read_record("strategies")["rows"]
    sizes = sorted(unique(rows, "size"))
    with _panel("strategies", 1, len(sizes), figsize=(3.2 * len(sizes), 3.2)) as (figure, axes):
        for place, size in zip(axes, sizes, strict=True):
            for one in where(rows, size=size):
                kind = one["strategy"].split("(")[0]
                look = {"color": COLOURS[kind], "label": STRATEGIES[kind]}
                place.plot(max(one["seconds"], 0.01), one["loss"], "o", **look)
            place.set(title=f"{size} points", xlabel="seconds", xscale="log")
            place.grid(alpha=0.3)
        axes[0].set_ylabel("loss")
        found = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
        where_to = {"loc": "outside lower center", "ncols": len(found), "fontsize": 8}
        figure.legend(found.values(), found.keys(), **where_to)


def _curve() -> None:
    """The held-out loss along one nested run on digits, with what size="auto" makes of it."""
    x, y = digits()
    curve = quality_curve(greedy_selector(kernel="rbf", inner_reg=0.1), Dataset(x[:400], y[:400]))
    with _panel("curve", figsize=(6, 3.4)) as (_, place):
        place.plot(curve.sizes, curve.losses)
        place.axhline(curve.full, color="black", linewidth=0.8, label="all points")
        for number, tolerance in enumerate((0.5, 0.1, 0.02)):
            size = curve.smallest(tolerance)
            label = f"tolerance {tolerance:g}: {size} points"
            place.axvline(size, color=f"C{number + 1}", linestyle="--", label=label)
        place.set(xlabel="points", ylabel="loss on held-out points", ylim=(0, curve.empty))
        place.grid(alpha=0.3)
        place.legend()


def _noise() -> None:
    """Wrong labels among the picks and accuracy, at the smallest regulariser."""
    record = read_record("noise")
    rho = min(unique(record["rows"], "inner_reg"))
    with _panel("noise", 1, 2, figsize=(9, 3.6), sharey=True) as (figure, axes):
        for number, data in enumerate(("digits", "MNIST")):
            found = where(record["rows"], data=data, inner_reg=rho)
            places = np.arange(len(found)) + 0.4 * number
            for axis, key in zip(axes, ("flipped", "accuracy"), strict=True):
                scores = percent(found, key)
                errors = _error(scores.T)
                axis.barh(places, scores.mean(1), 0.38, xerr=errors, label=data)
        axes[0].set_yticks(np.arange(len(found)) + 0.2, [one["rule"] for one in found])
        axes[0].axvline(100 * record["share"], color="black", linewidth=0.8, linestyle="--")
        axes[0].set(xlabel="wrong among the picks, % (dashed: in the data)")
        axes[1].set(xlabel="accuracy, %", xlim=(30, 100))
        axes[0].invert_yaxis()
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)


def _active() -> None:
    record = read_record("active")
    look = {"marker": "o", "markersize": 3, "capsize": 2}
    with _panel("active", figsize=(6, 4)) as (_, place):
        for method in unique(record["rows"], "method"):
            scores = percent(where(record["rows"], method=method))
            errors = _error(scores)
            place.errorbar(record["labels"], scores.mean(0), errors, label=method, **look)
        place.set(xlabel="labels", ylabel="test accuracy, %")
        place.grid(alpha=0.3)
        place.legend(fontsize=8)


def _network() -> None:
    with _panel("network", figsize=(6, 3.6)) as (_, place):
        for one in read_record("network")["rows"]:
            scores = 100 * np.array(one["accuracy"])
            seconds = float(np.mean(one["seconds_a_point"]))
            look = {"fmt": "o", "capsize": 3, "label": one["method"]}
            place.errorbar(seconds, scores.mean(), _error(scores), **look)
        place.set(xlabel="seconds a point", ylabel="accuracy of the CNN, %", xscale="log")
        place.grid(alpha=0.3)
        place.legend(fontsize=7)


def _others() -> None:
    record = read_record("beyond")
    joint = {
        one["chosen_for"]: [100 * np.mean(found) for found in one["accuracy"].values()]
        for one in record["joint"]
    }
    models = list(record["joint"][0]["accuracy"])
    panels = {"without labels": (record["unlabelled"], 100, "accuracy, %")}
    for data in unique(record["regression"], "data"):
        panels[data] = (where(record["regression"], data=data), 1, "R²")
    with _panel("others", 1, 4, figsize=(14, 3.4)) as (figure, axes):
        shown = axes[0].imshow(list(joint.values()), cmap="viridis", aspect="auto")
        axes[0].set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=8)
        axes[0].set_yticks(range(len(joint)), list(joint), fontsize=8)
        axes[0].set_title("chosen for (rows), used for (columns)", fontsize=9)
        figure.colorbar(shown, ax=axes[0], label="accuracy, %")
        for place, (title, (found, scale, words)) in zip(axes[1:], panels.items(), strict=True):
            for one in found:
                look = {"marker": "o", "markersize": 3, "label": one["method"]}
                place.plot(one["sizes"], scale * np.mean(one["scores"], 0), **look)
            place.set_title(title, fontsize=9)
            place.set(xlabel="points", ylabel=words)
            place.grid(alpha=0.3)
            place.legend(fontsize=7)
