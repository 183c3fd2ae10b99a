"""Real data sets, different evaluation models, all variants: the defaults were chosen and are shown
on them.

``python -m benchmarks battery --protocol NAME --sets DIR``; with ``--only SET,…`` these sets join
the rows of the record. The sets come from ``python -m benchmarks.battery.sets``, the page from
``python -m benchmarks page``.
"""

from typing import Any


def run(arguments: Any) -> dict[str, Any]:
    from benchmarks.battery.work import run_protocol

    return run_protocol(arguments)
