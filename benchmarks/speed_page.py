"""docs/speed.md from the records: how fast, in a few lines that lead to the tables."""

from __future__ import annotations

from typing import Any

from benchmarks.battery_page import DOCS
from benchmarks.common import read_record, spaced, table

PAGE = DOCS / "speed.md"
#: Of the record of a card: what is told, and in which words.
ON_A_CARD = {
    "CNN kernel, 1000 × 1000 MNIST, float32": "kernel of the paper's CNN, 1000 × 1000 MNIST images",
    "ResNet-18 kernel, 1000 × 1000 CIFAR-10, float32": "kernel of its ResNet-18, 1000 × 1000 CIFAR-10 images",
    "400 of 10 000 from a stored Gram matrix, squared error, float64": "400 of 10 000 points from a stored matrix, squared error",
    "400 of 10 000 from a stored Gram matrix, cross-entropy, float64": "the same by cross-entropy",
    "1000 of 50 000 × 2048 features, squared error, float64": "1000 of 50 000 × 2048 features",
}
SIZES = (100, 400)


def text() -> str:
    selection, kernels, gpu = (read_record(name) for name in ("selection", "kernels", "gpu"))
    cnn = next(row for row in kernels["rows"] if row["kernel"] == "cnn")
    single, double = (_ratios(selection, "cross-entropy", kind) for kind in ("float32", "float64"))
    squared = _ratios(selection, "squared, gradient rule", "float32")
    return WORDS.format(
        single=single,
        double=double,
        squared=squared,
        bound=_above(selection),
        ours=f"{cnn['seconds']:.0f}",
        theirs=f"{cnn['neural_tangents_seconds']:.0f}",
        calls=_calls(read_record("worth")),
        card=gpu["machine"]["gpu"],
        work=_work(gpu),
    )


def _ratios(record: dict[str, Any], engine: str, dtype: str) -> str:
    """How many times faster than the recipe, for each size."""
    found = {
        one["size"]: one["recipe_over_engine"]
        for one in record["ratios"]
        if (one["engine"], one["dtype"]) == (engine, dtype)
    }
    return " and ".join(f"{found[size]:.0f}" for size in SIZES)


def _above(record: dict[str, Any]) -> str:
    """By how much the squared error's picks have a larger loss than the recipe's, at most."""
    recipe = {one["size"]: one["loss"] for one in record["recipe"]}
    squared = [one for one in record["engines"] if one["engine"] == "squared, gradient rule"]
    return f"{max(one['loss'] / recipe[one['size']] - 1 for one in squared):.1%}"


def _calls(record: dict[str, Any]) -> str:
    rows = [
        [f"{spaced(one['rows'])} × {one['width']}", str(one["size"]), f"{one['seconds']:.1f} s"]
        for one in record["seconds"]
    ]
    return table(["rows × features", "points", "the processor's seconds"], rows)


def _work(record: dict[str, Any]) -> str:
    seconds = {one["what"]: one["seconds"] for one in record["rows"]}
    rows = [[words, f"{seconds[what]:.2g} s"] for what, words in ON_A_CARD.items()]
    return table(["work", "seconds"], rows)


WORDS = """# How fast

A whole call of `bicore.select(x, y, size)` with nothing said, on one thread (`python -m benchmarks worth --data DIR`); the first line is
MNIST, the others are an embedding:

{calls}
[What to expect](choosing.md#what-it-takes) for other numbers of rows, features and kernels; `bicore.estimate` says it for your data.

**Against the paper's recipe**, built from bicore's own parts, choosing 100 and 400 of 1000 MNIST images on one thread
(`python -m benchmarks selection --data DIR`): the same cross-entropy problem, solved to a lower loss, is {single} times faster in the
recipe's float32 ({double} times in float64). The squared-error engine is {squared} times faster, with a loss at most {bound} above the
recipe's; its regulariser was tuned on that problem, and [the page](benchmarks.md#the-squared-error-engines-ρ-in-the-table-above-what-was-tried)
shows what was tried.

**Kernels on a CPU**: that of the paper's CNN takes {ours} s for 1000 × 1000 images on two cores where neural-tangents takes {theirs} s
(`python -m benchmarks kernels --data DIR`).

**On a GPU** ({card}, `python -m benchmarks gpu --data DIR`):

{work}
Everything else is in [benchmarks](benchmarks.md): threads beside a busy core, memory, streams, [files in parts](shards.md#what-it-takes),
training with rehearsal, each figure beside its floor where there is one. [On a GPU](guide.md#on-a-gpu) says what runs there.
"""
