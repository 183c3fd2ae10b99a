"""Strategies by name: a new strategy is one file and one line of this table."""

from __future__ import annotations

from collections.abc import Callable

from bicore.bilevel.strategies.base import Batches, Greedy, Strategy, UnsetStrategy
from bicore.bilevel.strategies.refining import Elimination, Exchange, Simplex

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "auto": UnsetStrategy,
    "greedy": Greedy,
    "batches": Batches,
    "exchange": Exchange,
    "elimination": Elimination,
    "simplex": Simplex,
}
