"""How many random rows the default's picks are worth, and how long the default takes.

    python -m benchmarks worth --data DIR --record

The pool is all 50 000 rows of the frozen embedding of CIFAR-10, the evaluation model a logistic
head, tested on the embedding's own test set. Seconds are processor time on one thread, the least
of some repeats; the smaller problem is 1000 images of MNIST. Scores of every seed are recorded, so
that the intervals can be computed again.
"""

from typing import Any
from unittest import mock

import numpy as np

from benchmarks.common import cifar_embedding, data_folder, mnist_vectors, report
from benchmarks.exchange import timed
from bicore import Runtime, worth
from bicore.evaluate.worth import Curve

SIZES = (50, 100)
#: The largest random sample that is evaluated.
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
        rows.append(_worth(train, test, coreset))
        report(rows[-1], seconds)
    return {"rows": rows, "seconds": seconds}


def _worth(train: Any, test: Any, coreset: Any) -> dict[str, Any]:
    """The numbers with their intervals, and the scores of every seed behind them."""
    curves: dict[str, Any] = {}
    answer = Curve.equivalent

    def keep(curve: Curve, baseline: str, size: int) -> Any:
        random = {str(count): scores.tolist() for count, scores in curve.scores.items()}
        curves[baseline] = {"chosen": np.asarray(curve.chosen).tolist(), "random": random}
        return answer(curve, baseline, size)

    runtime = Runtime("cpu", "float64", progress=False, threads=1)
    with mock.patch.object(Curve, "equivalent", keep):
        found = worth(*train, coreset, test=test, judge="logistic", most=MOST, runtime=runtime)
    worths = {own.baseline: [own.rows, own.low, own.high] for own in found.baselines}
    return {"size": len(coreset), "score": found.score, "worth": worths, "scores": curves}
