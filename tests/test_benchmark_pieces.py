"""Benchmarks that go on where they were stopped: what a rerun makes, and of what numbers are."""

import shutil
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import pooled_whole
from benchmarks.pooled_whole import Images, Work

CORESET = "coreset, optimised weights"
UNIFORM = "uniform, optimised weights"
#: The sizes of a toy; so large a λ lets weights decide.
TOY = {
    "SIZES": (2, 4),
    "KNOWN": 12,
    "CANDIDATES": 8,
    "STARTS": 2,
    "STRIP": 9,
    "FIRST_TESTED": 150,
    "LAMBDA": 1.0,
}


class Counted:
    """A kernel of unequal norms that counts how many blocks it was asked for."""

    def __init__(self):
        self.blocks = 0

    def __call__(self, left, right):
        self.blocks += 1
        return (1 + left.flatten(1) @ right.flatten(1).T) ** 2

    def diag(self, x):
        return (1 + x.flatten(1).square().sum(1)) ** 2


def images(folder, split, limit):
    """Small images of three classes, each brighter in a channel of its own."""
    rng = np.random.default_rng(split == "test")
    rows = 400 if split == "test" else limit
    labels = rng.integers(0, 3, rows)
    x = rng.normal(size=(rows, 3, 2, 2))
    x[np.arange(rows), labels] += 0.5
    return x, labels


def asked(folder, pool=20):
    files = {"rows": str(folder / "rows.jsonl"), "cache": str(folder / "cache")}
    return Namespace(data=str(folder), device="cpu", seeds=1, pool=pool, **files)


@dataclass
class Done:
    """A run, what it chose, and its kernel."""

    folder: Path
    kernel: Counted
    record: dict
    chosen: dict


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The benchmark as a toy, run once; the tests of this module find it so."""
    folder = tmp_path_factory.mktemp("whole")
    kernel = Counted()
    chosen = {}
    choose = Work._chosen

    def told(work, job):
        for key, coreset in choose(work, job):
            chosen[key[0], job.pool, key[1]] = coreset
            yield key, coreset

    with pytest.MonkeyPatch.context() as patch:
        for name, value in TOY.items():
            patch.setattr(pooled_whole, name, value)
        patch.setattr(pooled_whole, "pooled_cntk", lambda depth, fixed: kernel)
        patch.setattr(pooled_whole, "cifar10", images)
        patch.setattr(Work, "_chosen", told)
        record = pooled_whole.run(asked(folder))
        yield Done(folder, kernel, record, dict(chosen))


@pytest.fixture
def done(first, tmp_path):
    """A copy whose files may be changed."""
    shutil.copytree(first.folder, tmp_path / "copy")
    first.kernel.blocks = 0
    return replace(first, folder=tmp_path / "copy")


def without_seconds(record):
    return [{**row, "selection_seconds": None} for row in record["rows"]]


def test_all_images_are_judged_once(done):
    sizes = TOY["SIZES"]
    assert list(done.chosen) == [
        *((CORESET, 20, size) for size in sizes),
        *((name, 20, size) for size in sizes for name in ("uniform", UNIFORM)),
        *((CORESET, 12, size) for size in sizes),
    ]
    rows = done.record["rows"]
    assert [(row["method"], row["pool"], row["size"]) for row in rows] == list(done.chosen)
    assert (done.record["landmarks"], done.record["tested"]) == (4, 400)
    pairs = {one["block"]: one["pairs"] for one in done.record["kernel"]}
    assert len(pairs) == 7
    assert (pairs["landmarks"], pairs["own-uniform-20-0"], pairs["test-uniform-20-0"]) == (
        20 * 4,
        4 * 4,
        400 * 4,
    )
    before = (done.folder / "rows.jsonl").read_bytes()
    assert pooled_whole.run(asked(done.folder)) == done.record
    assert (done.folder / "rows.jsonl").read_bytes() == before
    assert done.kernel.blocks == 0


def test_what_is_missing_is_made_from_the_blocks_that_are_kept(done):
    rows = done.folder / "rows.jsonl"
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines[:-2]))
    again = pooled_whole.run(asked(done.folder))
    assert without_seconds(again) == without_seconds(done.record)
    assert rows.read_text().splitlines(keepends=True)[:-2] == lines[:-2]
    assert done.kernel.blocks == 0


def test_other_points_under_the_same_name_have_other_pairs(done):
    path = done.folder / "cache" / "whole-20" / "landmarks.npz"
    right = dict(np.load(path))
    np.savez(path, block=right["block"] + 1, points=right["points"][::-1])
    pooled_whole.run(asked(done.folder))
    assert done.kernel.blocks == 3  # 20 images in strips of 9
    np.testing.assert_array_equal(np.load(path)["block"], right["block"])


def test_another_pool_in_the_same_files_is_as_if_it_were_alone(done, tmp_path):
    beside = pooled_whole.run(asked(done.folder, 12))
    alone = pooled_whole.run(asked(tmp_path, 12))
    assert len(alone["rows"]) == 6
    assert without_seconds(beside) == without_seconds(alone)
    assert [one["block"] for one in beside["kernel"]] == [one["block"] for one in alone["kernel"]]
    assert pooled_whole.run(asked(done.folder)) == done.record


def normalised(left, right):
    roots = [np.sqrt(Counted().diag(torch.from_numpy(part)).numpy()) for part in (left, right)]
    pairs = (1 + left.reshape(len(left), -1) @ right.reshape(len(right), -1).T) ** 2
    return pairs / (roots[0][:, None] * roots[1])


def test_features_are_the_kernel_with_every_landmark(done):
    x, labels = images(None, "train", 20)
    pool = Images.of(done.kernel, x, labels, "cpu")
    work = Work(done.kernel, pool, pool, done.folder / "rows.jsonl", done.folder / "cache")
    landmarks = np.random.default_rng(0).permutation(20)[:4]
    assert work.features.shape == (20, 4)
    found = work.features @ work.features[landmarks].T
    np.testing.assert_allclose(found, normalised(x, x[landmarks]), rtol=0, atol=1e-12)


def test_accuracies_are_those_of_a_weighted_ridge_regression(done):
    (x, labels), (test, answers) = images(None, "train", 20), images(None, "test", None)
    for row, (key, coreset) in zip(done.record["rows"], done.chosen.items(), strict=True):
        points = x[coreset.indices]
        own, across = normalised(points, points), normalised(test, points)
        targets = np.eye(10)[labels[coreset.indices]] - 0.1
        pull = own * coreset.weights  # of Σ w |Kα − y|² + λ m αᵀKα, λ = 1
        alpha = np.linalg.solve(pull @ own + len(coreset) * own, pull @ targets)
        right = (across @ alpha).argmax(1) == answers
        assert (row["accuracy"], row["accuracy_first"]) == (right.mean(), right[:150].mean())
        assert row["kept"] == len(coreset)
        assert (coreset.indices < key[1]).all()
    assert sum(np.ptp(coreset.weights) > 0.1 for coreset in done.chosen.values()) > 2
