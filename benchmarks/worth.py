"""The worth of the default's selections in random rows, and the time of the default.

    python -m benchmarks worth --data DIR --record

The pool is all 50 000 rows of the frozen embedding of CIFAR-10, the evaluation model a logistic
head, tested on the embedding's own test set. Seconds are processor time on one thread, the least
of some repeats; the smaller problem is 1000 images of MNIST. Scores of every seed are recorded, so
that the intervals can be computed again.
"""

from collections.abc import Iterator
from functools import partial
from time import process_time
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.common import ONE_THREAD, cifar_embedding, data_folder, mnist_vectors, time_call
from bicore import select, worth
from bicore.evaluate.worth import Curve

SIZES = (50, 100)
#: The largest random sample that is evaluated.
MOST = 10_000


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    folder, seconds = data_folder(arguments.data), []

    def choose(x: np.ndarray, y: np.ndarray, size: int) -> Any:
        work = partial(select, x.astype(np.float64), y, size, runtime=ONE_THREAD)
        spent, coreset = time_call(work, arguments.repeats, process_time)
        facts = {"rows": len(x), "width": x.shape[1], "size": size}
        seconds.append({**facts, "seconds": spent})
        return coreset

    choose(*mnist_vectors(folder, "train", 1000), 100)
    train, test = cifar_embedding(folder, "train"), cifar_embedding(folder, "test")
    for size in SIZES:
        yield _measure(train, test, choose(*train, size))
    return {"seconds": seconds}


def _measure(train: Any, test: Any, coreset: Any) -> dict[str, Any]:
    """The numbers with their intervals, and the scores of every seed behind them."""
    curves: dict[str, Any] = {}
    answer = Curve.equivalent

    def keep(curve: Curve, baseline: str, size: int) -> Any:
        random = {str(count): scores.tolist() for count, scores in curve.scores.items()}
        curves[baseline] = {"chosen": np.asarray(curve.chosen).tolist(), "random": random}
        return answer(curve, baseline, size)

    options = {"test": test, "judge": "logistic", "max_rows": MOST, "runtime": ONE_THREAD}
    with mock.patch.object(Curve, "equivalent", keep):
        found = worth(*train, coreset, **options)
    worths = {own.baseline: [own.rows, own.low, own.high] for own in found.baselines}
    return {"size": len(coreset), "score": found.score, "worth": worths, "scores": curves}
