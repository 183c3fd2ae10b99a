"""Rows in files and sources, by ``bicore.select`` and the command."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import bicore as library
from bicore import InputError, LargeDataWarning, Runtime
from bicore.cli.select import Rows as CommandRows
from bicore.coreset import Status
from bicore.methods.passes import features_for
from bicore.moments.features import RandomReLU
from bicore.moments.features.maps import Rows
from bicore.runtime.clock import ProgressLine
from bicore.shards import select_from_shards
from bicore.shards.executors import Threads
from bicore.shards.request import Request, estimate
from bicore.shards.selection import Selection
from bicore.sources import open_shards
from bicore.sources.parts import ArrayShards
from tests.commands import assert_refused, assert_success
from tests.helpers import draw_classes, refuses

rows = partial(draw_classes, n=200, shift=1.5, dtype=np.float32)


def table(x, y):
    return pyarrow.table({"embedding": list(x), "label": y})


@pytest.fixture
def folder(tmp_path):
    """Three shards in each of two kinds of files."""
    (tmp_path / "npy").mkdir()
    for number in range(3):
        x, y = rows(seed=number)
        np.save(tmp_path / "npy" / f"x-{number}.npy", x)
        np.save(tmp_path / "npy" / f"y-{number}.npy", y)
        pyarrow.parquet.write_table(table(x, y), tmp_path / f"part-{number}.parquet")
    return tmp_path


def select(bicore, folder, source="npy", *words):
    return bicore("select", source, "--size", "9", *words, cwd=folder)


SIZED = ("--size", "9")
PARQUET = ("part-*.parquet", "--columns", "embedding", "--target", "label")


class TestLibrary:
    @pytest.mark.slow
    def test_features_stand_in_for_kernels_with_a_notice(self, folder):
        source = open_shards(folder / "npy")
        with pytest.warns(LargeDataWarning, match="1024 random features"):
            found = library.select(source, size=5, kernel="rbf", strategy="greedy", passes=True)
        assert "random features" in found.provenance.notes[0]
        laplace = features_for(library.kernels.Laplace(0.5), seed=3)[0]
        assert (laplace.kind, laplace.gamma, laplace.random_state) == ("laplace", 0.5, 3)
        assert type(features_for("ntk", 0)[0]) is RandomReLU
        with pytest.warns(LargeDataWarning, match="landmarks"):
            library.select(source, size=5, kernel="polynomial", strategy="greedy", passes=True)
        linear = library.select(
            source, size=5, kernel="linear", rule="gradient", passes=True, exact=True
        )
        own = select_from_shards(source, 5, feature_map=Rows(), rule="gradient", exact=True)
        assert linear.indices.tolist() == own.indices.tolist()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"loss": "cross-entropy"}, "squared error"),
            ({"weighting": "learned"}, "reweight"),
            ({"model": object()}, "kernel=module"),
            ({"method": "uniform"}, "all rows in memory"),
            ({"size": "auto"}, "a count or a fraction"),
            ({"tolerance": 0.1}, "a count or a fraction"),
            ({"kernel": "rbf", "exact": True}, "leave exact out"),
            ({"strategy": "simplex"}, "'greedy'"),
            ({"inner_reg": library.bilevel.PerPoint(0.1)}, "inner_reg must be"),
            ({"first": "random"}, "leave it out"),
            ({"pases": True}, "pases"),
            ({"labels": "y.npy", "y": "y.npy"}, "mean the same"),
            ({"outer": (1, 2, 3, 4)}, "outer"),
            ({"initial": [1, 1]}, "a row twice"),
        ],
    )
    def test_options_without_meaning_in_passes_are_refused(self, folder, options, words):
        refuses(words, library.select, folder / "npy", **{"size": 5, "passes": True, **options})

    def test_a_cluster_is_given_by_its_address(self, folder, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(InputError, match=r"bicore\[dask\]"):
            library.select(folder / "npy", size=5, executor="tcp://127.0.0.1:1")

    def test_points_of_another_source_are_not_continued(self, folder):
        begun = library.select(folder / "npy", size=5)
        more = library.select(folder / "npy", size=9, initial=begun, strategy="greedy")
        assert more.indices[:5].tolist() == begun.indices.tolist()
        x, y = rows(n=600, seed=9)
        refuses("other data", library.select, ArrayShards(x, y), size=9, initial=begun)

    def test_an_outer_set_is_checked_apart_from_the_rows(self):
        """Rows that may be chosen are looked at too where another set is what is judged by."""
        x, y = rows()
        judge = rows(seed=7)
        x[11] = np.nan
        refuses("row 11", library.select, ArrayShards(x, y), size=5, outer=judge)
        found = library.select(ArrayShards(x, y), size=5, outer=judge, skip_bad=True)
        assert 11 not in found.indices
        assert "1 rows" in found.provenance.notes[0]
        with pytest.raises(InputError, match="which outer does not contain"):
            library.select(
                ArrayShards(*rows()),
                size=5,
                passes=True,
                outer=(judge[0], np.zeros(200, dtype=int)),
            )


class TestSelection:
    def test_progress_tells_of_points_and_of_the_time_left(self):
        seen = []
        found = library.select(
            ArrayShards(*rows(), part_rows=50),
            size=20,
            passes=True,
            runtime=Runtime(progress=seen.append),
        )
        assert seen[0].total == 20
        assert [step.done for step in seen] == sorted(step.done for step in seen)
        assert {step.done for step in seen} >= {1, 2, 3}
        assert all(step.seconds_left >= 0 for step in seen)
        before = [step for step in seen if step.done == 19]
        assert all(step.seconds_left <= step.seconds for step in before)
        assert len(found) == 20

    def test_passes_before_the_first_point_are_reported_only_on_request(self, monkeypatch, capsys):
        monkeypatch.setattr("bicore.runtime.clock.LINE_EVERY_SECONDS", 0.0)

        class Report:
            def __init__(self):
                self.points, self.shares = [], []
                self.prepare = self.shares.append

            def __call__(self, step):
                self.points.append(step.done)

        source, report = ArrayShards(*rows(), part_rows=50), Report()
        for progress in (False, report):
            library.select(source, size=2, passes=True, runtime=Runtime(progress=progress))
        assert capsys.readouterr().err == ""
        assert 1.0 in report.shares
        assert report.points[-1] == 2

    def test_passes_left_are_those_that_are_made(self):
        for size in (1, 7, 60):
            made = select_from_shards(ArrayShards(*rows()), size, exchange=False)
            assert made.details["passes"] == Request(size).passes_left(0)
        assert Request(10, exact=True).passes_left(4) == 6

    def test_interrupt_inside_a_pass_keeps_complete_steps(self, monkeypatch):
        plain = library.select(ArrayShards(*rows()), size=12, strategy="greedy", passes=True)
        real = Selection._add_point

        def interrupt(self, position, row, target):
            if len(self.points) == 7:  # the model has the point, the list has not
                raise KeyboardInterrupt
            real(self, position, row, target)

        monkeypatch.setattr(Selection, "_add_point", interrupt)
        found = library.select(ArrayShards(*rows()), size=12, strategy="greedy", passes=True)
        assert found.status is Status.INTERRUPTED
        assert found.indices.tolist() == plain.indices[:7].tolist()
        assert found.objective == pytest.approx(plain.objectives[6], rel=1e-9)

    def test_time_that_is_over_inside_a_pass_ends_it(self, monkeypatch):
        real = ProgressLine.update

        def late(self, done, objective, left=None):
            real(self, done, objective, left)
            if done == 5:
                self.clock.start -= 1e6

        monkeypatch.setattr(ProgressLine, "update", late)
        source = ArrayShards(*rows(), part_rows=50)
        found = library.select(source, size=12, passes=True, runtime=Runtime(max_seconds=1e5))
        assert found.status is Status.OUT_OF_TIME
        assert len(found) == 5

    def test_a_state_belongs_to_its_outer_set_and_its_first_points(self, tmp_path):
        source, judge = ArrayShards(*rows()), rows(seed=7)
        library.select(source, size=5, outer=judge, state=tmp_path, initial=[3])
        with pytest.raises(InputError, match="different outer"):
            library.select(source, size=5, outer=rows(seed=8), state=tmp_path, initial=[3])
        refuses("different initial", library.select, source, size=5, outer=judge, state=tmp_path)


class TestEstimate:
    def test_estimate_matches_the_selection(self):
        source = ArrayShards(*rows(), part_rows=50)
        found = estimate(source, size=20, exchange=False)
        made = select_from_shards(source, 20, exchange=False)
        assert found.passes == 1 + made.details["passes"]
        assert found.bytes_read == found.passes * 200 * 8 * 4
        assert estimate(source, size=20, exact=True).passes == 21
        assert library.estimate(source, size=20, passes=True).operator == "moments"

    def test_fewer_threads_are_taken_under_a_limit(self, monkeypatch):
        source = ArrayShards(*rows(), part_rows=50)
        assert estimate(source, size=20, runtime=Runtime(threads=3, memory="1GB")).workers == 3
        limit = estimate(source, size=20, runtime=Runtime(threads=2, memory="1GB")).bytes
        fewer = estimate(source, size=20, exchange=False, runtime=Runtime(threads=3, memory=limit))
        assert fewer.workers == 2
        assert fewer.bytes <= limit

        used = []
        real = Threads.map

        def note_count(self, work, source):
            used.append(self.count)
            return real(self, work, source)

        monkeypatch.setattr(Threads, "map", note_count)
        select_from_shards(source, 20, exchange=False, runtime=Runtime(threads=3, memory=limit))
        assert set(used) == {2}

    def test_every_kind_of_source_takes_the_route_of_select(self, folder):
        x, y = (
            np.concatenate(both) for both in zip(*(rows(seed=n) for n in range(3)), strict=True)
        )
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        columns = {"columns": "embedding", "target": "label"}
        sources = [
            ((x, y), {}),
            ((library.Dataset(x, y),), {}),
            ((folder / "x.npy", folder / "y.npy"), {}),
            ((folder / "npy",), {}),
            ((str(folder / "part-*.parquet"),), columns),
            ((open_shards((x, y)),), {}),
        ]
        if importlib.util.find_spec("dask"):
            from dask import array

            sources.append(((array.from_array(x, chunks=(200, -1)), array.from_array(y)), {}))
        found = [library.estimate(*given, size=9, **options) for given, options in sources]
        assert {(one.operator, one.bytes, one.approximation) for one in found} == {
            ("gram", found[0].bytes, None)
        }
        small = Runtime(memory="300kB")
        answers = [
            library.estimate(*given, size=9, kernel="linear", passes=True, runtime=small, **more)
            for given, more in sources[2:]
        ]
        assert {(one.operator, one.passes.rows) for one in answers} == {("moments", 600)}


class TestCommand:
    def test_a_pattern_and_a_folder(self, bicore, folder):
        passes = ("--passes", "--json", "--out", "picks.npz")
        found = assert_success(select(bicore, folder, *PARQUET, "--memory", "2GB", *passes))
        answer = json.loads(found.stdout)
        own = library.select(folder / "npy", size=9, passes=True)
        assert answer["indices"] == own.indices.tolist()
        assert answer["passes"] == own.details["passes"]
        assert answer["certain"] == own.details["certain"]
        kept = library.Coreset.load(folder / "picks.npz")
        assert kept.indices.tolist() == answer["indices"]
        assert "To reproduce" in kept.provenance.notes[-1]
        words = select(bicore, folder)
        assert "passes" not in words.stdout

    def test_rows_beyond_the_limit_are_read_when_needed(self, bicore, folder):
        plain = select(bicore, folder, "npy", "--json")
        never = {"bicore.sources.parts.COPIES": 10**9}
        small = bicore("select", "npy", "--size", "9", "--json", cwd=folder, replace=never)
        assert small.returncode == 0, small.stderr
        notes = {one: json.loads(one.stdout)["notes"] for one in (plain, small)}
        assert any("when needed" in note for note in notes[small])
        assert not any("when needed" in note for note in notes[plain])
        assert json.loads(small.stdout)["indices"] == json.loads(plain.stdout)["indices"]
        one = ("npy/x-0.npy", "--labels", "npy/y-0.npy", "--kernel", "linear")
        asked = select(bicore, folder, *one, "--passes", "--exact", "--quiet", "--json")
        assert json.loads(asked.stdout)["passes"] == 9

    def test_a_folder_of_images_stays_one(self, folder):
        (folder / "npy" / "cat").mkdir()
        assert CommandRows(str(folder / "npy")).in_parts({}, Runtime())
        (folder / "npy" / "cat" / "one.png").touch()
        assert not CommandRows(str(folder / "npy")).in_parts({}, Runtime())

    def test_options_reach_the_selection(self, bicore, folder):
        exact = ("--rule", "gradient", "--passes", "--exact", "--prior", "equal", "--json")
        found = select(bicore, folder, "npy", *exact, "--outer", "npy/x-0.npy,npy/y-0.npy")
        assert found.returncode == 0, found.stderr
        own = library.select(
            folder / "npy",
            size=9,
            rule="gradient",
            passes=True,
            exact=True,
            prior="equal",
            outer=rows(),
        )
        assert json.loads(found.stdout)["indices"] == own.indices.tolist()
        kernel = ("--kernel", "polynomial", "--strategy", "greedy", "--passes")
        assert "landmarks" in select(bicore, folder, "npy", *kernel).stderr

    def test_estimates(self, bicore, folder):
        found = assert_success(
            bicore("estimate", *PARQUET, *SIZED, "--passes", "--json", cwd=folder)
        )
        answer = json.loads(found.stdout)
        assert answer["rows"] == 600
        plan = bicore("estimate", "npy", *SIZED, "--passes", cwd=folder).stdout
        assert f"{answer['passes']} passes" in plan
        dry = ("npy", "--dry-run", "--json", "--quiet")
        passes = select(bicore, folder, *dry, "--passes")
        assert json.loads(passes.stdout)["passes"] == answer["passes"]
        outer = ("--outer", "npy/x-0.npy,npy/y-0.npy")
        plain, judged = (
            json.loads(select(bicore, folder, *dry, *more).stdout) for more in ((), outer)
        )
        assert plain["operator"] == "gram"
        same = json.loads(bicore("estimate", "npy", *SIZED, "--json", cwd=folder).stdout)
        assert (same["operator"], same["bytes"]) == (plain["operator"], plain["bytes"])
        assert judged["bytes"] != plain["bytes"]
        sized = ("--dry-run", "--size", "auto", "--tolerance", "0.1")
        assert bicore("select", "npy", *sized, cwd=folder).returncode == 0

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("npy", "--picture", "p.png"), "--picture p.png needs all rows"),
            (("npy", "--limit", "5"), "--limit 5 needs all rows"),
            (("npy", "--out", "rows.csv"), "--out rows.csv"),
            (("npy", "--passes", "--loss", "cross-entropy"), "squared error"),
            (("npy", "--passes", "--weighting", "learned"), "reweight"),
            (("npy", "--memory", "1KB"), "the limit is 1 kB"),
            (("npy", "--memory", "1KB", "--passes"), "raise the limit"),
            (("npy", "--initial", "none.npz"), "does not exist"),
            (("npy", "--device", "cuda:9"), "cuda:9"),
            (("digits", "--dask", "tcp://127.0.0.1:1"), "--executor tcp"),
            (("npy", "--columns", "embedding"), "--columns does not apply"),
            (("digits", "--passes", "--exact"), "--passes"),
            (("no-*.npy",), "file matches"),
            (("npy/x-0.npy", "--skip-bad"), "has no labels"),
        ],
    )
    def test_requests_that_cannot_be_right(self, bicore, folder, words, said):
        found = select(bicore, folder, *words)
        assert found.returncode == 2, found.stderr
        assert said in found.stderr
        assert "Traceback" not in found.stderr
        assert found.stderr.strip().splitlines()[-1].startswith("bicore: ")

    def test_bad_files_are_named(self, bicore, folder):
        np.save(folder / "npy" / "x-1.npy", rows(seed=1)[0][:, :5])
        assert_refused(select(bicore, folder), "x-1.npy", "(5,)")
        (folder / "npy" / "x-1.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00 broken")
        assert_refused(select(bicore, folder), "x-1.npy")
        np.save(folder / "npy" / "x-1.npy", rows(seed=1)[0])
        (folder / "npy" / "y-1.npy").unlink()
        assert_refused(select(bicore, folder), "x-1.npy")
        pyarrow.parquet.write_table(table(*rows()).drop_columns("label"), folder / "part-1.parquet")
        assert_refused(select(bicore, folder, *PARQUET), "part-1.parquet")

    def test_bad_rows_are_named_or_counted(self, bicore, folder):
        x, _ = rows(seed=1)
        x[17, 3] = np.nan
        np.save(folder / "npy" / "x-1.npy", x)
        assert_refused(
            select(bicore, folder), "x-1.npy: row 17 (row 217 of the source)", "--skip-bad"
        )
        found = select(bicore, folder, "npy", "--skip-bad", "--json")
        answer = json.loads(found.stdout)
        assert answer["bad_rows"] == 1
        assert 217 not in answer["indices"]
        assert "1 in" in answer["notes"][0]
        assert "x-1.npy" in answer["notes"][0]

    def test_a_source_that_shrinks_keeps_its_state(self, bicore, folder):
        first = assert_success(select(bicore, folder, "npy", "--state", "state", "--json"))
        before = {path.name: path.read_bytes() for path in (folder / "state").glob("*.npz")}
        again = select(bicore, folder, "npy", "--state", "state", "--json")
        assert json.loads(again.stdout)["indices"] == json.loads(first.stdout)["indices"]
        x, y = rows(seed=2)
        np.save(folder / "npy" / "x-2.npy", x[:150])
        np.save(folder / "npy" / "y-2.npy", y[:150])
        assert_refused(select(bicore, folder, "npy", "--state", "state"), "different fingerprint")
        assert {path.name: path.read_bytes() for path in (folder / "state").glob("*.npz")} == before


CHANGED = """
from bicore.shards.selection import Selection
{more}
from bicore.cli.app import main
main()
"""


def start_selection(folder, *words, more=""):
    command = [sys.executable, "-c", CHANGED.format(more=more), "select", "npy", "--size", "30"]
    place = str(Path(library.__file__).parents[1])  # whichever folder the tests were started in
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": place}
    return subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_command_continues_to_the_same_points(bicore, folder, how):
    request = ("select", "npy", "--size", "30", "--passes", "--json")
    plain = json.loads(bicore(*request, cwd=folder).stdout)
    stopping = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
plain, passes = Selection._pass, []
def stop(self):
    passes.append(1)
    if len(passes) == 8:
        os.kill(os.getpid(), {how.value})
    return plain(self)
Selection._pass = stop
"""
    process = start_selection(folder, "--state", "state", "--json", more=stopping)
    _, words = process.communicate()
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    if how == signal.SIGINT:
        assert "kept in state." in words
        assert "\nbicore select" in words
    again = bicore("select", "npy", "--size", "30", "--state", "state", "--json", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["indices"] == plain["indices"]


@pytest.mark.slow
def test_a_full_disk_keeps_the_state(bicore, folder):
    full = """
import bicore.files as states
kept = states.write_state
def full(path, *rest):
    if path.name == "points.npz" and path.exists():
        raise OSError(28, "No space left on device")
    return kept(path, *rest)
states.write_state = full
"""
    process = start_selection(folder, "--state", "state", "--json", more=full)
    _, words = process.communicate()
    assert process.returncode == 1
    assert "No space left on device: the state could not be written" in words
    assert "free disk space" in words
    assert "Traceback" not in words
    plain, again = (
        json.loads(bicore("select", "npy", "--size", "30", "--json", *more, cwd=folder).stdout)
        for more in (("--passes",), ("--state", "state"))
    )
    assert again["indices"] == plain["indices"]


@pytest.mark.slow
def test_a_source_that_changes_between_passes_is_refused(folder):
    shrink = """
import numpy as np
kept = Selection._save
def shrinking(self):
    kept(self)
    x = np.load("npy/x-2.npy")
    np.save("npy/x-2.npy", x[:-50] if len(x) == 200 else x)
Selection._save = shrinking
"""
    process = start_selection(folder, "--passes", more=shrink)
    _, words = process.communicate()
    assert process.returncode == 2
    assert "x-2.npy changed" in words
