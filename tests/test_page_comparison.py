"""The page of a comparison: content of the file, and behaviour in a browser."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from bicore import Dataset, Runtime
from bicore.evaluate.comparison import Comparison, Grid, StreamComparison, findings_of
from bicore.evaluate.models import RidgeJudge, measure_by
from bicore.evaluate.pools import make_pools
from bicore.evaluate.records import Records
from bicore.methods import KCenter, Uniform
from bicore.methods.registry import build_selector
from bicore.report.document import main_directions
from bicore.report.page_of_comparison import comparison_page
from bicore.sources.base import Source
from bicore.streaming import Reservoir
from tests.commands import assert_success
from tests.helpers import blobs, line
from tests.pages import (
    HOSTILE,
    check_curve,
    check_fits,
    check_hostile,
    check_hostile_in_browser,
    check_names,
    facts_of,
    open_page,
    quiet,
    write_table,
)

#: Those of the runs below; the first one is not 0, so that a page that takes 0 for it is seen.
SEEDS = (3, 5, 6)


def run_comparison(folder, source, sizes=(4, 8), methods=None, seeds=SEEDS):
    """A comparison that is done."""
    pools = make_pools(source, None, "auto", 60, 2000, 20)
    grid = Grid(methods or {"uniform": Uniform(), "k-center": KCenter()}, sizes, seeds)
    records = Records(folder / "rows.jsonl", {})
    run = Comparison(pools, grid, RidgeJudge(), records, Runtime(device="cpu"))
    run.run()
    return run


def write_page(run, folder):
    found = findings_of(run, measure_by(None, run.pools.classification))
    return comparison_page(run, found, folder / "page.html", command=HOSTILE[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def run(folder):
    """Of a table, each name of which is an attack."""
    data = blobs(90)
    text = [HOSTILE[row % 3] for row in range(90)]
    table = {HOSTILE[0]: text, "x": list(range(90))}
    named = Dataset(data.x, np.array(HOSTILE)[data.y])
    methods = {"uniform": Uniform(), HOSTILE[1]: KCenter(), HOSTILE[2]: Uniform()}
    source = Source(HOSTILE[0], named, scale="standard", notes=tuple(HOSTILE), table=table)
    return run_comparison(folder, source, methods=methods)


@pytest.fixture(scope="module")
def hostile(run, folder):
    return write_page(run, folder)


def test_picks_are_those_of_the_first_seed_in_rows_of_the_source(run, hostile):
    facts = facts_of(hostile)
    picks = facts["picks"]
    assert (picks["seed"], picks["pool"], picks["of"]) == (SEEDS[0], 60, 90)
    pool, _ = run.pools.of(SEEDS[0])
    rows = run.pools.rows(SEEDS[0])
    for name, found in zip(facts["methods"], picks["selections"], strict=True):
        for size, one in zip(facts["sizes"], found, strict=True):
            chosen = run.grid.methods[name].select(pool, size, random_state=SEEDS[0])
            assert [picks["rows"][at] for at in one["at"]] == rows[chosen.indices].tolist()
            assert one["weights"] is None
    # what is shown of a row is the source's, and so is its class
    for row, code, card in zip(picks["rows"], picks["codes"], picks["cards"], strict=True):
        assert card == HOSTILE[row % 3]
        assert facts["groups"]["names"][code] == run.pools.source.data.y[row]


def test_the_map_and_the_balance_are_of_the_pool(run, hostile):
    facts = facts_of(hostile)
    plane, picks = facts["plane"], facts["picks"]
    assert plane["count"] == plane["of"] == sum(facts["groups"]["counts"]) == 60
    numbers = np.frombuffer(base64.b64decode(plane["rows"]), "<u4")
    assert numbers.tolist() == run.pools.rows(SEEDS[0]).tolist()
    x, y = (np.frombuffer(base64.b64decode(plane[one]), "<u2") for one in "xy")
    for row, place in zip(picks["rows"], picks["places"], strict=True):
        (at,) = np.flatnonzero(numbers == row)
        assert place == [x[at], y[at]]
    # features are those that the methods saw, scaled by the pool
    pool, _ = run.pools.of(SEEDS[0])
    assert plane["share"] == pytest.approx(main_directions(pool.x)[2], abs=1e-9)


def test_hostile_names_stay_data(hostile):
    check_hostile(hostile)
    facts = facts_of(hostile)
    assert facts["methods"] == ["uniform", *HOSTILE[1:]]
    assert sorted(facts["groups"]["names"]) == sorted(HOSTILE)
    assert facts["shown"] == {"kind": "text", "columns": [HOSTILE[0]]}


def test_class_scores_are_paired_with_random_ones_by_seed(run, hostile):
    (judge,) = facts_of(hostile)["judges"]
    uniform, centre, same = judge["classes"]
    assert uniform == [[], []]
    rows = run.records.results
    for place, size in enumerate(run.grid.sizes):
        shares = {
            name: np.array([rows[name, size, seed].classes["ridge"] for seed in SEEDS])
            for name in run.grid.methods
        }
        gaps = shares[HOSTILE[1]] - shares["uniform"]
        for one in centre[place]:
            code = one["code"]
            assert one["gap"] == pytest.approx(gaps[:, code].mean(), abs=1e-4)
            # Student's t of two degrees of freedom
            half = 4.302653 * gaps[:, code].std(ddof=1) / np.sqrt(3)
            assert one["half"] == pytest.approx(half, abs=1e-4)
        assert [(one["gap"], one["half"]) for one in same[place]] == [(0, 0)] * 3
        accuracy = [
            rows["uniform", size, seed].measures["ridge"]["balanced_accuracy"] for seed in SEEDS
        ]
        np.testing.assert_allclose(shares["uniform"].mean(1), accuracy)


def test_targets_have_picks_and_no_classes(tmp_path):
    run = run_comparison(tmp_path, Source("line", line(90, targets=1)), sizes=(4,), seeds=(0,))
    facts = facts_of(write_page(run, tmp_path))
    assert facts["groups"]["kind"] == "range"
    assert facts["judges"][0]["classes"] == [[[]], [[]]]
    targets = run.pools.source.data.y
    for row, label in zip(facts["picks"]["rows"], facts["picks"]["labels"], strict=True):
        assert float(label) == pytest.approx(targets[row, 0], rel=1e-3)


def test_records_without_picks_are_read(run, tmp_path):
    older = {
        cell: replace(row, picks=[], classes={})
        for cell, row in run.records.results.items()
        if row.method != "uniform"
    }
    rows = Records(tmp_path / "rows.jsonl", {})
    rows.results = run.records.results | older
    facts = facts_of(write_page(replace(run, records=rows), tmp_path))
    assert [any(found) for found in facts["picks"]["selections"]] == [True, False, False]
    assert facts["judges"][0]["classes"] == [[[], []]] * 3
    rows.results = {cell: replace(row, picks=[1000]) for cell, row in run.records.results.items()}
    facts = facts_of(write_page(replace(run, records=rows), tmp_path))
    assert "picks" not in facts


def test_learnt_weights_go_with_their_picks(tmp_path):
    methods = {"weighted": build_selector("bilevel-weighted", kernel="rbf")}
    run = run_comparison(tmp_path, Source("blobs", blobs(90)), (6,), methods, seeds=(0,))
    picks = facts_of(write_page(run, tmp_path))["picks"]
    ((one,),) = picks["selections"]
    pool, _ = run.pools.of(0)
    chosen = methods["weighted"].select(pool, 6, random_state=0)
    assert [picks["rows"][at] for at in one["at"]] == run.pools.rows(0)[chosen.indices].tolist()
    np.testing.assert_allclose(one["weights"], chosen.weights)


def test_a_stream_has_no_picks(tmp_path):
    pools = make_pools(Source("blobs", blobs(90)), None, "auto", 60, 2000, 20)
    grid = Grid({"reservoir": lambda seed: Reservoir(8, random_state=seed)}, [30, 60], range(1))
    records = Records(tmp_path / "rows.jsonl", {})
    run = StreamComparison(pools, grid, RidgeJudge(), records, Runtime(device="cpu"))
    run.run()
    assert "picks" not in facts_of(write_page(run, tmp_path))


def test_of_many_picks_the_first_are_shown_one_by_one(run, tmp_path, monkeypatch):
    monkeypatch.setattr("bicore.report.page_of_comparison.MOST_ROWS", 6)
    facts = facts_of(write_page(run, tmp_path))
    picks = facts["picks"]
    shown = {at for at, card in enumerate(picks["cards"]) if card is not None}
    first = [one["at"][: picks["depth"]] for found in picks["selections"] for one in found]
    assert shown == {at for places in first for at in places}
    assert 0 < len(shown) <= 6
    next_ones = {one["at"][picks["depth"]] for found in picks["selections"] for one in found}
    assert len(shown | next_ones) > 6


# --- the command ------------------------------------------------------------------------------

METHODS = ["--methods", "uniform,class-balanced,k-center-features", "--sizes", "4,8,16"]


@pytest.fixture
def place(tmp_path):
    data = blobs(90)
    write_table(tmp_path, data)
    return tmp_path


def test_compare_writes_a_page(bicore, place):
    words = ["compare", "table.csv", "--target", "label", *METHODS, "--seeds", "2"]
    more = ["--records", "rows.jsonl", "--report", "page.html"]
    result = assert_success(bicore(*words, *more, cwd=place))
    assert result.stdout.splitlines()[-1] == "written: page.html"
    facts = facts_of(place / "page.html")
    assert facts["sizes"] == [4, 8, 16]
    (judge,) = facts["judges"]
    assert len(judge["headlines"]) == 3
    assert len(judge["entries"]) == 9
    assert {one["name"] for one in judge["references"]} == {"all data", "majority"}
    assert facts["shown"] == {"kind": "table", "columns": ["age", "city", "label"]}
    picks = facts["picks"]
    assert [[len(one["at"]) for one in found] for found in picks["selections"]] == [[4, 8, 16]] * 3
    for row, card in zip(picks["rows"], picks["cards"], strict=True):
        assert card[1:] == [["Bern", "<b>Rome"][row % 2], "abc"[row % 3]]
    # the rows are kept: a second page is the same and selects nothing
    stored = (place / "rows.jsonl").read_text()
    kept = [json.loads(one) for one in stored.splitlines()[1:]]
    assert {bool(one["picks"]) for one in kept if one["seed"] == 1} == {False}
    assert_success(bicore(*words, *more, "--force", cwd=place))
    assert facts_of(place / "page.html")["picks"] == picks
    assert (place / "rows.jsonl").read_text() == stored


# --- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_of_images(tmp_path_factory):
    """Methods, sizes and two judges."""
    folder = tmp_path_factory.mktemp("images")
    images = np.random.default_rng(0).random((90, 6, 6))
    run = run_comparison(folder, Source("blobs", blobs(90), images=images), sizes=(4, 8, 16))
    return write_page(run, folder)


SEEN = {
    "cards": "document.querySelectorAll('#gallery li').length",
    "counts": "[...document.querySelectorAll('#balance-rows .count')]"
    ".reduce((sum, one) => sum + parseInt(one.textContent), 0)",
    "indices": "JSON.parse(byId('indices').textContent)",
    "marks": "byId('marks').toDataURL()",
    "dot": "document.querySelector('#curve circle[r=\"6.5\"]').getAttribute('cx')",
    "headline": "byId('headline').textContent",
    "classes": "byId('classes-words').textContent",
}


def read_page(browser):
    browser.wait_for_frames()
    return {name: browser.run(script) for name, script in SEEN.items()}


def find_selection(facts, method, size):
    picks = facts["picks"]
    found = picks["selections"][facts["methods"].index(method)][facts["sizes"].index(size)]
    return [picks["rows"][at] for at in found["at"]]


@pytest.mark.slow
def test_the_slider_and_the_method_move_everything(browser, page_of_images):
    facts = facts_of(page_of_images)
    open_page(browser, page_of_images)
    browser.run("byId('method').value = '1'; byId('method').dispatchEvent(new Event('change'))")
    browser.run("byId('size').focus(); moveTo(2)")
    before = read_page(browser)
    assert (before["cards"], before["counts"]) == (16, 16)
    assert before["indices"] == find_selection(facts, "k-center", 16)
    browser.key("ArrowLeft", 37)  # by the keyboard alone
    after = read_page(browser)
    assert (after["cards"], after["counts"]) == (8, 8)
    assert after["indices"] == find_selection(facts, "k-center", 8)
    assert after["headline"] == facts["judges"][0]["headlines"][1]
    assert "8 rows by k-center" in after["classes"]
    assert float(after["dot"]) < float(before["dot"])
    assert after["marks"] != before["marks"]
    browser.run("byId('method').focus()")
    browser.key("ArrowUp", 38)
    other = read_page(browser)
    assert other["indices"] == find_selection(facts, "uniform", 8)
    assert other["marks"] != after["marks"]
    assert other["classes"].startswith("These are the random rows")
    assert other["headline"] == after["headline"]
    assert "from the pool of seed 3 (60 of 90 rows)" in browser.run(
        "byId('indices-words').textContent"
    )
    assert quiet(browser, page_of_images), (browser.complaints(), browser.requests())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1240, 360])
def test_the_page_fits_and_is_quiet(browser, page_of_images, hostile, scheme, width):
    moves = ["moveTo(0)", "moveTo(1)"]
    check_fits(browser, [page_of_images, hostile], width, scheme, moves)
    check_curve(browser)


@pytest.mark.slow
def test_hostile_names_are_text_in_the_browser(browser, hostile):
    open_page(browser, hostile)
    browser.run("byId('method').value = '1'; byId('method').dispatchEvent(new Event('change'))")
    check_hostile_in_browser(browser, hostile)
    words = ("picks-title", "method", "indices-words", "map-legend", "classes-words", "command")
    for place in words:
        assert HOSTILE[1] in browser.run(f"byId('{place}').textContent"), place
    assert HOSTILE[0] in browser.run("byId('gallery').textContent")


@pytest.mark.slow
def test_focusable_elements_have_labels(browser, page_of_images):
    roles = {"main", "banner", "form", "slider", "heading", "combobox", "image"}
    check_names(open_page(browser, page_of_images), roles)
