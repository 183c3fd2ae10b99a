"""Bilevel selection on a module against closed forms, refits, dense solves and kernels."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad

from bicore import Dataset, InputError, NumericalError
from bicore.bilevel import Adam
from bicore.kernels import Linear
from bicore.methods import NetworkSelector
from bicore.methods.network import CRITERIA, _Fitted
from bicore.methods.registry import greedy_selector
from bicore.networks import ConjugateGradients, QuasiNewton, Stochastic, Training
from bicore.networks.problem import (
    FlatModule,
    InverseHessian,
    Loaded,
    NetworkProblem,
    NeumannSeries,
    Rows,
)
from bicore.runtime.context import Context
from tests.helpers import blobs, line, refuses

RHO = 0.2


def linear(inputs, outputs, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs, bias=False).double()


def rows(given, chosen=None):
    index = np.arange(len(given)) if chosen is None else np.array(chosen)
    y = torch.from_numpy(given.y[index])
    weight = torch.ones(len(index), dtype=torch.float64) / (len(index) if chosen is None else 1)
    return Rows(torch.from_numpy(given.x[index]), y, weight)


def test_scores_of_least_squares_are_the_closed_form():
    given = line(20, targets=2, features=3)
    chosen = [1, 4, 7, 12]
    problem = NetworkProblem(FlatModule(linear(3, 2)), CRITERIA["squared"], RHO)
    theta = QuasiNewton().fit(problem, rows(given, chosen), problem.module.start, 0)
    x = given.x
    y = given.y
    picked = given.x[chosen]
    aims = given.y[chosen]
    gram = picked.T @ picked + RHO * np.eye(3)
    exact = np.linalg.solve(gram, picked.T @ aims)
    np.testing.assert_allclose(theta.reshape(2, 3).T, exact, atol=1e-7)
    residual = x @ exact - y
    direction = np.linalg.solve(2 * gram, 2 * x.T @ residual / 20)
    expected = -(2 * residual * (x @ direction)).sum(1)
    gradient = problem.outer_gradient(theta, rows(given))
    u = ConjugateGradients().solve(
        lambda v, step: problem.hessian_product(theta, rows(given, chosen), v), gradient
    )
    np.testing.assert_allclose(
        -problem.directional_slopes(theta, rows(given), u), expected, rtol=1e-5, atol=1e-9
    )


def test_scores_of_a_logistic_model_are_derivatives_of_refits():
    given = blobs(18, classes=3, features=3)
    chosen = [0, 1, 2, 9]
    problem = NetworkProblem(FlatModule(linear(3, 3)), CRITERIA["cross-entropy"], RHO)
    theta = QuasiNewton().fit(problem, rows(given, chosen), problem.module.start, 0)
    gradient = problem.outer_gradient(theta, rows(given))
    u = ConjugateGradients().solve(
        lambda v, step: problem.hessian_product(theta, rows(given, chosen), v), gradient
    )
    scores = -problem.directional_slopes(theta, rows(given), u)
    for k in (3, 5, 11):
        values = []
        for weight in (1e-2, -1e-2):
            some = rows(given, [*chosen, k])
            some.weight[-1] = weight
            values.append(
                problem.outer_value(QuasiNewton().fit(problem, some, theta, 0), rows(given))
            )
        assert float(scores[k]) == pytest.approx((values[0] - values[1]) / 2e-2, rel=1e-3, abs=1e-5)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


@pytest.mark.slow
def test_hessian_products_and_both_inverses_are_those_of_the_dense_matrix():
    given = blobs(12, classes=3, features=3)
    problem = NetworkProblem(FlatModule(network()), CRITERIA["cross-entropy"], RHO)
    some = rows(given, range(8))
    theta = QuasiNewton(50).fit(problem, some, problem.module.start, 0)
    dense = torch.autograd.functional.hessian(lambda point: problem.inner(point, some), theta)
    probe = torch.randn(len(theta), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(problem.hessian_product(theta, some, probe), dense @ probe)
    small = NetworkProblem(
        FlatModule(linear(3, 3)), CRITERIA["cross-entropy"], RHO, gauss_newton=True
    )
    whole = NetworkProblem(FlatModule(linear(3, 3)), CRITERIA["cross-entropy"], RHO)
    point = small.module.start
    torch.testing.assert_close(  # outputs linear in θ: nothing is left out
        small.hessian_product(point, some, point), whole.hessian_product(point, some, point)
    )
    halved = NetworkProblem(
        FlatModule(network()), CRITERIA["cross-entropy"], RHO, gauss_newton=True
    )
    assert not torch.allclose(halved.hessian_product(theta, some, probe), dense @ probe)
    assert float(probe @ halved.hessian_product(theta, some, probe)) > 0
    gradient = problem.outer_gradient(theta, rows(given))

    def product(direction, step):
        return problem.hessian_product(theta, some, direction)

    shifted = dense + 0.3 * torch.eye(len(theta), dtype=torch.float64)
    exact = torch.linalg.solve(shifted, gradient)
    torch.testing.assert_close(
        ConjugateGradients(200, 0.3).solve(product, gradient), exact, rtol=1e-5, atol=1e-8
    )
    rate = 1.0 / float(torch.linalg.eigvalsh(shifted).max())
    torch.testing.assert_close(
        NeumannSeries(400, rate, 0.3).solve(product, gradient), exact, rtol=1e-4, atol=1e-7
    )
    with pytest.raises(NumericalError, match="Neumann series diverges"):
        NeumannSeries(400, 20 * rate).solve(product, gradient)
    with pytest.raises(NumericalError, match="not positive definite"):
        ConjugateGradients().solve(lambda direction, step: -direction, gradient)


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_a_linear_module_chooses_what_the_kernel_engine_chooses(loss):
    if loss == "squared":
        found = line(40, targets=2, features=4)
        given = Dataset(found.x, found.y - found.y.mean(0))  # the kernel engine centres targets
    else:
        given = blobs(40, classes=3, features=4)
    module = linear(4, 2 if loss == "squared" else 3)
    before = module.weight.detach().clone()
    direct = NetworkSelector(criterion=loss, inner_reg=RHO).select(
        given, 7, initial=[5], model=module
    )
    kernel = greedy_selector(kernel=Linear(), loss=loss, inner_reg=RHO).select(
        given, 7, initial=[5]
    )
    assert direct.indices.tolist() == kernel.indices.tolist()
    np.testing.assert_allclose(direct.objectives, kernel.objectives, rtol=1e-5)
    assert torch.equal(before, module.weight)


@pytest.mark.slow
def test_a_network_is_chosen_for_by_either_training_and_mini_batches():
    given = blobs(40, classes=3, features=3)
    scores = {}
    for name, options in {
        "quasi-newton": {},
        "stochastic": {"training": Stochastic(20, 4, 0.02), "curvature": "gauss-newton"},
        "mini-batches": {
            "training": QuasiNewton(30),
            "inverse": NeumannSeries(50, 0.02, damping=1.0, mini_batch=3),
            "candidates": 15,
        },
        "one mini-batch a solve": {
            "training": QuasiNewton(30),
            "inverse": ConjugateGradients(30, mini_batch=3),
            "curvature": "gauss-newton",
        },
    }.items():
        coreset = NetworkSelector(inner_reg=0.05, **options).select(
            given, 6, random_state=1, model=network()
        )
        assert len(set(coreset.indices.tolist())) == 6
        scores[name] = coreset.objectives[-1]
    start = NetworkProblem(FlatModule(network()), CRITERIA["cross-entropy"], 0.05)
    assert max(scores.values()) < start.outer_value(start.module.start, rows(given))


@pytest.mark.slow
def test_full_size_mini_batch_equals_the_coreset():
    given = blobs(30, classes=3, features=3)
    module = network()
    whole, drawn, few = (
        NetworkSelector(
            inner_reg=0.05, inverse=ConjugateGradients(30, 1.0, mini_batch=size)
        ).select(given, 5, model=module)
        for size in (None, 9, 2)
    )
    assert whole.indices.tolist() == drawn.indices.tolist() != few.indices.tolist()


def test_custom_inverse_hessian_gets_the_coreset_or_its_batch():
    class Identity(InverseHessian):
        def __init__(self):
            self.products = []

        def solve(self, product, gradient):
            self.products.append(product(gradient, 0))
            return gradient

    class Few(Identity):
        mini_batch = 2

    given = blobs(30, classes=3, features=3)
    whole = Identity()
    few = Few()
    for inverse in (whole, few):
        selector = NetworkSelector(inner_reg=0.05, training=QuasiNewton(5), inverse=inverse)
        selector.select(given, 4, model=linear(3, 3))
    same = [torch.equal(*pair) for pair in zip(whole.products, few.products, strict=True)]
    assert same == [True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"candidates": 12}])
def test_a_loader_brings_the_same_points_as_arrays_and_may_transform_them(options):
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    given = blobs(40, classes=3, features=3)
    module = linear(3, 3)
    selector = NetworkSelector(inner_reg=RHO, **options)
    plain = selector.select(given, 6, initial=[4], model=module)
    pairs = TensorDataset(torch.from_numpy(given.x), torch.from_numpy(given.y))
    loader = DataLoader(pairs, batch_size=7)
    loaded = selector.select_from(loader, 6, initial=[4], model=module)
    assert loaded.indices.tolist() == plain.indices.tolist()
    np.testing.assert_allclose(loaded.objectives, plain.objectives, rtol=1e-8)
    doubled = DataLoader(
        pairs,
        batch_size=7,
        collate_fn=lambda items: [
            2 * torch.stack([x for x, _ in items]),
            torch.stack([y for _, y in items]),
        ],
    )
    twice = selector.select(Dataset(2 * given.x, given.y), 6, initial=[4], model=module)
    assert (
        selector.select_from(doubled, 6, initial=[4], model=module).indices.tolist()
        == twice.indices.tolist()
    )
    for same in (
        pairs,
        DataLoader(pairs, batch_size=7, shuffle=True),
        DataLoader(pairs, batch_size=7, drop_last=True),
    ):
        found = selector.select_from(same, 6, initial=[4], model=module)
        assert found.indices.tolist() == plain.indices.tolist()
    drawn = BatchSampler(RandomSampler(pairs), 7, False)
    for wrong in (
        DataLoader(pairs, batch_sampler=drawn),
        DataLoader(pairs, batch_size=None),
        [1, 2],
    ):
        refuses("loader", selector.select_from, wrong, 2, model=module)
    words = [
        (torch.from_numpy(row), "abc"[label]) for row, label in zip(given.x, given.y, strict=True)
    ]
    named = selector.select_from(
        DataLoader(words, batch_size=7), 6, initial=[4], model=module, model_classes=["a", "b", "c"]
    )
    assert named.indices.tolist() == plain.indices.tolist()
    squared = NetworkSelector(criterion="squared", inner_reg=RHO).select(given, 4, model=module)
    assert len(squared) == 4  # classes as one-hot targets
    refuses("loader", selector.select_from, DataLoader(torch.zeros(5, 3)), 2, model=module)


def test_bad_input_is_refused_with_a_message():
    given = blobs(20, classes=3, features=3)
    normalised = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"layer '1' normalises over the batch.*model.eval"):
        NetworkSelector().select(given, 2, model=normalised)
    assert len(NetworkSelector().select(given, 2, model=normalised.eval())) == 2
    refuses("needs a network", NetworkSelector().select, given, 2)
    refuses("needs labels", NetworkSelector().select, Dataset(given.x), 2, model=network())
    with pytest.raises(InputError, match="criterion"):
        NetworkSelector(criterion=nn.CrossEntropyLoss()).select(given, 2, model=network())
    refuses("criterion='mse'", NetworkSelector, criterion="mse")
    refuses("inner_reg", NetworkSelector, inner_reg=0)
    frozen = network().requires_grad_(False)
    refuses("no parameter to train", NetworkSelector().select, given, 2, model=frozen)
    with pytest.raises(InputError, match="3 outputs and y 2 targets"):
        NetworkSelector(criterion="squared").select(
            line(20, targets=2, features=3), 2, model=network()
        )


class Exact(Training):
    """L-BFGS, and then Newton steps with the whole Hessian."""

    def fit(self, problem, rows, start, seed):
        theta = QuasiNewton().fit(problem, rows, start, seed)
        for _ in range(4):
            hessian = torch.func.hessian(problem.inner)(theta, rows)
            theta = theta - torch.linalg.solve(hessian, grad(problem.inner)(theta, rows))
        return theta


def test_learnt_weights_and_terms_have_the_derivative_of_refits():
    """dG/dw with ∂g/∂w, of chosen and other points, on another outer set, by central differences."""
    given, outer = blobs(12, classes=3, features=3), blobs(9, classes=3, features=3, seed=5)
    selector = NetworkSelector(
        inner_reg=0.1,
        training=Exact(),
        inverse=ConjugateGradients(500, tolerance=1e-12),
        inner_term=lambda theta, w: 0.02 * w.square().sum() * theta.square().sum(),
        outer_term=lambda theta, w: 0.1 * w[4] * w.sum() + 0.3 * w[2] * theta.square().sum(),
    )
    request = selector._request(given, 3, outer, (), 0, Context(network()))
    state = _Fitted(selector, selector._job(request))
    for place in (2, 7, 4):
        state.add(place)
    state.reweigh(torch.tensor([0.5, 1.5, 0.0], dtype=torch.float64))
    scores, start, step = state.scores(np.array([2, 7, 4])), state.weights, 1e-4
    np.testing.assert_allclose(state.weight_gradient(), scores, rtol=1e-10)
    for number, score in enumerate(scores):
        values = []
        for sign in (1, -1):
            moved = start.clone()
            moved[number] += sign * step
            state.reweigh(moved)
            values.append(state.objective)
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(score, rel=1e-6)


def test_a_network_learns_weights_on_an_outer_set_and_without_labels():
    given = Dataset(blobs(12, classes=3, features=3).x)
    torch.manual_seed(0)
    coder = nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 3)).double()
    facts = {"outer": Dataset(given.x[::2]), "context": Context(coder)}

    def select(weights, initial=()):
        how = {"criterion": "squared", "inner_reg": 0.1, "training": QuasiNewton(20)}
        how |= {"optimiser": Adam(0.1, 2, 3), "curvature": "gauss-newton", "candidates": 3}
        selector = NetworkSelector(**how, weighting=weights)
        return selector.select(given, 2, initial=initial, **facts)

    plain = select("uniform")
    for weights in ("final", "learned"):
        learnt = select(weights, plain.indices.tolist())
        assert learnt.objective < plain.objective
        assert learnt.weights.min() >= 0
        assert not learnt.binary


def test_a_data_set_that_loses_rows_between_passes_is_refused():
    batches = [{"x": torch.zeros(3, 2)}, {"x": torch.zeros(1, 2)}]
    loaded = Loaded(batches, torch.zeros(5), torch.ones(5), torch.zeros(1))
    refuses("4 rows instead of 5", list, loaded.batches())
    assert len(list(Loaded(batches, torch.zeros(4), torch.ones(4), torch.zeros(1)).batches())) == 2
