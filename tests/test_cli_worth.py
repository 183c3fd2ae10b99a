"""``bicore worth`` through its entry point."""

import csv
import json

import numpy as np
import pytest

from bicore import Coreset
from tests.commands import assert_refused, assert_success
from tests.helpers import blobs

FAST = ["--kernel", "rbf", "--judge", "ridge", "--seeds", "3"]


@pytest.fixture
def folder(tmp_path):
    data, test = blobs(90), blobs(60, seed=1)
    np.savez(tmp_path / "data.npz", x=data.x, y=np.array(["a", "b", "c"])[data.y])
    np.savez(tmp_path / "test.npz", x=test.x, y=np.array(["a", "b", "c"])[test.y])
    np.savez(tmp_path / "targets.npz", x=data.x, y=data.x @ np.array([1.0, -2.0, 0.5, 0.0]))
    Coreset(np.arange(8)).save(tmp_path / "picks.npz")
    return tmp_path


@pytest.mark.slow
def test_the_cost_is_printed_first_and_the_answer_last(bicore, folder):
    result = bicore("worth", "data.npz", "--size", "8", *FAST, "--picture", "worth.png", cwd=folder)
    assert result.returncode == 0, result.stderr
    sentence, how, written = result.stdout.splitlines()
    assert sentence.startswith("8 rows are worth ")
    assert " random ones (" in sentence
    assert " class-balanced ones (" in sentence
    assert "of the ridge model on 3 splits, each with 22 rows held out" in how
    assert written == "written: worth.png"
    assert (folder / "worth.png").read_bytes().startswith(b"\x89PNG")
    # lines of progress may follow on a slow machine
    assert "\nworth: about 48 fits and 3 selections, about " in "\n" + result.stderr


def test_json_is_the_answer_and_nothing_else(bicore, folder):
    words = ["worth", "targets.npz", "--size", "8", *FAST, "--json"]
    result = assert_success(bicore(*words, cwd=folder))
    answer = json.loads(result.stdout)
    assert answer["metric"] == "R²"
    assert answer["size"] == 8
    assert answer["sentence"].startswith("8 rows are worth ")
    announced = int(result.stderr.partition("worth: about ")[2].split()[0])
    assert 0.7 < announced / answer["fits"] < 1.4
    assert {"rows", "low", "high", "verdict", "judge", "seeds", "fits"} <= set(answer)
    (uniform,) = answer["baselines"]
    assert len(uniform["sizes"]) == len(uniform["means"]) == len(uniform["spreads"])
    quiet = bicore(*words, "--quiet", cwd=folder)
    assert quiet.stdout == result.stdout
    assert quiet.stderr == ""


@pytest.mark.slow
def test_picks_are_judged_on_a_test_file(bicore, folder):
    words = ["worth", "data.npz", "--picks", "picks.npz", *FAST]
    result = assert_success(bicore(*words, "--test", "test.npz", cwd=folder))
    assert result.stdout.startswith("8 rows are worth ")
    assert "on the 60 test rows, drawn with replacement 3 times" in result.stdout
    assert "selections" not in result.stderr
    assert_refused(bicore(*words, cwd=folder), "give --test FILE, or --size M")


@pytest.mark.slow
def test_two_tables_share_their_columns(bicore, folder):
    """A city that the test file lacks still has its column there."""
    data = blobs(90)
    for name, rows, cities in (
        ("train.csv", range(70), ["Bern", "Rome"]),
        ("test.csv", range(70, 90), ["Bern"]),
    ):
        with open(folder / name, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["age", "size", "city", "label"])
            for row in rows:
                city = cities[row % len(cities)]
                table.writerow([*data.x[row, :2], city, "abc"[data.y[row]]])
    words = ["--target", "label", "--size", "8", *FAST, "--method", "uniform"]
    result = assert_success(bicore("worth", "train.csv", "--test", "test.csv", *words, cwd=folder))
    assert "on the 20 test rows" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["worth", "data.npz"], "either --size M, or --picks FILE.npz"),
        (["worth", "data.npz", "--size", "8", "--picks", "picks.npz"], "either --size M"),
        (["worth", "data.npz", "--picks", "no.npz"], "--picks no.npz does not exist"),
        (["worth", "data.npz", "--size", "8", "--method", "icarl"], "the command has none"),
    ],
)
def test_a_request_that_cannot_be_right(bicore, folder, words, message):
    assert_refused(bicore(*words, "--quiet", cwd=folder), message)
