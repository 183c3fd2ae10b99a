"""Comparisons: evaluation models, statistics computed by hand, stored rows, the command."""

import copy
import json
import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from bicore import NumericalError, Runtime
from bicore.evaluate.comparison import MAJORITY, WHOLE, Comparison, Grid, Stage, findings_of
from bicore.evaluate.models import (
    FeatureScaling,
    NearestJudge,
    NetworkJudge,
    RidgeJudge,
    Sample,
    as_judge,
    as_table,
    compute_measures,
    convolutional,
    fit_scaling,
    measure_by,
    perceptron,
)
from bicore.evaluate.pools import as_source, make_pools
from bicore.evaluate.records import Records, Result, digest, smallest_detectable, summarise
from bicore.kernels import fully_connected
from bicore.methods import as_selector
from bicore.methods.baselines.base import BaselineSelector
from bicore.networks.observe import as_module
from bicore.sources.base import Source
from tests.helpers import blobs, fails, refuses
from tests.marks import except_slow, few


def sample(data, rows=slice(None), weight=None) -> Sample:
    x = torch.from_numpy(data.x[rows]).float()
    y = torch.from_numpy(data.y[rows])
    return Sample(x, y, torch.ones(len(x)) if weight is None else weight)


# Judges.


TABLES = ["ridge", "logistic", "forest", "boosting", "knn"]


@pytest.mark.parametrize(
    "judge",
    except_slow(
        [as_judge("mlp", 60), RidgeJudge(fully_connected()), *(as_judge(one, 1) for one in TABLES)],
        [as_judge("forest", 1), as_judge("boosting", 1)],
    ),
    ids=lambda judge: judge.name,
)
def test_judges_learn(judge):
    data = blobs(60)
    sets = [sample(data, slice(0, 40)), sample(data, slice(20, 60))]
    found = judge.scores(sets, sample(data), 3, seed=0)
    assert len(found) == 2
    assert min(found) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", *TABLES])
def test_judges_are_drawn_from_their_seed_and_see_each_selection_alone(name):
    data = blobs(60)
    judge = as_judge(name, 60)
    sets = [sample(data, slice(0, 30)), sample(data, slice(30, 60)), sample(data, slice(10, 40))]
    together = judge.scores(sets, sample(data), 3, seed=4)
    torch.manual_seed(99)
    np.random.seed(5)
    state = torch.get_rng_state()
    alone = [judge.scores([one], sample(data), 3, seed=4)[0] for one in sets]
    # networks that are trained together round otherwise than one by itself
    assert together == pytest.approx(alone, abs=1 / 60 + 1e-9 if name == "mlp" else 0)
    assert torch.equal(state, torch.get_rng_state())
    assert judge.scores(sets[:1], sample(data), 3, seed=4) == alone[:1]


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["mlp", "ridge", "logistic", "knn"])
def test_a_weight_of_almost_zero_takes_a_point_out(judge):
    judge = as_judge(judge, 200)
    data = blobs(60)
    wrong = data.y.copy()
    wrong[:20] = (wrong[:20] + 1) % 3
    spoilt = Sample(torch.from_numpy(data.x).float(), torch.from_numpy(wrong), torch.ones(60))
    light = replace(spoilt, weight=torch.tensor([1e-6] * 20 + [1.5] * 40))
    scores = judge.scores([spoilt, light], sample(data), 3, seed=0)
    clean = judge.scores([sample(data, slice(20, 60))], sample(data), 3, seed=0)[0]
    assert scores[1] == pytest.approx(clean, abs=0.05)
    assert scores[1] > scores[0]


def test_regression_is_judged_by_r_squared():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(80, 3))).float()
    y = (x @ torch.tensor([[1.0], [-2.0], [0.5]])) + 3
    data = Sample(x, y, torch.ones(80))
    for name in ("mlp", "knn"):
        assert as_judge(name, 200).scores([data], data, 1, seed=0)[0] > 0.75, name
    constant = Sample(x, torch.full_like(y, 7.0), torch.ones(80))
    assert RidgeJudge().scores([constant], data, 1, seed=0)[0] < 0


def noisy(rows=400, seed=0):
    """Labels that are mostly chance: a fit that follows them is worse than the majority class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 8))
    likely = np.where(x[:, 0] > 0.8, 0.6, 0.25)
    y = (rng.random(rows) < likely).astype(np.int64)
    return Sample(torch.from_numpy(x).float(), torch.from_numpy(y), torch.ones(rows))


@pytest.mark.parametrize("name", ["ridge", "logistic", "knn"])
def test_a_tuned_model_on_noisy_data_is_at_least_the_majority_class(name):
    data, test = noisy(), noisy(1000, seed=1)
    majority = float((test.y == 0).double().mean())
    rows = noisy(300, seed=2)
    assert as_judge(name, 1).tune(rows).scores([data], test, 2, seed=0)[0] >= majority - 0.01
    assert RidgeJudge(ridge=1e-3).scores([data], test, 2, seed=0)[0] < majority - 0.05


@pytest.mark.parametrize("name", ["ridge", "logistic", "knn"])
def test_settings_are_those_of_the_smallest_error_on_rows_of_the_pool(name):
    """A selection of points that no other speaks for: left out in turn, all of them are wrong."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 4.0]])
    labels = rng.integers(0, 4, 600)
    x = torch.from_numpy(centres[labels] + rng.normal(size=(600, 2))).float()
    y = torch.from_numpy(labels % 2)
    pool = Sample(x[:300], y[:300], torch.ones(300))
    test = Sample(x[300:], y[300:], torch.ones(300))
    picks = Sample(torch.from_numpy(centres).float(), torch.tensor([0, 1, 0, 1]), torch.ones(4))
    judge = as_judge(name, 1)
    tuned = judge.tune(pool)
    assert tuned.scores([picks], test, 2, seed=0)[0] > 0.93
    # what is tuned by wrong rows is tuned wrongly
    noise = Sample(pool.x, torch.from_numpy(rng.integers(0, 2, 300)), pool.weight)
    (told,) = judge.tune(noise).predictions([picks], test, 2, seed=0)
    (found,) = tuned.predictions([picks], test, 2, seed=0)
    own = torch.nn.functional.one_hot(test.y, 2)
    assert float((found - own).square().sum()) < float((told - own).square().sum())


@pytest.mark.parametrize("name", TABLES)
def test_a_selection_may_lack_classes_and_hold_constant_columns(name):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(24, 3))).float()
    x[:, 1] = 5.0
    y = (x[:, 0] > 0).long() * 3  # classes 0 and 3 of five
    test = Sample(x + torch.tensor([0.0, 1.0, 0.0]), y, torch.ones(24))
    judge = as_judge(name, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = judge.predictions([Sample(x, y, torch.ones(24))], test, 5, seed=0)
        assert found.shape == (24, 5)
        assert set(found.argmax(1).tolist()) <= {0, 3}
        single = Sample(x[:3], torch.full((3,), 4), torch.ones(3))
        assert judge.predictions([single], test, 5, seed=0)[0].argmax(1).tolist() == [4] * 24
        alone = Sample(x[:1], torch.tensor([2]), torch.ones(1))
        assert judge.predictions([alone], test, 5, seed=0)[0].argmax(1).tolist() == [2] * 24


@pytest.mark.parametrize("name", except_slow(TABLES, ["forest", "boosting"]))
def test_several_targets_and_few_points(name):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(40, 3))).float()
    y = x @ torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    data = Sample(x, y, torch.ones(40))
    (found,) = as_judge(name, 1).predictions([data], data, 2, seed=0)
    assert found.shape == (40, 2)
    assert float((found - y).square().mean()) < float(y.var())
    few = Sample(x[:2], y[:2], torch.ones(2))
    assert np.isfinite(as_judge(name, 1).scores([few], data, 2, seed=0)).all()


def test_boosting_on_two_rows_follows_the_rows_and_not_their_order():
    x, y = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1])
    orders = [Sample(x[order], y[order], torch.ones(2)) for order in ([0, 1], [1, 0])]
    found = as_judge("boosting", 1).predictions(orders, orders[0], 2, seed=0)
    assert [one.argmax(1).tolist() for one in found] == [[0, 1], [0, 1]]


def test_weight_equals_copies_of_a_neighbour():
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    y = torch.tensor([[0.0], [1.0], [5.0], [9.0]])
    at = Sample(torch.tensor([[0.0], [3.0]]), torch.zeros(2, 1), torch.ones(2))
    weighted = Sample(x, y, torch.tensor([1.0, 2.0, 0.5, 0.5]))
    (found,) = NearestJudge().predictions([weighted], at, 1, seed=0)  # three neighbours
    assert found.flatten().tolist() == pytest.approx([2 / 3, (4.5 + 2.5 + 2 * 1) / 3])


@pytest.mark.parametrize("name", ["logistic", "knn", "forest"])
def test_columns_that_are_constant_up_to_rounding_or_beyond_numbers(name):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(300, 2))).float()
    x[:, 1] = 0.1
    data = Sample(x, (x[:, 0] > 0).long(), torch.from_numpy(rng.uniform(0.1, 2, 300)).float())
    test = Sample(x + torch.tensor([0.0, 1e-3]), data.y, torch.ones(300))
    judge = as_judge(name, 1)
    assert judge.scores([data], test, 2, seed=0)[0] > 0.95
    large = replace(data, x=x.double() * 1e40)
    fails(NumericalError, "scale them", judge.scores, [large], test, 2, seed=0)


def test_scaling_is_by_the_selection_and_its_weights():
    data = blobs(60)
    test = sample(data)
    scale, shift = torch.tensor([1e-3, 1.0, 1e4, 7.0]), torch.tensor([0.0, 5.0, -1e3, 1.0])
    weight = torch.linspace(0.5, 1.5, 40)
    points = sample(data, slice(0, 40), weight)
    moved = Sample(points.x * scale + shift, points.y, weight)
    elsewhere = Sample(test.x * scale + shift, test.y, test.weight)
    scaled = fit_scaling(as_table(moved), FeatureScaling.COLUMNS)(as_table(moved).x)
    share = weight.double() / weight.double().sum()
    torch.testing.assert_close(share @ scaled, torch.zeros(4).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(share @ scaled.square(), torch.ones(4).double())
    whole = fit_scaling(as_table(moved), FeatureScaling.TOGETHER)(as_table(moved).x)
    variances = share @ (whole - share @ whole).square()
    assert float(variances.mean()) == pytest.approx(1)
    for name in ("logistic", "knn"):
        judge = as_judge(name, 1)
        first = judge.scores([points], test, 3, seed=0)
        assert judge.scores([moved], elsewhere, 3, seed=0) == pytest.approx(first, abs=0.04)


def test_every_measure_by_hand():
    codes = Sample(torch.zeros(5, 1), torch.tensor([0, 0, 0, 0, 2]), torch.ones(5))
    shares = torch.tensor([[3.0, 1, 0], [3, 1, 0], [3, 1, 0], [0, 1, 0], [0, 1, 2]])
    assert compute_measures(shares, codes).values == {"accuracy": 0.8, "balanced_accuracy": 0.875}
    assert compute_measures(shares, codes).by_class == (0.75, None, 1.0)  # no row is of class 1
    targets = Sample(torch.zeros(3, 1), torch.tensor([[0.0], [1.0], [2.0]]), torch.ones(3))
    found = compute_measures(torch.tensor([[0.0], [1.0], [4.0]]), targets)
    assert found.values == pytest.approx({"r2": 1 - 4 / 2, "mean_absolute_error": 2 / 3})
    assert found.main == -1
    assert found.by_class == ()
    data = blobs(60)
    judge = RidgeJudge()
    arguments = ([sample(data, slice(0, 30))], sample(data), 3, 0)
    assert [one.main for one in judge.measures(*arguments)] == judge.scores(*arguments)


def test_the_papers_cnn_needs_images_of_some_size():
    assert convolutional((1, 28, 28), 10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert convolutional((3, 17, 40), 4)(torch.zeros(2, 3, 17, 40)).shape == (2, 4)
    for shape in ((64,), (1, 8, 8)):
        refuses("at least 16×16", convolutional, shape, 10)
    refuses("'boosting', 'cnn', 'forest', 'knn'", as_judge, "svm", 10)


# Statistics.


def rows_of(**values) -> list[Result]:
    return [
        Result(name, 10, seed, value, 0.1)
        for name, series in values.items()
        for seed, value in enumerate(series)
    ]


def test_means_errors_and_paired_intervals_by_hand():
    # Differences to the best: 0.10, 0.12, 0.08, 0.10: mean 0.1, s.d. 0.01633, half width 3.182 ·
    # 0.01633/2 = 0.02598.
    rows = rows_of(a=[0.9, 0.8, 0.7, 0.6], b=[0.8, 0.68, 0.62, 0.5], c=[0.95, 0.7, 0.8, 0.5])
    summary = summarise(rows, ["a", "b", "c"], [10])
    a, b, c = (summary.of(name, 10) for name in "abc")
    assert (a.best, b.best, c.best) == (True, False, False)
    assert a.mean == pytest.approx(0.75)
    assert a.error == pytest.approx(np.std([0.9, 0.8, 0.7, 0.6], ddof=1) / 2)
    assert b.gap == pytest.approx(0.1)
    assert b.interval == pytest.approx(0.02598, abs=1e-4)
    assert (b.tied, c.tied) == (False, True)


def test_the_smallest_detectable_difference_is_found_with_the_chance_stated():
    """Simulated: a true difference of that size is found in about 80% of experiments."""
    size = 10
    spread = 0.03
    delta = smallest_detectable(spread, size)
    rng = np.random.default_rng(0)
    found = 0
    from scipy.stats import t

    bound = t.ppf(0.975, size - 1)
    for _ in range(2000):
        differences = rng.normal(delta, spread, size)
        error = differences.std(ddof=1) / np.sqrt(size)
        found += abs(differences.mean()) > bound * error
    assert found / 2000 == pytest.approx(0.8, abs=0.03)


def test_a_method_without_some_seeds_is_neither_best_nor_tied():
    rows = rows_of(a=[0.90, 0.91], b=[0.95, 0.955, 0.60, 0.62], c=[0.5, 0.6, 0.7, 0.4])
    summary = summarise(rows, ["a", "b", "c"], [10])
    assert [summary.of(name, 10).best for name in "abc"] == [False, True, False]
    assert not summary.of("a", 10).complete
    assert not summary.of("a", 10).tied
    assert math.isfinite(summary.detectable[10])


def test_one_seed_or_missing_rows_allow_no_comparison():
    summary = summarise(rows_of(a=[0.9], b=[0.8]), ["a", "b"], [10])
    assert math.isnan(summary.detectable[10])
    assert summary.of("b", 10).tied
    partial = summarise([*rows_of(a=[0.9, 0.8, 0.7]), *rows_of(b=[0.1])], ["a", "b"], [10, 20])
    assert partial.of("b", 10).seeds == 1
    assert partial.of("a", 20) is None


# Records.


SETTINGS = {"judge": "ridge", "pool": 5}
ROW = Result("a", 10, 0, 0.5, 0.1)


def test_rows_survive_a_crash_and_other_settings_are_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    first = Records(path, SETTINGS)
    more = {"classes": {"ridge": [0.5, None]}, "picks": [7, 2], "weights": [0.5, 3.0]}
    rows = [ROW, replace(ROW, seed=1), replace(ROW, seed=2, **more)]
    for row in rows:
        first.add(row)
    assert list(Records(path, SETTINGS).results.values()) == rows
    refuses("pool", Records, path, {"judge": "ridge", "pool": 6})
    with open(path, "a") as file:
        file.write('{"method": "a", "si')  # a crash in the middle of a line
    torn = Records(path, SETTINGS)
    assert list(torn.results.values()) == rows
    torn.add(Result("b", 10, 0, 0.9, 0.2))
    assert len(Records(path, SETTINGS).results) == 4
    path.write_text(path.read_text().replace('"seed": 1', '"seed" 1'))
    refuses("line 3", Records, path, SETTINGS)
    assert digest({"a": 1}) != digest({"a": 2})


@pytest.mark.parametrize(
    "damage",
    [
        {"accuracy": None},
        {"accuracy": "hi"},
        {"measures": [1]},
        {"measures": {"ridge": 1}},
        {"measures": {"ridge": {"accuracy": "hi"}}},
        {"picks": [-1]},
        {"picks": [0.5]},
        {"picks": 3},
        {"weights": [1.0]},
        {"classes": {"ridge": ["hi"]}},
        {"classes": [1]},
    ],
    ids=str,
)
def test_a_damaged_row_is_refused_by_its_line(tmp_path, damage):
    lines = [{"settings": SETTINGS}, ROW.as_record() | damage, {}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    refuses("line 2", Records, tmp_path / "rows.jsonl", SETTINGS)


def test_older_rows_are_read_and_other_files_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    older = {"method": "a", "size": 10, "seed": 0, "accuracy": 0.5, "selection_seconds": 0.1}
    path.write_text(json.dumps({"settings": SETTINGS}) + f"\n{json.dumps(older)}\n")
    assert list(Records(path, SETTINGS).results.values()) == [ROW]
    (tmp_path / "other.jsonl").write_text("hello\n")
    for place in (tmp_path / "none" / "x.jsonl", tmp_path / "other.jsonl"):
        refuses(place.name, Records, place, SETTINGS)


# Pools and the grid.


def pools_of(size=60, test=20, source=None):
    return make_pools(source or Source("blobs", blobs(120)), None, "auto", size, 2000, test)


def test_pools_and_test_data_never_overlap_and_scaling_sees_the_pool_alone():
    data = blobs(120)
    marked = Source("marked", type(data)(np.arange(120.0)[:, None], data.y))
    pool, test = pools_of(source=marked).of(3)
    assert len(pool) == 60
    assert len(test) == 20
    assert not np.isin(pool.x, test.x).any()
    assert pool.ids.tolist() == list(range(60))
    assert pools_of(source=marked).rows(3).tolist() == pool.x.ravel().tolist()
    sorted_pool, _ = pools_of(source=marked).of(3, in_order=True)
    assert pools_of(source=marked).rows(3, in_order=True).tolist() == sorted_pool.x.ravel().tolist()
    own = make_pools(marked, marked.data[:30], "auto", 60, 2000, 20)
    assert own.rows(3).tolist() == own.of(3)[0].x.ravel().tolist()
    scaled_pool, scaled_test = pools_of(source=replace(marked, scale="standard")).of(3)
    assert scaled_pool.x.mean() == pytest.approx(0, abs=1e-12)
    assert scaled_pool.x.std() == pytest.approx(1)
    np.testing.assert_allclose(scaled_test.x, (test.x - pool.x.mean()) / pool.x.std())
    assert not np.array_equal(pool.x, pools_of(source=marked).of(4)[0].x)


@pytest.mark.parametrize(
    ("pool", "test", "words"),
    [
        (101, 20, "pool must be .* 101"),
        (1, 20, "pool must be .* 1"),
        (None, 119, "test must be .* 119"),
        (None, 0, "test must be .* 0"),
    ],
)
def test_impossible_pools_are_refused(pool, test, words):
    refuses(words, make_pools, Source("blobs", blobs(120)), None, "auto", pool, 2000, test)


def test_labels_of_a_built_in_source_cannot_be_replaced():
    refuses("leave y", as_source, "digits", np.zeros(1797))
    refuses("leave y", as_source, "digits", sample_weight=np.ones(1797))


METHODS = ("k-center-features", "uniform", "icarl", "craig")


def comparison(tmp_path, methods=METHODS, seeds=2, judge="ridge", **options):
    records = Records(tmp_path / "rows.jsonl", {"x": 1})
    grid = Grid({name: as_selector(name) for name in methods}, [5, 9], range(seeds))
    return Comparison(
        pools_of(), grid, as_judge(judge, 10), records, Runtime(), model_steps=10, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("judge", few(["ridge", "mlp"]))
def test_grid_is_complete_and_continues_after_an_interrupt(tmp_path, judge):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = comparison(tmp_path / "a", judge=judge, whole=True)
    whole.run()
    assert whole.done() == whole.grid.cells() == 16
    assert not whole.failed
    calls = 0

    def stop(done, words):
        nonlocal calls
        calls += 1
        if calls == 7:
            raise KeyboardInterrupt

    first = comparison(tmp_path / "b", judge=judge, whole=True, callback=stop)
    fails(KeyboardInterrupt, "^$", first.run)
    again = comparison(tmp_path / "b", judge=judge, whole=True)
    kept = again.done()
    assert 0 < kept < 16
    again.run()
    value = {row.cell: row.score for row in whole.records.results.values()}
    assert {row.cell: row.score for row in again.records.results.values()} == pytest.approx(value)
    assert (WHOLE, 60, 1) in value
    fitted = [row for row in whole.records.results.values() if row.method in ("icarl", "craig")]
    assert all(row.model_seconds > 0 for row in fitted)


def test_a_method_that_cannot_work_here_is_left_out_with_its_reason(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    table = Source("table", type(blobs(5))(x, x[:, 0] + 0.5))
    pools = make_pools(table, None, "auto", 40, 2000, 20)
    methods = {name: as_selector(name) for name in ("bilevel", "class-balanced", "uniform")}
    grid = Grid(methods, [5], range(2))
    run = Comparison(pools, grid, RidgeJudge(), Records(tmp_path / "rows.jsonl", {}), Runtime())
    run.run()
    assert list(run.failed) == ["class-balanced"]
    assert "needs class labels" in run.failed["class-balanced"]
    assert run.done() == 4


def test_selection_and_weights_are_evaluated_outside_the_pool(tmp_path):
    seen = []

    class Watching(RidgeJudge):
        def predictions(self, selections, test, outputs, seed):
            seen.append((selections, test, seed))
            return super().predictions(selections, test, outputs, seed)

    run = comparison(tmp_path, methods=("craig",), seeds=2)
    run.judge = Watching()
    run.run()
    for selections, test, seed in seen:
        pool, outside = run.pools.of(seed)
        np.testing.assert_allclose(test.x.numpy(), outside.x, rtol=1e-6)
        rows = {tuple(row) for row in pool.x.astype(np.float32).tolist()}
        assert all(tuple(row) in rows for row in selections[0].x.tolist())
        assert not any(tuple(row) in rows for row in test.x.tolist())
        assert float(selections[0].weight.std()) > 0  # CRAIG's counts
        assert float(selections[0].weight.mean()) == pytest.approx(1, abs=1e-5)


def test_all_judges_evaluate_the_same_selections(tmp_path):
    run = comparison(tmp_path, methods=("uniform",), whole=True, majority=True)
    run.others = [as_judge("knn", 1), as_judge("logistic", 1)]
    run.run()
    assert not run.failed
    rows = run.records.results
    alone = as_judge("knn", 1)
    for seed in range(2):
        stage = Stage(run, seed)
        picked = as_selector("uniform").select(stage.pool, 5, random_state=seed)
        chosen = stage.sample(picked.normalise().of(stage.pool))
        row = rows["uniform", 5, seed]
        assert list(row.measures) == ["ridge", "knn", "logistic"]
        (expected,) = alone.tune(stage.rows).measures([chosen], stage.test, 3, seed)
        assert row.measures["knn"] == expected.values
        assert row.score == row.measures["ridge"]["accuracy"]
        codes = stage.pool.y
        share = np.mean(stage.test.y.numpy() == np.bincount(codes).argmax())
        plain = rows[MAJORITY, 60, seed]
        assert plain.score == plain.measures["knn"]["accuracy"] == pytest.approx(share)
        assert plain.measures["ridge"]["balanced_accuracy"] == pytest.approx(1 / 3)
    first, second, _ = findings_of(run, measure_by("balanced", True))
    mean = np.mean([rows["uniform", 9, one].measures["knn"]["balanced_accuracy"] for one in (0, 1)])
    assert second.summary.of("uniform", 9).mean == pytest.approx(mean)
    assert first.whole["accuracy"].mean > first.majority["accuracy"].mean
    assert not first.note


def test_judge_below_the_majority_on_all_data_is_flagged(tmp_path):
    data = noisy(500)
    source = Source("noisy", type(blobs(5))(data.x.numpy(), data.y.numpy()))
    pools = make_pools(source, None, "auto", 300, 2000, 200)
    grid = Grid({"uniform": as_selector("uniform")}, [20], range(2))
    judge, records = RidgeJudge(ridge=1e-3), Records(tmp_path / "rows.jsonl", {})
    run = Comparison(pools, grid, judge, records, Runtime(), whole=True, majority=True)
    run.run()
    (found,) = findings_of(run, measure_by(None, True))
    assert found.whole["accuracy"].mean < found.majority["accuracy"].mean
    assert found.note.startswith("the ridge model trained on all data")
    run.majority = False
    del run.records.results[MAJORITY, 300, 1]
    assert not findings_of(run, measure_by(None, True))[0].note  # of other seeds


@dataclass(frozen=True)
class Refitting(BaselineSelector):
    """Trains the model itself: what it says about the pool would not do."""

    name = "refitting"

    @property
    def fits_model(self):
        return True

    def _select_points(self, job, selection):
        module = copy.deepcopy(as_module(job.context.model))
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        x = torch.from_numpy(job.data.x).float()
        y = torch.from_numpy(job.data.y)
        with torch.enable_grad():
            losses = torch.nn.functional.cross_entropy(module(x), y, reduction="none")
            losses.mean().backward()
        optimiser.step()
        selection.take_all((-losses.detach()).argsort().tolist())


@pytest.mark.parametrize("judge", few(["ridge", "mlp"]))
def test_a_method_that_fits_the_model_is_given_the_module_itself(tmp_path, judge):
    run = comparison(tmp_path, methods=("icarl",), judge=judge)
    run.grid = replace(run.grid, methods={**run.grid.methods, "refitting": Refitting()})
    run.run()
    assert not run.failed
    assert run.done() == run.grid.cells() == 8
    assert all(row.model_seconds > 0 for row in run.records.results.values())
    stage = Stage(run, 0)
    module = stage.context(Refitting()).model
    assert isinstance(module, torch.nn.Module)
    assert stage.context(as_selector("icarl")).model is stage.observed
    assert stage.context(as_selector("uniform")).model is None


def test_a_judge_that_fails_on_one_selection_leaves_that_one_out(tmp_path):
    class Fragile(NetworkJudge):
        def predictions(self, selections, test, outputs, seed):
            if any(float(sample.x[0, 0]) == float(worst) for sample in selections):
                raise NumericalError("diverged")
            return [torch.zeros(len(test), outputs)] * len(selections)

    run = comparison(tmp_path, methods=("uniform", "k-center-features", "class-balanced"), seeds=1)
    pool, _ = run.pools.of(0)
    picked = as_selector("k-center-features").select(pool, 5, random_state=0)
    worst = np.float32(pool.x[picked.indices[0], 0])
    run.judge = Fragile("mlp", perceptron, 1)
    run.run()
    assert list(run.failed) == ["k-center-features"]
    assert run.done() >= 4


def test_targets_without_spread_are_refused():
    x = torch.zeros(5, 2)
    flat = Sample(x, torch.ones(5, 1), torch.ones(5))
    fails(NumericalError, "all equal", RidgeJudge().scores, [flat], flat, 1, seed=0)


def test_a_partial_selection_is_never_judged(tmp_path, monkeypatch):
    from bicore.methods.baselines.covering import KCenter

    run = comparison(tmp_path, methods=("k-center-features",))

    def interrupt(self, job, selection):
        selection.take(0)
        raise KeyboardInterrupt

    monkeypatch.setattr(KCenter, "_select_points", interrupt)
    fails(KeyboardInterrupt, "^$", run.run)
    assert run.done() == 0
