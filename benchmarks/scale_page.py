"""What docs/benchmarks.md says of rows that are never loaded whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import spaced, table, told

Record = dict[str, Any]
#: Names of our own ways in tables, where the record's are not what a reader looks for.
NAMES = {"from shards": "**`select_from_shards`**", "bicore": "**bicore**"}
#: Words of a failure that a table has room for.
MOST_WORDS = 60


def scale(record: Record) -> str:
    rows = [
        [
            f"{spaced(one['count'])} × {one['width']}",
            f"{one['seconds']:.1f} s",
            str(one["passes"]),
            f"{one['first_pass']:.1f} s",
            f"{one['further_pass']:.2f} s",
            f"{one['bare_pass']:.2f} s",
            f"{one['exact_in_bare_passes_a_point']:.2f}",
            f"{one['peak_bytes'] / 1e6:.0f} MB",
            f"{one['peak_bytes_beyond_imports'] / 1e6:.0f} MB",
        ]
        for one in record["rows"]
    ]
    quality = [
        [
            one["data"],
            spaced(one["count"]),
            *(f"{way['objective']:.4f}" for way in one["ways"].values()),
            f"{100 * (one['default_over_exact'] - 1):+.2f}%",
            f"{100 * (one['default_over_best_exact'] - 1):+.2f}%",
        ]
        for one in record["quality"]
    ]
    head = [
        "rows",
        "seconds",
        "passes",
        "the first",
        "a further one",
        "a bare pass",
        "exact, in bare passes a point",
        "peak",
        "beyond imports",
    ]
    ways = list(record["quality"][0]["ways"]) if record["quality"] else []
    return f"""## Rows that are never loaded whole

{told(record)} Float16 rows of a `.npy` file, 10 classes, {record["rows"][0]["size"]} points by default, {record["threads"]} threads. A bare pass
converts all rows and multiplies them by 20 columns. The peak is memory that is no mapped file, of the whole process and beyond what it
had after imports. Time grows with n to the power {record["exponent"]:.2f} (256 columns, first row to last).

{table(head, rows)}
Objectives of {record["quality"][0]["size"]} points (lower is better), and the default beside one point a pass by gains, and beside the better of both exact
ways:

{table(["data", "rows", *ways, "default over exact gain", "over the better exact"], quality)}"""


def card(record: Record) -> str:
    rows = [
        [
            f"{spaced(one['count'])} × {one['width']}",
            str(one["classes"]),
            spaced(one["size"]),
            f"{one['seconds']:.1f} s",
            f"{one['goal']:.0f} s",
            str(one["passes"]),
            f"{one['first_pass']:.1f} s",
            f"{1000 * one['further_pass']:.0f} ms",
            f"{one['floor_bytes_seconds']:.2f} s",
            f"{one['floor_multiply_adds_seconds']:.2f} s",
            f"{one['peak_bytes_of_the_card'] / 1e9:.1f} GB",
        ]
        for one in record["rows"]
    ]
    head = [
        "rows",
        "classes",
        "points",
        "seconds",
        "goal",
        "passes",
        "the first",
        "a further one",
        "floor of bytes",
        "floor of multiply-adds",
        "peak on the card",
    ]
    same = "are" if record["same_picks"] else "are not"
    return f"""### On a card

{told(record)} Float16 rows that come over the bus once and stay. Floors are those of all passes after what the card was measured to do
({record["rates"]["bytes_a_second"] / 1e12:.1f} TB/s, {record["rates"]["multiply_adds_a_second"] / 1e12:.0f}·10¹² multiply-adds a second in float32). What lies between them and the seconds is the
points themselves, one after the other, in float64. Picks of 50 000 rows {same} those of the host.

{table(head, rows)}"""


def workers(record: Record) -> str:
    rows = [
        [
            str(one["workers"]),
            f"{one['passes_seconds']:.1f} s",
            f"{one['further_pass']:.2f} s",
            f"{one['seconds']:.1f} s",
        ]
        for one in record["rows"]
    ]
    return f"""### Workers of Dask

{told(record)} {spaced(record["count"])} × {record["width"]} rows, {record["size"]} points: two workers take all passes {record["times_faster"]:.2f} times as fast as one, those
after the first {_ratio(record):.2f} times; scheduler and client share the two cores with them. Their picks {"are" if record["same_picks"] else "are not"} the same.

{table(["workers", "all passes", "a further one", "with the points"], rows)}"""


def _ratio(record: Record) -> float:
    one, two = (row["further_pass"] for row in record["rows"])
    return float(one / two)


def peers(record: Record) -> str:
    names = dict.fromkeys(row["data"] for row in record["rows"])
    parts = [_peer_table(name, record) for name in names]
    return f"""### Beside other libraries

{told(record)} Every selection is a process of its own with {record["limit_seconds"]:.0f} s of processor time and {record["limit_bytes"] / 1e9:.0f} GB; *accuracy* is that of a logistic and of a ridge
head on the picks. A peer that fails at one size is not asked for more.

{"".join(parts)}"""


def _peer_table(name: str, record: Record) -> str:
    rows = [row for row in record["rows"] if row["data"] == name]
    shares = sorted({row["share"] for row in rows})
    lines = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        own = {row["share"]: row for row in rows if row["peer"] == peer}
        lines.append([NAMES.get(peer, peer), *(_peer_cell(own.get(share)) for share in shares)])
    head = ["", *(f"{100 * share:g}%" for share in shares)]
    return f"**{name[0].upper()}{name[1:]}**\n\n{table(head, lines)}\n"


def _peer_cell(row: Record | None) -> str:
    if row is None:
        return "–"
    if "failed" in row:
        return _failure(row["failed"])
    # Beyond some thousand picks a ridge head alone is fitted.
    heads = [f"{100 * row[head]:.1f}" if head in row else "–" for head in ("logistic", "ridge")]
    accuracy = " / ".join(heads)
    return f"{accuracy}; {row['seconds']:.1f} s, {row['peak_bytes'] / 1e6:.0f} MB"


def embedding(record: Record) -> str:
    sizes = sorted({row["size"] for row in record["rows"]})
    parts = []
    for head in ("logistic", "ridge"):
        lines = []
        for method in dict.fromkeys(row["method"] for row in record["rows"]):
            own = [row for row in record["rows"] if row["method"] == method]
            cells = [
                _head_cell([row for row in own if row["size"] == size], head) for size in sizes
            ]
            lines.append([NAMES.get(method, method), *cells])
        parts.append(f"**A {head} head**\n\n{table(['', *map(str, sizes)], lines)}\n")
    return f"""### A real embedding

{told(record)} All 50 000 rows of CIFAR-10 through a frozen network, every method that needs no network, accuracy in percent on the 10 000
test rows; what is drawn is a mean over {len({row["seed"] for row in record["rows"]})} seeds. A selection has {record["limit_seconds"]:.0f} s; *time* is one that took longer, and the method
is not asked for more points.

{"".join(parts)}"""


def _head_cell(rows: list[Record], head: str) -> str:
    if not rows:
        return "–"
    if "failed" in rows[0]:
        return "time" if " points in " in rows[0]["failed"] else _failure(rows[0]["failed"])
    return f"{100 * np.mean([row[head] for row in rows]):.1f}"


def _failure(words: str) -> str:
    if words.startswith("ModuleNotFoundError"):
        return "not installed: the registry has no package of it"
    clean = words.replace("|", "/").replace("\n", " ")
    return clean if len(clean) <= MOST_WORDS else f"{clean[:MOST_WORDS]}…"


#: By the record they are made from.
SECTIONS: dict[str, Callable[[Record], str]] = {
    "scale": scale,
    "scale_gpu": card,
    "workers": workers,
    "peers_scale": peers,
    "embedding": embedding,
}
