"""Continual learning with a replay memory (section 6.2, table 1 and the appendix): 16 rows of the
paper, and rows of our own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from bicore import ReplayMemory, Selector
from experiments.checkpoints import Checkpoint, once
from experiments.courses import Course
from experiments.networks import NETWORKS, Network
from experiments.selectors import LAMBDA, FromTheFirst, Noisy, context_of, penalised, selector_of
from experiments.settings import Setting
from experiments.tasks import Task
from experiments.training import EPOCHS, Cohort, Learner, Memory, build, lasting, scores

BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
#: The paper's rows and the method of each; None has no memory. "at the end" trains a fresh network
#: on the memory alone.
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
#: Variants of our own: the squared error in place of the cross-entropy, every point a candidate,
#: weights kept in the memory.
OWN = {
    "Coreset, all candidates": "coreset-all",
    "Coreset, squared error": "coreset-squared",
    "Coreset, weights kept": "coreset-weighted",
}
#: Rows as the authors' code runs them, to find the cause of a difference: networks are looked at
#: with dropout on, gradient matching scales gradients to length 1, and k-center begins with the
#: first point of a task.
TRAPS = {
    "k-means of grads, dropout on": "k-means-gradients",
    "k-center of grads, dropout on": "k-center-gradients",
    "Gradient matching, dropout on, normalised": "gradient-matching",
    "Max entropy samples, dropout on": "max-entropy",
    "Hardest samples, dropout on": "hardest",
    "k-center of features, from the first point": "k-center-features",
}


def setting_of(
    dataset: str, method: str, memory: int, seed: int, betas: Sequence[float] = BETAS
) -> Setting:
    """Every β for a row with a memory that is rehearsed."""
    betas = (
        (0.0,) if method == "Training w/o replay" or method.endswith("at the end") else tuple(betas)
    )
    return Setting(dataset, method, memory, seed, betas, betas[:1], "beta")


def run(
    setting: Setting,
    word: str | None,
    tasks: Sequence[Task],
    betas: Sequence[float],
    device: str,
    epochs: int = EPOCHS,
    network: Callable[[], Network] | None = None,
    checkpoint: Checkpoint | None = None,
    penalty: float = LAMBDA,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each β. A selector that looks at no network chooses once for all of them."""
    begun = time.perf_counter()
    at_end = setting.method.endswith("at the end")
    network = network or NETWORKS[setting.dataset]
    size = setting.memory // len(tasks) * len(tasks) if at_end else len(tasks[0].train)
    learners = Cohort(
        [
            Learner(
                build(network, setting.seed, device),
                beta,
                size,
                setting.memory,
                epochs,
                seed=setting.seed,
            )
            for beta in betas
        ]
    )
    selector = None if word is None else _variant(setting, word, device, penalty)
    memories = [] if selector is None else _memories(setting, word, selector, len(betas))
    course = Course(learners, checkpoint, memories, begun=begun)
    course.resume(lambda path: ReplayMemory.load(path, selector))
    if at_end:
        _train_at_the_end(course, tasks, epochs, device)
    else:
        first = partial(_start, network, setting.seed, tasks[0], device, epochs, checkpoint)
        _train_on_each(course, tasks, epochs, device, first, setting.method in TRAPS)
    spent = {
        **course.spent(len(betas)),
        "epochs": epochs,
        **({"lambda": penalty} if penalised(word) else {}),
    }
    for beta, learner in zip(betas, learners, strict=True):
        yield beta, {**scores(learner.network, tasks, device), **spent}
    course.end()


def _variant(setting: Setting, word: str, device: str, penalty: float) -> Selector:
    """The selector of a row, as its name asks for it."""
    options = {"normalise": True} if setting.method.endswith("normalised") else {}
    selector = selector_of(word, setting.dataset, device, penalty, **options)
    return FromTheFirst(selector) if setting.method.endswith("from the first point") else selector


def _memories(
    setting: Setting, word: str | None, selector: Selector, betas: int
) -> list[ReplayMemory]:
    """One for each β where networks are looked at, otherwise one for all."""
    kept = "learnt" if word == "coreset-weighted" else "equal"
    return [
        ReplayMemory(selector, setting.memory, kept, setting.seed)
        for _ in range(betas if selector.needs_model else 1)
    ]


def _train_on_each(
    course: Course[ReplayMemory],
    tasks: Sequence[Task],
    epochs: int,
    device: str,
    first: Callable[[], dict[str, Tensor]],
    noisy: bool,
) -> None:
    """One task after the other, with rehearsal of those before; all networks begin with what the
    ``first`` has taught."""
    rows = partial(_rows, device=device)
    if course.place.task:
        course.rehearse(rows)
    for number, task in list(enumerate(tasks))[course.place.task :]:
        course.place.task = number
        for learner in course.learners:
            if number == 0:
                learner.network.load_state_dict(first())
            else:
                learner.take(*lasting(task.train, device))
            if not course.place.epochs:
                learner.restart()
        course.train(epochs if number else 0)
        _remember(course, task, device, noisy)
        course.rehearse(rows)


def _train_at_the_end(
    course: Course[ReplayMemory], tasks: Sequence[Task], epochs: int, device: str
) -> None:
    """Choose from all tasks, then train on the memory alone."""
    for task in tasks[course.place.task :]:
        _remember(course, task, device)
    course.place.task = len(tasks)
    rows = _rows(course.kept[0], device)
    for learner in course.learners:
        learner.take(rows.x, rows.y)
    course.train(epochs)


def _remember(course: Course[ReplayMemory], task: Task, device: str, noisy: bool = False) -> None:
    """Let every memory choose from a task; what looks at networks sees them as they are now."""
    with course.choosing():
        for memory, learner in zip(course.kept, course.learners, strict=False):
            seen = (
                None
                if not memory.selector.needs_model
                else Noisy(learner.network)
                if noisy
                else learner.network.eval()
            )
            memory.add_task(
                task.train.x, task.train.y, context=context_of(memory.selector, seen, device)
            )


def _start(
    network: Callable[[], Network],
    seed: int,
    task: Task,
    device: str,
    epochs: int,
    checkpoint: Checkpoint | None,
) -> dict[str, Tensor]:
    if checkpoint is None or checkpoint.start is None:
        return started(network, seed, task, device, epochs)
    within = replace(checkpoint, folder=checkpoint.start.with_suffix(""), start=None)
    return once(checkpoint.start, lambda: _first(network, seed, task, device, epochs, within))


@lru_cache(maxsize=4)
def started(
    network: Callable[[], Network], seed: int, task: Task, device: str, epochs: int
) -> dict[str, Tensor]:
    """The network after the first task. No memory and no β have a part in it: every row of a seed
    goes on from here."""
    return _first(network, seed, task, device, epochs)


def _first(
    network: Callable[[], Network],
    seed: int,
    task: Task,
    device: str,
    epochs: int,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    learner = Learner(build(network, seed, device), 0.0, len(task.train), 1, epochs, seed=seed)
    learner.take(*lasting(task.train, device))
    course: Course[ReplayMemory] = Course(Cohort([learner]), checkpoint)
    # the same whether or not it was made before
    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):
        torch.manual_seed(seed)
        course.resume()
        course.train(epochs)
    course.end()
    return {name: value.clone() for name, value in learner.network.state_dict().items()}


def _rows(memory: ReplayMemory, device: str) -> Memory:
    x, y, weight = memory.tensors()
    return Memory(x.float().to(device), y.to(device), (weight / len(weight)).float().to(device))
