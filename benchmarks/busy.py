"""Selections on one thread, with the default threads, and with these beside a busy core.

    python -m benchmarks busy --data DIR --json [--record]

Every run is a process of its own. The busy core is another process that only counts. Seconds are
of the whole call, kernel matrix and final check included, the least of several; beside a busy core
none should take more than 1.3 times its one-thread time. ``floor`` is what the largest product of
the problem takes by itself on one thread of this machine: the bytes it must read, or the numbers it
must multiply, at the rates measured first. Where a row does not say otherwise the setting is the
paper's, so that its figures can be set beside earlier ones whatever the default is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.common import best, data_folder, machine

#: How much longer than on one thread a call may take beside a busy core.
ALLOWED = 1.3
COUNTING = "while True: pass"
#: Seconds of a problem from which it is run once, not ``--repeats`` times.
LONG = 20.0

START = """
import json, os, sys, time
import numpy as np, torch
from benchmarks.common import mnist_vectors
from bicore import Dataset, PerPoint, Runtime, influence, reweight, select
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
    """Code that defines ``call``, and its floor as a function of the machine's rates."""

    name: str
    code: str
    floor: Callable[[dict[str, float]], float] | None = None
    goal: float | None = None


def _softmax(size: int, options: str) -> str:
    return (
        "data = mnist(1000)\n"
        f"call = lambda: select(data, size={size}, method='paper', loss='cross-entropy', "
        f"runtime=runtime{options})"
    )


def _products(size: int) -> Callable[[dict[str, float]], float]:
    """The products of K with the slopes of all points: 2 n² C a point."""
    return lambda rates: size * 2 * 1000**2 * 10 / rates["operations"]


PAPER = ", inner_reg=PerPoint(1e-3)"
PROBLEMS = (
    Problem(
        "cross-entropy, 100 of 1000, λ of the paper", _softmax(100, PAPER), _products(100), 0.65
    ),
    Problem("cross-entropy, 100 of 1000, automatic ρ", _softmax(100, ""), _products(100), 1.2),
    Problem(
        "cross-entropy, 400 of 1000, λ of the paper", _softmax(400, PAPER), _products(400), 4.0
    ),
    Problem("cross-entropy, 400 of 1000, automatic ρ", _softmax(400, ""), _products(400), 8.0),
    Problem(
        "squared error, 400 of 1000",
        "data = mnist(1000)\n"
        "call = lambda: select(data, size=400, method='paper', inner_reg=1.0, runtime=runtime)",
        lambda rates: 400 * 8 * 1000**2 / 2 / rates["bytes"],
    ),
    Problem(
        "all defaults, 100 of 1000",
        "data = mnist(1000)\ncall = lambda: select(data, size=100, runtime=runtime)",
        goal=1.5,
    ),
    Problem(
        "exchange, 100 of 1000",
        "data = mnist(1000)\n"
        "call = lambda: select(data, size=100, method='paper', inner_reg=1.0, "
        "strategy='exchange', runtime=runtime)",
    ),
    Problem(
        "learnt weights, 30 of 1000",
        "data = mnist(1000)\n"
        "call = lambda: select(data, size=30, method='paper', inner_reg=1.0, weights='learnt', "
        "runtime=runtime)",
    ),
    Problem(
        "reweight, 100 of 1000, cross-entropy",
        "data = mnist(1000)\n"
        "call = lambda: reweight(data, range(100), loss='cross-entropy', kernel='ntk', "
        "inner_reg=0.1, runtime=runtime)",
    ),
    Problem(
        "influence, 100 of 1000, cross-entropy",
        "data = mnist(1000)\n"
        "call = lambda: influence(data, range(100), loss='cross-entropy', kernel='ntk', "
        "inner_reg=0.1, runtime=runtime)",
    ),
    Problem(
        "squared error, 400 of 10 000",
        "data = mnist(10000)\n"
        "call = lambda: select(data, size=400, method='paper', inner_reg=1.0, runtime=runtime)",
        lambda rates: 400 * 8 * 10_000**2 / 2 / rates["bytes"],
    ),
    Problem(
        "linear, 500 of 50 000 × 256",
        "data = embeddings(50000, 256)\n"
        "call = lambda: select(data, size=500, method='paper', kernel='linear', inner_reg=10.0, "
        "runtime=runtime)",
        lambda rates: 500 * 8 * 50_000 * 256 / rates["bytes"],
        8.0,
    ),
)


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    record: dict[str, Any] = {"benchmark": "busy", "machine": machine(), "allowed": ALLOWED}
    record["rates"] = rates()
    record["rows"] = []
    for problem in PROBLEMS:
        row = measured(problem, folder, arguments.repeats)
        row["floor"] = None if problem.floor is None else problem.floor(record["rates"])
        record["rows"].append(row)
        print(row, file=sys.stderr, flush=True)
    return record


def measured(problem: Problem, folder: str, repeats: int) -> dict[str, Any]:
    """Seconds in the three settings."""
    one = _seconds(problem, 1, repeats, folder)
    default = _seconds(problem, None, repeats, folder)
    with subprocess.Popen([sys.executable, "-c", COUNTING]) as neighbour:
        try:
            beside = _seconds(problem, None, repeats, folder)
        finally:
            neighbour.kill()
    return {
        "problem": problem.name,
        "one_thread": one,
        "default_threads": default,
        "beside_a_busy_core": beside,
        "ratio": beside / one,
        "goal": problem.goal,
    }


def _seconds(problem: Problem, threads: int | None, repeats: int, folder: str) -> float:
    code = START + problem.code + END
    given = json.dumps([threads, repeats, LONG, folder])
    command = [sys.executable, "-c", code, given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


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
