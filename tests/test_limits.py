"""Time limits inside a step, and approximations for large data.

No wall time is looked at: a clock that ticks at every look tells how many looks follow its end.
"""

import contextlib
import warnings
import weakref

import numpy as np
import pytest
import torch

import bicore
from bicore import Dataset, LargeDataWarning, MemoryLimitError, Runtime, TimeLimitError, select
from bicore.bilevel.contract import RULES
from bicore.bilevel.strategies import STRATEGIES
from bicore.cli.answer import describe
from bicore.coreset import Status
from bicore.kernels import RBF, Linear, building, operators
from bicore.methods import (
    METHODS,
    FacilityLocation,
    Herding,
    JointSelector,
    KCenter,
    NetworkSelector,
    Reconstruction,
    VDesign,
    large,
)
from bicore.methods.baselines import covering
from bicore.methods.baselines.base import KernelSpace
from bicore.methods.registry import as_selector, greedy_selector
from bicore.numerics import linear_algebra as tiles
from bicore.runtime.clock import Clock, TimeOver, checkpoint
from bicore.runtime.context import Context
from tests.helpers import blobs, fails, refuses
from tests.marks import except_slow, few

#: Looks at the clock that may follow its end: what closes the part at hand, never another pass.
AFTER = 12
ROWS, SIZE = 240, 6


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)
    )


@pytest.fixture
def small_tiles(monkeypatch):
    """Every product in many parts, as with many rows."""
    monkeypatch.setattr(building, "LARGEST_BLOCK", 60)
    for module in (building, operators):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 15)
    monkeypatch.setattr(tiles, "PART", 1 << 10)


@pytest.fixture
def ticks(monkeypatch):
    """A clock on which a second passes at every look, and none between."""

    class Ticks:
        made = 0

    plain = Clock.look

    def look(self, *given):
        Ticks.made += 1
        plain(self, *given)

    monkeypatch.setattr(Clock, "look", look)
    monkeypatch.setattr(Clock, "now", staticmethod(lambda: float(Ticks.made)))
    return Ticks


def bilevel(**options):
    return greedy_selector(**{"kernel": RBF(0.2), "inner_reg": 0.1, **options})


CASES = {
    **{f"method {name}": as_selector(name) for name in METHODS},
    **{f"strategy {name}": bilevel(strategy=name) for name in STRATEGIES},
    **{f"rule {name}": bilevel(rule=name) for name in RULES},
    "default": greedy_selector(),
    "linear": greedy_selector("linear"),
    "learned": bilevel(weighting="learned"),
    "learnt, cross-entropy": bilevel(weighting="learned", loss="cross-entropy"),
    "final": bilevel(weighting="final"),
    "simplex, cross-entropy": bilevel(strategy="simplex", loss="cross-entropy"),
    "joint": JointSelector([bilevel(), bilevel(kernel=RBF(0.5))]),
    "herding in a kernel": Herding(RBF(0.2)),
    "v-design, certified": VDesign(certify=True),
    "v-design in a kernel": VDesign(RBF(0.2)),
    "facility location in a kernel": FacilityLocation(RBF(0.2)),
    "network": NetworkSelector(inner_reg=0.1, curvature="gauss-newton", candidates=40),
    "reconstruction, exchange": Reconstruction(RBF(0.2), 0.1, strategy="exchange"),
}
#: Far from every look there are, and between them.
LIMITS = (1, 7, 40, 150, 600)


#: Those of which every run of the tests sees some; the rest are a matter of minutes.
QUICK = {f"strategy {name}" for name in ("greedy", "elimination", "exchange")}
QUICK |= {"linear", "final", "method facility-location", "method frcl", "v-design in a kernel"}


@pytest.mark.parametrize("name", except_slow(CASES, set(CASES) - QUICK))
def test_few_clock_checks_follow_the_time_limit(name, small_tiles, ticks):
    selector = CASES[name]
    data = blobs(ROWS)
    # So little that kernels are evaluated in blocks.
    roomy = ("method reducible-loss", "method bilevel", "method bilevel-weighted")
    memory = 1_400_000 if name in roomy else 760_000
    runtime = Runtime(device="cpu", memory=memory)
    whole = selector.select(data, SIZE, model=network(), runtime=runtime)
    looks = ticks.made
    for limit in LIMITS:
        ticks.made = 0
        context = Context(network(), Runtime(device="cpu", memory=memory, max_seconds=limit))
        most = limit + 3 * Clock(limit).grace + AFTER  # a first point, and putting it in order
        try:
            part = selector.select(data, SIZE, **context.keywords)
        except TimeLimitError:
            assert ticks.made <= most
            continue
        if limit > looks:
            assert part.status is whole.status
            assert part.indices.tolist() == whole.indices.tolist()
            continue
        assert ticks.made <= most, f"{ticks.made - limit} looks after the end"
        assert 1 <= len(part) <= SIZE
        if part.status is Status.OUT_OF_TIME:
            assert part.message == f"stopped by max_seconds after {len(part)} of {SIZE} rows"
        elif part.status is not whole.status:
            assert part.status is Status.NOT_REFINED
            assert "max_seconds" in part.message
        unweighted = "gradient-matching" not in name and "learned" not in name
        if selector.ordered and unweighted:
            assert part.indices.tolist() == whole.indices[: len(part)].tolist()


def test_time_limit_before_the_first_point_reports_the_time_needed(small_tiles, ticks):
    runtime = Runtime(device="cpu", memory=760_000, max_seconds=8)
    with pytest.raises(TimeLimitError, match=r"max_seconds=8 .* first row takes at least \d"):
        bilevel().select(blobs(ROWS), SIZE, runtime=runtime)


def test_elimination_obeys_the_time_limit_and_keeps_greedy_points(monkeypatch):
    from bicore.bilevel.strategies.exact import MatrixPool

    data = blobs(60)
    greedy = bilevel(rule="gradient").select(data, SIZE)

    def late(self, *given):
        raise TimeOver

    monkeypatch.setattr(MatrixPool, "remove", late)
    part = bilevel(strategy="elimination").select(data, SIZE)
    assert part.status is Status.NOT_REFINED
    assert part.message == (
        "stopped by max_seconds while the rows were refined: complete, not refined"
    )
    assert sorted(part.indices) == sorted(greedy.indices)


def test_points_that_could_not_be_sorted_keep_the_greedy_order(monkeypatch):
    from bicore.bilevel.strategies import base

    data = blobs(60)
    greedy = bilevel().select(data, SIZE)
    for failure, status, how in (
        (TimeOver, Status.NOT_REFINED, "stopped by max_seconds"),
        (KeyboardInterrupt, Status.INTERRUPTED, "interrupted"),
    ):

        def fails(*given, failure=failure):
            raise failure

        monkeypatch.setattr(base, "restrict_problem", fails)
        limited = Context(runtime=Runtime(max_seconds=1e6))
        part = bilevel(strategy="exchange").select(data, SIZE, **limited.keywords)
        assert part.status is status
        assert part.message == f"{how} before the rows were refined: complete, not refined"
        assert part.indices.tolist() == greedy.indices.tolist()
        assert part.provenance.notes == ()
        assert "exchanges" not in part.details


@pytest.mark.parametrize(
    ("kernel", "loss"), few([(RBF(0.2), "cross-entropy"), (Linear(), "squared")])
)
def test_putting_points_in_order_needs_their_columns_alone(kernel, loss, monkeypatch):
    seen = []
    plain = RBF.evaluate
    monkeypatch.setattr(
        RBF, "evaluate", lambda self, a, b: seen.append(len(a) * len(b)) or plain(self, a, b)
    )
    from bicore.bilevel.strategies.base import Assembly

    put = Assembly.sort_by_rule

    columns = []

    def count_columns(self, *given):
        seen.clear()
        ending = put(self, *given)
        columns.append(sum(seen))  # what the final check of the objective takes is its own
        return ending

    monkeypatch.setattr(Assembly, "sort_by_rule", count_columns)
    runtime = Runtime(device="cpu", memory=400_000)
    found = bilevel(kernel=kernel, loss=loss, strategy="simplex").select(
        blobs(ROWS), SIZE, runtime=runtime
    )
    assert found.details["operator"] in ("blocked", "features")
    assert columns[-1] <= ROWS * SIZE


def test_kernel_that_catches_exceptions_does_not_catch_the_time_limit():
    class Careful(RBF):
        def evaluate(self, a, b):
            try:
                return super().evaluate(a, b)
            except Exception:
                return torch.zeros(len(a), len(b))

    class Looking(Careful):
        def _distance(self, a, b):
            checkpoint()
            return super()._distance(a, b)

    clock = Clock(max_seconds=1e-9)
    clock.secure()
    with pytest.raises(TimeLimitError), clock.running():
        Looking(1.0).evaluate(torch.eye(2), torch.eye(2))
    assert not issubclass(TimeOver, Exception)


def test_nested_clocks_restore_the_outer_one():
    outside = Clock(max_seconds=1e-9)
    outside.secure()
    seen = []
    with outside.running():
        with Clock().running():
            checkpoint()
        try:
            checkpoint()
        except TimeOver:
            seen.append("over")
    checkpoint()  # none is running any more
    assert seen == ["over"]


def test_preparation_is_shown_before_the_first_point(monkeypatch, capsys, small_tiles):
    from bicore.runtime import clock

    monkeypatch.setattr(clock, "LINE_EVERY_SECONDS", -1.0)
    runtime = Runtime(device="cpu", memory=760_000, progress=True)
    bilevel().select(blobs(ROWS), 2, runtime=runtime)
    written = capsys.readouterr().err
    assert "preparing  0% of a pass" in written
    assert written.index("preparing") < written.index("selecting 1/2")
    assert "preparing" not in written[written.index("selecting 1/2") :]


SCARCE = Runtime(device="cpu", memory=760_000)


def test_a_memory_limit_changes_no_answer():
    data = blobs(ROWS)
    plain = greedy_selector("rbf").select(data, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LargeDataWarning)
        found = select(data, size=5, kernel="rbf", method="bilevel-ntk", runtime=SCARCE)
    assert found.indices.tolist() == plain.indices.tolist()
    assert found.details["operator"] == "blocked"
    expected = bicore.estimate(data, size=5, kernel="rbf", method="bilevel-ntk", runtime=SCARCE)
    assert expected.operator == "blocked"
    assert expected.approximation is None
    assert expected.bytes <= 760_000


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (VDesign(RBF(0.2)), "landmarks"),
        (Herding(RBF(0.2)), "landmarks"),
        (FacilityLocation(), "facility location"),
        (FacilityLocation(RBF(0.2)), "facility location"),
        (KCenter(RBF(0.2)), None),  # columns are all it needs
        (as_selector("uniform"), None),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_many_rows_are_approximated_with_a_warning(method, words, monkeypatch):
    for name, value in (("MANY", 200), ("LANDMARKS", 30), ("SAMPLE", 40)):
        monkeypatch.setattr(large, name, value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LargeDataWarning)
        found = select(blobs(ROWS), size=5, method=method)
    said = [str(one.message) for one in caught if one.category is LargeDataWarning]
    assert len(found) == 5
    assert bool(said) == (words is not None) == ("; approximate)" in describe(found)[0])
    if words is not None:
        assert words in said[0]
        assert said[0] in found.provenance.notes
        assert bicore.estimate(blobs(ROWS), size=5, method=method).approximation == said[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", LargeDataWarning)
        assert len(select(blobs(ROWS), size=5, method=method, exact=True)) == 5


class Held(torch.overrides.TorchFunctionMode):
    """The most bytes that tensors held at a time."""

    def __init__(self):
        super().__init__()
        self.known = {}
        self.now = self.most = 0

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, torch.Tensor):
                self._record(one)
        return result

    def _record(self, tensor):
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if place not in self.known:
            self.known[place] = [0, storage.nbytes()]
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
        self.known[place][0] += 1
        weakref.finalize(tensor, self._forget, place)

    def _forget(self, place):
        self.known[place][0] -= 1
        if not self.known[place][0]:
            self.now -= self.known.pop(place)[1]


@pytest.mark.parametrize("dtype", few(["float64", "float32"]))
@pytest.mark.parametrize(
    ("kernel", "rows", "columns", "size"),
    [("rbf", 1500, 4, 5), ("linear", 4000, 40, 20), ("linear", 4000, 10, 60)],
    ids=["a shortlist longer than the set", "features", "fewer features than points"],
)
def test_memory_of_exchanges_is_estimated(kernel, rows, columns, size, dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    data = Dataset(x, (3 * np.abs(x[:, 0])).astype(int) % 3)
    runtime = Runtime(device="cpu", dtype=dtype, memory="1GB")
    asked = {"kernel": kernel, "inner_reg": 0.1, "strategy": "exchange"}
    expected = bicore.estimate(data, size=size, method="bilevel-ntk", runtime=runtime, **asked)
    with Held() as held:
        found = greedy_selector(**asked).select(data, size, runtime=runtime)
    assert found.details["exchanges"] > 0
    assert expected.operator == found.details["operator"]
    assert held.most <= expected.bytes


def test_a_limit_too_small_for_exchanges_is_refused():
    given = {"kernel": "rbf", "inner_reg": 0.1, "smooth_labels": False}
    free, tight = Runtime(device="cpu"), Runtime(device="cpu", memory="1MB")
    assert "exchanges" in select(blobs(1000), size=5, runtime=free, **given).details
    fails(MemoryLimitError, "needs at least", select, blobs(1000), size=5, runtime=tight, **given)


@pytest.mark.parametrize("memory", ["1GB", 1000], ids=["stored", "computed again"])
def test_facility_location_over_a_sample_reports_of_all_rows(memory):
    data = blobs(ROWS)
    context = Context(runtime=Runtime(device="cpu", memory=memory))
    plain = FacilityLocation(cluster_weights=True).select(data, 12)
    some = FacilityLocation(cluster_weights=True, sample=120).select(data, 12, **context.keywords)
    distances = np.linalg.norm(data.x[:, None] - data.x[some.indices], axis=2)
    assert some.objective == pytest.approx(distances.min(1).mean())
    assert some.weights.sum() == pytest.approx(ROWS)
    assert some.objective < 1.1 * plain.objective
    order = np.random.default_rng(0).permutation(ROWS)
    turned = FacilityLocation(cluster_weights=True, sample=120).select(data[order], 12)
    assert turned.ids.tolist() == some.ids.tolist()  # drawn among ids
    refuses("sample", FacilityLocation, sample=0)


def test_an_automatic_regulariser_is_judged_by_some_rows_drawn_among_ids(monkeypatch):
    from bicore.bilevel import prepare

    data = blobs(ROWS)
    whole = greedy_selector(RBF(0.2)).select(data, 2).provenance.inner_reg
    monkeypatch.setattr(prepare, "MEASURING_ROWS", 120)
    for memory in ("1GB", 760_000):  # stored, and in blocks
        context = Context(runtime=Runtime(device="cpu", memory=memory))
        found = greedy_selector(RBF(0.2)).select(data, 2, **context.keywords).provenance.inner_reg
        order = np.random.default_rng(0).permutation(ROWS)
        turned = greedy_selector(RBF(0.2)).select(data[order], 2, **context.keywords)
        assert found == pytest.approx(whole, rel=0.5)
        assert found != whole
        assert turned.provenance.inner_reg == pytest.approx(found)


class Work(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the numbers that operations on tensors write: a clock that goes by work."""

    done = 0.0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        if isinstance(result, torch.Tensor):
            Work.done += result.numel()
        return result


@pytest.mark.slow
@pytest.mark.parametrize(
    "selector",
    [bilevel(), bilevel(rule="gain"), VDesign(RBF(0.2))],
    ids=["greedy", "gain", "v-design"],
)
def test_little_work_follows_the_end(selector, small_tiles, monkeypatch):
    data = blobs(ROWS)
    unit = 1.0
    monkeypatch.setattr(Clock, "now", staticmethod(lambda: Work.done / unit))

    def measure_work(limit):
        Work.done = 0.0
        runtime = Runtime(device="cpu", memory=400_000, max_seconds=limit)
        with Work(), contextlib.suppress(TimeLimitError):
            selector.select(data, SIZE, runtime=runtime)
        return Work.done / unit

    unit = measure_work(None) / 100  # a second is a hundredth of the work
    for limit in (3, 11, 24, 38, 51, 67, 83):
        # A pass over all pairs is about fourteen of them.
        assert measure_work(limit) <= limit + Clock(limit).grace + 4


def test_counted_rows_have_their_weights_when_time_is_over(monkeypatch):
    add, taken = covering._Coverage.add, []

    def stop_clock(self, *_):
        raise TimeOver

    def late(self, place):
        if len(taken) == 3:
            monkeypatch.setattr(Clock, "look", stop_clock)  # at every later look, too
            raise TimeOver
        taken.append(place)
        add(self, place)

    monkeypatch.setattr(covering._Coverage, "add", late)
    data = Dataset(np.random.default_rng(0).normal(size=(90, 3)))
    space = KernelSpace(RBF(0.5))
    found = FacilityLocation(space, cluster_weights=True).select(
        data, 9, runtime=Runtime(memory="80KB")
    )
    assert found.indices.tolist() == taken
    assert found.status is Status.OUT_OF_TIME
    assert found.weights.sum() == pytest.approx(90)
