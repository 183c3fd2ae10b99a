"""The benchmark command: records, the page made from them, and its refusals. No timed assertions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import judges, page
from benchmarks.__main__ import _public
from benchmarks.common import write_record
from bicore.kernels import fully_connected
from tests.helpers import blobs

ROOT = Path(__file__).parents[1]


def test_the_page_is_what_the_records_say():
    assert page.PAGE.read_text() == page.text(), "run: python -m benchmarks page"


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "records").glob("*.json")), ids=lambda path: path.name)
def test_records_say_by_which_command_and_name_no_folder(path):
    text = path.read_text()
    record = json.loads(text)
    assert record["command"].startswith("python ")
    assert "/home" not in text
    assert "/tmp" not in text


def test_without_data_it_says_which_files_go_where():
    environment = {name: value for name, value in os.environ.items() if name != "BICORE_DATA"}
    command = [sys.executable, "-m", "benchmarks", "kernels", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "MNIST/raw" in result.stderr


def test_records_are_written_whole(tmp_path):
    path = write_record("x", {"a": 1}, tmp_path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    assert _public(["selection", "--data", "somewhere", "--record"]) == ["selection", "--data", "DIR"]


def test_judges_learn():
    data = blobs(60)
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    sets = torch.stack([torch.arange(40), torch.arange(20, 60)])
    found = judges.network_accuracies(judges.mlp(4, 3), x[sets].float(), y[sets], x.float(), y, seed=0, steps=150)
    assert len(found) == 2
    assert min(found) > 0.6
    with torch.no_grad():
        assert judges.kernel_accuracy(fully_connected(), x[:40], y[:40], x, y, 3) > 0.7


def test_the_papers_cnn_takes_flat_images():
    network = judges.cnn(10)()
    assert network(torch.from_numpy(np.zeros((2, 784), dtype=np.float32))).shape == (2, 10)
