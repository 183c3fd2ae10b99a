"""Cost and gain of exchanges compared with greedy selection.

    python -m benchmarks exchange --data DIR --record

Whole calls of ``bicore.select`` on one thread in float64, the kernel matrix included: MNIST with
the default kernel, and a made-up embedding with the linear one. Seconds are processor time,
the least of some repeats, so that other processes count little.
"""

from collections.abc import Iterator
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from benchmarks.common import ONE_THREAD, make_embedding, mnist_vectors, time_call
from bicore import select

#: Name, rows, points chosen, options, the most times greedy's seconds that were aimed at, repeats.
PROBLEMS = (
    ("MNIST", 1000, 100, {"rule": "gradient"}, 2.0, 3),
    ("MNIST", 1000, 100, {"rule": "gain"}, 2.0, 3),
    ("MNIST", 10_000, 500, {"rule": "gradient"}, 5.0, 1),
    ("embedding", 50_000, 100, {"kernel": "linear"}, None, 1),
)
WIDTH = 256


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    for name, count, size, options, aim, repeats in PROBLEMS:
        if name == "MNIST":
            x, y = mnist_vectors(arguments.data, "train", count)
        else:
            x, y = make_embedding(count, WIDTH)
        found = {"data": name, "rows": count, "size": size, "options": options, "aim": aim}
        for strategy in ("greedy", "exchange"):
            own = {"strategy": strategy, "runtime": ONE_THREAD, **options}
            work = partial(select, x.astype(np.float64), y, size, **own)
            seconds, coreset = time_call(work, repeats, process_time)
            found[strategy] = {"seconds": seconds, "objective": coreset.objective}
        ratio = found["exchange"]["seconds"] / found["greedy"]["seconds"]
        yield {**found, "exchanges": coreset.details["exchanges"], "ratio": ratio}
