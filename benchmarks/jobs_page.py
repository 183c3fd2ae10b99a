"""Tables and pictures of four tasks (texts, contexts, images and devices), and the page on
contexts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import bicore
from benchmarks.common import feed
from benchmarks.contexts import CONTEXTS, SIZES
from benchmarks.pages import (
    Row,
    figure,
    label,
    percent,
    pivot,
    read_record,
    show,
    table,
    unique,
    where,
)
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from bicore.sources import digits
from bicore.streaming import MergeReduce, MomentMemory, Reservoir
from experiments.statistics import Gap, paired_gap

#: Inches of a figure of the gallery.
SIZE = (6, 3.4)
#: The two scores of contexts, with the sign that makes a lead positive, and their format.
SCORES = {"accuracy": (100.0, ".1f"), "log_loss": (-1.0, ".3f")}


def text_table(question: str) -> str:
    """Accuracy of each method and number of rows, and of the worst seed, with the best strength."""

    def cell(rows: Sequence[Row]) -> str:
        if not rows:
            return ""
        scores = percent(rows)
        best = scores[:, scores.mean(0).argmax()]
        return f"{show(best, '.1f')}, {best.min():.1f}"

    rows = where(read_record("text")["rows"], question=question)
    rows.sort(key=lambda row: row["method"])
    return pivot(rows, "method", "size", cell, "{} rows".format)


def rounds_table() -> str:
    """Accuracy after each round."""
    rows = where(read_record("text")["rows"], question="rounds")
    body = []
    for method in unique(rows, "method"):
        scores = percent(where(rows, method=method))
        best = scores.mean(0).argmax(1)
        own = [scores[:, number, one] for number, one in enumerate(best)]
        body.append([method, *(show(one, ".1f") for one in own), f"{own[-1].min():.1f}"])
    counts = rows[0]["size"] * (1 + np.arange(len(rows[0]["accuracy"])))
    return table(["method", *map("{} rows".format, counts), "worst seed"], body)


def leads(
    field: str, size: int, contexts: int, ours: str = "selected", theirs: str = "stratified"
) -> dict[str, Gap]:
    """For each table the lead of a method within seeds; as ``mean`` that over all tables."""
    rows = where(read_record("contexts")["rows"], size=size, contexts=contexts)
    scores = [
        {row["table"]: np.array(row[field]) for row in where(rows, method=method)}
        for method in (ours, theirs)
    ]
    scale = SCORES[field][0]
    found = {name: paired_gap(scale * (own - scores[1][name])) for name, own in scores[0].items()}
    return {**found, "mean": paired_gap([one.value for one in found.values()])}


def lead_table(field: str) -> str:
    """Means over tables, the lead, and how many tables are significantly above and below."""
    rows = read_record("contexts")["rows"]
    scale, spec = SCORES[field]
    body = []
    for contexts in (1, CONTEXTS):
        for size in SIZES:
            found = leads(field, size, contexts)
            lead = found.pop("mean")
            worst = min(found, key=lambda name: found[name].value)
            own = where(rows, size=size, contexts=contexts)
            row = {"contexts": contexts, "size": size, "lead": lead, "worst": worst}
            for method in ("selected", "stratified"):
                scores = [row[field] for row in where(own, method=method)]
                row[method] = abs(scale) * np.mean(scores)
            row |= {"above": sum(one.above for one in found.values())}
            row |= {"below": sum(one.below for one in found.values())}
            body.append({**row, "least": found[worst].value})
    head = ["contexts", "rows", "selected", "stratified", "lead"]
    head += ["tables better", "worse", "worst table"]
    pattern = "{contexts} | {size} | {selected:S} | {stratified:S} | {lead:S}"
    pattern += " | {above} | {below} | {least:+zS} ({worst})"
    return table(head, body, pattern.replace("S", spec))


def context_accuracy(method: str, size: int, contexts: int = 1) -> float:
    """Mean accuracy over tables and seeds."""
    rows = read_record("contexts")["rows"]
    rows = where(rows, method=method, size=size, contexts=contexts)
    return float(np.mean([row["accuracy"] for row in rows]))


def worth_of(size: int) -> float:
    """Number of stratified rows that reach the accuracy of ``size`` selected ones, one context."""
    rows = where(read_record("contexts")["rows"], contexts=1, method="stratified")
    sizes = sorted(unique(rows, "size"))
    curve = [context_accuracy("stratified", one) for one in sizes]
    return float(np.exp(np.interp(context_accuracy("selected", size), curve, np.log(sizes))))


@figure("images/gallery_texts.png", figsize=SIZE)
def draw_texts(place: Any) -> None:
    """Accuracy after each round of labels."""
    rows = where(read_record("text")["rows"], question="rounds")
    for method in unique(rows, "method"):
        means = percent(where(rows, method=method)).mean(0).max(1)
        labels = rows[0]["size"] * (1 + np.arange(len(means)))
        name = {"by variance": "bicore query", "uniform": "random"}.get(method, method)
        place.plot(labels, means, "o-", label=name)
    label(place, {}, xlabel="labelled texts of BANKING77", ylabel="accuracy in percent")


@figure("images/gallery_contexts.png", figsize=SIZE)
def draw_contexts(place: Any) -> None:
    """Mean accuracy of TabPFN over tables, by the rows of one context."""
    rows = where(read_record("contexts")["rows"], contexts=1)
    for method in ("selected", "stratified"):
        own = [where(rows, method=method, size=size) for size in SIZES]
        means = [100 * np.mean([row["accuracy"] for row in one]) for one in own]
        place.plot(SIZES, means, "o-", label=method)
    label(place, {}, xlabel="rows in the context of TabPFN", ylabel="accuracy in percent")


@figure("images/gallery_images.png", 3, 10, figsize=SIZE)
def draw_images(places: Any) -> None:
    """Thirty selected digits, in order."""
    x, y = digits()
    for place, row in zip(places.ravel(), bicore.select(x, y, 30).indices, strict=True):
        place.imshow(x[row].reshape(8, 8), cmap="gray_r")
        place.axis("off")


@figure("images/gallery_device.png", figsize=SIZE)
def draw_device(place: Any) -> None:
    """Accuracy along a stream that is sorted by class, and the bytes of the state."""
    x, y = digits()
    order = np.argsort(y[:1400], kind="stable")
    memory = MomentMemory(capacity=30, feature_map="relu:256", holdout=False)
    seen, scores, sizes = [], [], []
    for batch in np.array_split(order, 28):
        memory.update(x[batch], y[batch])
        if len(np.unique(y[order[: int(memory.moments.weight)]])) > 1:
            state = memory.state_dict().values()
            seen.append(memory.moments.weight)
            scores.append(100 * memory.head().score(x[1400:], y[1400:]))
            sizes.append(sum(getattr(one, "nbytes", 0) for one in state) / 1e6)
    place.plot(seen, scores)
    place.set(xlabel="rows seen, sorted by class", ylabel="accuracy in percent", ylim=(0, 100))
    other = place.twinx()
    other.plot(seen, sizes, "C1--")
    other.set(ylabel="state in megabytes", ylim=(0, 0.5))
    place.grid(alpha=0.3)


@figure("images/stream.png", 3, 1, dpi=120, figsize=(13.8, 3.1))
def draw_stream(places: Any) -> None:
    """A stream of 20 digits of each class and 170 nines, and the 40 rows that two buffers keep:
    30 of each, evenly spaced."""
    x, y = digits()
    kinds = (np.flatnonzero(y == label)[: 170 if label == 9 else 20] for label in range(10))
    rows = np.concatenate(list(kinds))
    reduced = MergeReduce(40, greedy_selector(kernel=RBF(0.02), inner_reg=0.1), slots=1)
    shown = {"the stream": rows}
    for name, buffer in (("reservoir sampling", Reservoir(40)), ("merge-reduce, bilevel", reduced)):
        shown[name] = rows[feed(buffer, x[rows], y[rows], 40).snapshot().ids]
    for place, (name, own) in zip(places, shown.items(), strict=True):
        own = own[np.argsort(y[own], kind="stable")]
        spaced = own[np.linspace(0, len(own) - 1, 30).round().astype(int)]
        images = [np.pad(one, 1) for one in x[spaced].reshape(-1, 8, 8)]
        place.imshow(np.concatenate(images, axis=1), cmap="gray_r")
        place.axis("off")
        counts = (f"{label}: {count}" for label, count in enumerate(np.bincount(y[own])) if count)
        words = f"{name}, {len(own)} rows by digit: {', '.join(counts)}"
        place.set_title(words, fontsize=14, loc="left", pad=4)
