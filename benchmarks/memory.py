"""Memory of a selection beyond its stored Gram matrix, when the last point is in.

    python -m benchmarks memory --json [--record]

Counts the bytes of every tensor that is alive then, each storage once; what a step allocates and
frees is n·C numbers.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks.common import machine

CODE = """
import gc, torch, numpy as np
from bicore import RBF, Runtime, select
n, m = {n}, {m}
x = np.random.default_rng(0).normal(size=(n, 5)); y = x[:, 0] > 0
def note(step):
    if step.done == m:
        alive = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
        held = [tensor.untyped_storage() for tensor in alive]
        print(sum({{one.data_ptr(): one.nbytes() for one in held}}.values()))
runtime = Runtime(device="cpu", threads=1, progress=note)
select(x, y, m, kernel=RBF(0.1), loss="{loss}", inner_reg=0.1, runtime=runtime)
"""


def run(arguments: Any) -> dict[str, Any]:
    rows = [_grown(*case) for case in ((6000, 1000, "squared"), (3000, 300, "cross-entropy"))]
    for row in rows:
        print(row, file=sys.stderr)
    return {"benchmark": "memory", "machine": machine(), "rows": rows}


def _grown(n: int, m: int, loss: str) -> dict[str, Any]:
    code = CODE.format(n=n, m=m, loss=loss)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    beyond = int(result.stdout) - 8 * n * n
    return {
        "loss": loss,
        "n": n,
        "m": m,
        "beyond_gram_bytes": beyond,
        "n_times_m_bytes": 8 * n * m,
        "gram_bytes": 8 * n * n,
    }
