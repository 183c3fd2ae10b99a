"""Contexts: each is selected for the errors of those before, and predictions are averaged."""

import csv
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.neighbors import KNeighborsClassifier

import bicore
from bicore.coreset import Status
from bicore.integrations.tabpfn import ContextClassifier, ContextRegressor, set_contexts
from bicore.kernels import RBF
from bicore.methods import BilevelSelector
from bicore.sources.opening import open_source
from tests.commands import assert_refused, assert_success
from tests.helpers import fails

RHO = 0.1
OPTIONS = {"strategy": "greedy", "smooth_labels": False}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "other")


def kernel_predictions(x, y, chosen):
    """Ridge regression of centred one-hot labels, written out."""
    targets = (y[:, None] == np.unique(y)).astype(float)
    targets -= targets.mean(0)
    kernel = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(-1))
    alpha = np.linalg.solve(
        kernel[np.ix_(chosen, chosen)] + RHO * np.eye(len(chosen)), targets[chosen]
    )
    return targets, kernel[:, chosen] @ alpha


def error_of_average(x, y, found):
    fits = [kernel_predictions(x, y, list(chosen)) for chosen in found]
    return ((fits[0][0] - np.mean([fit for _, fit in fits], axis=0)) ** 2).sum(1).mean()


def make(x, y, n_contexts, **more):
    options = {"kernel": RBF(0.5), "inner_reg": RHO, "intercept": 0.0}
    return bicore.contexts(x, y, 1, n_contexts, **options, **more)


def test_each_context_is_the_best_one_for_the_average(rows):
    x, y = rows
    found = make(x, y, 4, rule="gain")
    for number in range(1, 5):
        before = found[: number - 1]
        every = [error_of_average(x, y, [*before, [k]]) for k in range(len(x))]
        every = np.where(np.isin(np.arange(len(x)), before), np.inf, every)
        assert found[number - 1][0] == int(np.argmin(every))


def test_progress_counts_contexts(rows):
    steps = []
    bicore.contexts(*rows, 5, 3, runtime=bicore.Runtime(progress=steps.append))
    assert [(one.done, one.total) for one in steps] == [(1, 3), (2, 3), (3, 3)]


def test_rows_are_used_again_if_few_are_left(rows):
    x, y = rows
    found = np.concatenate(bicore.contexts(x, y, 10, 4))
    assert len(set(found[:30])) == 30
    assert set(found[30:]) & set(found[:30])


def test_the_first_context_is_a_selection_and_fewer_are_a_prefix(rows):
    x, y = rows
    three = bicore.contexts(x, y, 5, 3)
    assert three[0].tolist() == bicore.select(x, y, 5, **OPTIONS).indices.tolist()
    assert [one.tolist() for one in bicore.contexts(x, y, 5, 2)] == [
        one.tolist() for one in three[:2]
    ]


def test_later_contexts_begin_with_random_rows(rows):
    x, y = rows
    options = {"kernel": RBF(0.5), "inner_reg": RHO}
    first, again = (bicore.contexts(x, y, 6, 2, random_state=k, **options) for k in (0, 1))
    assert first[0].tolist() == again[0].tolist()
    assert set(first[1][:3]) != set(again[1][:3])
    first, again = (make(x, y, 2, random_state=k) for k in (0, 1))
    assert first[1].tolist() == again[1].tolist()  # half of one row is none


def test_classes_keep_their_shares_in_later_contexts():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 2)), np.arange(200) % 5 == 0
    found = bicore.contexts(x, y, 20, 3)
    for drawn in found[1:]:
        assert y[drawn].sum() == 4
        assert y[drawn[:10]].sum() == 2
    order = rng.permutation(200)
    shuffled = bicore.Dataset(x[order], y[order], ids=order)
    again = BilevelSelector(**OPTIONS).select_contexts(shuffled, 20, 3)
    assert [set(order[one]) for one in again] == [set(one) for one in found]


def test_random_rows_of_targets_come_from_every_quantile():
    x = np.random.default_rng(0).normal(size=(100, 1))
    drawn = bicore.contexts(x, x[:, 0], 40, 2)[1][:20]
    places = np.argsort(np.argsort(x[:, 0]))[drawn]
    assert np.bincount(places // 5, minlength=20).max() <= 2


@pytest.mark.slow
def test_large_data_keep_the_first_context():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5100, 2))
    y = x[:, 0] + x[:, 1] ** 2
    found = bicore.contexts(x, y, 3, 2, random_state=1)
    with pytest.warns(bicore.LargeDataWarning):
        assert (
            found[0].tolist() == bicore.select(x, y, 3, random_state=1, **OPTIONS).indices.tolist()
        )


@pytest.mark.slow
def test_exact_selects_among_all_rows(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5100, 2))
    y = x[:, 0] + x[:, 1] ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", bicore.LargeDataWarning)
        found = bicore.contexts(x, y, 3, 2, exact=True)
    expected = bicore.select(x, y, 3, exact=True, **OPTIONS).indices
    assert found[0].tolist() == expected.tolist()
    np.savez("data.npz", x=x, y=y)
    words = ["contexts", "data.npz", "--size", "3", "--contexts", "2", "--exact", "--json"]
    done = assert_success(command(*words))
    assert json.loads(done.stdout)["contexts"] == [one.tolist() for one in found]
    assert "large data" not in done.stderr


@pytest.mark.parametrize(
    ("options", "name"),
    [({"n_contexts": 41}, "n_contexts"), ({"size": 41}, "size"), ({"kernel": "linera"}, "linear")],
)
def test_bad_requests(rows, options, name):
    fails(bicore.InputError, name, bicore.contexts, *rows, **{"size": 5, **options})
    fails(bicore.InputError, "y", bicore.contexts, rows[0], None, 5)


def test_probabilities_are_averaged_over_contexts(rows):
    x, y = rows
    model = ContextClassifier(KNeighborsClassifier(3), size=6, n_contexts=2).fit(x, y)
    odds = np.zeros((len(x), 2))
    for chosen in bicore.contexts(x, y, 6, 2):
        one = KNeighborsClassifier(3).fit(x[chosen], y[chosen])
        odds[:, np.searchsorted(["other", "same"], one.classes_)] += one.predict_proba(x) / 2
    np.testing.assert_allclose(model.predict_proba(x), odds)
    assert model.predict(x).tolist() == np.array(["other", "same"])[odds.argmax(1)].tolist()


def test_predictions_are_averaged_over_contexts(rows):
    x = rows[0]
    model = ContextRegressor(GaussianProcessRegressor(optimizer=None), size=6, n_contexts=2).fit(
        x, x[:, 0]
    )
    parts = [
        GaussianProcessRegressor(optimizer=None).fit(x[one], x[one, 0]) for one in model.contexts_
    ]
    np.testing.assert_allclose(model.predict(x), np.mean([one.predict(x) for one in parts], 0))


class TabPFNClassifier(BaseEstimator):
    """The parameters of TabPFN that are used here, and what it is fitted on."""

    def __init__(self, n_estimators=8, inference_config=None):
        self.n_estimators = n_estimators
        self.inference_config = inference_config

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.rows_ = len(X)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_tabpfn_reads_all_contexts_in_one_fit(rows):
    x, y = rows
    own = TabPFNClassifier(inference_config={"FINGERPRINT_FEATURE": False})
    model = ContextClassifier(own, size=6, n_contexts=3).fit(x, y)
    (fitted,) = model.models_
    assert (fitted.rows_, fitted.n_estimators) == (len(x), 3)
    given = [one.tolist() for one in model.contexts_]
    assert fitted.inference_config == {"FINGERPRINT_FEATURE": False, "SUBSAMPLE_SAMPLES": given}
    assert own.inference_config == {"FINGERPRINT_FEATURE": False}
    assert set_contexts(own, given).inference_config == fitted.inference_config  # from a file
    with pytest.raises(bicore.InputError, match="inference_config"):
        set_contexts(KNeighborsClassifier(), model.contexts_)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of forty rows; one row has no label."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    with open("table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "city", "y"])
        for row in range(40):
            a = round(rng.normal(), 3)
            writer.writerow([a, ["Rome", "Bern"][row % 2], "" if row == 7 else int(a > 0)])
    with open("table.csv", newline="") as file:
        return list(csv.reader(file))[1:]


WORDS = ["contexts", "table.csv", "--target", "y", "--size", "5", "--contexts", "3"]
LABELLED = [*WORDS, "--drop-missing-target"]


def test_the_command_writes_the_row_numbers_of_each_context(table, command):
    done = assert_success(command(*LABELLED, "--out", "c.json"))
    assert done.stdout == "3 contexts of 5 of 39 rows, written to c.json\n"
    source = open_source("table.csv", target="y", drop_missing_target=True)
    expected = [one.tolist() for one in bicore.contexts(source.data.x, source.data.y, 5, 3)]
    assert json.loads(Path("c.json").read_text()) == expected
    found = json.loads(command(*LABELLED, "--json", "--quiet").stdout)
    assert found == {"contexts": expected, "size": 5, "n": 39}
    shown = assert_success(command(*LABELLED, "--quiet")).stdout.splitlines()
    words = (", ".join(map(str, one)) for one in expected)
    assert shown == [f"context {k}: rows {one}" for k, one in enumerate(words, 1)]


def test_the_command_writes_the_rows_of_each_context(table, command):
    assert_success(command(*LABELLED, "--out", "c.csv"))
    numbers = json.loads(command(*LABELLED, "--json", "--quiet").stdout)["contexts"]
    labelled = [one for one in table if one[-1]]
    expected = [[*labelled[row], str(k)] for k, one in enumerate(numbers, 1) for row in one]
    with open("c.csv", newline="") as file:
        assert list(csv.reader(file)) == [["a", "city", "y", "context"], *expected]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (WORDS, "'y' has no value in row 7"),
        ([*WORDS[:2], "--size", "5"], "--target"),
        ([*LABELLED, "--target", "z"], "--target z is not known"),
        ([*LABELLED, "--contexts", "40"], "--contexts must be an integer between 1 and 39"),
        ([*LABELLED, "--size", "40"], "--size must be an integer between 1 and 39"),
        ([*LABELLED, "--out", "c.npz"], "--out c.npz must end in .json, .csv or .parquet"),
        (["contexts", "digits", "--size", "5", "--out", "c.csv"], "digits is not a table"),
        (["contexts", "images", "--size", "2"], "images has no labels or targets"),
    ],
)
def test_the_command_names_what_is_wrong(table, command, words, says):
    Path("images").mkdir()
    for number in range(3):
        Image.new("L", (4, 4), number).save(f"images/{number}.png")
    assert_refused(command(*words), says)


def test_row_numbers_are_printed_if_the_file_cannot_be_written(table, command, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bicore.files.replacing", fail)
    done = command(*LABELLED, "--quiet", "--out", "c.json")
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert [len(one) for one in json.loads(done.stdout)["contexts"]] == [5, 5, 5]


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.INTERRUPTED, KeyboardInterrupt), (Status.OUT_OF_TIME, bicore.TimeLimitError)],
)
def test_no_context_has_fewer_rows_because_the_search_ended_early(rows, monkeypatch, status, error):
    search = BilevelSelector._search

    def end_early(self, request, prepared):
        found = search(self, request, prepared)
        return replace(found.prefix(3), status=status)

    monkeypatch.setattr(BilevelSelector, "_search", end_early)
    with pytest.raises(error, match=r"context 1 of 2|^$"):
        bicore.contexts(*rows, 5, 2, runtime=bicore.Runtime(max_seconds=60))
