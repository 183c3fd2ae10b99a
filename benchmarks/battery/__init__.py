"""Comparisons on real data sets with several evaluation models, to choose and to evaluate defaults.

``python -m benchmarks battery --protocol NAME --sets DIR``; with ``--only SET,…`` these sets join
the rows of the record. The sets come from ``python -m benchmarks.battery.sets``, the page from
``python -m benchmarks page``.
"""

from typing import Any


def run(arguments: Any) -> dict[str, Any]:
    from benchmarks.battery.work import run_protocol

    return run_protocol(arguments)
