"""Which texts to label: rows of a frozen embedding for a logistic head, selected by each method.

    python -m benchmarks text --data FOLDER --seeds 10 --processes 5 --rows ROWS.jsonl --record

FOLDER holds ``train.npy``, ``test.npy`` and labels in ``train_labels.npy``, ``test_labels.npy``:
here BANKING77, on which nothing was chosen. Three questions: rows of a pool with labels to train
on; a first round without labels; five further rounds of one row per class. The head is fitted with
each of three strengths C, and a table shows the best mean of them, for every method. Rows are
written as they come; a rerun continues from them.
"""

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import bicore
from benchmarks.common import ONE_THREAD, Rows, report, run_jobs, time_call
from benchmarks.labelling import COLD, NONE, WARM, uniform
from bicore.active import query_by_variance

STRENGTHS = (10.0, 100.0, 1000.0)
#: The strength of the head that margin and BADGE ask, as in ``query_by_variance``.
ASKED = 10.0
ROUNDS = 5
#: Rows per class of each question.
WITH_LABELS = {"uniform": (1, 2, 5, 10, 20), "class-balanced": (1, 2, 5, 10), "bilevel": (1, 2)}
WITH_LABELS |= {"bilevel, model='linear'": (1, 2), "herding per class": (1, 2, 5)}
FIRST_ROUND = (1, 5)
OWN = ("k-medoids", "reconstruction", "v-design")
#: Options of our own methods.
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in OWN},
    "bilevel": {},
    "bilevel, model='linear'": {"model": "linear"},
    "class-balanced": {"method": "class-balanced"},
    "herding per class": {"method": "icarl", "over": "features"},
}
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def run(arguments: Any) -> dict[str, Any]:
    rows = Rows(arguments.rows)
    jobs = [
        (arguments.data, question, method, each, seed)
        for seed in range(arguments.seeds)
        for question, method, each in _cases()
        if rows.find(question=question, method=method, each=each, seed=seed) is None
    ]
    for found in run_jobs(evaluate, jobs, arguments.processes, arguments.minutes):
        rows.add(found)
        report(*found.values())
    return {"strengths": STRENGTHS, "rows": list(rows)}


def _cases() -> list[tuple[str, str, int]]:
    cold = [("first round", name, each) for each in FIRST_ROUND for name in (*COLD, *OWN)]
    pool = [("pool", name, each) for name, sizes in WITH_LABELS.items() for each in sizes]
    return [*pool, *cold, *(("rounds", name, 1) for name in ("uniform", *WARM, "by variance"))]


@cache
def _load(folder: str) -> Data:
    x, test_x = (
        np.load(Path(folder) / f"{part}.npy").astype(np.float64) for part in ("train", "test")
    )
    labels = [np.load(Path(folder) / f"{part}_labels.npy") for part in ("train", "test")]
    classes = np.unique(labels[0])
    return x, np.searchsorted(classes, labels[0]), test_x, np.searchsorted(classes, labels[1])


def evaluate(folder: str, question: str, method: str, each: int, seed: int) -> dict[str, Any]:
    """One row of the record."""
    data = _load(folder)
    size = each * len(np.unique(data[1]))
    labels = data[1] if question == "pool" else None
    work = _learn if question == "rounds" else partial(_choose, labels=labels)
    seconds, scores = time_call(partial(work, data, method, size, seed))
    row = {"question": question, "method": method, "each": each, "seed": seed, "size": size}
    return {**row, "accuracy": scores, "seconds": seconds}


def _fit(x: np.ndarray, y: np.ndarray, strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=300).fit(x, y)


def _score(data: Data, rows: np.ndarray) -> list[float]:
    """The accuracy of the head with each strength."""
    x, y, test_x, test_y = data
    return [float(_fit(x[rows], y[rows], one).score(test_x, test_y)) for one in STRENGTHS]


def _choose(
    data: Data, method: str, size: int, seed: int, labels: np.ndarray | None
) -> list[float]:
    """The accuracies of one selection, by our own methods with or without labels."""
    x, y = data[:2]
    if method in COLD:
        rng = np.random.default_rng(seed)
        return _score(data, COLD[method](x, NONE, size, rng, len(np.unique(y))))
    options = {"random_state": seed, "runtime": ONE_THREAD, **OPTIONS[method]}
    return _score(data, bicore.select(x, labels, size, **options).indices)


def _learn(data: Data, method: str, size: int, seed: int) -> list[list[float]]:
    """The accuracy after each round; all methods begin with the same first round."""
    x, y = data[:2]
    rng = np.random.default_rng(seed)
    labelled = COLD["k-means centres"](x, NONE, size, rng, 0)
    scores = [_score(data, labelled)]
    for _ in range(ROUNDS):
        if method == "uniform":
            new = uniform(x, labelled, size, rng, 0)
        elif method in WARM:
            odds = _fit(x[labelled], y[labelled], ASKED).predict_proba(x)
            new = WARM[method](x, odds, labelled, size, rng)
        else:
            free = np.setdiff1d(np.arange(len(x)), labelled)
            known = (x[labelled], y[labelled], x[free], size)
            new = free[query_by_variance(*known, random_state=seed, runtime=ONE_THREAD).indices]
        labelled = np.r_[labelled, new]
        scores.append(_score(data, labelled))
    return scores
