"""Tests of MomentMemory, in addition to the conformance tests of all buffers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bicore import InputError, NumericalError, Runtime
from bicore.moments.features import FeatureMap, RandomReLU
from bicore.moments.features.base import WithConstant
from bicore.moments.features.maps import Rows
from bicore.moments.moments import Moments
from bicore.runtime.context import Context
from bicore.streaming import MomentMemory
from tests.helpers import fails, refuses

FEATURES = RandomReLU(width=48)


def stream(n=600, seed=0, classes=4, ordered=True):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    if ordered:
        y = np.sort(y)
    return rng.normal(size=(n, 6)) + 2 * np.eye(classes, 6)[y], y


def feed(memory, x, y=None, batch=50, weight=None):
    for start in range(0, len(x), batch):
        part = slice(start, start + batch)
        memory.update(
            x[part], None if y is None else y[part], None if weight is None else weight[part]
        )
    return memory


@pytest.mark.parametrize("half_life", [None, 200.0])
def test_updated_products_equal_those_of_the_moments(half_life):
    x, y = stream()
    weight = np.random.default_rng(0).uniform(0.2, 2, len(x))
    memory = feed(MomentMemory(12, FEATURES, half_life=half_life), x, y, weight=weight)
    phi = memory._features
    second = np.tril(memory.moments.second[0])
    second += np.tril(second, -1).T
    np.testing.assert_allclose(memory._products[0], phi @ phi.T, rtol=1e-10)
    np.testing.assert_allclose(memory._products[1], phi @ second @ phi.T, rtol=1e-9)


@pytest.mark.parametrize("prior", ["data", "equal"])
def test_with_other_features_the_past_is_that_of_the_rows_kept(prior, tmp_path):
    x, y = stream()
    memory = feed(MomentMemory(12, FEATURES, "gradient", 0.05, prior), x[:300], y[:300])
    before = memory.snapshot()
    other = memory.with_features(Rows())
    kept = other.snapshot()
    for name in ("x", "y", "weights", "ids"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(before, name))
    whole = Moments.empty(6, apart=prior == "equal").with_rows(kept.x, kept.y, kept.weights)
    np.testing.assert_allclose(other.moments.cross, whole.cross, rtol=1e-12)
    assert other.moments.weight == pytest.approx(300)
    assert other.list_differences(memory) == ["feature_map"]
    feed(other, x[300:], y[300:])
    assert (other.position, other.seen, other.moments.weight) == (600, 600, pytest.approx(600))
    assert other.snapshot().ids.max() >= 300
    loaded = MomentMemory.load(other.save(tmp_path / "state.npz"))
    np.testing.assert_array_equal(loaded.snapshot().ids, other.snapshot().ids)
    assert memory.position == 300
    assert len(MomentMemory(5).with_features("relu")) == 0


def test_other_features_keep_decayed_weights():
    x, y = stream()
    memory = feed(MomentMemory(12, FEATURES, half_life=50.0), x, y)
    other = memory.with_features(Rows())
    assert memory.moments.weight < 100
    assert other.moments.weight == pytest.approx(memory.moments.weight)
    assert other.list_differences(memory) == ["feature_map"]
    for one in (memory, other):
        one.update(x[:50], y[:50])
    assert other.moments.weight == pytest.approx(memory.moments.weight)
    np.testing.assert_allclose(other._products[0], other._features @ other._features.T)


def test_rows_whose_features_are_all_zero_are_kept_as_they_come():
    memory = MomentMemory(3, Rows())
    for _ in range(5):
        memory.update(np.zeros((2, 4)), [0, 1])
    assert len(memory) == 3
    memory.update(np.eye(4), [0, 1, 0, 1])
    assert memory.snapshot().x.any()


def test_it_ends_below_a_random_sample_of_a_sorted_stream():
    x, y = stream(1200)
    memory = feed(MomentMemory(12, FEATURES), x, y)
    outer = memory._outer(memory.moments)
    phi = memory._compute_features(x, Context())

    def loss(rows):
        targets = np.eye(4)[y[rows]] - memory._mean
        ridge = memory.ridge(outer)
        system = phi[rows].T @ phi[rows] + ridge * np.eye(48)
        return outer.loss(np.linalg.solve(system, phi[rows].T @ targets))

    rng = np.random.default_rng(0)
    chance = [loss(rng.choice(len(x), 12, replace=False)) for _ in range(20)]
    assert loss(memory.snapshot().ids) < min(chance)


def test_other_batches_keep_other_rows_that_are_as_good():
    x, y = stream(ordered=False)
    one, many = (feed(MomentMemory(12, FEATURES), x, y, batch=batch) for batch in (10, 300))
    values = []
    for memory in (one, many):
        outer = memory._outer(memory.moments)
        targets = np.eye(4)[memory.kept.y] - memory._mean
        phi = memory._features
        ridge = memory.ridge(outer)
        model = np.linalg.solve(phi.T @ phi + ridge * np.eye(48), phi.T @ targets)
        values.append(outer.loss(model))
    assert values[0] == pytest.approx(values[1], rel=0.1)


def test_without_labels_feature_directions_are_the_targets():
    x, _ = stream()
    memory = feed(MomentMemory(12, FEATURES), x)
    assert memory.snapshot().y is None
    values, vectors = np.linalg.eigh(memory.moments.outer().multiply(np.eye(48)))
    leading = vectors[:, -3:]
    found = np.linalg.norm(memory._directions.T @ leading, axis=0)
    assert (found > 0.99).all(), values


def test_targets_of_any_size_and_origin_change_nothing():
    x, _ = stream(ordered=False)
    y = x[:, 0] - 0.5 * x[:, 1]
    one, far = (feed(MomentMemory(12, FEATURES), x, part) for part in (y, 1e6 + 1e3 * y))
    assert one.snapshot().ids.tolist() == far.snapshot().ids.tolist()


def test_memories_of_one_map_merge_to_the_moments_of_both():
    x, y = stream()
    features = FEATURES.fit(x[:50])
    first, second = (
        feed(MomentMemory(12, features), x[own], y[own]) for own in (slice(300), slice(300, 600))
    )
    first.merge(second)
    whole = feed(MomentMemory(12, features), x, y)
    np.testing.assert_allclose(first.moments.cross, whole.moments.cross, rtol=1e-12)
    assert first.position == 600
    assert set(first.snapshot().y.tolist()) == {0, 1, 2, 3}
    refuses(r"offset .* 600", first.merge, second, offset=599)
    other = MomentMemory(12, RandomReLU(width=48, random_state=3)).update(x[:50], y[:50])
    refuses("feature_map", first.merge, other)


def test_a_merge_that_fails_leaves_everything_as_it_was():
    x, _ = stream()
    features = WithConstant(FEATURES).fit(x[:50])
    first, second = (
        feed(MomentMemory(12, features), x[own], x[own, 0]) for own in (slice(300), slice(300, 600))
    )
    before = first.state_dict()
    refuses("other standardises its targets", first.merge, second)
    after = first.state_dict()
    assert after.keys() == before.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)


def test_memories_whose_targets_have_other_spreads_do_not_merge():
    x = np.random.default_rng(0).normal(size=(100, 3))
    features = WithConstant(FEATURES).fit(x)
    signs = np.resize([-1.0, 1.0], 50)  # of mean zero at every scale
    first = MomentMemory(12, features).update(x[:50], signs)
    second = MomentMemory(12, features).update(x[50:], 10 * signs)
    refuses("other standardises its targets", first.merge, second)


def test_a_forgotten_class_takes_its_weight_from_waiting_rows():
    memory = MomentMemory(12, FEATURES, per_class=True)
    memory.update(np.eye(10, 48), np.arange(10) % 2, np.full(10, 3.0))
    assert memory.forget_class(1).seen == 15


def test_rows_of_weight_zero_keep_their_position_in_a_merged_stream():
    x, y = stream()
    features = FEATURES.fit(x[:50])
    first = feed(MomentMemory(12, features), x[:300], y[:300])
    kept = first.snapshot().ids.tolist()
    first.merge(MomentMemory(12, features).update(x[:40], y[:40], np.zeros(40)))
    assert (first.position, first.counted, first.snapshot().ids.tolist()) == (340, 300, kept)
    first.merge(feed(MomentMemory(12, features), x[300:], y[300:]))
    for row, place in zip(first.snapshot().x, first.snapshot().ids, strict=True):
        np.testing.assert_array_equal(row, x[place if place < 300 else place - 40])
    assert first.snapshot().ids.max() >= 340


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"half_life": one}, "half_life") for one in (0, -3.0, "a", True)),
        ({"inner_reg": 0}, "inner_reg"),
        ({"inner_reg": "much"}, "inner_reg"),
        ({"prior": "even"}, "prior='even'"),
        ({"prior": {0: -1.0}}, "prior="),
        ({"strategy": "best"}, "strategy"),
        ({"feature_map": "deep"}, "feature_map"),
        ({"capacity": 0}, "capacity"),
    ],
)
def test_impossible_requests_are_named(options, words):
    refuses(words, MomentMemory, **{"capacity": 10, **options})


def test_rows_over_the_memory_limit_change_nothing():
    x, y = stream()
    memory = MomentMemory(12, FEATURES).update(x[:50], y[:50])
    kept = memory.snapshot().ids.tolist()
    refuses("x has rows of shape", memory.update, x[50:, :4], y[50:])
    assert memory.snapshot().ids.tolist() == kept
    refuses("prior=", MomentMemory(5, FEATURES, prior={"cat": 1.0}).update, x[:50], y[:50])
    refuses("prior='data'", MomentMemory(5, FEATURES, prior="equal").update, x[:50], x[:50, 0])
    with pytest.raises(MemoryError, match="at most"):
        MomentMemory(5, RandomReLU(width=4000)).update(
            x[:50], y[:50], model=Context(runtime=Runtime(memory="10MB"))
        )


@pytest.mark.parametrize(
    "options",
    [
        {"prior": {np.int64(k): np.float32(1) for k in range(4)}},
        {"prior": "equal", "half_life": np.int64(10)},
    ],
)
def test_numpy_scalars_are_saved(options, tmp_path):
    x, y = stream()
    memory = feed(MomentMemory(12, FEATURES, **options), x, y)
    again = MomentMemory.load(memory.save(tmp_path / "memory.npz"))
    assert not again.list_differences(memory)
    assert again.update(x[:50], y[:50]).snapshot().ids.tolist() == (
        memory.update(x[:50], y[:50]).snapshot().ids.tolist()
    )


def test_classes_may_fade_away_or_never_come():
    x, y = stream(n=900)
    feed(MomentMemory(12, Rows(), prior="equal", half_life=0.3), x, y)  # 2⁻²⁰⁰⁰ is nothing
    others = y != 1
    memory = feed(MomentMemory(12, Rows(), prior={0: 0.5, 1: 0.5}), x[others], y[others])
    assert memory.seen == others.sum()


def test_row_too_large_to_sum_is_refused_and_memory_unchanged():
    x, y = stream()
    memory = MomentMemory(50, Rows()).update(x[:40], y[:40])
    huge = x[40:45].copy()
    huge[2] *= 1e200
    fails(NumericalError, "row 2 has a feature of", memory.update, huge, y[40:45])
    assert feed(memory, x[45:], y[45:]).position == 595


def test_features_are_fitted_once_there_are_some_rows():
    x, y = stream(ordered=False)
    x = x * 10.0 ** np.arange(-3, 3)
    one_by_one, at_once = (
        feed(MomentMemory(20, half_life=100.0), x[:80], y[:80], batch, np.linspace(1, 2, 80))
        for batch in (1, 80)
    )
    first = MomentMemory(40).update(x[:5], y[:5])
    assert first.feature_map_ is None
    assert len(first.snapshot()) == 5
    assert one_by_one.feature_map_.reason == "table"
    assert one_by_one.moments.weight == pytest.approx(at_once.moments.weight, rel=1e-12)
    assert feed(MomentMemory(3), x[:10], y[:10], 1).feature_map_ is not None  # full before that


def test_rows_that_wait_are_saved_and_merged(tmp_path):
    x, y = stream()
    features = FEATURES.fit(x)

    def feed_rows(own):
        return MomentMemory(40, features).update(x[own], y[own])

    first = MomentMemory.load(feed_rows(slice(20)).save(tmp_path / "memory.npz"))
    assert first.feature_map_ is None
    for parts in ((20, 30), (20, 200), (200, 210)):
        merged = feed_rows(slice(parts[0])).merge(feed_rows(slice(*parts)))
        whole = feed(MomentMemory(40, features), x[: parts[1]], y[: parts[1]], batch=parts[1])
        assert (merged.position, len(merged)) == (parts[1], len(whole))
        if whole.moments is not None:
            np.testing.assert_allclose(merged.moments.cross, whole.moments.cross, rtol=1e-12)
    other = feed_rows(slice(20)).with_features(Rows())
    assert feed(other, x[20:60], y[20:60]).moments.weight == 60


def test_a_merged_stream_ages_as_if_it_came_afterwards():
    x, y = stream()
    features = FEATURES.fit(x)
    first, second, whole = (
        feed(MomentMemory(12, features, half_life=100.0), x[own], y[own])
        for own in (slice(300), slice(300, 600), slice(600))
    )
    first.merge(second)
    np.testing.assert_allclose(first.moments.cross, whole.moments.cross, rtol=1e-10)
    assert first.moments.weight == pytest.approx(whole.moments.weight, rel=1e-12)


def test_memories_that_settle_by_themselves_merge_by_one_map():
    x, y = stream()
    first = feed(MomentMemory(12), x[:300], y[:300])
    before = first.snapshot().ids.tolist()
    with pytest.raises(InputError, match=r"feature_map=memory\.feature_map_"):
        first.merge(feed(MomentMemory(12), 3 * x[300:], y[300:]))
    assert first.snapshot().ids.tolist() == before
    refuses(r"other .* None", first.merge, None)
    first.merge(feed(MomentMemory(12, feature_map=first.feature_map_), x[300:], y[300:]))
    assert first.moments.weight == 600


def test_labels_of_text_may_be_named_by_numbers():
    x, y = stream()
    memory = feed(MomentMemory(12, Rows(), prior={0: 0.5, "1": 0.5}), x, y.astype(str))
    np.testing.assert_allclose(memory.moments.shares(memory.prior), [0.5, 0.5, 0, 0])
    refuses("prior=", MomentMemory, 12, prior=np.ones(3))


@dataclass(frozen=True, eq=False)
class Own(FeatureMap):
    """A map of one's own: a function no file holds, and a scale taken from the first rows."""

    function: Callable[[torch.Tensor], torch.Tensor]
    scale: float | None = None

    def fit(self, x):
        return self if self.scale else Own(self.function, float(np.abs(x).max()))

    @property
    def width(self):
        return 6

    def features(self, x):
        return self.function(x.double()) / self.scale


def test_a_custom_map_is_given_when_loading(tmp_path):
    x, y = stream()
    memory = feed(MomentMemory(12, Own(torch.tanh)), x[:300], y[:300])
    path = memory.save(tmp_path / "memory.npz")
    refuses(r"a Own.* give feature_map=", MomentMemory.load, path)
    again = MomentMemory.load(path, feature_map=Own(torch.tanh))
    assert again.feature_map_.scale == memory.feature_map_.scale
    for one in (memory, again):
        feed(one, x[300:], y[300:])
    assert again.snapshot().ids.tolist() == memory.snapshot().ids.tolist()


def test_a_name_may_have_a_width():
    assert MomentMemory(12, "relu:64")._map.width == 64
    for wrong in ("rows:64", "relu:", "relu:many"):
        refuses(f"feature_map='{wrong}'.* 'relu:512'", MomentMemory, 12, wrong)


def test_rows_that_could_never_be_counted_do_not_wait():
    x, y = stream()
    memory = MomentMemory(50, Rows()).update(x[:5], y[:5])
    fails(NumericalError, "row 5 has a feature of", memory.update, 1e200 * x[5:6], y[5:6])
    with pytest.raises(InputError, match=r"channels, height, width|images"):
        MomentMemory(50, "convolutions").update(x[:5], y[:5])
    assert feed(memory, x[5:], y[5:]).moments.weight == 600
