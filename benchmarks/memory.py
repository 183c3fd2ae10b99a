"""Memory of a selection beyond its stored Gram matrix, when the last point is chosen.

    python -m benchmarks memory --json [--record]

Counts the bytes of every tensor that is alive then, each storage once; what a step allocates and
frees is n·C numbers.
"""

from typing import Any

from benchmarks.common import report, run_python

CODE = """
import gc, torch, numpy as np
from bicore import Runtime, select
from bicore.kernels import RBF
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


#: Points of the pool, points chosen, loss.
CASES = ((6000, 1000, "squared"), (3000, 300, "cross-entropy"))


def run(arguments: Any) -> dict[str, Any]:
    rows = []
    for n, m, loss in CASES:
        gram = 8 * n * n
        beyond = int(run_python(CODE.format(n=n, m=m, loss=loss))) - gram
        sizes = {"n_times_m_bytes": 8 * n * m, "gram_bytes": gram}
        rows.append({"loss": loss, "n": n, "m": m, "beyond_gram_bytes": beyond, **sizes})
        report(rows[-1])
    return {"rows": rows}
