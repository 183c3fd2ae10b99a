"""What docs/benchmarks.md says of everything past greedy selection with labels and a proxy, and its
figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import read_record, table, told
from bicore import BilevelSelector, Dataset
from bicore.selectors import quality_curve
from bicore.sources import digits

NAMES = {
    "Uniform": "uniform sample",
    "Strategy": "greedy",  # as older records have it
    "Batches": "batches",
    "Exchange": "exchange",
    "Elimination": "elimination",
    "Simplex": "simplex",
    "Greedy": "greedy",
}
COLOURS = {kind: f"C{number}" for number, kind in enumerate(NAMES)}
IMAGES = Path(__file__).parents[1] / "docs" / "images"


def _strategies(record: dict[str, Any]) -> str:
    rows = []
    for one in record["rows"]:
        kind = one["strategy"].split("(")[0]
        options = one["strategy"].split("(")[1].rstrip(")")
        done = (
            f"{one['exchanges']} exchanges, {one['exchange_gain']:.4f} lower"
            if "exchanges" in one
            else ""
        )
        done = f"{one['eliminated']} let go" if "eliminated" in one else done
        done = (
            f"{one['relaxed_objective']:.4f} before rounding"
            if "relaxed_objective" in one
            else done
        )
        rows.append(
            [
                str(one["size"]),
                NAMES[kind] + (f" ({options})" if options else ""),
                f"{one['loss']:.4f}",
                f"{100 * one['accuracy']:.2f}",
                f"{one['seconds']:.1f} s",
                done,
            ]
        )
    return f"""## Large coresets: where each strategy pays

{told(record)}

{record["pool"]} MNIST images, the kernel of a fully connected network stored, squared error, ρ = {record["inner_reg"]:.3g}
throughout. The loss is the outer objective; accuracy is that of the kernel model fitted on the coreset, on all test images, in
percent. Fitted on all images the model has loss {record["all"]["loss"]:.4f} and {100 * record["all"]["accuracy"]:.2f}%.
Seconds are of the selection from the stored matrix with its check; one run each.

{table(["size", "strategy", "loss", "accuracy", "time", ""], rows)}"""


def _exchange(record: dict[str, Any]) -> str:
    rows = []
    for one in record["rows"]:
        greedy, swapped = one["greedy"], one["exchange"]
        rows.append(
            [
                f"{one['size']} of {one['rows']}, {one['data']}",
                ", ".join(f"{key} {value}" for key, value in one["options"].items()),
                f"{greedy['seconds']:.2f} s",
                f"{swapped['seconds']:.2f} s",
                f"{one['ratio']:.1f}",
                str(one["exchanges"]),
                f"{100 * (1 - swapped['objective'] / greedy['objective']):.1f}%",
            ]
        )
    head = ["points", "", "greedy", "exchange", "times", "exchanges", "objective lower by"]
    return f"""## Exchanges beside greedy selection

{told(record)}

Whole calls of `bicore.select` on one thread in float64, the kernel matrix and the regulariser included; the processor's own seconds.

{table(head, rows)}"""


def _noise(record: dict[str, Any]) -> str:
    rows = [
        [
            one["data"],
            f"{one['inner_reg']:g}",
            one["rule"],
            _with_error(100 * np.array(one["flipped"]), 1),
            _with_error(100 * np.array(one["accuracy"]), 1),
        ]
        for one in record["rows"]
    ]
    return f"""## Flipped labels

{told(record)}

{100 * record["share"]:.0f}% of the labels of pools of {record["pool"]} points are replaced by another class, and {record["size"]}
points are chosen with the kernel of a fully connected network. Percent of the picks whose label is wrong, and accuracy of a ridge
regression on them with the same ρ, on clean test points: mean ± standard error over {len(record["rows"][0]["flipped"])} seeds.
*Trusted* leaves out what a model of the other folds would label otherwise.

{table(["data", "ρ", "rule", "wrong among the picks", "accuracy"], rows)}"""


def _automatic(record: dict[str, Any]) -> str:
    rows = []
    for one in record["rows"]:
        auto = np.array(one["auto"])
        best = np.array(one["grid"]).max(1)
        fixed = np.array(one["grid"]).mean(0)
        kind = record["grid"][int(fixed.argmax())]
        rows.append(
            [
                one["data"],
                _with_error(auto, 3),
                f"{fixed.max():.3f} ({kind:g})",
                _with_error(best, 3),
                _with_error(best - auto, 3),
                f"{np.median(one['values']):.1e}",
            ]
        )
    return f"""## The automatic regulariser against a grid

{told(record)}

{record["size"]} points chosen, and a model of the same kernel and regulariser scored on test points (accuracy; R² for diabetes):
with `inner_reg="auto"`, with the one value of the grid that is best on average over the seeds (in brackets, times the kernel's mean
diagonal), and with the best of the grid in hindsight, for every seed. Regret is hindsight less auto; mean ± standard error.

{table(["data", "auto", "best constant", "best in hindsight", "regret", "auto's value"], rows)}"""


def _active(record: dict[str, Any]) -> str:
    labels = record["labels"]
    shown = [labels.index(count) for count in (40, 60, 100, 140, 200)]
    methods = list(dict.fromkeys(one["method"] for one in record["rows"]))
    rows = []
    for method in methods:
        found = [one for one in record["rows"] if one["method"] == method]
        scores = 100 * np.array([one["accuracy"] for one in found])
        seconds = np.mean([one["query_seconds"] for one in found]) / (len(labels) - 1)
        cells = [_with_error(scores[:, place], 1) for place in shown]
        rows.append([method, *cells, _with_error(scores.mean(1), 1), f"{seconds:.1f} s"])
    seeds = len({one["seed"] for one in record["rows"]})
    return f"""## Batch active learning

{told(record)}

MNIST from {labels[0]} random labels, {labels[1] - labels[0]} at a time, out of pools of {record["pool"]} images; a CNN is
trained from scratch on what is labelled and scored on {record["test"]} test images. Percent, mean ± standard error over {seeds}
seeds; the last columns are the mean over all numbers of labels and the seconds of a query on one thread. Bilevel queries see the
CNN's guesses as labels.

{table(["method", *(f"{labels[place]} labels" for place in shown), "mean", "a query"], rows)}
![Accuracy against labels](images/beyond_active.png)
"""


def _network(record: dict[str, Any]) -> str:
    rows = []
    for one in record["rows"]:
        seconds = np.array(one["seconds_a_point"])
        rows.append(
            [
                one["method"],
                f"{np.mean(one['kernel_seconds']):.1f} s",
                f"{seconds.mean():.4f} s",
                _with_error(100 * np.array(one["accuracy"]), 1),
            ]
        )
    return f"""## The network itself beside its proxies

{told(record)}

{record["size"]} of {record["pool"]} MNIST images for a CNN of {record["parameters"]} parameters: chosen through the network's own
curvature, with a fit of 20 epochs after every point, and by kernels that stand for it. Seconds of the kernel matrix, once, and of
the selection for each point; accuracy of the CNN trained from scratch on the points, mean of {record["starts"]} starts, mean ±
standard error over {len(record["rows"][0]["accuracy"])} pools.

{table(["method", "kernel", "a point", "accuracy"], rows)}
![Accuracy against seconds a point](images/beyond_network.png)
"""


def _beyond(record: dict[str, Any]) -> str:
    models = list(record["joint"][0]["accuracy"])
    joint = []
    for one in record["joint"]:
        scores = {model: 100 * np.array(found) for model, found in one["accuracy"].items()}
        mean = np.mean(list(scores.values()), 0)
        joint.append(
            [
                one["chosen_for"],
                *(_with_error(scores[model], 1) for model in models),
                _with_error(mean, 1),
            ]
        )
    sizes = record["unlabelled"][0]["sizes"]

    def by_size(one: dict[str, Any], scale: float, digits: int) -> list[str]:
        return [
            _with_error(scale * np.array(one["scores"])[:, place], digits)
            for place in range(len(sizes))
        ]

    unlabelled = [[one["method"], *by_size(one, 100, 1)] for one in record["unlabelled"]]
    regression = [[one["data"], one["method"], *by_size(one, 1, 3)] for one in record["regression"]]
    seeds = len(record["unlabelled"][0]["scores"])
    return f"""## Several models, no labels, regression

{told(record)}

Points are chosen from {record["pool"]} digits (300 rows of diabetes), and a kernel ridge regression on them is tested on the
others; mean ± standard error over {seeds} splits.

{record["joint_size"]} points chosen for one model and used for another, or chosen for all at once; accuracy in percent:

{table(["chosen for", *models, "mean"], joint)}
Chosen without labels, which are then asked for; the last row knows them. Accuracy of the network's kernel in percent:

{table(["method", *(f"{size} points" for size in sizes)], unlabelled)}
Regression, R² of an RBF kernel:

{table(["data", "method", *(f"{size} points" for size in sizes)], regression)}
![Joint, unlabelled and regression](images/beyond_others.png)
"""


def _with_error(values: Any, digits: int) -> str:
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1) / len(values) ** 0.5:.{digits}f}"


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "strategies": _strategies,
    "exchange": _exchange,
    "noise": _noise,
    "automatic": _automatic,
    "active": _active,
    "network": _network,
    "beyond": _beyond,
}


def draw() -> None:
    """Every figure of docs/beyond.md, from records."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    painters = {
        "strategies": _draw_strategies,
        "noise": _draw_noise,
        "active": _draw_active,
        "network": _draw_network,
        "others": _draw_others,
    }
    _draw_curve(pyplot).savefig(IMAGES / "beyond_curve.png", dpi=130)
    for name, paint in painters.items():
        figure = paint(pyplot, read_record("beyond" if name == "others" else name))
        figure.savefig(IMAGES / f"beyond_{name}.png", dpi=130)
        pyplot.close(figure)


def _draw_strategies(pyplot: Any, record: dict[str, Any]) -> Any:
    """Loss and accuracy against seconds, a panel a size."""
    sizes = sorted({one["size"] for one in record["rows"]})
    figure, axes = pyplot.subplots(
        1, len(sizes), figsize=(3.2 * len(sizes), 3.2), layout="constrained"
    )
    for place, size in zip(axes, sizes, strict=True):
        for one in (one for one in record["rows"] if one["size"] == size):
            kind = one["strategy"].split("(")[0]
            place.plot(
                max(one["seconds"], 0.01), one["loss"], "o", color=COLOURS[kind], label=NAMES[kind]
            )
        place.set(title=f"{size} points", xlabel="seconds", xscale="log")
        place.grid(alpha=0.3)
    axes[0].set_ylabel("loss")
    found = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=len(found), fontsize=8
    )
    return figure


def _draw_curve(pyplot: Any) -> Any:
    """The held-out loss along one nested run on digits, with what size="auto" makes of it."""
    x, y = digits()
    curve = quality_curve(BilevelSelector(kernel="rbf", inner_reg=0.1), Dataset(x[:400], y[:400]))
    figure, place = pyplot.subplots(figsize=(6, 3.4), layout="constrained")
    place.plot(curve.sizes, curve.losses)
    place.axhline(curve.full, color="black", linewidth=0.8, label="all points")
    for number, tolerance in enumerate((0.5, 0.1, 0.02)):
        size = curve.smallest(tolerance)
        place.axvline(
            size,
            color=f"C{number + 1}",
            linestyle="--",
            label=f"tolerance {tolerance:g}: {size} points",
        )
    place.set(xlabel="points", ylabel="loss on held-out points", ylim=(0, curve.empty))
    place.grid(alpha=0.3)
    place.legend()
    return figure


def _draw_noise(pyplot: Any, record: dict[str, Any]) -> Any:
    """Wrong labels among the picks and accuracy, at the smallest regulariser."""
    rho = min(one["inner_reg"] for one in record["rows"])
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for number, data in enumerate(("digits", "MNIST")):
        found = [one for one in record["rows"] if (one["data"], one["inner_reg"]) == (data, rho)]
        places = np.arange(len(found)) + 0.4 * number
        for axis, key in zip(axes, ("flipped", "accuracy"), strict=True):
            means = [100 * np.mean(one[key]) for one in found]
            errors = [100 * np.std(one[key], ddof=1) / len(one[key]) ** 0.5 for one in found]
            axis.barh(places, means, 0.38, xerr=errors, label=data)
    axes[0].set_yticks(np.arange(len(found)) + 0.2, [one["rule"] for one in found])
    axes[0].axvline(100 * record["share"], color="black", linewidth=0.8, linestyle="--")
    axes[0].set(xlabel="wrong among the picks, % (dashed: in the data)")
    axes[1].set(xlabel="accuracy, %", xlim=(30, 100))
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _draw_active(pyplot: Any, record: dict[str, Any]) -> Any:
    figure, place = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for method in dict.fromkeys(one["method"] for one in record["rows"]):
        scores = 100 * np.array(
            [one["accuracy"] for one in record["rows"] if one["method"] == method]
        )
        means = scores.mean(0)
        errors = scores.std(0, ddof=1) / len(scores) ** 0.5
        place.errorbar(
            record["labels"], means, errors, marker="o", markersize=3, capsize=2, label=method
        )
    place.set(xlabel="labels", ylabel="test accuracy, %")
    place.grid(alpha=0.3)
    place.legend(fontsize=8)
    return figure


def _draw_network(pyplot: Any, record: dict[str, Any]) -> Any:
    figure, place = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for one in record["rows"]:
        scores = 100 * np.array(one["accuracy"])
        seconds = float(np.mean(one["seconds_a_point"]))
        place.errorbar(
            seconds,
            scores.mean(),
            scores.std(ddof=1) / len(scores) ** 0.5,
            fmt="o",
            capsize=3,
            label=one["method"],
        )
    place.set(xlabel="seconds a point", ylabel="accuracy of the CNN, %", xscale="log")
    place.grid(alpha=0.3)
    place.legend(fontsize=7)
    return figure


def _draw_others(pyplot: Any, record: dict[str, Any]) -> Any:
    figure, axes = pyplot.subplots(1, 4, figsize=(14, 3.4), layout="constrained")
    joint = {
        one["chosen_for"]: [100 * np.mean(found) for found in one["accuracy"].values()]
        for one in record["joint"]
    }
    shown = axes[0].imshow(list(joint.values()), cmap="viridis", aspect="auto")
    models = list(record["joint"][0]["accuracy"])
    axes[0].set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=8)
    axes[0].set_yticks(range(len(joint)), list(joint), fontsize=8)
    axes[0].set_title("chosen for (rows), used for (columns)", fontsize=9)
    figure.colorbar(shown, ax=axes[0], label="accuracy, %")
    panels = {"without labels": (record["unlabelled"], 100, "accuracy, %")}
    for data in dict.fromkeys(one["data"] for one in record["regression"]):
        panels[data] = ([one for one in record["regression"] if one["data"] == data], 1, "R²")
    for place, (title, (found, scale, words)) in zip(axes[1:], panels.items(), strict=True):
        for one in found:
            place.plot(
                one["sizes"],
                scale * np.mean(one["scores"], 0),
                marker="o",
                markersize=3,
                label=one["method"],
            )
        place.set_title(title, fontsize=9)
        place.set(xlabel="points", ylabel=words)
        place.grid(alpha=0.3)
        place.legend(fontsize=7)
    return figure
