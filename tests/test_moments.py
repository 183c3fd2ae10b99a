"""Moments: sums that replace rows, and coresets evaluated by them, against fits from scratch."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from bicore import Dataset, InputError
from bicore.bilevel.strategies.refining import Elimination
from bicore.errors import DamagedFileError, MemoryLimitError, NumericalError
from bicore.kernels import Linear
from bicore.methods.registry import greedy_selector
from bicore.moments.moments import Moments, check_room
from bicore.moments.ridge import SEARCHES, Candidates
from tests.helpers import draw_classes, fails


def targets():
    return Moments.empty(7, classes=None, targets=1)


rows = partial(draw_classes, n=60, width=7, shift=0.7)


def fill_triangle(matrix):
    """A symmetric matrix of which the lower triangle counts."""
    return np.tril(matrix) + np.tril(matrix, -1).T


def assert_same_moments(first, second, tolerance=1e-12):
    assert first.classes == second.classes
    for own, other in zip(first.second, second.second, strict=True):
        np.testing.assert_allclose(
            fill_triangle(own), fill_triangle(other), rtol=tolerance, atol=tolerance
        )
    np.testing.assert_allclose(first.cross, second.cross, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(first.counts, second.counts, rtol=tolerance)
    np.testing.assert_allclose(first.constant, second.constant, rtol=tolerance)


def fit_ridge(x, targets, ridge):
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ targets)


def picks(way, *given):
    return np.flatnonzero(SEARCHES[way](*given).inside)


class TestSums:
    def test_they_give_the_loss_of_any_model(self):
        x, y = rows()
        weight = np.random.default_rng(1).uniform(0.5, 2, len(x))
        model = np.random.default_rng(2).normal(size=(x.shape[1], 3))
        outer = Moments.empty(7, classes=(0, 1, 2)).with_rows(x, y, weight).outer()
        square = ((np.eye(3)[y] - x @ model) ** 2).sum(1)
        assert outer.loss(model) == pytest.approx(weight @ square / weight.sum(), rel=1e-12)
        assert outer.energy == pytest.approx(weight @ (x**2).sum(1) / weight.sum())

    @pytest.mark.parametrize("half_life", [None, 13.0])
    @pytest.mark.parametrize("apart", [False, True])
    @given(cuts=some.sets(some.integers(1, 59), max_size=6), seed=some.integers(0, 99))
    @settings(max_examples=5)
    def test_any_split_gives_the_same(self, half_life, apart, cuts, seed):
        x, y = rows(seed=seed)
        weight = np.random.default_rng(seed).uniform(0.1, 3, len(x))
        start = Moments.empty(7, classes=(0, 1, 2), apart=apart, half_life=half_life)
        parts = start
        for piece in np.split(np.arange(len(x)), sorted(cuts)):
            parts = parts.with_rows(x[piece], y[piece], weight[piece])
        assert_same_moments(parts, start.with_rows(x, y, weight))

    @pytest.mark.parametrize("apart", [False, True])
    def test_moments_add_in_any_order_of_classes(self, apart):
        x, y = rows()
        order = np.argsort(y, kind="stable")
        start = Moments.empty(7, apart=apart)
        first, second = (start.with_rows(x[own], y[own]) for own in (order[:25], order[25:]))
        one, other = first + second, second + first
        assert set(one.classes) == set(other.classes) == {0, 1, 2}
        assert one.classes != other.classes
        assert_same_moments(one, other.with_classes(one.classes))
        assert_same_moments(one, start.with_rows(x, y).with_classes(one.classes))

    def test_half_life_halves_earlier_weights(self):
        x, y = rows(n=10)
        start = Moments.empty(7, classes=(0, 1, 2), half_life=10.0).with_rows(x[:1], y[:1])
        assert start.weight == 1.0
        later = start.with_rows(x, y)
        assert later.weight == pytest.approx(0.5 + sum(2.0 ** (-age / 10) for age in range(10)))

    def test_soft_targets_and_logits_are_targets(self):
        x, _ = rows()
        soft = np.random.default_rng(0).normal(size=(len(x), 4))
        model = np.ones((7, 4)) / 7
        outer = Moments.empty(7, classes=None, targets=4).with_rows(x, soft).outer()
        assert outer.loss(model) == pytest.approx(((soft - x @ model) ** 2).sum(1).mean())

    def test_any_class_prior_can_be_given(self):
        x, y = rows(n=200)
        model = np.random.default_rng(2).normal(size=(7, 3))
        moments = Moments.empty(7, classes=(0, 1, 2), apart=True).with_rows(x, y)
        loss = ((np.eye(3)[y] - x @ model) ** 2).sum(1)
        means = [loss[y == label].mean() for label in range(3)]
        assert moments.outer().loss(model) == pytest.approx(loss.mean())
        assert moments.outer("equal").loss(model) == pytest.approx(np.mean(means))
        mine = moments.outer({0: 3.0, 2: 1.0}).loss(model)
        assert mine == pytest.approx(0.75 * means[0] + 0.25 * means[2])

    def test_rows_in_any_precision_are_summed_in_float64(self):
        x = np.full((10_000, 1), 0.1, dtype=np.float32)
        moments = Moments.empty(1, classes=None).with_rows(x)
        assert moments.second[0][0, 0] == pytest.approx(10_000 * float(x[0, 0]) ** 2, rel=1e-12)

    def test_saved_and_loaded_they_are_the_same(self, tmp_path):
        x, y = rows()
        labels = np.array(["ant", "bee", "cow"])[y]
        moments = Moments.empty(7, apart=True, half_life=50.0, map="m").with_rows(x, labels)
        found = Moments.load(moments.save(tmp_path / "moments.npz"))
        assert_same_moments(moments, found, 0)
        assert (found.map, found.half_life, found.apart) == ("m", 50.0, True)
        values, arrays = moments.to_state()
        assert arrays["second0"].shape == (28,)  # one triangle; version 0.2 stored both
        squares = {f"second{k}": one for k, one in enumerate(moments.second)}
        assert_same_moments(moments, Moments.from_state(values, arrays | squares), 0)
        content = bytearray((tmp_path / "moments.npz").read_bytes())
        content[content.index(b"second0") + 200] ^= 1
        (tmp_path / "moments.npz").write_bytes(content)
        with pytest.raises(DamagedFileError):
            Moments.load(tmp_path / "moments.npz")

    @pytest.mark.parametrize(
        ("change", "error", "words"),
        [
            (lambda m, x, y: m.with_rows(x[:, :3], y), InputError, "must have 7 columns"),
            (lambda m, x, y: m.with_rows(x * np.nan, y), NumericalError, "row 0"),
            (lambda m, x, y: m.with_rows(x), InputError, "y is missing"),
            (lambda m, x, y: m.with_rows(x, y[:4]), InputError, "4 labels for 60"),
            (lambda m, x, y: m + Moments.empty(7, map="other"), InputError, "map"),
            (lambda m, x, y: m + Moments.empty(6), InputError, "width"),
            (lambda m, x, y: m + 1, InputError, "other must be moments"),
            (lambda m, x, y: Moments.empty(-1), InputError, "width"),
            (
                lambda m, x, y: m.with_rows(1e200 * x, y),
                NumericalError,
                "row .* scale rows, targets",
            ),
            (lambda m, x, y: m.with_rows(x, [np.nan, *y[1:]]), InputError, r"y\[0\] is not"),
            (
                lambda m, x, y: targets().with_rows(x, y * np.nan),
                NumericalError,
                "targets of row 0",
            ),
            (lambda m, x, y: targets().with_rows(x[:3], np.ones((2, 3))), InputError, "3 rows"),
            (lambda m, x, y: Moments.empty(7, half_life="9"), InputError, "half_life"),
            (lambda m, x, y: m + Moments.empty(7, classes=None), InputError, "class labels"),
            (lambda m, x, y: m.outer(), InputError, "no rows"),
            (lambda m, x, y: m.with_rows(x, y).outer("equal"), InputError, "apart=True"),
            (lambda m, x, y: Moments.empty(7, half_life=0.0), InputError, "half_life"),
            (lambda m, x, y: check_room(1000, 10, False, 10**6), MemoryLimitError, "at most 245"),
        ],
    )
    def test_memory_errors_name_the_limit(self, change, error, words):
        fails(error, words, change, Moments.empty(7), *rows())

    def test_no_rows_change_nothing(self):
        known = Moments.empty(7).with_rows(*rows())
        assert known.with_rows(np.empty((0, 7)), []) is known

    def test_numpy_scalars_are_saved(self, tmp_path):
        known = Moments.empty(
            np.int64(7), classes=np.arange(3), half_life=np.float32(50), apart=np.True_
        ).with_rows(*rows())
        again = Moments.load(known.save(tmp_path / "moments.npz"))
        assert (again.classes, again.half_life) == ((0, 1, 2), 50.0)
        np.testing.assert_array_equal(again.cross, known.cross)

    def test_the_width_that_is_named_fits(self):
        for outputs, apart in ((1, False), (50, False), (10, True)):
            with pytest.raises(MemoryLimitError) as error:
                check_room(5000, outputs, apart, 10**8)
            fits = int(str(error.value).split("at most ")[1].split()[0])
            check_room(fits, outputs, apart, 10**8)
            with pytest.raises(MemoryLimitError):
                check_room(fits + 1, outputs, apart, 10**8)

    def test_a_class_that_has_faded_away_is_as_one_that_never_came(self):
        x, y = rows(n=200)
        moments = Moments.empty(7, apart=True, half_life=1.0).with_rows(x[y == 0], y[y == 0])
        for _ in range(8):
            moments = moments.with_rows(x[y == 1], y[y == 1])
        outer = moments.outer("equal")
        assert np.isfinite(outer.second).all()
        np.testing.assert_allclose(moments.shares("equal"), [0, 1])


class TestCandidates:
    @pytest.mark.parametrize("start", [0, 5, 40])
    def test_costs_equal_those_of_fits_from_scratch(self, start):
        x, y = rows(n=40)
        other, labels = rows(n=200, seed=1)
        outer = Moments.empty(7, classes=(0, 1, 2)).with_rows(other, labels).outer()
        targets = np.eye(3)[y]
        inside = np.arange(40) < start
        candidates = Candidates(outer, x, targets, 0.3, inside)

        def loss(own):
            return outer.loss(fit_ridge(x[own], targets[own], 0.3))

        rng = np.random.default_rng(0)
        for step in range(150):  # beyond the terms that are kept aside
            own = candidates.inside.copy()
            row = int(rng.integers(40))
            if step % 10 == 0:
                assert candidates.objective == pytest.approx(loss(own), abs=1e-10)
                turned = own.copy()
                turned[row] ^= True
                change = candidates.removal_costs()[row] if own[row] else -candidates.gains()[row]
                assert loss(turned) - loss(own) == pytest.approx(change, abs=1e-10)
            candidates.change(row)
        assert candidates.refit() == pytest.approx(candidates.objective, abs=1e-10)

    def test_the_gradient_is_a_finite_difference(self):
        x, y = rows(n=30)
        outer = Moments.empty(7, classes=(0, 1, 2)).with_rows(x, y).outer()
        targets = np.eye(3)[y]
        inside = np.arange(30) < 10
        slopes = Candidates(outer, x, targets, 0.3, inside).gradients()
        for row in (3, 20):
            values = []
            for weight in (1e-5, -1e-5):
                weights = inside.astype(float)
                weights[row] += weight
                system = x.T @ (weights[:, None] * x) + 0.3 * np.eye(7)
                values.append(
                    outer.loss(np.linalg.solve(system, x.T @ (weights[:, None] * targets)))
                )
            assert -(values[0] - values[1]) / 2e-5 == pytest.approx(slopes[row], rel=1e-5, abs=1e-9)

    @pytest.mark.parametrize(
        ("way", "options"),
        [
            ("gradient", {"rule": "gradient"}),
            ("gain", {"rule": "gain"}),
            ("elimination", {"rule": "gain", "strategy": Elimination(math.inf)}),
        ],
    )
    def test_picks_are_those_of_the_engine_on_rows(self, way, options):
        x, y = rows(n=80, width=12)
        selector = greedy_selector(
            kernel=Linear(), intercept=0, inner_reg=0.5, first="best", **options
        )
        picked = selector.select(Dataset(x, y), 15)
        targets = np.eye(3)[y] - np.eye(3)[y].mean(0)  # as the squared loss there has them
        outer = Moments.empty(12, classes=None, targets=3).with_rows(x, targets).outer()
        own = picks(way, outer, x, targets, 0.5, 15)
        assert sorted(picked.indices.tolist()) == own.tolist()
        objective = outer.loss(fit_ridge(x[own], targets[own], 0.5))
        assert objective == pytest.approx(picked.objective, rel=1e-9)

    def test_exchanges_end_below_elimination(self):
        better = 0
        for seed in range(4):
            x, y = rows(n=60, width=12, seed=seed)
            outer = Moments.empty(12, classes=(0, 1, 2)).with_rows(x, y).outer()
            loss = {
                way: outer.loss(fit_ridge(x[own], np.eye(3)[y][own], 0.5))
                for way in ("elimination", "exchange")
                for own in [picks(way, outer, x, np.eye(3)[y], 0.5, 8)]
            }
            assert loss["exchange"] <= loss["elimination"] + 1e-12
            better += loss["exchange"] < loss["elimination"] - 1e-9
        assert better >= 1

    def test_of_equal_rows_the_last_one_is_removed_first(self):
        x, y = rows(n=20)
        twice, labels = np.vstack([x, x]), np.concatenate([y, y])
        outer = Moments.empty(7, classes=(0, 1, 2)).with_rows(x, y).outer()
        first = picks("elimination", outer, twice, np.eye(3)[labels], 0.3, 20)
        assert len(set((first % 20).tolist())) >= 15
        assert (first < 20).sum() >= 15

    def test_a_system_without_an_inverse_is_named(self):
        x = np.ones((5, 2)) * 1e9
        outer = Moments.empty(2, classes=None, targets=1).with_rows(x, np.ones(5)).outer()
        with pytest.raises(NumericalError, match="inner_reg"):
            SEARCHES["elimination"](outer, x, np.ones((5, 1)), 1e-9, 2)

    def test_products_that_are_known_are_not_needed_again(self):
        x, y = rows(n=40)
        outer = Moments.empty(7, classes=(0, 1, 2)).with_rows(x, y).outer()
        plain = Candidates(outer, x, np.eye(3)[y], 0.3)
        own = np.ix_(range(15), range(15))
        known = plain.gram[own], plain.quadratic[own]
        found = Candidates(outer, x, np.eye(3)[y], 0.3, known=known)
        np.testing.assert_allclose(found.gram, plain.gram, atol=1e-12)
        np.testing.assert_allclose(found.quadratic, plain.quadratic, atol=1e-12)
