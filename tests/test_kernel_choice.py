"""kernel="auto": the kernel with the smallest held-out error, in any order of rows, at any size."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bicore import BilevelSelector, Dataset, InputError, MergeReduce, estimate, select
from bicore.bilevel import kernel_choice
from bicore.bilevel.kernel_choice import (
    COSINE,
    FOR_PART,
    MODELS,
    ON_STANDARDISED,
    AutomaticKernel,
    Chosen,
    Trial,
    choice_of,
    choose_kernel,
    compare_kernels,
    draw_rows,
)
from bicore.bilevel.regularisation import EXPONENTS
from bicore.data import read_targets
from bicore.kernels import Linear, Normalised
from bicore.kernels.classical import Exponential
from bicore.methods.registry import greedy_selector
from bicore.sources.parts import ArrayShards
from tests.helpers import blobs, refuses

AUTO = greedy_selector(kernel="auto", inner_reg=0.1)


def scaled_columns(n=300, seed=0):
    """Classes by one column; another column is noise in large units."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return Dataset(np.stack([y + 0.1 * rng.normal(size=n), 1e4 * rng.normal(size=n)], 1), y)


def directions(n=400, columns=150, seed=0):
    """Classes by the direction of a long row, as embeddings have them."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    return Dataset(rng.normal(size=(4, columns))[y] + 2 * rng.normal(size=(n, columns)), y)


def chosen_name(data, size=20, selector=AUTO):
    return choice_of(selector.resolve_defaults(data, size).kernel).name


def test_columns_of_different_units_are_standardised():
    assert (
        chosen_name(scaled_columns())
        == "exponential with gamma 2/median distance" + ON_STANDARDISED
    )


@pytest.mark.parametrize("model", sorted(MODELS))
def test_the_model_to_be_trained_chooses_the_kernel(model):
    data = scaled_columns()
    kernel = select(data.x, data.y, 5, model=model).details["kernel_trials"]["name"]
    bases = MODELS[model] or ("exponential with gamma 2/median distance",)
    assert kernel == bases[0] + ON_STANDARDISED
    kernel = AutomaticKernel(model=model)
    wide = kernel.candidates(2, kernel_choice.WIDE, 5)
    assert (COSINE in wide) == (model in ("linear", "network"))
    if model != "neighbours":
        assert kernel.candidates(0, 3, 5)[1] == wide[1] == "exponential"
    many = kernel.candidates(2, kernel_choice.WIDE, 2 * kernel_choice.MANY_PER_CLASS)
    assert (many != wide) == (model == "any")
    large = replace(kernel, large=True).candidates(2, kernel_choice.WIDE, 5)
    assert (COSINE in large) == (model != "neighbours")


def test_a_linear_model_gets_a_linear_kernel_where_the_classes_are_rings():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    x *= np.array([1.0, 3.0])[np.arange(600) % 2, None] / np.linalg.norm(x, axis=1, keepdims=True)
    for model, linear in (("linear", True), ("any", False)):
        name = select(x, np.arange(600) % 2, 50, model=model).details["kernel_trials"]["name"]
        assert name.startswith("linear") == linear


def test_two_rows_of_imbalanced_heavy_tailed_classes_suit_a_linear_model():
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.03).astype(int)
    x = rng.standard_t(3, (2000, 11)) + y[:, None] * rng.normal(size=11)
    rows = select(x[:300], y[:300], 2, model="linear").indices
    assert LogisticRegression().fit(x[rows], y[rows]).score(x[300:], y[300:]) > 0.9


@pytest.mark.parametrize(
    ("columns", "targets", "class_means", "name"),
    [
        (20, np.arange(60) % 2, False, "exponential"),
        (20, np.arange(60) % 2, True, "linear"),
        (kernel_choice.WIDE, np.arange(60) % 2, False, "linear"),
        (20, np.arange(60.0), False, "linear"),
    ],
)
def test_linear_kernels_are_not_for_narrow_classes(
    monkeypatch, columns, targets, class_means, name
):
    trials = [Trial("linear", 0.9), Trial("exponential", 1.0)]
    monkeypatch.setattr(kernel_choice, "compare_kernels", lambda *_: list(trials))
    automatic = AutomaticKernel(model="linear", class_means=class_means)
    data = Dataset(np.eye(60, columns), targets)
    chosen = choose_kernel(automatic, data, read_targets(data.y), 30)
    assert choice_of(chosen).name == name


@pytest.mark.parametrize(
    "options", [{"model": "boosting"}, {"model": "trees", "kernel": "rbf"}, {"method": "uniform"}]
)
def test_a_model_that_is_unknown_or_not_the_only_choice_is_refused(options):
    data = blobs()
    for call in (select, estimate):
        refuses("model", call, data.x, data.y, 5, **{"model": "trees", **options})


def test_passes_refuse_a_model_because_their_features_are_linear():
    data = blobs()
    source = ArrayShards(data.x, data.y)
    refuses("model", select, source, size=5, passes=True, exact=True, model="trees")
    automatic = select(source, size=5, passes=True, exact=True, kernel=AutomaticKernel())
    assert (
        automatic.indices.tolist()
        == select(source, size=5, passes=True, exact=True).indices.tolist()
    )


def test_columns_of_one_scale_are_left_alone():
    rng = np.random.default_rng(1)
    noise = 0.01 * rng.normal(size=(300, 40))
    y = np.arange(300) % 3
    data = Dataset(np.concatenate([np.eye(3)[y] + 0.1 * rng.normal(size=(300, 3)), noise], 1), y)
    assert chosen_name(data) == "exponential with gamma 2/median distance"


def test_long_rows_are_compared_by_their_directions():
    network = replace(AUTO, kernel=AutomaticKernel(model="network"))
    assert chosen_name(directions(), selector=network) == COSINE
    assert chosen_name(directions(columns=kernel_choice.WIDE - 1), selector=network) != COSINE


def test_errors_are_those_of_ridge_regression_on_held_out_points():
    data = blobs(200)
    drawn = draw_rows(data, read_targets(data.y), 60)
    trials = {trial.name: trial.error for trial in compare_kernels(drawn, ["exponential"])}
    gram = Exponential()(drawn.rows)
    gram = gram + kernel_choice.INTERCEPT * np.diagonal(gram).mean()
    scale = np.diagonal(gram).mean()
    spread = drawn.weights @ (drawn.goals**2).sum(1)
    errors = []
    for exponent in EXPONENTS:
        total = 0.0
        for chosen, rest in zip(drawn.chosen, drawn.rest, strict=True):
            shares = drawn.weights[rest] / drawn.weights[rest].sum() / kernel_choice.SPLITS
            square = gram[np.ix_(chosen, chosen)] + scale * 10.0**exponent * np.eye(len(chosen))
            guesses = gram[np.ix_(rest, chosen)] @ np.linalg.solve(square, drawn.goals[chosen])
            total += shares @ ((guesses - drawn.goals[rest]) ** 2).sum(1)
        errors.append(total / spread)
    assert trials["exponential"] == pytest.approx(min(errors), rel=1e-9)


def test_order_of_rows_and_seed_change_nothing():
    data = blobs(120)
    order = np.random.default_rng(0).permutation(len(data))
    first = AUTO.resolve_defaults(data, 10).kernel.choice
    assert AUTO.resolve_defaults(data[order], 10).kernel.choice == first
    picks = [set(AUTO.select(data, 10, random_state=seed).ids.tolist()) for seed in (0, 7)]
    assert picks[0] == picks[1]


def test_rows_of_weight_zero_play_no_part():
    data = blobs(120)
    wild = np.concatenate([data.x, 1e6 * np.ones((30, data.x.shape[1]))])
    y = np.concatenate([data.y, np.zeros(30, int)])
    weights = np.r_[np.ones(120), np.zeros(30)]
    assert choice_of(AUTO.resolve_defaults(Dataset(wild, y, weights), 10).kernel) == choice_of(
        AUTO.resolve_defaults(data, 10).kernel
    )


def test_a_coreset_keeps_the_kernel_it_was_begun_with():
    data = scaled_columns()
    begun = AUTO.select(data, 5)
    begun.details["kernel_trials"]["name"] = "exponential"
    assert choice_of(AUTO.resolve_defaults(data, 5, begun).kernel).name == "exponential"


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_few_rows_are_no_error(rows):
    data = Dataset(np.arange(2.0 * rows).reshape(rows, 2), np.arange(rows) % 2)
    assert len(AUTO.select(data, 1)) == 1


def test_a_given_kernel_is_left_alone():
    assert greedy_selector(kernel=Linear()).resolve_defaults(blobs(), 5).kernel == Linear()


def test_parts_of_a_kernel_are_chosen_too():
    both = AutomaticKernel() + Linear()
    found = greedy_selector(kernel=both, inner_reg=0.1).resolve_defaults(blobs(), 5).kernel
    assert isinstance(found.first, Chosen)
    assert found.second == Linear()


def test_without_labels_the_error_names_the_kernel():
    with pytest.raises(InputError, match="kernel"):
        AutomaticKernel()(np.zeros((3, 2)))


def test_memories_do_not_compare_kernels():
    memory = MergeReduce(6, replace(AUTO, inner_reg=AUTO.inner_reg), 2)
    memory.update(blobs(40).x, blobs(40).y)
    assert choice_of(AUTO.for_memory().resolve_defaults(blobs(), 5).kernel).name == FOR_PART


def test_the_intercept_is_a_constant_feature():
    data = blobs(60)
    share = 0.5
    kernel = Normalised(Linear())
    rows = torch.from_numpy(data.x)
    constant = share * float(kernel.diag(rows).mean())
    by_option = greedy_selector(kernel, inner_reg=0.1, intercept=share).select(data, 10)
    by_kernel = greedy_selector(
        lambda a, b: kernel.evaluate(a, b) + constant, inner_reg=0.1, intercept=0.0
    ).select(data, 10)
    gram = kernel(data.x)
    by_matrix = greedy_selector("precomputed", inner_reg=0.1, intercept=share).select(
        Dataset(gram, data.y), 10
    )
    assert by_option.indices.tolist() == by_kernel.indices.tolist() == by_matrix.indices.tolist()
    np.testing.assert_allclose(by_option.objectives, by_kernel.objectives, rtol=1e-9)
    np.testing.assert_allclose(by_option.objectives, by_matrix.objectives, rtol=1e-9)


def test_network_kernels_and_other_losses_have_no_intercept():
    data = blobs(60)
    for options in ({"kernel": "ntk"}, {"kernel": "linear", "loss": "cross-entropy"}):
        auto, none = (
            greedy_selector(inner_reg=0.1, intercept=value, **options).select(data, 6)
            for value in ("auto", 0)
        )
        assert auto.indices.tolist() == none.indices.tolist()


@pytest.mark.parametrize("value", [-1.0, float("nan"), "much", True])
def test_a_wrong_intercept_is_refused(value):
    refuses("intercept", greedy_selector, intercept=value)


@pytest.mark.parametrize(
    ("error", "large", "name"),
    [(1.02, True, COSINE), (1.02, False, "exponential"), (1.04, True, "exponential")],
)
def test_for_large_data_a_cosine_that_is_nearly_as_good_wins(monkeypatch, error, large, name):
    trials = [Trial("exponential", 1.0), Trial(COSINE, error)]
    monkeypatch.setattr(kernel_choice, "compare_kernels", lambda *_: list(trials))
    data = Dataset(np.eye(60, 20), np.arange(60) % 2)
    chosen = choose_kernel(AutomaticKernel(large=large), data, read_targets(data.y), 30)
    assert choice_of(chosen).name == name


@pytest.mark.parametrize(
    ("rows", "exact", "cosine"), [(600, False, True), (500, False, False), (600, True, False)]
)
def test_tied_kernels_prefer_all_rows_as_candidates(monkeypatch, few_exact, rows, exact, cosine):
    trials = [Trial("exponential", 1.0), Trial(COSINE, 1.01)]
    monkeypatch.setattr(kernel_choice, "compare_kernels", lambda *_: list(trials))
    data = Dataset(np.random.default_rng(0).normal(size=(rows, 100)), np.arange(rows) % 2)
    chosen = BilevelSelector(exact=exact).resolve_defaults(data, 10)
    assert (choice_of(chosen.kernel).name == COSINE) is cosine
