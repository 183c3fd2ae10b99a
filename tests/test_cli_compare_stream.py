"""``bicore compare --stream``: buffers on the same rows in the same order, evaluated along the
way."""

import json

import numpy as np
import pytest

from bicore import Runtime
from bicore.evaluate.comparison import Grid, Stream, StreamComparison
from bicore.evaluate.models import RidgeJudge
from bicore.evaluate.pools import make_pools
from bicore.evaluate.records import Records
from bicore.sources.opening import open_source
from bicore.streaming import Reservoir
from tests.commands import assert_refused, assert_success
from tests.helpers import blobs, line

FAST = ["--stream", "--capacity", "8", "--batch", "20", "--seeds", "2"]
TWO = ["--buffers", "reservoir,class-balanced"]


@pytest.fixture
def table(tmp_path):
    data = blobs(200)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    goals = line(200, targets=1)
    np.savez(tmp_path / "targets.npz", x=goals.x, y=goals.y)
    return tmp_path


@pytest.mark.slow
def test_by_default_four_buffers_are_judged_at_five_points(bicore, table):
    words = [*FAST, "--seeds", "1", "--kernel", "rbf", "--plot", "p.png"]
    result = assert_success(bicore("compare", "data.npz", *words, cwd=table))
    assert "streams of 150 rows, order given, 8 kept" in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("accuracy of the ridge")
    assert lines[1].split()[:10:2] == ["40", "60", "100", "120", "150"]
    names = {one.split()[0] for one in lines[2:6]}
    assert names == {"moments", "reservoir", "class-balanced", "merge-reduce"}
    assert lines[6].startswith("all data (150)")
    assert (table / "p.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_every_row_and_a_second_run_computes_none(bicore, table):
    words = ["compare", "data.npz", *FAST, *TWO, "--points", "2", "--judge", "ridge,knn", "--json"]
    first = json.loads(bicore(*words, cwd=table).stdout)
    assert first["positions"] == [80, 150]
    assert len(first["rows"]) == 2 * 2 * 2
    assert list(first["judges"]) == ["ridge", "knn"]
    for entry in first["judges"]["knn"]["summary"]:
        own = [
            row["measures"]["knn"]["accuracy"]
            for row in first["rows"]
            if (row["buffer"], row["position"]) == (entry["method"], entry["size"])
        ]
        assert entry["mean"] == pytest.approx(np.mean(own))
    assert all(row["rows_per_second"] > 0 for row in first["rows"])
    again = bicore(*words, cwd=table)
    assert "8 of 8 results exist already" in again.stderr
    assert json.loads(again.stdout) == first
    more = bicore(*words, "--points", "3", cwd=table)  # the last position is there
    assert "4 of 12 results exist already" in more.stderr
    assert json.loads(more.stdout)["positions"] == [60, 100, 150]


@pytest.mark.slow
def test_regression_is_scored_by_r_squared_without_class_methods(bicore, table):
    result = assert_success(bicore("compare", "targets.npz", *FAST, "--points", "1", cwd=table))
    assert (
        "class-balanced is left out: it needs classes, and the targets are numeric" in result.stderr
    )
    assert result.stdout.startswith("R² of the ridge")
    assert "class-balanced" not in result.stdout
    named = bicore("compare", "targets.npz", *FAST, *TWO, "--points", "1", cwd=table)
    assert named.returncode == 1
    assert "class-balanced was left out: seed 0" in named.stderr


class Seen(Reservoir):
    """Remembers what it was fed."""

    fed: list

    def update(self, x, y=None, weight=None, **rest):
        self.fed.append((np.asarray(x), np.asarray(y)))
        return super().update(x, y, weight, **rest)


@pytest.mark.parametrize("order", ["given", "random", "sorted"])
def test_all_buffers_get_the_same_rows_in_the_requested_order(table, order):
    pools = make_pools(open_source(str(table / "data.npz")), None, "auto", 100, 2000, 50)
    fed: dict[str, list] = {"one": [], "two": []}

    def maker(name):
        def make(seed):
            buffer = Seen(8, seed)
            buffer.fed = fed[name]
            return buffer

        return make

    grid = Grid({name: maker(name) for name in fed}, [40, 100], range(1))
    records = Records(table / "rows.jsonl", {})
    stream = Stream(8, order, batch=30)
    StreamComparison(pools, grid, RidgeJudge(), records, Runtime(device="cpu"), stream=stream).run()
    assert [len(x) for x, _ in fed["one"]] == [30, 30, 30, 10]
    x, y = (np.concatenate([batch[part] for batch in fed["one"]]) for part in (0, 1))
    assert np.array_equal(x, np.concatenate([batch[0] for batch in fed["two"]]))
    places = [np.flatnonzero((pools.source.data.x == row).all(1))[0] for row in x]
    _, test = pools.of(0)
    assert not set(map(bytes, x)) & set(map(bytes, test.x))
    assert (places == sorted(places)) == (order == "given")
    assert (y.tolist() == sorted(y.tolist())) == (order == "sorted")


def test_positions_are_ends_of_batches():
    assert Stream(batch=100, points=3).positions(100) == [100]
    assert Stream(batch=10, points=2).positions(101) == [60, 101]


REFUSED = {
    "sizes": (["--sizes", "5"], "--sizes 5 belongs to a comparison of selections"),
    "methods": (
        ["--methods", "uniform"],
        "--methods uniform belongs to a comparison of selections",
    ),
    "buffer": (["--buffers", "reservoi"], "Did you mean 'reservoir'"),
    "a model": (["--buffers", "gradient-sampling"], "needs a network"),
    "twice": (["--buffers", "moments,moments"], "moments twice"),
    "order": (["--order", "backwards"], "--order backwards is not known"),
    "points": (["--points", "0"], "--evaluations must be"),
    "batch": (["--batch", "0"], "batch must be"),
    "capacity": (["--capacity", "0"], "capacity must be"),
    "a capacity for all": (
        ["--capacity", "150"],
        "between 1 and 149, less than the stream; got 150",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_end_with_code_2_and_one_line(bicore, name, table):
    words, message = REFUSED[name]
    assert_refused(bicore("compare", "data.npz", *FAST, *words, "--quiet", cwd=table), message)
    assert not list(table.rglob("*.jsonl"))


def test_options_of_streams_need_the_word(bicore, table):
    result = bicore("compare", "data.npz", "--capacity", "5", cwd=table)
    assert result.returncode == 2
    assert "--capacity 5 belongs to a comparison of streams; add --stream" in result.stderr
