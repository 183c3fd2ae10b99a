"""The comparison on images: a residual network that judges, and processes that share the seeds."""

import pickle
from argparse import Namespace
from functools import partial

import numpy as np
import pytest
import torch

from benchmarks import comparison_images, comparison_page
from benchmarks.comparison_images import Protocol, run
from benchmarks.residual_judge import ResidualJudge
from bicore.errors import InputError, NumericalError
from bicore.evaluate.comparison import WHOLE
from bicore.evaluate.records import Row
from bicore.evaluate.samples import Sample
from experiments.networks import ResNet18

SMALL = partial(ResNet18, width=4)
TOY = Protocol(pool=20, sizes=(4, 6), steps=2, width=4, methods=("uniform", "icarl"))


def images(rows, seed=0):
    """Bytes of two classes, one redder and one bluer."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % 2
    pixels = rng.integers(0, 120, (rows, 3, 32, 32))
    pixels[np.arange(rows), 2 * labels] += 120
    return pixels.astype(np.uint8), labels


def sample(rows, seed=0):
    pixels, labels = images(rows, seed)
    x = torch.from_numpy((pixels / 128 - 1).astype(np.float32))
    return Sample(x, torch.from_numpy(labels), torch.ones(rows))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Thirty images of two classes in CIFAR-10's layout, and a protocol that takes a few."""
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for number, name in enumerate(names):
        pixels, labels = images(6, number)
        stored = {"data": pixels.reshape(6, -1), "labels": labels.tolist()}
        (place / name).write_bytes(pickle.dumps(stored))
    monkeypatch.setattr(comparison_images, "PROTOCOL", TOY)
    monkeypatch.setattr(comparison_images, "RECORDS", tmp_path / "records")
    return tmp_path


def asked(folder, **facts):
    given = {
        "data": str(folder),
        "rows": str(folder / "rows.jsonl"),
        "methods": None,
        "minutes": None,
        "seeds": 1,
        "device": "cpu",
        "workers": 1,
    }
    return Namespace(**{**given, **facts})


def cells(record):
    return [(row["method"], row["size"], row["seed"]) for row in record["rows"]]


CELLS = [("uniform", 4, 0), ("uniform", 6, 0), ("icarl", 4, 0), ("icarl", 6, 0), (WHOLE, 20, 0)]


def test_the_judge_learns_and_says_the_same_whatever_stands_beside_a_selection():
    first, second, test = sample(4), sample(4, 1), sample(20, 2)
    score = ResidualJudge(25, make=SMALL).scores([first], test, 2, seed=3)[0]
    assert score > 0.9
    judge = ResidualJudge(3, make=SMALL)
    both = judge.predictions([first, second], test, 2, seed=3)
    again = judge.predictions([second, first], test, 2, seed=3)  # networks that begin anew
    alone = ResidualJudge(3, make=SMALL).predictions([second], test, 2, seed=3)[0]
    assert torch.equal(again[0], both[1])
    assert torch.equal(again[1], both[0])
    assert torch.equal(alone, both[1])
    other = judge.predictions([second], test, 2, seed=4)[0]
    assert not torch.allclose(other, alone, atol=1e-3)


def test_the_judge_refuses_what_it_cannot_read_and_tells_of_a_breakdown():
    judge = ResidualJudge(2, make=SMALL)
    with pytest.raises(InputError, match=r"resnet18 needs images of shape \(3, 32, 32\)"):
        judge.check((1, 28, 28), 10)
    points = sample(4)
    wild = Sample(points.x * float("inf"), points.y, points.weight)
    with pytest.raises(NumericalError, match="diverged"):
        judge.predictions([wild], points, 2, seed=0)
    assert torch.isfinite(judge.predictions([points], points, 2, seed=0)[0]).all()


def test_a_rerun_makes_what_is_missing_and_nothing_else(folder, capsys):
    assert cells(run(asked(folder, minutes=1e-9))) == []
    assert cells(run(asked(folder, methods="uniform"))) == [CELLS[0], CELLS[1], CELLS[4]]
    capsys.readouterr()
    whole = run(asked(folder))
    assert cells(whole) == CELLS
    assert "uniform" not in capsys.readouterr().err
    run(asked(folder))
    assert capsys.readouterr().err == ""
    assert whole["failed"] == {}
    assert whole["settings"]["test"] == 6
    assert [path.name for path in folder.glob("rows*")] == ["rows.jsonl"]


def made_up(seeds=3, sizes=(50, 100)):
    """A record in which the default is best, chance comes next, and one method has failed."""
    levels = {"bilevel": 0.4, "uniform": 0.3, "class-balanced": 0.3001, "hardest": 0.1}
    rows = [
        Row(name, size, seed, level + seed / 1000 + (seed == 2) * (name == "uniform") / 5, 0.1)
        for name, level in levels.items()
        for size in sizes
        for seed in range(seeds)
    ]
    rows += [Row(WHOLE, 1000, seed, 0.45, 0.0) for seed in range(seeds)]
    rows.append(Row("bilevel", 50, 7, 0.9, 0.1))  # of a seed that others do not have
    return {
        "settings": Protocol(device="cuda").settings,
        "sizes": [*sizes, 250],
        "machine": {"processor": "a", "cores": 2, "gpu": "b", "torch": "2"},
        "failed": {"craig": "seed 0, 50 points: it broke"},
        "rows": [vars(row) for row in rows],
    }


def test_the_page_compares_methods_on_images_with_chance():
    shown = comparison_page.complete_rows(made_up())
    table = comparison_page.method_table(
        shown["rows"], shown["sizes"], shown["heads"], comparison_page.CHANCE
    )
    assert "| method | 50 points, 3 seeds | 100 points, 3 seeds |" in table
    assert "| **bilevel** | 40.10 ± 0.06 ≈↑ | 40.10 ± 0.06 ≈↑ | 4 of 6 | 6 of 6 |" in table
    assert "| uniform | 36.77 ± 6.72 ·≈ | 36.77 ± 6.72 ·≈ |  | 2 of 6 |" in table
