"""Exchanges, removals and batches: exact gains against refits, and properties of each strategy."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch

from bicore import Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.bilevel.contract import RULES, Quantity, Requirements, StepOptions
from bicore.bilevel.engines import choose
from bicore.bilevel.engines.ridge import RidgeEngine
from bicore.bilevel.strategies import exact, refining
from bicore.bilevel.strategies.base import restrict_problem
from bicore.bilevel.strategies.exact import (
    FeatureSet,
    FeatureTerms,
    Limits,
    MatrixPool,
    MatrixSet,
    Removals,
    fit_set,
    joining_terms,
)
from bicore.bilevel.strategies.refining import SparseWeights
from bicore.coreset import Status
from bicore.kernels import RBF
from bicore.methods import Batches, Elimination, Exchange, Greedy, Simplex
from bicore.methods.registry import greedy_selector
from bicore.moments.ridge import FeatureState
from bicore.numerics.descent import cap_weights
from bicore.runtime.clock import Clock
from bicore.runtime.context import Context
from bicore.sources import digits
from tests.helpers import ON_CPU, blobs, prepare_selector, refuses, state_of
from tests.marks import few

RHO = 0.1


def data(n=24, seed=0):
    found = blobs(n, classes=3, features=3, seed=seed)
    return Dataset(found.x, found.y, np.random.default_rng(seed).uniform(0.5, 2, size=n))


def problem_of(given, outer=None, kernel=None):
    selector = greedy_selector(kernel=kernel or RBF(0.3), inner_reg=RHO)
    return prepare_selector(selector, given, outer).problem


def refit(problem, chosen, rho=RHO):
    """The objective of a ridge fit on the points, written out."""
    index = list(chosen)
    columns = problem.cross.columns(_long(index)).numpy()
    gram = problem.train.columns(_long(index)).numpy()[index]
    alpha = np.linalg.solve(gram + rho * np.eye(len(index)), problem.inner_targets.numpy()[index])
    return float(
        problem.outer_weights.numpy()
        @ ((problem.outer_targets.numpy() - columns @ alpha) ** 2).sum(1)
    )


def _long(index):
    import torch

    return torch.tensor(list(index))


@pytest.mark.parametrize("kernel", [RBF(0.3), "linear"])
@pytest.mark.parametrize("separate", [False, True])
def test_removals_and_exchanges_are_exact(kernel, separate):
    given = data()
    problem = problem_of(given, data(15, seed=3) if separate else None, kernel)
    chosen = MatrixSet(problem, [1, 5, 8, 13, 20])
    assert chosen.objective == pytest.approx(refit(problem, chosen.points), rel=1e-9)
    rises = chosen.removals().costs
    for place in range(5):
        rest = [k for k in chosen.points if k != chosen.points[place]]
        assert float(rises[place]) == pytest.approx(
            refit(problem, rest) - chosen.objective, rel=1e-7, abs=1e-10
        )
    free = _long([k not in chosen.points for k in range(24)]).bool()
    others = [k for k in range(24) if free[k]]
    gains = {
        (i, k): chosen.objective - refit(problem, [*chosen.points[:i], k, *chosen.points[i + 1 :]])
        for i in range(5)
        for k in others
    }
    ranks = list(range(24))
    for fixed in (0, 3):
        best_gains = chosen.best_gains(free, Limits(ranks, fixed))
        for k in others:
            most = max(gains[i, k] for i in range(fixed, 5))
            assert float(best_gains[k]) == pytest.approx(most, rel=1e-7, abs=1e-10)
        assert best_gains[chosen.points].tolist() == [-np.inf] * 5
    best = max(gains, key=gains.get)
    leaves = chosen.points[best[0]]
    rest = max(value for (i, k), value in gains.items() if k == best[1] and i != best[0])
    barring = Limits(ranks, excluded={(leaves, best[1])})
    barred = chosen.best_gains(free, barring)
    assert float(barred[best[1]]) == pytest.approx(rest, rel=1e-7, abs=1e-10)
    pool = MatrixPool(chosen, _long(others))
    swap = pool.best_swap(Limits(ranks))
    assert (swap.leaving, pool.points[swap.joining]) == best
    assert swap.gain == pytest.approx(gains[best], rel=1e-7)
    assert pool.best_swap(Limits(ranks, 3)).leaving >= 3
    second = pool.best_swap(barring)
    assert second.gain == pytest.approx(sorted(gains.values())[-2], rel=1e-7)
    for left in (MatrixPool(chosen), pool):
        left.remove(2)
        assert left.points[:4] == [1, 5, 20, 13]  # the last one takes the place
        fresh = MatrixSet(problem, left.points[:4])
        np.testing.assert_allclose(left.removals().costs, fresh.removals().costs, rtol=1e-8)
        own = slice(0, 4)
        found = (np.eye(4) - left.rows.pairs(own, own)[0]) / RHO
        np.testing.assert_allclose(found, fresh.inverse, atol=1e-9)


@pytest.mark.parametrize("kernel", [RBF(0.3), "linear"])
@pytest.mark.parametrize("separate", [False, True])
def test_many_swaps_by_rank_one_terms_are_what_a_fit_has(kernel, separate):
    given = data()
    problem = problem_of(given, data(15, seed=3) if separate else None, kernel)
    rest = [k for k in range(24) if k not in (1, 5, 8, 13, 20)]
    pool = MatrixPool(MatrixSet(problem, [1, 5, 8, 13, 20]), _long(rest))
    rng = np.random.default_rng(0)
    for _ in range(40):
        pool.swap(int(rng.integers(5)), int(rng.integers(5, 24)))
        fresh = MatrixSet(problem, pool.points[:5])
        assert pool.objective == pytest.approx(fresh.objective, rel=1e-9)
        np.testing.assert_allclose(pool.removals().costs, fresh.removals().costs, rtol=1e-8)
        tables = joining_terms(pool.rows, slice(5, None), slice(0, 5))
        for one, other in zip(tables, fresh.joining(_long(pool.points[5:])), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-9)
    assert sorted(pool.points) == list(range(24))
    assert pool.drift < 1e-9
    before = pool.points.copy(), pool.objective
    pool.swap(2, 17)
    assert pool.objective != before[1]
    pool.swap(2, 17)
    assert pool.points == before[0]
    assert pool.objective == pytest.approx(before[1], rel=1e-9)
    pool.rows.both[:5] *= 1 + 1e-3
    assert pool.drift == pytest.approx(1e-3, rel=1e-3)


def select_by(strategy, given, size, **options):
    chooser = greedy_selector(kernel="linear", inner_reg=RHO, strategy=strategy)
    return chooser.select(given, size, **options)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors, as on a GPU"])
def test_a_set_in_features_is_the_set_by_columns(separate, tensors):
    given = data()
    problem = problem_of(given, data(15, seed=3) if separate else None, "linear")
    points, every = [1, 5, 8, 13, 20, 2], _long(range(24))
    rest = [k for k in range(24) if k not in points]
    terms = FeatureTerms(problem)
    if tensors:
        terms.device = torch.device("cpu")
        terms.state = FeatureState(terms.state.outer, terms.rho, terms.device)
    columns, features = MatrixSet(problem, points), fit_set(problem, points, terms)
    assert isinstance(features, FeatureSet)
    assert torch.is_tensor(features.joining(every).t) == tensors
    assert features.objective == pytest.approx(columns.objective, rel=1e-10)
    np.testing.assert_allclose(features.removals().costs, columns.removals().costs, rtol=1e-8)
    for one, other in zip(features.joining(every), columns.joining(every), strict=True):
        np.testing.assert_allclose(one[rest], other[rest], atol=1e-10)
    limits = Limits(range(24), 1)
    barring = Limits(range(24), 1, excluded={(5, 7), (8, 9)})
    one, other = features.pool(_long(rest)), columns.pool(_long(rest))
    rng = np.random.default_rng(0)
    for _ in range(30):
        swap = other.best_swap(barring)
        found = one.best_swap(barring)
        assert (found.leaving, found.joining) == (swap.leaving, swap.joining)
        assert found.gain == pytest.approx(swap.gain, rel=1e-7)
        place, row = int(rng.integers(6)), int(rng.integers(6, 24))
        for pool in (one, other):
            pool.swap(place, row)
        assert one.points == other.points
        assert one.objective == pytest.approx(other.objective, rel=1e-9)
        fresh = MatrixSet(problem, one.points[:6])
        np.testing.assert_allclose(one.removals().costs, fresh.removals().costs, rtol=1e-7)
    assert one.drift < 1e-9
    for _ in range(3):
        for pool in (one, other):
            pool.remove_cheapest(limits)
        assert one.points[: one.size] == other.points[: other.size]
        assert one.objective == pytest.approx(other.objective, rel=1e-9)
    assert other.drift < 1e-9
    one.rows.state.both *= 1 + 1e-3
    other.rows.both[: other.size] *= 1 + 1e-3
    assert one.drift > 1e-5
    assert other.drift == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("strategy", ["exchange", "elimination"])
def test_picks_in_features_are_those_by_columns(strategy, monkeypatch):
    """With weights, an outer set, points that stay, and every row twice."""
    x, y = digits()
    x = x[:, 10:40]
    weights = np.random.default_rng(0).uniform(0.5, 2, size=150)
    twice = [np.concatenate([part, part]) for part in (x[:150], y[:150], weights)]
    given, outer = Dataset(*twice), Dataset(x[150:400], y[150:400])
    cases = ({}, {"outer": outer}, {"initial": [3, 7, 40]})
    found = [select_by(strategy, given, 40, **options) for options in cases]
    monkeypatch.setattr(exact, "FeatureSet", MatrixSet)
    monkeypatch.setattr(exact, "FeatureTerms", exact.SharedTerms)
    for coreset, options in zip(found, cases, strict=True):
        other = select_by(strategy, given, 40, **options)
        assert coreset.indices.tolist() == other.indices.tolist()
        np.testing.assert_allclose(coreset.objectives, other.objectives, rtol=1e-9)
        assert coreset.details.get("exchanges") == other.details.get("exchanges")
        assert coreset.details.get("exchanges", 1) > 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [30, 90], ids=["fewer rows than features", "more"])
def test_a_large_outer_set_in_features_counts_as_it_is(size, dtype):
    x, y = digits()
    given, outer = Dataset(x[:200], y[:200]), Dataset(x[200:700], y[200:700])
    context = Context(runtime=Runtime("cpu", dtype, threads=1))
    problem = problem_of(given, outer, "linear")
    for strategy in ("greedy", "exchange", "elimination"):
        found = select_by(strategy, given, size, outer=outer, **context.keywords)
        objective = refit(problem, found.indices)
        assert found.objective == pytest.approx(objective, rel=1e-9 if dtype == "float64" else 1e-4)


def test_gains_of_a_few_rows_of_a_pool_at_a_time_leave_no_better_swap(monkeypatch):
    given = digits_of(300)
    known = select_by("exchange", given, 80)
    monkeypatch.setattr(exact, "SCORED_ROWS", 4)
    monkeypatch.setattr(exact, "SCORED_PAIRS", 1)
    monkeypatch.setattr(exact, "BLOCK", 80 * 7)
    monkeypatch.setattr(refining, "SHORTLIST", 16)
    found = select_by("exchange", given, 80)
    assert found.details["exchanges"] > 5
    assert found.objective == pytest.approx(known.objective, rel=0.02)
    problem = problem_of(given, kernel="linear")
    free = ~torch.from_numpy(np.isin(np.arange(300), found.indices))
    best_gains = MatrixSet(problem, found.indices.tolist()).best_gains(free, Limits(range(300)))
    assert best_gains.max() <= 1e-6 * found.objective * (1 + 1e-6)


@pytest.mark.parametrize("separate", [False, True])
def test_points_are_put_into_the_order_of_exact_gains(separate):
    given = data()
    problem = problem_of(given, data(15, seed=3) if separate else None)
    points = [3, 20, 7, 11, 1, 16, 9]
    requirements = Requirements(7, frozenset({Quantity.GAIN}), closed_form=True)
    engine = choose(restrict_problem(problem, np.array(points)), requirements)
    objectives = []
    for k in range(7):
        if k < 2:
            engine.extend([k])
        else:
            free = ~np.isin(np.arange(7), engine.chosen)
            engine.take_best(RULES["gain"](), StepOptions(free, np.array(points)))
        objectives.append(engine.objective)
    order = [points[place] for place in engine.chosen]
    left = points[2:]
    taken = points[:2]
    while left:
        taken.append(min(left, key=lambda k: refit(problem, [*taken, k])))
        left.remove(taken[-1])
    assert order == taken
    for count, value in enumerate(objectives, 1):
        assert value == pytest.approx(refit(problem, order[:count]), rel=1e-9)


def test_ties_of_exchanges_go_to_the_lowest_ids(monkeypatch):
    monkeypatch.setattr(refining, "SHORTLIST", 4)
    plain = data(20)
    twice = [np.concatenate([part, part]) for part in (plain.x, plain.y, plain.weights)]
    chooser = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy="exchange")
    found = chooser.select(Dataset(*twice), 5)
    order = np.random.default_rng(1).permutation(40)
    mixed = Dataset(*(part[order] for part in twice), ids=order)
    assert found.details["exchanges"] > 0
    assert chooser.select(mixed, 5).ids.tolist() == found.ids.tolist()
    first = {}
    for k in found.indices.tolist():  # of two equal points the second only joins after the first
        assert k < 20 or k - 20 in first
        first[k] = True


def test_exchanges_never_end_above_greedy_and_leave_no_better_swap():
    better = 0
    for seed in range(4):
        given = data(20, seed)
        greedy, exchanged = (
            greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy=strategy).select(given, 4)
            for strategy in ("greedy", "exchange")
        )
        problem = problem_of(given)
        assert exchanged.objectives[-1] <= greedy.objectives[-1] + 1e-12
        assert exchanged.objectives[-1] == pytest.approx(
            refit(problem, exchanged.indices), rel=1e-9
        )
        assert exchanged.details["exchange_gain"] == pytest.approx(
            greedy.objectives[-1] - exchanged.objectives[-1], abs=1e-9
        )
        assert (exchanged.details["exchanges"] > 0) == (
            exchanged.objectives[-1] < greedy.objectives[-1] - 1e-9
        )
        better += exchanged.details["exchanges"] > 0
        for i in range(4):
            for k in set(range(20)) - set(exchanged.indices.tolist()):
                swapped = [*exchanged.indices[:i], k, *exchanged.indices[i + 1 :]]
                assert refit(problem, swapped) > exchanged.objectives[-1] * (1 - 1e-5)
    assert better >= 3
    best = min(refit(problem, chosen) for chosen in combinations(range(20), 4))
    assert exchanged.objectives[-1] <= 1.15 * best


def digits_of(rows):
    return Dataset(*(part[:rows] for part in digits()))


def test_exchanges_in_single_precision_make_the_gains_they_report():
    """More points than the linear kernel has features: what one swap is worth is a small difference
    of large numbers, and was wrong by hundreds of objectives."""
    given = digits_of(300)
    context = Context(runtime=Runtime("cpu", "float32", threads=1))
    options = {"kernel": "linear", "inner_reg": 0.01}
    greedy, exchanged = (
        greedy_selector(**options, strategy=strategy).select(given, 90, **context.keywords)
        for strategy in ("greedy", "exchange")
    )
    problem = prepare_selector(greedy_selector(**options), given).problem
    before, after = (
        MatrixSet(problem, coreset.indices.tolist()).objective for coreset in (greedy, exchanged)
    )
    assert exchanged.details["exchanges"] > 5
    assert exchanged.details["exchange_gain"] == pytest.approx(before - after, rel=1e-4)
    assert exchanged.objective < 0.95 * greedy.objective


def test_a_swap_without_its_predicted_gain_is_undone(monkeypatch):
    """Gains that are made up: every swap is judged by the objective of the swapped set, the best
    few are tried, and the coreset says why they ended."""
    given = data(40)
    tried = []
    plain = MatrixPool.swap

    def swap(self, place, row):
        tried.append((self.points[place], self.points[row]))
        return plain(self, place, row)

    chooser = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy="exchange")
    honest = chooser.select(given, 5)
    again = chooser.select(given, 5, initial=honest.indices[:1].tolist())
    monkeypatch.setattr(Removals, "_block", lambda self, some: 1 + some.t)
    monkeypatch.setattr(MatrixPool, "swap", swap)
    found = chooser.select(given, 5, initial=honest.indices[:1].tolist())
    greedy = greedy_selector(kernel=RBF(0.3), inner_reg=RHO).select(
        given, 5, initial=honest.indices[:1].tolist()
    )
    assert again.provenance.notes[-1].startswith("exchanges: ")
    assert "rounding" in found.provenance.notes[-1]
    # what is tried and no good is taken back, and not tried again; the last one is left lying
    assert tried[-8::2] == [(joins, leaves) for leaves, joins in tried[-9:-1:2]]
    assert len(set(tried[-9::2])) == 5
    assert found.objective <= greedy.objective * (1 + 1e-12)
    assert found.details["exchange_gain"] == pytest.approx(
        greedy.objective - found.objective, abs=1e-12
    )


@pytest.mark.parametrize("rho", few([1e-8, 1e-5]))
def test_removals_are_exact_with_fewer_features_than_points(rho, monkeypatch):
    """Steps that removals add up give the points that fits give, next to a tiny ρ too."""
    given = digits_of(110)
    problem = prepare_selector(greedy_selector(kernel="linear", inner_reg=rho), given).problem
    selector = greedy_selector(kernel="linear", inner_reg=rho, strategy=Elimination(math.inf))
    objectives = []
    for check in (exact.DRIFT, 0.0):  # steps as far as they hold, and a fit after every removal
        monkeypatch.setattr(exact, "DRIFT", check)
        monkeypatch.setattr(exact, "DRIFT_RATIO", 100 if check else 0)
        objectives.append(refit(problem, selector.select(given, 75).indices, rho))
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)


def test_elimination_removes_the_cheapest_point():
    given = data(16)
    problem = problem_of(given)
    coreset = greedy_selector(
        kernel=RBF(0.3), inner_reg=RHO, strategy=Elimination(float("inf"))
    ).select(given, 5)
    left = list(range(16))
    while len(left) > 5:
        left.remove(
            min(left, key=lambda k: refit(problem, [other for other in left if other != k]))
        )
    assert sorted(coreset.indices.tolist()) == left
    assert coreset.objectives[-1] == pytest.approx(refit(problem, left), rel=1e-9)
    assert coreset.details["eliminated"] == 11
    half = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy=Elimination(1.5)).select(
        given, 4, initial=[3, 7]
    )
    assert half.indices[:2].tolist() == [3, 7]
    assert half.details["eliminated"] == 2


@pytest.mark.parametrize("loss", ["squared", pytest.param("cross-entropy", marks=pytest.mark.slow)])
def test_simplex_weights_become_sparse(loss):
    given = data(16)
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, loss=loss)
    for largest in (1.0, float("inf")):
        state = state_of(selector, given, list(range(16)), [1.0] * 16)
        sparse = SparseWeights(state, 8, 2, largest)
        start = state.objective
        free = state.weights[2:]
        step = 0.1 / float(sparse.weight_gradient().abs().max())
        move = float(
            (cap_weights(free - step * sparse.weight_gradient()[2:], 6, largest) - free).abs().sum()
        )
        sparse.descend(20, Clock())
        relaxed = state.objective
        assert relaxed < start
        free = state.weights[2:]
        left = float(
            (cap_weights(free - step * sparse.weight_gradient()[2:], 6, largest) - free).abs().sum()
        )
        assert left < 0.1 * move  # little is left to gain by moving weight between points
        sparse.run(20, Clock())
        assert sparse.remaining <= 8
        assert state.objective >= relaxed * (1 - 1e-6)
        assert float(state.weights.sum()) == pytest.approx(8)
        assert state.weights[:2].tolist() == [1, 1]
        assert sorted(sparse.rank_points()) == list(range(16))
        assert sparse.rank_points()[:2] == [0, 1]
        if largest == 1:
            np.testing.assert_allclose(state.weights, 1, atol=1e-6)
    coreset = greedy_selector(
        kernel=RBF(0.3), inner_reg=RHO, loss=loss, strategy=Simplex(float("inf"), steps=10)
    ).select(given, 8, initial=[0, 1])
    assert coreset.indices[:2].tolist() == [0, 1]
    again = selector.select(given, 8, initial=coreset.indices.tolist())
    assert coreset.objectives[-1] == pytest.approx(again.objectives[-1], rel=1e-6)


def test_the_penalised_gradient_is_that_of_differences():
    given = data(20)
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=RHO)
    state = state_of(selector, given, list(range(20)), [1.0] * 20)
    sparse = SparseWeights(state, 6, 1, 1.0)
    sparse.beta = 0.3
    weights = state.weights.clone()
    gradient = sparse.weight_gradient()
    step = 1e-6
    for k in (1, 7, 19):
        values = []
        for sign in (1, -1):
            moved = weights.clone()
            moved[k] += sign * step
            state.reweigh(moved)
            values.append(sparse.objective)
        assert float(gradient[k]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


@pytest.mark.slow
def test_the_simplex_never_ends_above_greedy_and_is_often_below():
    better = 0
    for seed in range(5):
        greedy, found = (
            greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy=name).select(
                data(80, seed), 12
            )
            for name in ("greedy", "simplex")
        )
        gain = greedy.objectives[-1] - found.objectives[-1]
        assert found.details["simplex_gain"] == pytest.approx(gain, abs=1e-9)
        better += gain > 0.01 * greedy.objectives[-1]
    assert 1 <= better < 5


@pytest.mark.parametrize("loss", few(["squared", "cross-entropy"]))
def test_batches_of_one_are_greedy_and_prefixes_stay_nested(loss):
    given = data(80)
    options = {"kernel": RBF(0.3), "loss": loss, "inner_reg": RHO}
    greedy, one = (
        greedy_selector(**options, strategy=strategy).select(given, 8)
        for strategy in ("greedy", Batches(1))
    )
    assert one.indices.tolist() == greedy.indices.tolist()
    start = list(range(40))
    many, fewer = (
        greedy_selector(**options, strategy=Batches(4)).select(given, size, initial=start)
        for size in (50, 46)
    )
    assert many.indices[:46].tolist() == fewer.indices.tolist()
    assert len(many.objectives) == 50
    assert many.objectives[-1] < many.provenance.empty_objective
    if loss == "cross-entropy":
        assert many.details["effort"]["fits"] == 40 + 3  # 4 + 4 + 2
        assert many.objectives[40] == many.objectives[43]
    learnt = greedy_selector(**options, weighting="learned", strategy=Batches(5)).select(given, 10)
    assert 0 < len(learnt) <= 10


@pytest.mark.usefixtures("long_grace")
def test_strategies_work_with_final_weights_streams_and_limits():
    given = data(40)
    final = greedy_selector(
        kernel=RBF(0.3), inner_reg=RHO, strategy="exchange", weighting="final"
    ).select(given, 5)
    plain = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy="exchange").select(given, 5)
    assert final.objectives[-1] <= plain.objectives[-1]
    slow = greedy_selector(kernel=RBF(0.3), strategy="exchange").select(given, 5)
    # of the whole: finding a regulariser takes longer than putting five points in order
    assert slow.provenance.selection_seconds > 0
    assert not greedy_selector(strategy="exchange").ordered
    assert greedy_selector(strategy="batches").ordered
    short = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy="exchange").select(
        given, 5, runtime=Runtime(max_seconds=1e-9)
    )
    assert short.message == "stopped by max_seconds after 1 of 5 rows"

    def interrupt(step):
        if step.done == 7:
            raise KeyboardInterrupt

    cut = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy="elimination").select(
        given, 5, runtime=Runtime(progress=interrupt)
    )
    assert len(cut) == 5
    assert cut.message == "interrupted before the rows were refined: complete, not refined"


def test_greedy_points_and_swaps_are_reported(monkeypatch):
    given = data(40)
    options = {"kernel": RBF(0.3), "inner_reg": RHO, "loss": "cross-entropy"}
    grown = greedy_selector(**options, strategy=Simplex(1.5)).select(given, 6, **ON_CPU.keywords)
    assert grown.details["effort"]["fits"] == 9  # of the run that chose, not of putting in order
    exchange = greedy_selector(kernel=RBF(0.3), inner_reg=RHO, strategy="exchange")
    whole = exchange.select(data(60, 1), 8, **ON_CPU.keywords)
    assert whole.details["exchanges"] > 1
    plain = MatrixPool.best_swap

    def second(self, *arguments):
        if second.calls:
            raise KeyboardInterrupt
        second.calls += 1
        return plain(self, *arguments)

    second.calls = 0
    monkeypatch.setattr(MatrixPool, "best_swap", second)
    cut = exchange.select(data(60, 1), 8, **ON_CPU.keywords)
    assert cut.status is Status.INTERRUPTED
    assert cut.details["exchanges"] == 1
    assert cut.provenance.notes[0].startswith("exchanges: 1, objective lowered")


def test_bad_strategies_are_refused():
    for options, words in (
        ({"strategy": "swap"}, "strategy='swap'"),
        ({"strategy": "exchange", "loss": "cross-entropy"}, "needs the squared error"),
        ({"strategy": "elimination", "inner_reg": PerPoint(0.1)}, "needs a constant inner_reg"),
        ({"strategy": "exchange", "weighting": "learned"}, "weighting"),
        ({"strategy": "simplex", "weighting": "learned"}, "weighting"),
        ({"strategy": "simplex", "inner_reg": PerPoint(0.1)}, "needs a constant inner_reg"),
        ({"strategy": "simplex", "quotas": "balanced"}, "quotas"),
    ):
        refuses(words, greedy_selector, **options)
    for kind, options in (
        (Batches, {"count": 0}),
        (Exchange, {"rounds": -1}),
        (Exchange, {"sweeps": -1}),
        (Exchange, {"tolerance": 1.0}),
        (Elimination, {"excess": 0.5}),
        (Simplex, {"excess": 0.5}),
        (Simplex, {"largest": 0.5}),
        (Simplex, {"steps": 0}),
    ):
        ((name, value),) = options.items()
        refuses(f"{name}.*{value}", kind, **options)
    assert greedy_selector().strategy == Greedy()


@pytest.mark.parametrize("kernel", [RBF(0.3), "linear"])
@pytest.mark.parametrize("separate", [False, True])
def test_points_taken_together_leave_the_state_of_points_taken_one_by_one(kernel, separate):
    problem = problem_of(data(), data(15, seed=3) if separate else None, kernel)
    together, alone = (RidgeEngine(problem, 9, gains=True) for _ in range(2))
    for state in (together, alone):
        state.quantity(Quantity.FIRST_ORDER)  # kept from its first use on
    together.extend([2, 11])
    together.extend([5, 7, 19])
    together.extend([3])
    for k in (2, 11, 5, 7, 19, 3):
        alone.extend([k])
    assert together.chosen == alone.chosen
    assert together.objective == pytest.approx(alone.objective, rel=1e-9)
    for what in Quantity:
        np.testing.assert_allclose(
            together.quantity(what), alone.quantity(what), rtol=1e-6, atol=1e-9
        )
    np.testing.assert_allclose(together.variance, alone.variance, atol=1e-9)


@pytest.mark.parametrize("rule", ["gradient", "gain"])
def test_a_batch_is_exact_greedy_selection_within_the_best_scores(rule):
    given = data(60)
    problem = problem_of(given)
    state = RidgeEngine(problem, 30, gains=True)
    state.extend([4, 9])
    pool = np.array(sorted(set(range(0, 60, 3)) - {9}))
    options = StepOptions(np.ones(60, dtype=bool), np.arange(60), count=5, shortlist=len(pool))
    found = state.pick_from(pool, RULES[rule](), options)
    for pick in found:
        scores = state.scores(RULES[rule]()).numpy()[pool]
        scores[np.isin(pool, state.chosen)] = np.inf
        assert pick == pool[scores.argmin()]
        state.extend([pick])
    greedy, batches = (
        greedy_selector(kernel="linear", inner_reg=RHO, rule=rule, strategy=strategy).select(
            data(400), 40
        )
        for strategy in ("greedy", Batches(8))
    )
    assert batches.objectives[-1] < 1.02 * greedy.objectives[-1]


def test_exchanges_stop_after_the_allowed_sweeps():
    x, y = digits()
    given = Dataset(x[:300], y[:300])
    found = {
        sweeps: greedy_selector(RBF(0.3), inner_reg=RHO, strategy=Exchange(sweeps=sweeps)).select(
            given, 20
        )
        for sweeps in (0, 1, None)
    }
    greedy = greedy_selector(RBF(0.3), inner_reg=RHO).select(given, 20)
    assert sorted(found[0].indices) == sorted(greedy.indices)
    assert found[0].provenance.notes == ("exchanges: none, because a limit ended the search first",)
    assert found[None].objective < found[1].objective < found[0].objective
