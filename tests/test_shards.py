"""Selection in passes over rows in parts, compared with selection in memory."""

import numpy as np
import pytest
import torch

from bicore import Dataset, InputError, Runtime, TimeLimitError
from bicore.bilevel import Relative
from bicore.coreset import Status
from bicore.kernels import Linear
from bicore.methods.registry import greedy_selector
from bicore.moments.features.base import WithConstant
from bicore.moments.features.maps import Rows
from bicore.moments.moments import Moments
from bicore.moments.ridge import Candidates, FeatureRows, FeatureState, exchange_rows
from bicore.shards.executors import Threads
from bicore.shards.request import Request
from bicore.shards.selection import Selection, select_from_shards
from bicore.shards.state import StateFolder
from bicore.sources.numpy_files import NpyShards
from bicore.sources.parts import ArrayShards
from tests.helpers import draw_classes, fails, refuses
from tests.marks import few


def outer_of(x, y, classes=3):
    targets = np.eye(classes)[y] - np.bincount(y, minlength=classes) / len(y)
    return Moments.empty(x.shape[1], classes=None, targets=classes).with_rows(
        x, targets
    ).outer(), targets


def select_rows(x, y, size, part=100, **options):
    return select_from_shards(
        ArrayShards(x, y, part_rows=part), size, feature_map=Rows(), **options
    )


def slopes_of(state, x, targets):
    return FeatureRows(state, x, targets).gradients()


class TestEngine:
    def test_steps_equal_fits_from_scratch(self):
        x, y = draw_classes(60)
        outer, targets = outer_of(x, y)
        state = FeatureState(outer, 0.4)
        shortlist = FeatureRows(state, x, targets)
        for place, sign in ((3, 1), (17, 1), (41, 1), (8, 1), (17, -1), (50, 1)):
            gain = shortlist.gains()[place] if sign > 0 else -shortlist.removal_costs()[place]
            before = state.objective
            shortlist.change(place)
            assert before - state.objective == pytest.approx(gain, rel=1e-9)
        own = [3, 8, 41, 50]
        assert np.flatnonzero(shortlist.inside).tolist() == own
        again = state.refit(x[own], targets[own])
        assert again.objective == pytest.approx(state.objective, abs=1e-12)
        np.testing.assert_allclose(again.both, state.both, atol=1e-9)
        fresh = FeatureRows(again, x, targets, shortlist.inside)
        np.testing.assert_allclose(shortlist.gains(), fresh.gains(), atol=1e-10)
        np.testing.assert_allclose(shortlist.removal_costs(), fresh.removal_costs(), atol=1e-10)
        np.testing.assert_allclose(shortlist.gradients(), fresh.gradients(), atol=1e-10)

    def test_exchanges_in_features_are_those_among_candidates(self):
        x, y = draw_classes(80)
        outer, targets = outer_of(x, y)
        inside = np.arange(80) < 15
        state = FeatureState(outer, 0.4).refit(x[inside], targets[inside])
        primal = FeatureRows(state, x, targets, inside)
        dual = Candidates(outer, x, targets, 0.4, inside)
        stay = np.arange(80) < 4
        assert exchange_rows(primal, lambda _: ~stay) == exchange_rows(dual, lambda _: ~stay) > 0
        assert primal.inside.tolist() == dual.inside.tolist()
        assert primal.inside[:4].all()
        assert primal.objective == pytest.approx(dual.objective, rel=1e-9)

    @pytest.mark.parametrize("classes", [3, 8])
    def test_the_growth_of_a_slope_is_never_more_than_its_bound(self, classes):
        for seed in range(5):
            x, y = draw_classes(300, seed=seed, classes=classes)
            outer, targets = outer_of(x, y, classes)
            shares = np.bincount(y, minlength=classes) / len(y)
            state = FeatureState(outer, 0.1 * outer.energy)
            longest = float((x**2).sum(1).max())
            for place in range(5):
                state.change(x[place], targets[place])
            before, slopes = state.both.copy(), slopes_of(state, x, targets)
            assert state.growth_since(before, longest, shares) == 0
            for place in range(5, 40):
                state.change(x[place], targets[place])
                now = FeatureRows(state, x, targets)
                bound = state.growth_since(before, longest, shares)
                assert (now.gradients() - slopes).max() <= bound
                assert (now.gains() <= np.maximum(now.gradients(), 0) + 1e-12).all()


class TestSelection:
    def test_one_point_a_pass_equals_selection_in_memory(self):
        x, y = draw_classes()
        found = select_rows(x, y, 20, rule="gradient", exact=True)
        selector = greedy_selector(
            kernel=Linear(), inner_reg=found.provenance.inner_reg, intercept="auto"
        )
        plain = selector.select(Dataset(x, y), 20)
        assert found.indices.tolist() == plain.indices.tolist()
        assert found.objective == pytest.approx(plain.objective, rel=1e-9)
        assert found.details == {"passes": 20, "certain": 20, "bad_rows": 0}

    @pytest.mark.parametrize(("inner_reg", "same"), [(1e-5, 12), (1e-7, 9)])
    def test_gains_with_as_many_points_as_features_are_those_in_memory(self, inner_reg, same):
        """With a small ρ, ‖φ‖² − ‖Rφ‖² is rounding once the points span the 9 features; with a
        tiny one float32 cannot rank the rows after these, but none comes twice."""
        x, y = draw_classes(600)
        found = select_rows(x, y, 12, rule="gain", exact=True, exchange=False, inner_reg=inner_reg)
        plain = greedy_selector(Linear(), inner_reg=inner_reg, rule="gain", intercept="auto")
        whole = plain.select(Dataset(x, y), 12)
        assert found.indices[:same].tolist() == whole.indices[:same].tolist()
        assert len(set(found.indices.tolist())) == 12

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_one_point_a_pass_by_gains_equals_selection_in_memory(self, dtype):
        """Of all rows: the best gain is not among the steepest rows of a part."""
        x, y = draw_classes(1000, dtype=dtype)
        x *= np.geomspace(0.2, 5, len(x))[:, None].astype(dtype)
        found = select_rows(x, y, 20, part=1000, rule="gain", exact=True)
        inner = found.provenance.inner_reg
        plain = greedy_selector(Linear(), inner_reg=inner, rule="gain", intercept="auto")
        whole = plain.select(Dataset(x.astype(np.float64), y), 20)
        assert found.indices.tolist() == whole.indices.tolist()
        assert found.objective == pytest.approx(whole.objective, rel=1e-9)
        assert found.details == {"passes": 20, "certain": 20, "bad_rows": 0}
        x = WithConstant(Rows()).fit(x).exact(torch.from_numpy(x)).numpy()
        outer, targets = outer_of(x, y)
        state = FeatureState(outer, inner)
        steeper = []
        for best in found.indices:
            slopes = slopes_of(state, x, targets)
            steeper.append((slopes > slopes[best]).sum())
            state.change(x[best], targets[best])
        assert max(steeper) > 16

    def test_exact_gains_of_targets_and_of_many_classes(self):
        x, y = draw_classes(500, classes=6, width=5)
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        for labels in (y, np.stack([x[:, 0] ** 2, x[:, 1]], 1)):
            found = select_from_shards(ArrayShards(x, labels, part_rows=90), 12, exact=True)
            inner = found.provenance.inner_reg
            plain = greedy_selector(Linear(), inner_reg=inner, rule="gain", intercept="auto")
            whole = plain.select(Dataset(unit, labels), 12)
            assert found.indices.tolist() == whole.indices.tolist()
            assert found.details["certain"] == 12

    @pytest.mark.slow
    def test_the_default_is_near_the_exact_gains(self):
        x, y = draw_classes(1000)
        found = select_rows(x, y, 30, exchange=False, shortlist=300)
        inner = found.provenance.inner_reg
        plain = greedy_selector(Linear(), inner_reg=inner, rule="gain", intercept="auto")
        assert found.objective <= 1.005 * plain.select(Dataset(x, y), 30).objective
        assert found.details["passes"] < 40
        better = select_rows(x, y, 30, shortlist=300)
        assert better.objective < found.objective
        assert "exchanges" in better.provenance.notes[0]

    @pytest.mark.parametrize("dtype", few([np.float16, np.float32]))
    def test_parts_and_workers_change_nothing(self, dtype, tmp_path):
        x, y = draw_classes(dtype=dtype)
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        source = NpyShards(tmp_path / "x.npy", labels=tmp_path / "y.npy", part_rows=60)
        one = select_from_shards(source, 15, executor=Threads(1))
        two = select_from_shards(source, 15, executor=Threads(2))
        assert one.indices.tolist() == two.indices.tolist()
        assert one.objective == two.objective
        whole = select_from_shards(ArrayShards(x, y), 15)
        assert sorted(one.indices.tolist()) == sorted(whole.indices.tolist())

    def test_a_stopped_selection_continues_to_the_same_points(self, tmp_path, monkeypatch):
        x, y = draw_classes()
        plain = select_rows(x, y, 25)
        real = Selection._pass
        left = [6]

        def failing(self):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return real(self)

        monkeypatch.setattr(Selection, "_pass", failing)
        stopped = select_rows(x, y, 25, state=tmp_path)
        assert stopped.status is Status.INTERRUPTED
        assert len(stopped) == len(stopped.objectives) == 5
        monkeypatch.setattr(Selection, "_pass", real)
        again = select_rows(x, y, 25, state=tmp_path)
        assert again.indices.tolist() == plain.indices.tolist()
        assert again.objective == plain.objective
        refuses("different size", select_rows, x, y, 26, state=tmp_path)
        refuses("different fingerprint", select_rows, x + 1, y, 25, state=tmp_path)

    def test_the_regulariser_is_absolute_or_relative(self):
        x, y = draw_classes()
        energy = 2 * (x**2).sum(1).mean()  # with the constant feature
        for given, rho in (
            (0.3, 0.3), (Relative(0.2), 0.2 * energy), ("auto", 0.1 * energy)
        ):  # fmt: skip
            found = select_rows(x, y, 3, inner_reg=given)
            assert found.provenance.inner_reg == pytest.approx(rho)

    def test_points_beyond_the_width_and_a_fraction_of_the_rows(self):
        x, y = draw_classes(width=4)
        found = select_rows(x, y, 0.1)
        assert len(found) == 60 == len(set(found.indices.tolist()))

    def test_exchanges_leave_initial_points_alone(self):
        x, y = draw_classes()
        begun = [5, 599, 77, 301]
        found = select_rows(x, y, 10, initial=begun)
        assert found.indices[:4].tolist() == begun
        assert "exchanges" in found.provenance.notes[0]
        assert not set(begun) <= set(select_rows(x, y, 10).indices.tolist())

    @pytest.mark.parametrize("rule", few(["gain", "gradient"]))
    def test_quotas_are_those_in_memory(self, rule):
        x, y = draw_classes()
        y = np.where(np.arange(len(y)) % 40 == 0, 2, y % 2)  # fifteen rows of the last class
        for quotas in ("balanced", {0: 3, 2: 1}):
            options = {"rule": rule, "quotas": quotas}
            found = select_rows(x, y, 20, exact=True, **options)
            inner = found.provenance.inner_reg
            plain = greedy_selector(Linear(), inner_reg=inner, intercept="auto", **options)
            whole = plain.select(Dataset(x, y), 20)
            assert found.indices.tolist() == whole.indices.tolist()

    def test_quotas_hold_through_batches_and_exchanges(self):
        x, y = draw_classes()
        y = np.where(np.arange(len(y)) % 40 == 0, 2, y % 2)
        found = select_rows(x, y, 60, quotas="balanced")
        assert np.bincount(y[found.indices]).tolist() == [23, 22, 15]  # the last class is spent
        assert "exchanges" in found.provenance.notes[0]
        free, capped = (select_rows(x, y, 30, quotas=quotas) for quotas in (None, {0: 4}))
        assert (y[capped.indices] == 0).sum() <= 4 < (y[free.indices] == 0).sum()
        for size, quotas, count in ((300, {0: 10, 1: 10}, 35), (10, {0: 3, 1: 3, 2: 3}, 9)):
            fewer = select_rows(x, y, size, quotas=quotas)
            plain = greedy_selector(kernel=Linear(), quotas=quotas).select(Dataset(x, y), size)
            assert fewer.status is plain.status is Status.FEWER
            assert len(fewer) == len(plain) == count
        refuses("not a class of y", select_rows, x, y, 10, quotas={7: 3})
        refuses("y holds numeric targets", select_rows, x, x[:, 0], 10, quotas="balanced")

    def test_outer_set_defines_the_objective(self):
        x, y = draw_classes()
        judge = draw_classes(seed=7)
        mine = select_from_shards(
            ArrayShards(x, y), 10, outer=ArrayShards(*judge), feature_map=Rows(), exchange=False
        )
        map = WithConstant(Rows()).fit(x)
        x, others = (map.exact(torch.from_numpy(rows)).numpy() for rows in (x, judge[0]))
        outer, _ = outer_of(others, judge[1])
        shares = np.bincount(judge[1], minlength=3) / len(judge[1])
        targets = np.eye(3)[y[mine.indices]] - shares
        state = FeatureState(outer, mine.provenance.inner_reg).refit(x[mine.indices], targets)
        assert state.objective == pytest.approx(mine.objective, rel=1e-9)

    def test_targets_and_equal_classes(self):
        x, y = draw_classes()
        found = select_rows(x, x[:, 0] - x[:, 1], 12)
        assert found.objective < 0.5 * found.provenance.empty_objective
        rare = np.where(np.arange(len(y)) % 20 == 0, 2, y % 2)
        x = x + 2 * np.eye(3, 8)[rare]
        data, equal = (
            select_rows(x, rare, 12, prior=prior, exchange=False) for prior in ("data", "equal")
        )
        assert (rare[equal.indices] == 2).sum() > (rare[data.indices] == 2).sum()

    def test_time_and_memory_limits_hold(self):
        x, y = draw_classes()
        with pytest.raises(TimeLimitError, match="raise max_seconds"):
            select_rows(x, y, 50, runtime=Runtime(max_seconds=1e-9))
        fails(MemoryError, "at most", select_rows, x, y, 5, runtime=Runtime(memory=600))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"size": 0}, "size .*got 0"),
            ({"size": 601}, "size .*got 601"),
            ({"size": True}, "size .*got True"),
            ({"size": 5, "rule": "best"}, "rule"),
            ({"size": 5, "exact": "all"}, "exact"),
            ({"size": 5, "inner_reg": -1.0}, "inner_reg"),
            ({"size": 5, "quotas": "equal"}, "quotas"),
            ({"size": 5, "quotas": {0: -1}}, "quotas"),
            ({"size": 5, "initial": [600]}, "initial holds row 600"),
        ],
    )
    def test_impossible_requests_are_named(self, options, words):
        refuses(words, select_rows, *draw_classes(), **options)


class TestMemory:
    def test_a_limit_shortens_the_shortlist(self):
        asked = Request(10, Rows().fit(np.zeros((1, 256))))
        assert asked.limit_shortlist(Runtime("cpu")) == asked
        held = asked.limit_shortlist(Runtime("cpu", memory="100MB"))
        assert held.shortlist == 1220 < asked.shortlist

    def test_memory_limit_error_names_the_need(self):
        x, y = draw_classes()
        source = ArrayShards(x, y, part_rows=600)
        kept = select_from_shards(source, 5, runtime=Runtime("cpu", memory="1GB"))
        assert not [note for note in kept.provenance.notes if note.startswith("memory")]
        over = select_from_shards(source, 5, runtime=Runtime("cpu", memory="1MB"))
        (note,) = (note for note in over.provenance.notes if note.startswith("memory"))
        assert "beyond the limit of 1 MB" in note
        assert "parts of 600 rows" in note
        assert len(over) == 5


def test_a_state_is_locked_by_one_process(tmp_path):
    x, y = draw_classes()
    source = ArrayShards(x, y, part_rows=300)
    with StateFolder(tmp_path, {}), pytest.raises(InputError, match="in use by process"):
        select_from_shards(source, 5, state=tmp_path)
    assert len(select_from_shards(source, 5, state=tmp_path)) == 5
