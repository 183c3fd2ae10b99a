"""``bicore compare`` through its entry point."""

import json

import numpy as np
import pytest

import bicore
from bicore import Dataset
from bicore.evaluate.comparison import Stream
from tests.commands import assert_refused, assert_success
from tests.helpers import blobs, refuses

METHODS = ["--methods", "bilevel,uniform,k-center-features", "--kernel", "rbf"]
FAST = [*METHODS, "--seeds", "3", "--sizes", "5,12"]


@pytest.fixture
def table(tmp_path):
    data = blobs(90)
    np.savez(tmp_path / "data.npz", x=data.x, y=np.array(["a", "b", "c"])[data.y])
    target = data.x @ np.array([1.0, -2.0, 0.5, 0.0])
    np.savez(tmp_path / "targets.npz", x=data.x, y=target)
    return tmp_path


def test_json_rows_summary_and_continuation(bicore, table):
    first = assert_success(bicore("compare", "data.npz", *FAST, "--json", cwd=table))
    answer = json.loads(first.stdout)
    assert len(answer["rows"]) == 18
    for row in answer["rows"]:
        assert {"method", "size", "seed", "accuracy", "selection_seconds"} <= set(row)
        assert 0 <= row["accuracy"] <= 1
    assert sum(entry["best"] for entry in answer["summary"]) == 2
    assert set(answer["smallest_detectable"]) == {"5", "12"}
    priced = [(one["method"], one["size"]) for one in answer["worth"]]
    assert priced == [(name, size) for name in ("bilevel", "k-center-features") for size in (5, 12)]
    more = bicore("compare", "data.npz", *FAST, "--seeds", "4", "--json", cwd=table)
    assert "18 of 24 results exist already" in more.stderr
    assert more.stderr.count("results are stored in") == 1
    rows = json.loads(more.stdout)["rows"]
    known = {(row["method"], row["size"], row["seed"]): row for row in rows}
    for row in answer["rows"]:
        # what is done is not run again
        assert known[row["method"], row["size"], row["seed"]] == row
    assert len(rows) == 24
    assert len(list((table / "cache").glob("*.jsonl"))) == 1


@pytest.mark.slow
def test_table_marks_the_best_and_prints_the_detectable_difference(bicore, table):
    result = assert_success(
        bicore("compare", "data.npz", *FAST, "--picture", "curves.png", "--full-pool", cwd=table)
    )
    lines = result.stdout.splitlines()
    assert lines[0] == "accuracy of the ridge model, mean ± standard error over seeds"
    assert sum(line.count("★") for line in lines[2:5]) == 2
    assert [line[:14] for line in lines[5:7]] == ["all data (68) ", "majority class"]
    assert "smallest difference these seeds can detect" in result.stdout
    assert lines[1].endswith("  worth")
    # uniform rows have no worth in others
    assert sum(line.count(" / ") for line in lines[2:5]) == 2
    assert "worth: the number of random rows with the same mean score" in result.stdout
    assert (table / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "tested on 22 rows (held out for each seed)" in result.stderr
    assert "features: as they are, not scaled" in result.stderr


def test_the_function_gives_the_rows_of_the_command(command, table, monkeypatch):
    monkeypatch.setenv("BICORE_CACHE", str(table / "cache"))
    methods = ["facility-location-per-class", "uniform"]
    words = ["--methods", ",".join(methods), "--seeds", "2", "--sizes", "5,12"]
    printed = command("compare", "data.npz", *words, "--json", "--quiet")
    rows = json.loads(printed.stdout)["rows"]
    with np.load(table / "data.npz") as stored:
        x, y = stored["x"], stored["y"]
    seen = []
    for source in ((x, y), (Dataset(x, y),), (table / "data.npz",)):
        found = bicore.compare(
            *source,
            sizes=[12, 5],
            methods=methods,
            seeds=2,
            callback=lambda run, step: seen.append(step),
        )
        own = found.as_dict()["rows"]
        assert [row["measures"] for row in own] == [row["measures"] for row in rows]
    assert seen[0] == ""
    assert not found.run.records.path
    assert list(found.table["method"]) == [*methods, *methods]
    assert str(found).splitlines()[0].startswith("accuracy of the ridge")
    assert "facility-location-per-class" in found._repr_html_()
    assert found.plot().axes
    assert found.to_html(table / "page.html").stat().st_size > 10_000


def test_an_interrupted_comparison_has_the_rows_so_far(table):
    def stop(run, words):
        if run.done():
            raise KeyboardInterrupt

    options = {"sizes": [5], "methods": ["uniform"], "seeds": 3, "records": table}
    found = bicore.compare(table / "data.npz", **options, callback=stop)
    assert found.interrupted
    assert len(found.run.results()) == 1
    assert len(bicore.compare(table / "data.npz", **options).run.results()) == 3
    assert len(list(table.glob("compare-*.jsonl"))) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": [5], "stream": Stream()}, "sizes=.* stream"),
        ({"methods": ["uniform", "unifrom"]}, "methods='unifrom'"),
        ({"methods": ["icarl"], "stream": Stream()}, "buffers='icarl'"),
        ({"target": "y"}, "target needs a file or a table"),
        ({"judge": ["ridge", "ridge"]}, "judge has ridge twice"),
    ],
)
def test_errors_of_the_function_name_the_argument(options, words):
    data = blobs(60)
    refuses(words, bicore.compare, data.x, data.y, **options)


@pytest.mark.slow
def test_methods_with_a_model_and_a_network_judge(bicore, table):
    words = ["--methods", "icarl,hardest,craig", "--seeds", "2", "--sizes", "6"]
    result = bicore("compare", "data.npz", *words, "--judge", "mlp", "--steps", "30", cwd=table)
    assert result.returncode == 0, result.stderr
    assert "one mlp per pool, trained on that pool" in result.stderr
    assert "+ seconds: training the model" in result.stdout


def test_regression_is_scored_by_r_squared_and_methods_for_classes_are_left_out(bicore, table):
    words = ["--methods", "bilevel,uniform,class-balanced", "--seeds", "2", "--sizes", "8"]
    result = bicore("compare", "targets.npz", *words, cwd=table)
    assert result.returncode == 1
    assert result.stdout.startswith("R² of the ridge")
    assert "class-balanced was left out" in result.stderr


@pytest.mark.slow
def test_regression_skips_methods_for_classes_by_default(bicore, table):
    words = ["--seeds", "2", "--sizes", "8", "--kernel", "rbf", "--judge", "ridge,logistic"]
    result = assert_success(bicore("compare", "targets.npz", *words, "--score", "mae", cwd=table))
    assert (
        "class-balanced is left out: it needs classes, and the targets are numeric" in result.stderr
    )
    lines = result.stdout.splitlines()
    assert lines[0].startswith("mean absolute error of the ridge")
    assert "mean absolute error of the linear (ridge regression)" in result.stdout
    assert "class-balanced" not in result.stdout
    means = [float(line.split()[1]) for line in lines[2:7]]
    assert means == sorted(means)
    assert "★" in lines[2]
    assert lines[8].startswith("mean of the targets")


@pytest.mark.slow
def test_fewer_seeds_are_summarised_alone_and_the_best_comes_first(bicore, table):
    bicore("compare", "data.npz", *FAST, cwd=table)
    fewer = bicore("compare", "data.npz", *FAST, "--seeds", "2", "--json", cwd=table)
    assert {entry["seeds"] for entry in json.loads(fewer.stdout)["summary"]} == {2}
    shown = bicore("compare", "data.npz", *FAST, cwd=table).stdout.splitlines()[2:5]
    means = [float(line.split("±")[1].split()[-1]) for line in shown]
    assert means == sorted(means, reverse=True)


REFUSED = {
    "sizes": (["--sizes", "5,x"], "--sizes must be"),
    "size zero": (["--sizes", "0,5"], "sizes must be"),
    "size beyond the pool": (["--sizes", "69"], "sizes must be an integer between 1 and 68"),
    "method": (["--methods", "bilevl"], "Did you mean 'bilevel'"),
    "twice": (["--methods", "uniform,uniform"], "uniform twice"),
    "seeds": (["--seeds", "0"], "--seeds must be"),
    "judge": (["--judge", "forst"], "Did you mean 'forest'"),
    "judge twice": (["--judge", "knn,knn"], "judge has knn twice"),
    "metric": (["--metric", "auc"], "--metric auc is not known"),
    "metric of targets": (["--score", "mae"], "--metric mae"),
    "steps": (["--steps", "0"], "steps must be"),
    "pool": (["--pool", "80"], "pool must be"),
    "test": (["--test", "89"], "test must be"),
    "picture": (["--picture", "a.txt"], "must end in .png"),
    "records": (["--records", "data.npz"], "data.npz is not a file of comparison records"),
    "cnn": (["--judge", "cnn"], "--judge cnn"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_end_with_code_2_and_one_line(bicore, name, table):
    words, message = REFUSED[name]
    before = (table / "data.npz").read_bytes()
    words = ["--seeds", "2", "--sizes", "5", *words, "--quiet"]
    assert_refused(bicore("compare", "data.npz", *words, cwd=table), message)
    assert (table / "data.npz").read_bytes() == before
    assert not list(table.rglob("*.jsonl"))
