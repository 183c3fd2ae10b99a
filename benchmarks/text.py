"""Which texts to label: rows of a frozen embedding for a logistic head, chosen by each method.

    python -m benchmarks text --data FOLDER --seeds 10 --processes 5 --rows ROWS.jsonl --record

FOLDER holds ``train.npy``, ``test.npy`` and labels in ``train_labels.npy``, ``test_labels.npy``:
here BANKING77, on which nothing was chosen. Three questions: rows of a pool with labels to train
on; a first round without labels; five further rounds of one row per class. The head is fitted with
each of three strengths C, and a table shows the best mean of them, for every method. Rows are
written as they come; a rerun continues from them.
"""

import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import bicore
from benchmarks.common import Rows, report
from benchmarks.labelling import COLD, WARM, uniform
from bicore import Runtime
from bicore.active import query_by_variance

STRENGTHS = (10.0, 100.0, 1000.0)
#: The strength of the head that margin and BADGE ask, as in ``query_by_variance``.
ASKED = 10.0
ROUNDS = 5
#: Rows per class of each question.
WITH_LABELS = {"uniform": (1, 2, 5, 10, 20), "class-balanced": (1, 2, 5, 10), "bilevel": (1, 2)}
WITH_LABELS |= {"bilevel, model='linear'": (1, 2), "herding per class": (1, 2, 5)}
FIRST_ROUND = (1, 5)
OWN = ("clusters", "reconstruction", "v-design")
RUNTIME = Runtime("cpu", threads=1, progress=False)
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def run(arguments: Any) -> dict[str, Any]:
    rows = Rows(arguments.rows)
    jobs = [
        (arguments.data, question, method, each, seed)
        for seed in range(arguments.seeds)
        for question, method, each in _cases()
        if rows.find(question=question, method=method, each=each, seed=seed) is None
    ]
    over = time.time() + 60 * arguments.minutes if arguments.minutes else float("inf")
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(evaluate, *job, over) for job in jobs]):
            found = done.result()
            if found is not None:
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


def evaluate(
    folder: str, question: str, method: str, each: int, seed: int, over: float = float("inf")
) -> dict[str, Any] | None:
    """One row of the record; None after the time is over."""
    if time.time() > over:
        return None
    warnings.simplefilter("ignore")
    data = _load(folder)
    size = each * len(np.unique(data[1]))
    begun = time.perf_counter()
    if question == "rounds":
        scores = _rounds(data, method, size, seed)
    else:
        choose = _with_labels if question == "pool" else _first_round
        scores = _scores(data, choose(data, method, size, seed))
    return {
        "question": question,
        "method": method,
        "each": each,
        "seed": seed,
        "size": size,
        "accuracy": scores,
        "seconds": time.perf_counter() - begun,
    }


def _head(x: np.ndarray, y: np.ndarray, strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=300).fit(x, y)


def _scores(data: Data, rows: np.ndarray) -> list[float]:
    """The accuracy of the head with each strength."""
    x, y, test_x, test_y = data
    return [float(_head(x[rows], y[rows], one).score(test_x, test_y)) for one in STRENGTHS]


def _with_labels(data: Data, method: str, size: int, seed: int) -> np.ndarray:
    x, y = data[:2]
    if method == "uniform":
        return np.random.default_rng(seed).choice(len(x), size, replace=False)
    options: dict[str, Any] = {"random_state": seed, "runtime": RUNTIME}
    if method == "herding per class":
        return bicore.select(x, y, size, method="icarl", over="features", **options).indices
    if method == "class-balanced":
        options["method"] = method
    if "linear" in method:
        options["model"] = "linear"
    return bicore.select(x, y, size, **options).indices


def _first_round(data: Data, method: str, size: int, seed: int) -> np.ndarray:
    x, y = data[:2]
    if method in COLD:
        none = np.array([], dtype=int)
        return COLD[method](x, none, size, np.random.default_rng(seed), len(np.unique(y)))
    options = {"method": method, "random_state": seed, "runtime": RUNTIME}
    return bicore.select(x, size=size, **options).indices


def _rounds(data: Data, method: str, size: int, seed: int) -> list[list[float]]:
    """The accuracy after each round; all methods begin with the same first round."""
    x, y = data[:2]
    rng = np.random.default_rng(seed)
    labelled = COLD["k-means centres"](x, np.array([], dtype=int), size, rng, 0)
    scores = [_scores(data, labelled)]
    for _ in range(ROUNDS):
        if method == "uniform":
            new = uniform(x, labelled, size, rng, 0)
        elif method in WARM:
            head = _head(x[labelled], y[labelled], ASKED)
            new = WARM[method](x, head.predict_proba(x), labelled, size, rng)
        else:
            free = np.setdiff1d(np.arange(len(x)), labelled)
            known = (x[labelled], y[labelled], x[free], size)
            new = free[query_by_variance(*known, random_state=seed, runtime=RUNTIME).indices]
        labelled = np.r_[labelled, new]
        scores.append(_scores(data, labelled))
    return scores
