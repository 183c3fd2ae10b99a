"""Five first uses, each with at most two commands in their own processes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bicore
from tests.commands import assert_success
from tests.marks import few

#: Whichever folder a process is started in, it finds the package that is tested.
PLACE = {**os.environ, "PYTHONPATH": str(Path(bicore.__file__).parents[1])}
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("classes", few(["ab", ""]))
def test_trial_a_folder_of_images_of_several_sizes(process, tmp_path, classes):
    for number in range(12):
        folder = tmp_path / "pictures" / (classes[number % 2] if classes else "")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = RNG.integers(0, 255, (6 + number % 3, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    words = ("select", "pictures", "--size", "4", "--out", "chosen")
    told = assert_success(process(*words, cwd=tmp_path))
    assert "32×32" in told.stderr
    copies = [
        path.relative_to(tmp_path / "chosen") for path in (tmp_path / "chosen").rglob("*.png")
    ]
    assert len(copies) == 4
    assert all(str(copy) in told.stdout for copy in copies)
    assert {len(copy.parts) for copy in copies} == {2 if classes else 1}


CELLS = """
import numpy as np, bicore
x = np.random.default_rng(0).normal(size=(80, 3))
bicore.select(x, x[:, 0] > 0, 6, runtime=bicore.Runtime(progress=True))
"""


@pytest.mark.slow
def test_trial_a_notebook(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cell = nbformat.v4.new_code_cell(CELLS)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "first.ipynb")
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "first.ipynb"]
    result = subprocess.run(command, cwd=tmp_path, env=PLACE, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (cell,) = nbformat.read(tmp_path / "first.ipynb", 4).cells
    shown = [one["data"]["text/html"] for one in cell.outputs if "data" in one]
    assert '<progress max="1" value="1.000">' in shown[0]  # an executed notebook keeps it
    assert "selecting 6/6" in shown[0]
    assert "6 of 80 rows" in shown[-1]
    assert ">objective</text>" in shown[-1]
