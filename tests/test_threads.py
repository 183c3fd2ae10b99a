"""Threads: one for small algebra, the requested number for large products, and restored
settings."""

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

import bicore
from bicore import Runtime
from bicore.kernels import RBF
from bicore.runtime import threads
from bicore.runtime.threads import all_threads, single_thread
from tests.marks import diagonal


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def libraries():
    """Threads of torch, and of the linear algebra of NumPy and SciPy."""
    import scipy.linalg  # noqa: F401

    found = [one for one in threadpool_info() if one["user_api"] == "blas"]
    return torch.get_num_threads(), [
        one["num_threads"] for one in found if "torch" not in one["filepath"]
    ]


def test_small_operations_use_one_thread_and_large_ones_all(two_threads):
    before = libraries()
    with single_thread(2):
        assert libraries()[0] == 1
        assert set(libraries()[1]) == {1}
        with all_threads(threads.WIDE / 2):
            assert libraries()[0] == 1
        with all_threads(threads.WIDE):
            assert libraries()[0] == 2
            assert set(libraries()[1]) == {2}
        with single_thread():  # a call inside a call knows what the outer one was given
            with all_threads(threads.WIDE):
                assert libraries()[0] == 2
            assert libraries()[0] == 1
        assert set(libraries()[1]) == {1}
    assert libraries() == before
    with all_threads(threads.WIDE):  # outside of a call it is the caller's own number
        assert libraries() == before


def test_an_error_puts_the_old_numbers_back(two_threads):
    before = libraries()
    with pytest.raises(ValueError, match="on purpose"), single_thread(2), all_threads(threads.WIDE):
        raise ValueError("on purpose")
    assert libraries() == before


@pytest.mark.parametrize(
    ("asked", "call"), diagonal([2, None, 1], ["select", "reweight", "influence"], 3)
)
def test_calls_use_one_thread_and_large_products_the_requested_number(
    asked, call, two_threads, monkeypatch
):
    seen = []

    class Watched(RBF):
        def evaluate(self, a, b):
            seen.append((threading.current_thread().name, *libraries()))
            return super().evaluate(a, b)

    x = np.random.default_rng(0).normal(size=(90, 3))
    options = {"kernel": Watched(0.5), "loss": "cross-entropy", "inner_reg": 0.1}
    runtime = Runtime(device="cpu", threads=asked)
    given = {"select": {"size": 5}, "reweight": {"indices": [1, 2]}, "influence": {"coreset": [3]}}
    work = getattr(bicore, call)
    work(x, x[:, 0] > 0, **given[call], runtime=runtime, **options)
    assert {one for _, one, _ in seen} == {1}
    assert {number for *_, others in seen for number in others} == {1}
    # the same products, counted as large ones: a matrix that is stored is handed out in tiles,
    # and tiles that are evaluated anew are computed by all threads together
    monkeypatch.setattr(threads, "WIDE", 1)
    for memory in (None, 80_000):
        seen.clear()
        held = Runtime(device="cpu", threads=asked, memory=memory)
        work(x, x[:, 0] > 0, **given[call], runtime=held, **options)
        apart = {name for name, _, _ in seen if name.startswith("bicore")}
        together = {number for name, number, _ in seen if not name.startswith("bicore")}
        several_threads = (asked or 2) > 1
        if memory is None:
            assert bool(apart) == several_threads
        else:
            assert max(together) == (asked or 2)
        assert {number for name, number, _ in seen if name in apart} <= {1}


def test_something_large_inside_something_large_leaves_its_threads(two_threads):
    with single_thread(2), all_threads(threads.WIDE):
        with all_threads(threads.WIDE):
            pass
        assert libraries()[0] == 2


def test_parts_are_submitted_as_others_finish_and_stop_at_the_first_error():
    begun = []

    def parts():
        for part in range(100):
            begun.append(part)
            yield part

    def work(part):
        if part == 3:
            raise ValueError("on purpose")

    with single_thread(2), pytest.raises(ValueError, match="on purpose"):
        threads.run_in_threads(work, parts(), threads.WIDE)
    assert len(begun) < 10


def test_a_matrix_is_the_same_on_one_thread_and_on_several(monkeypatch):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 3)))
    for kernel in (RBF(0.5), bicore.kernels.tangent.fully_connected()):
        plain = kernel.gram(x)
        monkeypatch.setattr(threads, "WIDE", 1)
        with single_thread(2):
            assert torch.equal(kernel.gram(x), plain)
            assert torch.allclose(kernel.evaluate(x, x[:9]), plain[:, :9], rtol=1e-10)
        monkeypatch.undo()
