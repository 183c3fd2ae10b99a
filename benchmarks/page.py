"""Write the pages and figures of docs/ from the records: ``python -m benchmarks page``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import (
    battery_page,
    choosing_page,
    comparison_page,
    figures,
    pooled_pages,
    speed_page,
    streams_page,
)
from benchmarks.pages import DOCS, Row, percent, read_record, render, show, table, unique, where

PAGE = DOCS / "benchmarks.md"
#: The variant of the ablation that the others are compared with.
DEFAULT = "squared gradient, auto"
#: Names of our own methods in tables, if the record has others.
OUR_NAMES = {"from shards": "**`select_from_shards`**", "bicore": "**bicore**"}
#: Characters of an error message that a table has room for.
MOST_CHARACTERS = 60


def run(arguments: Any) -> dict[str, Any]:
    pages = [battery_page, choosing_page, comparison_page, speed_page, streams_page]
    PAGE.write_text(text())
    for page in pages:
        page.PAGE.write_text(page.text())
    for drawn in (comparison_page, choosing_page, streams_page, pooled_pages, figures):
        drawn.draw()
    return {"pages": [f"docs/{PAGE.name}", *(f"docs/{page.PAGE.name}" for page in pages)]}


def text() -> str:
    """The page of all benchmarks."""
    helpers = (merge, busy_rows, missed_goals, ablation_table, ablation_seconds)
    helpers += (ablation_differences, moment_weight_rows, kept_scores, peer_table, head_table)
    helpers += (duration, precision_pairs, precision_gaps, strategy_name, strategy_detail)
    helpers += (regret_rows, np.mean, np.transpose)
    names = {one.__name__: one for one in helpers}
    return render(
        "benchmarks.md", DEFAULT=DEFAULT, streams=streams_page, pooled=pooled_pages, **names
    )


def merge(first: Sequence[Row], second: Sequence[Row]) -> list[Row]:
    """Rows of two tables side by side."""
    return [{**one, **other} for one, other in zip(first, second, strict=True)]


def busy_rows() -> list[Row]:
    """The rows of ``busy``, with the seconds of the version before."""
    before = {one["problem"]: one["one_thread"] for one in read_record("busy_before")["rows"]}
    rows = read_record("busy")["rows"]
    return [{**one, "before": before.get(one["problem"])} for one in rows]


def missed_goals(record: Row) -> str:
    missed = [one for one in record["rows"] if one["goal"] and one["one_thread"] > one["goal"]]
    parts = [
        f"{one['problem']} ({one['one_thread']:.2f} s for {one['goal']:g} s)" for one in missed
    ]
    return f"Short of its goal: {'; '.join(parts)}." if parts else "All goals are met."


def ablation_table(rows: Sequence[Row], data: str, judge: str) -> str:
    sizes = sorted(unique(rows, "size"))
    body = []
    for variant in unique(rows, "variant"):
        own = where(rows, data=data, variant=variant)
        cells = [show(percent(where(own, size=size), judge), ".1f") for size in sizes]
        body.append([f"**{variant}**" if variant == DEFAULT else variant, *cells])
    return table(["variant", *(f"m = {size}" for size in sizes)], body)


def ablation_seconds(rows: Sequence[Row], variant: str) -> float:
    return float(np.mean([one["select_seconds_200"] for one in where(rows, variant=variant)]))


def ablation_differences(rows: Sequence[Row]) -> list[Row]:
    """Differences from the default, as means of each seed over data sets and sizes."""

    def by_seed(variant: str, judge: str) -> np.ndarray:
        own = where(rows, variant=variant)
        seeds = sorted(unique(own, "seed"))
        return np.array([percent(where(own, seed=seed), judge).mean() for seed in seeds])

    return [
        {
            "variant": variant,
            "seconds": ablation_seconds(rows, variant),
            **{
                judge: by_seed(variant, judge) - by_seed(DEFAULT, judge)
                for judge in ("network", "kernel")
            },
        }
        for variant in unique(rows, "variant")
        if variant != DEFAULT
    ]


def moment_weight_rows(record: Row) -> list[Row]:
    """Objectives and gains of learnt weights, for each data set and capacity."""
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


def peer_table(rows: Sequence[Row]) -> str:
    shares = sorted(unique(rows, "share"))
    body = [
        [OUR_NAMES.get(peer, peer), *(_peer_cell(where(rows, peer=peer, share=s)) for s in shares)]
        for peer in unique(rows, "peer")
    ]
    return table(["", *(f"{100 * share:g}%" for share in shares)], body)


def _peer_cell(rows: Sequence[Row]) -> str:
    if not rows or "failed" in rows[0]:
        return _failure(rows[0]["failed"]) if rows else "–"
    row = rows[0]
    # Beyond some thousand picks a ridge head alone is fitted.
    heads = [f"{100 * row[head]:.1f}" if head in row else "–" for head in ("logistic", "ridge")]
    return f"{' / '.join(heads)}; {row['seconds']:.1f} s, {row['peak_bytes'] / 1e6:.0f} MB"


def head_table(rows: Sequence[Row], head: str) -> str:
    sizes = sorted(unique(rows, "size"))
    body = [
        [
            OUR_NAMES.get(method, method),
            *(_head_cell(where(rows, method=method, size=size), head) for size in sizes),
        ]
        for method in unique(rows, "method")
    ]
    return table(["", *map(str, sizes)], body)


def _head_cell(rows: Sequence[Row], head: str) -> str:
    if not rows:
        return "–"
    if "failed" in rows[0]:
        return "time" if " points in " in rows[0]["failed"] else _failure(rows[0]["failed"])
    return f"{100 * np.mean([row[head] for row in rows]):.1f}"


def _failure(words: str) -> str:
    if words.startswith("ModuleNotFoundError"):
        return "not installed: the registry has no package of it"
    clean = words.replace("|", "/").replace("\n", " ")
    return clean if len(clean) <= MOST_CHARACTERS else f"{clean[:MOST_CHARACTERS]}…"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"


def precision_pairs(rows: Sequence[Row]) -> list[Row]:
    """The same run in both precisions: mean accuracy over tasks, and that of the last task."""
    found = []
    for fast in where(rows, fast=True):
        run = {name: fast[name] for name in ("problem", "seed", "draw")}
        for exact in where(rows, fast=False, **run):
            both = {"fast": fast, "exact": exact}
            means = {name: 100 * float(np.mean(one["test"])) for name, one in both.items()}
            last = {f"{name}_last": 100 * one["test"][-1] for name, one in both.items()}
            found.append({**run, **means, **last})
    return found


def precision_gaps(pairs: Sequence[Row]) -> str:
    parts = []
    for problem in unique(pairs, "problem"):
        gaps = [one["exact"] - one["fast"] for one in where(pairs, problem=problem)]
        count = "one pair" if len(gaps) == 1 else f"{len(gaps)} pairs"
        parts.append(f"{problem} {show(gaps, '+.1f')} ({count})")
    return "; ".join(parts)


def strategy_name(row: Row) -> str:
    kind, options = row["strategy"].rstrip(")").split("(")
    return figures.STRATEGIES[kind] + (f" ({options})" if options else "")


def strategy_detail(row: Row) -> str:
    """What a strategy did beside greedy steps."""
    if "relaxed_objective" in row:
        return f"{row['relaxed_objective']:.4f} before rounding"
    if "eliminated" in row:
        return f"{row['eliminated']} let go"
    if "exchanges" in row:
        return f"{row['exchanges']} exchanges, {row['exchange_gain']:.4f} lower"
    return ""


def regret_rows(record: Row) -> list[Row]:
    """The automatic regulariser next to the best constant, and to the best in hindsight."""
    found = []
    for one in record["rows"]:
        auto, grid = np.array(one["auto"]), np.array(one["grid"])
        constant = grid.mean(0)
        compared = {"auto": auto, "best": grid.max(1), "regret": grid.max(1) - auto}
        value = record["grid"][int(constant.argmax())]
        own = float(np.median(one["values"]))
        told = {"data": one["data"], "constant": constant.max(), "value": value, "own": own}
        found.append({**told, **compared})
    return found
