"""Conformance tests of every selector, on random data."""

import re
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from bicore import BilevelSelector, Dataset, InputError, Runtime
from bicore.methods import Selector
from bicore.networks.observe import observe
from bicore.runtime.context import Context
from tests.conformance.selectors import (
    CASES,
    CHANCE,
    CONFIGURATIONS,
    CORRECTED,
    DRAWS,
    FITTED,
    WEIGHTED,
    network,
)
from tests.helpers import find_classes, refuses
from tests.marks import except_slow

SIZE = 7
#: Weights that are learnt anew for every point, and a network that is trained for each: seconds.
SLOW = {"squared, learnt", "network"}
#: Looked at in one test here, in all of them by ``make test-all``: a network, and fits of weights.
LONG = {*SLOW, "network, candidates", "squared, simplex", "v-design, certified"}
LONG |= {"squared, automatic", "reducible, cross-entropy", "glister, cross-entropy"}
MODEL = Context(model=network())


def test_every_selector_is_in_the_battery():
    assert find_classes(Selector) == set(CONFIGURATIONS)


@pytest.fixture(params=except_slow(CASES, LONG))
def case(request):
    return request.param, CASES[request.param]


ORDERED = [name for name in CASES if CASES[name].ordered and name not in CORRECTED]
STEADY = [name for name in CASES if name not in DRAWS | CHANCE | CORRECTED]
MODELLED = [name for name in CASES if CASES[name].needs_model]


def data_of(seed: int, n: int = 30, classes: int = 3) -> Dataset:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    y[:classes] = np.arange(classes)
    x = rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[y]
    return Dataset(x, y, rng.uniform(0.5, 2, n), rng.permutation(n) + 1000)


@cache
def select_reference(name):
    """The selection with which several tests compare another one."""
    return CASES[name].select(data_of(6), SIZE, random_state=0, **MODEL.keywords)


@settings(max_examples=2)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 9))
@pytest.mark.parametrize("name", except_slow(CASES, SLOW))
def test_a_subset_of_the_requested_size_without_repeats(name, seed, size):
    data = data_of(seed)
    coreset = CASES[name].select(data, size, random_state=seed, **MODEL.keywords)
    assert len(np.unique(coreset.indices)) == len(coreset)
    assert ((coreset.indices >= 0) & (coreset.indices < len(data))).all()
    assert (coreset.weights >= 0).all()
    assert np.isfinite(coreset.weights).all()
    assert coreset.ids.tolist() == data.ids[coreset.indices].tolist()
    if len(coreset) != size:
        assert name in CORRECTED
        assert coreset.status != "complete"
    elif name not in WEIGHTED:
        assert (coreset.weights == 1).all()


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_read_changed_and_cloned_as_in_scikit_learn(name):
    selector = CASES[name]
    again = clone(selector)
    assert again is not selector
    assert repr(again) == repr(selector)
    parameters = selector.get_params()
    assert again.get_params().keys() == parameters.keys()
    refuses("no option", again.set_params, unknown=1)
    own = {key: value for key, value in parameters.items() if "__" not in key}
    assert repr(again.set_params(**own)) == repr(selector)
    assert "<" not in repr(selector)


def test_parameters_of_a_selector_change_in_place_or_not_at_all():
    selector = BilevelSelector("rbf")
    before = repr(selector)
    refuses("quotas", selector.set_params, quotas="balanced", strategy="elimination")
    assert repr(selector) == before == "BilevelSelector(kernel=RBF(gamma=None))"
    assert selector.set_params(candidates=5) is selector
    assert selector.get_params()["candidates"] == 5


def test_seeds_are_reproducible_and_inputs_and_global_state_unchanged(case):
    name, selector = case
    data = data_of(1)
    before = [column.copy() for column in (data.x, data.y, data.sample_weight, data.ids)]
    np.random.seed(3)
    torch.manual_seed(3)
    first = selector.select(data, SIZE, random_state=5, **MODEL.keywords)
    state = np.random.get_state()[1].copy()
    tensor_state = torch.get_rng_state()
    second = selector.select(data, SIZE, random_state=5, **MODEL.keywords)
    np.testing.assert_array_equal(state, np.random.get_state()[1])
    assert torch.equal(tensor_state, torch.get_rng_state())
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.weights, second.weights)
    for column, old in zip((data.x, data.y, data.sample_weight, data.ids), before, strict=True):
        np.testing.assert_array_equal(column, old)
    if name in CHANCE:
        drawn = [
            selector.select(
                data, SIZE, random_state=np.random.default_rng(8), **MODEL.keywords
            ).indices
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("name", except_slow(ORDERED, LONG))
def test_prefixes_are_nested(name):
    selector = CASES[name]
    data = data_of(2)
    large = selector.select(data, 9, random_state=0, **MODEL.keywords)
    for size in (1, 5):
        assert (
            large.prefix(size).indices.tolist()
            == selector.select(data, size, random_state=0, **MODEL.keywords).indices.tolist()
        )


def test_points_of_weight_zero_are_neither_chosen_nor_counted(case):
    name, selector = case
    data = data_of(3)
    weight = data.sample_weight.copy()
    weight[5:15] = 0
    masked = Dataset(data.x, data.y, weight, data.ids)
    picked = selector.select(masked, SIZE, random_state=0, **MODEL.keywords)
    assert not np.isin(picked.indices, np.arange(5, 15)).any()
    if name in FITTED:
        return
    kept = np.flatnonzero(weight > 0)
    alone = selector.select(masked[kept], SIZE, random_state=0, **MODEL.keywords)
    assert picked.ids.tolist() == alone.ids.tolist()


def test_row_order_does_not_matter(case):
    name, selector = case
    data = data_of(6)
    order = np.random.default_rng(50).permutation(len(data))
    plain = select_reference(name)
    shuffled = selector.select(data[order], SIZE, random_state=0, **MODEL.keywords)
    assert plain.ids.tolist() == shuffled.ids.tolist()
    if plain.objective is not None:
        # Learnt weights stop on a flat floor: rounding moves them along it, not up.
        assert plain.objective == pytest.approx(
            shuffled.objective, rel=1e-3 if name in CORRECTED else 1e-9
        )


@pytest.mark.parametrize("name", except_slow(STEADY, LONG))
def test_of_two_equal_rows_the_smaller_id_comes_first(name):
    data = data_of(4)
    doubled = Dataset(
        np.repeat(data.x, 2, axis=0),
        np.repeat(data.y, 2),
        np.repeat(data.sample_weight, 2),
        np.r_[np.arange(60)][::-1],
    )
    picked = CASES[name].select(doubled, 10, random_state=0, **MODEL.keywords)
    seen: set[int] = set()
    for row, ident in zip(picked.indices, picked.ids, strict=True):
        twin = row ^ 1
        assert doubled.ids[twin] > ident or twin in seen
        seen.add(int(row))


def test_float32_agrees_with_float64(case):
    name, selector = case
    single = selector.select(
        data_of(6), SIZE, random_state=0, model=MODEL.model, runtime=Runtime(dtype="float32")
    )
    double = select_reference(name)
    assert len(np.intersect1d(single.indices, double.indices)) >= SIZE - 1
    if double.objective is not None and name != "squared, learnt":
        assert single.objective == pytest.approx(double.objective, rel=2e-2)


def test_tiny_data(case):
    _, selector = case
    two = Dataset([[0.0, 1.0, 0.0, 2.0], [1.0, 0.0, 1.0, 0.0]], [0, 1])
    assert 1 <= len(selector.select(two, 2, **MODEL.keywords)) <= 2
    assert selector.select(
        Dataset([[0.5, 1.0, 0.0, 0.0]], [2]), 1, **MODEL.keywords
    ).indices.tolist() == [0]


def test_given_points_come_first_and_are_continued(case):
    name, selector = case
    data = data_of(6)
    if name in CORRECTED:
        started = selector.select(data, SIZE, initial=[3, 11], random_state=0, **MODEL.keywords)
        assert len(np.unique(started.indices)) == len(started)
        return
    started = selector.select(data, SIZE, initial=[3, 11], random_state=0, **MODEL.keywords)
    assert started.indices[:2].tolist() == [3, 11]
    assert len(np.unique(started.indices)) == SIZE
    if selector.ordered and name not in CHANCE | {"facility location, predictions"}:
        whole = select_reference(name)
        continued = selector.select(
            data, SIZE, initial=whole.indices[:4].tolist(), random_state=0, **MODEL.keywords
        )
        assert continued.indices.tolist() == whole.indices.tolist()


def test_missing_requirements_are_named_before_work(case):
    _, selector = case
    data = data_of(1)
    if selector.needs_model:
        refuses(f"^{re.escape(selector.name)} needs a network.*model=", selector.select, data, 3)
    else:
        selector.select(data, 3)
    if selector.needs_labels:
        with pytest.raises(InputError, match=f"^{re.escape(selector.name)}.* needs labels"):
            selector.select(Dataset(data.x), 3, **MODEL.keywords)
    else:
        assert len(selector.select(Dataset(data.x), 3, **MODEL.keywords)) == 3


@pytest.mark.parametrize("name", except_slow(MODELLED, LONG))
def test_model_mode_is_restored_and_observations_are_accepted(name):
    selector = CASES[name]
    data = data_of(1)
    module = network()
    module[2].eval()
    modes = [part.training for part in module.modules()]
    direct = selector.select(data, SIZE, random_state=0, model=module)
    assert [part.training for part in module.modules()] == modes
    assert all(parameter.grad is None for parameter in module.parameters())
    if selector.fits_model:
        with pytest.raises(InputError, match="needs the module itself"):
            selector.select(data, SIZE, model=observe(module, data.x))
        return
    again = selector.select(data, SIZE, random_state=0, model=observe(module, data.x))
    assert again.indices.tolist() == direct.indices.tolist()


@pytest.mark.gpu
def test_gpu_and_cpu_agree():
    data = data_of(7)
    on_cpu = Context(network(), Runtime(device="cpu"))
    on_gpu = Context(network().cuda(), Runtime(device="cuda"))
    for name, selector in CASES.items():
        here, there = (
            selector.select(data, SIZE, random_state=0, **where.keywords)
            for where in (on_cpu, on_gpu)
        )
        assert here.indices.tolist() == there.indices.tolist(), name
        if name in CORRECTED and here.objective is not None:
            # learnt weights stop on a flat floor
            assert here.objective == pytest.approx(there.objective, rel=1e-3), name
        else:
            np.testing.assert_allclose(here.weights, there.weights, rtol=1e-5, atol=1e-7)
