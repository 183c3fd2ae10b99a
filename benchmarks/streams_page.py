"""docs/streams-evidence.md with its figure, and docs/tables/streams.md."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.pages import (
    Row,
    figure,
    format_count,
    join_words,
    label,
    percent,
    read_record,
    spread,
    table,
    where,
)
from experiments.methods import FRESH, GSS_ROW
from experiments.statistics import Gap
from experiments.tables import Cell, less, read_book, welch

CAPACITIES = (20, 50, 100, 200, 500)
ORDERS = ("random", "pairs of classes", "class by class")
#: Names in tables, in their order.
BUFFERS = {
    "moments": "`MomentMemory`",
    "class-balanced reservoir": "`ClassBalancedReservoir`",
    "reservoir": "`Reservoir`",
    "merge-reduce": "`MergeReduce`",
}
RULES = ("moments, gain", "moments, gradient")
HEADS = {
    "ridge": "Ridge head",
    "plain": "Ridge head without an intercept",
    "logistic": "Logistic head",
}
#: Lines that differ without colour.
STYLES = {
    "moments": ("-", "o", "0.0"),
    "class-balanced reservoir": ("--", "s", "0.35"),
    "reservoir": (":", "^", "0.35"),
    "merge-reduce": ("-.", "x", "0.55"),
}
Rows = Sequence[Row]
Scores = Mapping[int, Mapping[str, float]]


def buffer_scores(
    rows: Rows, order: str, buffer: str, capacity: int, head: str = "ridge"
) -> np.ndarray:
    """In percent, one for each seed."""
    found = where(rows, part="stream", order=order, buffer=buffer, capacity=capacity)
    return percent([row for row in found if head in row], head)


def offline_scores(rows: Rows, capacity: int, which: str, head: str = "ridge") -> np.ndarray:
    """In percent: chosen with all rows at hand."""
    found = where(rows, part="offline", capacity=capacity)
    return percent([row[which] for row in found], head)


def overview(rows: Rows) -> list[list[str]]:
    """Each buffer in the first and the last order, and choices from all rows at once."""

    def both(buffer: str, capacity: int) -> str:
        found = [buffer_scores(rows, order, buffer, capacity) for order in (ORDERS[0], ORDERS[-1])]
        return " / ".join(f"{one.mean():.1f}" if len(one) else "–" for one in found)

    ways = {"select": "`bicore.select`", "moments": "one `update` with everything"}
    body = [[name, *(both(one, size) for size in CAPACITIES)] for one, name in BUFFERS.items()]
    for way, name in ways.items():
        scores = (spread(offline_scores(rows, size, way)) for size in CAPACITIES)
        body.append([f"*all rows at once: {name}*", *scores])
    return body


def _best_offline(rows: Rows, capacity: int) -> float:
    return max(float(offline_scores(rows, capacity, way)[0]) for way in ("select", "moments"))


def shares_of_best(rows: Rows, capacity: int) -> str:
    means = [buffer_scores(rows, order, "moments", capacity).mean() for order in ORDERS]
    return join_words([f"{100 * mean / _best_offline(rows, capacity):.0f}%" for mean in means])


def drift_score(rows: Rows, kind: str, memory: str, when: str, head: str = "ridge") -> float:
    found = where(rows, part="drift", kind=kind, memory=memory)
    return float(percent([row[when] for row in found], head).mean())


def batch_scores(rows: Rows, count: int) -> Scores:
    """Mean accuracy and share of common rows in percent, for each size of batches."""
    sizes = [row["sizes"] for row in where(rows, part="batches", count=count)]
    found = {
        same[0]["batch"]: {name: float(percent(same, name).mean()) for name in (*HEADS, "shared")}
        for same in zip(*sizes, strict=True)
    }
    return dict(sorted(found.items()))


def batch_words(count: int, found: Scores) -> str:
    accuracies = join_words([f"{one['ridge']:.1f}" for one in found.values()])
    sizes = join_words([format_count(size) for size in found])
    return f"{format_count(count)} rows in batches of {sizes}: {accuracies}"


def shared_span(found: Sequence[Scores], usual: int) -> str:
    """The least and the most rows that batches of other sizes share with the usual."""
    shared = [one["shared"] for scores in found for size, one in scores.items() if size != usual]
    return f"{min(shared):.0f} to {max(shared):.0f}%"


def buffer_table(rows: Rows, head: str) -> str:
    body = [
        [order, buffer, *(spread(buffer_scores(rows, order, buffer, c, head)) for c in CAPACITIES)]
        for order in ORDERS
        for buffer in (*BUFFERS, *RULES)
    ]
    for way in ("select", "moments"):
        found = [offline_scores(rows, capacity, way, head) for capacity in CAPACITIES]
        body.append(["*all rows at once*", way, *map(spread, found)])
    return table(["order", "buffer", *map(str, CAPACITIES)], body)


def moment_weight_rows(record: Row) -> list[Row]:
    """Objectives and gains of learned weights, for each data set and capacity."""
    found = []
    for data, capacity in dict.fromkeys((row["data"], row["capacity"]) for row in record["rows"]):
        rows = where(record["rows"], data=data, capacity=capacity)
        before, after = np.mean([row["objective"] for row in rows], axis=0)
        gains = {head: np.diff([row[head] for row in rows])[:, 0] for head in ("ridge", "logistic")}
        told = {"data": data, "capacity": capacity, "before": before, "after": after}
        found.append({**told, **gains})
    return found


def kept_scores(record: Row, order: str, buffer: str) -> np.ndarray:
    """Accuracies of what a buffer kept, with the weights of the stream."""
    weights = {"judged with": "stream's weights"}
    return percent(where(record["weights"], order=order, buffer=buffer, **weights))


def largest_change(rows: Rows) -> float:
    """The largest difference between accuracies with features in float32 and in float64."""
    return float(np.abs(percent(rows, "float32") - percent(rows, "float64")).max())


@figure("images/streams.png", 1, 2, figsize=(9, 3.6), sharey=True)
def draw_streams(axes: Any) -> None:
    """Accuracy along the stream that comes class by class."""
    record = read_record("streams")
    best = _best_offline(record["rows"], record["shown"])
    for place, order in zip(axes, ("class by class", "random"), strict=True):
        for buffer, (line, marker, grey) in STYLES.items():
            fields = {"order": order, "buffer": buffer, "capacity": record["shown"]}
            along = [row["along"] for row in where(record["rows"], part="stream", **fields)]
            means = 100 * np.mean([[one["ridge"] for one in row] for row in along], axis=0)
            look = {"marker": marker, "color": grey, "markersize": 4, "label": buffer}
            place.plot([one["seen"] for one in along[0]], means, line, **look)
        place.axhline(best, color="0.7", linewidth=1)
        place.text(4000, best + 0.8, "selected from all rows at once", fontsize=7, color="0.4")
        title = {"class by class": "sorted by class", "random": "random order"}[order]
        label(place, title=title, xlabel="rows seen")
        place.xaxis.set_major_formatter("{x:,.0f}")
    axes[0].set_ylabel("test accuracy, %")
    axes[1].legend(fontsize=8, loc="lower right")


#: Where networks learn along a stream of images.
STREAMS = ("cifar-streaming", "cifar-imbalanced")
#: Memories of networks, and the rows of the two streams that they are.
NETWORKS = {
    f"`MomentMemory{memory}": (f"Moments, {features}", f"Moments, equal prior, {features}")
    for memory, features in {
        '(feature_map="pooled")`': "pooled random features",
        '(feature_map="convolutions")`': "random convolutions",
        '(feature_map="relu")`': "random ReLU",
        "`, embedding of the network in training": "the network's embedding",
    }.items()
}
NETWORKS |= {
    "`MergeReduce`": ("Streaming coreset", "Coreset"),
    "`ClassBalancedReservoir`": ("", "CBRS"),
    "`Reservoir`": ("Reservoir sampling", "Reservoir"),
}
NETWORKS |= {
    f"*GroupNorm:* {memory}": tuple(f"{key}, GroupNorm" for key in NETWORKS[memory])
    for memory in ('`MomentMemory(feature_map="convolutions")`', "`MergeReduce`", "`Reservoir`")
}

#: On the imbalanced stream, our first row and the paper's.
IMBALANCED = ("Moments, equal prior, pooled random features", "Coreset")

#: Tasks of networks that are normalised: our row, those that it is compared with, and the ways.
NORMALISED = ("Joint moments, random convolutions", "Uniform sampling", "Coreset")
WAYS = ("BatchNorm", "GroupNorm")
#: Streams of MNIST with memories of three sizes: our row, the others, and the tables that hold them,
#: with one optimiser for the whole stream and with a fresh one a batch.
OTHERS = ("CBRS", GSS_ROW, "ExStream")
MNIST = (
    ("Moments, elimination", ("Reservoir sampling", "Streaming coreset", *OTHERS), "streaming"),
    ("Moments, elimination, equal prior", ("Reservoir", "Coreset", *OTHERS), "imbalanced"),
)
#: Rows of the tables of tasks, and their names on the page.
TASKS = {
    "Joint moments, elimination": "`JointReplay`",
    "Joint moments, gradient": '`JointReplay(strategy="gradient")`',
    "Coreset": "`ReplayMemory` with the paper's coreset",
    "Uniform sampling": "`ReplayMemory` with random samples",
}
Cells = dict[str, Cell]


def image_streams() -> list[Cells]:
    return [{cell.row.key: cell for cell in read_book().cells(name)} for name in STREAMS]


def image_cells(streams: Sequence[Cells]) -> list[list[str]]:
    def show(cell: Cell | None) -> str:
        if cell is None:
            return "–"
        return f"{cell:.1f}" + ("" if cell.seeds == 5 else f" ({cell.seeds})")

    return [
        [label, *(show(stream.get(key)) for stream, key in zip(streams, keys, strict=True))]
        for label, keys in NETWORKS.items()
    ]


def imbalanced_gain(streams: Sequence[Cells]) -> str:
    return less(*(streams[1][key] for key in IMBALANCED))


def task_table() -> str:
    found = {(cell.problem, cell.row.key): cell for cell in read_book().cells("continual")}
    problems = ("PermMNIST", "SplitMNIST")
    body = [
        [name, *(f"{found[problem, key]:.1f}" for problem in problems)]
        for key, name in TASKS.items()
    ]
    return table(["memory", *problems], body)


def normalised_table() -> str:
    found = {cell.row.key: cell for cell in read_book().cells("cifar-normalised")}
    body = []
    for way in WAYS:
        ours, uniform, coreset = (found[f"{key}, {way}"] for key in NORMALISED)
        gaps = (less(ours, other) for other in (uniform, coreset))
        body.append([way, f"{ours:.1f}", str(ours.seeds), *gaps])
    head = ["normalisation", "accuracy", "seeds", "minus random samples"]
    return table([*head, "minus the paper's coreset"], body)


def mnist_columns() -> list[tuple[Cell, list[Cell]]]:
    """Our row and the others, for every stream, size of memory and optimiser."""
    columns = []
    for ours, others, stream in MNIST:
        for kind, ending in (("", ""), ("-fresh", FRESH)):
            found = {
                (cell.problem, cell.memory, cell.row.key): cell
                for cell in read_book().cells(f"{stream}{kind}-sizes")
            }
            for place in dict.fromkeys(place[:2] for place in found):
                own = found[*place, ours + ending]
                columns.append((own, [found[*place, other + ending] for other in others]))
    return columns


def mnist_gaps(columns: Sequence[tuple[Cell, list[Cell]]]) -> list[Gap]:
    return [
        welch(ours.measurement, other.measurement) for ours, others in columns for other in others
    ]


def highest_means(columns: Sequence[tuple[Cell, list[Cell]]]) -> int:
    return sum(all(ours.mean > other.mean for other in others) for ours, others in columns)


def lowest(gaps: Sequence[Gap]) -> str:
    return f"{min(gaps, key=lambda gap: gap.value):.1f}"
