"""What is particular to CIFAR-10: sizes, and how each row's β and λ are found.

Every training is long, so that β is looked for with one seed and fewer epochs or steps, on points held out; ``choose`` writes what
was found beside this file. Tables then hold one β a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATASET, MEMORY = "SplitCIFAR-10", 200
#: Steps a batch of the imbalanced and of the balanced stream.
IMBALANCED_STEPS, BALANCED_STEPS = 150, 40
#: Epochs a task, and by how much fewer steps a batch, of the runs that look for β.
BETA_EPOCHS, FEWER_STEPS = 80, 3
#: λ of the paper, for where none has been chosen.
PENALTY = 1e-3
#: The best β that the authors report, on the test set; 1 for every other row. Their weights of a stream's slots add up to the
#: number of batches, ours to 1: where β is 1 in their coresets of streams, it can be more in ours.
PUBLISHED = {
    "continual": {
        "Coreset": 100.0, "k-means of grads": 100.0, "Uniform sampling": 10.0, "Gradient matching": 10.0,
        "k-center of features": 10.0, "Coreset, the paper's λ": 100.0,
    },
    "imbalanced": {"Reservoir": 0.1, "CBRS": 0.1},
    "streaming": {},
}  # fmt: skip
#: A row of our own: the λ of the authors' scripts in place of the chosen one.
PAPERS = {"Coreset, the paper's λ": "coreset"}
#: Rows of our own with a network as one would train it today: normalised, and its own embedding as the proxy.
NORMALISED = {
    "Uniform sampling, normalised network": "uniform",
    "Coreset, normalised network, its embedding as the proxy": "coreset-embedding",
}
CHOSEN = Path(__file__).with_name("chosen.json")


def tried(table: str, method: str) -> tuple[float, ...]:
    """All β for the two rows that matter most, the published one and its neighbours for others; none where none is rehearsed, and
    where a variant goes with the row it varies."""
    if method == "Training w/o replay" or method.endswith("at the end") or plain(method) != method:
        return ()
    if table == "continual" and method in ("Uniform sampling", "Coreset"):
        return (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    best = PUBLISHED[table].get(method, 1.0)
    return (best / 10, best, 10 * best, *([100 * best] if table != "continual" and "coreset" in method.lower() else ()))


def plain(method: str) -> str:
    """The row whose β a variant of ours takes."""
    return method if method in PAPERS else method.split(", ")[0].removesuffix(" RBF")


def beta_of(table: str, method: str) -> float:
    """The β found on held-out points; where none has been, the published one."""
    found: Mapping[str, float] = _chosen().get(table, {})
    return float(found.get(plain(method), PUBLISHED[table].get(plain(method), 1.0)))


def penalty(method: str = "Coreset") -> float:
    """λ of a row: one for every coreset, but where the paper's is asked for."""
    return PENALTY if method in PAPERS else float(_chosen().get("penalty", PENALTY))


def _chosen() -> dict[str, Any]:
    return dict(json.loads(CHOSEN.read_text())) if CHOSEN.exists() else {}


def choose(betas: Mapping[str, Iterable[dict[str, Any]]], penalties: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """For each row of each table the β of the highest accuracy on held-out points, and the λ of the lowest held-out loss."""
    found: dict[str, Any] = {}
    losses = {float(record["penalty"]): float(np.mean(record["held_loss"])) for record in penalties}
    if losses:
        found["penalty"] = min(losses, key=lambda value: losses[value])
    for table, records in betas.items():
        held: dict[str, dict[float, float]] = {}
        for record in records:
            held.setdefault(record["method"], {})[float(record["beta"])] = float(np.mean(record["held"]))
        if held:
            found[table] = {method: max(tried, key=lambda beta: tried[beta]) for method, tried in sorted(held.items())}
    return found
