"""The battery: held-out sets, and the comparison of methods."""

import numpy as np
import pytest

from benchmarks import battery_page
from benchmarks.battery.memories import BUFFERS, replay, stream
from benchmarks.battery.protocols import PROTOCOLS
from benchmarks.battery.sets import SETS, load
from benchmarks.common import run_jobs
from bicore import Dataset
from bicore.errors import InputError
from bicore.methods import METHODS
from bicore.runtime.context import Context


def test_a_third_of_the_sets_is_held_out_and_no_choice_is_made_on_it():
    aside = {name for name, one in SETS.items() if one.aside}
    assert len(SETS) >= 14
    assert len(aside) >= len(SETS) / 3
    assert {SETS[name].regression for name in aside} == {True, False}
    choosing = ("variants", "kept", "wrong-labels")
    for name in (*choosing, "replay", "merge-reduce"):
        assert not set(PROTOCOLS[name].sets) & aside
    assert set(PROTOCOLS["aside"].sets) == aside
    for protocol in PROTOCOLS.values():
        known = {*METHODS, *(BUFFERS if protocol.memory is stream else ())}
        names = {method for method, _, _ in protocol.methods.values()}
        assert names <= known


def rows(scores):
    """Rows of one set, from scores by method and seed."""
    return [
        {"set": "wine", "size": 5, "seed": seed, "method": name, "scores": {"knn": [value, value]}}
        for name, values in scores.items()
        for seed, value in enumerate(values)
    ]


def test_methods_are_compared_by_paired_differences():
    chance = [0.5, 0.7, 0.6, 0.4]
    above = [0.6, 0.8, 0.71, 0.5]  # by a tenth, whatever the seed
    similar = [0.7, 0.5, 0.6, 0.4]
    found = rows({"class-balanced": chance, "default": above, "uniform": similar})
    standing = {line["method"]: line for line in battery_page.standing(found, False)}
    assert (standing["default"]["better"], standing["default"]["worse"]) == (1, 0)
    assert (standing["uniform"]["better"], standing["uniform"]["worse"]) == (0, 0)
    assert standing["default"]["rank"] == 1
    assert standing["default"]["gain"] == pytest.approx(0.1025)
    same = rows({"class-balanced": chance, "default": chance, "uniform": chance})
    assert {line["rank"] for line in battery_page.standing(same, False)} == {2}  # ties share ranks
    turned = rows({"class-balanced": above, "default": chance})
    assert battery_page.losses(turned, False) == ["wine, 5 rows, knn (-0.103)"]


def five_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=300)
    return Dataset(rng.normal(size=(300, 2)) + 4 * y[:, None], y)


def test_a_replay_memory_ends_with_rows_of_every_task():
    data = five_classes()
    picks = replay("class-balanced", {}, data, 20, 3, Context())
    # a task of three classes and one of two have ten rows each
    assert len(set(picks.indices.tolist())) == 20
    assert sorted(np.bincount(data.y[picks.indices])) == [3, 3, 4, 5, 5]
    assert picks.weights.sum() == pytest.approx(2)
    assert picks.kernel is None
    other = replay("class-balanced", {}, data, 20, 4, Context())
    assert sorted(other.indices) != sorted(picks.indices)


@pytest.mark.slow
def test_a_missing_set_ends_the_processes_with_an_error(tmp_path):
    with pytest.raises(InputError, match=r"has no wine\.npz; write it with"):
        list(run_jobs(load, [("wine", tmp_path)], 1))
