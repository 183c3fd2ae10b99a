"""``bicore stream``: exactly once whatever happens to the process, the disk and the files."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bicore import InputError
from bicore.memory import MergeReduce
from bicore.memory.store import StateFolder
from bicore.selectors import Uniform
from tests.helpers import blobs

WORDS = [
    "--capacity",
    "12",
    "--slots",
    "3",
    "--batch",
    "7",
    "--every",
    "2",
    "--kernel",
    "rbf",
    "--inner-reg",
    "0.1",
]


@pytest.fixture
def folder(tmp_path):
    data = blobs(150)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    return tmp_path


def state_of(folder, name="state") -> bytes:
    return sorted((folder / name).glob("state-*.npz"))[-1].read_bytes()


def test_a_stream_is_consumed_once_and_again_changes_nothing(bicore, folder):
    first = bicore(
        "stream", "data.npz", *WORDS, "--state", "state", "--json", "--out", "kept.npz", cwd=folder
    )
    assert first.returncode == 0, first.stderr
    answer = json.loads(first.stdout)
    assert answer["position"] == 150
    assert answer["kept"] <= 12
    assert sum(answer["weights"]) == pytest.approx(150)
    before = state_of(folder)
    second = bicore("stream", "data.npz", *WORDS, "--state", "state", "--json", cwd=folder)
    assert json.loads(second.stdout)["ids"] == answer["ids"]
    assert "going on after 150 rows" in second.stderr
    assert state_of(folder) == before
    assert len(list((folder / "state").glob("state-*.npz"))) == 2
    assert "12 of 150" in bicore("show", "kept.npz", cwd=folder).stdout or answer["kept"] < 12


def kill_and_resume(bicore, folder, kills: int, seed: int) -> None:
    """Kill -9 at random moments while it works, resume, and compare with a run that was never
    interrupted, bit for bit."""
    slow = "import sys, time, bicore.memory.merge_reduce as m\n"
    slow += "plain = m.MergeReduce._take\n"
    slow += (
        "def late(self, batch, context):\n    time.sleep(0.004)\n    plain(self, batch, context)\n"
    )
    slow += "m.MergeReduce._take = late\nfrom bicore.cli.app import main\nmain()\n"
    words = [
        "stream",
        "data.npz",
        "--capacity",
        "12",
        "--slots",
        "3",
        "--batch",
        "1",
        "--every",
        "1",
        "--kernel",
        "rbf",
    ]
    words += ["--inner-reg", "0.1", "--quiet", "--state"]
    rng = np.random.default_rng(seed)
    done = 0
    for kill in range(1, kills + 1):
        process = subprocess.Popen(
            [sys.executable, "-c", slow, *words, "killed"], cwd=folder, stdout=subprocess.DEVNULL
        )
        start = _position(folder)
        while kill % 5 and process.poll() is None and _position(folder) == start:
            time.sleep(0.002)  # until it works; every fifth is killed while it starts or loads
        time.sleep(float(rng.uniform(0, 0.25 if kill % 5 else 2)))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            done += 1
        process.wait()
    assert done == kills
    for name in ("killed", "never"):
        whole = bicore(*words, name, cwd=folder)
        assert whole.returncode == 0, whole.stderr
    assert state_of(folder, "killed") == state_of(folder, "never")
    assert not list((folder / "killed").glob(".*part*"))


def _position(folder) -> str:
    names = sorted(path.name for path in (folder / "killed").glob("state-*.npz"))
    return names[-1] if names else ""


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_killed_again_and_again_the_state_is_the_same_to_the_last_bit(bicore, folder, kills):
    kill_and_resume(bicore, folder, kills, 0)


@pytest.mark.slow
def test_fifty_kills(bicore, tmp_path):
    data = blobs(900)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    kill_and_resume(bicore, tmp_path, 50, 1)


@pytest.mark.slow
def test_interrupting_saves_and_says_how_to_go_on(folder):
    words = [
        sys.executable,
        "-c",
        "import time, bicore.memory.merge_reduce as m\nplain = m.MergeReduce._take\n"
        "def late(self, b, c):\n    time.sleep(0.05)\n    plain(self, b, c)\nm.MergeReduce._take = "
        "late\n"
        "from bicore.cli.app import main\nmain()",
        "stream",
        "data.npz",
        *WORDS,
        "--out",
        "kept.npz",
        "--state",
        "state",
    ]
    process = subprocess.Popen(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not list((folder / "state").glob("state-*.npz")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on from there" in errors
    assert not (folder / "kept.npz").exists()
    subprocess.run(
        [sys.executable, "-m", "bicore", *words[3:]], cwd=folder, check=True, capture_output=True
    )
    assert (folder / "kept.npz").exists()


def test_a_damaged_state_is_named_and_the_one_before_is_used(bicore, folder):
    bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder)
    whole = state_of(folder)
    newest = sorted((folder / "state").glob("state-*.npz"))[-1]
    newest.write_bytes(whole[: len(whole) // 2])
    again = bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert newest.name in again.stderr
    assert "the state before it is used" in again.stderr
    assert state_of(folder) == whole
    for path in (folder / "state").glob("state-*.npz"):
        path.write_bytes(b"nothing")
    for _ in range(2):  # and it stays refused
        lost = bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder)
        assert lost.returncode == 2
        assert "every state file" in lost.stderr


def test_a_state_that_the_disk_will_not_give_is_not_called_damaged(folder, monkeypatch):
    from pathlib import Path

    with StateFolder(folder / "state") as store:
        store.save(MergeReduce(Uniform(), 4, 2).update(np.zeros((6, 2))))

        def refuses(self):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(Path, "read_bytes", refuses)
        with pytest.raises(OSError, match="Input/output"):
            store.load(lambda path: MergeReduce.load(path, Uniform()))
        assert [path.name for path in store.files()] == ["state-000000000000006.npz"]


def test_a_source_may_grow_at_its_end(bicore, folder):
    data = np.load(folder / "data.npz")
    words = [*WORDS, "--scale", "none", "--state"]
    np.savez(folder / "part.npz", x=data["x"][:70], y=data["y"][:70])
    for source, state in (("part.npz", "grown"), ("data.npz", "grown"), ("data.npz", "whole")):
        result = bicore("stream", source, *words, state, "--json", cwd=folder)
        assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["position"] == 150
    assert state_of(folder, "grown") == state_of(folder, "whole")
    assert (
        "first 150 rows differ" in bicore("stream", "part.npz", *words, "grown", cwd=folder).stderr
    )


def test_other_options_sources_and_formats_are_refused_by_name(bicore, folder):
    bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder)
    before = state_of(folder)
    changes = {
        "another selector configuration": [*WORDS[:-1], "0.2"],
        "another slots": ["--capacity", "12", "--slots", "2", *WORDS[4:]],
        "of another batch": [*WORDS[:4], "--batch", "8", *WORDS[6:]],
    }
    for message, words in changes.items():
        result = bicore("stream", "data.npz", *words, "--state", "state", cwd=folder)
        assert result.returncode == 2, message
        assert message in result.stderr
    data = blobs(150)
    np.savez(folder / "other.npz", x=data.x + 1, y=data.y)
    assert (
        "of another source"
        in bicore("stream", "other.npz", *WORDS, "--state", "state", cwd=folder).stderr
    )
    assert state_of(folder) == before
    newest = sorted((folder / "state").glob("state-*.npz"))[-1]
    import bicore.memory.buffer as base

    old = base.FORMAT
    base.FORMAT = 99
    try:
        buffer = MergeReduce(Uniform(), 3, 1).update(np.zeros((5, 2)))
        buffer.save(newest)
    finally:
        base.FORMAT = old
    assert (
        "format 99" in bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder).stderr
    )


def test_two_processes_on_one_folder(bicore, folder):
    with StateFolder(folder / "state"):
        result = bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder)
        assert result.returncode == 2
        assert f"in use by process {os.getpid()}" in result.stderr
    assert bicore("stream", "data.npz", *WORDS, "--state", "state", cwd=folder).returncode == 0


def test_a_full_disk_leaves_the_last_good_state(folder, monkeypatch):
    buffer = MergeReduce(Uniform(), 4, 2).update(np.zeros((6, 2)))
    with StateFolder(folder / "state") as store:
        store.save(buffer)
        good = state_of(folder)

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "savez", full)
        buffer.update(np.ones((6, 2)))
        with pytest.raises(OSError, match="No space left"):
            store.save(buffer)
        monkeypatch.undo()
        assert state_of(folder) == good
        assert store.load(lambda path: MergeReduce.load(path, Uniform())).position == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "0"], "--batch 0 is below 1"),
        (["--every", "0"], "--every 0 is below 1"),
        (["--slots", "13"], "slots=13 is outside 1 … 12"),
        (["--method", "icarl"], "method='icarl' is not known"),
        (["--weights", "binary"], "weights='binary' is not known"),
        (["--out", "a.csv"], "it can be .npz"),
    ],
)
def test_bad_requests_end_with_code_2_and_one_line(bicore, folder, words, message):
    result = bicore("stream", "data.npz", *WORDS, "--state", "state", *words, "--quiet", cwd=folder)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list(folder.glob("state/state-*"))


def test_a_folder_of_nothing_and_leftovers(tmp_path):
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
