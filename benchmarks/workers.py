"""One Dask worker and two: seconds of the passes of one selection, and the same points.

    python -m benchmarks workers --json --record [--pool ROWS]

Needs the extra ``dask`` and two cores that nobody else uses.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report
from benchmarks.scale import Timed, _write
from bicore.errors import InputError
from bicore.shards import DaskExecutor, select_from_shards
from bicore.sources.numpy_files import NpyShards

ROWS, WIDTH, SIZE = 1_000_000, 256, 100
#: Parts for each of two workers, so that none waits long for the other's last one.
PARTS = 8


def run(arguments: Any) -> dict[str, Any]:
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise InputError("this benchmark needs Dask: pip install 'bicore[dask]'.") from error
    count = arguments.pool or ROWS
    rows, picks = [], []
    with tempfile.TemporaryDirectory(prefix="bicore-workers-") as folder:
        x, y = Path(folder) / "x.npy", Path(folder) / "y.npy"
        _write(x, y, count, WIDTH)
        source = NpyShards(x, labels=y, part_rows=max(1, count // PARTS))
        for workers in (1, 2):
            alone = {"threads_per_worker": 1, "dashboard_address": None}
            with LocalCluster(n_workers=workers, **alone) as cluster:
                timed = Timed(DaskExecutor(cluster.scheduler_address))
                found = select_from_shards(source, SIZE, executor=timed, exchange=False)
                timed.executor.client.close()
            picks.append(found.indices)
            row = {"workers": workers, "passes_seconds": sum(timed.seconds)}
            further = float(np.median(timed.seconds[1:]))
            rows.append({**row, "further_pass": further, "seconds": found.provenance.seconds})
            report(rows[-1])
    one, two = rows
    facts = {"count": count, "width": WIDTH, "size": SIZE, "rows": rows}
    faster = one["passes_seconds"] / two["passes_seconds"]
    return {**facts, "times_faster": faster, "same_picks": bool(np.array_equal(*picks))}
