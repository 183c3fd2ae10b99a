"""Memory of a selection beyond its stored Gram matrix, when the last point is chosen.

    python -m benchmarks memory --json [--record]

Counts the bytes of every tensor that is alive then, each storage once; what a step allocates and
frees is n·C numbers.
"""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.common import call_alone
from bicore import Runtime, select
from bicore.kernels import RBF

#: Points of the pool, points chosen, loss.
CASES = ((6000, 1000, "squared"), (3000, 300, "cross-entropy"))


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    for n, m, loss in CASES:
        gram = 8 * n * n
        beyond = call_alone(count_bytes, n, m, loss) - gram
        sizes = {"n_times_m_bytes": 8 * n * m, "gram_bytes": gram}
        yield {"loss": loss, "n": n, "m": m, "beyond_gram_bytes": beyond, **sizes}


def count_bytes(n: int, m: int, loss: str) -> int:
    """Bytes of all tensors at the last point."""
    x = np.random.default_rng(0).normal(size=(n, 5))
    found = []

    def note(step: Any) -> None:
        if step.done == m:
            alive = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
            held = [tensor.untyped_storage() for tensor in alive]
            found.append(sum({one.data_ptr(): one.nbytes() for one in held}.values()))

    runtime = Runtime(device="cpu", threads=1, progress=note)
    select(x, x[:, 0] > 0, m, kernel=RBF(0.1), loss=loss, inner_reg=0.1, runtime=runtime)
    return found[-1]
