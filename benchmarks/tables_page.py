"""docs/speed.md, docs/tables/benchmarks.md, and the figures of docs/strategies.md, docs/labels.md and
docs/noisy-labels.md."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.pages import (
    Row,
    figure,
    fill,
    label,
    percent,
    pivot,
    read_record,
    show,
    spread,
    table,
    unique,
    where,
)
from bicore import Dataset
from bicore.methods import quality_curve
from bicore.methods.registry import greedy_selector
from bicore.sources import digits

Rows = Sequence[Row]
#: The variant of the ablation that the others are compared with.
DEFAULT = "squared gradient, auto"
#: Names of our own methods in tables, if the record has others.
OUR_NAMES = {"from shards": "**`select_from_shards`**", "bicore": "**bicore**"}
#: Characters of an error message that a table has room for.
MOST_CHARACTERS = 60
#: Names of strategies by the classes that records name.
STRATEGIES = {
    "Uniform": "random sample",
    "Strategy": "greedy",  # in older records
    "Batches": "batches",
    "Exchange": "exchange",
    "Elimination": "elimination",
    "Simplex": "simplex",
    "Greedy": "greedy",
}
COLOURS = {kind: f"C{number}" for number, kind in enumerate(STRATEGIES)}
#: What a strategy does in addition to greedy steps; the first pattern that has its fields is shown.
DETAILS = ("?{relaxed_objective:.4f} before rounding", "?{eliminated} let go")
DETAILS += ("?{exchanges} exchanges, {exchange_gain:.4f} lower",)
#: Methods of the pooled regression.
CORESET = "coreset, optimised weights"
POOLED = ("uniform", "uniform, optimised weights", CORESET, "default picks, optimised weights")


def merge(first: Rows, second: Rows) -> list[Row]:
    """Rows of two tables side by side."""
    return [{**one, **other} for one, other in zip(first, second, strict=True)]


def ablation_table(rows: Rows, data: str, model: str) -> str:
    def cell(own: Rows) -> str:
        return show(percent(own, model), ".1f")

    names = {DEFAULT: f"**{DEFAULT}**"}
    return pivot(where(rows, data=data), "variant", "size", cell, "m = {}".format, names)


def ablation_differences(rows: Rows) -> list[Row]:
    """Differences from the default, as means of each seed over data sets and sizes."""

    def by_seed(variant: str, model: str) -> np.ndarray:
        own = where(rows, variant=variant)
        seeds = sorted(unique(own, "seed"))
        return np.array([percent(where(own, seed=seed), model).mean() for seed in seeds])

    found = []
    for variant in unique(rows, "variant"):
        if variant != DEFAULT:
            seconds = [one["select_seconds_200"] for one in where(rows, variant=variant)]
            models = ("network", "kernel")
            gaps = {one: by_seed(variant, one) - by_seed(DEFAULT, one) for one in models}
            found.append({"variant": variant, "seconds": seconds, **gaps})
    return found


def peer_table(rows: Rows) -> str:
    head = "{:g}%".format
    shares = [{**row, "share": 100 * row["share"]} for row in rows]
    return pivot(shares, "peer", "share", _peer_cell, head, OUR_NAMES, corner="")


def _peer_cell(rows: Rows) -> str:
    if not rows:
        return "–"
    row = rows[0]
    if "failed" not in row:
        # Beyond some thousand picks a ridge head alone is fitted.
        heads = [f"{100 * row[head]:.1f}" if head in row else "–" for head in ("logistic", "ridge")]
        return f"{' / '.join(heads)}; {row['cpu_seconds']:.1f} s, {row['peak_bytes'] / 1e6:.0f} MB"
    clean = row["failed"].replace("|", "/").replace("\n", " ")
    return clean if len(clean) <= MOST_CHARACTERS else f"{clean[:MOST_CHARACTERS]}…"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"


def strategy_name(row: Row) -> str:
    kind, options = row["strategy"].rstrip(")").split("(")
    return STRATEGIES[kind] + (f" ({options})" if options else "")


def strategy_detail(row: Row) -> str:
    return next(filter(None, (fill(row, pattern) for pattern in DETAILS)), "")


def pooled_scores(rows: Rows, method: str, pool: int, size: int) -> np.ndarray:
    return percent(where(rows, method=method, pool=pool, size=size))


def pool_cells(rows: Rows, pools: Sequence[int], sizes: Sequence[int]) -> list[list[str]]:
    """A line for every method and pool that has runs."""
    body = []
    for method in POOLED:
        for pool in pools:
            cells = [spread(pooled_scores(rows, method, pool, size), none="") for size in sizes]
            drawn = "" if method.startswith("uniform") and len(pools) > 1 else f", pool {pool}"
            body += [[method + drawn, *cells]] if any(cells) else []
    return body


def kept_counts(rows: Rows, pools: Sequence[int], size: int) -> str:
    """How many points of a size have a positive weight, for each method and pool."""
    parts = []
    for method in POOLED[1:]:
        for pool in pools:
            counts = sorted(unique(where(rows, method=method, pool=pool, size=size), "kept"))
            span = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else ""
            parts += [f"{span} ({method}, {pool})"] if counts else []
    return ", ".join(parts)


@figure("images/pooled_regression.png", dpi=140, figsize=(7, 4.2))
def draw_pooled(axes: Any) -> None:
    """Accuracy against size, a line for each method and pool."""
    rows = read_record("pooled_regression")["rows"]
    for colour, method in enumerate(POOLED):
        for pool in sorted(unique(rows, "pool")):
            sizes = sorted(unique(where(rows, method=method, pool=pool), "size"))
            means = [pooled_scores(rows, method, pool, size).mean() for size in sizes]
            sampled = method.startswith("uniform")
            style = "-" if sampled else {2000: ":", 5000: "--"}.get(pool, "-")
            look: dict[str, Any] = {"color": f"C{colour}", "marker": "o", "markersize": 3}
            if sizes:
                words = method.replace("picks", "selection")
                name = words if sampled else f"{words}, pool of {pool:,}"
                axes.plot(sizes, means, style, label=name, **look)
    label(axes, {"fontsize": 7}, xlabel="images", ylabel="test accuracy, %")


def _error(values: Any) -> Any:
    return np.std(values, axis=0, ddof=1) / len(values) ** 0.5


@figure("images/beyond_curve.png", figsize=(6, 3.4))
def draw_curve(place: Any) -> None:
    """The held-out loss along one nested run on digits, with what size="auto" makes of it."""
    x, y = digits()
    curve = quality_curve(greedy_selector(kernel="rbf", inner_reg=0.1), Dataset(x[:400], y[:400]))
    place.plot(curve.sizes, curve.losses)
    place.axhline(curve.full, color="black", linewidth=0.8, label="all rows")
    for number, tolerance in enumerate((0.5, 0.1, 0.02)):
        size = curve.smallest(tolerance)
        words = f"tolerance {tolerance:g}: {size} rows"
        place.axvline(size, color=f"C{number + 1}", linestyle="--", label=words)
    axes = {"xlabel": "rows", "ylabel": "loss on held-out rows", "ylim": (0, curve.empty)}
    label(place, {}, **axes)


@figure("images/beyond_strategies.png", 1, 4, figsize=(12.8, 3.2))
def draw_strategies(axes: Any) -> None:
    """Loss against seconds, a panel for each size."""
    rows = read_record("strategies")["rows"]
    for place, size in zip(axes, sorted(unique(rows, "size")), strict=True):
        for one in where(rows, size=size):
            kind = one["strategy"].split("(")[0]
            look = {"color": COLOURS[kind], "label": STRATEGIES[kind]}
            place.plot(max(one["seconds"], 0.01), one["loss"], "o", **look)
        label(place, title=f"{size:,} rows", xlabel="seconds", xscale="log")
        place.xaxis.set_minor_formatter("")
    axes[0].set_ylabel("loss")
    found = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    where_to = {"loc": "outside lower center", "ncols": len(found), "fontsize": 8}
    axes[0].figure.legend(found.values(), found.keys(), **where_to)


@figure("images/beyond_noise.png", 1, 2, figsize=(9, 3.6), sharey=True)
def draw_noise(axes: Any) -> None:
    """Wrong labels among the selected rows and accuracy, at the smallest regulariser."""
    record = read_record("noise")
    rho = min(unique(record["rows"], "inner_reg"))
    for number, data in enumerate(("digits", "MNIST")):
        found = where(record["rows"], data=data, inner_reg=rho)
        places = np.arange(len(found)) + 0.4 * number
        for axis, key in zip(axes, ("flipped", "accuracy"), strict=True):
            scores = percent(found, key)
            axis.barh(places, scores.mean(1), 0.38, xerr=_error(scores.T), label=data)
    names = [one["rule"].replace("trusted", "suspect labels excluded") for one in found]
    axes[0].set_yticks(np.arange(len(found)) + 0.2, names)
    axes[0].axvline(100 * record["share"], color="black", linewidth=0.8, linestyle="--")
    axes[0].set(xlabel="wrong labels of selected rows, %\n(dashed: of all rows)")
    axes[1].set(xlabel="accuracy, %", xlim=(30, 100))
    axes[0].invert_yaxis()
    entries = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(*entries, loc="outside upper right", ncols=2)


@figure("images/beyond_active.png", figsize=(6, 4))
def draw_active(place: Any) -> None:
    record = read_record("active")
    plot = partial(place.errorbar, record["labels"], marker="o", markersize=3, capsize=2)
    for method in unique(record["rows"], "method"):
        scores = percent(where(record["rows"], method=method))
        plot(scores.mean(0), _error(scores), label=method)
    label(place, {"fontsize": 8}, xlabel="labels", ylabel="test accuracy, %")


@figure("images/beyond_network.png", figsize=(6, 3.6))
def draw_network(place: Any) -> None:
    for one in read_record("network")["rows"]:
        scores = 100 * np.array(one["accuracy"])
        look = {"fmt": "o", "capsize": 3, "label": one["method"]}
        place.errorbar(np.mean(one["seconds_a_point"]), scores.mean(), _error(scores), **look)
    axes = {"xlabel": "seconds per row", "ylabel": "accuracy of the CNN, %", "xscale": "log"}
    label(place, {"fontsize": 7}, **axes)


@figure("images/beyond_others.png", 1, 3, figsize=(11, 3.4))
def draw_others(axes: Any) -> None:
    """Models that coresets are chosen and used for; regression."""
    record = read_record("beyond")
    joint = {
        one["chosen_for"]: [100 * np.mean(found) for found in one["accuracy"].values()]
        for one in record["joint"]
    }
    models = list(record["joint"][0]["accuracy"])
    shown = axes[0].imshow(list(joint.values()), cmap="viridis", aspect="auto")
    axes[0].set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=8)
    axes[0].set_yticks(range(len(joint)), list(joint), fontsize=8)
    axes[0].set_title("chosen for (rows), used for (columns)", fontsize=9)
    axes[0].figure.colorbar(shown, ax=axes[0], label="accuracy, %")
    tables = unique(record["regression"], "data")
    for place, data in zip(axes[1:], tables, strict=True):
        for one in where(record["regression"], data=data):
            look = {"marker": "o", "markersize": 3, "label": one["method"]}
            place.plot(one["sizes"], np.mean(one["scores"], 0), **look)
        place.set_title(data, fontsize=9)
        label(place, {"fontsize": 7}, xlabel="rows", ylabel="R²")


#: Rows of the record of a GPU, and their names in the table.
ON_A_GPU = {
    "CNN kernel, 1000 × 1000 MNIST, float32": "kernel of the paper's CNN, 1,000 × 1,000 MNIST images",
    "ResNet-18 kernel, 1000 × 1000 CIFAR-10, float32": "kernel of its ResNet-18, 1,000 × 1,000 CIFAR-10 images",
    "400 of 10 000 from a stored Gram matrix, squared error, float64": "selecting 400 of 10,000 rows from a stored matrix, squared error",
    "400 of 10 000 from a stored Gram matrix, cross-entropy, float64": "the same with the cross-entropy",
    "1000 of 50 000 × 2048 features, squared error, float64": "selecting 1,000 of 50,000 rows of 2,048 features",
}


#: Quantities of goals with their formats, and whether less of it is better.
QUANTITIES = {
    "seconds": ("{:.2f} s", True),
    "rows_a_second": ("{:,.0f} rows/s", False),
    "bare_passes": ("{:.1f} bare passes", True),
    "times_faster": ("{:.2f} times", False),
}


def goal_table() -> str:
    """Problems with a goal, on the shared machine and on the idle one, whose number then decides."""
    record = read_record("goals")
    idle = {row["name"]: row for row in record["idle"]["rows"]}
    workers = {**read_record("workers"), "name": "workers", "goal": 1.7, "bound": 2.0}
    workers["problem"] = "passes of two Dask workers compared with one, on three free cores"
    body = []
    for shared in [*record["rows"], workers]:
        row = idle.get(shared["name"], shared)
        name = next(name for name in QUANTITIES if name in row)
        pattern, less = QUANTITIES[name]
        other = "" if row is shared else pattern.format(row[name])
        cells = [pattern.format(shared[name]), other, pattern.format(row["goal"])]
        if shared is workers:
            cells[:2] = "", cells[0]
        if "goal_bytes" in row:
            for place, size in ((0, row["peak_bytes"]), (2, row["goal_bytes"])):
                cells[place] += f", {size / 1e6:.0f} MB"
        small = row.get("peak_bytes", 0) <= row.get("goal_bytes", np.inf)
        met = small and (row[name] <= row["goal"] if less else row[name] >= row["goal"])
        ratio = row[name] / row["bound"] if less else row["bound"] / row[name]
        cells += [pattern.format(row["bound"]), f"{ratio:.1f}", "yes" if met else "no"]
        words = "workers" if shared is workers else f"goals --methods {row['name']}"
        body.append([row["problem"], *cells, f"`{words}`"])
    head = ["problem", "shared machine", "idle machine", "goal", "bound", "ratio", "met", "command"]
    return table(head, body)


def elimination_share() -> float:
    """The share of an update of a moment memory that eliminates rows, on the idle machine."""
    parts = where(read_record("goals")["idle"]["rows"], name="moment_memory")[0]["ms"]
    return float(parts["elimination"] / sum(parts.values()))


def estimate_span() -> str:
    """The smallest and the largest factor between expected and measured seconds."""
    ways = [way for row in read_record("estimates")["rows"] for way in row["ways"].values()]
    ratios = [way["seconds"] / way["expected_seconds"] for way in ways]
    factors = [max(ratio, 1 / ratio) for ratio in ratios]
    return f"{min(factors):.1f} to {max(factors):.1f}"


def ratios(record: Row, engine: str, dtype: str) -> str:
    """Recipe seconds over engine seconds, for each size."""
    rows = where(record["ratios"], engine=engine, dtype=dtype)
    return " and ".join(f"{where(rows, size=s)[0]['recipe_over_engine']:.0f}" for s in (100, 400))


def excess_loss(record: Row, engine: str) -> float:
    """The largest share by which an engine's loss is above that of the recipe."""
    recipe = {one["size"]: one["loss"] for one in record["recipe"]}
    rows = where(record["engines"], engine=engine)
    return float(max(one["loss"] / recipe[one["size"]] - 1 for one in rows))
