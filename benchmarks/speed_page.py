"""docs/speed.md from the records."""

import numpy as np

from benchmarks.pages import Row, read_record, table, where

SIZES = (100, 400)
#: Rows of the record of a GPU, and their names in the table.
ON_A_GPU = {
    "CNN kernel, 1000 × 1000 MNIST, float32": "kernel of the paper's CNN, 1000 × 1000 MNIST images",
    "ResNet-18 kernel, 1000 × 1000 CIFAR-10, float32": "kernel of its ResNet-18, 1000 × 1000 CIFAR-10 images",
    "400 of 10 000 from a stored Gram matrix, squared error, float64": "400 of 10 000 points from a stored matrix, squared error",
    "400 of 10 000 from a stored Gram matrix, cross-entropy, float64": "the same by cross-entropy",
    "1000 of 50 000 × 2048 features, squared error, float64": "1000 of 50 000 × 2048 features",
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
        if "unfinished" in row:
            cells[:2] = "", f"not done after {cells[1]}"
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


def estimate_span(least: int, most: int) -> str:
    """The smallest and the largest factor between expected and measured seconds."""
    rows = [row for row in read_record("estimates")["rows"] if least <= row["rows"] <= most]
    ways = [way for row in rows for way in row["ways"].values()]
    ratios = [way["seconds"] / way["expected_seconds"] for way in ways]
    factors = [max(ratio, 1 / ratio) for ratio in ratios]
    return f"{min(factors):.1f} to {max(factors):.1f}"


def ratios(record: Row, engine: str, dtype: str) -> str:
    """Recipe seconds over engine seconds, for each size."""
    rows = where(record["ratios"], engine=engine, dtype=dtype)
    return " and ".join(f"{where(rows, size=s)[0]['recipe_over_engine']:.0f}" for s in SIZES)


def excess_loss(record: Row, engine: str) -> float:
    """The largest share by which an engine's loss is above that of the recipe."""
    recipe = {one["size"]: one["loss"] for one in record["recipe"]}
    rows = where(record["engines"], engine=engine)
    return float(max(one["loss"] / recipe[one["size"]] - 1 for one in rows))
