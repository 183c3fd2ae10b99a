"""One and two Dask workers: seconds of the passes of one selection with identical results.

    python -m benchmarks workers --json --record [--pool ROWS]

Workers import the library before the first pass; the seconds of that are a column of their own.
Seconds need three cores without other work: one is for the client. ``worker`` and ``client`` are
processor seconds during the passes, which other work hardly changes: of the busiest worker, and of
the client with the scheduler. If client and workers never worked at the same time, their sum would
be the time on idle cores. Needs the extra ``dask``.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.common import time_call
from benchmarks.scale import Timed, write_rows
from bicore.errors import InputError
from bicore.shards import DaskExecutor, select_from_shards

ROWS, WIDTH, SIZE = 1_000_000, 256, 100
#: Parts for each of two workers, so that none waits long for the other's last one.
PARTS = 8


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError("this benchmark needs Dask: pip install 'bicore[dask]'.") from error
    count = arguments.pool or ROWS
    seconds, picks = [], []
    with tempfile.TemporaryDirectory(prefix="bicore-workers-") as folder:
        source = write_rows(Path(folder), count, WIDTH, part_rows=max(1, count // PARTS))
        for workers in (1, 2):
            alone = {"threads_per_worker": 1, "dashboard_address": None}
            with LocalCluster(n_workers=workers, **alone) as cluster:
                client = Client(cluster)
                timed = Timed(DaskExecutor(client))
                start, _ = time_call(partial(client.run, exec, "import bicore.shards"))
                before = client.run(process_time)
                found = select_from_shards(source, SIZE, executor=timed, exchange=False)
                after = client.run(process_time)
                client.close()
            picks.append(found.indices)
            seconds.append(sum(timed.seconds))
            yield {
                "workers": workers,
                "start": start,
                "passes_seconds": seconds[-1],
                "worker": max(after[name] - before[name] for name in after),
                "client": timed.own,
                "first_pass": timed.seconds[0],
                "further_pass": float(np.median(timed.seconds[1:])),
                "seconds": found.provenance.seconds,
            }
    facts = {"count": count, "width": WIDTH, "size": SIZE, "times_faster": seconds[0] / seconds[1]}
    return {**facts, "same_picks": bool(np.array_equal(*picks))}
