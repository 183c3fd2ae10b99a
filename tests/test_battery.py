"""The battery: what was put aside, how cells are told apart, and the page that its records make."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import battery, battery_page
from benchmarks.battery.protocols import PROTOCOLS
from benchmarks.battery.sets import SETS
from bicore.selectors import METHODS


def test_a_third_of_the_sets_is_put_aside_and_no_choice_is_made_on_it():
    aside = {name for name, one in SETS.items() if one.aside}
    assert len(SETS) >= 14
    assert len(aside) >= len(SETS) / 3
    assert {SETS[name].regression for name in aside} == {True, False}
    for name in ("variants", "kept", "image-variants", "wrong-labels", "first"):
        assert not set(PROTOCOLS[name].sets) & aside
    assert set(PROTOCOLS["aside"].sets) == aside
    for protocol in PROTOCOLS.values():
        assert {method for method, _, _ in protocol.methods.values()} <= set(METHODS)


def rows(scores):
    """Rows of one set, from scores by method and seed."""
    return [
        {"set": "wine", "size": 5, "seed": seed, "method": name, "scores": {"knn": [value, value]}}
        for name, values in scores.items()
        for seed, value in enumerate(values)
    ]


def test_cells_are_told_apart_by_paired_differences():
    chance = [0.5, 0.7, 0.6, 0.4]
    above = [0.6, 0.8, 0.71, 0.5]  # by a tenth, whatever the seed
    beside = [0.7, 0.5, 0.6, 0.4]
    found = rows({"class-balanced": chance, "default": above, "uniform": beside})
    standing = {line["method"]: line for line in battery_page.standing(found, False)}
    assert (standing["default"]["better"], standing["default"]["worse"]) == (1, 0)
    assert (standing["uniform"]["better"], standing["uniform"]["worse"]) == (0, 0)
    assert standing["default"]["rank"] == 1
    assert standing["default"]["gain"] == pytest.approx(0.1025)
    turned = rows({"class-balanced": above, "default": chance})
    assert battery_page.losses(turned, False) == ["wine, 5 points, knn (-0.103)"]


def test_rows_come_one_by_one_and_a_second_run_goes_on(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    np.savez(tmp_path / "wine.npz", x=x, y=np.where(x[:, 0] > 0, "up", "down"))
    protocol = PROTOCOLS["first"]
    small = SimpleNamespace(**{**vars(protocol), "sets": ("wine",), "seeds": 1, "fixed": {}})
    small.sizes = lambda classes, pool: [4]
    small.methods = {name: protocol.methods[name] for name in ("uniform", "default")}
    job = ("first", "wine", 0, 0.0, str(tmp_path), "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROTOCOLS, "first", small)
        from benchmarks.battery.work import _done, _rows

        found = _rows(job)
    assert [row["method"] for row in found] == ["uniform", "default", "all data"]
    assert set(found[1]["scores"]) == {"logistic", "forest"}
    assert all(0 <= value <= 1 for row in found for own in row["scores"].values() for value in own)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    assert _done(path) == {("wine", 0, 0.0)}
    assert callable(battery.run)


def test_the_page_of_choices_is_what_the_records_say():
    assert battery_page.PAGE.read_text() == battery_page.text(), "run: python -m benchmarks page"
