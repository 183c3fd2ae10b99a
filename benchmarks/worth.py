"""What the default's picks are worth in random rows, and how long the default takes.

    python -m benchmarks worth --data DIR --record

The pool is all 50 000 rows of the frozen embedding of CIFAR-10, the judge a logistic head, tested
on the embedding's own test set. Seconds are the processor's own, one thread, the least of some
repeats; the smaller problem is 1000 images of MNIST.
"""

from typing import Any

import numpy as np

from benchmarks.common import cifar_embedding, data_folder, mnist_vectors, report
from benchmarks.exchange import timed
from bicore import Runtime, worth

SIZES = (50, 100)
#: The largest random sample that is judged.
MOST = 10_000


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    train, test = cifar_embedding(folder, "train"), cifar_embedding(folder, "test")
    rows, seconds = [], []
    x, y = mnist_vectors(folder, "train", 1000)
    spent, _ = timed(x.astype(np.float64), y, 100, arguments.repeats)
    seconds.append({"rows": 1000, "width": x.shape[1], "size": 100, "seconds": spent})
    for size in SIZES:
        spent, coreset = timed(*train, size, arguments.repeats)
        seconds.append({"rows": 50_000, "width": 256, "size": size, "seconds": spent})
        runtime = Runtime("cpu", "float64", progress=False, threads=1)
        found = worth(*train, coreset, test=test, judge="logistic", most=MOST, runtime=runtime)
        worths = {own.baseline: [own.rows, own.low, own.high] for own in found.baselines}
        rows.append({"size": size, "score": found.score, "worth": worths})
        report(rows[-1], seconds)
    return {"rows": rows, "seconds": seconds}
