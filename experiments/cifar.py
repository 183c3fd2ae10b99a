"""What is particular to CIFAR-10: sizes, and which β each row is run with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

DATASET, MEMORY = "SplitCIFAR-10", 200
#: Steps a batch of the imbalanced stream, and the β tried on streams: those the paper found best and their neighbours.
STREAM_STEPS, STREAM_BETAS = 150, (0.01, 0.1, 1.0, 10.0)
#: Epochs a task of the runs that choose β.
BETA_EPOCHS = 150
#: The best β that the authors report, on the test set; 1 for every other row.
PUBLISHED = {
    "Coreset": 100.0, "k-means of grads": 100.0, "Uniform sampling": 10.0, "Gradient matching": 10.0, "k-center of features": 10.0,
    "Coreset, all candidates": 100.0, "Coreset, squared error": 100.0, "Coreset, weights kept": 100.0,
}  # fmt: skip
#: Rows of our own with a network as one would train it today: normalised, and its own embedding as the proxy.
NORMALISED = {
    "Uniform sampling, normalised network": "uniform",
    "Coreset, normalised network, its embedding as the proxy": "coreset-embedding",
}
CHOSEN = Path(__file__).with_name("betas.json")


def tried(method: str) -> tuple[float, ...]:
    """All β for the two rows that matter most, the published one and its neighbours for others; none where none is rehearsed."""
    if method == "Training w/o replay" or method.endswith("at the end"):
        return ()
    if method in ("Uniform sampling", "Coreset"):
        return (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    best = PUBLISHED.get(method, 1.0)
    return (best / 10, best, 10 * best)


def beta_of(method: str) -> float:
    """The β found on held-out points; where none has been, the published one."""
    found: dict[str, float] = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    plain = "Coreset" if method.startswith("Coreset, normalised") else method.split(", normalised")[0]
    return found.get(plain, PUBLISHED.get(plain, 1.0))


def choose(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """For each row the β of the highest accuracy on held-out points."""
    held: dict[str, dict[float, float]] = {}
    for record in records:
        held.setdefault(record["method"], {})[float(record["beta"])] = float(np.mean(record["held"]))
    return {method: max(found, key=lambda beta: found[beta]) for method, found in sorted(held.items())}
