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
#: λ of the authors' scripts. The one that gives the proxy the lowest held-out loss is much smaller, and the networks that rehearse
#: its coresets do worse on held-out points too: it has rows of its own.
PENALTY, BY_PROXY = 1e-3, ", λ by the proxy"
#: Rows of our own with a network as one would train it today: normalised, and its own embedding as the proxy.
NORMALISED = {
    "Uniform sampling, normalised network": "uniform",
    "Coreset, normalised network, its embedding as the proxy": "coreset-embedding",
}
OWN = {
    f"Per task coreset{BY_PROXY}, train at the end": "coreset",
    f"Coreset{BY_PROXY}": "coreset",
    **NORMALISED,
}
IMBALANCED_OWN = {f"Coreset{BY_PROXY}": "coreset"}
#: Rows of the balanced stream.
BALANCED = {
    "Reservoir sampling": "reservoir",
    "Streaming coreset": "coreset",
    "Streaming coreset RBF": "coreset-rbf",
    f"Streaming coreset{BY_PROXY}": "coreset",
}
#: β tried: everything for the rows that matter most; for others, where the published best is 1, 10 or 100, what lies around it. The
#: rows run first were best at 10 and above, so that what is tried begins at 1 and goes on to where they fell off.
EVERY = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
TRIED: dict[str, dict[str, tuple[float, ...]]] = {
    "continual": {
        "Uniform sampling": EVERY, "Coreset": EVERY, f"Coreset{BY_PROXY}": EVERY, "k-means of grads": (10.0, 100.0, 1000.0),
    },
    "imbalanced": {"Reservoir": (0.1, 1.0, 10.0, 100.0), "CBRS": (0.1, 1.0, 10.0, 100.0), "Coreset": (1.0, 10.0, 100.0, 1000.0)},
    "streaming": {},
}  # fmt: skip
OTHERS = (1.0, 10.0, 100.0)
#: Where nothing has been chosen: what the rows run first were best at.
FIRST = 10.0
CHOSEN = Path(__file__).with_name("chosen.json")


def tried(table: str, method: str) -> tuple[float, ...]:
    """The β to try; none where none is rehearsed, and where a variant goes with the row it varies."""
    if method == "Training w/o replay" or method.endswith("at the end") or plain(method) != method:
        return ()
    return TRIED[table].get(method, OTHERS)


def plain(method: str) -> str:
    """The row whose β a variant of ours takes."""
    return method if method.endswith(BY_PROXY) else method.split(", ")[0].removesuffix(" RBF")


def beta_of(table: str, method: str) -> float:
    """The β found on held-out points."""
    found: Mapping[str, float] = _chosen().get(table, {})
    return float(found.get(plain(method), FIRST))


def penalty(method: str) -> float:
    """λ of a row: the paper's, but where the proxy's own choice is asked for."""
    return float(_chosen().get("penalty", PENALTY)) if BY_PROXY in method else PENALTY


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
