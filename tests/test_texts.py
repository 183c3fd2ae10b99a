"""Texts with embeddings: rows to label first, and next."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import bicore
from bicore.active import query, query_by_variance
from bicore.methods import FacilityLocation
from bicore.methods.baselines.base import Directions
from tests.commands import assert_success
from tests.helpers import blobs

ROWS = 40


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A table of texts, some with labels, and their embedding of 120 columns."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    data = blobs(ROWS)
    x = data.x @ rng.normal(size=(data.x.shape[1], 120))
    np.save("e.npy", x)
    names = np.array(["card", "cash", "loan"])[data.y]
    with open("texts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "intent", "some"])
        for row, name in enumerate(names):
            writer.writerow([f"text {row}, with a comma", name, name if row < 8 else ""])
    return x, names


def read(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_chosen_texts_are_written_in_order_with_all_columns(texts, command):
    x, names = texts
    words = ["select", "texts.csv", "--embeddings", "e.npy", "--size", "5", "--out", "out.csv"]
    assert_success(command(*words, "--target", "intent"))
    chosen = bicore.select(x, names, 5).indices
    whole = read("texts.csv")[1:]
    header, *written = read("out.csv")
    assert header == ["text", "intent", "some", "weight"]
    assert [one[:3] for one in written] == [whole[row] for row in chosen]
    again = bicore.select("texts.csv", "intent", 5, embeddings="e.npy").indices
    assert again.tolist() == chosen.tolist()


@pytest.mark.parametrize("ask", [query, query_by_variance])
def test_progress_counts_the_rows_to_label(texts, ask):
    x, names = texts
    steps = []
    ask(x[:8], names[:8], x[8:], 4, runtime=bicore.Runtime(progress=steps.append))
    assert [(step.done, step.total) for step in steps] == [(k, 4) for k in (1, 2, 3, 4)]


def test_the_first_round_needs_no_labels(texts, command):
    words = ["select", "texts.csv", "--embeddings", "e.npy", "--size", "5", "--json"]
    found = json.loads(command(*words).stdout)
    assert found["method"] == "k-medoids over directions"
    assert found["indices"] == bicore.select(texts[0], size=5).indices.tolist()


def test_query_continues_with_the_labels_that_came_back(texts, command):
    x, names = texts
    words = ["query", "texts.csv", "--embeddings", "e.npy", "--target", "some", "--size", "4"]
    done = assert_success(command(*words, "--json", "--out", "next.csv"))
    expected = query_by_variance(x[:8], names[:8], x[8:], 4).indices + 8
    assert json.loads(done.stdout)["indices"] == expected.tolist()
    assert [one[0] for one in read("next.csv")[1:]] == [
        f"text {row}, with a comma" for row in expected
    ]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["select", "--embeddings", "e.npy", "--features", "text", "--size", "2"], "--features"),
        (["select", "--embeddings", "no.npy", "--size", "2"], "no.npy"),
        (["select", "--embeddings", "short.npy", "--size", "2"], "short.npy has 3 rows"),
        (["select", "--embeddings", "e.npy", "--target", "some", "--size", "2"], "some"),
        (["query", "--embeddings", "e.npy", "--size", "2"], "--target"),
        (["query", "--embeddings", "e.npy", "--target", "intent", "--size", "2"], "intent"),
        (
            [
                *[
                    "query",
                    "--embeddings",
                    "e.npy",
                    "--target",
                    "some",
                    "--size",
                    "2",
                    "--classes",
                    "card,cash",
                ]
            ],
            "--target some is 'loan' in row",
        ),
    ],
)
def test_bad_requests_name_the_argument(texts, command, words, name):
    np.save("short.npy", np.zeros((3, 2)))
    done = command(words[0], "texts.csv", *words[1:])
    assert done.returncode == 2
    assert name in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("classes", "code"), [("0,1", 0), ("0,card", 2), ("0", 2)])
def test_classes_of_a_query_may_be_numbers(texts, command, classes, code):
    labels = [str(row % 2) if row < 8 else "" for row in range(len(texts[0]))]
    Path("numbers.csv").write_text("\n".join(["text,label", *(f"a,{one}" for one in labels)]))
    words = ["--embeddings", "e.npy", "--target", "label", "--size", "2", "--classes", classes]
    done = command("query", "numbers.csv", *words)
    assert done.returncode == code, done.stderr
    assert code == 0 or "--classes" in done.stderr.splitlines()[-1]


def test_uncertain_rows_are_queried():
    """The first row is the best one of the weighted V-objective, written out."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 3))
    y = (x[:, 0] > 0).astype(int)
    found = query_by_variance(x[:8], y[:8], x[8:], 2).indices
    rows = x - x.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    odds = np.sort(LogisticRegression(C=10.0).fit(rows[:8], y[:8]).predict_proba(rows), axis=1)
    doubt = np.maximum(1 - odds[:, 1] + odds[:, 0], 1e-3)
    distances = np.sqrt(((rows[:, None] - rows) ** 2).sum(-1))
    kernel = np.exp(-2 * distances / np.median(distances[np.triu_indices(30, 1)]))

    def sum_variance(chosen):
        inside = np.linalg.solve(
            kernel[np.ix_(chosen, chosen)] + np.eye(len(chosen)), kernel[chosen]
        )
        return doubt @ (kernel - kernel[:, chosen] @ inside).diagonal()

    best = min(range(8, 30), key=lambda row: sum_variance([*range(8), row]))
    assert found[0] == best - 8


def test_no_exchange_of_a_medoid_lowers_the_mean_distance():
    """The answer of k-medoids is a local optimum that keeps the given rows."""
    data = blobs(30)
    greedy = FacilityLocation().select(data, 4, initial=[29])
    found = FacilityLocation(exchange=True).select(data, 4, initial=[29])
    distances = np.linalg.norm(data.x[:, None] - data.x, axis=2)

    def mean(rows):
        return distances[:, rows].min(1).mean()

    rows = found.indices.tolist()
    assert rows[0] == 29
    assert found.objective == pytest.approx(mean(rows), rel=1e-9)
    assert found.objective <= greedy.objective
    for leaving in range(1, 4):
        for row in range(30):
            other = [*rows[:leaving], row, *rows[leaving + 1 :]]
            assert mean(other) >= found.objective - 1e-9


def test_directions_ignore_lengths_and_small_components():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5)) * [9, 7, 5, 1e-9, 1e-9]
    selector = FacilityLocation(Directions(3), exchange=True)
    expected = selector.select(bicore.Dataset(x[:, :3]), 6).indices.tolist()
    longer = x * rng.uniform(1, 4, size=(40, 1))
    assert selector.select(bicore.Dataset(longer), 6).indices.tolist() == expected
