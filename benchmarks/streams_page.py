"""What docs/streams.md says in numbers, its figure, and the full tables of docs/benchmarks.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import stream_networks_page
from benchmarks.common import read_record, spaced, table, told

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "streams.md"
FIGURE = DOCS / "images" / "streams.png"
#: Between these lines the page is made from the record; the rest is written by hand.
BEGIN, END = "<!-- from the record: begin -->", "<!-- from the record: end -->"
CAPACITIES = (20, 50, 100, 200, 500)
ORDERS = ("random", "pairs of classes", "class by class")
#: Names in tables, in their order.
BUFFERS = {
    "moments": "`MomentMemory`",
    "class-balanced reservoir": "`ClassBalancedReservoir`",
    "reservoir": "`Reservoir`",
    "merge-reduce": "`MergeReduce`",
}
RULES = {"moments, gain": 'rule="gain"', "moments, gradient": 'rule="gradient"'}
HEADS = {
    "ridge": "Ridge head",
    "plain": "Ridge head without an intercept",
    "logistic": "Logistic head",
}
#: Lines that are told apart without colour.
STYLES = {
    "moments": ("-", "o", "0.0"),
    "class-balanced reservoir": ("--", "s", "0.35"),
    "reservoir": (":", "^", "0.35"),
    "merge-reduce": ("-.", "x", "0.55"),
}

Record = dict[str, Any]


def text() -> str:
    """The page with what the record says now."""
    fresh = f"{BEGIN}\n{_numbers(read_record('streams'))}\n{END}"
    page, found = re.subn(
        f"{re.escape(BEGIN)}.*{re.escape(END)}",
        lambda _: fresh,
        PAGE.read_text(),
        flags=re.DOTALL,
    )
    assert found == 1, f"{PAGE} has no place for the record's numbers"
    return page


def _of(record: Record, order: str, buffer: str, capacity: int, head: str = "ridge") -> np.ndarray:
    """In percent, a number a seed."""
    wanted = ("stream", order, buffer, capacity)
    names = ("part", "order", "buffer", "capacity")
    found = (row for row in record["rows"] if tuple(row.get(name) for name in names) == wanted)
    rows = [row for row in found if head in row]
    return 100 * np.array([row[head] for row in sorted(rows, key=lambda row: row["seed"])])


def _ceiling(record: Record, capacity: int, which: str, head: str = "ridge") -> np.ndarray:
    """In percent: chosen with all rows at hand."""
    rows = [row for row in record["rows"] if row["part"] == "offline"]
    return 100 * np.array([row[which][head] for row in rows if row["capacity"] == capacity])


def _numbers(record: Record) -> str:
    shown = record["shown"]
    lines = [
        [name, *(_orders_cell(record, buffer, capacity) for capacity in CAPACITIES)]
        for buffer, name in BUFFERS.items()
    ]
    for which, name in (("select", "`bicore.select`"), ("moments", "one `update` with everything")):
        cells = [_spread(_ceiling(record, capacity, which)) for capacity in CAPACITIES]
        lines.append([f"*all rows at once: {name}*", *cells])
    most = max(_ceiling(record, shown, which)[0] for which in ("select", "moments"))
    shares = [100 * _of(record, order, "moments", shown).mean() / most for order in ORDERS]
    seeds = len(_of(record, "random", "moments", shown))
    return f"""
{table(["rows kept", *map(str, CAPACITIES)], lines)}
Test accuracy in percent of a ridge head trained on the rows kept of {spaced(50_000)} (CIFAR-10 through a frozen network) that came in
random order / class by class; mean of {seeds} orders ({_fewer(record)}). With {shown} rows `MomentMemory` has
{_and([f"{share:.0f}%" for share in shares])} of the accuracy of the better way to choose from all rows at once (random order, sorted
by pairs of classes, class by class). The [full tables](benchmarks.md#streams-of-embeddings) have standard errors, other heads and other
rules.

{_drift_words(record)}

{_batch_words(record)}

{stream_networks_page.words()}
"""


def _fewer(record: Record) -> str:
    """Which cells of the table have fewer seeds than that of the memory that is shown."""
    usual = len(_of(record, "random", "moments", record["shown"]))
    words = []
    for capacity in CAPACITIES:
        own = len(_of(record, "random", "moments", capacity))
        if own < usual:
            words.append(f"{own} for {capacity} rows")
    merged = len(_of(record, "random", "merge-reduce", record["shown"]))
    return ", ".join([*words, f"{merged} for `MergeReduce`"])


def _orders_cell(record: Record, buffer: str, capacity: int) -> str:
    found = [_of(record, order, buffer, capacity) for order in (ORDERS[0], ORDERS[-1])]
    return " / ".join(f"{one.mean():.1f}" if len(one) else "–" for one in found)


def _and(words: list[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1]


# Drift and batches.


def _drifted(record: Record, kind: str, memory: str, when: str, head: str = "ridge") -> float:
    return float(
        100
        * np.mean(
            [
                row[when][head]
                for row in record["rows"]
                if row["part"] == "drift" and (row["kind"], row["memory"]) == (kind, memory)
            ]
        )
    )


def _drift_words(record: Record) -> str:
    def later(kind: str, memory: str) -> str:
        return f"{_drifted(record, kind, memory, 'later'):.1f}"

    first = next(row for row in record["rows"] if row["part"] == "drift")
    return f"""**Drift.** Where labels change their meaning half-way ({spaced(first["rows"])} rows in one order, {first["capacity"]} kept), a memory
without a half-life ends at {later("meaning", "none")} on what the stream has become, one with a half-life of a twentieth of the stream
at {later("meaning", "n/20")} (a fifth: {later("meaning", "n/5")}; reservoir: {later("meaning", "reservoir")}); where only the classes'
shares change, no half-life has {later("frequency", "none")} and a twentieth {later("frequency", "n/20")}."""


def _batch_rows(record: Record, count: int) -> dict[int, dict[str, float]]:
    """By the batches' size: mean accuracy and share of rows in common, in percent."""
    rows = [row for row in record["rows"] if row["part"] == "batches" and row["count"] == count]
    found: dict[int, dict[str, float]] = {}
    for place, one in enumerate(rows[0]["sizes"]):
        found[one["batch"]] = {
            name: 100 * float(np.mean([row["sizes"][place][name] for row in rows]))
            for name in (*HEADS, "shared")
        }
    return dict(sorted(found.items()))


def _batch_words(record: Record) -> str:
    parts = []
    for count in (record["first"], 50_000):
        found = _batch_rows(record, count)
        accuracies = _and([f"{one['ridge']:.1f}" for one in found.values()])
        batches = _and([str(batch) for batch in found])
        parts.append(f"{spaced(count)} rows in batches of {batches}: {accuracies}")
    shared = [
        one["shared"]
        for count in (record["first"], 50_000)
        for batch, one in _batch_rows(record, count).items()
        if batch != record["batch"]
    ]
    least, most = min(shared), max(shared)
    span = f"{least:.0f}%" if round(least) == round(most) else f"{least:.0f} to {most:.0f}%"
    return f"""**Batches.** What is kept depends on how the stream is cut, what it is worth hardly (one order, {record["shown"]} kept). {". ".join(parts)}. {span} of the
rows kept are the same as in batches of {record["batch"]}."""


# The full tables.


def section(record: Record) -> str:
    """For docs/benchmarks.md."""
    parts = [
        f"""## Streams of embeddings

{told(record)}

All 50 000 rows of CIFAR-10 through a frozen network, in batches of {record["batch"]}; linear heads trained on the rows kept, which
count the same, their settings chosen by 300 rows of the stream; accuracy in percent on the 10 000 test rows, mean ± standard error
over orders of the stream (no ± where there is one). The ridge head has an intercept, the shares of the classes among the rows kept,
and so has the logistic one; the objective of a moment memory has none. `MomentMemory` and `MergeReduce(BilevelSelector())` have all their defaults.
*All rows at once* chooses with everything at hand: `bicore.select`, and a moment memory given all rows in one update.
"""
    ]
    for head, name in HEADS.items():
        parts.append(f"### {name}\n")
        parts.append(table(["order", "buffer", *map(str, CAPACITIES)], _lines(record, head)))
    parts += [_drift_table(record), _batch_table(record)]
    return "\n".join(parts)


def _lines(record: Record, head: str) -> list[list[str]]:
    lines = []
    for order in ORDERS:
        for buffer in (*BUFFERS, *RULES):
            found = [_of(record, order, buffer, capacity, head) for capacity in CAPACITIES]
            lines.append([order, buffer, *map(_spread, found)])
    for which in ("select", "moments"):
        cells = [_spread(_ceiling(record, capacity, which, head)) for capacity in CAPACITIES]
        lines.append(["*all rows at once*", which, *cells])
    return lines


def _spread(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if len(values) else "–"
    return f"{values.mean():.1f} ± {values.std(ddof=1) / len(values) ** 0.5:.1f}"


def _drift_table(record: Record) -> str:
    rows = [row for row in record["rows"] if row["part"] == "drift"]
    memories = list(dict.fromkeys(row["memory"] for row in rows))
    cells = [(kind, when) for kind in ("meaning", "frequency") for when in ("later", "earlier")]
    lines = [
        [
            memory if memory == "reservoir" else f"moments, half-life {memory}",
            *(
                f"{_drifted(record, kind, memory, when):.1f} "
                f"({_drifted(record, kind, memory, when, 'logistic'):.1f})"
                for kind, when in cells
            ),
            *(_later_share(rows, kind, memory) for kind in ("meaning", "frequency")),
        ]
        for memory in memories
    ]
    head = ["memory", *(f"{kind}, {when}" for kind, when in cells)]
    return f"""### Drift

{spaced(rows[0]["rows"])} rows, {rows[0]["capacity"]} kept. *Meaning*: in the first half every class has the label of another.
*Frequency*: nine in ten rows are of five classes, and in the second half of the other five. Ridge (logistic) heads, tested on rows as
they were later and earlier; last, which share of the rows kept came in the second half.

{table([*head, "later rows, meaning", "frequency"], lines)}"""


def _later_share(rows: list[Record], kind: str, memory: str) -> str:
    found = [row["later_share"] for row in rows if (row["kind"], row["memory"]) == (kind, memory)]
    return f"{100 * np.mean(found):.0f}%"


def _batch_table(record: Record) -> str:
    lines = [
        [
            spaced(count),
            spaced(batch),
            *(f"{one[head]:.1f}" for head in HEADS),
            f"{one['shared']:.0f}%",
        ]
        for count in (record["first"], 50_000)
        for batch, one in _batch_rows(record, count).items()
    ]
    heads = ["ridge", "without intercept", "logistic"]
    head = ["rows", "batch", *heads, f"rows shared with batches of {record['batch']}"]
    return f"""### Batches of other sizes

`MomentMemory({record["shown"]})`, random order; the same stream cut in other ways.

{table(head, lines)}"""


def moments_speed(record: Record) -> str:
    """Speed of a moment memory, for the section on streams of docs/benchmarks.md."""
    cases = record["cases"]
    lines = [
        [
            f"{one['features']} features, p = {one['width']}",
            f"{one['rows_a_second']:.0f} ({one['rows_a_wall_second']:.0f})",
            str(one["aim"]),
            f"{one['median_ms_first_tenth']:.1f}",
            f"{one['median_ms_last_tenth']:.1f}",
            f"{one['state_bytes'][0] / 1e6:.2f} / {one['state_bytes'][1] / 1e6:.2f} MB",
        ]
        for one in cases
    ]
    parts = [
        [
            f"p = {one['width']}: {name}",
            f"{one['ms'][name]:.2f}",
            f"{one['millions'][name]:.0f}",
            f"{one['floor_ms'][name]:.2f}",
        ]
        for one in cases
        for name in one["ms"]
    ]
    threads = cases[0]["threads"]
    head = [
        "stream",
        "rows a second",
        "aim",
        "ms an update, first tenth",
        "last tenth",
        "held, then",
    ]
    return f"""**Moment memories.** {told(record)} 100 rows kept by elimination, random ReLU features, {threads}
thread{"s" if threads > 1 else ""}, the processor's own seconds (in brackets those of the clock, on a machine with other work); what a
memory holds after a tenth of the stream and at its end.

{table(head, lines)}
Where an update's time goes, beside the multiplications that the formulas need (symmetric products by half) and the time they would
take at the speed of one large product of one thread:

{table(["part of an update", "ms", "million multiplications", "floor, ms"], parts)}"""


def moment_weights(record: Record) -> str:
    """Whether learnt weights help, for the same section."""
    found: dict[tuple[str, int], list[Record]] = {}
    for row in record["rows"]:
        found.setdefault((row["data"], row["capacity"]), []).append(row)
    lines = []
    for (data, capacity), rows in found.items():
        before, after = np.mean([row["objective"] for row in rows], axis=0)
        gains = {
            head: 100 * np.array([row[head][1] - row[head][0] for row in rows])
            for head in ("ridge", "logistic")
        }
        cells = [f"{one.mean():+.1f} ± {_error(one):.1f}" for one in gains.values()]
        lines.append([f"{data}, {capacity} rows", f"{before:.3f} → {after:.3f}", *cells])
    return f"""**Would weights help a moment memory?** {told(record)} Weights of the rows kept that lower its objective as
far as weights can, beside equal ones: the objective, and what heads trained with them gain on a test set in points of accuracy (mean ±
standard error over orders of the stream).

{table(["stream", "objective", "ridge head gains", "logistic head gains"], lines)}
They lower the objective and teach heads no better: the rows of a moment memory count the same."""


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def draw() -> None:
    """Accuracy along the stream that comes class by class."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    record = read_record("streams")
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for place, order in zip(axes, ("class by class", "random"), strict=True):
        for buffer, (line, marker, grey) in STYLES.items():
            seen, means = _along(record, order, buffer)
            place.plot(seen, means, line, marker=marker, color=grey, markersize=4, label=buffer)
        best = max(_ceiling(record, record["shown"], which)[0] for which in ("select", "moments"))
        place.axhline(best, color="0.7", linewidth=1)
        place.text(4000, best + 0.8, "chosen from all rows at once", fontsize=7, color="0.4")
        place.set(title=order, xlabel="rows seen")
        place.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, %")
    axes[1].legend(fontsize=8, loc="lower right")
    figure.savefig(FIGURE, dpi=130)
    pyplot.close(figure)


def _along(record: Record, order: str, buffer: str) -> tuple[list[int], np.ndarray]:
    rows = [
        row["along"]
        for row in record["rows"]
        if row["part"] == "stream"
        and (row["order"], row["buffer"], row["capacity"]) == (order, buffer, record["shown"])
    ]
    seen = [point["seen"] for point in rows[0]]
    return seen, 100 * np.mean([[point["ridge"] for point in row] for row in rows], axis=0)
