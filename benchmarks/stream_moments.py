"""Speed of updates of a moment memory, by part, next to a lower bound.

    python -m benchmarks stream_moments --record

Batches of 125 rows, 100 rows kept, random ReLU features. Seconds are the processor's own.
The parts of an update are timed from outside, by wrapping what does them. The floor is the
multiplications that the formulas need, at the speed of one large product of this machine.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.common import make_overlapping, report, time_call
from bicore.moments.features import RandomReLU
from bicore.moments.ridge import SEARCHES, Candidates
from bicore.runtime.threads import single_thread
from bicore.streaming import MomentMemory

BATCH = 125
CAPACITY = 100
CLASSES = 10
#: Updates before the first that count: the map is fitted and the memory full.
WARM = 4
#: (features of a row, width p of the map, updates, rows a second that are aimed at).
CASES = ((784, 1024, 200, 2000), (64, 512, 400, 10_000))
#: Rows and columns of the product that tells the machine's speed.
PRODUCT = 1000
PARTS = ("features", "moments", "products carried along", "candidates' matrices", "elimination")
PARTS += ("rest",)


def run(arguments: Any) -> dict[str, Any]:
    """A row a case: the fastest of some streams, the parts of another."""
    rates = {name: multiplications_a_second(name) for name in ("float32", "float64")}
    return {"cases": [_measure(*case, arguments.repeats, rates) for case in CASES]}


def _measure(
    features: int, width: int, updates: int, aim: int, repeats: int, rates: dict[str, float]
) -> dict[str, Any]:
    x, y = make_overlapping(BATCH * (updates + WARM), features)
    x = x.astype(np.float32)
    runs = [time_stream(x, y, width) for _ in range(repeats)]
    fastest = min(runs, key=lambda one: sum(one["times"]))
    times = fastest["times"]
    tenth = len(times) // 10
    ends = {"first": times[:tenth], "last": times[-tenth:]}
    spent: dict[str, float] = {}
    with _watch(spent):
        whole = sum(time_stream(x, y, width, spent)["times"])
    spent["elimination"] -= spent["candidates' matrices"]  # which are made inside
    spent["rest"] = whole - sum(spent.values())
    floor = dict.fromkeys(PARTS, 0.0) | multiplications(features, width)
    # Features are made in the rows' own precision.
    rate = {part: rates["float32" if part == "features" else "float64"] for part in PARTS}
    case = {"features": features, "width": width, "updates": updates, "aim": aim}
    row = {
        **case,
        "threads": torch.get_num_threads(),
        "rows_a_second": BATCH / float(np.mean(times)),
        "rows_a_wall_second": BATCH * len(times) / fastest["wall"],
        **{f"median_ms_{end}_tenth": 1e3 * float(np.median(own)) for end, own in ends.items()},
        "state_bytes": fastest["state_bytes"],
        "ms": {part: 1e3 * spent[part] / updates for part in PARTS},
        "millions": {part: floor[part] / 1e6 for part in PARTS},
        "floor_ms": {part: 1e3 * floor[part] / rate[part] for part in PARTS},
        "millions_a_second": {name: rate / 1e6 for name, rate in rates.items()},
    }
    report(row)
    return row


def time_stream(
    x: np.ndarray, y: np.ndarray, width: int, spent: dict[str, float] | None = None
) -> dict[str, Any]:
    memory = MomentMemory(CAPACITY, feature_map=RandomReLU(width))
    times: list[float] = []
    wall = 0.0
    sizes = []
    tenth = len(x) // BATCH // 10
    for number, start in enumerate(range(0, len(x), BATCH)):
        begin, clock = time.process_time(), time.perf_counter()
        memory.update(x[start : start + BATCH], y[start : start + BATCH])
        times.append(time.process_time() - begin)
        wall += time.perf_counter() - clock if number >= WARM else 0.0
        if number + 1 == WARM and spent is not None:
            spent.clear()
        if number in (WARM + tenth, len(x) // BATCH - 1):
            sizes.append(sum(int(one.nbytes) for one in memory._state()[1].values()))
    return {"times": times[WARM:], "wall": wall, "state_bytes": sizes}


def multiplications(features: int, width: int) -> dict[str, float]:
    """What the formulas need in an update once the memory is full; symmetric products by half."""
    b, p, m, c = BATCH, width, CAPACITY, CLASSES
    n = m + b
    return {
        "features": b * features * p,
        "moments": b * p * p / 2 + b * p * c,
        # products of the rows kept with the new ones, and ΦAΦᵀ of those kept
        "products carried along": m * b * p + m * m * b,
        # ΦA of new rows, then their part of ΦΦᵀ, ΦAΦᵀ and ΦB; (K + ρI)⁻¹ and PQP
        "candidates' matrices": b * p * p + 2 * b * n * p + n * p * c + 2 * n**3,
        # at each step a column of T and of V with the terms before, and E and H
        "elimination": 1.5 * b * b * n + 4 * b * n * c,
    }


def multiplications_a_second(precision: str) -> float:
    """Of one thread in a product, the best of some."""
    matrix = np.random.default_rng(0).normal(size=(PRODUCT, PRODUCT)).astype(precision)
    with single_thread(1):
        return PRODUCT**3 / time_call(lambda: matrix @ matrix, 7, time.process_time)[0]


@contextmanager
def _watch(spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds of the parts of updates."""

    def time_part(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            seconds, found = time_call(partial(work, *given, **named), 1, time.process_time)
            spent[part] = spent.get(part, 0.0) + seconds
            return found

        return call

    places: list[tuple[Any, str, str]] = [
        (MomentMemory, "_compute_features", "features"),
        (MomentMemory, "_count", "moments"),
        (MomentMemory, "_add_to_products", "products carried along"),
        (Candidates, "__init__", "candidates' matrices"),
    ]
    with ExitStack() as patched:
        for owner, name, part in places:
            work = time_part(part, getattr(owner, name))
            patched.enter_context(mock.patch.object(owner, name, work))
        way = {"elimination": time_part("elimination", SEARCHES["elimination"])}
        patched.enter_context(mock.patch.dict(SEARCHES, way))
        yield
