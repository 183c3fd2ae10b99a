"""Guarantees of the selector: order, prefixes, continuation, candidates, interruption, time limits,
influence, regularisers."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from bicore import Coreset, Dataset, InputError, Runtime, influence, select
from bicore.arguments import argmin_by_id
from bicore.bilevel import PerPoint
from bicore.bilevel.contract import Quantity
from bicore.bilevel.engines.ridge import RidgeEngine
from bicore.bilevel.solvers.inner import Adaptive
from bicore.bilevel.weights import ProjectedGradient
from bicore.coreset import Status
from bicore.losses import CustomLoss, Logistic, SquaredError
from bicore.methods import FacilityLocation, KCenter, KMeansPlusPlus
from bicore.methods.registry import greedy_selector
from bicore.sources import digits
from bicore.streaming import Reservoir
from tests.helpers import HUBER, ON_CPU, blobs, line, refuses, softmax_loss, state_of
from tests.marks import diagonal, few

#: Options that leave nothing to be found out.
PLAIN = {"kernel": "rbf", "inner_reg": 0.1}
OPTIONS = {
    "squared": {"loss": "squared", "inner_reg": 0.1},
    "squared gain": {"loss": "squared", "inner_reg": 0.1, "rule": "gain"},
    "cross-entropy": {"loss": "cross-entropy", "inner_reg": 0.05},
    "per point": {"loss": "cross-entropy", "inner_reg": PerPoint(1e-3)},
    "candidates": {"loss": "cross-entropy", "inner_reg": 0.05, "candidates": 15, "first": "random"},
    "automatic": {"loss": "squared", "inner_reg": "auto"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_prefixes_are_nested_and_continuing_is_the_same_as_going_on(name):
    data = blobs(80)
    selector = greedy_selector(kernel="rbf", **OPTIONS[name])
    small = selector.select(data, 8, random_state=4)
    large = selector.select(data, 20, random_state=4)
    assert large.prefix(8).indices.tolist() == small.indices.tolist()
    fallen = large.provenance.empty_objective - large.objective
    assert len(large.gains) == 20
    assert large.gains.sum() == pytest.approx(fallen)
    continued = selector.select(data, 20, random_state=4, initial=small)
    assert continued.indices.tolist() == large.indices.tolist()
    np.testing.assert_allclose(continued.objectives, large.objectives, rtol=1e-6)
    by_rows = selector.select(data, 20, random_state=4, initial=small.indices)
    assert by_rows.indices.tolist() == large.indices.tolist()
    # the engine that went on tells what a fit of its own finds
    fresh = selector.select(data, 20, random_state=4, initial=large.indices)
    assert fresh.objective == pytest.approx(large.objective, rel=1e-6)


@pytest.mark.parametrize("name", ["squared", "squared gain", "cross-entropy"])
def test_continuing_does_not_repeat_work(name, monkeypatch):
    """A coreset of the same problem costs no product with the whole matrix for its points; of
    another one, the truth is told."""
    from bicore.kernels.operators import Gram

    data = blobs(80)
    calls = []
    plain = Gram.transposed_matmul
    selector = greedy_selector(kernel="rbf", **OPTIONS[name])
    first = selector.select(data, 15)
    monkeypatch.setattr(
        Gram,
        "transposed_matmul",
        lambda self, right, columns=None: calls.append(1) or plain(self, right, columns),
    )
    more = selector.select(data, 16, initial=first)
    assert len(calls) <= 4
    assert more.indices[:15].tolist() == first.indices.tolist()
    other = greedy_selector(kernel="rbf", loss="cross-entropy", inner_reg=0.5)
    by_coreset = other.select(data, 16, initial=first)
    by_rows = other.select(data, 16, initial=first.indices)
    np.testing.assert_allclose(by_coreset.objectives, by_rows.objectives, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"rule": "gain"}, {"rule": "first-order"}, {"rule": "reducible"}, {"first": "random"}],
)
def test_choosing_on_the_device_gives_the_same_points(options, monkeypatch):
    """The loop of the GPU, here on the CPU: several points between two looks at the numbers."""
    rng = np.random.default_rng(0)
    x = np.concatenate([blobs(60).x, blobs(60).x[:9]])  # ties between equal rows
    data = Dataset(
        x,
        np.concatenate([blobs(60).y, blobs(60).y[:9]]),
        rng.choice([0.0, 1.0, 2.0], 69),
        rng.permutation(69),
    )
    selector = greedy_selector(kernel="rbf", inner_reg=0.05, **options)
    steps = []
    host = selector.select(data, 40, initial=[11] if data.weights[11] else [12])
    monkeypatch.setattr(RidgeEngine, "on_device", True)
    runtime = Runtime(progress=lambda step: steps.append(step.done))
    device = selector.select(data, 40, initial=[11] if data.weights[11] else [12], runtime=runtime)
    assert device.indices.tolist() == host.indices.tolist()
    np.testing.assert_allclose(device.objectives, host.objectives, rtol=1e-10)
    assert steps == list(range(2, 41))
    assert device.status is Status.COMPLETE


@pytest.fixture
def engines(monkeypatch):
    """The engine of the GPU serves on the CPU too; the engines that were built are listed."""
    from bicore.bilevel.engines.recorded_softmax import RecordedSoftmaxEngine

    built = []
    plain = RecordedSoftmaxEngine.build.__func__

    def build(cls, problem, requirements):
        built.append(plain(cls, problem, requirements))
        return built[-1]

    monkeypatch.setattr(RecordedSoftmaxEngine, "build", classmethod(build))
    monkeypatch.setattr(RecordedSoftmaxEngine, "fits", classmethod(lambda cls, problem: True))
    return built


@pytest.mark.parametrize("with_outer", few([True, False]))
@pytest.mark.parametrize(
    ("kernel", "reg"),
    [
        ("rbf", 0.05),
        pytest.param("linear", 0.5, marks=pytest.mark.slow),
        pytest.param("ntk", PerPoint(1e-3), marks=pytest.mark.slow),
    ],
)
def test_fixed_steps_of_cross_entropy_give_the_same_points(kernel, reg, with_outer, engines):
    data = blobs(60, classes=4)
    outer = blobs(30, classes=4, seed=5) if with_outer else None
    data = Dataset(data.x, data.y, np.linspace(0.1, 3, 60))
    selector = greedy_selector(kernel=kernel, loss="cross-entropy", inner_reg=reg)
    expected = replace(selector, linear=Adaptive()).select(data, 24, outer=outer)
    assert not engines  # solvers asked for by name are for the general engine
    found = selector.select(data, 24, outer=outer)
    assert len(engines) == 1
    assert engines[0].failures <= 2
    assert found.indices.tolist() == expected.indices.tolist()
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=1e-6)
    drawn = replace(selector, first="random")
    general = replace(drawn, linear=Adaptive())
    assert drawn.select(data, 9).indices.tolist() == general.select(data, 9).indices.tolist()


@pytest.mark.slow
def test_general_engine_continues_if_fixed_steps_do_not_converge(engines, monkeypatch):
    from bicore.bilevel.engines import recorded_softmax as module

    monkeypatch.setattr(module, "TRIES", 1)
    few_iterations = module.Iterations(inner=1)
    monkeypatch.setattr(module, "Iterations", lambda: few_iterations)
    data = blobs(90, classes=4)
    selector = greedy_selector(kernel="rbf", loss="cross-entropy", inner_reg=1e-3)
    expected = replace(selector, linear=Adaptive()).select(data, 25)
    found = selector.select(data, 25)
    assert engines[0].failures == 2
    assert found.indices.tolist() == expected.indices.tolist()
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=1e-6)
    assert found.status is Status.COMPLETE


def test_recorded_engine_hands_over_to_the_general_engine(engines):
    data = blobs(60)
    selector = greedy_selector(kernel="rbf", loss="cross-entropy", inner_reg=0.05)
    selector.select(data, 18, **ON_CPU.keywords)
    engine = engines[0]
    general = state_of(selector, data, engine.chosen[1:], np.ones(17))
    engine.drop([0])
    assert engine.chosen == general.chosen
    assert engine.objective == pytest.approx(general.objective, rel=1e-6)
    engine.extend([59])
    assert engine.chosen[-1] == 59
    np.testing.assert_allclose(
        engine.quantity(Quantity.LOSS),
        state_of(selector, data, engine.chosen, [1.0] * 18).quantity(Quantity.LOSS),
        rtol=1e-4,
    )


@pytest.mark.usefixtures("long_grace")
def test_the_loop_on_a_gpu_stops_with_a_complete_prefix(monkeypatch):
    monkeypatch.setattr(RidgeEngine, "on_device", True)
    data = blobs(60)
    selector = greedy_selector(kernel="rbf", inner_reg=0.05)
    whole = selector.select(data, 40)
    short = selector.select(data, 40, runtime=Runtime(max_seconds=1e-9))
    assert short.message == "stopped by max_seconds after 1 of 40 rows"

    def stop(step):
        if step.done == 20:
            raise KeyboardInterrupt

    part = selector.select(data, 40, runtime=Runtime(progress=stop))
    assert part.message.startswith("interrupted after")
    assert part.indices.tolist() == whole.indices[: len(part)].tolist()
    assert len(part) >= 20


@pytest.mark.parametrize(
    "loss",
    few(["squared", "cross-entropy", "logistic", "outer differs", "custom", "custom labels"], 5),
)
def test_each_point_is_the_one_with_the_lowest_gradient(loss):
    """Algorithm 1, step by step, with every gradient taken afresh."""
    classes = 2 if loss == "logistic" else 3
    data = line() if loss == "custom" else blobs(classes=classes)
    made = {
        "custom": HUBER,
        "custom labels": CustomLoss(softmax_loss),
        "logistic": Logistic(),
        "outer differs": SquaredError(),
    }.get(loss, loss)
    selector = greedy_selector(
        kernel="rbf",
        loss=made,
        inner_reg=0.2,
        outer_loss="cross-entropy" if loss == "outer differs" else None,
    )
    chosen = selector.select(data, 6).indices.tolist()
    for size in range(1, 6):
        scores = influence(
            data,
            coreset=chosen[:size],
            kernel="rbf",
            loss=made,
            outer_loss=selector.outer_loss,
            inner_reg=0.2,
            intercept=0,
        )
        scores[chosen[:size]] = -np.inf
        assert chosen[size] == scores.argmax()


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_influence_equals_retraining_with_a_changed_weight(loss):
    """Section 3.4: I(k) = −∂/∂ε of the outer objective when ε ℓ_k joins the inner problem."""
    data = blobs()
    outer = None if loss == "squared" else blobs(20, seed=9)
    selector = greedy_selector(kernel="rbf", loss=loss, inner_reg=0.3)
    coreset = selector.select(data, 6)
    options = {"kernel": "rbf", "loss": loss, "inner_reg": 0.3, "intercept": 0, "outer": outer}
    scores = influence(data, coreset=coreset, **options)
    assert scores.shape == (40,)
    base = state_of(selector, data, coreset.indices.tolist(), coreset.weights, outer).objective
    for k in (2, 15, 33):
        if k in coreset.indices:
            continue
        moved = state_of(
            selector, data, [*coreset.indices.tolist(), k], [*coreset.weights, 1e-4], outer
        ).objective
        assert scores[k] == pytest.approx((base - moved) / 1e-4, rel=5e-3, abs=1e-6)


def test_an_interrupt_returns_the_prefix(monkeypatch):
    data = blobs(60)
    for loss in ("squared", "cross-entropy"):
        selector = greedy_selector(kernel="rbf", loss=loss, inner_reg=0.1)
        whole = selector.select(data, 12, **ON_CPU.keywords)

        def stop(step):
            if step.done == 7:
                raise KeyboardInterrupt

        part = selector.select(data, 12, runtime=Runtime("cpu", progress=stop))
        assert part.message == "interrupted after 7 of 12 rows"
        assert part.indices.tolist() == whole.indices[:7].tolist()
        again = selector.select(data, 12, initial=part, **ON_CPU.keywords)
        assert again.indices.tolist() == whole.indices.tolist()


@pytest.mark.parametrize("call", [1, 5])
def test_interrupt_within_a_step_returns_the_previous_step(call, monkeypatch):
    """Before the first point there is none, and the interrupt goes on."""
    from bicore.bilevel.engines import ridge

    data = blobs(60)
    plain = ridge.RidgeEngine.quantity
    calls = []

    def quantity(self, what, columns=None):
        calls.append(1)
        if len(calls) == call:
            self.chosen.append(59)  # half-made
            raise KeyboardInterrupt
        return plain(self, what, columns)

    whole = greedy_selector(**PLAIN).select(data, 12, **ON_CPU.keywords)
    monkeypatch.setattr(ridge, "PAIRED", 0)  # one step after the other
    monkeypatch.setattr(ridge.RidgeEngine, "quantity", quantity)
    if call == 1:
        with pytest.raises(KeyboardInterrupt):
            greedy_selector(**PLAIN).select(data, 12, **ON_CPU.keywords)
    else:
        part = greedy_selector(**PLAIN).select(data, 12, **ON_CPU.keywords)
        assert part.indices.tolist() == whole.indices[:4].tolist()


@pytest.mark.usefixtures("long_grace")
@pytest.mark.parametrize("options", [{"loss": "cross-entropy"}, {"weighting": "final"}])
def test_a_time_limit_returns_the_prefix(options):
    limit = Runtime(max_seconds=1e-6)
    part = select(blobs(60), size=50, **PLAIN, **options, runtime=limit)
    assert len(part) == 1
    assert part.binary  # no time was left to learn weights
    assert "max_seconds" in part.message


def test_a_time_limit_ends_the_search_for_weights_after_a_point(monkeypatch):
    clocks = []
    monkeypatch.setattr(
        ProjectedGradient,
        "optimise",
        lambda self, state, final=False, clock=None: clocks.append(clock),
    )
    select(blobs(60), size=3, **PLAIN, weighting="learned", runtime=Runtime(max_seconds=60))
    assert len(clocks) == 5  # after each point, and once at the end of either path
    assert all(clock is not None and clock.max_seconds == 60 for clock in clocks)


def test_initial_points_of_full_size_have_their_weights_learnt():
    learnt = select(blobs(60), size=3, **PLAIN, weighting="learned", initial=[1, 2, 3])
    assert not learnt.binary


@pytest.mark.parametrize("stage", ["selecting", "fit", "search"])
def test_an_interrupt_never_loses_the_points_of_final_weights(stage, monkeypatch):
    from bicore.bilevel.engines.implicit import ImplicitEngine

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    def after_four(step):
        if stage == "selecting" and step.done == 4:
            raise KeyboardInterrupt

    if stage == "fit":
        monkeypatch.setattr(ImplicitEngine, "extend", stop)
    # after an interrupt the search must not even begin
    if stage == "search" or stage == "selecting":
        monkeypatch.setattr(ProjectedGradient, "optimise", stop)
    runtime = Runtime("cpu", progress=after_four)
    part = select(
        blobs(60), size=6, kernel="rbf", inner_reg=0.1, weighting="final", runtime=runtime
    )
    assert len(part) == (4 if stage == "selecting" else 6)
    assert part.status is Status.INTERRUPTED


def test_progress_is_silent_off_a_terminal_and_calls_back(capsys):
    steps = []
    data = blobs(60)
    select(data, size=5, kernel="rbf", inner_reg=0.1)
    select(data, size=5, kernel="rbf", inner_reg=0.1, runtime=Runtime(progress=steps.append))
    assert capsys.readouterr() == ("", "")
    assert [step.done for step in steps] == [1, 2, 3, 4, 5]
    assert steps[-1].seconds_left == 0
    assert steps[-1].objective > 0


def test_progress_line_is_rewritten_and_removed(capsys, monkeypatch):
    monkeypatch.setattr("bicore.runtime.clock.PROGRESS_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    select(blobs(60), size=5, kernel="rbf", inner_reg=0.1, runtime=Runtime(progress=True))
    written = capsys.readouterr().err
    assert "selecting 1/5  objective" in written
    assert written.endswith("\r")


def test_progress_in_a_notebook_ends_with_the_last_step(capsys):
    select(blobs(60), size=5, kernel="rbf", inner_reg=0.1, runtime=Runtime(progress=True))
    assert capsys.readouterr().err.startswith("selecting 5/5  objective ")


def test_random_first_point_follows_the_seed():
    data = blobs(60)
    firsts = {
        select(data, size=1, kernel="rbf", inner_reg=0.1, first="random", random_state=s).indices[0]
        for s in range(20)
    }
    assert len(firsts) > 5


def test_automatic_regulariser_uses_training_data_and_is_recorded():
    data = blobs(80)
    one = select(data, size=5, kernel="rbf")
    two = select(data, size=20, kernel="rbf")
    assert one.provenance.automatic
    # whatever the size: prefixes stay nested
    assert one.provenance.inner_reg == two.provenance.inner_reg > 0
    for outer in ((data.x[:20], data.y[:20]), (data.x[:20], 2 - data.y[:20])):
        assert (
            select(data, size=5, kernel="rbf", outer=outer).provenance.inner_reg
            == one.provenance.inner_reg
        )
    explicit = select(data, size=20, kernel="rbf", inner_reg=two.provenance.inner_reg)
    assert explicit.indices.tolist() == two.indices.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_automatic_regulariser_is_near_the_best_of_a_grid(seed):
    """The regret of the rule on a held-out judge: fits on fresh random subsets, a fine grid of ρ."""
    data = blobs(150, seed=seed)
    chosen = select(data, size=2, kernel="rbf").provenance.inner_reg
    rng = np.random.default_rng(seed + 10)
    grid = 10.0 ** np.arange(-4, 1.1, 0.5)
    subsets = [rng.choice(150, 75, replace=False).tolist() for _ in range(5)]

    def mean_objective(reg):
        selector = greedy_selector(kernel="rbf", inner_reg=float(reg))
        return np.mean(
            [state_of(selector, data, points, np.ones(75)).objective for points in subsets]
        )

    assert mean_objective(chosen) <= 1.05 * min(mean_objective(reg) for reg in grid)


def test_coreset_file_round_trip(tmp_path):
    named = np.array(["a", "b", "c"])[blobs().y]
    data = Dataset(blobs().x, named, np.linspace(1, 2, 40), np.arange(100, 140))
    coreset = select(data, size=5, **PLAIN, weighting="final")
    loaded = Coreset.load(coreset.save(tmp_path / "c.npz"))
    for name in ("indices", "weights", "ids", "objectives"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(coreset, name))
    assert loaded.info == coreset.info
    assert loaded.provenance.fingerprint == data.fingerprint()
    assert loaded.provenance.classes == ("a", "b", "c")
    assert loaded.ids.tolist() == (loaded.indices + 100).tolist()
    stored = np.load(tmp_path / "c.npz", allow_pickle=False)
    assert stored["indices"].tolist() == coreset.indices.tolist()
    with pytest.raises(FileNotFoundError):
        Coreset.load(tmp_path / "none.npz")


def test_coreset_object():
    coreset = Coreset(
        np.array([3, 1, 2]), np.array([2.0, 1.0, 0.0]), objectives=np.array([3.0, 2.0, 1.0])
    )
    assert coreset.normalise().weights.mean() == 1
    assert coreset.prefix(2).weights.tolist() == [1, 1]
    assert coreset.prefix(2).objectives.size == 0  # measured with other weights
    assert coreset.prefix(3).weights.tolist() == [1, 1, 1]
    for bad in ({"weights": [np.nan, 1.0]}, {"weights": [-1.0, 1.0]}):
        refuses("finite and >= 0", Coreset, np.array([0, 1]), **bad)
    refuses("counted from 0", Coreset, np.array([-1]))
    assert coreset.of(blobs()).sample_weight.tolist() == [2.0, 1.0, 0.0]
    assert coreset.of(blobs()).ids.tolist() == [3, 1, 2]
    assert "learned" in repr(coreset)
    for bad in (0, 4):
        refuses("size", coreset.prefix, bad)
    refuses("twice", Coreset, np.array([1, 1]))
    refuses("beyond", Coreset(np.array([50])).of, blobs())


#: Units in which weights may come: a sum of the first overflows, a float32 of the second is zero.
UNITS = (1e308, 1e-300)
WEIGHED = {
    "squared": {"kernel": "rbf", "inner_reg": 0.1},
    "cross-entropy": {"kernel": "rbf", "loss": "cross-entropy", "inner_reg": 0.05},
    "automatic": {},
    "reducible": {"kernel": "rbf", "inner_reg": 0.1, "rule": "reducible"},
    "reconstruction": {"method": "reconstruction"},
    "k-means++": {"method": "k-means-features"},
    "facility location": {"method": "facility-location"},
    "v-design": {"method": "v-design"},
}


@pytest.mark.parametrize(("dtype", "name"), diagonal(["float64", "float32"], WEIGHED, 2))
def test_the_unit_of_the_weights_changes_nothing(name, dtype):
    x, y = (part[:100] for part in digits())
    weight = np.random.default_rng(0).uniform(0.1, 1, 100)
    where = Runtime("cpu", dtype)
    plain, *others = (
        select(x, y, 6, sample_weight=unit * weight, runtime=where, **WEIGHED[name])
        for unit in (1, *UNITS)
    )
    for other in others:
        assert other.indices.tolist() == plain.indices.tolist()
        np.testing.assert_allclose(other.objectives, plain.objectives, rtol=1e-6)


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_of_the_outer_weights_changes_nothing(unit):
    x, y = (part[:150] for part in digits())
    weight = np.random.default_rng(0).uniform(0.1, 1, 50)
    options = {"kernel": "rbf", "inner_reg": 0.1, "runtime": Runtime("cpu", "float32")}
    outer = x[100:], y[100:]
    plain = select(x[:100], y[:100], 6, outer=(*outer, weight), **options)
    scaled = select(x[:100], y[:100], 6, outer=(*outer, unit * weight), **options)
    assert scaled.indices.tolist() == plain.indices.tolist()
    assert scaled.objective == pytest.approx(plain.objective, rel=1e-6)


@pytest.mark.parametrize("unit", UNITS)
def test_weights_of_any_unit_are_normalised(unit):
    coreset = Coreset(np.array([3, 1, 4]), unit * np.array([1.5, 1.5, 1.0]))
    np.testing.assert_allclose(coreset.normalise().weights, [1.125, 1.125, 0.75])


def test_weights_with_an_overflowing_sum_are_refused():
    x = np.arange(8.0)[:, None]
    weight = np.full(8, 1e308)
    with pytest.raises(InputError, match="sum of sample_weight overflows"):
        FacilityLocation(cluster_weights=True).select(Dataset(x, sample_weight=weight), 2)
    buffer = Reservoir(4).update(x)
    refuses("weight", buffer.update, x, sample_weight=weight)
    assert buffer.snapshot().weights.sum() == pytest.approx(8)


@pytest.mark.parametrize("rule", [KCenter(), KMeansPlusPlus(), FacilityLocation()])
def test_distances_within_far_clusters_keep_their_digits_in_float32(rule):
    rng = np.random.default_rng(0)
    sides = np.where(np.arange(120) % 2, 1000.0, -1000.0)[:, None]
    data = Dataset((sides + rng.normal(size=(120, 4))).astype(np.float32))
    single, double = (
        rule.select(data, 12, runtime=Runtime("cpu", dtype)) for dtype in ("float32", "float64")
    )
    if rule != FacilityLocation():  # whose sums of long distances round choices that are as good
        assert single.indices.tolist() == double.indices.tolist()
    np.testing.assert_allclose(single.objectives, double.objectives, rtol=5e-3)


def test_automatic_regulariser_grows_with_the_noise():
    x = np.random.default_rng(0).normal(size=(150, 3))
    clean = np.sin(x).sum(1)
    noisy = clean + 3 * np.random.default_rng(1).normal(size=150)
    assert (
        select(x, noisy, size=3, kernel="rbf").provenance.inner_reg
        > 3 * select(x, clean, size=3, kernel="rbf").provenance.inner_reg
    )


def test_scores_within_rounding_are_a_tie_and_the_smallest_id_wins():
    scores = np.array([-1.0, -1.0 - 1e-12, -0.5])
    ids = np.array([3, 8, 1])
    assert argmin_by_id(scores, ids) == 0
    assert argmin_by_id(np.array([-1.0, -1.0 - 1e-8, -0.5]), ids) == 1
