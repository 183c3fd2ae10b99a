"""The choice of ρ for the speed table of the squared-error engine: every value tried, evaluated on
that problem.

    python -m benchmarks regulariser --data DIR --json [--record]

The table asks for picks whose refitted cross-entropy loss is close to the cross-entropy engine's. ρ
has no published value for the squared error there, so it is a tuned parameter of that table; this
record shows what the tuning saw.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks.selection import LAMBDA, SIZES, load_problem, refit_loss
from bicore.bilevel import PerPoint
from bicore.methods.registry import greedy_selector

GRID = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    data = load_problem(arguments.data)
    own = greedy_selector(loss="cross-entropy", inner_reg=PerPoint(LAMBDA)).select(data, max(SIZES))
    aims = {size: refit_loss(data, own.prefix(size)) for size in SIZES}
    for rule, rho in product(("gradient", "gain"), GRID):
        picks = greedy_selector(inner_reg=rho, rule=rule).select(data, max(SIZES))
        losses = {size: refit_loss(data, picks.prefix(size)) for size in SIZES}
        excess = {size: losses[size] / aims[size] - 1 for size in SIZES}
        yield {"rule": rule, "rho": rho, "losses": losses, "excess": excess}
