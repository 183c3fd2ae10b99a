"""The rows of every experiment on MNIST, for a seed."""

from __future__ import annotations

from dataclasses import replace

from experiments import continual, picks, runtime, streaming, summary, variational
from experiments.groups import (
    PAPER,
    Group,
    continual_runs,
    picks_runs,
    published,
    runtime_runs,
    streaming_runs,
    summary_runs,
    variational_runs,
)

DATASETS = ("PermMNIST", "SplitMNIST")


def continual_rows(seed: int) -> list[Group]:
    rows = {**continual.METHODS, **continual.OWN}
    return [
        continual_runs(
            dataset, method, word, 100, seed, published("continual_learning", method, dataset)
        )
        for dataset in DATASETS
        for method, word in rows.items()
    ]


def trap_rows(seed: int) -> list[Group]:
    return [
        continual_runs(
            dataset,
            method,
            word,
            100,
            seed,
            published("continual_learning", method.split(",")[0], dataset),
        )
        for dataset in DATASETS
        for method, word in continual.TRAPS.items()
    ]


def memory_rows(seed: int) -> list[Group]:
    rows = {
        "CL uniform sampling": (continual_runs, "uniform", ("continual", "Uniform sampling")),
        "CL coreset": (continual_runs, "coreset", ("continual", "Coreset")),
        "Streaming reservoir sampling": (
            streaming_runs,
            "reservoir",
            ("streaming", "Reservoir sampling"),
        ),
        "Streaming coreset": (streaming_runs, "coreset", ("streaming", "Streaming coreset")),
    }
    groups = []
    for memory in (50, 100, 200):
        for method, (kind, word, source) in rows.items():
            paper = PAPER["memory_size_splitmnist"][method].get(str(memory))
            group = kind("SplitMNIST", method, word, memory, seed, paper)
            groups.append(replace(group, source=source) if memory == 100 else group)
    return groups


def proxy_rows(seed: int) -> list[Group]:
    """The RBF kernel beside the network's own in three settings; all but one row are runs of the
    other tables."""
    groups = []
    for dataset in DATASETS:
        tables = (
            (
                "CL",
                continual_runs(dataset, "", "coreset-rbf", 100, seed, None),
                "continual",
                "Coreset",
            ),
            ("VCL", variational_runs(dataset, "", "coreset-rbf", seed, None), "vcl", "Coreset"),
            (
                "Streaming",
                streaming_runs(dataset, "", "coreset-rbf", 100, seed, None),
                "streaming",
                "Streaming coreset",
            ),
        )
        for name, group, source, row in tables:
            table = {"continual": "continual_learning"}.get(source, source)
            own = replace(group.setting, method=f"{name} Coreset CNTK")
            rbf = replace(group.setting, method=f"{name} Coreset RBF")
            groups.append(
                replace(
                    group, setting=own, paper=published(table, row, dataset), source=(source, row)
                )
            )
            if name == "CL":
                groups.append(
                    replace(group, setting=rbf, paper=published("rbf_proxy", rbf.method, dataset))
                )
            else:
                told = published(table, f"{row} RBF", dataset)
                groups.append(
                    replace(group, setting=rbf, paper=told, source=(source, f"{row} RBF"))
                )
    return groups


def variational_rows(seed: int) -> list[Group]:
    return [
        variational_runs(dataset, method, word, seed, published("vcl", method, dataset))
        for dataset in DATASETS
        for method, word in {**variational.METHODS, **variational.OWN}.items()
    ]


def streaming_rows(seed: int) -> list[Group]:
    rows = {**streaming.METHODS, **streaming.OWN}
    return [
        streaming_runs(dataset, method, word, 100, seed, published("streaming", method, dataset))
        for dataset in DATASETS
        for method, word in rows.items()
    ]


def fresh_rows(seed: int) -> list[Group]:
    flow = streaming.Flow(fresh=True)
    return [
        streaming_runs(
            dataset,
            method,
            word,
            100,
            seed,
            published("streaming", method.split(",")[0], dataset),
            flow=flow,
        )
        for dataset in DATASETS
        for method, word in streaming.FRESH.items()
    ]


def imbalanced_rows(seed: int) -> list[Group]:
    return [
        streaming_runs(
            "SplitMNIST",
            method,
            word,
            100,
            seed,
            published("imbalanced_streaming", method, "SplitMNIST"),
            imbalanced=True,
        )
        for method, word in {**streaming.IMBALANCED, **streaming.IMBALANCED_OWN}.items()
    ]


def imbalanced_fresh_rows(seed: int) -> list[Group]:
    flow = streaming.Flow(slots=1, penalty=streaming.IMBALANCED_LAMBDA, fresh=True)
    return [
        streaming_runs(
            "SplitMNIST",
            f"{method}{streaming.FRESH_WORDS}",
            word,
            100,
            seed,
            published("imbalanced_streaming", method, "SplitMNIST"),
            imbalanced=True,
            flow=flow,
        )
        for method, word in streaming.IMBALANCED.items()
    ]


def summary_rows(seed: int) -> list[Group]:
    return [
        summary_runs(method, word, seed)
        for method, word in {**summary.METHODS, **summary.OWN}.items()
    ]


def runtime_rows(seed: int) -> list[Group]:
    return [runtime_runs(method) for method in runtime.METHODS] if seed == 0 else []


def picks_rows(seed: int) -> list[Group]:
    return [picks_runs(method, seed) for method in picks.METHODS]
