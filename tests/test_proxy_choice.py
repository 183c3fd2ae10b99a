"""kernel="auto": the kernel is the one that predicts, whoever asks, in whatever order of rows."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bicore
from bicore import (
    RBF,
    BilevelSelector,
    Context,
    Coreset,
    Dataset,
    InputError,
    Linear,
    MergeReduce,
    Normalised,
    Nystrom,
    ReplayMemory,
    Runtime,
)
from bicore.active import query
from bicore.bilevel import proxy_choice, proxy_trials
from bicore.bilevel.proxy_choice import AutomaticKernel, Chosen, choice_of
from bicore.bilevel.proxy_trials import CANDIDATES, SCALINGS
from bicore.bilevel.regularisation import EXPONENTS
from bicore.data import read_targets
from bicore.kernels import Standardised, UnitRows
from bicore.selectors import JointSelector, Reconstruction, large, quality_curve, trusted

AUTO = BilevelSelector(kernel="auto", inner_reg=0.1)


def choice(x, y, size=60, **more):
    data = Dataset(x, y, **more)
    return AUTO.settled(data, size).kernel.choice


def drawn(seed=0, n=500, columns=6):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, columns))


def linear_data(seed=0):
    rng, x = drawn(seed)
    return x, x @ rng.normal(size=6) + 2 * rng.normal(size=len(x))


def radial_data(seed=0):
    _, x = drawn(seed, columns=3)
    return x, ((x**2).sum(1) > 2.4).astype(int)


def scaled_data(seed=0):
    _, x = drawn(seed)
    return x * [1e3, 1, 1e-3, 1e3, 1e4, 1], np.sin(2 * x[:, 2]) + x[:, 1]


def directional_data(seed=0):
    rng, x = drawn(seed)
    lengths = 10.0 ** rng.uniform(-2, 2, (len(x), 1))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    return x / np.linalg.norm(x, axis=1, keepdims=True) * lengths, y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("data", "kernels", "scalings"),
    [
        (linear_data, {"linear", "laplace"}, set(SCALINGS)),
        (radial_data, {"rbf", "laplace"}, {"", "on standardised columns"}),
        (scaled_data, {"rbf", "laplace", "ntk"}, {"on standardised columns"}),
        (directional_data, {"rbf", "laplace", "ntk"}, {"on unit rows"}),
    ],
)
def test_the_kernel_that_the_data_were_made_for_is_found(data, kernels, scalings, seed):
    x, y = data(seed)
    kernel, scaling = CANDIDATES[choice(x, y, 100).name]
    assert kernel in kernels
    assert scaling in scalings


def test_errors_are_those_of_ridge_regression_on_held_out_points():
    """One candidate by hand: three splits, every ρ of the grid."""
    x, y = linear_data()
    data = Dataset(x, y, weight=np.random.default_rng(1).uniform(0.5, 2, len(x)))
    found = proxy_trials.drawn_from(data, read_targets(data.y), 60)
    trials = {one.name: one for one in proxy_trials.tried(found)}
    gram = RBF().fitted(found.rows[::3])(found.rows)  # the bandwidth of a trial
    lowest = np.inf
    for exponent in EXPONENTS:
        errors = []
        for chosen, rest in zip(found.chosen, found.rest, strict=True):
            assert not set(chosen) & set(rest)
            assert len(chosen) == 60
            inner = gram[np.ix_(chosen, chosen)] + 10.0**exponent * np.eye(60)
            guesses = gram[np.ix_(rest, chosen)] @ np.linalg.solve(inner, found.aims[chosen])
            squares = ((guesses - found.aims[rest]) ** 2)[:, 0]
            errors.append(np.average(squares, weights=found.weights[rest]))
        variance = np.average(found.aims[:, 0] ** 2, weights=found.weights)
        lowest = min(lowest, np.mean(errors) / variance)
    assert trials["rbf"].error == pytest.approx(lowest, rel=1e-4)


def test_the_simplest_within_a_standard_error_is_taken():
    x, y = linear_data()
    found = choice(x, y)
    order = list(CANDIDATES)
    near = [one.name for one in found.trials if one.margin <= np.clip(one.deviation, 1e-3, 1e-2)]
    assert found.name == min(near, key=order.index)
    assert [one.error for one in found.trials] == sorted(one.error for one in found.trials)
    assert found.trials[0].margin == found.trials[0].deviation == 0
    assert all(one.accuracy is None for one in found.trials)  # targets are no classes


def test_the_laplace_kernel_is_taken_unless_another_is_better_by_a_fifth(monkeypatch):
    x, y = linear_data()
    found = choice(x, y, 100)
    own = min(one.error for one in found.trials if one.name.startswith("laplace"))
    better = found.trials[0].error
    for share, expected in ((1 - 0.99 * better / own, False), (1 - better / own + 1e-9, True)):
        monkeypatch.setattr(proxy_choice, "PREFERENCE", share if expected else share - 0.02)
        assert choice(x, y, 100).name.startswith("laplace") is expected


def test_of_many_rows_the_kernel_with_features_is_preferred(monkeypatch):
    x, y = radial_data()
    monkeypatch.setattr(proxy_choice, "PREFERENCE", 1.0)
    assert choice(x, y, 20).name.startswith("laplace")
    monkeypatch.setattr(proxy_choice, "MANY", 50)
    assert choice(x, y, 20).name.startswith("linear")


@pytest.mark.parametrize("data", [linear_data, radial_data])
def test_the_same_choice_whatever_the_seed_and_the_order_of_rows(data):
    x, y = data()
    ids = np.random.default_rng(2).permutation(len(x))
    first = choice(x, y, ids=ids)
    order = np.random.default_rng(3).permutation(len(x))
    assert choice(x[order], y[order], ids=ids[order]) == first
    assert choice(x, y, ids=ids) == first
    names = {bicore.select(x, y, 8, kernel="auto", seed=seed).provenance.kernel for seed in (0, 7)}
    assert len(names) == 1


def test_rows_that_do_not_count_play_no_part():
    x, y = radial_data()
    weight = np.ones(len(x))
    weight[::3] = 0
    spoilt = x.copy()
    spoilt[::3] = 1e6
    kept = weight > 0
    ids = np.arange(len(x))
    assert choice(spoilt, y, weight=weight) == choice(x[kept], y[kept], ids=ids[kept])


def test_no_row_is_touched_that_is_not_drawn():
    asked = []

    class Watched(np.ndarray):
        def __getitem__(self, rows):
            asked.append(rows)
            return np.asarray(super().__getitem__(rows))

    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 3))
    data = Dataset(x, x[:, 0]).with_columns(x=x.view(Watched))
    AUTO.settled(data, 100)
    assert [len(rows) for rows in asked] == [100 + proxy_trials.HELD_OUT]


def test_result_and_note_have_the_decision_and_its_margins(tmp_path):
    x, y = radial_data()
    coreset = bicore.select(x, y, 30, kernel="auto")
    record = coreset.details["kernel_trials"]
    found = choice(x, y, 30)
    assert record["name"] == found.name
    assert record["size"] == 30
    assert record["held_out"] == proxy_trials.HELD_OUT
    assert {trial["name"] for trial in record["trials"]} == set(CANDIDATES)
    for trial in record["trials"]:
        assert trial["margin"] >= 0
        assert 0 <= trial["accuracy"] <= 1
    assert coreset.provenance.notes[0] == found.note
    assert found.note.startswith(f"kernel: {found.name}, by a held-out error of ")
    assert json.dumps(record)
    path = tmp_path / "found.npz"
    coreset.save(path)
    assert Coreset.load(path).details["kernel_trials"] == record


def test_the_chosen_kernel_is_the_one_that_is_used():
    x, y = radial_data()
    coreset = bicore.select(x, y, 12, kernel="auto")
    kernel, scaling = CANDIDATES[coreset.details["kernel_trials"]["name"]]
    named = SCALINGS[scaling](proxy_trials.KERNELS[kernel]())
    by_hand = bicore.select(x, y, 12, kernel=named)
    assert coreset.indices.tolist() == by_hand.indices.tolist()
    assert coreset.provenance.same_configuration(by_hand.provenance)
    assert coreset.provenance.kernel == by_hand.provenance.kernel


@pytest.mark.parametrize("unit", [True, False])
def test_lengths_of_features_are_divided_by_in_one_place(unit):
    x, y = linear_data()
    kernel = BilevelSelector(kernel=AutomaticKernel(unit)).settled(Dataset(x, y), 50).kernel
    assert kernel.kernel == (Normalised(Linear()) if unit else Linear())
    x, y = radial_data()
    kernel = BilevelSelector(kernel=AutomaticKernel(unit)).settled(Dataset(x, y), 100).kernel
    assert not isinstance(kernel.kernel, Normalised)  # which is of unit diagonal by itself


def test_a_coreset_is_continued_and_looked_at_with_its_own_kernel():
    """At another size, or of other rows, the trials may end otherwise."""
    x, y = radial_data()
    data = Dataset(x, y)
    first = AUTO.select(data, 5)
    record = first.details["kernel_trials"] | {"name": "ntk on unit rows"}
    other = replace(first, details=first.details | {"kernel_trials": record})
    more = AUTO.select(data, 8, initial=other)
    assert more.details["kernel_trials"] == record
    assert more.provenance.kernel == "normalised fully connected (2 hidden) ntk on unit rows"
    named = BilevelSelector(
        kernel=Normalised(UnitRows(proxy_trials.KERNELS["ntk"]())), inner_reg=0.1
    )
    np.testing.assert_allclose(AUTO.influence(data, other), named.influence(data, other))
    assert (AUTO.predict(data, x, other) == named.predict(data, x, other)).all()
    # and continuing is what one run would have done
    whole = AUTO.select(data, 8)
    assert AUTO.select(data, 8, initial=whole.prefix(5)).indices.tolist() == whole.indices.tolist()


TINY = {
    "one row": ([[1.0, 2.0]], [1]),
    "two": ([[0.0, 1.0], [1.0, 0.0]], [0, 1]),
    "three": ([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1]),
    "four": ([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 3.0]], [0.5, 1.0, 2.0, 1.0]),
    "constant": (np.ones((20, 2)), np.arange(20) % 2),
    "constant targets": (np.arange(40.0).reshape(20, 2), np.full(20, 0.5)),
    "zero rows": (np.zeros((20, 2)), np.arange(20) % 2),
    "huge": (np.random.default_rng(0).normal(size=(20, 2)) * 1e25, np.arange(20) % 2),
    "beyond squares": (np.random.default_rng(0).normal(size=(20, 2)) * 1e200, np.arange(20) % 2),
}


@pytest.mark.parametrize("name", TINY)
def test_little_data_are_no_error(name):
    x, y = TINY[name]
    n = len(x)
    coreset = BilevelSelector(kernel="auto", inner_reg=0.1).select(Dataset(x, y), n)
    assert len(coreset) == n
    record = coreset.details["kernel_trials"]
    if name in ("one row", "two", "three", "constant targets"):
        assert record["name"] == proxy_choice.DEFAULT
        assert not record["trials"]
        assert "too few points" in coreset.provenance.notes[0]


def test_one_class_of_several_is_no_error():
    x, _ = drawn()[1], None
    selector = BilevelSelector(kernel="auto").for_classes(["cat"])
    coreset = selector.select(Dataset(x, ["cat"] * len(x)), 5)
    assert coreset.details["kernel_trials"]["name"] == proxy_choice.DEFAULT


def test_more_than_half_of_the_rows_leaves_half_to_judge():
    x, y = radial_data()
    found = choice(x[:80], y[:80], 70)
    assert (found.size, found.held_out) == (40, 40)
    assert choice(x, y, 3).size == proxy_trials.FEWEST
    assert choice(x, np.arange(len(x)) % 15, 3).size == 15 * proxy_trials.PER_CLASS
    assert choice(x, y, len(x)).size == proxy_trials.MOST


def test_a_kernel_that_is_given_is_left_alone():
    x, y = radial_data()
    data = Dataset(x, y)
    for kernel in ("rbf", "precomputed", Nystrom(RBF(), 5)):
        selector = BilevelSelector(kernel=kernel)
        assert selector.settled(data, 10) is selector
    assert "kernel_trials" not in bicore.select(x, y, 4, kernel="rbf").details


def test_without_labels_the_mend_is_named():
    x, _ = radial_data()
    with pytest.raises(InputError, match="needs labels"):
        AUTO.select(Dataset(x), 5)
    for ask in (lambda: AutomaticKernel()(x), lambda: AutomaticKernel()(x, x)):
        with pytest.raises(InputError, match="name a kernel"):
            ask()


def test_a_dear_kernel_is_tried_under_the_scaling_of_its_like(monkeypatch):
    x, y = directional_data()
    assert len(choice(x, y).trials) == len(CANDIDATES)
    monkeypatch.setattr(proxy_trials, "DEAR_OPERATIONS", 0)
    names = [one.name for one in choice(x, y).trials]
    assert [name for name in names if name.startswith("laplace")] == ["laplace on unit rows"]
    assert len(names) == len(CANDIDATES) - 2


def test_parts_of_a_kernel_are_chosen_too():
    x, y = linear_data()
    data = Dataset(x, y)
    found = BilevelSelector(kernel=Nystrom(AutomaticKernel(), 20)).settled(data, 30).kernel
    assert isinstance(found, Nystrom)
    assert isinstance(found.kernel, Chosen)
    assert choice_of(found) == choice(x, y, 30)
    coreset = BilevelSelector(kernel=Nystrom(AutomaticKernel(), 20)).select(data, 30)
    assert coreset.details["kernel_trials"]["name"] == choice(x, y, 30).name


def test_images_are_compared_as_rows():
    x, y = radial_data()
    images = np.repeat(x, 4, axis=1).reshape(len(x), 3, 2, 2)
    found = choice(images, y)
    assert found == choice(images.reshape(len(x), -1), y)
    assert len(AUTO.select(Dataset(images, y), 4)) == 4


def test_large_data_are_planned_with_the_kernel_that_is_chosen(monkeypatch):
    monkeypatch.setattr(large, "LONG", 0.0)
    monkeypatch.setattr(large, "TRIVIAL_BYTES", 0)
    _, x = drawn(n=900, columns=3)
    y = ((x**2).sum(1) > 2.4).astype(int)
    runtime = Runtime(device="cpu", memory="2 MB")
    decision = large.decided(
        AUTO, Dataset(x, y), 20, None, Context(runtime=runtime), large.Large.APPROXIMATE
    )
    assert isinstance(decision.selector.kernel, Nystrom)
    assert isinstance(decision.selector.kernel.kernel, Chosen)
    with pytest.warns(bicore.LargeDataWarning) as told:
        coreset = bicore.select(x, y, 20, method="paper", kernel="auto", runtime=runtime)
    assert coreset.details["kernel_trials"]["name"] == choice(x, y, 20).name
    assert len(told) == 1  # of the landmarks; the choice of a kernel is no warning
    assert any(note.startswith("kernel: its matrix") for note in coreset.provenance.notes)
    assert choice(x, y, 20).note in coreset.provenance.notes
    assert (
        bicore.estimate(x, y, 20, method="paper", kernel="auto", runtime=runtime).operator
        == "features"
    )


def test_a_linear_choice_is_held_in_features():
    x, y = linear_data()
    coreset = bicore.select(x, y, 10, kernel="auto")
    assert coreset.details["operator"] == "features"


def test_every_door_settles_the_kernel():
    x, y = radial_data()
    x, y = x[:200], y[:200]
    data = Dataset(x, y)
    sized = bicore.select(x, y, "auto", kernel="auto", tolerance=0.5)
    assert sized.details["kernel_trials"]["size"] == 100
    assert len(quality_curve(AUTO, data, 5).sizes) == 5
    assert AUTO.reweight(data, [1, 5, 9]).details["kernel_trials"]["size"] == proxy_trials.FEWEST
    assert (trusted(data, AUTO).weights >= 0).all()
    joint = JointSelector([AUTO, BilevelSelector(kernel="rbf", inner_reg=0.1)]).select(data, 4)
    assert "kernel_trials" in joint.details["models"][0]
    assert "kernel_trials" not in joint.details["models"][1]
    assert joint.provenance.notes[0].startswith("kernel: ")
    without = Reconstruction("auto", 0.1).select(Dataset(x), 4)
    assert without.details["kernel_trials"]["name"] in CANDIDATES
    picked = query(x[:40], y[:40], x[40:], 3, selector=AUTO)
    assert len(picked) == 3


def test_memories_choose_as_they_go():
    x, y = radial_data()
    buffer = MergeReduce(AUTO, 20, 2)
    for top in range(0, 200, 50):
        buffer.update(x[top : top + 50], y[top : top + 50])
    assert 0 < len(buffer) <= 20
    memory = ReplayMemory(AUTO, 12)
    for top in (0, 100):
        memory.add_task(x[top : top + 100], y[top : top + 100])
    assert [len(rows) for rows in memory.tasks] == [6, 6]


def test_standardised_is_measured_on_all_rows():
    x, y = scaled_data()
    kernel = AUTO.settled(Dataset(x, y), 50).kernel
    fitted = kernel.fitted(x).kernel
    inner = fitted.kernel if isinstance(fitted, Normalised) else fitted
    assert isinstance(inner, Standardised)
    np.testing.assert_allclose(inner.columns.deviation, x.std(0))
