"""What products in bfloat16 change in networks that rehearse: the same runs in float32.

    python -m benchmarks precision --data DIR --device cuda --rows ROWS.jsonl --record

*SplitCIFAR-10*: the coreset's row, at 40 epochs a task where the table has 400: products in float32
take much longer. *SplitMNIST*: the run of the table that float32 changed most, the coreset with
β = 1000 and seed 1, trained by itself and with other draws of dropout, in both precisions.
``--protocol cifar`` or ``mnist`` runs one of them, ``--seeds`` so many of each. Rows are written as
they come, and a rerun makes what is missing.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from benchmarks.common import Rows, data_folder, report
from bicore import InputError
from experiments import continual
from experiments.methods import continual_row
from experiments.problems import SPLIT_CIFAR, SPLIT_MNIST, Data
from experiments.rows import Job
from experiments.selectors import CORESET

CIFAR_EPOCHS = 40
#: The run that differed most.
OUTLIER_SEED = 1
OUTLIER_BETA = 1000.0


@dataclass(frozen=True)
class Run:
    """One training: of what, with which seed of everything and of the draws, and how precise."""

    problem: str
    seed: int
    draw: int
    beta: float
    fast: bool


def runs(protocol: str, seeds: int) -> Iterator[Run]:
    """Pairs one after the other. ``aside`` is what the command says where nothing is asked for."""
    if protocol not in ("cifar", "mnist", "aside"):
        raise InputError(
            f"--protocol {protocol} is not known; give cifar or mnist, or leave it out for both."
        )
    if protocol != "mnist":
        for seed in range(seeds):
            for fast in (True, False):
                yield Run(SPLIT_CIFAR.name, seed, seed, 10.0, fast)
    if protocol != "cifar":
        for draw in range(1, 1 + seeds):
            for fast in (True, False):
                yield Run(SPLIT_MNIST.name, OUTLIER_SEED, draw, OUTLIER_BETA, fast)


def run(arguments: Any) -> dict[str, Any]:
    data = Data(data_folder(arguments.data), False)
    rows = Rows(arguments.rows)
    for one in runs(arguments.protocol, arguments.seeds):
        if rows.find(**asdict(one)) is None:
            rows.add({**asdict(one), **made(one, data, arguments.device)})
            report(rows[-1])
    return {"cifar_epochs": CIFAR_EPOCHS, "rows": list(rows)}


def made(one: Run, data: Data, device: str) -> dict[str, Any]:
    """Accuracy on every task at the end of a run."""
    problem = SPLIT_CIFAR if one.problem == SPLIT_CIFAR.name else SPLIT_MNIST
    row = continual_row(problem, 200 if problem is SPLIT_CIFAR else 100, "Coreset", CORESET)
    if problem is SPLIT_CIFAR:
        row = replace(row, epochs=CIFAR_EPOCHS)
    start = time.perf_counter()
    torch.manual_seed(one.draw)  # dropout, crops and mirror images
    job = Job(one.seed, [one.beta], device, one.fast)
    ((_, found),) = continual.run(row, job, data.tasks(problem))
    kept = {name: found[name] for name in ("test", "held", "precision")}
    return {**kept, "seconds": time.perf_counter() - start}
