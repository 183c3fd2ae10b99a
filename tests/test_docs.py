"""Docstrings' examples, and every block of README and docs, run as written."""

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
#: Digits that the code of the longest pages, and of the first ones, is run with.
FEWER = dict.fromkeys(["guide.md", "beyond.md", "README.md", "index.md", "embeddings.md"], 700)
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
#: Pages that a reader follows on a command line, and how many commands each must have.
COMMANDS = {"README.md": 2, "guide.md": 7, "embeddings.md": 2}


def blocks(page, languages="python|sh"):
    """Language and text of each, in order."""
    pattern = rf"^```({languages})\n(.*?)^```"
    return re.findall(pattern, page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(block, folder):
    """The words of lines that call the command on rows that are there, of digits fewer."""
    for line in block.splitlines():
        name, *words = shlex.split(line, comments=True) or [""]
        source = words[1] if len(words) > 1 else "digits"
        if name == "bicore" and (source == "digits" or (folder / source).exists()):
            fewer = ["--limit", "200"] if source in words and "--limit" not in words else []
            yield [*words, *(fewer if source == "digits" else [])]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in LONG), id=page.name)
        for page in PAGES
    ],
)
def test_blocks_run(page, bicore, tmp_path, monkeypatch):
    """In their order, as they are written; some pages with the first digits in place of all,
    commands with fewer."""
    x, y = sources.digits()
    rows = FEWER.get(page.name)
    monkeypatch.setattr(sources, "digits", lambda: (x[:rows], y[:rows]))
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    run = 0
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, str(page), "exec"), namespace)
            continue
        for words in commands(block, tmp_path):
            result = bicore(*words, cwd=tmp_path)
            assert result.returncode == 0, f"{words}: {result.stderr}"
            run += 1
    assert run >= COMMANDS.get(page.name, 0)


def test_targets_of_make_are_there():
    """Those that README names; ``make`` is what runs these tests."""
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make (\w+)|`make (\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(named) >= 3
    for target in map("".join, named):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


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
