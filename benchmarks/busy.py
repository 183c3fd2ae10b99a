"""Selections on one thread, with the default threads, and with these next to a busy core.

    python -m benchmarks busy --data DIR --json [--record]

Every run is a process of its own. The busy core is another process that only counts. Seconds are
processor time of all threads for the whole call, kernel matrix and final check included, the least
of several: threads that spin while they wait show, other work on the machine does not. Next to a
busy core no call should take more than 1.3 times its one-thread time. ``floor`` is what the largest
product of the problem takes by itself on one thread of this machine: the bytes it must read, or the
numbers it must multiply, at the rates measured first. If a row does not say otherwise, the setting
is the paper's, so that its figures can be compared with earlier ones whatever the default is.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks.common import call_alone, make_embedding, mnist_vectors, time_call
from bicore import Dataset, Runtime, influence, reweight, select
from bicore.bilevel import PerPoint
from bicore.runtime.threads import single_thread

#: How much longer than on one thread a call may take next to a busy core.
ALLOWED = 1.3
COUNTING = "while True: pass"
#: Seconds of a problem from which it is run once, not ``--repeats`` times.
LONG = 20.0


def load_mnist(rows: int, folder: str | None) -> Dataset:
    x, y = mnist_vectors(folder, limit=rows)
    return Dataset(x.astype(np.float64), y)


def load_embedding(rows: int, width: int, folder: str | None) -> Dataset:
    x, y = make_embedding(rows, width)
    return Dataset(x.astype(np.float32), y)


THOUSAND = partial(load_mnist, 1000)


@dataclass(frozen=True)
class Problem:
    """How the data is loaded, what is called with it and a runtime, its floor by the machine's
    rates, and a goal."""

    name: str
    call: Callable[..., Any]
    load: Callable[[str | None], Dataset] = THOUSAND
    floor: Callable[[dict[str, float]], float] = lambda rates: 0.0
    goal: float | None = None


def _softmax(size: int, setting: str, goal: float, **options: Any) -> Problem:
    """The floor is that of products of K with the slopes of all points: 2 n² C a point."""
    options |= {"method": "bilevel-ntk", "loss": "cross-entropy"}
    return Problem(
        f"cross-entropy, {size} of 1000, {setting}",
        partial(select, size=size, **options),
        floor=lambda rates: size * 2 * 1000**2 * 10 / rates["operations"],
        goal=goal,
    )


def _predict_stored(size: int, rows: int) -> Callable[[dict[str, float]], float]:
    """Half of a stored symmetric matrix is read for each point."""
    return lambda rates: size * 8 * rows**2 / 2 / rates["bytes"]


PAPER = PerPoint(1e-3)
CONSTANT = {"method": "bilevel-ntk", "inner_reg": 1.0}
POINTS = {"loss": "cross-entropy", "kernel": "ntk", "inner_reg": 0.1}
PROBLEMS = (
    _softmax(100, "λ of the paper", 0.65, inner_reg=PAPER),
    _softmax(100, "automatic ρ", 1.2),
    _softmax(400, "λ of the paper", 4.0, inner_reg=PAPER),
    _softmax(400, "automatic ρ", 8.0),
    Problem(
        "squared error, 400 of 1000",
        partial(select, size=400, **CONSTANT),
        floor=_predict_stored(400, 1000),
    ),
    Problem("all defaults, 100 of 1000", partial(select, size=100), goal=1.5),
    Problem("exchange, 100 of 1000", partial(select, size=100, strategy="exchange", **CONSTANT)),
    Problem(
        "learned weights, 30 of 1000", partial(select, size=30, weighting="learned", **CONSTANT)
    ),
    Problem(
        "reweight, 100 of 1000, cross-entropy", partial(reweight, indices=range(100), **POINTS)
    ),
    Problem(
        "influence, 100 of 1000, cross-entropy", partial(influence, coreset=range(100), **POINTS)
    ),
    Problem(
        "squared error, 400 of 10 000",
        partial(select, size=400, **CONSTANT),
        partial(load_mnist, 10_000),
        _predict_stored(400, 10_000),
    ),
    Problem(
        "linear, 500 of 50 000 × 256",
        partial(select, size=500, method="bilevel-ntk", kernel="linear", inner_reg=10.0),
        partial(load_embedding, 50_000, 256),
        lambda rates: 500 * 8 * 50_000 * 256 / rates["bytes"],
        8.0,
    ),
)


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    rates = measure_rates()
    for number, problem in enumerate(PROBLEMS):
        times = measure(number, arguments.data, arguments.repeats)
        ratio = times["next_to_a_busy_core"] / times["one_thread"]
        facts = {"ratio": ratio, "goal": problem.goal, "floor": problem.floor(rates) or None}
        yield {"problem": problem.name, **times, **facts}
    return {"allowed": ALLOWED, "rates": rates}


def measure(number: int, folder: str | None, repeats: int) -> dict[str, float]:
    """Seconds in the three settings."""
    seconds = partial(call_alone, time_problem, number, folder, repeats)
    times = {"one_thread": seconds(1), "default_threads": seconds(None)}
    with subprocess.Popen([sys.executable, "-c", COUNTING]) as neighbour:
        try:
            return {**times, "next_to_a_busy_core": seconds(None)}
        finally:
            neighbour.kill()


def time_problem(number: int, folder: str | None, repeats: int, threads: int | None) -> float:
    problem, runtime = PROBLEMS[number], Runtime(device="cpu", threads=threads)
    data = problem.load(folder)
    return time_call(lambda: problem.call(data, runtime=runtime), repeats, process_time, LONG)[0]


def measure_rates() -> dict[str, float]:
    """Bytes a second that one thread reads, and operations a second of a product with ten columns:
    the work of selections."""
    vector = torch.ones(1 << 26, dtype=torch.float64)
    matrix = torch.randn(1000, 1000, dtype=torch.float64)
    columns = torch.randn(1000, 10, dtype=torch.float64)
    with single_thread(1):
        reading, _ = time_call(vector.sum, 5, process_time)
        multiplying, _ = time_call(lambda: matrix @ columns, 20, process_time)
    return {"bytes": vector.nbytes / reading, "operations": 2 * 1000**2 * 10 / multiplying}
