"""What is particular to CIFAR-10: sizes, and how each row's β and λ are found.

Every training is long, so that β is looked for with one seed and fewer epochs or steps, on points
held out; ``choose`` writes what was found beside this file. Tables then hold one β a row, two where
it matters most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.streaming import COUNTED, STREAM_WEIGHTS

DATASET = "SplitCIFAR-10"
MEMORY = 200
#: Steps a batch of the imbalanced and of the balanced stream.
IMBALANCED_STEPS = 150
BALANCED_STEPS = 40
#: Epochs a task, and by how much fewer steps a batch, of the runs that look for β.
BETA_EPOCHS = 80
FEWER_STEPS = 3
#: λ of the authors' scripts. The one that gives the proxy the lowest held-out loss is much smaller
#: and has rows of its own.
PENALTY = 1e-3
BY_PROXY = ", λ by the proxy"
#: Rows of a stream whose optimiser lasts to its end; in the others every batch begins with a fresh
#: one, as in the authors' code.
ONE_OPTIMISER = ", one optimiser"
#: Rows of our own with a network as one would train it today, normalised: on the memory of the
#: paper's rows, and with its own embedding as the proxy. A network that has fitted a task seems to
#: tell its points apart by what is odd in them, and their directions by what is common. This λ was
#: found with a narrow network on the first task, by held-out points.
DIRECTIONS = ", directions of its embedding as the proxy"
DIRECTIONS_PENALTY = 0.1
NORMALISED = {
    "Uniform sampling, normalised network": "uniform",
    "Coreset, normalised network": "coreset",
    "Coreset, normalised network, its embedding as the proxy": "coreset-embedding",
    f"Coreset, normalised network{DIRECTIONS}": "coreset-directions",
}
#: The authors' code scales gradients to length 1 before it matches them.
SCALED = {"Gradient matching, normalised": "gradient-matching"}
OWN = {
    f"Per task coreset{BY_PROXY}, train at the end": "coreset",
    f"Coreset{BY_PROXY}": "coreset",
    **SCALED,
    **NORMALISED,
}
RBF = {"Coreset RBF": "coreset-rbf"}
IMBALANCED_OWN = {
    f"Coreset{COUNTED}": "coreset",
    "Coreset RBF": "coreset-rbf",
    f"Reservoir{ONE_OPTIMISER}": "reservoir",
    f"CBRS{ONE_OPTIMISER}{STREAM_WEIGHTS}": "cbrs",
    f"Coreset{ONE_OPTIMISER}": "coreset",
    f"Coreset{BY_PROXY}{ONE_OPTIMISER}": "coreset",
}
#: Rows of the balanced stream.
BALANCED = {
    "Reservoir sampling": "reservoir",
    "Streaming coreset": "coreset",
    "Streaming coreset RBF": "coreset-rbf",
    f"Streaming coreset{COUNTED}": "coreset",
}
#: β tried: everything for the rows that matter most; for the others the published best (1 for most,
#: 10, 100 for k-means of grads) and its neighbours; in continual learning on beyond an end that was
#: best.
EVERY = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
OTHERS = (1.0, 10.0, 100.0)
LOW = (0.01, 0.1, 1.0)
BEST_AT_ONE = (
    "k-means of features",
    "k-means of embeddings",
    "k-center of embeddings",
    "k-center of grads",
    "Max entropy samples",
    "Hardest samples",
    "FRCL's selection",
    "iCaRL's selection",
)
TRIED: dict[str, dict[str, tuple[float, ...]]] = {
    "continual": {
        "Uniform sampling": EVERY,
        "Coreset": EVERY,
        f"Coreset{BY_PROXY}": EVERY,
        "k-means of grads": (*OTHERS, 1000.0),
        "k-center of features": (*OTHERS, 1000.0),
        **dict.fromkeys(BEST_AT_ONE, (0.1, *OTHERS)),
    },
    "imbalanced": {
        "Reservoir": (0.1, *OTHERS),
        "CBRS": (0.1, *OTHERS),
        "Coreset": (*OTHERS, 1000.0),
        f"Coreset{COUNTED}": (0.1, *OTHERS),
        "Coreset RBF": (0.1, *OTHERS),
        f"Reservoir{ONE_OPTIMISER}": LOW,
        f"CBRS{ONE_OPTIMISER}{STREAM_WEIGHTS}": LOW,
        f"Coreset{ONE_OPTIMISER}": (0.1, *OTHERS),
        f"Coreset{BY_PROXY}{ONE_OPTIMISER}": (0.1, *OTHERS),
    },
    "streaming": {"Streaming coreset": (*OTHERS, 1000.0)},
}
#: What the tables of rows that matter most run beside the choice of few epochs, which learn a last
#: task less well than many and so speak for a small β: the authors' best for the coreset. Between
#: the two, held-out points choose at full length.
ALSO: dict[str, dict[str, tuple[float, ...]]] = {
    "continual": {"Uniform sampling": (100.0,), "Coreset": (100.0,)}
}
CHOSEN = Path(__file__).with_name("chosen.json")


def tried(table: str, method: str) -> tuple[float, ...]:
    """The β to try; none where none is rehearsed, and where a row goes with another."""
    if (
        method == "Training w/o replay"
        or method.endswith("at the end")
        or method in {**NORMALISED, **SCALED}
    ):
        return ()
    return TRIED[table].get(method, OTHERS)


def beta_of(table: str, method: str) -> float:
    """The β found on held-out points; not a number while it has not been."""
    found: Mapping[str, float] = _chosen().get(table, {})
    return float(found.get(method.split(", normalised")[0], math.nan))


def betas_of(table: str, method: str) -> tuple[float, ...]:
    """The β that a table runs."""
    return tuple(dict.fromkeys((beta_of(table, method), *ALSO.get(table, {}).get(method, ()))))


def penalty(method: str) -> float:
    """λ of a row: the paper's, but where the proxy is another or its own choice is asked for."""
    if method.endswith(DIRECTIONS):
        return DIRECTIONS_PENALTY
    return float(_chosen().get("penalty", PENALTY)) if BY_PROXY in method else PENALTY


def _chosen() -> dict[str, Any]:
    return dict(json.loads(CHOSEN.read_text())) if CHOSEN.exists() else {}


def choose(
    betas: Mapping[str, Iterable[dict[str, Any]]], penalties: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """For each row whose β have all been tried that of the highest accuracy on held-out points; λ
    of the lowest held-out loss."""
    found: dict[str, Any] = {}
    losses = {float(record["penalty"]): float(np.mean(record["held_loss"])) for record in penalties}
    if losses:
        found["penalty"] = min(losses, key=lambda value: losses[value])
    for table, records in betas.items():
        held: dict[str, dict[float, float]] = {}
        for record in records:
            held.setdefault(record["method"], {})[float(record["beta"])] = float(
                np.mean(record["held"])
            )
        whole = {
            method: scores
            for method, scores in held.items()
            if set(tried(table, method)) <= set(scores)
        }
        if whole:
            found[table] = {
                method: max(scores, key=lambda beta: scores[beta])
                for method, scores in sorted(whole.items())
            }
    return found
