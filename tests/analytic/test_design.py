"""Experimental design: the paper's propositions, against expectations, differences, all subsets."""

from itertools import combinations

import numpy as np
import pytest
import torch

from bicore import Dataset, MemoryLimitError, Runtime
from bicore.kernels import RBF, Linear
from bicore.methods import ADesign, VDesign
from bicore.methods.baselines.design import relaxed_objective
from bicore.numerics.descent import cap_weights
from tests.helpers import refuses

#: σ²
NOISE = 0.3
#: λ
PRIOR = 0.7


def points(n=12, p=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def bayesian_v(x, chosen, noise=NOISE, prior=PRIOR):
    """The paper's G(w) = tr(X(XᵀD(w)X/σ² + λI)⁻¹Xᵀ)/2n."""
    picked = x[list(chosen)]
    inverse = np.linalg.inv(picked.T @ picked / noise + prior * np.eye(x.shape[1]))
    return np.trace(x @ inverse @ x.T) / (2 * len(x))


def bayesian_a(x, chosen, noise=NOISE, prior=PRIOR):
    picked = x[list(chosen)]
    return np.trace(np.linalg.inv(picked.T @ picked / noise + prior * np.eye(x.shape[1]))) / 2


def test_v_design_is_the_papers_objective_for_features_and_for_the_same_kernel():
    x = points()
    found = [
        design.select(Dataset(x), 6)
        for design in (VDesign(Linear() * (1 / PRIOR), NOISE), VDesign(noise=NOISE * PRIOR))
    ]
    for number in range(1, 7):
        assert found[0].objectives[number - 1] == pytest.approx(
            bayesian_v(x, found[0].indices[:number]), rel=1e-10
        )
    assert found[0].indices.tolist() == found[1].indices.tolist()  # only σ²λ matters for the choice


def test_every_step_takes_the_point_of_the_largest_exact_gain():
    x = points()
    chosen = []
    coreset = VDesign(Linear() * (1 / PRIOR), NOISE).select(Dataset(x), 8)
    other = ADesign(noise=NOISE).select(Dataset(x), 8)
    for picks, value in (
        (coreset.indices, bayesian_v),
        (other.indices, lambda x, s: bayesian_a(x, s, prior=1.0)),
    ):
        chosen = []
        for pick in picks.tolist():
            values = [value(x, [*chosen, k]) if k not in chosen else np.inf for k in range(len(x))]
            assert pick == int(np.argmin(values))
            chosen.append(pick)


def test_the_best_point_is_found_when_the_noise_is_far_below_the_variances():
    x, noise, chosen = points(24, 6), 1e-8, []
    for pick in VDesign(noise=noise, precision=1.0).select(Dataset(x), 12).indices.tolist():
        left = [k for k in range(len(x)) if k not in chosen]
        values = [bayesian_v(x, [*chosen, k], noise, 1.0) for k in left]
        assert values[left.index(pick)] == pytest.approx(min(values), rel=1e-6)
        chosen.append(pick)


def test_in_a_kernel_it_is_the_posterior_variance_and_data_weights_count():
    x = points(20)
    weights = np.random.default_rng(1).uniform(0.5, 2, size=20)
    kernel = RBF(0.5)
    coreset = VDesign(kernel, NOISE).select(Dataset(x, None, weights), 5)
    matrix = kernel(x)
    chosen = coreset.indices
    left = matrix - matrix[:, chosen] @ np.linalg.solve(
        matrix[np.ix_(chosen, chosen)] + NOISE * np.eye(5), matrix[chosen]
    )
    assert coreset.objectives[-1] == pytest.approx(
        0.5 * weights @ np.diag(left) / weights.sum(), rel=1e-10
    )
    assert coreset.details["noise"] == NOISE


def test_a_design_in_a_kernel_is_a_design_of_its_square_root():
    x = points(9, 4)
    features, kernel = (
        ADesign(over, NOISE).select(Dataset(x), 5)
        for over in ("features", Linear() + RBF(1e-9) * 1e-12)
    )
    assert features.indices.tolist() == kernel.indices.tolist()
    assert features.objectives[-1] == pytest.approx(bayesian_a(x, features.indices, prior=1.0))
    decrease = features.objectives[0] - features.objectives[-1]
    assert kernel.objectives[0] - kernel.objectives[-1] == pytest.approx(decrease, rel=1e-4)


def moments(x):
    features = torch.from_numpy(x / PRIOR**0.5)
    return features, features.T @ features / len(x)


def hessian_of(features, moment, weights):
    """Lemma 8: σ² (ΦF⁻¹Φᵀ) ∘ (ΦF⁻¹MF⁻¹Φᵀ), entry by entry; both factors are semi-definite."""
    identity = torch.eye(features.shape[1]).double()
    inverse = torch.linalg.inv(features.T @ (weights[:, None] * features) + NOISE * identity)
    first = features @ inverse @ features.T
    second = features @ inverse @ moment @ inverse @ features.T
    return NOISE * first * second


def test_gradient_and_hessian_are_those_of_lemma_8():
    features, moment = moments(points(7))
    weights = torch.rand(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    step = 1e-5
    identity = torch.eye(7, dtype=torch.float64)
    gradient = relaxed_objective(features, moment, NOISE, weights)[1]
    hessian = hessian_of(features, moment, weights)
    for k in range(7):
        up, down = (
            relaxed_objective(features, moment, NOISE, weights + sign * step * identity[k])
            for sign in (1, -1)
        )
        assert float(gradient[k]) == pytest.approx((up[0] - down[0]) / (2 * step), rel=1e-6)
        torch.testing.assert_close(hessian[k], (up[1] - down[1]) / (2 * step), rtol=1e-5, atol=1e-9)
    assert float(torch.linalg.eigvalsh(hessian).min()) > -1e-12
    assert relaxed_objective(features, moment, NOISE, (weights > 0.5).double())[0] == pytest.approx(
        bayesian_v(points(7), torch.nonzero(weights > 0.5).flatten().tolist())
    )


def test_the_submodularity_ratio_and_the_guarantee_hold():
    x = points(9, 3, seed=2)
    coreset = VDesign(Linear() * (1 / PRIOR), NOISE).select(Dataset(x), 3)
    ratio = 1 / (1 + (x**2).sum(1).max() / (NOISE * PRIOR))
    assert coreset.details["submodularity_ratio"] == pytest.approx(ratio)
    assert coreset.details["guarantee"] == pytest.approx(1 - np.exp(-ratio))
    empty = bayesian_v(x, [])
    best = max(empty - bayesian_v(x, chosen) for chosen in combinations(range(9), 3))
    assert empty - coreset.objectives[-1] >= coreset.details["guarantee"] * best


def test_the_certificate_bounds_every_choice_from_below():
    x = points(11, 3, seed=6)
    for design, value in (
        (VDesign(noise=NOISE, certify=True), lambda s: bayesian_v(x, s, prior=1.0)),
        (ADesign(noise=NOISE, certify=True), lambda s: bayesian_a(x, s, prior=1.0)),
        (VDesign(Linear() + RBF(0.3), NOISE, certify=True), None),
    ):
        coreset = design.select(Dataset(x), 4)
        bound = coreset.details["lower_bound"]
        assert 0 < bound <= coreset.details["relaxed_objective"] <= coreset.objectives[-1]
        assert coreset.details["relaxed_objective"] <= (1 + 1e-3) * bound
        assert coreset.details["gap"] == pytest.approx(coreset.objectives[-1] / bound - 1)
        relaxed = np.array(coreset.details["relaxed_weights"])
        assert relaxed.sum() == pytest.approx(4)
        assert 0 <= relaxed.min() <= relaxed.max() <= 1
        if value is not None and isinstance(design, VDesign):
            matrix = np.linalg.inv(x.T @ (relaxed[:, None] * x) / NOISE + np.eye(3))
            assert np.trace(x @ matrix @ x.T) / (2 * 11) == pytest.approx(
                coreset.details["relaxed_objective"]
            )
        if value is not None:
            assert bound <= min(value(chosen) for chosen in combinations(range(11), 4))


def test_certificate_is_exact_for_constant_rows():
    coreset = VDesign(noise=NOISE, certify=True).select(Dataset(np.zeros((5, 2))), 2)
    assert coreset.details["lower_bound"] == coreset.objectives[-1] == 0
    assert coreset.details["gap"] == 0


def test_the_projection_is_the_nearest_point_of_the_bounded_set():
    weights = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for largest in (1.0, 2.0, float("inf")):
        found = cap_weights(weights, 3, largest)
        assert float(found.sum()) == pytest.approx(3)
        assert 0 <= float(found.min()) <= float(found.max()) <= largest
        rng = np.random.default_rng(0)
        for _ in range(100):
            other = cap_weights(torch.from_numpy(rng.normal(size=9)) * 2, 3, largest)
            assert float((found - weights).norm()) <= float((other - weights).norm()) + 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_projection_leaves_no_dust(dtype):
    weights = torch.zeros(1000, dtype=dtype)
    weights[::10] = 2
    found = cap_weights(weights, 100)
    assert int((found > 0).sum()) == 100
    torch.testing.assert_close(found, (weights > 0).to(dtype))


def test_bad_input_is_refused():
    refuses("noise", VDesign, noise=-1)
    refuses("noise='auto'", VDesign().select, Dataset(np.zeros((4, 2))), 2)
    refuses("no outer objective", VDesign().select, Dataset(points()), 2, outer=Dataset(points()))
    with pytest.raises(MemoryLimitError, match="needs the 400 × 400 matrix"):
        ADesign(RBF(0.5)).select(Dataset(points(400)), 2, runtime=Runtime(memory="400KB"))


@pytest.mark.parametrize("design", [VDesign, ADesign])
def test_a_design_without_a_prior_is_the_frequentist_one(design):
    """Propositions 2 and 3: ½σ² tr(M (XᵀD(w)X)⁻¹), M = XᵀX/n or the identity."""
    x = points(20)
    moment = x.T @ x / 20 if design is VDesign else np.eye(3)

    def value(chosen):
        return NOISE / 2 * np.trace(moment @ np.linalg.inv(x[chosen].T @ x[chosen]))

    found = design(noise=NOISE, precision=0).select(Dataset(x), 6)
    order = found.indices.tolist()
    assert np.isinf(found.objectives[:2]).all()
    for count in range(3, 7):
        assert found.objectives[count - 1] == pytest.approx(value(order[:count]), rel=1e-9)
    others = [value([*order[:5], k]) for k in range(20) if k not in order[:5]]
    assert found.objective == pytest.approx(min(others), rel=1e-9)
    for wrong, size in ((x, 2), (np.c_[x, x[:, 0]], 6)):
        refuses("singular", design(precision=0).select, Dataset(wrong), size)
    refuses("precision", design, precision=0, certify=True)


@pytest.mark.parametrize("weighting", ["uniform", "pursuit"])
def test_an_interrupt_keeps_the_objectives_and_weights_so_far(weighting):
    def third(step):
        if step.done == 3:
            raise KeyboardInterrupt

    design = VDesign(noise=NOISE, precision=PRIOR, weighting=weighting)
    options = ({}, {"runtime": Runtime(progress=third)})
    whole, part = (design.select(Dataset(points(30, 4)), 6, **one) for one in options)
    assert part.objectives[:2].tolist() == whole.objectives[:2].tolist()
    assert len(part) == len(part.weights) == 3
    assert len(VDesign(noise=NOISE, weighting=weighting).select(Dataset(np.zeros((5, 2))), 3)) > 0


def test_pursuit_and_frank_wolfe_keep_the_rate_of_theorem_1():
    """G(w_t) − G* ≤ (8L + 4ε₁)/(t + 3), with L that of the shares of the budget."""
    x, size = points(30, 4), 25
    given = Dataset(x)
    best = VDesign(noise=NOISE, precision=PRIOR, weighting="pursuit").select(given, size)
    assert best.objective == pytest.approx(best.info["lower_bound"], rel=1e-5)

    def hessian_at_zero():
        rows = torch.from_numpy(x) * np.sqrt(size)
        moment = rows.T @ rows / size / len(x)

        def value(shares):
            matrix = rows.T @ (shares[:, None] * rows) / NOISE + PRIOR * torch.eye(4).double()
            return 0.5 * torch.trace(torch.linalg.inv(matrix) @ moment)

        return torch.func.hessian(value)(torch.zeros(30, dtype=torch.float64))

    smooth = float(torch.linalg.eigvalsh(hessian_at_zero()).max())
    for weighting in ("pursuit", "frank-wolfe"):
        found = VDesign(noise=NOISE, precision=PRIOR, weighting=weighting).select(given, size)
        gaps = np.array(found.info["path"]) - best.info["lower_bound"]
        steps = np.arange(1, len(gaps) + 1)
        assert (gaps >= -1e-9).all()
        assert (gaps <= (8 * smooth + 4 * gaps[0]) / (steps + 3)).all()
        picked = x[found.indices]
        matrix = picked.T @ (found.weights[:, None] * picked) / NOISE + PRIOR * np.eye(4)
        value = np.trace(x @ np.linalg.inv(matrix) @ x.T) / 60
        assert found.objective == pytest.approx(value, rel=1e-9)
        assert found.weights.sum() == pytest.approx(size)


def test_summaries_and_v_design_differ_by_half_the_noise_as_data_grow():
    """Propositions 4 and 6: g − g_V − σ²/2 = −σ² tr(H_S)/n, where H_S is the hat matrix."""
    chosen, gaps = list(range(5)), []
    for n in (50, 500):
        x = points(n)
        picked = x[chosen]
        fit = np.linalg.solve(picked.T @ picked + PRIOR * NOISE * np.eye(3), picked.T)
        shrunk = x @ (fit @ picked - np.eye(3))
        variance = (NOISE * np.square(x @ fit).sum() + np.square(shrunk).sum() / PRIOR) / (2 * n)
        design = VDesign(noise=NOISE, precision=PRIOR).select(Dataset(x), 5, initial=chosen)
        assert design.objective == pytest.approx(variance, rel=1e-9)
        summary = variance + NOISE / 2 - NOISE * np.trace(picked @ fit) / n
        gaps.append(summary - variance - NOISE / 2)
    assert gaps[1] == pytest.approx(gaps[0] / 10, rel=1e-9)
