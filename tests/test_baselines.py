"""Each baseline against its definition, on cases small enough to work out by hand."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import nn

from bicore import Dataset, InputError, NumericalError, Runtime
from bicore.coreset import Status
from bicore.methods import (
    METHODS,
    BatchBALD,
    ClassBalanced,
    FacilityLocation,
    GradientMatching,
    Hardest,
    Herding,
    InducingPoints,
    KCenter,
    KMeansPlusPlus,
    MaxEntropy,
    Stratified,
    Uniform,
    as_selector,
)
from bicore.methods.base import require_complete
from bicore.methods.baselines.base import Embedding
from bicore.methods.baselines.matching import fit_nonnegative
from bicore.methods.baselines.simple import JointLabels
from bicore.methods.registry import build_selector, greedy_selector
from bicore.networks.observe import Observed, dropout_probabilities, observe
from bicore.runtime.context import Context
from tests.helpers import fails, refuses


def context_of(outputs, embedding=None) -> Context:
    """A context whose model predicts ``outputs`` from ``embedding``."""
    outputs = torch.as_tensor(np.asarray(outputs, dtype=float))
    last = outputs if embedding is None else torch.as_tensor(np.asarray(embedding, dtype=float))
    return Context(model=Observed(last, last, outputs))


def points(*values) -> Dataset:
    return Dataset(np.array(values, dtype=float)[:, None])


# Representations.


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
    ).double()


def test_embedding_and_predictions_are_those_of_the_module_in_eval_mode():
    module = network()
    x = np.random.default_rng(0).normal(size=(7, 3))
    found = observe(module, x, batch=2)
    assert module.training
    module.eval()
    tensor = torch.from_numpy(x)
    torch.testing.assert_close(found.embedding, module[:5](tensor).detach())
    torch.testing.assert_close(found.outputs, module(tensor).detach())
    torch.testing.assert_close(observe(module, x, layer="1").embedding, module[:2](tensor).detach())


@pytest.mark.parametrize("labels", [[0, 2, 1, 1, 0], ["a", "c", "b", "b", "a"]])
def test_last_layer_gradients_in_closed_form_are_those_of_autograd(labels):
    module = network().eval()
    x = np.random.default_rng(1).normal(size=(5, 3))
    left, right = observe(module, x).gradient_factors(np.array(labels))
    codes = np.unique(labels, return_inverse=True)[1]
    for row in range(5):
        module.zero_grad()
        nn.functional.cross_entropy(
            module(torch.from_numpy(x[row : row + 1])), torch.tensor([codes[row]])
        ).backward()
        gradient = torch.cat([module[5].weight.grad, module[5].bias.grad[:, None]], 1)
        torch.testing.assert_close(torch.outer(left[row], right[row]), gradient)


def test_last_layer_gradients_of_a_regression_without_bias():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).double()
    x = np.random.default_rng(2).normal(size=(4, 3))
    y = np.random.default_rng(3).normal(size=(4, 2))
    left, right = observe(module, x).gradient_factors(y)
    (module(torch.from_numpy(x[:1])) - torch.from_numpy(y[:1])).square().sum().backward()
    torch.testing.assert_close(torch.outer(left[0], right[0]), module[2].weight.grad)


def test_a_task_that_shows_two_of_ten_classes_uses_their_own_outputs():
    outputs = np.zeros((2, 10))
    outputs[0, 4] = outputs[1, 5] = 5.0
    data = Dataset(np.zeros((2, 1)), [4, 4])
    assert Hardest().select(data, 1, **context_of(outputs).keywords).indices.tolist() == [1]


def test_layer_before_an_in_place_operation_is_recorded():
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)).double()
    x = np.random.default_rng(0).normal(size=(9, 3))
    torch.testing.assert_close(
        observe(module, x, layer="0").embedding, module[0](torch.from_numpy(x)).detach()
    )


def test_gradients_need_a_linear_output_layer():
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2), nn.BatchNorm1d(2)).double()
    module[3].weight.data.fill_(5.0)
    x = np.random.default_rng(0).normal(size=(9, 3))
    y = np.arange(9) % 2
    with pytest.raises(InputError, match="output of its last Linear layer"):
        KCenter("gradients").select(Dataset(x, y), 3, model=module)
    logs = nn.Sequential(*module[:3], nn.LogSoftmax(1))
    plain, logged = (observe(one, x).gradient_factors(y)[0] for one in (module[:3], logs))
    torch.testing.assert_close(plain, logged)
    assert len(Herding("embedding").select(Dataset(x, y), 3, model=module)) == 3


def test_outputs_match_labels_for_any_weights():
    rng = np.random.default_rng(1)
    outputs = rng.normal(size=(12, 3))
    y = np.arange(12) % 3
    weight = np.where(y == 2, 0.0, 1.0)
    zero_based, one_based, named = (
        Hardest()
        .select(Dataset(np.zeros((12, 1)), labels, weight), 4, **context_of(outputs).keywords)
        .indices.tolist()
        for labels in (y, y + 1, np.array(["a", "b", "c"])[y])
    )
    assert zero_based == one_based == named
    part = Dataset(np.zeros((8, 1)), np.array(["a", "b"])[np.arange(8) % 2])
    refuses("model_classes", Hardest().select, part, 2, **context_of(outputs[:8]).keywords)
    named = Context(context_of(outputs[:8]).model, classes=["b", "a", "c"])
    assert len(Hardest().select(part, 2, **named.keywords)) == 2
    with pytest.raises(InputError, match="give one for every output"):
        Hardest().select(part, 2, model=named.model, model_classes=["a", "x", "y"])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: "a string", "model must be a torch"),
        (lambda: nn.Conv2d(1, 1, 1), "no Linear layer"),
        (lambda: nn.Linear(7, 2).double(), "cannot read rows of shape"),
        (lambda: nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)).double(), "return logits"),
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)).double(),
            "one vector of logits per row",
        ),
    ],
)
def test_models_that_cannot_serve_are_refused(build, words):
    refuses(words, MaxEntropy().select, Dataset(np.ones((4, 3))), 2, model=build())


def test_wrong_layers_and_observations_are_refused():
    data = Dataset(np.ones((4, 3)))
    with pytest.raises(InputError, match="layer='head' is not known"):
        KCenter(Embedding("head")).select(data, 2, model=network())
    with pytest.raises(InputError, match="observed on 3 rows and data has 4"):
        KCenter("embedding").select(data, 2, **context_of(np.eye(3)).keywords)
    with pytest.raises(InputError, match="observed at layer None"):
        KCenter(Embedding("1")).select(data, 2, model=observe(network(), data.x))
    refuses("'embedding', 'features', 'gradients'", KCenter, "embeding")
    named = Dataset(np.ones((4, 3)), ["a", "b", "a", "b"])
    refuses("3 outputs and y 2 classes", Hardest().select, named, 2, model=network())


# Each point alone.


def test_uniform_draws_every_point_equally_often():
    counts = sum(
        np.bincount(Uniform().select(points(*range(5)), 2, random_state=seed).indices, minlength=5)
        for seed in range(300)
    )
    assert np.abs(counts - 120).max() < 5 * np.sqrt(300 * 0.4 * 0.6)


def test_class_balanced_takes_turns_and_fills_up_from_classes_that_have_points():
    labels = np.array([0] * 7 + [1] * 2 + [2])
    data = Dataset(np.arange(10.0)[:, None], labels)
    for seed in range(5):
        order = labels[ClassBalanced().select(data, 8, random_state=seed).indices]
        assert sorted(order[:3]) == [0, 1, 2]
        assert sorted(order[3:5]) == [0, 1]
        assert order[5:].tolist() == [0, 0, 0]
    continued = ClassBalanced().select(data, 4, initial=[0, 1], random_state=0)
    assert not (labels[continued.indices[2:]] == 0).any()


def test_hardest_takes_the_highest_loss():
    outputs = [[4.0, 0.0], [0.0, 0.0], [0.0, 3.0], [1.0, 0.0]]
    data = Dataset(np.zeros((4, 1)), [0, 0, 0, 1])
    picked = Hardest().select(data, 4, **context_of(outputs).keywords)
    assert picked.indices.tolist() == [2, 3, 1, 0]
    targets = Dataset(np.zeros((3, 1)), [1.0, 5.0, -2.0])
    picked = Hardest().select(targets, 3, **context_of([[1.5], [1.0], [0.0]]).keywords)
    assert picked.indices.tolist() == [1, 2, 0]


def test_max_entropy_takes_the_least_certain():
    outputs = [[4.0, 0.0], [0.1, 0.0], [0.0, 0.0], [0.0, 2.0]]
    picked = MaxEntropy().select(Dataset(np.zeros((4, 1))), 3, **context_of(outputs).keywords)
    assert picked.indices.tolist() == [2, 1, 3]


def ccs_budget(sizes: list[int], budget: int) -> list[int]:
    """The budget rule of the CCS paper: from the smallest stratum on, a share of what is left."""
    result = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda k: sizes[k])
    left = len(order)
    for k in order:
        result[k] = min(sizes[k], budget // left)
        budget -= result[k]
        left -= 1
    return result


@pytest.mark.parametrize("size", [1, 4, 9, 14, 20])
def test_ccs_leaves_out_the_hardest_and_gives_strata_the_published_budget(size):
    difficulty = np.r_[
        np.linspace(0.0, 0.09, 10),
        np.linspace(0.1, 0.19, 3),
        np.linspace(0.2, 0.29, 6),
        [0.3],
        np.linspace(2, 3, 5),
    ]
    own = 1 - difficulty / np.sqrt(2) / 3  # two classes: ‖p − e_y‖ = √2 (1 − p_y)
    outputs = np.stack([np.log(own), np.log(1 - own + 1e-12)], 1)
    data = Dataset(
        np.zeros((len(own) + 1, 1)),
        np.r_[np.zeros(len(own), dtype=int), 1],
        np.r_[np.ones(len(own)), 0],
    )
    picked = Stratified(prune=0.2, strata=3).select(
        data, size, **context_of(np.vstack([outputs, [[0.0, 9.0]]])).keywords
    )
    strata = np.minimum((3 * difficulty[:20] / 0.3).astype(int), 2)
    assert (picked.indices < 20).all()
    assert np.bincount(strata[picked.indices], minlength=3).tolist() == ccs_budget(
        np.bincount(strata).tolist(), size
    )


def test_ccs_leaves_the_hardest_to_the_end():
    outputs = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 4.0]])
    data = Dataset(np.zeros((5, 1)), [0, 0, 0, 0, 1], [1, 1, 1, 1, 0])
    context = context_of(np.vstack([outputs, [[0.0, 1.0]]]))
    picked = Stratified(prune=0.25, strata=2).select(data, 4, **context.keywords)
    assert picked.indices[-1] == 3


# Covers.


def test_k_center_takes_the_farthest_point_each_time():
    data = points(0, 1, 2, 10, 11, 30)
    picked = KCenter().select(data, 4, initial=[3])
    assert picked.indices.tolist() == [3, 5, 0, 2]
    assert picked.objectives.tolist() == [10, 2, 1]


def test_far_from_the_origin_distances_keep_their_digits():
    x = np.random.default_rng(0).normal(size=(60, 3))
    far = Context(runtime=Runtime(dtype="float32"))
    for rule in (
        KCenter(),
        FacilityLocation(),
        Herding("features", per_class=False, normalise=False),
    ):
        near = rule.select(Dataset(x), 8, random_state=1)
        shifted = rule.select(Dataset(x + 5000), 8, random_state=1, **far.keywords)
        assert near.indices.tolist() == shifted.indices.tolist()
    fails(NumericalError, "not finite", KMeansPlusPlus().select, Dataset(x * 1e200), 3)


def test_data_weights_move_the_means_and_the_criterion():
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    heavy = Dataset(x, sample_weight=[1, 1, 1, 30.0])
    herding = Herding("features", per_class=False, normalise=False)
    assert herding.select(heavy, 1).indices.tolist() == [3]
    spread = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    for weight, expected in (([9, 1, 9, 1.0], {0, 2}), ([1, 9, 1, 9.0], {1, 3})):
        points = InducingPoints("features", proposals=300)
        chosen = points.select(Dataset(spread, sample_weight=weight), 1, random_state=0).indices
        assert set(chosen.tolist()) <= expected


def test_k_center_is_within_twice_the_best_radius():
    x = np.random.default_rng(0).normal(size=(12, 2))
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    best = min(distances[:, list(chosen)].min(1).max() for chosen in combinations(range(12), 3))
    for seed in range(10):
        assert KCenter().select(Dataset(x), 3, random_state=seed).objective <= 2 * best + 1e-12


@pytest.mark.slow
def test_k_means_plus_plus_draws_by_squared_distance():
    data = points(0, 1, 3)
    seconds = []
    draws = 600
    for seed in range(draws):
        picked = KMeansPlusPlus().select(data, 2, random_state=seed).indices
        if picked[0] == 0:
            seconds.append(picked[1])
    share = np.mean(np.array(seconds) == 2)
    assert share == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / len(seconds)))
    assert len(seconds) == pytest.approx(draws / 3, abs=5 * np.sqrt(draws * 2 / 9))


def test_k_means_plus_plus_respects_weights_and_duplicates():
    heavy = Dataset(np.array([[0.0], [5.0]]), sample_weight=[1.0, 9.0])
    firsts = [
        KMeansPlusPlus().select(heavy, 1, random_state=seed).indices[0] for seed in range(150)
    ]
    assert np.mean(firsts) == pytest.approx(0.9, abs=0.05)
    assert sorted(KMeansPlusPlus().select(points(2, 2, 2), 3).indices.tolist()) == [0, 1, 2]


def test_rules_over_gradients_use_distances_between_the_gradients_themselves():
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(9, 4))
    outputs = rng.normal(size=(9, 3))
    y = rng.integers(3, size=9)
    y[:3] = [0, 1, 2]
    context = context_of(outputs, embedding)
    left, right = context.model.gradient_factors(y)
    explicit = (left[:, :, None] * right[:, None, :]).flatten(1).numpy()
    data = Dataset(rng.normal(size=(9, 1)), y)
    for rule in (KCenter, KMeansPlusPlus, FacilityLocation):
        over = rule("gradients").select(data, 5, random_state=3, **context.keywords).indices
        plain = rule("features").select(Dataset(explicit, y), 5, random_state=3).indices
        assert over.tolist() == plain.tolist()


def facility_value(distances, chosen) -> float:
    return float((distances.max() - distances[:, chosen].min(1)).sum())


@pytest.mark.parametrize("memory", [None, 1])
def test_facility_location_is_the_plain_greedy_and_near_the_best(memory):
    x = np.random.default_rng(1).normal(size=(14, 2))
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    greedy: list[int] = []
    for _ in range(5):
        rest = [k for k in range(14) if k not in greedy]
        greedy.append(max(rest, key=lambda k: facility_value(distances, [*greedy, k])))
    picked = FacilityLocation().select(Dataset(x), 5, runtime=Runtime(memory=memory))
    assert picked.indices.tolist() == greedy
    assert picked.objective == pytest.approx(distances[:, greedy].min(1).mean())
    best = max(facility_value(distances, list(chosen)) for chosen in combinations(range(14), 5))
    assert facility_value(distances, greedy) >= (1 - 1 / np.e) * best


def test_facility_location_per_class_counts_served_rows():
    x = np.array([0.0, 1.0, 2.0, 10.0, 0.5, 9.0])
    data = Dataset(x[:, None], [0, 0, 0, 0, 1, 1], sample_weight=[1, 1, 1, 1, 1, 3.0])
    picked = FacilityLocation(per_class=True, cluster_weights=True).select(data, 3)
    # The largest distance within a class is 10. First gains: 10·4 − (1 + 0 + 1 + 9) = 29 for the
    # second point, and with weights (10 − 8.5)·1 + 10·3 = 31.5 for the last one.
    assert picked.indices.tolist() == [5, 1, 3]
    np.testing.assert_allclose(picked.weights, [4, 3, 1])


def test_rules_run_within_classes_with_a_share_of_the_points_for_each():
    x = np.arange(8.0)[:, None]
    data = Dataset(x, ["a"] * 6 + ["b"] * 2)
    found = build_selector("facility-location", per_class="proportional").select(data, 4)
    assert found.indices.tolist() == [2, 4, 0, 6]
    for name in ("k-means-features", "k-center-features", "herding-features", "facility-location"):
        selector = build_selector(name, per_class="balanced")
        assert not selector.ordered
        assert (data.y[selector.select(data, 4).indices] == "b").sum() == 2
        targets = selector.select(Dataset(x, x[:, 0] ** 2), 4).indices
        assert sorted(targets // 2) == [0, 1, 2, 3]  # one of every quarter of the targets
        refuses("needs labels", selector.select, Dataset(x), 4)
        refuses("per_class", build_selector, name, per_class="both")
    refuses("per_class", KCenter, per_class=True)
    started = KCenter(per_class="balanced").select(data, 3, initial=[7, 6])
    assert started.indices[:2].tolist() == [7, 6]
    assert started.indices[2] < 6


@pytest.mark.usefixtures("long_grace")
def test_a_time_limit_ends_a_rule_within_classes_early():
    data = Dataset(np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2)
    limited = Context(runtime=Runtime(max_seconds=1e-9))
    late = KCenter(per_class="balanced").select(data, 20, **limited.keywords)
    assert late.status is Status.OUT_OF_TIME
    assert len(late) == 1


# FRCL.


def trace(kernel, chosen) -> float:
    own = kernel[np.ix_(chosen, chosen)] + 1e-6 * kernel.diagonal().mean() * np.eye(len(chosen))
    return float(kernel.trace() - (np.linalg.solve(own, kernel[chosen]) * kernel[chosen]).sum())


def test_inducing_points_lower_the_trace_criterion_to_a_local_minimum():
    x = np.random.default_rng(2).normal(size=(16, 6))
    kernel = x @ x.T
    start = (
        InducingPoints("features", proposals=0)
        .select(Dataset(x), 4, random_state=1)
        .indices.tolist()
    )
    final = (
        InducingPoints("features", proposals=400)
        .select(Dataset(x), 4, random_state=1)
        .indices.tolist()
    )
    assert sorted(start) == sorted(Uniform().select(Dataset(x), 4, random_state=1).indices.tolist())
    assert trace(kernel, final) < trace(kernel, start)
    for leaving in range(4):
        for joining in set(range(16)) - set(final):
            swapped = [*final[:leaving], joining, *final[leaving + 1 :]]
            assert trace(kernel, swapped) >= trace(kernel, final) - 1e-9
    best = min(trace(kernel, list(chosen)) for chosen in combinations(range(16), 4))
    assert trace(kernel, final) <= 1.15 * best


def test_inducing_points_keep_those_given_and_depend_on_the_seed():
    data = Dataset(np.random.default_rng(3).normal(size=(40, 6)))
    picked = InducingPoints("features", proposals=200).select(
        data, 5, initial=[7, 3], random_state=0
    )
    assert picked.indices[:2].tolist() == [7, 3]
    drawn = InducingPoints("features", proposals=0)
    several = {frozenset(drawn.select(data, 5, random_state=seed).indices) for seed in range(5)}
    assert len(several) == 5


# Matching.


def herd_by_definition(features, size) -> list[int]:
    mean = features.mean(0)
    chosen: list[int] = []

    def distance(i: int) -> float:
        return np.linalg.norm(mean - features[[*chosen, i]].mean(0))

    for _ in range(size):
        chosen.append(min(set(range(len(features))) - set(chosen), key=distance))
    return chosen


def test_herding_is_algorithm_four_of_icarl_in_each_class_by_turns():
    rng = np.random.default_rng(4)
    embedding = rng.normal(size=(20, 5))
    y = np.r_[[0] * 12, [1] * 8]
    context = context_of(rng.normal(size=(20, 2)), embedding)
    picked = Herding().select(Dataset(np.zeros((20, 1)), y), 9, **context.keywords).indices
    unit = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    zeros = herd_by_definition(unit[:12], 5)
    ones = [12 + k for k in herd_by_definition(unit[12:], 4)]
    assert picked[0::2].tolist() == zeros
    assert picked[1::2].tolist() == ones


@pytest.mark.parametrize("normalise", [False, True])
def test_gradient_matching_with_equal_weights_herds_all_classes_together(normalise):
    rng = np.random.default_rng(5)
    embedding = rng.normal(size=(15, 3))
    outputs = rng.normal(size=(15, 2))
    y = rng.integers(2, size=15)
    context = context_of(outputs, embedding)
    left, right = context.model.gradient_factors(y)
    gradients = (left[:, :, None] * right[:, None, :]).flatten(1).numpy()
    if normalise:
        gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    picked = GradientMatching(normalise=normalise).select(
        Dataset(np.zeros((15, 1)), y), 6, **context.keywords
    )
    assert picked.indices.tolist() == herd_by_definition(gradients, 6)


@pytest.mark.parametrize("form", ["pursuit", "frank-wolfe"])
def test_weighted_matching_reports_a_decreasing_error(form):
    x = np.abs(np.random.default_rng(6).normal(size=(60, 8)))
    weight = np.random.default_rng(7).uniform(0.5, 2, 60)
    data = Dataset(x, sample_weight=weight)
    target = (weight / weight.mean()) @ x
    errors = []
    for size in (2, 5, 8):
        picked = GradientMatching("features", weighting=form).select(data, size)
        left = (
            np.linalg.norm(target - picked.weights @ x[picked.indices]) ** 2
            / np.linalg.norm(target) ** 2
        )
        assert picked.objective == pytest.approx(left, abs=1e-9)
        errors.append(left)
    assert errors[0] > errors[1] > errors[2]


def test_pursuit_fits_the_best_weights_and_stops_without_error_left():
    pursuit = GradientMatching("features", weighting="pursuit")
    for seed in range(8, 13):
        x = np.random.default_rng(seed).normal(size=(30, 6)) + 0.5
        picked = pursuit.select(Dataset(x), 4)
        best, _ = nnls(x[picked.indices].T, x.sum(0))
        np.testing.assert_allclose(picked.weights, best, rtol=1e-6)
    exact = pursuit.select(Dataset(np.repeat(np.eye(3), 4, axis=0)), 9)
    assert len(exact) == 3
    assert exact.weights.tolist() == pytest.approx([4, 4, 4])
    assert exact.status is Status.FEWER


@pytest.mark.parametrize("form", ["pursuit", "frank-wolfe"])
def test_points_without_a_gradient_are_never_taken(form):
    for seed in range(6):
        x = np.r_[np.zeros((2, 2)), np.random.default_rng(seed).normal(size=(4, 2))]
        picked = GradientMatching("features", weighting=form).select(Dataset(x), 6)
        assert (picked.weights > 0).all()
        assert not np.isin(picked.indices, [0, 1]).any()
        others = np.r_[np.random.default_rng(seed).normal(size=(2, 3)), np.zeros((4, 3))]
        picked = GradientMatching("features", weighting=form).select(Dataset(others), 4)
        assert set(picked.indices.tolist()) <= {0, 1}  # there is no other to take
        assert picked.status is Status.FEWER
    with pytest.raises(NumericalError, match="nothing to match"):
        GradientMatching("features", weighting=form).select(Dataset(np.zeros((5, 2))), 2)


def test_frank_wolfe_first_steps_by_hand():
    x = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    picked = GradientMatching("features", weighting="frank-wolfe").select(Dataset(x), 1)
    norms = np.linalg.norm(x, axis=1)
    # the direction of the sum (2, 3) is nearest that of (1, 1)
    assert picked.indices.tolist() == [2]
    assert picked.weights[0] == pytest.approx(norms.sum() / norms[2])


# BatchBALD.


def mutual_information(probabilities, chosen) -> float:
    """I(y_chosen; ω) by summing over every joint label; probabilities (points, draws, classes)."""
    classes = probabilities.shape[2]
    total = 0.0
    for labels in np.ndindex(*[classes] * len(chosen)):
        given = np.prod(
            [probabilities[k, :, c] for k, c in zip(chosen, labels, strict=True)], axis=0
        )
        total -= given.mean() * np.log(given.mean())
    own = probabilities[list(chosen)]
    return total + float((own * np.log(own)).sum(2).mean(1).sum())


def random_probabilities(count=6, draws=5, classes=3):
    return torch.softmax(
        torch.from_numpy(np.random.default_rng(9).normal(scale=2, size=(count, draws, classes))), 2
    )


def test_batchbald_scores_are_the_joint_mutual_information():
    probabilities = random_probabilities()
    exact = JointLabels(probabilities, 10_000, 0)
    sampled = JointLabels(probabilities, 20_000, 0)
    chosen: list[int] = []
    for place in (2, 4, 0):
        expected = [mutual_information(probabilities.numpy(), [*chosen, k]) for k in range(6)]
        np.testing.assert_allclose(exact.information(), expected, atol=1e-12)
        sampled.exact = None
        np.testing.assert_allclose(sampled.information(), expected, atol=0.03)
        exact.add(place)
        sampled.add(place)
        chosen.append(place)


def test_batchbald_takes_the_most_informative_point_each_time_and_counts_those_given():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 3))
    data = Dataset(np.random.default_rng(0).normal(size=(12, 2)) * 3)
    probabilities = dropout_probabilities(module, data.x, 8, seed=0).permute(1, 0, 2).numpy()
    for initial in ([], [4]):
        chosen = list(initial)
        while len(chosen) < 4:
            rest = [k for k in range(12) if k not in chosen]
            chosen.append(max(rest, key=lambda k: mutual_information(probabilities, [*chosen, k])))
        picked = BatchBALD(draws=8, configurations=10_000).select(
            data, 4, initial=initial, model=module
        )
        assert picked.indices.tolist() == chosen


def test_long_batches_do_not_underflow():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 3))
    data = Dataset(np.random.default_rng(0).normal(size=(120, 2)) * 3)
    picked = BatchBALD(draws=8, configurations=50).select(data, 100, model=module)
    assert np.isfinite(picked.objectives).all()
    assert len(np.unique(picked.indices)) == 100
    refuses(r"no nn\.Dropout", BatchBALD().select, data, 3, model=nn.Linear(2, 3))


def test_dropout_draws_use_one_mask_for_all_points():
    module = nn.Sequential(nn.Linear(2, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    x = np.repeat(np.ones((1, 2)), 9, axis=0)
    drawn = dropout_probabilities(module, x, 6, seed=0, batch=4)
    assert torch.equal(drawn[:, :8], drawn[:, :1].expand(-1, 8, -1))
    # The last batch has one row, and a product of another length may differ in its last digit.
    torch.testing.assert_close(drawn[:, 8], drawn[:, 0], rtol=1e-6, atol=0)
    assert len(torch.unique(drawn[:, 0], dim=0)) > 1
    images = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(16, 2))
    assert dropout_probabilities(images, np.ones((3, 1, 2, 2)), 2, seed=0).shape == (2, 3, 2)


def test_dropout_masks_whole_channels_per_use_and_keeps_the_mean():
    from bicore.networks.observe import _Masks

    masks = _Masks(0)
    masks.start(0)
    thinned = masks.apply(nn.Dropout(0.25), None, torch.ones(2, 20_000))
    assert thinned.mean().item() == pytest.approx(1, abs=0.02)
    channels = masks.apply(nn.Dropout2d(0.5), None, torch.ones(2, 50, 3, 3))
    assert (channels.flatten(2).std(2) == 0).all()
    layer = nn.Dropout(0.5)
    first = masks.apply(layer, None, torch.ones(2, 30))
    second = masks.apply(layer, None, torch.ones(2, 40))
    assert first.shape != second.shape


# Rules of the bilevel engine.


def problem_data(seed=0, n=25):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    y[:3] = [0, 1, 2]
    return Dataset(rng.normal(size=(n, 4)) + np.eye(4)[y], y)


REDUCIBLE = greedy_selector(kernel="linear", inner_reg=0.3, rule="reducible")


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_glister_scores_are_products_of_gradients_without_an_inverse(loss):
    """The gradient of point k is g_k φ_kᵀ; its score is the product with the mean outer one."""
    data = problem_data()
    outer = problem_data(1, 18)
    selector = greedy_selector(kernel="linear", loss=loss, inner_reg=0.3, rule="first-order")
    picked = selector.select(data, 6, outer=outer).indices.tolist()
    codes = np.eye(3)[data.y]
    outer_codes = np.eye(3)[outer.y]
    centre = codes.mean(0) if loss == "squared" else 0.0
    chosen: list[int] = []
    for place in picked:
        weights = fit(data.x[chosen], codes[chosen] - centre, loss)
        own, other = (
            gradient(x @ weights, y - centre, loss)
            for x, y in ((data.x, codes), (outer.x, outer_codes))
        )
        mean = outer.x.T @ other / len(outer)
        scores = -((data.x @ mean) * own).sum(1)
        rest = [k for k in range(len(data)) if k not in chosen]
        assert scores[place] == pytest.approx(scores[rest].min(), rel=1e-5, abs=1e-7)
        chosen.append(place)


def gradient(prediction, target, loss):
    if loss == "squared":
        return 2 * (prediction - target)
    scaled = np.exp(prediction - prediction.max(1, keepdims=True))
    return scaled / scaled.sum(1, keepdims=True) - target


def fit(x, y, loss, rho=0.3):
    """min Σ ℓ + ρ‖W‖² by closed form or plain gradient descent."""
    if loss == "squared":
        return np.linalg.solve(x.T @ x + rho * np.eye(x.shape[1]), x.T @ y.reshape(-1, 3))
    weights = np.zeros((x.shape[1], 3))
    for _ in range(4000 if len(x) else 0):
        slope = x.T @ gradient(x @ weights, y, loss) + 2 * rho * weights
        weights -= 0.5 / (np.linalg.norm(x, 2) ** 2 + 2 * rho) * slope
    return weights


@pytest.mark.parametrize("weighted", [False, True])
def test_reducible_loss_prefers_rows_not_yet_learned(weighted):
    """The loss of a model of the coreset less that of a model of all data, with their weights."""
    data = problem_data(2)
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.2, 4, len(data)) if weighted else np.ones(len(data))
    codes = np.eye(3)[data.y]
    codes = codes - weight @ codes / weight.sum()
    root = np.sqrt(weight)[:, None]
    whole = np.square(data.x @ fit(root * data.x, root * codes, "squared") - codes).sum(1)
    chosen: list[int] = []
    for place in REDUCIBLE.select(Dataset(data.x, data.y, weight), 1 if weighted else 6).indices:
        losses = np.square(data.x @ fit(data.x[chosen], codes[chosen], "squared") - codes).sum(1)
        rest = [k for k in range(len(data)) if k not in chosen]
        assert (losses - whole)[place] == pytest.approx((losses - whole)[rest].max())
        chosen.append(place)


# Names.


def test_every_method_has_a_name_and_options_go_over_its_defaults():
    names = {name: as_selector(name).name for name in METHODS}
    assert len(set(names.values())) >= len(names) - 5  # the six bilevel variants share a name
    assert names["glister"] == "glister"
    assert names["k-center-gradients"] == "k-center over gradients"
    assert build_selector("craig", per_class=False).per_class is False
    refuses("Did you mean 'k-center-features'", as_selector, "k-center-feature")
    refuses("method='uniform' has no options", build_selector, "uniform", kernel="rbf")
    refuses("leave kernel out", build_selector, Uniform(), kernel="rbf")


def stop_at_four(step):
    if step.done == 4:
        raise KeyboardInterrupt


STOPPED = Context(runtime=Runtime(progress=stop_at_four))
LIMITED = Context(runtime=Runtime(max_seconds=1e-9))


@pytest.mark.usefixtures("long_grace")
@pytest.mark.parametrize(
    ("context", "size", "status"),
    [(STOPPED, 4, Status.INTERRUPTED), (LIMITED, 1, Status.OUT_OF_TIME)],
)
def test_interrupting_and_time_limits_keep_a_prefix(context, size, status):
    data = Dataset(np.random.default_rng(0).normal(size=(50, 3)))
    part = KCenter().select(data, 20, **context.keywords)
    assert (len(part), part.status) == (size, status)
    assert f"after {size} of 20 rows" in part.message


@pytest.mark.usefixtures("long_grace")
def test_unrefined_set_is_accepted_and_interrupt_is_raised_again():
    """A memory takes the first, as it has all its points, and passes the user's interrupt on."""
    data = Dataset(np.random.default_rng(0).normal(size=(50, 3)))
    late = InducingPoints("features").select(data, 5, **LIMITED.keywords)
    assert (len(late), late.status) == (5, Status.NOT_REFINED)
    assert require_complete(late) is late
    stopped = InducingPoints("features").select(data, 5, **STOPPED.keywords)
    assert stopped.status is Status.INTERRUPTED
    with pytest.raises(KeyboardInterrupt):
        require_complete(stopped)
    short = KCenter().select(data, 5, **LIMITED.keywords)
    refuses(r"stopped by max_seconds after 1 of 5 .* unchanged", require_complete, short)


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_weights_from_inner_products_are_the_nonnegative_least_squares(seed, dependent):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(12, 7))
    if dependent:
        matrix[:, 3] = matrix[:, 5]
    right = rng.normal(size=12)
    found = fit_nonnegative(matrix.T @ matrix, matrix.T @ right)
    best, error = nnls(matrix, right)
    assert (found >= 0).all()
    np.testing.assert_allclose(matrix @ found, matrix @ best, atol=1e-6)
    assert np.linalg.norm(matrix @ found - right) == pytest.approx(error)
