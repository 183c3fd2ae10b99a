"""Continual learning with a replay memory (section 6.2, table 1 and the appendix): 16 rows of the paper, and rows of our own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bicore import BilevelSelector, Context, Coreset, Dataset, PerPoint, ReplayMemory, Runtime, Selector
from bicore.representations import observe
from bicore.selection import as_selector
from experiments.checkpoints import Checkpoint, Place, once, train_on
from experiments.networks import NETWORKS, Network
from experiments.proxies import proxy
from experiments.settings import Setting
from experiments.tasks import Task
from experiments.training import EPOCHS, Cohort, Learner, Memory, build, lasting, scores

BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
#: The paper's λ, in its per-point form, and its candidates a step.
LAMBDA, CANDIDATES = 1e-3, {"PermMNIST": 200, "SplitMNIST": 200, "SplitCIFAR-10": 600}

#: The paper's rows and the method of each; None has no memory. "at the end" trains a fresh network on the memory alone.
METHODS: dict[str, str | None] = {
    "Training w/o replay": None,
    "Uniform sampling, train at the end": "uniform",
    "Per task coreset, train at the end": "coreset",
    "Uniform sampling": "uniform",
    "k-means of features": "k-means-features",
    "k-means of embeddings": "k-means-embedding",
    "k-means of grads": "k-means-gradients",
    "k-center of features": "k-center-features",
    "k-center of embeddings": "k-center-embedding",
    "k-center of grads": "k-center-gradients",
    "Gradient matching": "gradient-matching",
    "Max entropy samples": "max-entropy",
    "Hardest samples": "hardest",
    "FRCL's selection": "frcl",
    "iCaRL's selection": "icarl",
    "Coreset": "coreset",
}
#: Variants of our own: the squared error in place of the cross-entropy, every point a candidate, weights kept in the memory.
OWN = {
    "Coreset, all candidates": "coreset-all",
    "Coreset, squared error": "coreset-squared",
    "Coreset, weights kept": "coreset-weighted",
}
#: Rows as the authors' code runs them, to find the cause of a difference: networks are looked at with dropout on, gradient matching
#: scales gradients to length 1, and k-center begins with the first point of a task.
TRAPS = {
    "k-means of grads, dropout on": "k-means-gradients",
    "k-center of grads, dropout on": "k-center-gradients",
    "Gradient matching, dropout on, normalised": "gradient-matching",
    "Max entropy samples, dropout on": "max-entropy",
    "Hardest samples, dropout on": "hardest",
    "k-center of features, from the first point": "k-center-features",
}


@dataclass(frozen=True)
class FromTheFirst(Selector):
    """A selector that is given the first row to begin with."""

    selector: Selector

    @property
    def needs_model(self) -> bool:
        return self.selector.needs_model

    @property
    def needs_labels(self) -> bool:
        return self.selector.needs_labels

    @property
    def ordered(self) -> bool:
        return self.selector.ordered

    def select(self, data: Dataset, size: int | float | str, **options: Any) -> Coreset:
        return self.selector.select(data, size, **{**options, "initial": [0]})


@dataclass(frozen=True)
class OverEmbedding(Selector):
    """A selector whose points are what the current network makes of them in front of its last layer; or their directions alone."""

    selector: Selector
    directions: bool = False

    needs_model = True
    needs_labels = True

    def select(self, data: Dataset, size: int | float | str, *, context: Context | None = None, **options: Any) -> Coreset:
        assert context is not None
        embedding = observe(context.model, data.x).embedding.double().cpu().numpy()
        if self.directions:
            embedding = embedding / np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), np.finfo(float).tiny)
        seen = Dataset(embedding, data.y, data.weight, data.ids)
        runtime = Runtime("cpu", threads=1, progress=False)
        return self.selector.select(seen, size, context=Context(runtime=runtime), **options)


def setting_of(dataset: str, method: str, memory: int, seed: int, betas: Sequence[float] = BETAS) -> Setting:
    """Every β for a row with a memory that is rehearsed."""
    betas = (0.0,) if method == "Training w/o replay" or method.endswith("at the end") else tuple(betas)
    return Setting(dataset, method, memory, seed, betas, betas[:1], "beta")


def penalised(word: str | None) -> bool:
    """Whether a row's proxy has the paper's λ; squared errors have the library's own regulariser."""
    return word is not None and word.startswith("coreset") and word not in ("coreset-squared", "coreset-embedding")


def selector_of(word: str, dataset: str, device: str, penalty: float = LAMBDA, **options: Any) -> Selector:
    """The selector of a row. Coresets use the kernel of the network that is trained, or an RBF; ``penalty`` is the paper's λ."""
    if not word.startswith("coreset"):
        return as_selector(word, **options)
    if word == "coreset-embedding":
        return OverEmbedding(BilevelSelector(kernel="linear"))
    kernel = "linear" if word == "coreset-directions" else proxy(dataset, word, device)
    if word == "coreset-squared":
        return BilevelSelector(kernel=kernel)
    candidates = None if word == "coreset-all" else CANDIDATES[dataset]
    weights = "final" if word == "coreset-weighted" else "binary"
    selector = BilevelSelector(
        kernel=kernel, loss="cross-entropy", inner_reg=PerPoint(penalty), candidates=candidates, first="random", weights=weights
    )
    return OverEmbedding(selector, directions=True) if word == "coreset-directions" else selector


def context_of(selector: Selector | None, model: nn.Module | None, device: str) -> Context:
    """Selections by a kernel run on the host (see :mod:`experiments.proxies`), those that look at a network where it lies."""
    place = "cpu" if isinstance(selector, BilevelSelector) else device
    return Context(model, Runtime(place, threads=1, progress=False), classes=range(10))


def run(
    setting: Setting, word: str | None, tasks: Sequence[Task], betas: Sequence[float], device: str, epochs: int = EPOCHS,
    network: Callable[[], Network] | None = None, checkpoint: Checkpoint | None = None, penalty: float = LAMBDA,
) -> Iterator[tuple[float, dict[str, Any]]]:  # fmt: skip
    """Results for each β. A selector that looks at no network chooses once for all of them."""
    start, at_end, points = time.perf_counter(), setting.method.endswith("at the end"), len(tasks[0].train)
    size = setting.memory // len(tasks) * len(tasks) if at_end else points
    network = network or NETWORKS[setting.dataset]
    learners = Cohort(
        [Learner(build(network, setting.seed, device), beta, size, setting.memory, epochs, seed=setting.seed) for beta in betas]
    )
    selector = None if word is None else _variant(setting, word, device, penalty)
    noisy = setting.method in TRAPS
    kept = "learnt" if word == "coreset-weighted" else "equal"
    shared = selector is None or not selector.needs_model
    memories = (
        [ReplayMemory(selector, setting.memory, kept, setting.seed) for _ in betas[: 1 if shared else None]] if selector else []
    )
    place = Place()
    if checkpoint is not None and not at_end:
        place = checkpoint.restore(learners.learners, memories, lambda path: ReplayMemory.load(path, selector))
        _rehearse(learners, memories if place.task else [], shared, device)
    start -= place.seconds
    for number, task in list(enumerate(tasks))[place.task :]:
        if number == 0 and not at_end:
            for learner in learners:
                learner.network.load_state_dict(_start(network, setting.seed, task, device, epochs, checkpoint))
        elif not at_end:
            for learner in learners:
                learner.take(*lasting(task.train, device))
                if not place.epochs:
                    learner.restart()
            place.task = number
            train_on(learners, place, start, epochs, memories, checkpoint)
            place.epochs = 0
        begin = time.perf_counter()
        for which, memory in enumerate(memories):
            module = learners.learners[which].network
            model = None if shared else Noisy(module) if noisy else module.eval()
            memory.add_task(task.train.x, task.train.y, context=context_of(selector, model, device))
        place.picking += time.perf_counter() - begin
        _rehearse(learners, [] if at_end else memories, shared, device)
    if at_end:
        rows = _rows(memories[0], device)
        for learner in learners:
            learner.take(rows.x, rows.y)
        learners.train(epochs)
    spent = {"seconds": (time.perf_counter() - start) / len(betas), "selection_seconds": place.picking / len(betas)}
    spent |= {
        "epochs": epochs,
        "precision": learners.precision,
        **({"lambda": penalty} if penalised(word) else {}),
    }
    for beta, learner in zip(betas, learners, strict=True):
        yield beta, {**scores(learner.network, tasks, device), **spent}
    if checkpoint is not None:
        checkpoint.remove()


def _variant(setting: Setting, word: str, device: str, penalty: float) -> Selector:
    """The selector of a row, as its name asks for it."""
    options = {"normalise": True} if setting.method.endswith("normalised") else {}
    selector = selector_of(word, setting.dataset, device, penalty, **options)
    return FromTheFirst(selector) if setting.method.endswith("from the first point") else selector


def _rehearse(learners: Cohort[Learner], memories: Sequence[ReplayMemory], shared: bool, device: str) -> None:
    for place, learner in enumerate(learners if memories else ()):
        learner.rehearse(_rows(memories[0 if shared else place], device))


class Noisy(nn.Module):
    """A network whose dropout cannot be switched off."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def train(self, mode: bool = True) -> Noisy:
        super().train(True)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


def _start(
    network: Callable[[], Network], seed: int, task: Task, device: str, epochs: int, checkpoint: Checkpoint | None
) -> dict[str, Tensor]:
    if checkpoint is None or checkpoint.start is None:
        return started(network, seed, task, device, epochs)
    return once(checkpoint.start, lambda: started(network, seed, task, device, epochs))


@lru_cache(maxsize=4)
def started(network: Callable[[], Network], seed: int, task: Task, device: str, epochs: int) -> dict[str, Tensor]:
    """The network after the first task. No memory and no β have a part in it: every row of a seed goes on from here."""
    learner = Learner(build(network, seed, device), 0.0, len(task.train), 1, epochs, seed=seed)
    learner.take(*lasting(task.train, device))
    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):  # the same whether or not it was made before
        torch.manual_seed(seed)
        Cohort([learner]).train(epochs)
    return {name: value.clone() for name, value in learner.network.state_dict().items()}


def _rows(memory: ReplayMemory, device: str) -> Memory:
    x, y, weight = memory.tensors()
    return Memory(x.float().to(device), y.to(device), (weight / len(weight)).float().to(device))
