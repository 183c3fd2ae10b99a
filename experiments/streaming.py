"""Streams (section 6.3, figure 4, and the imbalanced ones): batches of 125, 40 steps each, with a buffer that is rehearsed.

A row of the buffer counts in proportion to how much of the stream it stands for, the sum over the buffer being 1. The paper scales
a slot's loss by its count of batches: its β for a merge-reduce buffer and ours differ by the number of batches seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bicore import Context, MergeReduce, Runtime
from bicore.stream import Buffer, ClassBalancedReservoir, GradientSampling, Prototypes, Reservoir
from experiments.continual import BETAS, selector_of
from experiments.networks import NETWORKS
from experiments.settings import Setting
from experiments.tasks import BATCH, Task, batches
from experiments.training import EPOCHS, Learner, Memory, build, scores, tensors, train

STEPS, SLOTS = 40, 10
METHODS = {
    "Train on coreset only": "coreset",
    "Reservoir sampling": "reservoir",
    "GSS (Aljundi et al. 2019)": "gss",
    "ExStream": "exstream",
    "Streaming coreset": "coreset",
    "Streaming coreset RBF": "coreset-rbf",
}
OWN = {"Streaming coreset, squared error": "coreset-squared", "Streaming coreset, weights kept": "coreset-weighted"}
IMBALANCED = {"Reservoir": "reservoir", "CBRS": "cbrs", "Coreset": "coreset"}
#: GSS sees the stream in batches of its own.
GSS_BATCH = 10


def setting_of(dataset: str, method: str, memory: int, seed: int) -> Setting:
    """Every β for a row whose buffer is rehearsed."""
    betas = (0.0,) if method == "Train on coreset only" else BETAS
    return Setting(dataset, method, memory, seed, betas, betas[:1], "beta")


def buffer_of(word: str, setting: Setting, slots: int) -> Buffer:
    if word.startswith("coreset"):
        kept = "learnt" if word == "coreset-weighted" else "equal"
        return MergeReduce(selector_of(word, setting.dataset), setting.memory, min(slots, setting.memory), kept, setting.seed)
    kinds = {"reservoir": Reservoir, "cbrs": ClassBalancedReservoir, "gss": GradientSampling, "exstream": Prototypes}
    return kinds[word](setting.memory, setting.seed)


def run(
    setting: Setting,
    word: str,
    tasks: Sequence[Task],
    betas: Sequence[float],
    device: str,
    steps: int = STEPS,
    rows: int = BATCH,
    slots: int = SLOTS,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each β. A buffer that looks at no network is fed once for all of them."""
    start, only, shared = time.perf_counter(), setting.method.endswith("only"), word != "gss"
    size = rows if shared else GSS_BATCH
    learners = [
        Learner(build(NETWORKS[setting.dataset], setting.seed, device), beta, size, setting.memory, seed=setting.seed)
        for beta in betas
    ]
    buffers = [buffer_of(word, setting, slots) for _ in betas[: 1 if shared else None]]
    for batch in batches(tasks, size):
        if not only:
            for learner in learners:
                learner.take(*tensors(batch, device))
            train(learners, max(1, steps * size // rows))
        for place, buffer in enumerate(buffers):
            model = None if shared else learners[place].network.eval()
            buffer.update(batch.x, batch.y, context=Context(model, Runtime(device, progress=False), classes=range(10)))
        for place, learner in enumerate(learners):
            learner.rehearse(_rows(buffers[0 if shared else place], device))
    if only:
        learners = [_from_scratch(setting, _rows(buffers[0], device), device, EPOCHS if steps == STEPS else steps)]
    spent = {"seconds": (time.perf_counter() - start) / len(betas), "steps": steps}
    for beta, learner in zip(betas, learners, strict=True):
        yield beta, {**scores(learner.network, tasks, device), **spent}


def _from_scratch(setting: Setting, rows: Memory, device: str, epochs: int) -> Learner:
    """A fresh network trained on what the buffer holds at the end."""
    learner = Learner(build(NETWORKS[setting.dataset], setting.seed, device), 0.0, len(rows.x), 1, seed=setting.seed)
    learner.take(rows.x, rows.y)
    train([learner], epochs)
    return learner


def _rows(buffer: Buffer, device: str) -> Memory:
    kept = buffer.snapshot()
    assert kept.y is not None
    weight = torch.from_numpy(kept.weights / kept.weights.sum()).float()
    return Memory(
        torch.from_numpy(kept.x).float().to(device), torch.from_numpy(kept.y.astype("int64")).to(device), weight.to(device)
    )
