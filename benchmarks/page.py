"""Write the evidence pages, tables and figures of docs/ from the records:
``python -m benchmarks page``."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import (
    battery_page,
    choosing_page,
    comparison_page,
    figures,
    jobs_page,
    learning_page,
    pooled_pages,
    speed_page,
    streams_page,
)
from benchmarks.pages import DOCS, Row, percent, render, show, table, unique, where
from experiments import appendix
from experiments import page as reproduction

#: The variant of the ablation that the others are compared with.
DEFAULT = "squared gradient, auto"
#: Names of our own methods in tables, if the record has others.
OUR_NAMES = {"from shards": "**`select_from_shards`**", "bicore": "**bicore**"}
#: Characters of an error message that a table has room for.
MOST_CHARACTERS = 60


def run(arguments: Any) -> dict[str, Any]:
    for name, text in PAGES.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text())
    drawn_pages = (comparison_page, choosing_page, streams_page, learning_page, pooled_pages)
    for drawn in (*drawn_pages, jobs_page, figures):
        drawn.draw()
    return {"pages": [f"docs/{name}" for name in PAGES]}


def evidence() -> str:
    helpers = (battery_page.held_out_table, battery_page.set_gaps, reproduction.count_verdicts)
    helpers += (streams_page.buffer_scores, streams_page.offline_scores)
    return render("evidence.md", **{one.__name__: one for one in helpers})


def tables() -> str:
    """docs/tables/benchmarks.md."""
    helpers = (merge, ablation_table, ablation_differences)
    helpers += (peer_table, duration, strategy_name)
    helpers += (strategy_detail, regret_rows, np.mean, np.transpose)
    names = {one.__name__: one for one in helpers}
    return render("tables/benchmarks.md", pooled=pooled_pages, **names)


#: The generated pages of docs/, by their names.
PAGES: dict[str, Callable[[], str]] = {
    "evidence.md": evidence,
    "reproduction.md": reproduction.text,
    "unseen.md": battery_page.unseen,
    "comparison.md": comparison_page.text,
    "streams-evidence.md": streams_page.text,
    "speed.md": speed_page.text,
    "learning.md": learning_page.text,
    "choosing.md": choosing_page.text,
    "tables/reproduction.md": reproduction.tables,
    "tables/experiments.md": appendix.text,
    "tables/battery.md": battery_page.tables,
    "tables/comparison.md": comparison_page.tables,
    "tables/streams.md": streams_page.tables,
    "tables/benchmarks.md": tables,
    "tables/jobs.md": jobs_page.text,
    "contexts.md": jobs_page.contexts,
}


def merge(first: Sequence[Row], second: Sequence[Row]) -> list[Row]:
    """Rows of two tables side by side."""
    return [{**one, **other} for one, other in zip(first, second, strict=True)]


def ablation_table(rows: Sequence[Row], data: str, model: str) -> str:
    sizes = sorted(unique(rows, "size"))
    body = []
    for variant in unique(rows, "variant"):
        own = where(rows, data=data, variant=variant)
        cells = [show(percent(where(own, size=size), model), ".1f") for size in sizes]
        body.append([f"**{variant}**" if variant == DEFAULT else variant, *cells])
    return table(["variant", *(f"m = {size}" for size in sizes)], body)


def ablation_differences(rows: Sequence[Row]) -> list[Row]:
    """Differences from the default, as means of each seed over data sets and sizes."""

    def by_seed(variant: str, model: str) -> np.ndarray:
        own = where(rows, variant=variant)
        seeds = sorted(unique(own, "seed"))
        return np.array([percent(where(own, seed=seed), model).mean() for seed in seeds])

    return [
        {
            "variant": variant,
            "seconds": [one["select_seconds_200"] for one in where(rows, variant=variant)],
            **{
                model: by_seed(variant, model) - by_seed(DEFAULT, model)
                for model in ("network", "kernel")
            },
        }
        for variant in unique(rows, "variant")
        if variant != DEFAULT
    ]


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


def _failure(words: str) -> str:
    if words.startswith("ModuleNotFoundError"):
        return "not installed: the registry has no package of it"
    clean = words.replace("|", "/").replace("\n", " ")
    return clean if len(clean) <= MOST_CHARACTERS else f"{clean[:MOST_CHARACTERS]}…"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"


def strategy_name(row: Row) -> str:
    kind, options = row["strategy"].rstrip(")").split("(")
    return figures.STRATEGIES[kind] + (f" ({options})" if options else "")


def strategy_detail(row: Row) -> str:
    """What a strategy did in addition to greedy steps."""
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
