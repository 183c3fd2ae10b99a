"""One thread for small algebra, those asked for in large products, and the old numbers afterwards."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

import bicore
from bicore import RBF, Runtime
from bicore.runtime import narrow, threads, wide


@pytest.fixture
def several():
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


def test_what_is_small_has_one_thread_and_what_is_large_has_all(several):
    before = libraries()
    with narrow(2):
        assert libraries()[0] == 1
        assert set(libraries()[1]) == {1}
        with wide(threads.WIDE / 2):
            assert libraries()[0] == 1
        with wide(threads.WIDE):
            assert libraries()[0] == 2
            assert set(libraries()[1]) == {2}
        with narrow():  # a call inside a call knows what the outer one was given
            with wide(threads.WIDE):
                assert libraries()[0] == 2
            assert libraries()[0] == 1
        assert set(libraries()[1]) == {1}
    assert libraries() == before
    with wide(threads.WIDE):  # outside of a call it is the caller's own number
        assert libraries() == before


def test_an_error_puts_the_old_numbers_back(several):
    before = libraries()
    with pytest.raises(ValueError, match="on purpose"), narrow(2), wide(threads.WIDE):
        raise ValueError("on purpose")
    assert libraries() == before


@pytest.mark.parametrize("asked", [1, 2, None])
@pytest.mark.parametrize("call", ["select", "reweight", "influence"])
def test_calls_run_on_one_thread_and_large_products_on_those_asked_for(
    asked, call, several, monkeypatch
):
    seen = []

    class Watched(RBF):
        def evaluate(self, a, b):
            seen.append(libraries())
            return super().evaluate(a, b)

    x = np.random.default_rng(0).normal(size=(90, 3))
    options = {"kernel": Watched(0.5), "loss": "cross-entropy", "inner_reg": 0.1}
    runtime = Runtime(device="cpu", threads=asked)
    given = {"select": {"size": 5}, "reweight": {"indices": [1, 2]}, "influence": {"coreset": [3]}}
    work = getattr(bicore, call)
    work(x, x[:, 0] > 0, **given[call], runtime=runtime, **options)
    assert {one for one, _ in seen} == {1}
    assert {number for _, others in seen for number in others} == {1}
    # the same products, counted as large ones: tiles in blocks
    seen.clear()
    monkeypatch.setattr(threads, "WIDE", 1)
    blocked = Runtime(device="cpu", threads=asked, memory=80_000)
    work(x, x[:, 0] > 0, **given[call], runtime=blocked, **options)
    assert max(one for one, _ in seen) == (asked or 2)
