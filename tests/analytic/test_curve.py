"""The held-out loss along a run against refits, and the size found from it."""

from dataclasses import replace

import numpy as np
import pytest

from bicore import BilevelSelector, Dataset, Runtime, select
from bicore.bilevel import PerPoint
from bicore.coreset import Status
from bicore.kernels import RBF
from bicore.methods import Exchange, Uniform, quality_curve
from bicore.methods.quality_curve import select_smallest
from bicore.methods.registry import greedy_selector
from bicore.runtime.clock import Clock
from tests.helpers import blobs, line, refuses


def data(n=120):
    return blobs(n, classes=3, features=3, seed=1)


def test_losses_equal_refits_on_held_out_points():
    given = data()
    kernel = RBF(0.3)
    curve = quality_curve(greedy_selector(kernel=kernel, inner_reg=0.1), given, 20)
    assert curve.held_out == 24
    assert len(curve.coreset) == 20
    # Written out: ridge on the prefix, one-hot targets centred by the training part, on the
    # held-out points.
    whole = quality_curve(greedy_selector(kernel=kernel, inner_reg=0.1), given)
    order = whole.coreset.ids
    assert order[:20].tolist() == curve.coreset.ids.tolist()
    judges = np.setdiff1d(np.arange(120), order)
    assert len(judges) == 24
    one_hot = np.eye(3)[given.y]
    centre = one_hot[order].mean(0)
    for size in (1, 7, 20, len(order)):
        points = order[:size]
        gram = kernel(given.x[points])
        alpha = np.linalg.solve(gram + 0.1 * np.eye(size), one_hot[points] - centre)
        loss = (
            ((kernel(given.x[judges], given.x[points]) @ alpha - one_hot[judges] + centre) ** 2)
            .sum(1)
            .mean()
        )
        assert whole.losses[size - 1] == pytest.approx(loss, rel=1e-8)
    assert whole.full == pytest.approx(whole.losses[-1], rel=1e-8)
    assert whole.empty > whole.full


@pytest.mark.parametrize(
    "options", [{"loss": "cross-entropy", "inner_reg": 0.1}, {"inner_reg": PerPoint(1e-2)}]
)
def test_costly_prefixes_evaluate_fewer_sizes_with_equal_losses(options):
    given = data(90)
    selector = greedy_selector(kernel=RBF(0.3), **options)
    curve = quality_curve(selector, given, 30)
    assert curve.sizes[:3].tolist() == [1, 2, 3]
    assert curve.sizes[-1] == 30
    order = curve.coreset.ids
    judges = np.setdiff1d(np.arange(90), quality_curve(selector, given).coreset.ids)
    part = np.setdiff1d(np.arange(90), judges)
    at = {int(k): number for number, k in enumerate(part)}
    given_part = Dataset(given.x[part], given.y[part])
    judge = Dataset(given.x[judges], given.y[judges])
    again = selector.select(given_part, 30, outer=judge, initial=[at[int(k)] for k in order])
    assert curve.losses[-1] == pytest.approx(again.objectives[-1], rel=1e-5)


@pytest.mark.slow
def test_the_size_found_is_the_first_from_which_the_loss_stays_within_the_tolerance():
    given = blobs(300, classes=3, features=3, seed=2)
    selector = greedy_selector(kernel=RBF(0.05), inner_reg=0.1)
    curve = quality_curve(selector, given)
    size = curve.smallest(0.1)
    assert 10 < size < 100
    assert (curve.losses[size - 1 :] <= 1.1 * curve.full).all()
    assert curve.losses[size - 2] > 1.1 * curve.full
    assert curve.smallest(-0.9) is None
    assert curve.smallest(100) == 1
    coreset = select_smallest(selector, given, 0.1)
    assert len(coreset) == size
    assert coreset.indices.tolist() == selector.select(given, size).indices.tolist()
    told = coreset.details["auto_size"]
    assert told["full_loss"] == pytest.approx(curve.full)
    assert told["loss"] == pytest.approx(curve.losses[size - 1])
    tight = select(given, size="auto", kernel=RBF(0.05), inner_reg=0.1, tolerance=0.03)
    assert len(tight) > size
    swapped = replace(selector, strategy=Exchange(rounds=3))
    again = select_smallest(swapped, given, 0.1)
    assert "held-out rows" in again.provenance.notes[0]
    assert again.details["strategy"] == repr(Exchange(rounds=3))


def test_learned_weights_use_the_size_of_unit_weights():
    given = data()
    plain, coreset = (
        select_smallest(greedy_selector(kernel=RBF(0.3), inner_reg=0.1, weighting=kind), given, 0.2)
        for kind in ("uniform", "learned")
    )
    assert coreset.details["auto_size"] == plain.details["auto_size"]
    assert coreset.weights.std() > 0


def test_points_of_weight_zero_do_not_count_and_quotas_are_noted():
    given = data()
    weights = np.where(np.arange(120) < 40, 1.0, 0.0)
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=0.1)
    curve = quality_curve(selector, Dataset(given.x, given.y, weights))
    assert curve.held_out + len(curve.coreset) == 40
    capped = greedy_selector(kernel=RBF(0.3), inner_reg=0.1, quotas={0: 1, 1: 1, 2: 1})
    refuses("allow 3 rows, and no size", select_smallest, capped, given, 0.01)


def test_parts_of_a_run_share_its_time_limit(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(Clock, "now", staticmethod(lambda: now[-1]))
    clock = Clock(10.0)
    now.append(7.0)
    left = Runtime(max_seconds=10.0).for_part(clock)
    assert left.max_seconds == 3
    now.append(14.0)
    assert 0 < Runtime(max_seconds=10.0).for_part(clock).max_seconds < 1e-6
    assert Runtime().for_part(Clock()).max_seconds is None


@pytest.mark.usefixtures("long_grace")
def test_an_interrupted_run_is_reported():
    words, runtime = "size='auto' was stopped by max_seconds", Runtime(max_seconds=1e-9)
    selector = greedy_selector(kernel=RBF(0.05), inner_reg=0.1)
    refuses(words, select_smallest, selector, data(300), 1e-3, runtime=runtime)


def test_row_order_plays_no_part_and_regression_works():
    given = data(80)
    order = np.random.default_rng(0).permutation(80)
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=0.1)
    shuffled = Dataset(given.x[order], given.y[order], ids=order)
    np.testing.assert_allclose(
        quality_curve(selector, given, 9).losses, quality_curve(selector, shuffled, 9).losses
    )
    numbers = quality_curve(greedy_selector(kernel=RBF(0.3), inner_reg=0.1), line(60), 12)
    assert numbers.losses[-1] < numbers.empty
    targets = greedy_selector(kernel=RBF(0.3), inner_reg=0.1, task="regression")
    curves = [quality_curve(targets, Dataset(given.x, y), 9) for y in (order, 1.0 * order)]
    assert curves[0].losses.tolist() == curves[1].losses.tolist()


def test_an_interrupt_of_the_curve_ends_the_selection(monkeypatch):
    found = replace(greedy_selector().select(data(50), 9), status=Status.INTERRUPTED)
    monkeypatch.setattr(BilevelSelector, "select", lambda *_, **__: found)
    with pytest.raises(KeyboardInterrupt):
        select_smallest(greedy_selector(), data(), 100.0)


def test_bad_input_is_refused():
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=0.1)
    refuses("size='auto'", Uniform().select, data(), "auto")
    refuses("held_out", quality_curve, selector, data(), held_out=1.5)
    refuses("needs labels", quality_curve, selector, Dataset(data().x))
    matrix, few = Dataset(np.eye(4), np.arange(4) % 2), Dataset(np.zeros((3, 1)), [0, 1, 1])
    refuses("cannot be split", quality_curve, greedy_selector(kernel="precomputed"), matrix)
    refuses("leaves one part empty", quality_curve, selector, few, held_out=0.01)
    refuses("tolerance", select, blobs(30), size="auto", tolerance=-1)


def test_outer_set_replaces_held_out_rows():
    given = blobs(200, classes=3, features=3, seed=2)
    # Of all that the data holds, the outer set asks for one corner alone.
    corner = np.argsort(given.x[:, 0])[:40]
    outer = Dataset(given.x[corner] + 0.01, given.y[corner])
    selector = greedy_selector(kernel=RBF(0.3), inner_reg=0.1)
    curve = quality_curve(selector, given, outer=outer)
    assert curve.held_out == 40
    assert sorted(curve.coreset.indices.tolist()) == list(range(200))
    # Written out: ridge on all of the data, judged on the outer set.
    one_hot = np.eye(3)[given.y]
    centre = one_hot.mean(0)
    kernel = RBF(0.3)
    alpha = np.linalg.solve(kernel(given.x) + 0.1 * np.eye(200), one_hot - centre)
    left = kernel(outer.x, given.x) @ alpha + centre - np.eye(3)[outer.y]
    assert curve.full == pytest.approx((left**2).sum(1).mean(), rel=1e-8)
    options = {"kernel": kernel, "inner_reg": 0.1, "size": "auto", "tolerance": 0.1}
    options["method"] = "bilevel-ntk"
    apart = select(given, outer=outer, **options)
    whole = select(given, **options)
    assert len(apart) == curve.smallest(0.1)
    assert len(apart) < len(whole)
    assert apart.details["auto_size"]["loss"] == pytest.approx(apart.objective)
    assert apart.objective <= 1.1 * curve.full
    assert "40 outer rows" in apart.provenance.notes[0]


def test_precomputed_matrix_with_outer_set_has_automatic_size():
    given = data()
    outer = data(150)[np.arange(120, 150)]
    kernel = RBF(0.3)
    options = {"size": "auto", "tolerance": 0.2, "inner_reg": 0.1}
    plain = select(given, outer=outer, kernel=kernel, **options)
    matrix = Dataset(kernel(given.x), given.y)
    judge = Dataset(kernel(outer.x, given.x), outer.y)
    own = select(matrix, outer=judge, kernel="precomputed", **options)
    assert own.indices.tolist() == plain.indices.tolist()


def test_the_components_of_an_outer_set_judge_a_reconstruction():
    given = data()
    shifted = Dataset(given.x[:30] + 3.0)
    options = {"size": "auto", "method": "reconstruction", "tolerance": 0.1}
    one, other = (select(Dataset(given.x), outer=one, **options) for one in (None, shifted))
    assert len(one) != len(other)
