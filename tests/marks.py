"""Run a few cases in ``make test`` and all of them in ``make test-all``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def few(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Mark all but the first cases as slow."""
    return [_mark(case, number >= fast) for number, case in enumerate(cases)]


def except_slow(cases: Iterable[Any], slow: Iterable[Any]) -> list[Any]:
    """Mark the cases that are named as slow."""
    slow = list(slow)
    return [_mark(case, case in slow) for case in cases]


def diagonal(first: Iterable[Any], second: Iterable[Any], step: int) -> list[Any]:
    """Pair each case with one in ``step`` of the others; the other pairs are slow."""
    pairs = product(enumerate(first), enumerate(second))
    return [_mark((a, b), (i + j) % step > 0) for (i, a), (j, b) in pairs]


def _mark(case: Any, slow: bool) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=[pytest.mark.slow] * slow)
