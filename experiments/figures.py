"""Figures, from records alone; the merge-reduce diagram from a live buffer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bicore import MergeReduce
from bicore.selectors import as_selector
from experiments.paper import PAPER
from experiments.records import Record
from experiments.tables import cells, titles
from experiments.tasks import load

Painter = Callable[[Any, list[Record], str | None], Any]


def draw(name: str, records: Iterable[Record], path: Path, folder: str | None = None) -> None:
    """Write the figure of an experiment to ``path``; ``folder`` has the images for those that show
    some."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = FIGURES[name](pyplot, list(records), folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    pyplot.close(figure)


def _streaming(pyplot: Any, records: list[Record], folder: str | None) -> Any:
    """Figure 4: the final accuracy on each task, β chosen on held-out points."""
    found = cells("streaming", records)
    problems = list(dict.fromkeys(cell.problem for cell in found))
    figure, axes = pyplot.subplots(
        1, len(problems), figsize=(5 * len(problems), 4), layout="constrained", squeeze=False
    )
    for place, problem in zip(axes[0], problems, strict=True):
        for cell in (cell for cell in found if cell.problem == problem):
            wanted = (problem, cell.row.key, cell.chosen)
            runs = [
                one["test"]
                for one in records
                if (one["dataset"], one["method"], one["beta"]) == wanted
            ]
            means = 100 * np.mean(runs, 0)
            spread = 100 * np.std(runs, 0)
            places = np.arange(1, len(means) + 1)
            place.plot(places, means, marker="o", markersize=3, label=cell.title)
            place.fill_between(places, means - spread, means + spread, alpha=0.15)
        place.set(title=problem, xlabel="task", ylabel="test accuracy, %", xticks=places)
        place.grid(alpha=0.3)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    return figure


def _mnist_summary(pyplot: Any, records: list[Record], folder: str | None) -> Any:
    """Figure 3a, with the two points that BatchBALD's authors publish."""
    figure, place = _summary(pyplot, records, titles("summary"))
    if records:
        published = PAPER["claims"]["figure 3a, BatchBALD (typed in from its paper)"]
        sizes = [int(words.split()[0]) for words in published]
        place.plot(sizes, list(published.values()), "k^", label="BatchBALD, as published")
    place.legend(fontsize=8)
    return figure


def _cifar_summary(pyplot: Any, records: list[Record], folder: str | None) -> Any:
    """Figure 3c."""
    figure, place = _summary(pyplot, records, titles("cifar-summary"))
    place.legend(fontsize=8)
    return figure


def _summary(pyplot: Any, records: list[Record], shown: Mapping[str, str]) -> tuple[Any, Any]:
    """Accuracy against size."""
    scores: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in records:
        scores[shown[one["method"]]][one["memory"]].append(100 * one["test"][0])
    figure, place = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for title, by_size in scores.items():
        sizes = sorted(by_size)
        means, spread = (
            np.array([measure(by_size[size]) for size in sizes]) for measure in (np.mean, np.std)
        )
        seeds = min(len(found) for found in by_size.values())
        place.plot(
            sizes,
            means,
            marker="o",
            markersize=3,
            label=f"{title} ({seeds} seed{'s' * (seeds > 1)})",
        )
        place.fill_between(sizes, means - spread, means + spread, alpha=0.15)
    place.set(xlabel="points", ylabel="test accuracy, %")
    place.grid(alpha=0.3)
    return figure, place


def _picks(pyplot: Any, records: list[Record], folder: str | None) -> Any:
    """Figure 5: the picks of the first seed in order, ten a row, each method below the other."""
    images = load(folder)[0].x
    shown = titles("picks")
    first = [one for one in records if one["seed"] == 0]
    across = 10
    deep = [-(-len(one["picks"]) // 10) for one in first]
    figure, axes = pyplot.subplots(
        sum(deep), across, figsize=(6, 0.72 * sum(deep)), squeeze=False, layout="constrained"
    )
    for place in axes.flat:
        place.axis("off")
    for top, one in zip(np.cumsum([0, *deep]), first, strict=False):
        for number, row in enumerate(one["picks"]):
            axes[top + number // across][number % across].imshow(images[row, 0], cmap="gray_r")
        axes[top][0].set_title(shown[one["method"]], loc="left", fontsize=8)
    return figure


def _merge_reduce(pyplot: Any, records: list[Record], folder: str | None) -> Any:
    """Figure 2: the slots of a buffer of three after each of seven batches, as a buffer really
    holds them."""
    buffer = MergeReduce(as_selector("uniform"), capacity=6, slots=3)
    rng = np.random.default_rng(0)
    figure, place = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for step in range(1, 8):
        buffer.update(rng.normal(size=(4, 2)))
        end = 0
        for slot in buffer.slots:
            first = end + 1
            last = end + slot.level
            name = "".join(str(number) for number in range(first, last + 1))
            place.barh(
                -step, slot.level - 0.1, left=end, height=0.7, color=f"C{int(np.log2(slot.level))}"
            )
            place.text(
                end + slot.level / 2 - 0.05,
                -step,
                f"$C_{{{name}}}$: {slot.level}β",
                ha="center",
                va="center",
                fontsize=9,
            )
            end = last
    place.set(
        xlabel="batches a slot stands for",
        yticks=range(-7, 0),
        yticklabels=[f"after {-step}" for step in range(-7, 0)],
    )
    return figure


FIGURES: dict[str, Painter] = {
    "streaming": _streaming,
    "summary": _mnist_summary,
    "cifar-summary": _cifar_summary,
    "picks": _picks,
    "merge-reduce": _merge_reduce,
}
