"""The section on the precision of networks that rehearse, from its record."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import table, told

HEAD = ["data", "seed", "draws", "bfloat16", "float32", "last task, bfloat16", "float32"]


def section(record: dict[str, Any]) -> str:
    body = []
    gaps: dict[str, list[float]] = {}
    for fast, exact in pairs(record["rows"]):
        means = [100 * float(np.mean(one["test"])) for one in (fast, exact)]
        last = [100 * one["test"][-1] for one in (fast, exact)]
        gaps.setdefault(fast["problem"], []).append(means[1] - means[0])
        numbers = [*(f"{value:.1f}" for value in means), *(f"{value:.0f}" for value in last)]
        body.append([fast["problem"], str(fast["seed"]), str(fast["draw"]), *numbers])
    found = "; ".join(f"{name} {_spread(values)}" for name, values in gaps.items())
    return f"""## Precision in rehearsal

{told(record)}

The coreset's row of the tables by products in bfloat16 and in float32: SplitCIFAR-10 with {record["cifar_epochs"]} epochs a task (400 in the
table), and the one run of SplitMNIST that float32 changed by more than ten points, β = 1000 and
seed 1, with other draws of dropout. Percent of test points, mean over tasks and of the last task.

{table(HEAD, body)}
Float32 minus bfloat16, mean and standard error: {found}.
"""


def pairs(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The same run in both precisions."""
    found: dict[Any, dict[bool, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["problem"], row["seed"], row["draw"]), {})[row["fast"]] = row
    return [(both[True], both[False]) for both in found.values() if len(both) == 2]


def _spread(values: list[float]) -> str:
    found = np.array(values)
    if len(found) == 1:
        return f"{found[0]:+.1f} (one pair)"
    error = found.std(ddof=1) / len(found) ** 0.5
    return f"{found.mean():+.1f} ± {error:.1f} ({len(found)} pairs)"
