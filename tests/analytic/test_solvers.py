"""Linear and inner solvers: agreement, reported failures, and the paper's settings."""

import numpy as np
import pytest
import torch

from bicore import ConvergenceError, NumericalError, Runtime
from bicore.bilevel import LBFGS, Cholesky, ConjugateGradient, Newton, PerPoint, Ridge
from bicore.bilevel.solvers import softmax
from bicore.bilevel.solvers.inner import Adaptive, InnerProblem, NewtonSystem
from bicore.losses import Blocks, CrossEntropy, Isotropic, Softmax
from bicore.methods.registry import greedy_selector
from bicore.numerics.linear_algebra import ConjugateIteration, conjugate_gradients
from tests.helpers import blobs, dense_blocks, problem_of, refuses
from tests.marks import few

M = 9
C = 3


def generator():
    return torch.Generator().manual_seed(5)


def system(kind: str, zero: bool = False) -> NewtonSystem:
    root = torch.randn(M, M + 2, dtype=torch.float64, generator=generator())
    weights = torch.linspace(0.0 if zero else 0.2, 2, M, dtype=torch.float64)
    if kind == "isotropic":
        curvature = Isotropic(torch.full((M,), 2.0, dtype=torch.float64)).scale_by(weights)
    elif kind == "softmax":
        p = torch.softmax(torch.randn(M, C, dtype=torch.float64, generator=generator()), 1)
        curvature = Softmax(p, p).scale_by(weights)
    else:
        half = torch.randn(M, C, C, dtype=torch.float64, generator=generator())
        curvature = Blocks(half @ half.transpose(1, 2)).scale_by(weights)
    return NewtonSystem(root @ root.T / M, curvature, 0.4)


def dense_solution(given: NewtonSystem, right: torch.Tensor) -> torch.Tensor:
    """The mC × mC system written out."""
    blocks = dense_blocks(given.curvature, right)
    product = torch.einsum("iab,ij->iajb", blocks, given.gram).reshape(M * C, M * C)
    full = product + given.shift * torch.eye(M * C, dtype=torch.float64)
    return torch.linalg.solve(full, right.reshape(-1)).reshape(M, C)


SOLVERS = [
    Cholesky(),
    ConjugateGradient(tolerance=1e-12),
    ConjugateGradient(precondition=False, tolerance=1e-12),
    ConjugateGradient(iterations=5000, tolerance=1e-13, euclidean=True),
    Adaptive(largest=0, iterative=ConjugateGradient(tolerance=1e-12)),
]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["isotropic", "softmax", "blocks"])
@pytest.mark.parametrize("zero", few([True, False]))
def test_solvers_agree_with_the_dense_system(solver, kind, zero):
    given = system(kind, zero)
    right = torch.randn(M, C, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(
        solver.solve(given, right, 1e-12).z, dense_solution(given, right), rtol=1e-7, atol=1e-8
    )
    expected = dense_solution(given, given.curvature.apply(right))
    torch.testing.assert_close(
        solver.solve_range(given, right, 1e-12).z, expected, rtol=1e-7, atol=1e-8
    )


def test_conjugate_gradients_handle_a_singular_kernel_matrix():
    given = system("softmax")
    given.gram = torch.ones(M, M, dtype=torch.float64)  # rank one: duplicates of one point
    right = torch.randn(M, C, dtype=torch.float64, generator=generator())
    for solver in (
        ConjugateGradient(tolerance=1e-12),
        ConjugateGradient(precondition=False, tolerance=1e-12),
    ):
        torch.testing.assert_close(
            solver.solve(given, right, 1e-12).z, dense_solution(given, right), rtol=1e-6, atol=1e-8
        )


def test_bordered_preconditioner_is_the_fresh_one():
    whole = system("softmax")
    part = NewtonSystem(
        whole.gram[:-1, :-1],
        Softmax(whole.curvature.probabilities[:-1], whole.curvature.weighted[:-1]),
        whole.shift,
    )
    begun = softmax.Preconditioner.fitting(
        None, part.gram, part.curvature.typical(), part.shift, torch.float64
    )
    grown = softmax.Preconditioner.fitting(
        begun, whole.gram, whole.curvature.typical(), whole.shift, torch.float64
    )
    assert grown.age == 1
    fresh = softmax.Preconditioner.fitting(
        None, whole.gram, whole.curvature.typical(), whole.shift, torch.float64
    )
    torch.testing.assert_close(grown.inverse, fresh.inverse)
    residual = torch.randn(M, C, dtype=torch.float64, generator=generator())
    step, gram_step = grown.apply(residual)
    torch.testing.assert_close(gram_step, whole.gram @ step)  # K P r without a product by K


def test_solvers_report_failed_convergence():
    given = system("softmax")
    right = torch.randn(M, C, dtype=torch.float64, generator=generator())
    with pytest.raises(ConvergenceError, match=r"conjugate gradients stopped after 2 iterations"):
        ConjugateGradient(iterations=2, precondition=False).solve(given, right, 1e-10)
    assert (
        ConjugateGradient(iterations=2, precondition=False, lenient=True)
        .solve(given, right, 1e-10)
        .iterations
        == 2
    )


def inner_problem(loss=None, rho: float = 0.1) -> InnerProblem:
    problem = problem_of(
        greedy_selector(kernel="rbf", loss=loss or CrossEntropy(), inner_reg=rho), blobs()
    )
    points = torch.arange(0, 40, 3)
    gram = problem.train.columns(points)[points]
    weights = torch.linspace(0.3, 2, len(points), dtype=torch.float64)
    return InnerProblem(gram, problem.inner_targets[points], weights, rho, problem.inner_loss)


@pytest.mark.parametrize(
    "solver", [Newton(tolerance=1e-10), Newton(ConjugateGradient(), tolerance=1e-10), LBFGS()]
)
def test_inner_solvers_reach_stationarity(solver):
    problem = inner_problem()
    fit = solver.solve(problem, torch.zeros(len(problem.gram), 3, dtype=torch.float64))
    reference = Newton(Cholesky(), tolerance=1e-12).solve(
        problem, torch.zeros(len(problem.gram), 3, dtype=torch.float64)
    )
    torch.testing.assert_close(fit.predictions, reference.predictions, rtol=1e-5, atol=1e-6)
    assert problem.residual(fit.alpha, fit.predictions)[1] < 1e-5


def test_inner_solvers_report_failed_convergence():
    start = torch.zeros(14, 3, dtype=torch.float64)
    with pytest.raises(ConvergenceError, match="inner problem stopped"):
        Newton(iterations=1).solve(inner_problem(rho=1e-4), start)
    with pytest.raises(ConvergenceError, match="inner problem stopped"):
        LBFGS(iterations=2).solve(inner_problem(rho=1e-4), start)
    refuses("squared error", Ridge().solve, inner_problem(), start)


def test_a_diverged_fit_never_passes_as_solved():
    """Too long a step without a line search runs away: the authors' code went on with NaN."""
    problem = inner_problem(rho=10.0)
    runaway = LBFGS(step=100.0, iterations=50, line_search=False, lenient=True)
    with pytest.raises(NumericalError):
        runaway.solve(problem, torch.zeros(14, 3, dtype=torch.float64))


@pytest.mark.slow
def test_the_papers_recipe_is_a_combination_of_these():
    """Float32, L-BFGS 0.25 × 200, 50 CG steps, 200 candidates, a per-point regulariser: it runs and
    is close to exact."""
    data = blobs(80)
    options = {
        "kernel": "rbf",
        "loss": "cross-entropy",
        "inner_reg": PerPoint(1e-3),
        "first": "random",
        "candidates": 30,
    }

    recipe = greedy_selector(
        **options, inner=LBFGS.paper(), linear=ConjugateGradient(50, lenient=True, euclidean=True)
    )
    told = recipe.select(data, 10, random_state=3, runtime=Runtime(device="cpu", dtype="float32"))
    exact = greedy_selector(**options).select(data, 10, random_state=3)
    assert told.objective == pytest.approx(exact.objective, rel=0.15)
    assert told.details["effort"]["inner_iterations"] > 10
    assert np.intersect1d(told.indices, exact.indices).size >= 6


def softmax_problem(points: int = 12, rho: float = 0.05, spread: float = 1.0) -> InnerProblem:
    draw = torch.Generator().manual_seed(3)
    root = spread * torch.randn(points, points + 1, dtype=torch.float64, generator=draw)
    targets = torch.nn.functional.one_hot(torch.arange(points) % C, C).double()
    return InnerProblem(
        root @ root.T / points,
        targets,
        torch.linspace(0.1, 3, points, dtype=torch.float64),
        rho,
        CrossEntropy(),
    )


class Rounded(InnerProblem):
    """An objective of which only some digits can be trusted: each evaluation is ever so slightly
    above the one before."""

    calls = 0

    def objective(self, alpha, predictions):
        type(self).calls += 1
        return super().objective(alpha, predictions) + 1e-9 * self.calls


def test_fit_at_the_rounding_limit_is_accepted_and_a_worse_one_refused():
    plain = softmax_problem(50, rho=1e-3)
    parts = (plain.gram, plain.targets, plain.weights, plain.rho, plain.loss)
    solved = Newton().solve(plain, torch.zeros(50, C, dtype=torch.float64))
    near = Newton(tolerance=1e-6).solve(plain, torch.zeros(50, C, dtype=torch.float64)).alpha * (
        1 + 1e-6
    )
    assert plain.residual(near, plain.gram @ near)[1] > plain.tolerance
    fit = Newton(linear=ConjugateGradient()).solve(Rounded(*parts), near)
    torch.testing.assert_close(fit.predictions, solved.predictions, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConvergenceError, match="inner problem stopped"):
        Newton(linear=ConjugateGradient(), tolerance=1e-12).solve(Rounded(*parts), near)


@pytest.mark.parametrize("direct", [0, 32])
@pytest.mark.parametrize("rho", [1e-4, 0.05, 10.0])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_softmax_fits_in_plain_arrays_agree_with_the_general_solver(
    rho, spread, direct, monkeypatch
):
    monkeypatch.setattr(softmax, "DIRECT", direct)
    problem = softmax_problem(rho=rho, spread=spread)
    start = torch.zeros(12, C, dtype=torch.float64)
    found = softmax.SoftmaxFit(
        problem.gram.numpy(), problem.targets.T.numpy(), problem.weights.numpy(), rho
    ).solve(start.T.numpy(), 1e-10)
    assert found is not None  # plain arrays really did it
    general = Newton(linear=Cholesky(), tolerance=1e-10).solve(problem, start)
    alpha = torch.from_numpy(found.alpha.T)
    torch.testing.assert_close(alpha, general.alpha, rtol=1e-6, atol=1e-10)
    assert problem.residual(alpha, problem.gram @ alpha)[1] <= 1e-9


@pytest.mark.parametrize("direct", [0, 32])
def test_a_fit_of_one_point_more_from_the_last_fit_is_the_same(direct, monkeypatch):
    monkeypatch.setattr(softmax, "DIRECT", direct)
    problem = softmax_problem(rho=0.01, spread=3.0)
    gram = problem.gram.numpy()
    targets = problem.targets.T.numpy()
    weights = problem.weights.numpy()
    smaller = softmax.SoftmaxFit(
        gram[:-1, :-1].copy(), targets[:, :-1].copy(), weights[:-1], 0.01
    ).solve(np.zeros((C, 11)), 1e-7)
    whole = softmax.SoftmaxFit(gram, targets, weights, 0.01)
    start = np.hstack([smaller.alpha, np.zeros((C, 1))])
    joined = whole.solve(start, 1e-7, carried=smaller.preconditioner)
    plain = Newton(linear=Cholesky(), tolerance=1e-7).solve(problem, torch.from_numpy(start.T))
    np.testing.assert_allclose(joined.alpha.T, plain.alpha.numpy(), rtol=1e-4, atol=1e-6)


def test_single_precision_is_put_right_in_double(monkeypatch):
    monkeypatch.setattr(softmax, "DIRECT", 0)
    problem = softmax_problem(rho=0.01, spread=3.0)
    p = torch.softmax(problem.gram @ problem.targets, 1)
    system = softmax.SoftmaxSystem(
        problem.gram.numpy(), p.T.numpy(), (problem.weights[:, None] * p).T.numpy(), 0.02
    )
    right = np.random.default_rng(3).normal(size=(C, 12))
    right -= right.mean(0)
    found = system.solve(right, 1e-11, None)
    left = 0.02 * found.z + system.apply_curvature(found.z @ system.gram)
    assert np.linalg.norm(left - right) <= 1e-11 * np.linalg.norm(right)
    np.testing.assert_allclose(found.image, found.z @ system.gram, atol=1e-12)


def test_general_solver_handles_unsupported_arrays(monkeypatch):
    monkeypatch.setattr(softmax, "ITERATIONS", 1)
    fit = Newton().solve(softmax_problem(), torch.zeros(12, C, dtype=torch.float64))
    assert fit.iterations > 1
    assert fit.residual <= 1e-7


@pytest.mark.parametrize("kind", ["isotropic", "softmax", "blocks"])
def test_iterations_that_never_leave_the_device_solve_the_same_system(kind):
    given = system(kind)
    given.preconditioner = softmax.Preconditioner.fitting(
        None, given.gram, given.curvature.typical(), given.shift, torch.float64
    )
    right = torch.randn(M, C, dtype=torch.float64, generator=torch.Generator().manual_seed(9))

    def image(direction, paired):
        return given.curvature.apply(paired) + given.shift * direction

    found = conjugate_gradients(
        right,
        given.preconditioner.apply,
        image,
        1e-12,
        500,
        lambda residual: residual / given.shift,
    )
    assert found.reached <= 1e-12
    torch.testing.assert_close(found.z, dense_solution(given, right), rtol=1e-7, atol=1e-8)
    run = ConjugateIteration(right, given.preconditioner.apply, image)
    run.advance(200)  # long after nothing is left
    torch.testing.assert_close(run.z, dense_solution(given, right), rtol=1e-7, atol=1e-8)


def test_a_singular_step_of_the_small_solver_is_left_to_the_general_one(monkeypatch):
    def singular(*_):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(np.linalg, "inv", singular)
    fit = Newton().solve(softmax_problem(), torch.zeros(12, C, dtype=torch.float64))
    assert fit.residual <= 1e-7
