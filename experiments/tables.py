"""Tables from records alone: β chosen on held-out points, β chosen on the test set as the paper
did, and the paper's number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.catalogue import EXPERIMENTS
from experiments.groups import PAPER, QUICK_SHARE
from experiments.records import FOLDER, RecordError, Records
from experiments.settings import Setting

#: Seeds behind every number of the paper.
PAPER_SEEDS = 5
#: A mean, its standard deviation over n as the paper has it, and n.
Measured = tuple[float, float, int]


@dataclass(frozen=True)
class Row:
    """One cell of the paper and ours: percent, the spread as the paper has it (over n), and what
    was chosen."""

    dataset: str
    method: str
    memory: int
    seeds: int
    chosen: float
    mean: float
    std: float
    best_chosen: float
    best_mean: float
    best_std: float
    paper: dict[str, float] | None
    choices: int

    @property
    def difference(self) -> tuple[float, float] | None:
        """Ours minus the paper's, with the half-width of Welch's 95% interval."""
        if self.paper is None or self.seeds < 2:
            return None
        return welch(self.measured, (self.paper["mean"], self.paper["std"], PAPER_SEEDS))

    @property
    def measured(self) -> Measured:
        return self.mean, self.std, self.seeds


def welch(ours: Measured, theirs: Measured) -> tuple[float, float]:
    """The difference of two means with the half-width of its 95% interval."""
    (mean, std, seeds), (other, spread, count) = ours, theirs
    # of the means, from deviations over n
    first = std**2 / (seeds - 1)
    second = spread**2 / (count - 1)
    if first + second == 0:
        return mean - other, 0.0
    freedom = (first + second) ** 2 / (first**2 / (seeds - 1) + second**2 / (count - 1))
    return mean - other, float(stats.t.ppf(0.975, freedom)) * math.sqrt(first + second)


def table(name: str, records: Iterable[dict[str, Any]]) -> str:
    """The table of an experiment in Markdown."""
    return OTHERS[name](list(records)) if name in OTHERS else told(rows(name, records))


def _markdown(head: list[str], body: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in body)]) + "\n"


def _runtime(records: list[dict[str, Any]]) -> str:
    paper = {
        "kernel": "kernel (GTX 1080 Ti)",
        **{f"coreset {size}": f"coreset {size} (one CPU thread)" for size in (100, 400)},
    }
    body = []
    for record in records:
        for what, value in record.items():
            if what == "kernel" or what.startswith("coreset "):
                known = (
                    PAPER["runtime_seconds_1000_points"]
                    .get(paper.get(what.split(",")[0], ""), {})
                    .get(record["method"])
                )
                where = (
                    (record["machine"]["gpu"] or record["machine"]["processor"])
                    if what == "kernel"
                    else "one thread"
                )
                body.append(
                    [
                        record["method"],
                        what,
                        where,
                        f"{value:.3f} s",
                        "" if known is None else f"{known} s",
                    ]
                )
    return _markdown(["network", "work", "on", "ours", "paper"], body)


def _picks(records: list[dict[str, Any]]) -> str:
    """The paper: the first ten picks come from ten classes; about twice as many eights as ones."""
    body = [
        [
            one["method"],
            str(one["seed"]),
            str(one["classes_in_first_ten"]),
            f"{one['eights']} and {one['ones']}",
        ]
        for one in records
    ]
    return _markdown(
        ["method", "seed", "classes among the first ten", "eights and ones among all"], body
    )


def _penalties(records: list[dict[str, Any]]) -> str:
    body = [
        [
            one["method"],
            f"{one['penalty']:g}",
            f"{np.mean(one['held_loss']):.4f}",
            ", ".join(f"{loss:.3f}" for loss in one["held_loss"]),
        ]
        for one in sorted(records, key=lambda record: float(record["penalty"]))
    ]
    return _markdown(["method", "λ", "held-out loss of the proxy", "of each task"], body)


def _betas(name: str, records: list[dict[str, Any]]) -> str:
    """Accuracy on held-out points by β, the highest of a row in bold."""
    held: dict[str, dict[float, float]] = defaultdict(dict)
    for one in records:
        held[one["method"]][float(one["beta"])] = 100 * float(np.mean(one["held"]))
    betas = sorted({beta for found in held.values() for beta in found})
    order = [group.setting.method for group in EXPERIMENTS[name].groups(0)]
    body = []
    for method in sorted(held, key=order.index):
        best = max(held[method].values())
        shown = [held[method].get(beta) for beta in betas]
        body.append(
            [
                method,
                *(
                    "" if one is None else f"**{one:.2f}**" if one == best else f"{one:.2f}"
                    for one in shown
                ),
            ]
        )
    return _markdown(["method", *(f"β = {beta:g}" for beta in betas)], body)


#: Tables that do not compare methods by their accuracy.
OTHERS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "runtime": _runtime,
    "picks": _picks,
    "cifar-penalty": _penalties,
    **{name: partial(_betas, name) for name in ("cifar-betas", "cifar-stream-betas")},
}


def gathered(name: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The records of an experiment, with those that other experiments hold for it, under its own
    names."""
    groups = EXPERIMENTS[name].groups(0)
    shown = {(group.setting.dataset, group.setting.method) for group in groups}
    everything = Records(name, folder).all()
    # not of rows there are no more
    found = [record for record in everything if (record["dataset"], record["method"]) in shown]
    borrowed = {
        (group.source, group.setting.dataset, group.setting.memory): group.setting.method
        for group in groups
        if group.source is not None
    }
    for experiment in dict.fromkeys(source[0] for source, _, _ in borrowed):
        for record in Records(experiment, folder).all():
            method = borrowed.get(
                ((experiment, record["method"]), record["dataset"], record["memory"])
            )
            if method is not None:
                found.append({**record, "method": method})
    return found


def progress(name: str, folder: Path = FOLDER, seeds: int = 5) -> tuple[int, int]:
    """How many of an experiment's runs are recorded, and how many it has."""
    done = wanted = 0
    for group in (group for seed in range(seeds) for group in EXPERIMENTS[name].groups(seed)):
        experiment, method = group.source or (name, group.setting.method)
        records = Records(experiment, folder)
        setting = replace(group.setting, method=method)
        done += sum(records.has(setting.key(beta)) for beta in setting.betas)
        wanted += len(setting.betas)
    return done, wanted


def rows(name: str, records: Iterable[dict[str, Any]]) -> list[Row]:
    """The rows of an experiment in the order of its catalogue, as far as there are records."""
    runs: dict[tuple[str, str, int], dict[float, list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        choice = float(record.get("beta", record.get("penalty", 0)))
        runs[record["dataset"], record["method"], record["memory"]][choice].append(record)
    found = []
    for group in EXPERIMENTS[name].groups(0):
        setting = group.setting
        known = sorted(
            memory
            for dataset, method, memory in runs
            if (dataset, method) == (setting.dataset, setting.method)
        )
        toy = max(4, setting.memory // QUICK_SHARE)
        for memory in known:
            tried = runs[setting.dataset, setting.method, memory]
            quick = memory == toy and all(run["quick"] for one in tried.values() for run in one)
            if setting.memory in (memory, 0) or quick:
                found.append(
                    _row(
                        replace(setting, memory=memory),
                        tried,
                        group.paper if memory == setting.memory else None,
                    )
                )
    return found


def _row(
    setting: Setting, tried: dict[float, list[dict[str, Any]]], paper: dict[str, float] | None
) -> Row:
    """Choices are compared where they have the most seeds; records of several λ do not mix."""
    if len({run["lambda"] for runs in tried.values() for run in runs if "lambda" in run}) > 1:
        raise RecordError(
            f"{setting.method} on {setting.dataset}: its records have several λ; keep those of one."
        )
    most = max(len(runs) for runs in tried.values())
    tried = {choice: runs for choice, runs in tried.items() if len(runs) == most}
    held = {
        choice: np.mean([np.mean(run["held"]) for run in runs]) for choice, runs in tried.items()
    }
    tested = {
        choice: 100 * np.array([np.mean(run["test"]) for run in runs])
        for choice, runs in tried.items()
    }
    chosen = max(held, key=lambda choice: held[choice])
    best = max(tested, key=lambda choice: tested[choice].mean())
    return Row(
        setting.dataset,
        setting.method,
        setting.memory,
        len(tested[chosen]),
        chosen,
        float(tested[chosen].mean()),
        float(tested[chosen].std()),
        best,
        float(tested[best].mean()),
        float(tested[best].std()),
        paper,
        len(tried),
    )


def _spread(mean: float, std: float, seeds: int) -> str:
    """One seed has none."""
    return f"{mean:.2f} ± {std:.2f}" if seeds > 1 else f"{mean:.2f}"


def told(found: list[Row]) -> str:
    """The rows as a Markdown table."""
    head = [
        "data",
        "method",
        "memory",
        "seeds",
        "β",
        "ours (β on held-out points)",
        "ours (β on the test set)",
        "paper",
        "difference",
    ]
    body = []
    for row in found:
        gap = row.difference
        cells = [
            row.dataset,
            row.method,
            str(row.memory),
            str(row.seeds),
            f"{row.chosen:g}",
            _spread(row.mean, row.std, row.seeds),
            f"{_spread(row.best_mean, row.best_std, row.seeds)} ({row.best_chosen:g})"
            if row.choices > 1
            else "",
            "" if row.paper is None else f"{row.paper['mean']:.2f} ± {row.paper['std']:.2f}",
            "" if gap is None else f"{gap[0]:+.2f} ± {gap[1]:.2f}",
        ]
        body.append(cells)
    return _markdown(head, body)
