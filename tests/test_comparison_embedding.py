"""The comparison on an embedding, in several parts."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from benchmarks import common, comparison_embedding
from benchmarks.comparison_embedding import Part, run
from benchmarks.comparison_page import complete_seeds
from bicore.evaluate.models import RidgeJudge, Sample, as_sample
from bicore.evaluate.records import Result
from bicore.kernels import Linear


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Thirty rows of two classes, and a part that takes a few of them."""
    (tmp_path / "cifar10-embedding").mkdir()
    rng = np.random.default_rng(0)
    for name, rows in (("train", 40), ("test", 20)):
        y = np.arange(rows) % 2
        x = (rng.normal(size=(rows, 3)) + 3 * y[:, None]).astype(np.float32)
        np.savez(tmp_path / "cifar10-embedding" / f"{name}.npz", x=x, y=y.astype(np.uint8))
    part = Part(30, (4, 6), ("uniform", "class-balanced"), (RidgeJudge(Linear()),))
    monkeypatch.setattr(comparison_embedding, "PARTS", {"pools": part})
    monkeypatch.setattr(common, "RECORDS", tmp_path / "records")
    return tmp_path


def make_arguments(folder, **facts):
    given = Namespace(protocol="aside", methods=None, minutes=None, seeds=2, device="cpu")
    vars(given).update(data=str(folder), rows=str(folder / "rows.jsonl"), **facts)
    return given


def cells(record):
    return [(row["method"], row["size"], row["seed"]) for row in record["parts"]["pools"]["rows"]]


def test_rerun_computes_only_missing_rows(folder, capsys):
    assert cells(run(make_arguments(folder, minutes=1e-9))) == []
    assert "continues" in capsys.readouterr().err
    first = run(make_arguments(folder, methods="uniform", seeds=1))
    assert cells(first) == [("uniform", 4, 0), ("uniform", 6, 0)]
    capsys.readouterr()
    whole = run(make_arguments(folder))
    assert len(cells(whole)) == 8
    assert "uniform, 4 rows, seed 0" not in capsys.readouterr().err
    run(make_arguments(folder))
    assert capsys.readouterr().err == ""


def test_only_complete_seeds_are_reported():
    rows = [Result(method, 5, seed, 0.5, 0.1) for method in "ab" for seed in range(3)]
    assert complete_seeds([*rows, Result("a", 5, 3, 0.5, 0.1)], 5) == [0, 1, 2]
    assert complete_seeds([*rows, Result("c", 5, 0, 0.5, 0.1)], 5) == [0, 1, 2]
    assert complete_seeds([*rows, Result("a", 9, 3, 0.5, 0.1)], 9) == [3]


@pytest.mark.slow
def test_ridge_judge_tunes_on_all_classes():
    """Every second of 1000 such rows is of one class: tried with those, the largest penalty is best,
    and the head says nothing."""
    rng = np.random.default_rng(0)

    def sample(rows):
        y = np.arange(rows) % 2
        x = rng.normal(size=(rows, 600)) + 0.5 * (2 * y[:, None] - 1) * np.eye(600)[0]
        return as_sample(x, y, np.ones(rows), torch.device("cpu"), True)

    points, rows, test = sample(1000), sample(300), sample(500)
    mixed = torch.from_numpy(rng.permutation(1000))
    other = Sample(points.x[mixed], points.y[mixed], points.weight[mixed])
    judge = RidgeJudge(Linear()).tune(rows)
    in_turn, shuffled = judge.predictions([points, other], test, 2, 0)
    assert float(in_turn.std()) == pytest.approx(float(shuffled.std()), rel=0.5)
