"""First use of the command."""

import json
import re
import shlex
import sys

import numpy as np
import pytest

import bicore
from bicore import Coreset, Dataset
from bicore.coreset import Provenance, Status
from bicore.evaluate.worth import Equivalent, Worth
from bicore.report.page_of_selection import answer, page
from tests.commands import assert_refused, assert_success
from tests.helpers import blobs
from tests.pages import facts_of

FAST = ["--kernel", "rbf", "--inner-reg", "0.1"]


@pytest.fixture
def folder(tmp_path):
    data = blobs(60)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    return tmp_path


def test_help_shows_few_options_in_groups_and_help_all_shows_the_rest(command):
    short, every = command("select", "--help").stdout, command("select", "--help-all").stdout
    assert short.count("\n  --") <= 25
    panels = re.findall(r"^(\w+):$", short, re.MULTILINE)
    assert {"Data", "Method", "Limits", "Output"} <= set(panels)
    assert "Advanced" not in panels
    assert "--dask" not in short
    assert "--dask" in every
    assert "--help-all" in short


def test_show_prints_values_for_people(command, folder):
    assert command("select", "data.npz", "--size", "4", "--out", "p.npz").returncode == 0
    shown = command("show", "p.npz").stdout
    assert re.search(r"^p.npz: 4 of 60 rows \(bilevel", shown)
    assert "strategy             exchange" in shown
    assert "(rounds=" not in shown
    assert not re.search(r"\d\.\d{7}", shown)


def test_l1_a_closed_standard_output_gives_no_traceback(monkeypatch, folder):
    from bicore.cli.app import main

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["bicore", "select", "data.npz", *FAST, "--size", "2"])
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 cut"])
def test_l4_a_damaged_state_is_named_in_one_line(command, folder, content):
    words = ["stream", "data.npz", "--buffer", "reservoir", "--capacity", "5", "--state", "s"]
    assert command(*words, "--quiet").returncode == 0
    (state,) = (folder / "s").glob("state-*.npz")
    state.write_bytes(content)
    again = command(*words, "--quiet")
    assert again.returncode in (0, 2)
    assert state.name in again.stderr
    assert len(again.stderr.splitlines()) == 1
    assert list((folder / "s").glob("*damaged*")) or state.read_bytes() == content


@pytest.mark.parametrize("source", ["", " ", "."])
def test_l6_no_source_and_an_empty_folder_are_refused_by_name(command, source):
    result = command("select", source, "--size", "5")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert " /CLASS" not in result.stderr


@pytest.mark.parametrize(
    ("source", "hint"), [("digit", "digits"), ("dta.npz", "data.npz"), ("nothing.csv", "give")]
)
def test_l7_a_missing_file_does_not_exist_and_the_nearest_is_suggested(
    command, folder, source, hint
):
    assert_refused(command("select", source, "--size", "5"), f"'{source}' does not exist; ", hint)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["worth", "digits", "--seeds", "two"], "--seeds must be an integer; got 'two'."),
        (["select", "digits", "--max-seconds", "soon"], "--max-seconds must be a number"),
    ],
)
def test_a_value_that_is_no_number_is_refused_with_its_option(command, words, error):
    assert_refused(command(*words), error)


@pytest.mark.parametrize("out", [[], ["--out", "my picks.npz"]])
def test_l8_the_line_that_continues_can_be_pasted(command, folder, monkeypatch, out):
    words = ["select", "data.npz", *FAST, "--size", "9", *out]
    whole = bicore.select(folder / "data.npz", size=3, kernel="rbf", inner_reg=0.1)
    part = whole.with_details({}).__class__(
        whole.indices,
        provenance=whole.provenance,
        status=Status.INTERRUPTED,
        message="interrupted after 3 of 9 rows",
    )
    with monkeypatch.context() as patch:
        patch.setattr("bicore.api.select", lambda *given, **named: part)
        stopped = command(*words)
    assert stopped.returncode == 130
    assert f"kept in {'my picks.npz' if out else 'bicore-partial.npz'}." in stopped.stderr
    line = stopped.stderr.splitlines()[-1]
    assert line.startswith("bicore select data.npz ")
    assert command(*shlex.split(line)[1:]).returncode == 0


def test_l11_all_rows_come_at_once_in_a_stated_order(command, folder, monkeypatch):
    monkeypatch.setattr("bicore.api.BilevelSelector.select", None)  # nothing is selected
    found = json.loads(command("select", "data.npz", "--size", "100%", "--json").stdout)
    labels = blobs(60).y[found["indices"]]
    assert sorted(found["indices"]) == list(range(60))
    assert sorted(labels[:3]) == [0, 1, 2]
    assert "each class in turn" in found["notes"][0]
    targets = bicore.select(blobs(30).x, blobs(30).x[:, 0], 1.0)
    assert targets.indices.tolist() == list(range(30))
    assert "given order" in targets.provenance.notes[0]
    x, y = blobs(30).x, blobs(30).y
    numbers = bicore.select(x, y, 1.0, task="regression")
    assert "given order" in numbers.provenance.notes[0]
    classes = bicore.select(x, y.astype(float), 1.0, task="classification")
    assert classes.indices.tolist() == bicore.select(x, y, 1.0).indices.tolist()


def test_h3_rows_without_labels_are_selected_by_a_method_that_needs_none(command, folder):
    x = blobs(60).x
    np.save(folder / "rows.npy", x)
    np.savetxt(folder / "rows.csv", x, delimiter=",", header="a,b,c,d", comments="")
    expected = bicore.select(x, size=6)
    assert "facility location" in expected.provenance.method
    assert bicore.select(x, size=6, kernel="rbf").provenance.method == "reconstruction"
    for words in (["rows.npy"], ["rows.csv", "--scale", "none"]):
        done = assert_success(command("select", *words, "--size", "6"))
        assert ", ".join(map(str, expected.indices)) in done.stdout
        assert "(facility location over features; bilevel needs labels)" in done.stdout
        assert "; give --target or --labels" in done.stdout
    words = ["rows.npy", "--size", "6", "--method", "class-balanced", "--quiet"]
    assert_refused(command("select", *words), "labels")


def test_the_model_to_be_trained_chooses_the_kernel(command, folder):
    words = ["data.npz", "--size", "4", "--model"]
    done = command("select", *words, "linear", "--json")
    expected = bicore.select(folder / "data.npz", size=4, model="linear")
    assert json.loads(done.stdout)["indices"] == expected.indices.tolist()
    assert command("estimate", *words, "linear").returncode == 0
    for more in (["no such"], ["linear", "--kernel", "rbf"], ["linear", "--method", "uniform"]):
        assert_refused(command("select", *words, *more), "model")


def test_l12_a_negative_first_gain_is_explained(tmp_path):
    known = Provenance(empty_objective=1.0)
    found = Coreset(np.array([3, 5]), objectives=np.array([1.5, 0.5]), provenance=known)
    data = Dataset(blobs(30).x)
    notes = facts_of(page(data, found, tmp_path / "page.html"))["notes"]
    assert any("first gain: negative" in note for note in notes)
    assert "first gain: negative" in found._repr_html_()
    plain = Coreset(np.array([3]), objectives=np.array([0.5]), provenance=known)
    assert not facts_of(page(data, plain, tmp_path / "page.html"))["notes"]


def test_l14_quiet_means_the_same_for_every_verb(command, folder, monkeypatch):
    monkeypatch.setenv("BICORE_CACHE", str(folder))
    few = ["--seeds", "2", "--method", "uniform", "--judge", "ridge"]
    verbs = {
        "select": (["select", "data.npz", "--size", "4"], 3),
        "out": (["select", "data.npz", *FAST, "--size", "4", "--out", "a.npz"], 0),
        "stream": (["stream", "data.npz", "--capacity", "5", "--state", "s"], 3),
        "worth": (["worth", "data.npz", "--size", "6", *few], 2),
        "estimate": (["estimate", "data.npz", *FAST, "--size", "4"], 1),
    }
    for name, (words, lines) in verbs.items():
        result = command(*words, "--quiet")
        assert (result.returncode, result.stderr) == (0, ""), name
        assert len(result.stdout.splitlines()) == lines, (name, result.stdout)


def test_m9_progress_fits_a_narrow_terminal(monkeypatch, capsys):
    from bicore.runtime.clock import Clock, ProgressLine

    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    line = ProgressLine(True, Clock(), 60, "comparing")
    line.write("comparing 3/60  about 100 s left  facility-location-per-class, 50 rows")
    line.close()
    assert max(map(len, capsys.readouterr().err.split("\r"))) == 29


def test_the_time_left_does_not_count_the_preparation():
    from bicore.runtime.clock import Clock, ProgressLine

    steps, clock = [], Clock()
    clock.start -= 100
    line = ProgressLine(steps.append, clock, 10, "selecting")
    line.update(5)
    clock.start -= 3
    line.update(6)
    assert steps[-1].seconds_left == pytest.approx(12, abs=1)


def test_worth_beyond_the_pool_is_a_lower_bound():
    found = Equivalent("uniform", 50, np.inf, np.inf, np.inf, (50, 300), (0.8, 0.9), (0.1, 0.1))
    worth = Worth(50, (found,), 0.95, 0.01, "accuracy", "ridge", 10, "on 10 splits", 30)
    assert answer(worth)["headline"] == "Your 50 rows are worth 300 or more random ones (95% sure)"
    assert "300 or more random ones" in worth._repr_html_()


def test_l15_a_memory_of_mostly_recent_rows_explains_why(command, folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    np.savez(folder / "stream.npz", x=x, y=(x[:, 0] > 0).astype(int))
    words = ["stream", "stream.npz", "--capacity", "12", "--json", "--state"]
    found = json.loads(command(*words, "a").stdout)
    late = sum(one >= 300 for one in found["ids"])
    (note,) = (note for note in found["notes"] if "second half" in note)
    assert note.startswith(f"{late} of 12 kept rows")
    plain = json.loads(command(*words, "b", "--buffer", "reservoir").stdout)
    assert not any("second half" in note for note in plain["notes"])
