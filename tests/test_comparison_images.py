"""The comparison on images: a residual network that judges, and processes that share the seeds."""

import pickle
from argparse import Namespace
from functools import partial

import numpy as np
import pytest
import torch

from benchmarks import comparison_images, comparison_page
from benchmarks.common import write_record
from benchmarks.comparison_images import Protocol, image_pools, run
from benchmarks.pages import read_record
from benchmarks.residual_judge import ResidualJudge
from bicore.errors import InputError, NumericalError
from bicore.evaluate.comparison import WHOLE
from bicore.evaluate.pools import make_pools
from bicore.evaluate.records import Row
from bicore.evaluate.samples import Sample
from bicore.sources.opening import open_source, open_test
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


def test_weights_count_as_often_as_they_say():
    """A point of weight zero might as well have any label."""
    points, test = sample(8), sample(6, 2)
    weight = torch.tensor([0.0, 2.0] * 4)
    judge = ResidualJudge(3, make=SMALL)
    given = Sample(points.x, points.y, weight)
    turned = Sample(points.x, torch.where(weight == 0, 1 - points.y, points.y), weight)
    plain, other, unweighted = judge.predictions([given, turned, points], test, 2, seed=0)
    assert torch.equal(plain, other)
    assert not torch.equal(plain, unweighted)


def test_the_network_that_methods_look_at_is_trained_in_batches_and_stays_as_it_is(monkeypatch):
    monkeypatch.setattr("benchmarks.residual_judge.BATCH", 8)
    points, test = sample(20), sample(6, 2)
    judge = ResidualJudge(7, make=SMALL)
    module = judge.module(points, 2, seed=0)
    with torch.no_grad():
        said = module(test.x)
    assert not module.training
    judge.predictions([sample(20, 1)], test, 2, seed=0)
    with torch.no_grad():
        assert torch.equal(module(test.x), said)
    assert judge.trained([points], 2, 0).learners[0].turn.item() == 9  # three passes of three


def test_the_judge_refuses_what_it_cannot_read_and_tells_of_a_breakdown():
    judge = ResidualJudge(2, make=SMALL)
    with pytest.raises(InputError, match=r"resnet18 needs images of shape \(3, 32, 32\)"):
        judge.check((1, 28, 28), 10)
    points = sample(4)
    wild = Sample(points.x * float("inf"), points.y, points.weight)
    with pytest.raises(NumericalError, match="diverged"):
        judge.predictions([wild], points, 2, seed=0)
    assert torch.isfinite(judge.predictions([points], points, 2, seed=0)[0]).all()


def test_pools_are_those_of_the_source(folder):
    own = image_pools(str(folder), 20)
    source = open_source("cifar10", folder=str(folder), later=True)
    usual = make_pools(source, open_test("cifar10", str(folder)).data, "auto", 20, 20, None)
    for mine, theirs in zip(own.of(3), usual.of(3), strict=True):
        assert np.array_equal(mine.x, theirs.x)
        assert np.array_equal(mine.y, theirs.y)


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


def test_where_there_are_no_rows_it_goes_on_from_a_record_of_the_same_settings(
    folder, monkeypatch, capsys
):
    made = run(asked(folder))
    write_record("comparison_images", made, folder / "records")
    monkeypatch.setattr(comparison_images, "read_record", lambda name: made)
    capsys.readouterr()
    again = run(asked(folder, rows=str(folder / "other.jsonl")))
    assert again["rows"] == made["rows"]
    assert capsys.readouterr().err == ""
    made["settings"] = made["settings"] | {"steps": 3}
    assert run(asked(folder, rows=str(folder / "third.jsonl"), minutes=1e-9))["rows"] == []


def test_methods_that_are_not_known_are_named(folder):
    with pytest.raises(InputError, match="k-center-of-mass"):
        run(asked(folder, methods="uniform,k-center-of-mass"))


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


def test_the_record_is_of_the_protocol_that_the_benchmark_has():
    assert read_record("comparison_images")["settings"] == Protocol(device="cuda").settings


@pytest.mark.slow
def test_processes_make_what_one_makes(folder):
    alone = run(asked(folder, seeds=2))
    shared = run(asked(folder, seeds=2, workers=2, rows=str(folder / "shared.jsonl")))
    assert cells(shared) == cells(alone)
    for one, other in zip(shared["rows"], alone["rows"], strict=True):
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.2)
    assert [path.name for path in folder.glob("shared*")] == ["shared.jsonl"]
