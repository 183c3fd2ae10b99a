"""How the squared-error engine's ρ was chosen for the speed table: every value tried, judged on
that very problem.

    python -m benchmarks regulariser --data DIR --json [--record]

The table asks for picks whose refitted cross-entropy loss is close to the cross-entropy engine's. ρ
has no published value for the squared error there, so it is a tuned parameter of that table; this
record shows what the tuning saw.
"""

from typing import Any

import numpy as np

from benchmarks.common import data_folder, mnist_vectors, report
from benchmarks.selection import LAMBDA, POINTS, SIZES, refitted
from bicore import Dataset, select
from bicore.bilevel import PerPoint

GRID = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)


def run(arguments: Any) -> dict[str, Any]:
    x, y = mnist_vectors(data_folder(arguments.data), limit=POINTS)
    data = Dataset(x.astype(np.float64), y)
    own = select(data, size=max(SIZES), loss="cross-entropy", inner_reg=PerPoint(LAMBDA))
    aims = {size: refitted(data, own.prefix(size)) for size in SIZES}
    rows = []
    for rule in ("gradient", "gain"):
        for rho in GRID:
            picks = select(data, size=max(SIZES), loss="squared", inner_reg=rho, rule=rule)
            losses = {size: refitted(data, picks.prefix(size)) for size in SIZES}
            excess = {size: losses[size] / aims[size] - 1 for size in SIZES}
            rows.append({"rule": rule, "rho": rho, "losses": losses, "excess": excess})
            report(rows[-1])
    return {"cross_entropy_losses": aims, "rows": rows}
