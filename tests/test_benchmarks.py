"""The benchmark command: records, the pages generated from them, and its errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import _hide_paths
from benchmarks.check import slower
from benchmarks.common import write_record
from benchmarks.moment_weights import learn_weights
from benchmarks.page import PAGES
from benchmarks.pages import render
from bicore.moments.ridge import Candidates
from bicore.sources import digits
from bicore.streaming import MomentMemory

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PAGES)
def test_page_agrees_with_records(name):
    assert (ROOT / "docs" / name).read_text() == render(name, *PAGES[name]), (
        "run: python -m benchmarks page"
    )


#: Words of prose that a page may have, without tables, code and addresses.
MOST_WORDS = {"evidence": 400, "reproduction": 1800, "unseen": 800, "comparison": 1500}
MOST_WORDS |= {"streams-evidence": 800, "speed": 600, "method": 600, "history": 1000}


def test_evidence_pages_are_short():
    counts = {}
    for name, most in MOST_WORDS.items():
        text = re.sub(r"\]\([^)]*\)", "]", (ROOT / "docs" / f"{name}.md").read_text())
        lines = [line for line in text.splitlines() if not line.startswith("|")]
        counts[name] = len(re.findall(r"\S*\w\S*", "\n".join(lines)))
        assert counts[name] <= most, name
    assert sum(counts.values()) <= 7500


def test_records_contain_the_command_without_folders():
    wrong = []
    for path in sorted((ROOT / "benchmarks" / "records").glob("*.json")):
        text = path.read_text()
        command = json.loads(text)["command"]
        if not command.startswith("python ") or "/home" in text or "/tmp" in text:
            wrong.append(path.name)
    assert not wrong


@pytest.mark.slow
def test_missing_data_error_lists_files_and_folders():
    environment = {name: value for name, value in os.environ.items() if name != "BICORE_DATA"}
    command = [sys.executable, "-m", "benchmarks", "kernels", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "MNIST/raw" in result.stderr


def test_a_check_shows_what_became_slower_than_recorded():
    assert slower({"a": 1.19, "b": 1.3, "new": 9.0}, {"a": 1.0, "b": 1.0}) == [
        "b: 1.30 products, recorded 1.00"
    ]


def test_records_are_written_atomically(tmp_path):
    path = write_record("x", {"a": 1}, tmp_path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    assert _hide_paths(["selection", "--data", "somewhere", "--record"]) == [
        "selection",
        "--data",
        "DIR",
    ]


def test_weights_of_a_moment_memory_lower_its_objective_like_a_weighted_fit() -> None:
    x, y = digits()
    memory = MomentMemory(12)
    memory.update(x[:200], y[:200])
    weights, before, after = learn_weights(memory)
    assert after < before
    # Equal weights: the objective is that of the memory's own candidates.
    outer = memory._outer(memory.moments)
    targets = memory._targets(memory.kept, memory._features)
    ridge = memory.ridge(outer)
    inside = np.ones(12, dtype=bool)
    rows = Candidates(outer, memory._features, targets, ridge, inside)
    assert before == pytest.approx(rows.objective, rel=1e-9)
    assert weights.mean() == pytest.approx(1.0)
