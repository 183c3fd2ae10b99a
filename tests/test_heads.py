"""Heads from moments equal ridge regression on all rows, in any order, merged or forgotten."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from bicore import InputError, NumericalError, select
from bicore.methods import Uniform
from bicore.moments.features import RandomReLU
from bicore.moments.features.maps import Embedded, RandomConvolutions, Rows, WhitenedPatches
from bicore.moments.features.registry import AutomaticFeatures
from bicore.moments.heads import (
    FINE_SHARES,
    Head,
    HeadClassifier,
    HeadRegressor,
    _losses,
    centre,
    choose_share,
    make_head,
)
from bicore.moments.moments import Moments, hold_out
from bicore.shards import load_head
from bicore.streaming import JointReplay, MomentMemory, ReplayMemory
from tests.helpers import draw_classes, fails, refuses

FEATURES = RandomReLU(width=12)
blobs = partial(draw_classes, n=120, width=4, shift=2)


def ridge_of(features, x, y, alpha):
    phi = features(torch.from_numpy(x)).numpy()
    return Ridge(alpha).fit(phi, np.eye(y.max() + 1)[y])


def assert_same_model(head, ridge):
    np.testing.assert_allclose(head.coef_.T, ridge.coef_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(head.intercept_, ridge.intercept_, rtol=1e-8, atol=1e-8)


@settings(max_examples=5)
@given(
    seed=st.integers(0, 99),
    batch=st.sampled_from([1, 125, 10_000]),
    clients=st.sampled_from([1, 20]),
    ordered=st.booleans(),
    forgotten=st.booleans(),
    keep=st.sampled_from(["always", "lazy"]),
)
def test_a_head_is_ridge_regression_on_all_rows(seed, batch, clients, ordered, forgotten, keep):
    x, y = blobs(n=300, seed=seed)
    features = FEATURES.fit(x[:32])
    order = (
        np.argsort(y, kind="stable") if ordered else np.random.default_rng(seed).permutation(300)
    )
    memories = []
    for own in np.array_split(order, clients):
        memory = MomentMemory(5, features, keep=keep)
        for top in range(0, len(own), batch):
            memory.update(x[own[top : top + batch]], y[own[top : top + batch]])
        memories.append(memory)
    whole = memories[-1]
    for other in memories[:-1]:
        whole.merge(other)
    left = np.arange(300)
    if forgotten:
        whole.forget(x[3:33], y[3:33])
        left = np.setdiff1d(left, np.arange(3, 33))
        assert not np.isin(whole.snapshot().x, x[3:33]).any()
    kept = whole.snapshot().ids.tolist()
    assert_same_model(whole.head(alpha=0.3), ridge_of(features, x[left], y[left], 0.3))
    assert whole.snapshot().ids.tolist() == kept
    chosen = Moments.empty(12).with_rows(features(torch.from_numpy(x[left])), y[left])
    aside = left[hold_out(x[left])]
    held = Moments.empty(12).with_rows(features(torch.from_numpy(x[aside])), y[aside])
    alphas = whole.head().alpha_, make_head(chosen, held=held).alpha_
    assert alphas[0] == pytest.approx(alphas[1], rel=1e-6)


@pytest.mark.parametrize("given", [True, False])
def test_the_regularisation_is_the_best_on_held_out_rows(given):
    x, y = blobs(n=150, width=60, seed=1)
    aside = hold_out(x)
    assert 5 < aside.sum() < 30
    whole = Moments.empty(60).with_rows(x, y)
    held = Moments.empty(60).with_rows(x[aside], y[aside]) if given else None
    alpha = make_head(whole, held=held).alpha_

    def loss(factor):
        train = ~aside if given else np.full(len(x), True)
        ridge = Ridge(factor * alpha * train.mean()).fit(x[train], np.eye(3)[y[train]])
        if given:
            return np.square(ridge.predict(x[aside]) - np.eye(3)[y[aside]]).sum(1).mean()
        centred = x - x.mean(0)
        inverse = np.linalg.inv(centred.T @ centred + factor * alpha * np.eye(60))
        left = 1 - (np.trace(centred @ inverse @ centred.T) + 1) / len(x)
        return np.square(ridge.predict(x) - np.eye(3)[y]).sum(1).mean() / left**2

    others = [loss(10.0**power) for power in np.arange(-2, 2.1, 0.25)]
    assert loss(1.0) == pytest.approx(min(others), rel=0.01)
    assert min(others[0], others[-1]) > 1.1 * loss(1.0)


def test_one_factorisation_gives_the_losses_of_models_nearby():
    x, y = blobs(n=400, width=9, seed=2)
    x = np.tanh(x @ np.random.default_rng(3).normal(size=(9, 60)))  # more columns than powers
    train, held = (
        centre(Moments.empty(60, classes=(0, 1, 2)).with_rows(x[rows], y[rows]), "data", None)
        for rows in (slice(0, 300), slice(300, 400))
    )
    pole = 0.01 * train.scale
    ridges = pole * torch.logspace(-0.5, 0.5, 7, dtype=torch.float64)
    found = _losses(train, held, *train.solve(pole), ridges)
    exact = [held.loss(train.solve(float(ridge))[0], train) for ridge in ridges]
    # the loss of a held-out row without what no model changes
    np.testing.assert_allclose(found - found[3], np.array(exact) - exact[3], rtol=1e-3, atol=1e-7)
    assert float(found[3] - exact[3]) == pytest.approx(float(found[0] - exact[0]), abs=1e-6)
    share = choose_share(train, held)
    least = min(held.loss(train.solve(one * train.scale)[0], train) for one in FINE_SHARES)
    assert held.loss(train.solve(share * train.scale)[0], train) <= least + 1e-6


@pytest.mark.parametrize(("targets", "half_life"), [(False, None), (True, None), (False, 50.0)])
def test_a_factorisation_is_corrected_for_later_rows(targets, half_life):
    x, y = blobs(width=60)
    y = x[:, :2] + y[:, None] if targets else y
    memory = MomentMemory(5, Rows(), half_life=half_life).update(x[:80], y[:80])
    memory.head(alpha=0.3)
    first = memory._factor
    for top in range(80, 120, 4):
        own = slice(top, top + 4)
        memory.update(x[own], y[own], np.linspace(0.5, 2.0, 4))
        found = memory.head(alpha=0.3)
        exact = copy.copy(memory)
        exact._factor = None
        np.testing.assert_allclose(found.coef_, exact.head(alpha=0.3).coef_, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(found.intercept_, exact.head(alpha=0.3).intercept_, rtol=1e-8)
        same = top < 92 and half_life is None  # later rows are up to a quarter of 60
        assert (memory._factor.lower is first.lower) == same
    memory.merge(copy.copy(memory))
    assert memory._factor is None


def test_the_width_and_the_map_are_chosen_by_held_out_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = np.c_[rng.normal(size=(400, 10)) + y[:, None], rng.normal(size=(400, 310))]
    memory = MomentMemory(5, Rows()).update(x[:200], y[:200])
    few, all_features = memory.head(choose_width=True), memory.head()
    assert few.coef_.any(1).sum() in (40, 80)
    assert few.score(x[200:], y[200:]) > all_features.score(x[200:], y[200:])
    with pytest.raises(InputError, match="choose_width"):
        MomentMemory(5, Rows(), holdout=False).update(x, y).head(choose_width=True)
    # the label of a table depends on the sum of its columns, or of their squares
    table = rng.normal(size=(400, 30))
    often = table.sum(1) > 0
    for label, linear in ((often, True), (np.square(table).sum(1) > 30, False)):
        memory = MomentMemory(5).update(table, label)
        assert isinstance(memory.feature_map_.map, Rows) == linear
    few = MomentMemory(40).update(table[:50], often[:50])
    assert isinstance(few.feature_map_.map, RandomReLU)  # too few rows to compare maps
    for side, depths in ((8, [1]), (17, [1]), (18, [1, 2])):  # too small for two layers of filters
        images = rng.random((200, 1, side, side))
        kinds = AutomaticFeatures().candidates(images)
        assert [one.depth for one in kinds if isinstance(one, RandomConvolutions)] == depths
        assert MomentMemory(5).update(images, y[:200]).feature_map_.reason == "image"


def test_replay_memories_have_a_head_too(tmp_path):
    x, y = blobs()
    memory = ReplayMemory(6, Uniform(), feature_map=Rows())
    joint = JointReplay(6, Rows())
    for own in (y == 0, y != 0):
        memory.add_task(x[own], y[own])
        joint.add_task(x[own], y[own])
    ridge = Ridge(0.3).fit(x, np.eye(3)[y])
    again = ReplayMemory.load(memory.save(tmp_path / "memory.npz"), Uniform())
    for one in (memory, joint, again):
        assert_same_model(one.head(alpha=0.3), ridge)
    assert [len(rows) for rows in memory.tasks] == [3, 3]
    refuses("feature_map", ReplayMemory(6, Uniform()).head)


def test_an_interrupted_task_leaves_the_sums_of_a_replay_memory_unchanged(monkeypatch):
    x, y = blobs()
    memory = ReplayMemory(6, Uniform(), feature_map=Rows())
    memory.add_task(x[:60], y[:60])

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(MomentMemory, "snapshot", interrupt)
    with pytest.raises(KeyboardInterrupt):
        memory.add_task(x[60:], y[60:])
    assert len(memory.tasks) == 1
    assert memory.memory.moments.weight == 60


@pytest.mark.parametrize("targets", [False, True])
def test_a_selection_out_of_shards_has_a_head(targets, tmp_path):
    x, y = blobs()
    y = x[:, :1] + 1e3 if targets else y
    for number in range(3):
        own = slice(40 * number, 40 * number + 40)
        np.save(tmp_path / f"x-{number}.npy", x[own])
        np.save(tmp_path / f"y-{number}.npy", y[own])
    select(tmp_path, size=5, passes=True, kernel="linear", state=tmp_path / "state")
    head = load_head(tmp_path / "state", alpha=0.3)
    ridge = Ridge(0.3).fit(x, y if targets else np.eye(3)[y])
    np.testing.assert_allclose(head.coef_[:-1].T, np.atleast_2d(ridge.coef_), rtol=1e-7, atol=1e-9)
    assert head.score(x, y) > 0.8


def test_priors_apply_after_the_fact():
    x, y = blobs(n=900, seed=2)
    few = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:20], np.flatnonzero(y == 2)[:20]]
    weight = np.array([1 / np.sum(y[few] == label) for label in y[few]])
    targets = np.eye(3)[y[few]]
    ridge = Ridge(0.2).fit(x[few], targets, sample_weight=weight * len(few) / 3)
    apart = MomentMemory(5, Rows(), per_class=True).update(x[few], y[few])
    assert_same_model(apart.head(alpha=0.2, prior="equal"), ridge)
    pooled = MomentMemory(5, Rows()).update(x[few], y[few])
    rest = np.setdiff1d(np.arange(900), few)
    plain, equal = (
        np.mean([one.score(x[own], y[own]) for own in (rest[y[rest] == 1], rest[y[rest] == 2])])
        for one in (pooled.head(), pooled.head(prior="equal"))
    )
    assert equal > plain + 0.1
    exact = apart.head(prior="equal").predict(x[rest])
    assert np.mean(pooled.head(prior="equal").predict(x[rest]) == exact) > 0.9


def test_a_class_is_forgotten_as_if_it_had_never_come():
    x, y = blobs()
    memory = MomentMemory(8, Rows(), per_class=True).update(x, y).forget_class(1)
    others = y != 1
    fresh = MomentMemory(8, Rows(), per_class=True).update(x[others], y[others])
    np.testing.assert_allclose(memory.head().coef_, fresh.head().coef_, rtol=1e-8)
    assert memory.head().classes_.tolist() == [0, 2]
    assert 1 not in memory.snapshot().y
    assert memory.seen == others.sum()
    memory.update(x[:30], y[:30])
    assert memory.head().classes_.tolist() == [0, 1, 2]


def make_memory(x, y, **options):
    return MomentMemory(8, **{"feature_map": Rows(), **options}).update(x, y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda memory, x, y: memory.forget(x[:2], [7, 7]), "7"),
        (lambda memory, x, y: memory.forget(np.r_[x, x[:1]], np.r_[y, y[:1]]), "subtracted"),
        (lambda memory, x, y: memory.forget(100 * x[:1], y[:1]), "never counted"),
        (lambda memory, x, y: memory.forget(x[:2, :2], y[:2]), "shape"),
        (lambda memory, x, y: memory.forget(np.full((1, 4), np.nan), y[:1]), "x"),
        (lambda memory, x, y: memory.forget_class(1), "per_class"),
        (lambda memory, x, y: memory.forget_class(9), "label=9"),
        (lambda memory, x, y: memory.forget_class([1, 0]), "label="),
        (lambda memory, x, y: memory.head(alpha=-1.0), "alpha"),
        (lambda memory, x, y: memory.head(prior="even"), "prior"),
        (lambda memory, x, y: memory.update(x[:2, :2], y[:2]), "x has rows of shape"),
        (lambda memory, x, y: memory.update(np.full((1, 4), np.nan), y[:1]), "x"),
        (lambda memory, x, y: memory.merge(make_memory(x, y, half_life=9.0)), "half_life"),
        (lambda memory, x, y: memory.merge(make_memory(x, y, prior="equal")), "prior"),
        (lambda memory, x, y: memory.merge(make_memory(x, y, feature_map=FEATURES)), "feature_map"),
        (lambda memory, x, y: memory.merge(make_memory(x, x[:, 0])), "map"),
    ],
)
def test_refused_rows_change_nothing(change, words):
    x, y = blobs()
    memory = MomentMemory(8, Rows()).update(x, y)
    before = memory.state_dict()
    refuses(words, change, memory, x, y)
    after = memory.state_dict()
    assert all(np.array_equal(after[name], value) for name, value in before.items())


def test_a_head_needs_labelled_rows():
    x, y = blobs()
    refuses("update", MomentMemory(8).head)
    refuses("labels", MomentMemory(8).update(x).head)
    faded = MomentMemory(8, Rows(), half_life=20.0).update(x, y)
    assert faded.head().classes_.tolist() == [0, 1, 2]
    refuses("half_life", faded.forget, x[:1], y[:1])
    waiting = MomentMemory(40, Rows()).update(x[:20], y[:20])
    assert waiting.head(alpha=1.0).n_features_in_ == 4
    assert waiting.moments is None
    refuses("never counted", waiting.forget, x[30:31], y[30:31])
    assert len(waiting.forget(x[:5], y[:5])) == 15
    weights = np.array([0.0, 1.0, 3.0])
    refuses("other weights", MomentMemory(8).update(x[:3], y[:3], weights).forget, x[2:3], y[2:3])
    for memory in (MomentMemory(40), MomentMemory(40).update(x[:40], y[:40])):
        other = MomentMemory(40).update(x[50:53], y[50:53], weights)
        before, memory = memory.seen, memory.merge(other)
        assert memory.kept.weights[-2:].tolist() == [1.0, 3.0]
        assert memory.forget(x[50:53], y[50:53], weights).seen == before


def test_queries_change_nothing_and_loaded_states_agree(tmp_path):
    x, y = blobs(n=400)
    for keep in ("always", "lazy"):
        memory = MomentMemory(8, FEATURES, keep=keep).update(x[:250], y[:250])
        other = MomentMemory.load(memory.save(tmp_path / "state.npz"))
        memory.head()
        for one in (memory, other):
            one.update(x[250:], y[250:])
        np.testing.assert_array_equal(other.head().coef_, memory.head().coef_)
        np.testing.assert_array_equal(other.snapshot().ids, memory.snapshot().ids)
        assert len(memory.snapshot()) == 8
    lazy = MomentMemory(8, Rows(), keep="lazy").update(x, x[:, 0])
    fails(NumericalError, "targets are too large", lazy.update, x[:1], [1e200])
    assert len(lazy.snapshot()) == 8


def test_targets_keep_their_units():
    x, _ = blobs()
    y = 1000 * x[:, :2] + 5e4
    memory = MomentMemory(8, Rows()).update(x, y)
    ridge = Ridge(0.5).fit(x, y)
    head = memory.head(alpha=0.5)
    # The constant feature has weight 0: it does not vary.
    np.testing.assert_allclose(head.coef_[:-1].T, ridge.coef_, rtol=1e-8)
    np.testing.assert_allclose(head.predict(x), ridge.predict(x), rtol=1e-8)
    assert head.score(x, y) > 0.99
    assert HeadRegressor(Rows()).fit(x, y[:, 0]).predict(x).shape == (120,)


def test_heads_are_estimators_files_and_modules(tmp_path):
    x, y = blobs()
    names = np.array(["b", "a", "c"])[y]
    head = HeadClassifier(FEATURES, alpha=0.1).fit(x, names)
    assert is_classifier(head)
    assert head.classes_.tolist() == ["a", "b", "c"]
    assert clone(head).fit(x, names).score(x, names) == head.score(x, names) > 0.8
    proba = head.predict_proba(x)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert (head.classes_[proba.argmax(1)] == head.predict(x)).all()
    again = Head.load(head.save(tmp_path / "head.npz"))
    np.testing.assert_array_equal(again.decision_function(x), head.decision_function(x))
    outputs = head.to_torch()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(outputs, head.decision_function(x), atol=1e-5)
    two = HeadClassifier(Rows()).fit(x[y < 2], y[y < 2])
    assert ((two.decision_function(x) > 0) == (two.predict(x) == 1)).all()
    refuses("shape", head.predict, x[:, :2])
    fails(NotFittedError, "not fitted", HeadClassifier().predict, x)
    refuses("y has 10 rows", HeadClassifier().fit, np.tile(x, (2, 1)), y[:10])
    refuses("outputs=2 needs labels from 0 to 1.* are a, b, c", head.to_torch, 2)
    refuses("0 to 1.* are -1", HeadClassifier(Rows()).fit(x, np.sign(y - 0.5)).to_torch, 2)
    refuses("outputs must be", head.to_torch, 0)
    refuses("prior='equal' needs class labels", HeadRegressor(prior="equal").fit, x, x[:, 0])
    assert HeadClassifier().fit(x * 0 + 0.1, y == 0).predict(x).dtype == bool
    (tmp_path / "other.npz").write_bytes(b"nothing")
    refuses(r"Head\.save", Head.load, tmp_path / "other.npz")
    network = torch.nn.Linear(4, 6).double()
    path = HeadClassifier(network, alpha=1.0).fit(x, y).save(tmp_path / "network.npz")
    refuses("feature_map", Head.load, path)
    assert Head.load(path, Embedded(network)).score(x, y) > 0.5


def test_sums_on_a_device_are_those_of_arrays():
    x, y = blobs()
    host = Moments.empty(4, apart=True).with_rows(x, y)
    device = Moments.empty(4, apart=True, device="cpu").with_rows(torch.from_numpy(x), y)
    for one, other in zip(host.second, device.on_host().second, strict=True):
        np.testing.assert_allclose(np.tril(one), np.tril(other), rtol=1e-12)
    np.testing.assert_allclose(
        make_head(device, prior="equal").coef_, make_head(host, prior="equal").coef_
    )
    np.testing.assert_allclose(
        *(make_head(one.without_class(2), alpha=1.0).coef_ for one in (device, host))
    )


def test_whitened_patches_against_a_loop():
    x = np.random.default_rng(0).random((3, 2, 9, 9))
    features = WhitenedPatches(width=8, kernel=3, pool=2, random_state=1).fit(x)
    weights, shifts = features.filters[:, :-2].astype(float), features.filters[:, -2]
    image, expected = x[1], np.zeros((2, 7, 7))
    for top in range(7):
        for left in range(7):
            patch = image[:, top : top + 3, left : left + 3].ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + features.filters[0, -1])
            expected[:, top, left] = np.maximum(weights @ patch + shifts, 0)
    halves = (slice(0, 4), slice(3, 7))
    pooled = [[expected[:, a, b].mean((1, 2)) for b in halves] for a in halves]
    found = features(torch.from_numpy(x))[1].numpy() * 8**0.5
    np.testing.assert_allclose(found.reshape(2, 2, 2), np.moveaxis(pooled, -1, 0), atol=1e-5)
    blank = WhitenedPatches(width=8, kernel=3).fit(np.zeros((2, 9, 9)))
    assert torch.isfinite(blank(torch.zeros(2, 9, 9))).all()
