"""Streams (section 6.3, figure 4, and the imbalanced ones): batches of 125, 40 steps each, with a
buffer that is rehearsed.

The weights of a buffer's rows add up to 1. Rows of coresets and prototypes count for as much of the
stream as they stand for, those of reservoirs equally. The paper scales a slot's loss by its count
of batches: its β for a merge-reduce buffer and ours differ by the number of batches seen, but in
the rows that weigh slots as it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore import MergeReduce
from bicore.memory import Buffer, ClassBalancedReservoir, GradientSampling, Prototypes, Reservoir
from experiments.checkpoints import Checkpoint
from experiments.continual import BETAS
from experiments.courses import Course
from experiments.networks import NETWORKS, Network
from experiments.selectors import LAMBDA, context_of, penalised, selector_of
from experiments.settings import Setting
from experiments.tasks import BATCH, Part, Task, batches
from experiments.training import EPOCHS, Cohort, Learner, Memory, build, scores, tensors

METHODS = {
    "Train on coreset only": "coreset",
    "Reservoir sampling": "reservoir",
    "GSS (Aljundi et al. 2019)": "gss",
    "ExStream": "exstream",
    "Streaming coreset": "coreset",
    "Streaming coreset RBF": "coreset-rbf",
}
OWN = {
    "Streaming coreset, squared error": "coreset-squared",
    "Streaming coreset, weights kept": "coreset-weighted",
}
IMBALANCED = {"Reservoir": "reservoir", "CBRS": "cbrs", "Coreset": "coreset"}
#: A class-balanced reservoir that is rehearsed in the proportions of the stream.
STREAM_WEIGHTS = ", weights of the stream"
IMBALANCED_OWN = {
    "Coreset, squared error": "coreset-squared",
    "Coreset, weights kept": "coreset-weighted",
    f"CBRS{STREAM_WEIGHTS}": "cbrs",
}
#: Rows as the authors' code runs them: every batch of the stream begins with a fresh optimiser.
FRESH_WORDS = ", fresh optimiser"
#: And their slots count for the batches they stand for, not for their share of them: β grows with
#: the stream.
COUNTED = ", slots by their batches"
FRESH = {
    f"Reservoir sampling{FRESH_WORDS}": "reservoir",
    f"Streaming coreset{FRESH_WORDS}": "coreset",
    f"Streaming coreset{FRESH_WORDS}{COUNTED}": "coreset",
}
#: λ of the imbalanced stream.
IMBALANCED_LAMBDA = 1e-4
#: GSS sees the stream in batches of its own.
GSS_BATCH = 10


def setting_of(
    dataset: str, method: str, memory: int, seed: int, betas: Sequence[float] = BETAS
) -> Setting:
    """Every β for a row whose buffer is rehearsed."""
    betas = (0.0,) if method == "Train on coreset only" else tuple(betas)
    return Setting(dataset, method, memory, seed, betas, betas[:1], "beta")


@dataclass(frozen=True)
class Flow:
    """How a stream is run: steps and rows a batch, slots of a merge-reduce buffer, λ, and whether
    every batch begins with a fresh optimiser, as in the authors' code.
    """

    steps: int = 40
    rows: int = BATCH
    slots: int = 10
    penalty: float = LAMBDA
    fresh: bool = False


def buffer_of(word: str, setting: Setting, flow: Flow, device: str) -> Buffer:
    if word.startswith("coreset"):
        kept = "learnt" if word == "coreset-weighted" else "equal"
        selector = selector_of(word, setting.dataset, device, flow.penalty)
        return MergeReduce(
            selector, setting.memory, min(flow.slots, setting.memory), kept, setting.seed
        )
    kinds = {
        "reservoir": Reservoir,
        "cbrs": ClassBalancedReservoir,
        "gss": GradientSampling,
        "exstream": Prototypes,
    }
    return kinds[word](setting.memory, setting.seed)


def run(
    setting: Setting,
    word: str,
    tasks: Sequence[Task],
    betas: Sequence[float],
    device: str,
    flow: Flow,
    epochs: int = EPOCHS,
    network: Callable[[], Network] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each β. A buffer that looks at no network is fed once for all of them."""
    begun = time.perf_counter()
    only = setting.method.endswith("only")
    shared = word != "gss"
    size = flow.rows if shared else GSS_BATCH
    network = network or NETWORKS[setting.dataset]
    steps = max(1, flow.steps * size // flow.rows)
    learners = Cohort(
        [
            Learner(
                build(network, setting.seed, device),
                beta,
                size,
                setting.memory,
                steps,
                seed=setting.seed,
            )
            for beta in betas[: 0 if only else None]
        ]
    )
    buffers = [buffer_of(word, setting, flow, device) for _ in betas[: 1 if shared else None]]
    course = Course(learners, checkpoint, buffers, begun=begun)
    course.resume(partial(_loaded, buffers[0]))
    _follow(course, batches(tasks, size), steps, flow.fresh, device, setting.method)
    trained = (
        [_from_scratch(network, setting.seed, _rows(buffers[0], device), device, epochs)]
        if only
        else list(learners)
    )
    spent = {
        **course.spent(len(betas)),
        "steps": flow.steps,
        **({"lambda": flow.penalty} if penalised(word) else {}),
    }
    for beta, learner in zip(betas, trained, strict=True):
        yield beta, {**scores(learner.network, tasks, device), **spent}
    course.end()


def _follow(
    course: Course[Buffer],
    stream: Iterator[Part],
    steps: int,
    fresh: bool,
    device: str,
    method: str,
) -> None:
    """Train on every batch that is left, then show it to the buffers and rehearse what they hold."""

    def rows(buffer: Buffer) -> Memory:
        return _rows(buffer, device, method, course.place.task)

    if course.place.task:
        course.rehearse(rows)
    for batch in islice(stream, course.place.task, None):
        for learner in course.learners:
            learner.take(*tensors(batch, device))
            if fresh:
                learner.restart()
        course.learners.train(steps)
        with course.choosing():
            for which, buffer in enumerate(course.kept):
                looks = isinstance(buffer, GradientSampling)
                model = course.learners.learners[which].network.eval() if looks else None
                selector = buffer.selector if isinstance(buffer, MergeReduce) else None
                buffer.update(batch.x, batch.y, context=context_of(selector, model, device))
        course.place.task += 1
        course.rehearse(rows)
        if course.checkpoint is not None and course.place.task % course.checkpoint.every == 0:
            course.save()


def _loaded(buffer: Buffer, path: Path) -> Buffer:
    """A buffer like the one given, as it was written."""
    return (
        MergeReduce.load(path, buffer.selector)
        if isinstance(buffer, MergeReduce)
        else type(buffer).load(path)
    )


def _from_scratch(
    network: Callable[[], Network], seed: int, rows: Memory, device: str, epochs: int
) -> Learner:
    """A fresh network trained on what the buffer holds at the end."""
    learner = Learner(build(network, seed, device), 0.0, len(rows.x), 1, epochs, seed=seed)
    learner.take(rows.x, rows.y)
    Cohort([learner]).train(epochs)
    return learner


def _rows(buffer: Buffer, device: str, method: str = "", seen: int = 1) -> Memory:
    """Coresets and prototypes are rehearsed with the weights they have; sampled rows equally,
    unless the stream's are asked for. The weights add up to 1, or to the batches that were
    ``seen``.
    """
    kept = buffer.snapshot()
    assert kept.y is not None
    weighted = method.endswith(STREAM_WEIGHTS) or isinstance(buffer, (MergeReduce, Prototypes))
    told = kept.weights if weighted else np.ones(len(kept.weights))
    total = seen if method.endswith(COUNTED) else 1
    weight = torch.from_numpy(total * told / told.sum()).float()
    return Memory(
        torch.from_numpy(kept.x).float().to(device),
        torch.from_numpy(kept.y.astype("int64")).to(device),
        weight.to(device),
    )
