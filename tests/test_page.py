"""The page of a selection: content of the file, and behaviour in a browser."""

import base64
import fnmatch
import hashlib
import io
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bicore import Coreset, Dataset
from bicore.data import read_targets
from bicore.evaluate.worth import Appraisal, Equivalent, Worth
from bicore.report import document, page
from bicore.report.page_of_selection import (
    answer,
    evaluate_picks,
    find_suspect_labels,
    further_fits,
)
from tests.commands import assert_refused, assert_success
from tests.helpers import blobs, refuses
from tests.pages import (
    HOSTILE,
    Tags,
    check_curve,
    check_fits,
    check_hostile,
    check_hostile_in_browser,
    check_names,
    copy_indices,
    facts_of,
    open_page,
    quiet,
    write_table,
)

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "src" / "bicore" / "report" / "static"


def coreset(picks, objectives=(), **more):
    return Coreset(np.asarray(picks), objectives=np.asarray(objectives, float), **more)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A page whose every name is an attack."""
    data = blobs(40)
    columns = {HOSTILE[0]: [HOSTILE[row % 3] for row in range(40)], "x": list(range(40))}
    path = tmp_path_factory.mktemp("hostile") / "page.html"
    named = Dataset(data.x, np.array(HOSTILE)[data.y])
    return page(
        named,
        coreset([3, 1, 2], [0.5, 0.4, 0.3]),
        path,
        name=HOSTILE[0],
        cells=columns,
        command=HOSTILE[1],
        notes=HOSTILE,
    )


def test_hostile_names_stay_data(hostile):
    check_hostile(hostile)
    facts = facts_of(hostile)
    assert facts["name"] == HOSTILE[0]
    assert sorted(facts["groups"]["names"]) == sorted(HOSTILE)
    assert facts["notes"] == HOSTILE
    assert facts["picks"]["cards"][0] == HOSTILE[0]  # row 3 of the column of text


def test_the_policy_allows_this_script_and_style_and_nothing_else(hostile):
    tags = Tags(hostile.read_text())
    policy = next(
        own["content"]
        for tag, own in tags.found
        if own.get("http-equiv") == "Content-Security-Policy"
    )
    for name in ("script", "style"):
        digest = hashlib.sha256(tags.inside[name].encode()).digest()
        assert f"{name}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy
    assert "img-src data:" in policy
    assert "unsafe" not in policy


def test_the_file_has_no_external_links(hostile):
    for tag, own in Tags(hostile.read_text()).found:
        for name in ("src", "href", "action", "srcset"):
            assert own.get(name, "#").startswith(("#", "data:")), (tag, own)
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"/\*.*?\*/", "", text), path.name
        for way in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch"):
            assert way not in text, f"{path.name} uses {way}"


def test_static_files_are_in_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["bicore"]
    source = ROOT / "src" / "bicore"
    paths = [path for path in source.rglob("*") if path.is_file()]
    for path in paths:
        name = path.relative_to(source).as_posix()
        if path.suffix not in (".py", ".pyc"):
            assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name


def test_the_page_of_a_selection_tells_its_story(tmp_path):
    data = blobs(60)
    picks = coreset([5, 9, 1], [0.5, 0.2, 0.1]).with_details({"empty_objective": 1.0, "seed": 3})
    facts = facts_of(page(data, picks, tmp_path / "page.html", command="bicore select"))
    assert facts["answer"] is None
    assert facts["picks"]["rows"] == [5, 9, 1]
    assert facts["picks"]["codes"] == data.y[[5, 9, 1]].tolist()
    np.testing.assert_allclose(facts["picks"]["gains"], [0.5, 0.3, 0.1])
    assert facts["shown"]["kind"] == "numbers"
    assert sum(facts["groups"]["counts"]) == 60
    assert ["seed", "3"] in facts["parameters"]
    assert facts["command"] == "bicore select"


def test_targets_become_ranges(tmp_path):
    data = blobs(60)
    targets = Dataset(data.x, np.linspace(0, 1, 60))
    facts = facts_of(page(targets, coreset([0, 59]), tmp_path / "page.html"))
    assert facts["groups"]["kind"] == "range"
    assert facts["groups"]["counts"] == [6] * 10
    assert facts["picks"]["codes"] == [0, 9]
    assert facts["picks"]["labels"] == ["0", "1"]
    assert facts["suspects"]["examined"] == 60


def test_target_far_from_leave_one_out_prediction():
    x = np.linspace(0, 6, 120)[:, None]
    y = np.sin(x) + 0.05 * np.random.default_rng(0).normal(size=x.shape)
    y[40] += 3
    _, suspect, predicted = find_suspect_labels(Dataset(x, y), read_targets(y))
    assert suspect.tolist() == [40]
    assert predicted[0, 0] == pytest.approx(np.sin(x[40, 0]), abs=0.3)


def test_rows_without_labels_have_a_page(tmp_path):
    facts = facts_of(page(Dataset(blobs(30).x), coreset([4]), tmp_path / "page.html"))
    assert facts["groups"]["kind"] == "none"


def test_a_coreset_of_other_data_is_refused(tmp_path):
    refuses("40", page, blobs(30), coreset([40]), tmp_path / "page.html")
    refuses("coreset", page, blobs(30), coreset([]), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ends", "headline"),
    [
        ([(480, 410, 560)], "Your 50 rows are worth 480 random ones (410–560)"),
        ([(60, 40, 70)], "Random is enough here"),
        ([(20, 13, 30)], "Random is better here"),
        ([(480, 410, 560), (52, 40, 60)], "Class-balanced sampling is enough here"),
    ],
)
def test_the_answer_is_plain(ends, headline):
    names = ("uniform", "class-balanced")
    curve = ((50, 800), (0.8, 0.95), (0.02, 0.01))
    baselines = tuple(
        Equivalent(name, 50, *one, *curve) for name, one in zip(names, ends, strict=False)
    )
    found = answer(Worth(50, baselines, 0.93, 0.01, "accuracy", "ridge", 10, "on 10 splits", 30))
    assert found["headline"] == headline
    assert found["sentence"].startswith("Your 50 rows are worth ")


@pytest.mark.slow
def test_judge_reports_the_worst_classes():
    """The chosen rows lack a class, which as many random ones find."""
    every = blobs(180)
    data, test = every[:120], every[120:]
    lacking = coreset(np.flatnonzero(data.y != 2)[:16])
    appraisal = Appraisal(data, chosen=lacking, test=test, judge="ridge", seeds=3)
    found = evaluate_picks(appraisal)
    assert found["curve"]["whole"]["score"] == appraisal.worth().score
    assert [one["size"] for one in found["curve"]["prefixes"]] == [4, 8]
    by_code = {one["code"]: one for one in found["classes"]}
    assert by_code[2]["chosen"] == 0
    assert by_code[2]["gap"] + by_code[2]["half"] < 0
    assert further_fits(appraisal) == 3 * 2 * 3
    # the whole is the mean of its classes, weighed by their rows
    there = np.bincount(test.y)
    mean = sum(one["chosen"] * there[one["code"]] for one in found["classes"]) / 60
    assert mean == pytest.approx(appraisal.worth().score, abs=0.06)


def test_wrong_labels_come_first():
    data = blobs(150)
    labels = data.y.copy()
    labels[[7, 70]] = (labels[[7, 70]] + 1) % 3
    examined, suspect, predicted = find_suspect_labels(
        Dataset(data.x, labels), read_targets(labels)
    )
    assert set(suspect[:2].tolist()) == {7, 70}
    assert predicted[:2].argmax(1).tolist() == data.y[suspect[:2]].tolist()
    assert examined == 150


def test_a_class_that_the_model_does_not_see_is_left_alone():
    rng = np.random.default_rng(0)
    labels = (rng.random(200) < 0.1).astype(int)
    data = Dataset(rng.normal(size=(200, 2)), labels)
    _, suspect, _ = find_suspect_labels(data, read_targets(labels))
    assert not (labels[suspect] == 1).any()


def test_main_directions_are_those_of_the_whole_matrix():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 20)) * np.linspace(5, 0.5, 20)
    mean, directions, share = document.main_directions(x)
    _, values, axes = np.linalg.svd(x - x.mean(0), full_matrices=False)
    np.testing.assert_allclose(mean, x.mean(0))
    np.testing.assert_allclose(np.abs(axes[:2] @ directions), np.eye(2), atol=0.02)
    assert share == pytest.approx((values[:2] ** 2).sum() / (values**2).sum(), rel=1e-3)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_map_of_few_columns_or_no_spread(width):
    for x in (np.zeros((5, width)), np.arange(5.0 * width).reshape(5, width)):
        places, share = document.project(x, np.arange(5))
        assert places.min() >= 0
        assert places.max() <= document.GRID
        assert 0 <= share <= 1


def test_of_many_rows_some_are_drawn_and_all_picks(monkeypatch):
    monkeypatch.setattr(document, "MOST_POINTS", 10)
    monkeypatch.setattr(document, "BLOCK", 9)  # three rows at a time
    x = np.random.default_rng(0).normal(size=(100, 3))
    facts, places = document.RowView(Dataset(x), None, None, None).map(np.array([33, 34]))
    drawn = np.frombuffer(base64.b64decode(facts["rows"]), "<u4").tolist()
    assert {33, 34} <= set(drawn)
    assert len(drawn) == facts["count"] == 11  # 33 is among those evenly spaced
    assert facts["of"] == 100
    assert len(places) == 2


@pytest.mark.parametrize("shape", [(7, 5), (6, 9, 3)])
def test_images_are_unchanged(shape):
    image = np.random.default_rng(0).random(shape)
    stored = base64.b64decode(document.image_address(image).split(",")[1])
    read = np.asarray(Image.open(io.BytesIO(stored)))
    np.testing.assert_array_equal(read, (image * 255).round())


def test_a_large_image_becomes_means_of_blocks():
    image = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones((64, 64)))
    read = np.asarray(
        Image.open(io.BytesIO(base64.b64decode(document.image_address(image).split(",")[1])))
    )
    assert read.shape == (64, 64)
    assert read[0, 0] == 0
    assert read[0, -1] == 255


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    data = blobs(90)
    np.savez(tmp_path / "data.npz", x=data.x, y=np.array(["a", "b", "c"])[data.y])
    write_table(tmp_path, data)
    return tmp_path


SELECT = ["--size", "8", "--method", "uniform"]


@pytest.mark.slow
def test_select_writes_a_page_that_begins_with_the_worth(bicore, folder):
    words = ["select", "table.csv", "--target", "label", *SELECT]
    result = assert_success(bicore(*words, "--report", "page.html", cwd=folder))
    assert "further fits of at most 8 rows" in result.stderr
    assert "worth: about" in result.stderr
    assert result.stdout.splitlines()[-1] == "written: page.html"
    facts = facts_of(folder / "page.html")
    assert facts["answer"]["headline"] == "More seeds or test rows are needed for an answer"
    assert facts["shown"] == {"kind": "table", "columns": ["age", "city", "label"]}
    assert len(facts["classes"]) == 3
    assert [one["size"] for one in facts["curve"]["prefixes"]] == [4]
    assert facts["command"].startswith("bicore select table.csv --target label --size 8")
    assert len(facts["picks"]["rows"]) == 8


def test_the_worth_can_be_left_out(bicore, folder):
    words = ["select", "data.npz", *SELECT, "--report", "page.html", "--no-worth", "--json"]
    result = assert_success(bicore(*words, cwd=folder))
    assert "worth" not in json.loads(result.stdout)
    assert facts_of(folder / "page.html")["answer"] is None


def test_a_page_does_without_a_worth_that_cannot_be_had(bicore, folder):
    """Too many rows for a quarter to be held out: asked for, it is refused; for a page, left out."""
    words = ["select", "data.npz", "--size", "80", "--method", "uniform", "--report", "page.html"]
    result = bicore(*words, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "the report omits the worth of the rows: 80 rows are chosen" in result.stderr
    assert facts_of(folder / "page.html")["answer"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["select", "data.npz", "--size", "8", "--report", "page.pdf"], "must end in .html"),
        (["compare", "data.npz", "--report", "no/page.html"], "does not exist"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_first(bicore, folder, words, message):
    assert_refused(bicore(*words, cwd=folder), message)


# --- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged_page(tmp_path_factory):
    """Of images, with a worth."""
    every = blobs(230)
    data, test = every[:150], every[150:]
    picks = coreset(np.arange(24), np.linspace(0.9, 0.2, 24)).with_details({"empty_objective": 1.0})
    appraisal = Appraisal(data, chosen=picks, test=test, judge="ridge", seeds=4)
    images = np.random.default_rng(0).random((150, 6, 6))
    path = tmp_path_factory.mktemp("judged") / "page.html"
    return page(data, picks, path, appraisal=appraisal, images=images, command="bicore select")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1240, 360])
def test_the_page_fits_and_is_quiet(browser, judged_page, hostile, scheme, width):
    check_fits(browser, [hostile, judged_page], width, scheme)
    check_curve(browser)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(17, 20, 26)" if scheme == "dark" else "rgb(250, 248, 244)"
    )


@pytest.mark.slow
def test_the_slider_moves_everything(browser, judged_page):
    open_page(browser, judged_page)
    gallery = "[...document.querySelectorAll('#gallery li')].filter(one => !one.hidden).length"
    counts = (
        "[...document.querySelectorAll('#balance-rows .count')]"
        ".reduce((sum, one) => sum + parseInt(one.textContent), 0)"
    )
    dot = "Number(document.querySelector('#curve circle[r=\"6.5\"]').getAttribute('cx'))"
    marks = "byId('marks').toDataURL()"
    words = "byId('now').textContent"
    scripts = [gallery, counts, dot, marks, words]
    before = [browser.run(one) for one in scripts]
    assert before[:2] == [24, 24]
    browser.run("byId('size').focus()")
    for _ in range(12):  # by the keyboard alone
        browser.key("ArrowLeft", 37)
    browser.wait_for_frames()
    after = [browser.run(one) for one in scripts]
    assert after[:2] == [12, 12]
    assert after[2] < before[2]
    assert after[3] != before[3]
    assert after[4].startswith("The first 12 rows: accuracy 0.")
    assert "12 of 24" in browser.run("byId('size').getAttribute('aria-valuetext')")
    assert quiet(browser, judged_page)


@pytest.mark.slow
def test_hostile_names_are_text_in_the_browser(browser, hostile):
    check_hostile_in_browser(open_page(browser, hostile), hostile)
    assert HOSTILE[0] in browser.run("byId('kicker').textContent")
    assert HOSTILE[1] in browser.run("byId('map-legend').textContent")


@pytest.mark.slow
def test_a_picture_can_be_read_and_reached(browser, judged_page):
    roles = {"main", "banner", "contentinfo", "form", "slider", "heading"}
    check_names(open_page(browser, judged_page), roles)
    browser.run("document.querySelector('#gallery button').focus()")
    browser.key("ArrowRight", 39)
    browser.run("document.activeElement.click()")
    assert browser.run("byId('map-now').textContent").startswith("pick 2: row 1")


@pytest.mark.slow
def test_indices_are_copied_up_to_the_size(browser, judged_page):
    open_page(browser, judged_page).run("moveTo(3)")
    assert copy_indices(browser) == [0, 1, 2]
    assert browser.run("byId('copied').textContent") == "3 indices copied."
