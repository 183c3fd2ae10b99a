"""Other libraries on many rows: seconds, peak memory, and the accuracy of models trained on their
selections.

    BICORE_PEERS=…/python python -m benchmarks peers_scale --data DIR --json --record
        [--pool MOST_ROWS] [--rows FILE]

BICORE_PEERS is the Python of an environment that has the peers (benchmarks/peers/at_scale.py says
which), the one at work by default. Every selection is a process of its own, with BICORE_LIMIT
seconds of processor time (600) and BICORE_MEMORY bytes (8e9); a row says why a selection failed. A
rerun continues from its rows. Data: made up like an embedding, and the real one in
DIR/cifar10-embedding.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from benchmarks.common import Rows, cifar_embedding, report
from benchmarks.peers.at_scale import METHODS

SCRIPT = Path(__file__).parent / "peers" / "at_scale.py"
COUNTS = (20_000, 100_000, 1_000_000)
SHARES = (0.001, 0.01, 0.05)
WIDTH, KINDS, TEST_ROWS = 128, 5, 10_000
#: Maximum number of rows for a logistic head; a ridge head is fitted on more rows.
MOST_LOGISTIC = 5000
PEERS = os.environ.get("BICORE_PEERS", sys.executable)
LIMIT = float(os.environ.get("BICORE_LIMIT", 600))
MEMORY = int(float(os.environ.get("BICORE_MEMORY", 8e9)))
#: Penalties, as shares of the mean eigenvalue (ridge) and as 1/C (logistic). Held-out rows of the
#: pool choose among them, the same number for every selection.
PENALTIES = (0.1, 1.0, 10.0)
TUNING_ROWS = 300
MOST_ITERATIONS = 500
CLASSES = 10
Data = dict[str, np.ndarray]
#: How much of what a process said before it failed is kept.
MOST_WORDS = 160


def run(arguments: Any) -> dict[str, Any]:
    most = arguments.pool or max(COUNTS)
    done = Rows(arguments.rows)
    with tempfile.TemporaryDirectory(prefix="bicore-peers-") as folder:
        for name, data in _sets(arguments.data, most):
            _compare(done, name, data, Path(folder))
    limits = {"limit_seconds": LIMIT, "limit_bytes": MEMORY}
    return {**limits, "versions": _versions(), "rows": list(done)}


def _sets(folder: str | None, most: int) -> Iterator[tuple[str, Data]]:
    for count in COUNTS:
        if count <= most:
            yield f"made up, {count} rows", make_embedding(count)
    if (Path(folder or ".") / "cifar10-embedding" / "train.npz").exists():
        (x, y), (test_x, test_y) = (cifar_embedding(folder, part) for part in ("train", "test"))
        data = {"x": x.astype(np.float32), "y": y, "test_x": test_x, "test_y": test_y}
        yield "CIFAR-10 embedding, 50000 rows", data


def make_embedding(count: int) -> Data:
    """Classes of several kinds whose directions decay as those of embeddings do."""
    rng = np.random.default_rng(3)
    spread = np.arange(1, WIDTH + 1) ** -0.4
    kinds = rng.standard_normal((CLASSES, KINDS, WIDTH), dtype=np.float32)
    shares = rng.dirichlet(np.full(KINDS, 1.0), CLASSES).cumsum(1)
    labels = rng.integers(0, CLASSES, count + TEST_ROWS)
    x = np.empty((len(labels), WIDTH), dtype=np.float16)
    for start in range(0, len(labels), 50_000):
        own = labels[start : start + 50_000]
        kind = (rng.random(len(own))[:, None] > shares[own]).sum(1)
        noise = rng.standard_normal((len(own), WIDTH), dtype=np.float32)
        x[start : start + 50_000] = (0.5 * kinds[own, kind] + noise) * spread
    return {
        "x": x[:count],
        "y": labels[:count],
        "test_x": x[count:].astype(np.float64),
        "test_y": labels[count:],
    }


def _compare(done: Rows, name: str, data: Data, folder: Path) -> None:
    np.save(folder / "x.npy", data["x"])
    np.save(folder / "y.npy", data["y"])
    for method in METHODS:
        for share in SHARES:
            size = round(share * len(data["x"]))
            key = {"method": f"{method} | {name}", "seed": 0, "size": size}
            row = done.find(**key)
            if row is None:
                facts = {"peer": method, "data": name, "count": len(data["x"]), "share": share}
                row = {**key, **facts, **_pick(method, size, folder)}
                if "failed" not in row:
                    picks = np.load(folder / "picks.npy")
                    row |= score_heads(picks, data, logistic=len(picks) <= MOST_LOGISTIC)
                done.add(row)
                report(row)
            if "failed" in row:
                break  # more points take no less


def _pick(method: str, size: int, folder: Path) -> dict[str, Any]:
    python = sys.executable if method.startswith("bicore") else PEERS
    words = [str(folder / "x.npy"), str(folder / "y.npy"), str(size), str(folder / "picks.npy")]
    command = [python, str(SCRIPT), method, *words]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, preexec_fn=_set_limits)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
    peak = {"peak_bytes": used.ru_maxrss * 1024, "cpu_seconds": used.ru_utime + used.ru_stime}
    if code == -signal.SIGXCPU:
        return {"failed": f"no answer in {LIMIT:.0f} s of processor time", **peak}
    if code != 0:
        lines = (folder / "err").read_text().strip().splitlines() or [f"ended with {code}"]
        return {"failed": lines[-1][:MOST_WORDS], **peak}
    return json.loads((folder / "out").read_text().splitlines()[-1]) | peak


def _set_limits() -> None:
    """Limit processor time, because other processes may be at work on the machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT), int(LIMIT) + 5))


def _versions() -> dict[str, str]:
    """The versions in the peers' environment."""
    names = ["apricot-select", "coreax", "scikit-learn", "numpy"]
    code = (
        "import importlib.metadata as m, json\n"
        f"print(json.dumps({{d.metadata['Name']: d.version for d in m.distributions() "
        f"if d.metadata['Name'] in {names!r}}}))"
    )
    return json.loads(subprocess.run([PEERS, "-c", code], capture_output=True, text=True).stdout)


def score_heads(picks: np.ndarray, data: Data, logistic: bool = True) -> dict[str, float]:
    """Accuracies on ``test_x`` and ``test_y`` of linear heads trained on the rows ``picks``."""
    x, y = data["x"][picks].astype(np.float64), data["y"][picks]
    if len(np.unique(y)) < 2:
        score = float((data["test_y"] == y[0]).mean())
        return dict.fromkeys(["logistic", "ridge"][not logistic :], score)
    energy = x.var(0).mean() * len(x) + np.finfo(float).tiny
    heads = {
        "logistic": [LogisticRegression(C=1 / one, max_iter=MOST_ITERATIONS) for one in PENALTIES],
        "ridge": [RidgeClassifier(one * energy / x.var()) for one in PENALTIES],
    }
    scale = x.std()
    others = np.setdiff1d(np.arange(len(data["y"])), picks)
    rows = np.random.default_rng(0).choice(others, min(TUNING_ROWS, len(others)), replace=False)
    tuning = data["x"][rows].astype(np.float64) / scale, data["y"][rows]
    found = {}
    for name in list(heads)[not logistic :]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations
            fitted = [head.fit(x / scale, y) for head in heads[name]]
        best = max(fitted, key=lambda head: head.score(*tuning))
        found[name] = float(best.score(data["test_x"] / scale, data["test_y"]))
    return found
