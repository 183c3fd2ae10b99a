"""Every experiment of the paper: its rows, its data, how it is run, and what the paper reports."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore import InputError
from experiments import cifar, continual, penalties, picks, runtime, streaming, summary, tasks, training, variational
from experiments.checkpoints import Checkpoint, checkpoint_folder
from experiments.networks import NORMALISED, TOYS
from experiments.settings import Setting
from experiments.tasks import Part, Task

PAPER: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text())
DATASETS = ("PermMNIST", "SplitMNIST")
#: What a toy has less of: rows of memory, rows a batch of a stream, points a task.
QUICK_SHARE, QUICK_BATCH, QUICK_POINTS = 10, 24, 36
#: Data sets whose runs are long enough to be kept in the middle of a task, every so many epochs.
LONG, CHECKPOINT_EPOCHS = (cifar.DATASET,), 100
Number = dict[str, float]
Results = Iterator[tuple[float, dict[str, Any]]]


@dataclass(frozen=True)
class Group:
    """Runs that share everything but β: a setting, and a function that gives the result of each β asked for.

    ``source`` names the experiment and the method under which these very runs are recorded already.
    """

    setting: Setting
    run: Callable[[Setting, Sequence[Task], Sequence[float], str, bool], Results]
    tasks: str
    paper: Number | None
    source: tuple[str, str] | None = None


@dataclass(frozen=True)
class Experiment:
    """One table of the paper."""

    name: str
    title: str
    groups: Callable[[int], list[Group]]  # of a seed


def _continual(
    dataset: str, method: str, word: str | None, memory: int, seed: int, paper: Number | None,
    betas: Sequence[float] = continual.BETAS, epochs: int = training.EPOCHS, penalty: float = continual.LAMBDA,
) -> Group:  # fmt: skip
    setting = _with_quick(continual.setting_of(dataset, method, memory, seed, betas))

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        if quick:
            return continual.run(setting, word, made, betas, device, 1, TOYS[dataset])
        normalised = "normalised network" in method
        checkpoint = _checkpoint(setting, epochs, normalised, penalty) if dataset in LONG else None
        network = NORMALISED[dataset] if normalised else None
        return continual.run(setting, word, made, betas, device, epochs, network, checkpoint, penalty)

    return Group(setting, run, dataset, paper)


def _with_quick(setting: Setting) -> Setting:
    """A toy needs a β even where none has been chosen."""
    return replace(setting, quick=(1.0,)) if math.isnan(setting.betas[0]) else setting


def _checkpoint(setting: Setting, epochs: int, normalised: bool, penalty: float) -> Checkpoint:
    """Beside nothing that is kept: a folder of this run for as long as it lasts, and what all runs of a seed begin with."""
    kind = f"{epochs}-{'fast' if training.FAST else 'float32'}"
    name = f"{setting.dataset}-{setting.method}-{setting.memory}-{setting.seed}-{penalty:g}-{kind}".replace(" ", "-")
    start = f"start-{setting.dataset}-{'normalised-' * normalised}{setting.seed}-{kind}.pt"
    folder = checkpoint_folder()
    return Checkpoint(folder / name, CHECKPOINT_EPOCHS, folder / start)


def _streaming(
    dataset: str, method: str, word: str, memory: int, seed: int, paper: Number | None, imbalanced: bool = False,
    betas: Sequence[float] = streaming.BETAS, flow: streaming.Flow | None = None,
) -> Group:  # fmt: skip
    setting = _with_quick(streaming.setting_of(dataset, method, memory, seed, betas))
    if flow is None:
        flow = streaming.Flow(slots=1, penalty=streaming.IMBALANCED_LAMBDA) if imbalanced else streaming.Flow()

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        if quick:
            toy = replace(flow, steps=1, rows=QUICK_BATCH)
            return streaming.run(setting, word, made, betas, device, toy, 1, TOYS[dataset])
        return streaming.run(setting, word, made, betas, device, flow)

    return Group(setting, run, f"{dataset} imbalanced" if imbalanced else dataset, paper)


def _variational(dataset: str, method: str, word: str, seed: int, paper: Number | None) -> Group:
    setting = variational.setting_of(dataset, method, seed)

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        return variational.run(setting, word, made, betas, device, 1 if quick else None)

    return Group(setting, run, dataset, paper)


def _summary(method: str, word: str, seed: int, dataset: str = "MNIST") -> Group:
    setting, recipe = summary.setting_of(method, seed, dataset), summary.RECIPES[dataset]
    if cifar.BY_PROXY in method:
        recipe = replace(recipe, penalty=cifar.penalty(method))
    if method.endswith(cifar.LARGE_BATCHES):
        recipe = replace(recipe, batch=training.BATCH, starts=1)
    toy = replace(recipe, epochs=6, rows=0, network=TOYS[f"Split{dataset}"])

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        return summary.run(setting, word, made, betas, device, made[1].train, toy if quick else recipe)

    return Group(setting, run, f"pool of {dataset}", None)


def _runtime(method: str) -> Group:
    setting = runtime.setting_of(method)

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        return runtime.run(setting, made, device, *(((5,), 12) if quick else ()))

    return Group(setting, run, "pool of MNIST", None)


def _penalty(method: str, word: str) -> Group:
    setting = penalties.setting_of(cifar.DATASET, method)

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        return penalties.run(setting, word, made, betas, device)

    return Group(setting, run, cifar.DATASET, None)


def _picks(method: str, seed: int) -> Group:
    setting = picks.setting_of(method, seed)

    def run(setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool) -> Results:
        return picks.run(setting, made, device)

    return Group(setting, run, "pool of MNIST", None)


def _table(name: str, method: str, dataset: str) -> Number | None:
    found: Number | None = PAPER[name].get(method, {}).get(dataset)
    return found


def _continual_groups(seed: int) -> list[Group]:
    rows = {**continual.METHODS, **continual.OWN}
    return [
        _continual(dataset, method, word, 100, seed, _table("continual_learning", method, dataset))
        for dataset in DATASETS
        for method, word in rows.items()
    ]


def _trap_groups(seed: int) -> list[Group]:
    return [
        _continual(dataset, method, word, 100, seed, _table("continual_learning", method.split(",")[0], dataset))
        for dataset in DATASETS
        for method, word in continual.TRAPS.items()
    ]


def _memory_groups(seed: int) -> list[Group]:
    rows = {
        "CL uniform sampling": (_continual, "uniform", ("continual", "Uniform sampling")),
        "CL coreset": (_continual, "coreset", ("continual", "Coreset")),
        "Streaming reservoir sampling": (_streaming, "reservoir", ("streaming", "Reservoir sampling")),
        "Streaming coreset": (_streaming, "coreset", ("streaming", "Streaming coreset")),
    }
    groups = []
    for memory in (50, 100, 200):
        for method, (kind, word, source) in rows.items():
            paper = PAPER["memory_size_splitmnist"][method].get(str(memory))
            group = kind("SplitMNIST", method, word, memory, seed, paper)
            groups.append(replace(group, source=source) if memory == 100 else group)
    return groups


def _proxy_groups(seed: int) -> list[Group]:
    """The RBF kernel beside the network's own in three settings; all but one row are runs of the other tables."""
    groups = []
    for dataset in DATASETS:
        tables = (
            ("CL", _continual(dataset, "", "coreset-rbf", 100, seed, None), "continual", "Coreset"),
            ("VCL", _variational(dataset, "", "coreset-rbf", seed, None), "vcl", "Coreset"),
            ("Streaming", _streaming(dataset, "", "coreset-rbf", 100, seed, None), "streaming", "Streaming coreset"),
        )
        for name, group, source, row in tables:
            table = {"continual": "continual_learning"}.get(source, source)
            own, rbf = replace(group.setting, method=f"{name} Coreset CNTK"), replace(group.setting, method=f"{name} Coreset RBF")
            groups.append(replace(group, setting=own, paper=_table(table, row, dataset), source=(source, row)))
            if name == "CL":
                groups.append(replace(group, setting=rbf, paper=_table("rbf_proxy", rbf.method, dataset)))
            else:
                told = _table(table, f"{row} RBF", dataset)
                groups.append(replace(group, setting=rbf, paper=told, source=(source, f"{row} RBF")))
    return groups


def _variational_groups(seed: int) -> list[Group]:
    return [
        _variational(dataset, method, word, seed, _table("vcl", method, dataset))
        for dataset in DATASETS
        for method, word in {**variational.METHODS, **variational.OWN}.items()
    ]


def _streaming_groups(seed: int) -> list[Group]:
    rows = {**streaming.METHODS, **streaming.OWN}
    return [
        _streaming(dataset, method, word, 100, seed, _table("streaming", method, dataset))
        for dataset in DATASETS
        for method, word in rows.items()
    ]


def _fresh_groups(seed: int) -> list[Group]:
    flow = streaming.Flow(fresh=True)
    return [
        _streaming(dataset, method, word, 100, seed, _table("streaming", method.split(",")[0], dataset), flow=flow)
        for dataset in DATASETS
        for method, word in streaming.FRESH.items()
    ]


def _imbalanced_groups(seed: int) -> list[Group]:
    return [
        _streaming("SplitMNIST", method, word, 100, seed, _table("imbalanced_streaming", method, "SplitMNIST"), imbalanced=True)
        for method, word in {**streaming.IMBALANCED, **streaming.IMBALANCED_OWN}.items()
    ]


def _imbalanced_fresh_groups(seed: int) -> list[Group]:
    flow = streaming.Flow(slots=1, penalty=streaming.IMBALANCED_LAMBDA, fresh=True)
    return [
        _streaming(
            "SplitMNIST", f"{method}{streaming.FRESH_WORDS}", word, 100, seed,
            _table("imbalanced_streaming", method, "SplitMNIST"), imbalanced=True, flow=flow,
        )
        for method, word in streaming.IMBALANCED.items()
    ]  # fmt: skip


def _summary_groups(seed: int) -> list[Group]:
    return [_summary(method, word, seed) for method, word in {**summary.METHODS, **summary.OWN}.items()]


def _runtime_groups(seed: int) -> list[Group]:
    return [_runtime(method) for method in runtime.METHODS] if seed == 0 else []


def _picks_groups(seed: int) -> list[Group]:
    return [_picks(method, seed) for method in picks.METHODS]


def _cifar_continual_groups(seed: int) -> list[Group]:
    """One β a row: the one that ``cifar-betas`` found."""
    rows = {**continual.METHODS, **cifar.OWN}
    return [
        _continual(
            cifar.DATASET, method, word, cifar.MEMORY, seed, _table("continual_learning", method, cifar.DATASET),
            (cifar.beta_of("continual", method),), penalty=cifar.penalty(method),
        )
        for method, word in rows.items()
    ]  # fmt: skip


def _cifar_beta_groups(seed: int) -> list[Group]:
    """β on held-out points with one seed and fewer epochs."""
    return [
        _continual(cifar.DATASET, method, word, cifar.MEMORY, 0, None, betas, cifar.BETA_EPOCHS, cifar.penalty(method))
        for method, word in {**continual.METHODS, **cifar.OWN, **cifar.RBF}.items()
        if seed == 0 and (betas := cifar.tried("continual", method))
    ]


def _cifar_penalty_groups(seed: int) -> list[Group]:
    return [_penalty(method, word) for method, word in penalties.METHODS.items()] if seed == 0 else []


def _cifar_flow(method: str, imbalanced: bool, fewer: int = 1) -> streaming.Flow:
    steps = cifar.IMBALANCED_STEPS if imbalanced else cifar.BALANCED_STEPS
    slots = 1 if imbalanced else streaming.Flow.slots
    fresh = cifar.ONE_OPTIMISER not in method
    return streaming.Flow(steps // fewer, slots=slots, penalty=cifar.penalty(method), fresh=fresh)


def _cifar_stream_beta_groups(seed: int) -> list[Group]:
    """The same for the streams, with fewer steps a batch."""
    tables = (("imbalanced", {**streaming.IMBALANCED, **cifar.IMBALANCED_OWN}), ("streaming", cifar.BALANCED))
    return [
        _streaming(
            cifar.DATASET, method, word, cifar.MEMORY, 0, None, table == "imbalanced", betas,
            _cifar_flow(method, table == "imbalanced", cifar.FEWER_STEPS),
        )
        for table, rows in tables
        for method, word in rows.items()
        if seed == 0 and (betas := cifar.tried(table, method))
    ]  # fmt: skip


def _cifar_imbalanced_groups(seed: int) -> list[Group]:
    rows = {**streaming.IMBALANCED, **cifar.IMBALANCED_OWN}
    return [
        _streaming(
            cifar.DATASET, method, word, cifar.MEMORY, seed, _table("imbalanced_streaming", method, cifar.DATASET), True,
            (cifar.beta_of("imbalanced", method),), _cifar_flow(method, True),
        )
        for method, word in rows.items()
    ]  # fmt: skip


def _cifar_streaming_groups(seed: int) -> list[Group]:
    """The balanced stream: the paper's negative result; and the RBF kernel, which it says fails."""
    return [
        _streaming(
            cifar.DATASET, method, word, cifar.MEMORY, seed, None, betas=(cifar.beta_of("streaming", method),),
            flow=_cifar_flow(method, False),
        )
        for method, word in cifar.BALANCED.items()
    ]  # fmt: skip


def _cifar_summary_groups(seed: int) -> list[Group]:
    return [_summary(method, word, seed, "CIFAR-10") for method, word in {**summary.METHODS, **cifar.SUMMARY_OWN}.items()]


def _cifar_proxy_groups(seed: int) -> list[Group]:
    rows = {"Uniform sampling": "uniform", "Coreset": "coreset", "Coreset RBF": "coreset-rbf"}
    groups = [
        _continual(
            cifar.DATASET,
            method,
            word,
            cifar.MEMORY,
            seed,
            None,
            (cifar.beta_of("continual", method),),
            penalty=cifar.penalty(method),
        )
        for method, word in rows.items()
    ]
    return [
        group if group.setting.method == "Coreset RBF" else replace(group, source=("cifar-continual", group.setting.method))
        for group in groups
    ]


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("continual", "Continual learning with a memory of 100 (table 1 and the appendix)", _continual_groups),
        Experiment("traps", "Continual learning, rivals as the authors' code runs them", _trap_groups),
        Experiment("memory", "Memory sizes on SplitMNIST", _memory_groups),
        Experiment("proxy", "An RBF kernel as the proxy", _proxy_groups),
        Experiment("vcl", "Variational continual learning, 20 points a task", _variational_groups),
        Experiment("streaming", "Streams with a memory of 100 (figure 4)", _streaming_groups),
        Experiment("streaming-fresh", "Streams with a fresh optimiser a batch, as the authors' code has it", _fresh_groups),
        Experiment("imbalanced", "An imbalanced stream of SplitMNIST", _imbalanced_groups),
        Experiment("imbalanced-fresh", "The imbalanced stream with a fresh optimiser a batch", _imbalanced_fresh_groups),
        Experiment("summary", "MNIST in 75 … 250 points for the CNN (figure 3a)", _summary_groups),
        Experiment("picks", "The 40 picks of figure 5 and what the paper says of them", _picks_groups),
        Experiment("runtime", "Seconds of kernels and coresets of 1000 points", _runtime_groups),
        Experiment("cifar-penalty", "SplitCIFAR-10: λ by the proxy's held-out loss", _cifar_penalty_groups),
        Experiment("cifar-betas", "SplitCIFAR-10: β by held-out points, one seed, fewer epochs", _cifar_beta_groups),
        Experiment("cifar-stream-betas", "Streams of SplitCIFAR-10: β by held-out points, fewer steps", _cifar_stream_beta_groups),
        Experiment("cifar-imbalanced", "An imbalanced stream of SplitCIFAR-10", _cifar_imbalanced_groups),
        Experiment("cifar-continual", "Continual learning on SplitCIFAR-10 with a memory of 200", _cifar_continual_groups),
        Experiment("cifar-streaming", "A balanced stream of SplitCIFAR-10", _cifar_streaming_groups),
        Experiment("cifar-summary", "CIFAR-10 in 30 … 210 points for the ResNet-18 (figure 3c)", _cifar_summary_groups),
        Experiment("cifar-proxy", "An RBF kernel as the proxy on SplitCIFAR-10", _cifar_proxy_groups),
    )
}


class Data:
    """The tasks of each kind, made once."""

    def __init__(self, folder: str | None, quick: bool) -> None:
        self.folder, self.quick = None if quick else folder, quick
        if self.folder is not None and not any((Path(self.folder) / name).exists() for name in ("MNIST", "cifar-10-batches-py")):
            raise InputError(f"{self.folder} holds neither MNIST nor cifar-10-batches-py; give the folder that torchvision fills.")
        self._made: dict[str, list[Task]] = {}
        self._loaded: dict[str, tuple[Part, Part]] = {}

    def tasks(self, kind: str) -> list[Task]:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _source(self, name: str) -> tuple[Part, Part]:
        if name not in self._loaded:
            train, test = tasks.load(self.folder, name)
            self._loaded[name] = (train, test[:60] if self.quick else test)
        return self._loaded[name]

    def _make(self, kind: str) -> list[Task]:
        few = QUICK_POINTS
        train, test = self._source("CIFAR-10" if "CIFAR" in kind else "MNIST")
        if kind in (*DATASETS, cifar.DATASET):
            make = tasks.permuted if kind == "PermMNIST" else tasks.split
            return make(train, test, 2, few) if self.quick else make(train, test)
        if kind.startswith("pool"):  # a pool, what is held out, and behind it a task of everything else
            size, rest = (few, 2 * few) if self.quick else (summary.POOL, summary.POOL + tasks.POINTS)
            held = train[size:rest] if self.quick else train[summary.POOL : rest]
            whole = Part(np.concatenate([train.x[:size], train.x[rest:]]), np.concatenate([train.y[:size], train.y[rest:]]))
            return [Task(train[:size], held, test), Task(whole, held, test)]
        return tasks.split(train, test, 2, (few // 2, 2 * few)) if self.quick else tasks.split(train, test, points=tasks.IMBALANCED)
