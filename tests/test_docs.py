"""Docstrings' examples, and every Python block of README and docs, run as written."""

import doctest
import importlib
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bicore
from bicore import sources

ROOT = Path(__file__).parents[1]
#: Digits that the code of the longest pages is run with.
FEWER = {"guide.md": 700, "beyond.md": 700}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    "name",
    ["bicore", *(module.name for module in pkgutil.walk_packages(bicore.__path__, "bicore."))],
)
def test_docstring_examples(name):
    result = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


#: Pages whose blocks take long and are of things that have tests of their own.
LONG = {"beyond.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in LONG), id=page.name)
        for page in PAGES
    ],
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """As they are written; the longest pages with the first digits in place of all."""
    x, y = sources.digits()
    rows = FEWER.get(page.name)
    monkeypatch.setattr(sources, "digits", lambda: (x[:rows], y[:rows]))
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in re.findall(
        r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    ):
        exec(compile(block, str(page), "exec"), namespace)


def test_commands_of_the_readme_run(bicore, tmp_path):
    """Every line of its shell blocks that calls the command, on fewer rows; ``make`` is what runs
    these tests."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE
    )
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("bicore ")]
    assert len(commands) >= 4
    for words in commands:
        fewer = ["--limit", "200"] if "digits" in words and "--limit" not in words else []
        result = bicore(*words, *fewer, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    makefile = (ROOT / "Makefile").read_text()
    for line in lines:
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["continual", "streaming"])
def test_examples_run(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    shown = capsys.readouterr().out
    if name == "continual":
        assert float(shown.rsplit(":", 1)[1]) > 0.7
    else:
        assert (
            "0" not in shown.splitlines()[-1].split("[")[1].split()
        )  # merge-reduce keeps every class


@pytest.mark.slow
def test_the_demo_runs_and_the_coreset_wins(tmp_path):
    result = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"│\s+(\d+) │\s+([\d.]+) ±[^│]*│\s+([\d.]+) ±", result.stdout)
    assert len(rows) == 3
    assert all(float(chosen) > float(uniform) for _, uniform, chosen in rows)
    assert (tmp_path / "out" / "demo-coreset.npz").exists()
    assert (tmp_path / "out" / "demo-picks.png").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
