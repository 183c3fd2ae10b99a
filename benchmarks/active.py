"""Batch active learning on MNIST, from 20 to 200 labels in batches of twenty.

    python -m benchmarks active --data DIR --record

A CNN with dropout is trained from scratch on what is labelled, asked for its predictions on the
pool, and scored on test images. The bilevel queries see the predictions as labels; k-center goes by
the CNN's embedding, BatchBALD by its dropout. Pools, first labels and networks are the same for all
methods of a seed.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common import ONE_THREAD, Rows, data_folder, predict, time_call, train
from bicore import Dataset
from bicore.active import query
from bicore.kernels import Averaged, Kernel, Nystrom, fully_connected, shifts
from bicore.methods.registry import build_selector, greedy_selector
from bicore.sources import mnist

POOL = 3000
TEST = 4000
FIRST = 20
BATCH = 20
LAST = 200
EPOCHS = 80
RATE = 1e-3
DRAWS = 20
LANDMARKS = 500
METHODS = ("random", "k-center", "BatchBALD", "bilevel", "bilevel, cross-entropy")
METHODS += ("bilevel, Nyström and shifts",)


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    (x, y), (test_x, test_y) = mnist(folder, "train"), mnist(folder, "test", TEST)
    x, test_x = (np.ascontiguousarray(part.reshape(len(part), 1, 28, 28)) for part in (x, test_x))
    rows = Rows(arguments.rows)
    for seed in range(arguments.seeds):
        drawn = np.random.default_rng(seed).choice(len(x), POOL, replace=False)
        for method in METHODS:
            data = (x[drawn], y[drawn], test_x, test_y)
            rows.fill({"seed": seed, "method": method}, _learn, *data, method, seed)
    labels = list(range(FIRST, LAST + 1, BATCH))
    return {"pool": POOL, "test": TEST, "labels": labels, "rows": list(rows)}


def _learn(x: Any, y: Any, test_x: Any, test_y: Any, method: str, seed: int) -> dict[str, Any]:
    """Accuracy at every number of labels, and the seconds that the queries took."""
    labelled = np.random.default_rng((seed, 1)).choice(len(x), FIRST, replace=False)
    scores = []
    seconds = 0.0
    while True:
        torch.manual_seed(seed)
        network = train(_network(), x[labelled], y[labelled], EPOCHS, RATE, 32)
        scores.append(float(np.mean(predict(network, test_x) == test_y)))
        if len(labelled) >= LAST:
            return {"accuracy": scores, "query_seconds": seconds}
        left = np.setdiff1d(np.arange(len(x)), labelled)
        spent, picked = time_call(partial(_query, method, network, x, y, labelled, left, seed))
        seconds += spent
        labelled = np.concatenate([labelled, left[picked]])


def _query(
    method: str, network: nn.Module, x: Any, y: Any, labelled: Any, left: Any, seed: int
) -> Any:
    """Places among ``left``. Of the labels only those of ``labelled`` are read."""
    options: dict[str, Any] = {"random_state": seed, "runtime": ONE_THREAD}
    if method == "random":
        return np.random.default_rng((seed, len(labelled))).choice(len(left), BATCH, replace=False)
    if method == "k-center":  # the labelled points are centres already
        both = Dataset(np.concatenate([x[labelled], x[left]]))
        options |= {"initial": list(range(len(labelled))), "model": network}
        selector = build_selector("k-center-embedding")
        chosen = selector.select(both, len(labelled) + BATCH, **options)
        return chosen.indices[len(labelled) :] - len(labelled)
    if method == "BatchBALD":
        selector = build_selector("batchbald", draws=DRAWS)
        return selector.select(Dataset(x[left]), BATCH, model=network, **options).indices
    loss = "cross-entropy" if "cross-entropy" in method else "squared"
    kernel: Kernel = fully_connected()
    if "shifts" in method:
        kernel = Averaged(Nystrom(kernel, LANDMARKS, seed), shifts(1, (28, 28)))
    options["selector"] = greedy_selector(kernel=kernel, loss=loss)
    flat = x.reshape(len(x), -1)
    known = (flat[labelled], y[labelled], flat[left], BATCH)
    return query(*known, pseudo_labels=predict(network, x[left]), **options).indices


def _network() -> nn.Module:
    first = [nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    hidden = [nn.Dropout(0.5), nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*first, *second, *hidden, nn.Linear(128, 10))
