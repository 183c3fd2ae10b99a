"""Selections on one thread, with the default threads, and with these beside a busy core.

    python -m benchmarks busy --data DIR --json [--record]

Every run is a process of its own. The busy core is another process that only counts. Seconds are
of the whole call, kernel matrix and final check included, the least of several; beside a busy core
none should take more than 1.3 times its one-thread time. ``floor`` is what the largest product of
the problem takes by itself on one thread of this machine: the bytes it must read, or the numbers it
must multiply, at the rates measured first. Where a row does not say otherwise the setting is the
paper's, so that its figures can be set beside earlier ones whatever the default is.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.common import best, data_folder, report, run_python

#: How much longer than on one thread a call may take beside a busy core.
ALLOWED = 1.3
COUNTING = "while True: pass"
#: Seconds of a problem from which it is run once, not ``--repeats`` times.
LONG = 20.0

START = """
import json, os, sys, time
import numpy as np, torch
from benchmarks.common import mnist_vectors
from bicore import Dataset, Runtime, influence, reweight, select
from bicore.bilevel import PerPoint
threads, repeats, long, folder = json.loads(sys.argv[1])
runtime = Runtime(device="cpu", threads=threads)
def mnist(n):
    x, y = mnist_vectors(folder, limit=n)
    return Dataset(x.astype(np.float64), y)
def embeddings(n, width):
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    x = 0.3 * rng.normal(size=(10, width))[y] + rng.normal(size=(n, width))
    return Dataset(x.astype(np.float32), y)
"""
END = """
best = float("inf")
for _ in range(repeats):
    begin = time.perf_counter()
    call()
    best = min(best, time.perf_counter() - begin)
    if best > long:
        break
print(best)
"""


@dataclass(frozen=True)
class Problem:
    """Code of the data and of the call, its floor by the machine's rates, and a goal."""

    name: str
    data: str
    call: str
    floor: Callable[[dict[str, float]], float] | None = None
    goal: float | None = None


def _select(size: int, options: str = "") -> str:
    return f"select(data, size={size}, {options}runtime=runtime)"


def _softmax(size: int, setting: str, goal: float, options: str = "") -> Problem:
    """The floor is that of products of K with the slopes of all points: 2 n² C a point."""
    return Problem(
        f"cross-entropy, {size} of 1000, {setting}",
        "mnist(1000)",
        _select(size, f"method='bilevel-ntk', loss='cross-entropy', {options}"),
        lambda rates: size * 2 * 1000**2 * 10 / rates["operations"],
        goal,
    )


def _stored(size: int, rows: int) -> Callable[[dict[str, float]], float]:
    """Half of a stored symmetric matrix is read for each point."""
    return lambda rates: size * 8 * rows**2 / 2 / rates["bytes"]


PAPER = "inner_reg=PerPoint(1e-3), "
CONSTANT = "method='bilevel-ntk', inner_reg=1.0, "
POINTS = "data, range(100), loss='cross-entropy', kernel='ntk', inner_reg=0.1, runtime=runtime"
PROBLEMS = (
    _softmax(100, "λ of the paper", 0.65, PAPER),
    _softmax(100, "automatic ρ", 1.2),
    _softmax(400, "λ of the paper", 4.0, PAPER),
    _softmax(400, "automatic ρ", 8.0),
    Problem(
        "squared error, 400 of 1000", "mnist(1000)", _select(400, CONSTANT), _stored(400, 1000)
    ),
    Problem("all defaults, 100 of 1000", "mnist(1000)", _select(100), goal=1.5),
    Problem(
        "exchange, 100 of 1000", "mnist(1000)", _select(100, f"{CONSTANT}strategy='exchange', ")
    ),
    Problem(
        "learned weights, 30 of 1000",
        "mnist(1000)",
        _select(30, f"{CONSTANT}weighting='learned', "),
    ),
    Problem("reweight, 100 of 1000, cross-entropy", "mnist(1000)", f"reweight({POINTS})"),
    Problem("influence, 100 of 1000, cross-entropy", "mnist(1000)", f"influence({POINTS})"),
    Problem(
        "squared error, 400 of 10 000", "mnist(10000)", _select(400, CONSTANT), _stored(400, 10_000)
    ),
    Problem(
        "linear, 500 of 50 000 × 256",
        "embeddings(50000, 256)",
        _select(500, "method='bilevel-ntk', kernel='linear', inner_reg=10.0, "),
        lambda rates: 500 * 8 * 50_000 * 256 / rates["bytes"],
        8.0,
    ),
)


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    found = rates()
    rows = []
    for problem in PROBLEMS:
        floor = None if problem.floor is None else problem.floor(found)
        rows.append({**measure(problem, folder, arguments.repeats), "floor": floor})
        report(rows[-1])
    return {"allowed": ALLOWED, "rates": found, "rows": rows}


def measure(problem: Problem, folder: str, repeats: int) -> dict[str, Any]:
    """Seconds in the three settings."""

    def seconds(threads: int | None) -> float:
        code = f"{START}data = {problem.data}\ncall = lambda: {problem.call}\n{END}"
        return float(run_python(code, json.dumps([threads, repeats, LONG, folder])))

    one, default = seconds(1), seconds(None)
    with subprocess.Popen([sys.executable, "-c", COUNTING]) as neighbour:
        try:
            beside = seconds(None)
        finally:
            neighbour.kill()
    times = {"one_thread": one, "default_threads": default, "beside_a_busy_core": beside}
    return {"problem": problem.name, **times, "ratio": beside / one, "goal": problem.goal}


def rates() -> dict[str, float]:
    """Bytes a second that one thread reads, and operations a second of a product with ten columns:
    what selections are made of."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    vector = np.ones(1 << 26)
    matrix = torch.randn(1000, 1000, dtype=torch.float64)
    columns = torch.randn(1000, 10, dtype=torch.float64)
    found = {
        "bytes": vector.nbytes / best(lambda: torch.from_numpy(vector).sum(), 5),
        "operations": 2 * 1000**2 * 10 / best(lambda: matrix @ columns, 20),
    }
    torch.set_num_threads(before)
    return found
