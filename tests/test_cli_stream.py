"""``bicore stream``: every row counts exactly once after crashes, full disks and damaged files."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from bicore import InputError
from bicore.cli.stream import StreamRun
from bicore.defaults import BUFFERS as NAMES
from bicore.files import read_state, write_state
from bicore.methods import Uniform
from bicore.moments.heads import Head
from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime
from bicore.sources.opening import open_source
from bicore.streaming import BUFFERS, MergeReduce, MomentMemory, Reservoir
from bicore.streaming.buffer import StateFolder
from bicore.streaming.registry import build_buffer
from tests import HANG
from tests.commands import assert_refused, assert_success
from tests.helpers import blobs, fails, refuses

BUFFER = ["--buffer", "merge-reduce", "--capacity", "12", "--slots", "3"]
SELECTOR = ["--kernel", "rbf", "--inner-reg", "0.1"]
WORDS = [*BUFFER, "--batch", "7", "--every", "2", *SELECTOR]


@pytest.fixture
def folder(tmp_path):
    data = blobs(150)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    return tmp_path


@pytest.fixture
def stream(bicore, folder):
    """``bicore stream`` into the folder "state"."""

    def run(*words, source="data.npz"):
        return bicore("stream", source, *words, "--state", "state", cwd=folder)

    return run


def state_of(folder, name="state") -> bytes:
    return sorted((folder / name).glob("state-*.npz"))[-1].read_bytes()


def test_a_stream_is_consumed_once_and_again_changes_nothing(bicore, stream, folder):
    first = stream(*WORDS, "--json", "--out", "kept.npz")
    assert first.returncode == 0, first.stderr
    answer = json.loads(first.stdout)
    assert answer["position"] == 150
    assert answer["kept"] <= 12
    assert sum(answer["weights"]) == pytest.approx(150)
    before = state_of(folder)
    second = stream(*WORDS, "--json")
    assert json.loads(second.stdout)["ids"] == answer["ids"]
    assert "continuing after 150 rows" in second.stderr
    assert state_of(folder) == before
    assert len(list((folder / "state").glob("state-*.npz"))) == 2
    assert "12 of 150" in bicore("show", "kept.npz", cwd=folder).stdout or answer["kept"] < 12


#: The command, which kills itself after some calls of functions, counted from its start or from
#: the first batch on.
KILLED = """
import os, signal, sys
calls, at_work = {calls}, {at_work}
def count(frame, event, argument):
    global calls
    calls -= 1
    if not calls:
        os.kill(os.getpid(), signal.SIGKILL)
if at_work:
    from bicore.streaming import {kind} as Kind
    plain = Kind._process_batch
    def count_calls(self, *given):
        sys.setprofile(count)
        plain(self, *given)
    Kind._process_batch = count_calls
else:
    sys.setprofile(count)
from bicore.cli.app import main
main()
"""
#: Function calls of about twenty rows, and of most of the start (imports included).
CALLS_AT_WORK, CALLS_AT_START = 60_000, 2_000_000


MERGING = ["--buffer", "merge-reduce", "--slots", "3", "--kernel", "rbf", "--inner-reg", "0.1"]


def kill_and_resume(bicore, folder, kills, seed, kind="MergeReduce", options=MERGING) -> None:
    """Kill -9 at random moments while it works, resume, and compare with a run that was never
    interrupted, bit for bit."""
    words = ["stream", "data.npz", "--capacity", "12", "--batch", "1", "--every", "1", *options]
    words += ["--limit", str(40 * (kills + 1)), "--quiet", "--state"]
    rng = np.random.default_rng(seed)
    for kill in range(1, kills + 1):
        at_work = kill % 5 > 0
        calls = int(rng.integers(1, CALLS_AT_WORK if at_work else CALLS_AT_START))
        code = KILLED.format(calls=calls, at_work=at_work, kind=kind)
        ended = subprocess.run(
            [sys.executable, "-c", code, *words, "killed"], cwd=folder, stdout=subprocess.DEVNULL
        )
        assert ended.returncode == -signal.SIGKILL
    for name in ("killed", "never"):
        assert_success(bicore(*words, name, cwd=folder))
    assert state_of(folder, "killed") == state_of(folder, "never")
    assert not list((folder / "killed").glob(".*part*"))


@pytest.mark.slow
def test_killed_again_and_again_the_state_is_the_same_to_the_last_bit(bicore, folder):
    kill_and_resume(bicore, folder, 5, 0)


@pytest.mark.slow
def test_a_head_is_the_same_after_kills(bicore, folder):
    options = ["--feature-map", "relu:32"]
    kill_and_resume(bicore, folder, 5, 2, "MomentMemory", options)
    killed, never = (
        MomentMemory.load(sorted((folder / name).glob("state-*.npz"))[-1]).head()
        for name in ("killed", "never")
    )
    assert np.array_equal(killed.coef_, never.coef_)


@pytest.mark.slow
def test_fifty_kills(bicore, tmp_path):
    data = blobs(900)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    kill_and_resume(bicore, tmp_path, 50, 1)


@pytest.mark.slow
def test_an_interrupt_saves_and_prints_how_to_continue(folder):
    code = (
        "import os, signal, bicore.streaming.merge_reduce as m\nplain = m.MergeReduce._process_batch\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "taken = []\n"
        "def stop(self, b, c):\n"
        "    plain(self, b, c)\n"
        "    taken.append(1)\n"
        "    if len(taken) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "m.MergeReduce._process_batch = stop\n"
        "from bicore.cli.app import main\nmain()"
    )
    words = ["stream", "data.npz", *WORDS, "--out", "kept.npz", "--state", "state"]
    stopped = [sys.executable, "-c", code, *words]
    ended = subprocess.run(stopped, cwd=folder, capture_output=True, text=True, timeout=HANG)
    errors = ended.stderr
    assert ended.returncode == 130, errors
    assert "the same command continues" in errors
    assert not (folder / "kept.npz").exists()
    again = [sys.executable, "-m", "bicore", *words]
    subprocess.run(again, cwd=folder, check=True, capture_output=True)
    assert (folder / "kept.npz").exists()


def test_a_damaged_state_is_named_and_the_one_before_is_used(stream, folder):
    stream(*WORDS)
    whole = state_of(folder)
    newest = sorted((folder / "state").glob("state-*.npz"))[-1]
    newest.write_bytes(whole[: len(whole) // 2])
    again = stream(*WORDS)
    assert again.returncode == 0, again.stderr
    assert newest.name in again.stderr
    assert "the previous state is used" in again.stderr
    assert state_of(folder) == whole
    for path in (folder / "state").glob("state-*.npz"):
        path.write_bytes(b"nothing")
    for _ in range(2):  # and it stays refused
        lost = stream(*WORDS)
        assert lost.returncode == 2
        assert "every state file" in lost.stderr


def test_unreadable_state_is_not_reported_as_damaged(folder, monkeypatch):
    from pathlib import Path

    with StateFolder(folder / "state") as store:
        store.save(MergeReduce(4, Uniform(), 2).update(np.zeros((6, 2))))

        def fail(self):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(Path, "read_bytes", fail)
        fails(OSError, "Input/output", store.load, lambda path: MergeReduce.load(path, Uniform()))
        assert [path.name for path in store.files()] == ["state-000000000000006.npz"]


@pytest.mark.slow
def test_a_source_may_grow_at_its_end(bicore, folder):
    data = np.load(folder / "data.npz")
    words = [*WORDS, "--scale", "none", "--state"]
    np.savez(folder / "part.npz", x=data["x"][:70], y=data["y"][:70])
    for source, state in (("part.npz", "grown"), ("data.npz", "grown"), ("data.npz", "whole")):
        result = assert_success(bicore("stream", source, *words, state, "--json", cwd=folder))
    assert json.loads(result.stdout)["position"] == 150
    assert state_of(folder, "grown") == state_of(folder, "whole")
    assert (
        "first 150 rows differ" in bicore("stream", "part.npz", *words, "grown", cwd=folder).stderr
    )


def test_other_options_sources_and_formats_are_refused_by_name(stream, folder):
    stream(*WORDS)
    before = state_of(folder)
    changes = {
        "another selector configuration": [*WORDS[:-1], "0.2"],
        "different slots": [*WORDS[:4], "--slots", "2", *WORDS[6:]],
        "different batch size": [*WORDS[:6], "--batch", "8", *WORDS[8:]],
    }
    for message, words in changes.items():
        assert_refused(stream(*words), message)
    data = blobs(150)
    np.savez(folder / "other.npz", x=data.x + 1, y=data.y)
    assert "different stream" in stream(*WORDS, source="other.npz").stderr
    assert state_of(folder) == before
    newest = sorted((folder / "state").glob("state-*.npz"))[-1]
    import bicore.streaming.base as base

    old = base.FORMAT
    base.FORMAT = 99
    try:
        buffer = MergeReduce(3, Uniform(), 1).update(np.zeros((5, 2)))
        buffer.save(newest)
    finally:
        base.FORMAT = old
    assert "format 99" in stream(*WORDS).stderr


def test_two_processes_on_one_folder(stream, folder):
    with StateFolder(folder / "state"):
        result = stream(*WORDS)
        assert result.returncode == 2
        assert f"in use by process {os.getpid()}" in result.stderr
    assert stream(*WORDS).returncode == 0


def test_a_full_disk_leaves_the_last_good_state(folder, monkeypatch):
    buffer = MergeReduce(4, Uniform(), 2).update(np.zeros((6, 2)))
    with StateFolder(folder / "state") as store:
        store.save(buffer)
        good = state_of(folder)

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np.lib.format, "write_array", full)
        buffer.update(np.ones((6, 2)))
        fails(OSError, "No space left", store.save, buffer)
        monkeypatch.undo()
        assert state_of(folder) == good
        assert store.load(lambda path: MergeReduce.load(path, Uniform())).position == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "0"], "--batch must be"),
        (["--every", "0"], "--every must be"),
        (["--slots", "13"], "slots must be an integer between 1 and 12"),
        (["--method", "icarl"], "--method icarl"),
        (["--weighting", "binary"], "--weighting binary is not known"),
        (["--out", "a.csv"], "must end in .npz"),
        (["--feature-map", "relu"], "no option --feature-map"),
        (["--half-life", "9"], "no option --half-life"),
        (["--buffer", "gradient-sampling"], "needs a network"),
        (["--buffer", "reservoirs"], "Did you mean 'reservoir'?"),
        (["--buffer", "moments"], "no option --slots"),
    ],
)
def test_bad_requests_end_with_code_2_and_one_line(stream, folder, words, message):
    result = stream(*WORDS, *words, "--quiet")
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list(folder.glob("state/state-*"))


def test_an_empty_folder_and_temporary_files(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".state-000000000000001.99.part.npz").write_bytes(b"half")
    with StateFolder(tmp_path / "state") as store:
        assert store.load(lambda path: MergeReduce.load(path, Uniform())) is None
    assert not list((tmp_path / "state").glob(".state*"))
    with (
        pytest.raises(InputError, match="in use"),
        StateFolder(tmp_path / "state"),
        StateFolder(tmp_path / "state"),
    ):
        pass


# Any buffer.


#: What makes an update cheap.
CHEAP = {
    "moments": ["--feature-map", "rows"],
    "merge-reduce": ["--kernel", "rbf", "--inner-reg", "0.1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_buffer_continues_to_the_same_state(bicore, folder, name):
    words = ["stream", "data.npz", "--buffer", name, "--capacity", "10", "--batch", "7"]
    words += [*CHEAP.get(name, []), "--every", "2", "--scale", "none", "--state"]
    assert_success(bicore(*words, "state", "--limit", "70", cwd=folder))
    again = bicore(*words, "state", "--json", "--out", "kept.npz", cwd=folder)
    assert "continuing after 70 rows" in again.stderr
    bicore(*words, "never", cwd=folder)
    assert state_of(folder, "state") == state_of(folder, "never")
    newest = sorted((folder / "state").glob("state-*.npz"))[-1]
    mark = read_state(newest, "")[0]["values"]["mark"]
    assert list(mark) == ["batch", "rows"]  # as folders of earlier versions have it
    answer = json.loads(again.stdout)
    assert (answer["buffer"], answer["position"], answer["kept"]) == (name, 150, 10)
    assert answer["rows_per_second"] == pytest.approx(80 / answer["update_seconds"])
    assert "10 of 150" in bicore("show", "kept.npz", cwd=folder).stdout


def test_moments_are_the_default_and_report_the_chosen_features(bicore, folder):
    words = ["stream", "data.npz", "--capacity", "12", "--state"]
    result = bicore(*words, "auto", "--json", cwd=folder)
    (line,) = (line for line in result.stderr.splitlines() if "feature map: Standardised" in line)
    assert (
        "Standardised(RandomReLU), 1024 features per row (because the first rows look like a table)"
        in line
    )
    answer = json.loads(result.stdout)
    assert (answer["buffer"], answer["reason"], answer["width"]) == ("moments", "table", 1024)
    options = ["--feature-map", "rows", "--strategy", "gain", "--prior", "0=0.2,1=0.3,2=0.5"]
    options += ["--half-life", "60", "--inner-reg", "0.2"]
    asked = assert_success(bicore(*words, "rows", *options, cwd=folder))
    assert "feature map: Rows, 4 features per row (as requested)" in asked.stderr
    assert "updates: " in asked.stdout
    other = bicore(*words, "rows", "--feature-map", "rows", cwd=folder)
    assert other.returncode == 2
    assert "different strategy, inner_reg, prior, half_life" in other.stderr


def test_a_state_of_another_buffer_names_it(stream, folder):
    stream(*WORDS)
    before = state_of(folder)
    known = "use --buffer merge-reduce, or another --state"
    assert_refused(stream("--capacity", "12"), "different buffer, merge-reduce", known)
    assert state_of(folder) == before


def test_buffers_by_name():
    for name, kind in BUFFERS.items():
        assert type(build_buffer(name, 5, random_state=3)) is kind
    assert build_buffer("merge-reduce", 4).slots == 4
    assert build_buffer("merge-reduce", 40, selector="uniform", slots=2).slots == 2
    for name, option, message in (
        ("reservoir", "slots", "buffer=.reservoir. has no option .slots."),
        ("reservoir", "sloths", "has no option"),
        ("moments", "feature_mp", "Did you mean 'feature_map'"),
    ):
        refuses(message, build_buffer, name, 5, **{option: 1})
    refuses("Did you mean 'moments'", build_buffer, "moment", 5)


# Standard input.


def make_csv(rows: int, start: int = 0) -> str:
    """A table as text."""
    rng = np.random.default_rng(0)
    lines = ["size,weight,colour,label"]
    for row, (size, weight) in enumerate(rng.normal(size=(start + rows, 2)).round(3).tolist()):
        lines.append(f"{size},{weight},{'rg'[row % 2]},{'ab'[weight > 0]}")
    return "\n".join([lines[0], *lines[start + 1 :]]) + "\n"


def test_standard_input_is_read_to_its_end_and_may_grow(bicore, tmp_path):
    words = ["stream", "-", "--target", "label", "--capacity", "9", "--batch", "10", "--every", "2"]
    words += ["--buffer", "class-balanced", "--scale", "none", "--json", "--state"]
    whole = assert_success(bicore(*words, "never", cwd=tmp_path, input=make_csv(200)))
    assert json.loads(whole.stdout)["position"] == 200
    assert_success(bicore(*words, "again", "--limit", "150", cwd=tmp_path, input=make_csv(200)))
    again = assert_success(bicore(*words, "again", cwd=tmp_path, input=make_csv(200)))
    assert "continuing after 150 rows" in again.stderr
    assert state_of(tmp_path, "again") == state_of(tmp_path, "never")
    other = bicore(*words, "again", cwd=tmp_path, input=make_csv(200, start=1))
    assert_refused(other, "different stream")


@pytest.mark.parametrize("done", [True, False])
def test_interrupt_around_an_update_leaves_a_usable_state(folder, done):
    def run(store):
        source = open_source(str(folder / "data.npz"))
        held = store.load(Reservoir.load) or Reservoir(5)
        made = StreamRun("reservoir", held, source, 10, store, Runtime(), Clock())
        made.check_state(Reservoir(5))
        return made

    with StateFolder(folder / "stopped") as store:
        first = run(store)
        plain = first.buffer.update

        def interrupt(*words, **named):
            if first.buffer.position == 40:
                if done:
                    plain(*words, **named)
                raise KeyboardInterrupt
            return plain(*words, **named)

        first.buffer.update = interrupt
        assert first.consume(100, quiet=True)
        assert first.buffer.position == (50 if done else 40)
        assert not run(store).consume(100, quiet=True)
    with StateFolder(folder / "never") as store:
        assert not run(store).consume(100, quiet=True)
    assert state_of(folder, "stopped") == state_of(folder, "never")


def test_heads_of_two_streams_are_the_head_of_one(bicore, folder):
    data = np.load(folder / "data.npz")
    np.savez(folder / "a.npz", x=data["x"][:60], y=data["y"][:60])
    np.savez(folder / "b.npz", x=data["x"][60:], y=data["y"][60:])
    words = ["--capacity", "12", "--scale", "none", "--quiet"]
    for name, more in (("a", ()), ("b", ("--merge", "a")), ("data", ())):
        features = () if name == "a" else ("--feature-map", "a")
        head = ("--head", f"{name}-head.npz")
        run = bicore(
            "stream", f"{name}.npz", *words, "--state", name, *features, *head, *more, cwd=folder
        )
        assert run.returncode == 0, run.stderr
    both, whole = (Head.load(folder / f"{name}-head.npz") for name in ("b", "data"))
    np.testing.assert_allclose(both.coef_, whole.coef_, rtol=1e-6, atol=1e-9)
    run = bicore("predict", "b-head.npz", "data.npz", "--json", "--out", "labels.csv", cwd=folder)
    answer = json.loads(run.stdout)
    assert answer["predictions"] == both.predict(data["x"]).tolist()
    assert answer["score"] == both.score(data["x"], data["y"])
    assert len((folder / "labels.csv").read_text().splitlines()) == 150
    np.save(folder / "new.npy", data["x"])  # rows without labels
    run = bicore("predict", "b-head.npz", "new.npy", "--json", cwd=folder)
    assert json.loads(run.stdout)["predictions"] == answer["predictions"], run.stderr
    bicore("select", "data.npz", "--size", "5", "--out", "picks.npz", cwd=folder)
    run = bicore("predict", "picks.npz", "data.npz", cwd=folder)
    assert "picks.npz is a coreset file; give a file written by Head.save" in run.stderr
    run = bicore("show", "b-head.npz", cwd=folder)
    assert "b-head.npz is a state file; give a .npz file written by bicore select" in run.stderr
    for wrong in (
        ("predict", "data.npz", "data.npz"),
        ("predict", "a-head.npz", "data.npz", "--scale", "unit"),
        ("predict", "none.npz", "data.npz"),
        ("stream", "a.npz", *words, "--state", "c", "--merge", "a"),
        ("stream", "a.npz", *words, "--state", "c", "--head", "c.npz", "--buffer", "reservoir"),
        ("stream", "a.npz", *words, "--state", "a", "--head", "c.npz", "--merge", "nowhere"),
    ):
        assert bicore(*wrong, cwd=folder).returncode == 2


def test_a_head_encodes_a_table_as_the_stream_did(bicore, tmp_path):
    """Medians and categories are those of the stream, so other rows do not change a prediction."""
    rng = np.random.default_rng(0)
    cities = rng.choice(["Basel", "Bern", "Zurich"], 120)
    sizes = [f"{size:.3f}" if size > -1 else "" for size in rng.normal(size=120)]
    labels = np.where(cities == "Zurich", "yes", "no")
    rows = [",".join(row) for row in zip(cities, sizes, labels, strict=True)]
    (tmp_path / "all.csv").write_text("\n".join(["city,size,label", *rows]))
    words = ("--capacity", "9", "--state", "s", "--scale", "none", "--head", "head.npz")
    assert_success(bicore("stream", "all.csv", "--target", "label", *words, cwd=tmp_path))

    def predict(table, *more):
        run = assert_success(bicore("predict", "head.npz", table, "--json", *more, cwd=tmp_path))
        return json.loads(run.stdout)["predictions"]

    every = predict("all.csv", "--target", "label")
    assert every == labels.tolist()
    some = [place for place in range(120) if cities[place] != "Bern"]
    lines = [f"{sizes[place]},{cities[place]}" for place in some]  # other columns, no labels
    (tmp_path / "some.csv").write_text("\n".join(["size,city", *lines, "0.1,Geneva"]))
    *known, unknown = predict("some.csv")
    assert known == [every[place] for place in some]
    assert unknown == "no"
    (tmp_path / "less.csv").write_text("size\n1\n2")
    run = bicore("predict", "head.npz", "less.csv", cwd=tmp_path)
    assert "no column 'city'" in run.stderr
    assert "Feature scaling: none (default)" in bicore("predict", "--help").stdout
    head, arrays = read_state(tmp_path / "head.npz", "Head.save")
    for columns in (3, [3], ["city"], [{"kind": "Words"}], [{"kind": "Numbers", "size": 1}]):
        changed = {**head, "head": {**head["head"], "columns": columns}}
        write_state(tmp_path / "bad.npz", changed, arrays)
        run = bicore("predict", "bad.npz", "some.csv", cwd=tmp_path)
        assert run.returncode == 2
        assert "bad.npz is not a state file, or it is damaged" in run.stderr
