"""Reliable results: no collapse to one class, no influence of clocks or free memory."""

import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import bicore
from bicore import Dataset, LargeDataWarning, Runtime
from bicore.data import read_targets
from bicore.methods import sampling
from tests.helpers import draw_gaussians, fails
from tests.marks import diagonal


@pytest.mark.parametrize(("share", "kernel"), diagonal([0.1, 0.3, 0.5], ["auto", "linear"], 3))
def test_d1_no_answer_is_of_one_class(share, kernel):
    for seed in range(2):
        x, y = draw_gaussians(seed, share, n=240)
        for size in (2, 10):
            rows = bicore.select(x, y, size, kernel=kernel).indices
            assert len(np.unique(y[rows])) == 2
        assert LogisticRegression().fit(x[rows], y[rows]).score(x, y) > 0.85


def norms(kind, seed, n=400):
    """Two classes of Gaussians in 20 columns: next to each other, or one around the other."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.45).astype(int)
    x = rng.normal(size=(n, 20))
    if kind == "ring":
        x[y == 0] *= 2
        return x + y[:, None] * 2 / np.sqrt(20), y
    return x + (2 * y[:, None] - 1) * 2 / np.sqrt(20), y


@pytest.mark.parametrize(
    ("kind", "model", "size", "evaluation_model"),
    [
        ("two", "any", 20, RandomForestClassifier(20, random_state=0)),
        ("ring", "linear", 100, LogisticRegression()),
    ],
)
def test_d10_gaussian_classes_are_described_better_than_by_random_rows(
    kind, model, size, evaluation_model
):
    gaps, earlier = [], []
    for seed in range(2):
        (x, y), (test_x, test_y) = norms(kind, seed), norms(kind, seed + 10)

        def score(rows):
            return evaluation_model.fit(x[rows], y[rows]).score(test_x, test_y)  # noqa: B023

        drawn = np.random.default_rng(seed).permutation(len(y))
        uniform = np.mean([score(drawn[start : start + size]) for start in (0, 100)])
        gaps.append(score(bicore.select(x, y, size, model=model).indices) - uniform)
        options = {"kernel": "linear", "intercept": 0}  # as an earlier default chose
        earlier.append(score(bicore.select(x, y, size, **options).indices) - uniform)
    assert np.mean(gaps) > 0
    assert kind == "ring" or np.mean(earlier) < -0.1


def large(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.1).astype(int)
    return rng.normal(size=(n, 5)) + y[:, None], y


def test_large_data_are_announced_and_exact_work_is_not(few_exact):
    x, y = large()
    with pytest.warns(LargeDataWarning):
        some = bicore.select(x, y, 10)
    assert any("candidates" in note for note in some.provenance.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LargeDataWarning)
        every = bicore.select(x, y, 10, exact=True)
        bicore.select(x[:500], y[:500], 10)
    assert not any("candidates" in note for note in every.provenance.notes)
    assert every.provenance.fingerprint == some.provenance.fingerprint


def test_a_sample_keeps_rare_classes_and_the_weights_of_all():
    x, y = large(6000)
    y[[17, 4321, 5999]] = 2  # a sample of 4,000 of 6,000 rows would miss one of them
    weights = np.random.default_rng(1).uniform(0, 2, len(y))
    data = Dataset(x, y, weights)
    sample = sampling.draw_sample(data, read_targets(y), 10, 0, np.array([5]))
    assert 5 in sample.candidates
    assert (y[sample.candidates] == 1).sum() >= min(sampling.FEWEST_PER_CLASS, (y == 1).sum())
    assert {17, 4321, 5999} <= set(sample.candidates.tolist())
    for label in (0, 1, 2):
        own = y[sample.objective_rows] == label
        assert sample.objective_weights[own].sum() == pytest.approx(weights[y == label].sum())
    assert len(np.unique(sample.objective_rows)) == len(sample.objective_rows)


def test_a_sampled_selection_does_not_depend_on_the_order_of_rows(few_exact):
    x, y = large()
    order = np.random.default_rng(2).permutation(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeDataWarning)
        first = bicore.select(Dataset(x, y), size=10)
        second = bicore.select(Dataset(x, y)[order], size=10)
    assert first.ids.tolist() == second.ids.tolist()


@contextmanager
def busy_processes(count):
    """Keep cores busy with processes that compute."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bicore.LargeDataWarning")
def test_busy_cores_free_memory_and_threads_change_no_answer(monkeypatch, few_exact):
    x, y = large()
    answers = []
    for busy, threads, free in ((0, 1, 10**9), (0, 2, 4 * 10**9), (2, 2, 20 * 10**9)):
        monkeypatch.setattr("bicore.kernels.building.free_bytes", lambda device, free=free: free)
        with busy_processes(busy):
            found = bicore.select(x, y, 10, runtime=Runtime(threads=threads))
        answers.append(found.indices.tolist())
    assert all(answer == answers[0] for answer in answers)


def test_a_selection_beyond_the_free_memory_is_refused(monkeypatch):
    monkeypatch.setattr("bicore.kernels.building.free_bytes", lambda device: 10**6)
    monkeypatch.setattr("bicore.kernels.building.TRIVIAL_BYTES", 10**6)
    x, y = large(1000)
    fails(bicore.MemoryLimitError, "free", bicore.select, x, y, 10)


def test_d8_a_coreset_keeps_its_kernel_and_row_numbers_do_not():
    x, y = load_digits(return_X_y=True)
    x, y = x[:300], y[:300]
    begun = bicore.select(x, y, 20)
    by_coreset = bicore.select(x, y, 40, initial=begun)
    by_rows = bicore.select(x, y, 40, initial=begun.indices)
    assert by_coreset.provenance.notes[0] == begun.provenance.notes[0]  # chosen for 20 points
    assert by_rows.provenance.notes[0] != begun.provenance.notes[0]  # chosen for 40 points
