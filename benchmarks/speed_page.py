"""docs/speed.md from the records."""

from benchmarks.pages import Row, read_record, render, where

SIZES = (100, 400)
#: Rows of the record of a GPU, and their names in the table.
ON_A_GPU = {
    "CNN kernel, 1000 × 1000 MNIST, float32": "kernel of the paper's CNN, 1000 × 1000 MNIST images",
    "ResNet-18 kernel, 1000 × 1000 CIFAR-10, float32": "kernel of its ResNet-18, 1000 × 1000 CIFAR-10 images",
    "400 of 10 000 from a stored Gram matrix, squared error, float64": "400 of 10 000 points from a stored matrix, squared error",
    "400 of 10 000 from a stored Gram matrix, cross-entropy, float64": "the same by cross-entropy",
    "1000 of 50 000 × 2048 features, squared error, float64": "1000 of 50 000 × 2048 features",
}


def text() -> str:
    helpers = (ratios, excess_loss, missed_goals, estimate_span)
    return render("speed.md", on_a_gpu=ON_A_GPU, **{one.__name__: one for one in helpers})


def missed_goals(record: Row) -> str:
    missed = [one for one in record["rows"] if one["goal"] and one["one_thread"] > one["goal"]]
    parts = [
        f"{one['problem']} ({one['one_thread']:.2f} s instead of {one['goal']:g} s)"
        for one in missed
    ]
    return f"Goals that are missed: {'; '.join(parts) or 'none'}."


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
