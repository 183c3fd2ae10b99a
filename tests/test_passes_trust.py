"""Selection in passes: the same result for any offset, scale and division of the data."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge

from bicore import Dataset, InputError, NumericalError, Runtime, select
from bicore.coreset import Status
from bicore.kernels import RBF, Linear, Standardised, UnitRows
from bicore.methods.registry import greedy_selector
from bicore.moments.features.base import WithConstant
from bicore.moments.features.maps import Rows
from bicore.moments.features.registry import map_from_state, map_to_state
from bicore.shards.executors import GPUExecutor, Threads
from bicore.shards.selection import select_from_shards
from bicore.sources.parts import ArrayShards, Part
from bicore.streaming import MomentMemory, Reservoir
from tests.helpers import draw_gaussians, refuses
from tests.marks import diagonal


class TestIntercept:
    @pytest.mark.parametrize(("share", "size"), diagonal([0.5, 0.3, 0.1], [2, 5, 10], 3))
    def test_d1_points_of_several_classes_are_selected(self, share, size):
        for seed in range(2):
            x, y = draw_gaussians(seed, share)
            for executor in (Threads(1), GPUExecutor("cpu")):
                picks = select_from_shards(ArrayShards(x, y), size, executor=executor).indices
                assert len(set(y[picks])) == 2
        if size == 10:
            assert LogisticRegression().fit(x[picks], y[picks]).score(x, y) > 0.95

    @pytest.mark.parametrize("intercept", [0, 0.5])
    def test_the_intercept_is_that_of_a_kernel_in_memory(self, intercept):
        x, y = draw_gaussians(0)
        options = {"rule": "gain", "intercept": intercept}
        found = select_from_shards(ArrayShards(x, y), 10, feature_map=Rows(), exact=True, **options)
        inner = found.provenance.inner_reg
        selector = greedy_selector(kernel=Linear(), inner_reg=inner, first="best", **options)
        assert found.indices.tolist() == selector.select(Dataset(x, y), 10).indices.tolist()

    @pytest.mark.parametrize("intercept", [-1, "yes", True, np.nan])
    def test_an_invalid_intercept_is_refused(self, intercept):
        refuses(
            "intercept", select_from_shards, ArrayShards(*draw_gaussians(0)), 5, intercept=intercept
        )

    def test_the_constant_is_not_normalised(self):
        x = np.array([[3.0, 4.0], [0.0, 0.5]])
        unit = WithConstant(Rows().unit()).fit(x)
        expected = [[0.6, 0.8, 1.0], [0.0, 1.0, 1.0]]
        np.testing.assert_allclose(unit(torch.from_numpy(x)), expected)
        np.testing.assert_allclose(unit.unit().exact(torch.from_numpy(x)), expected)
        plain = WithConstant(Rows(), share=0.5).fit(x)
        assert plain.value == pytest.approx(np.sqrt(0.5 * (25 + 0.25) / 2))
        assert map_from_state(*map_to_state(plain)) == plain != unit


class TestTargets:
    def test_d2_an_offset_of_the_targets_changes_nothing(self):
        x, y = load_diabetes(return_X_y=True)
        plain, far, scaled = (
            select_from_shards(ArrayShards(x, targets), 20)
            for targets in (y, y + 1e6, (y - y.mean()) / y.std())
        )
        assert plain.indices.tolist() == far.indices.tolist() == scaled.indices.tolist()
        assert far.objective == pytest.approx(plain.objective, rel=1e-6)
        assert plain.provenance.empty_objective == pytest.approx(y.var())


class Cut(ArrayShards):
    """Rows in parts of any lengths."""

    def __init__(self, x, y, counts):
        super().__init__(x, y)
        starts = np.cumsum([0, *counts]).tolist()
        self.cut = tuple(
            Part(number, start, count)
            for number, (start, count) in enumerate(zip(starts, counts, strict=False))
        )

    @property
    def parts(self):
        return self.cut


class TestParts:
    """How rows are divided into parts changes nothing."""

    CUTS = ([600], [540, *[6] * 10], [85] * 7 + [5])

    def rows(self, seed=0):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 4, 600)
        x = rng.normal(size=(600, 24)) + 0.8 * np.eye(4, 24)[y]
        x[300:330], y[300:330] = x[:30], y[:30]  # equal rows
        order = np.argsort(x[:, 0])  # parts are unlike each other
        return x[order], y[order]

    @pytest.mark.parametrize(("shortlist", "quotas"), diagonal([30, 8192], [None, "balanced"], 2))
    def test_d4_the_picks_are_the_same(self, shortlist, quotas):
        x, y = self.rows()
        options = {"shortlist": shortlist, "quotas": quotas}
        whole, *others = (select_from_shards(Cut(x, y, cut), 20, **options) for cut in self.CUTS)
        for other in others:
            assert other.indices.tolist() == whole.indices.tolist()
            assert other.objective == pytest.approx(whole.objective, rel=1e-12)
            assert other.details == whole.details

    @pytest.mark.slow
    @pytest.mark.parametrize("options", [{"exact": True}, {"feature_map": "relu:32"}])
    def test_the_picks_of_other_options_are_the_same(self, options):
        x, y = self.rows(1)
        whole, *others = (select_from_shards(Cut(x, y, cut), 10, **options) for cut in self.CUTS)
        for other in others:
            assert other.indices.tolist() == whole.indices.tolist()

    @pytest.mark.slow
    def test_targets_and_a_card_too(self):
        x, _ = self.rows(2)
        targets = x[:, 0] ** 2 + 1e4
        whole, *others = (
            select_from_shards(Cut(x, targets, cut), 10, shortlist=30, executor=executor)
            for cut in self.CUTS
            for executor in (Threads(1), GPUExecutor("cpu"))
        )
        for other in others:
            assert other.indices.tolist() == whole.indices.tolist()


class TestRequests:
    def test_d9_a_single_class_is_refused(self):
        x, y = draw_gaussians(0)
        for source in (ArrayShards(x, y * 0), Cut(x, y * 0, [300, 300])):
            refuses("single class", select_from_shards, source, 12)

    def test_parts_without_usable_rows_change_nothing(self):
        x, y = draw_gaussians(0, n=90)
        first = np.arange(90) < 30
        labels = np.array(["a", "b", "c"])[np.where(first, 2, y)]
        bad, outer = np.where(first[:, None], np.nan, x), ArrayShards(x[30:], labels[30:])
        for rows, options in ((x, {}), (x, {"outer": outer}), (bad, {"skip_bad": True})):
            sources = (ArrayShards(rows, labels, ~first, k) for k in (30, 90))
            one, other = (select_from_shards(source, 6, **options) for source in sources)
            assert one.indices.tolist() == other.indices.tolist()
        assert select_from_shards(ArrayShards(x, first, ~first), 6).status is Status.COMPLETE

    def test_requests_that_cannot_be_met_are_refused(self):
        x, y = draw_gaussians(0, n=30)
        source, targets = ArrayShards(x, y), ArrayShards(x, np.where(y, x[:, 0], np.nan))
        outer = ArrayShards(x, x[:, :2])
        assert len(select_from_shards(outer, 5, outer=outer)) == 5
        refuses("no labels", select_from_shards, ArrayShards(x), 5, outer=source)
        hidden = np.ma.masked_equal(y, 1)
        refuses("no value in y", select_from_shards, ArrayShards(x, hidden), 5)
        refuses("masked values", ArrayShards, x, y, 1.0 * hidden)
        for other in (source, outer):
            refuses("the same kind", select_from_shards, targets, 5, outer=other)
        bad = {"skip_bad": True, "initial": [int(np.argmin(y))]}
        refuses("not finite", select_from_shards, targets, 5, **bad)
        refuses("needs class labels", select_from_shards, outer, 5, prior="equal")
        refuses("weight above 0", select_from_shards, ArrayShards(x, y, np.zeros(30)), 5)

    def test_all_rows_can_be_requested(self):
        x, y = draw_gaussians(0, n=30)
        for size in (30, 1.0):
            found = select_from_shards(ArrayShards(x, y), size)
            assert sorted(found.indices.tolist()) == list(range(30))
            assert found.status is Status.COMPLETE
        refuses("size", select_from_shards, ArrayShards(x, y), True)

    def test_rows_without_weight_end_a_selection_early(self):
        x, y = draw_gaussians(0, n=30)
        weight = (np.arange(30) < 20).astype(float)
        found = select_from_shards(ArrayShards(x, y, weight), 25)
        assert found.status is Status.FEWER
        assert sorted(found.indices.tolist()) == list(range(20))

    @pytest.mark.parametrize("files", [False, True])
    def test_d3_an_equal_prior_is_the_inverse_of_the_class_counts_as_weights(self, files):
        x, y = draw_gaussians(3, share=0.15)
        y[:200] += 2 * (x[:200, 0] > 0.5)
        weight = 1.0 / np.bincount(y)[y]

        def picks(weight=None, **options):
            if files:
                options |= {"feature_map": Rows(), "exact": True}
                return select_from_shards(ArrayShards(x, y, weight), 12, **options).indices.tolist()
            selector = greedy_selector(kernel=Linear(), **options)
            return selector.select(Dataset(x, y, weight), 12).indices.tolist()

        assert picks(prior="equal") == picks(weight) != picks()


class TestScale:
    """The same picks at every scale of x, or a refusal."""

    SCALES = (1e-200, 1e-80, 1e-10, 1e10, 1e24, 1e40, 1e100)

    @pytest.mark.parametrize("way", ["unit", "rows", "exact", "no intercept", "memory", "kernel"])
    def test_d6_of_features_and_kernels(self, way):
        x, y = draw_gaussians(0, n=200)

        def picks(x):
            if way == "kernel":
                return greedy_selector(kernel="linear").select(Dataset(x, y), 10).indices.tolist()
            if way == "memory":
                memory = MomentMemory(10, feature_map="rows")
                memory.update(x, y)
                return (memory.snapshot().x / np.abs(x).max()).round(9).tolist()
            options = {
                "unit": {},
                "rows": {"feature_map": Rows()},
                "exact": {"feature_map": Rows(), "exact": True},
                "no intercept": {"feature_map": Rows(), "intercept": 0},
            }[way]
            return select_from_shards(ArrayShards(x, y), 10, **options).indices.tolist()

        plain, refused = picks(x), []
        for scale in self.SCALES:
            try:
                assert picks(x * scale) == plain
            except InputError:
                refused.append(scale)
        assert not set(refused) & {1e-10, 1e10}
        assert way != "unit" or not refused

    @pytest.mark.parametrize(
        "options",
        [
            {},
            *({"kernel": kernel} for kernel in ("linear", "rbf", "exponential", "laplace")),
            *({"kernel": wrap(RBF())} for wrap in (Standardised, UnitRows)),
            *({"method": method} for method in ("k-means-features", "v-design")),
        ],
    )
    def test_d6_in_single_precision(self, options):
        x, y = draw_gaussians(0, n=200)

        def picks(x):
            return select(x, y, 10, runtime=Runtime("cpu", "float32"), **options).indices.tolist()

        plain, refused = picks(x), []
        for scale in (1e-300, 1e-60, 1e-42, 1e-20, 1e-11, 1e-5, 1e5, 1e9, 1e18, 1e19, 1e30, 1e60):
            try:
                assert picks(x * scale) == plain
            except (InputError, NumericalError):
                refused.append(scale)
        assert not set(refused) & {1e-5, 1e5}

    def test_rows_of_zeros_are_allowed(self):
        y = np.arange(30) % 3
        for intercept in (0, "auto"):
            source = ArrayShards(np.zeros((30, 4)), y)
            assert len(select_from_shards(source, 5, feature_map=Rows(), intercept=intercept)) == 5


def test_d5_a_moment_memory_of_targets_is_worth_more_than_random_rows():
    x, y = load_diabetes(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    scores = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(x))
        for memory in (MomentMemory(20), Reservoir(20, random_state=seed)):
            for batch in np.array_split(order, 5):
                memory.update(x[batch], y[batch])
            kept = memory.snapshot()
            scores.append(Ridge(1.0).fit(kept.x, kept.y).score(x, y))
    chosen, random = np.reshape(scores, (4, 2)).mean(0)
    assert chosen > 0.47 > 0.25 > random
