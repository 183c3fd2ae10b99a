"""Figures from records; the merge-reduce diagram from a running buffer."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import drawing, percent
from bicore import MergeReduce
from bicore.methods import as_selector
from experiments.layout import CONTINUAL, ON_MNIST, list_published
from experiments.methods import FRESH
from experiments.paper import PAPER
from experiments.tables import Book, Cell, Place
from experiments.tasks import load

Painter = Callable[[Path, Book, str | None], None]


def draw(name: str, book: Book, path: Path, folder: str | None = None) -> None:
    """Write a figure to ``path``; ``folder`` has the images for those that show some."""
    FIGURES[name](path, book, folder)


@dataclass(frozen=True)
class Style:
    """A colour, a line and a marker: any two differ in grey as well."""

    color: str
    linestyle: Any
    marker: str

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "markersize": 5, "markerfacecolor": "white"}


STYLES = (
    Style("C0", "-", "o"),
    Style("C1", "--", "s"),
    Style("C2", "-.", "^"),
    Style("C3", ":", "D"),
    Style("C4", (0, (5, 1)), "v"),
)


def _tasks(path: Path, book: Book, folder: str | None) -> None:
    """Figure 4: the final accuracy on each task, β chosen on held-out points; of continual learning
    and of the stream, with coresets and without."""
    shape = {"figsize": (9.5, 4), "squeeze": False, "dpi": DPI}
    with drawing(path, 1, len(ON_MNIST), **shape) as (figure, axes):
        for axis, problem in zip(axes[0], ON_MNIST, strict=True):
            for style, (words, place) in zip(STYLES, four_lines(problem).items(), strict=False):
                runs = percent(book.runs(place), "test")
                tasks = np.arange(1, runs.shape[1] + 1)
                _band(axis, tasks, runs.mean(0), runs.std(0), style, words)
            axis.set(title=problem, xlabel="task", ylabel="test accuracy, %", xticks=tasks)
            axis.grid(alpha=0.3)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _band(axis: Any, at: Any, means: Any, spread: Any, style: Style, label: str) -> None:
    """A line, and one deviation around it."""
    axis.plot(at, means, label=label, **style.facts())
    axis.fill_between(at, means - spread, means + spread, color=style.color, alpha=0.12)


def four_lines(problem: str) -> dict[str, Place]:
    """Those of the paper's figure 4."""
    return {
        "tasks: coreset": Place(CONTINUAL[problem], problem, "Coreset"),
        "tasks: uniform": Place(CONTINUAL[problem], problem, "Uniform sampling"),
        "stream: coreset": Place("streaming-fresh", problem, f"Streaming coreset{FRESH}"),
        "stream: reservoir": Place("streaming-fresh", problem, f"Reservoir sampling{FRESH}"),
    }


DPI = 140
#: How a difference is drawn: the interval holds zero, or lies above or below it.
HOLDING, HIGHER, LOWER = ("o", "white"), ("^", "0.45"), ("v", "black")


def _differences(path: Path, book: Book, folder: str | None) -> None:
    """Ours minus the paper with Welch's interval, every published number."""
    every = [(title, label, book.cell(place)) for title, label, place in list_published()]
    found = [one for one in every if one[2].difference is not None]
    names = list(dict.fromkeys((title, label) for title, label, _ in found))
    rows = {name: number for number, name in enumerate(names)}
    problems = list(dict.fromkeys(cell.problem for _, _, cell in found))
    shape = {"figsize": (10, 10), "sharey": True, "dpi": DPI}
    with drawing(path, 1, len(problems), **shape) as (_, axes):
        for axis, problem in zip(axes, problems, strict=True):
            for title, label, cell in found:
                if cell.problem == problem:
                    _difference(axis, rows[title, label], cell)
            axis.axvline(0, color="black", linewidth=0.8)
            axis.set(title=problem, xlabel="ours − paper, points")
            axis.grid(alpha=0.25, axis="x")
            for place in _first_rows(names)[1:]:
                axis.axhline(place - 0.5, color="0.6", linewidth=0.8)
        axes[0].set_yticks(range(len(names)), [label for _, label in names], fontsize=8)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        style = {"transform": axes[-1].get_yaxis_transform(), "fontsize": 8, "va": "center"}
        for place in _first_rows(names):
            title = names[place][0].split(":")[0].replace(", ", "\n")
            axes[-1].text(1.02, place, title, **style)


def _first_rows(names: list[tuple[str, str]]) -> list[int]:
    titles = [title for title, _ in names]
    return [titles.index(title) for title in dict.fromkeys(titles)]


def _difference(axis: Any, row: int, cell: Cell) -> None:
    gap = cell.difference
    marker, face = HIGHER if gap.above else LOWER if gap.below else HOLDING
    look = {"fmt": marker, "color": "black", "markerfacecolor": face, "markersize": 5}
    axis.errorbar(gap.value, row, xerr=gap.half(), linewidth=1, capsize=2, **look)


def _mnist_summary(path: Path, book: Book, folder: str | None) -> None:
    """Figure 3a, with the two points that BatchBALD's authors publish."""
    typed = PAPER["claims"]["figure 3a, BatchBALD (typed in from its paper)"]
    _summary(path, book, "summary", {int(words.split()[0]): typed[words] for words in typed})


def _cifar_summary(path: Path, book: Book, folder: str | None) -> None:
    """Figure 3c."""
    _summary(path, book, "cifar-summary", {})


def _summary(path: Path, book: Book, name: str, published: dict[int, float]) -> None:
    """Accuracy against size."""
    records = book.records(name)
    scores: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in records:
        scores[one["method"]][one["memory"]].append(100 * one["test"][0])
    with drawing(path, figsize=(6, 4), dpi=DPI) as (_, place):
        for style, (title, by_size) in zip(STYLES, scores.items(), strict=False):
            sizes = sorted(by_size)
            means, spread = (
                np.array([measure(by_size[size]) for size in sizes])
                for measure in (np.mean, np.std)
            )
            seeds = min(len(found) for found in by_size.values())
            label = f"{title} ({seeds} seed{'s' * (seeds > 1)})"
            _band(place, sizes, means, spread, style, label)
        place.set(xlabel="images", ylabel="test accuracy, %")
        place.grid(alpha=0.3)
        if records and published:
            place.plot(
                list(published), list(published.values()), "k*", label="BatchBALD, as published"
            )
        place.legend(fontsize=8)


def _picks(path: Path, book: Book, folder: str | None) -> None:
    """Figure 5: the picks of the first seed in order, ten a row, each method below the other."""
    images = load(folder)[0].x
    first = [one for one in book.records("picks") if one["seed"] == 0]
    across = 10
    deep = [-(-len(one["picks"]) // 10) for one in first]
    shape = {"figsize": (6, 0.72 * sum(deep)), "squeeze": False, "dpi": DPI}
    with drawing(path, sum(deep), across, **shape) as (_, axes):
        for place in axes.flat:
            place.axis("off")
        for top, one in zip(np.cumsum([0, *deep]), first, strict=False):
            for number, row in enumerate(one["picks"]):
                axes[top + number // across][number % across].imshow(images[row, 0], cmap="gray_r")
            axes[top][0].set_title(one["method"], loc="left", fontsize=8)


def _merge_reduce(path: Path, book: Book, folder: str | None) -> None:
    """Figure 2: the slots of a buffer of three after each of seven batches, as a buffer really
    holds them."""
    buffer = MergeReduce(6, selector=as_selector("uniform"), slots=3)
    rng = np.random.default_rng(0)
    middle = {"ha": "center", "va": "center", "fontsize": 9}
    with drawing(path, figsize=(6, 3.6), dpi=DPI) as (_, place):
        for step in range(1, 8):
            buffer.update(rng.normal(size=(4, 2)))
            end = 0
            for slot in buffer.slots_:
                level = slot.level
                name = "".join(str(number) for number in range(end + 1, end + level + 1))
                colour = f"C{int(np.log2(level))}"
                place.barh(-step, level - 0.1, left=end, height=0.7, color=colour)
                words = f"$C_{{{name}}}$: {level}β"
                place.text(end + level / 2 - 0.05, -step, words, **middle)
                end += level
        steps = range(-7, 0)
        labels = [f"after {-step}" for step in steps]
        place.set(xlabel="batches that a slot represents", yticks=steps, yticklabels=labels)


FIGURES: dict[str, Painter] = {
    "differences": _differences,
    "tasks": _tasks,
    "summary": _mnist_summary,
    "cifar-summary": _cifar_summary,
    "picks": _picks,
    "merge-reduce": _merge_reduce,
}
