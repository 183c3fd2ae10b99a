"""The rows of every experiment on CIFAR-10, for a seed."""

from __future__ import annotations

from dataclasses import replace

from experiments import cifar, continual, penalties, streaming, summary
from experiments.groups import (
    Group,
    continual_runs,
    penalty_runs,
    published,
    streaming_runs,
    summary_runs,
)

#: The rows of both streams.
STREAMS = {
    "imbalanced": {**streaming.IMBALANCED, **cifar.IMBALANCED_OWN},
    "streaming": cifar.BALANCED,
}


def continual_rows(seed: int) -> list[Group]:
    """The β that ``cifar-betas`` found; of the rows that matter most one more."""
    rows = {**continual.METHODS, **cifar.OWN}
    return [
        continual_runs(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            seed,
            published("continual_learning", method.removesuffix(", normalised"), cifar.DATASET),
            cifar.betas_of("continual", method),
            penalty=cifar.penalty(method),
        )
        for method, word in rows.items()
    ]


def beta_rows(seed: int) -> list[Group]:
    """β on held-out points with one seed and fewer epochs."""
    return [
        continual_runs(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            0,
            None,
            betas,
            cifar.BETA_EPOCHS,
            cifar.penalty(method),
        )
        for method, word in {**continual.METHODS, **cifar.OWN, **cifar.RBF}.items()
        if seed == 0 and (betas := cifar.tried("continual", method))
    ]


def penalty_rows(seed: int) -> list[Group]:
    return (
        [penalty_runs(method, word) for method, word in penalties.METHODS.items()]
        if seed == 0
        else []
    )


def _flow(method: str, imbalanced: bool, fewer: int = 1) -> streaming.Flow:
    steps = cifar.IMBALANCED_STEPS if imbalanced else cifar.BALANCED_STEPS
    slots = 1 if imbalanced else streaming.Flow.slots
    fresh = cifar.ONE_OPTIMISER not in method
    return streaming.Flow(steps // fewer, slots=slots, penalty=cifar.penalty(method), fresh=fresh)


def stream_beta_rows(seed: int) -> list[Group]:
    """The same for the streams, with fewer steps a batch."""
    return [
        streaming_runs(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            0,
            None,
            table == "imbalanced",
            betas,
            _flow(method, table == "imbalanced", cifar.FEWER_STEPS),
        )
        for table, rows in STREAMS.items()
        for method, word in rows.items()
        if seed == 0 and (betas := cifar.tried(table, method))
    ]


def imbalanced_rows(seed: int) -> list[Group]:
    return [
        streaming_runs(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            seed,
            published(
                "imbalanced_streaming", method.removesuffix(streaming.COUNTED), cifar.DATASET
            ),
            True,
            cifar.betas_of("imbalanced", method),
            _flow(method, True),
        )
        for method, word in STREAMS["imbalanced"].items()
    ]


def streaming_rows(seed: int) -> list[Group]:
    """The balanced stream: the paper's negative result; and the RBF kernel, which it says fails."""
    return [
        streaming_runs(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            seed,
            None,
            betas=cifar.betas_of("streaming", method),
            flow=_flow(method, False),
        )
        for method, word in STREAMS["streaming"].items()
    ]


def summary_rows(seed: int) -> list[Group]:
    return [
        summary_runs(method, word, seed, "CIFAR-10") for method, word in summary.METHODS.items()
    ]


def proxy_rows(seed: int) -> list[Group]:
    rows = {"Uniform sampling": "uniform", "Coreset": "coreset", "Coreset RBF": "coreset-rbf"}
    groups = [
        continual_runs(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            seed,
            None,
            cifar.betas_of("continual", method),
            penalty=cifar.penalty(method),
        )
        for method, word in rows.items()
    ]
    return [
        group
        if group.setting.method == "Coreset RBF"
        else replace(group, source=("cifar-continual", group.setting.method))
        for group in groups
    ]
