"""Select a coreset of scikit-learn's digits, train a small network on it and on random samples of
the same size, and compare.

    make demo        (or: python examples/demo.py)

Writes out/demo-coreset.npz and out/demo-picks.png.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import bicore
from bicore.sources import digits

SEEDS = 5
SIZES = (20, 50, 100)
POOL = 1200
OUT = Path("out")


def accuracy(
    x: np.ndarray, y: np.ndarray, rows: np.ndarray, test: tuple[np.ndarray, np.ndarray], seed: int
) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MLPClassifier((100,), solver="lbfgs", max_iter=300, random_state=seed).fit(
            x[rows], y[rows]
        )
    return float(model.score(*test))


def main() -> None:
    x, y = digits()
    found = {(size, kind): [] for size in SIZES for kind in ("bicore", "uniform")}
    start = time.perf_counter()
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(x))
        pool = order[:POOL]
        rest = order[POOL:]
        uniform = np.random.default_rng(100 + seed).permutation(POOL)
        for size in SIZES:
            test = (x[rest], y[rest])
            coreset = bicore.select(x[pool], y[pool], size=size, random_state=seed)
            found[size, "bicore"].append(accuracy(x, y, pool[coreset.indices], test, seed))
            found[size, "uniform"].append(accuracy(x, y, pool[uniform[:size]], test, seed))
    table = Table(
        title=(
            f"Test accuracy of a small network trained on few of {POOL} digits ({SEEDS} seeds, "
            "mean ± std)"
        )
    )
    for name in ("points", "random sample", "bicore coreset"):
        table.add_column(name, justify="right")
    for size in SIZES:
        cells = [
            f"{100 * np.mean(found[size, kind]):.1f} ± "
            f"{100 * np.std(found[size, kind], ddof=1):.1f} %"
            for kind in ("uniform", "bicore")
        ]
        table.add_row(str(size), *cells)
    Console(width=100).print(table)
    OUT.mkdir(exist_ok=True)
    files = [str(OUT / "demo-coreset.npz"), str(OUT / "demo-picks.png")]
    command = [
        sys.executable,
        "-m",
        "bicore",
        "select",
        "digits",
        "--size",
        "50",
        "--out",
        files[0],
        "--picture",
        files[1],
        "--force",
    ]
    subprocess.run(command, check=True)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
