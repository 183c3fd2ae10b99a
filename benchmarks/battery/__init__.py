"""Real data sets, judges that differ, all variants: what the defaults were chosen by and shown on.

``python -m benchmarks battery --protocol NAME --sets DIR``; the sets come from
``python -m benchmarks.battery.sets``, the page from ``python -m benchmarks page``.
"""

from __future__ import annotations

from typing import Any


def run(arguments: Any) -> dict[str, Any]:
    """Work through a protocol; rows come one by one, so that a second run goes on."""
    from benchmarks.battery.work import worked

    return worked(arguments)
