"""One Dask worker and two: seconds of the passes of one selection, and the same points.

    python -m benchmarks workers --json --record [--pool ROWS]

Needs the extra ``dask`` and two cores without other work.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale import Timed, write_rows
from bicore.errors import InputError
from bicore.shards import DaskExecutor, select_from_shards

ROWS, WIDTH, SIZE = 1_000_000, 256, 100
#: Parts for each of two workers, so that none waits long for the other's last one.
PARTS = 8


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise InputError("this benchmark needs Dask: pip install 'bicore[dask]'.") from error
    count = arguments.pool or ROWS
    seconds, picks = [], []
    with tempfile.TemporaryDirectory(prefix="bicore-workers-") as folder:
        source = write_rows(Path(folder), count, WIDTH, part_rows=max(1, count // PARTS))
        for workers in (1, 2):
            alone = {"threads_per_worker": 1, "dashboard_address": None}
            with LocalCluster(n_workers=workers, **alone) as cluster:
                timed = Timed(DaskExecutor(cluster.scheduler_address))
                found = select_from_shards(source, SIZE, executor=timed, exchange=False)
                timed.executor.client.close()
            picks.append(found.indices)
            seconds.append(sum(timed.seconds))
            row = {"workers": workers, "passes_seconds": seconds[-1]}
            further = float(np.median(timed.seconds[1:]))
            yield {**row, "further_pass": further, "seconds": found.provenance.seconds}
    facts = {"count": count, "width": WIDTH, "size": SIZE, "times_faster": seconds[0] / seconds[1]}
    return {**facts, "same_picks": bool(np.array_equal(*picks))}
