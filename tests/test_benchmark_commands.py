"""Every benchmark command runs to its end, with small data and small constants."""

import importlib
import json
import multiprocessing
import os
import re
import sys
from dataclasses import replace
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks.battery.protocols import PROTOCOLS
from benchmarks.battery.sets import LARGE
from benchmarks.busy import Problem, load_mnist
from benchmarks.comparison_embedding import PARTS
from benchmarks.comparison_images import PROTOCOL
from benchmarks.hard import PROBLEMS
from bicore import select
from tests.fuzzing import write_cifar, write_mnist

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """All data sets that benchmarks read, with a few rows each."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("cifar10-embedding", "banking77-embedding"):
        (folder / name).mkdir()
    for part, count in (("train", 600), ("t10k", 100)):
        y = np.arange(count) % 10
        x = RNG.integers(0, 90, (count, 28, 28))
        x[np.arange(count), 2 * y] += 150
        write_mnist(folder, part, x, y)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        pixels = RNG.integers(0, 255, (40, 3072), dtype=np.uint8)
        write_cifar(folder, name, pixels, np.arange(40) % 10)
    for part, count in (("train", 800), ("test", 200)):
        y = np.arange(count) % 10
        x = RNG.normal(size=(count, 16)) + 3 * np.eye(10, 16)[y]
        np.savez(folder / "cifar10-embedding" / f"{part}.npz", x=x.astype(np.float32), y=y)
        np.save(folder / "banking77-embedding" / f"{part}.npy", x)
        np.save(folder / "banking77-embedding" / f"{part}_labels.npy", y)
    for name in ("wine", *LARGE, "ring"):
        x = RNG.normal(size=(2500 if name in LARGE else 90, 4))
        np.savez(folder / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(int))
    return folder


def use_threads(patch):
    """Threads instead of processes, so that the small constants hold there too."""
    usual, threads = multiprocessing.get_context, SimpleNamespace(Pool=ThreadPool)
    patch.setattr(
        multiprocessing, "get_context", lambda way=None: threads if way == "spawn" else usual(way)
    )


def tabpfn(folder, device, x, y, test_x, classes, with_test):
    """Stands for the model of another project."""
    return np.full((len(test_x), classes), 1 / classes)


def two_classes(sources):
    """Stands for a table of a package."""
    x = RNG.normal(size=(300, 5))
    return x, (x[:, 0] > 0).astype(int)


HARD = tuple(replace(one, read=two_classes, size=8) for one in PROBLEMS[1:])
BUSY = (Problem("small", partial(select, size=3), partial(load_mnist, 100)),)
PART = {"pool": 60, "sizes": (4,)}
BATTERY = PROTOCOLS | {"aside": replace(PROTOCOLS["kept"], sets=("wine",), seeds=1)}
DRIFT = {"DRIFT_ROWS": 400, "DRIFT_CAPACITY": 10}
#: By name: further words of the command, and constants of its module (or of the one that is named).
SMALL = {
    "selection": ([], {"POINTS": 100, "SIZES": (5, 6), "ENGINES": [],
                       "AUTHORS": {5: {"seconds": 1.0}, 6: {"seconds": 1.0}}}),
    "busy": ([], {"PROBLEMS": BUSY}),
    "regulariser": (
        [], {"benchmarks.selection.POINTS": 100, "SIZES": (4, 6), "GRID": (0.1, 1.0)}
    ),
    "kernels": ([], {"IMAGES": 60}),
    "ablation": ([], {"POOL": 100, "SIZES": (5, 20), "STEPS": 3}),
    "comparison": ([], {"POOL": 60, "SIZES": [6], "STEPS": 3}),
    "comparison_embedding": (
        [], {"PARTS": {name: replace(part, **PART) for name, part in PARTS.items()}}
    ),
    "comparison_images": (
        [], {"PROTOCOL": replace(PROTOCOL, pool=40, sizes=(4,), steps=2, width=4)}
    ),
    "baselines": ([], {"POINTS": 120, "SIZES": (6, 5), "benchmarks.comparison.POOL": 60}),
    "stream": ([], {"UPDATES": 48, "BATCH": 25, "CAPACITY": 10, "SLOTS": 3}),
    "stream_moments": ([], {"CASES": ((8, 16, 12, 200),), "PRODUCT": 50}),
    "moment_weights": ([], {"CAPACITIES": (10,), "STEPS": 3}),
    "streams": ([], {"FIRST": 300, "FIRST_BATCHES": (125, 300), "BATCHES": (125,), **DRIFT,
                     "AT_ONCE": (20,)}),
    "gpu": ([], {}),
    "pooled_regression": (
        ["--cache", "strips"],
        {"SIZES": (2, 4), "POOLS": (12,), "UNIFORM_POOL": 12, "TESTED": 6, "STRIP": 6},
    ),
    "pooled_whole": (["--cache", "strips", "--pool", "20"], {"KNOWN": 12, "SIZES": (2, 4),
                     "CANDIDATES": 5, "STARTS": 2,
                     "benchmarks.pooled_regression.SIZES": (2, 4)}),
    "strategies": ([], {"POOL": 100, "SIZES": (6, 30), "ROUNDS": {6: None}, "WEIGHED": (6,)}),
    "exchange": ([], {"PROBLEMS": (("MNIST", 80, 5, {"rule": "gain"}, 2.0, 1),
                                   ("embedding", 90, 5, {"kernel": "linear"}, None, 1))}),
    "noise": ([], {"POOL": 100, "CLEAN": 20, "TEST": 50, "SIZE": 10}),
    "active": ([], {"POOL": 100, "TEST": 50, "LAST": 40, "EPOCHS": 1, "DRAWS": 3, "LANDMARKS": 20}),
    "network": ([], {"POOL": 30, "TEST": 40, "SIZE": 3, "STARTS": 1, "EPOCHS": 2}),
    "beyond": ([], {"POOL": 250, "JOINT": 6, "SIZES": (5, 10)}),
    "battery": (["--methods", "default,all data", "--only", "wine"], {"benchmarks.battery.work.PROTOCOLS": BATTERY}),
    "worth": ([], {"SIZES": (10,), "MOST": 100}),
    "estimates": ([], {"ARRAYS": ((100, 8, ("default", "linear")),), "FILES": ((300, 8),),
                       "SIZE": 5, "BLOCK": 150}),
    "scale": ([], {"FILES": ((1500, 256), (2000, 256)), "QUALITY_SIZE": 20, "FEATURES": 16}),
    "integrations": ([], {"EMBEDDED": (200, 8), "TEXTS": (250, 500, 20), "SIZE": 5}),
    "peers_scale": ([], {"COUNTS": (300,), "SHARES": (0.02,), "TEST_ROWS": 100, "LIMIT": 60}),
    "workers": (["--pool", "600"], {"SIZE": 5, "WIDTH": 8, "PARTS": 2}),
    "collapse": ([], {"SHARES": (0.3,), "SIZES": (2, 5), "ROWS": 100, "DIGITS": 200}),
    "hard": (["--cache", "packages"], {"PROBLEMS": HARD}),
    "large": ([], {"LARGE": dict(list(LARGE.items())[:1]), "SIZES": (5,), "LARGEST": 10}),
    "learner": ([], {
        "CASES": (("SplitMNIST", "patches", 16, True), ("CIFAR-10 embedding", "rows", 0, True)),
        "SPEEDS": {"cpu": (16, 200)}, "TIMED_HEAD": 32,
    }),
    "outer_step": ([], {"POOL": 12, "PRODUCTS": 2, "SIZES": (3,)}),
    "unlabelled": ([], {"SETS": ("wine",), "SIZES": (5,)}),
    "contexts": (["--cache", "DATA"], {"TABLES": ("ring",), "SIZES": (6,), "MORE_SIZES": (8,),
                                       "CONTEXTS": 2, "probabilities": tabpfn}),
    "text": ([], {"WITH_LABELS": {"uniform": (1,), "bilevel": (1,)}, "FIRST_ROUND": (1,),
                  "ROUNDS": 2}),
    "goals": (["--methods", "moment_memory"], {}),
    "check": ([], {}),
}  # fmt: skip
NEEDED = {"integrations": "datasets", "workers": "distributed"}


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs_to_its_end(name, data, tmp_path, monkeypatch, capsys):
    if name == "gpu" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    words, constants = SMALL[name]
    importlib.import_module(f"benchmarks.{name}")
    if name != "workers":  # Dask starts its own
        use_threads(monkeypatch)
    for constant, value in constants.items():
        where = constant if "." in constant else f"benchmarks.{name}.{constant}"
        monkeypatch.setattr(where, value)
    if name == "text":
        data = data / "banking77-embedding"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    few = ["--seeds", "2", "--repeats", "1", "--out", "records", "--data", str(data)]
    words = [str(data) if word == "DATA" else word for word in words]
    line = ["benchmarks", name, *few, "--sets", str(data), "--processes", "1", *words]
    monkeypatch.setattr(sys, "argv", line)
    threads = torch.get_num_threads()
    try:
        assert command.main() == 0, capsys.readouterr().err
    finally:
        torch.set_num_threads(threads)
    (record,) = (tmp_path / "records").glob("*.json")
    assert json.loads(record.read_text())["command"].startswith(f"python -m benchmarks {name}")


def test_every_command_of_the_docs_is_known():
    """Pages are written by ``page``, whose text another test compares."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
    text = "\n".join(page.read_text() for page in pages if page.name != "CHANGELOG.md")
    named = set(re.findall(r"python -m benchmarks (\w+)", text)) - {"NAME"}
    assert named <= {*SMALL, "page"}
    assert set(command.NAMES) == {*SMALL, "page"}
