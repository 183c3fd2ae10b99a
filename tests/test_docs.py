"""Every block of README and docs runs as written."""

import re
import runpy
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.pages import slug
from bicore import sources
from tests import HANG
from tests.marks import except_slow

ROOT = Path(__file__).parents[1]
#: Digits that the code of a page is run with, in place of all, and pages that need all.
ROWS = 400
ALL_ROWS = {"getting-started.md", "learning.md", "methods.md"}
ALL_ROWS |= {"replay.md", "streams.md", "worth.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = sorted((ROOT / "docs" / "tables").glob("*.md"))
NAMED = {page.name: page for page in PAGES}


#: Pages whose blocks take long and are of things that have tests of their own.
LONG = {"command.md", "labels.md", "objective.md", "paper.md", "report.md", "strategies.md"}
LONG |= ALL_ROWS
#: Pages that a reader follows on a command line, and how many commands each must have.
COMMANDS = {"README.md": 2, "command.md": 7, "contexts.md": 1, "embeddings.md": 2, "texts.md": 3}


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
            limit = "120" if words[0] == "worth" else "200"
            fewer = ["--limit", limit] if source in words and "--limit" not in words else []
            yield [*words, *(fewer if source == "digits" else [])]


def run_blocks(page, bicore, folder, monkeypatch):
    """In their order, as they are written, with the first digits in place of all; commands with
    fewer, or none where there is no command."""
    x, y = sources.digits()
    rows = None if page.name in ALL_ROWS else ROWS
    monkeypatch.setattr(sources, "digits", lambda: (x[:rows], y[:rows]))
    monkeypatch.chdir(folder)
    namespace: dict = {}
    run = 0
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, str(page), "exec"), namespace)
        elif bicore is not None:
            for words in commands(block, folder):
                result = bicore(*words, cwd=folder)
                assert result.returncode == 0, f"{words}: {result.stderr}"
                run += 1
    return run


@pytest.mark.parametrize("page", except_slow(COMMANDS, LONG))
def test_blocks_and_commands_run(page, bicore, tmp_path, monkeypatch):
    run = run_blocks(NAMED[page], bicore, tmp_path, monkeypatch)
    assert run >= COMMANDS[page]


@pytest.mark.parametrize(
    "page", except_slow([name for name in NAMED if name not in COMMANDS], LONG)
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    run_blocks(NAMED[page], None, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        name
        for name, page in NAMED.items()
        if name not in COMMANDS and any("bicore " in block for _, block in blocks(page, "sh"))
    ],
)
def test_commands_of_other_pages_run(page, bicore, tmp_path, monkeypatch):
    """They belong to parts that have tests of their own."""
    assert run_blocks(NAMED[page], bicore, tmp_path, monkeypatch)


def test_targets_of_make_are_there():
    """Those that README names; ``make`` is what runs these tests."""
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make (\w+)|`make (\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(named) >= 3
    for target in map("".join, named):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.slow
def test_blocks_for_other_libraries_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for _, block in blocks(NAMED["other-libraries.md"], "python|py"):
        for library in re.findall(r"datasets|skactiveml|avalanche", block):
            pytest.importorskip(library)
        exec(compile(block, "other-libraries.md", "exec"), namespace)
        if "y" in namespace:
            labels = namespace["y"].astype(float)
            namespace["partly_labelled"] = np.where(np.arange(len(labels)) < 30, labels, np.nan)
    assert namespace["small"].column_names[-1] == "weight"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["continual", "images", "device", "streaming", "texts", "contexts"]
)
def test_examples_run(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    shown = capsys.readouterr().out
    if name == "continual":
        assert float(shown.rsplit(":", 1)[1]) > 0.7
    elif name == "device":
        assert "never come: True" in shown
    elif name == "images":
        chosen, drawn = re.findall(r"held-out images ([\d.]+)", shown)
        assert float(chosen) > float(drawn)
    elif name in ("texts", "contexts"):
        found = re.findall(r"accuracy ([\d.]+), random \D*([\d.]+)", shown)
        assert len(found) == {"texts": 4, "contexts": 2}[name]
        assert all(float(chosen) > float(drawn) for chosen, drawn in found)
    else:
        assert (
            "0" not in shown.splitlines()[2].split("[")[1].split()
        )  # merge-reduce keeps every class


@pytest.mark.slow
def test_the_demo_runs_and_the_coreset_wins(tmp_path):
    result = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"│\s+(\d+) │\s+([\d.]+) ±[^│]*│\s+([\d.]+) ±", result.stdout)
    assert len(rows) == 3
    assert all(float(chosen) > float(uniform) for _, uniform, chosen in rows)
    assert (tmp_path / "out" / "demo-coreset.npz").exists()
    assert (tmp_path / "out" / "demo-picks.png").exists()


def contents(page):
    """Entries of the tables of contents of a page."""
    pattern = r"^```{toctree}\n(.*?)^```"
    lists = re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)
    return [line for one in lists for line in one.splitlines() if line and line[0] != ":"]


def test_every_page_is_in_the_site():
    """Sphinx warns of a page that no table of contents has."""
    entries = contents(ROOT / "docs" / "index.md")
    for page in PAGES[1:]:
        found = [entry for entry in entries if fnmatch(page.stem, entry)]
        assert len(found) == (page.stem != "index"), f"{page.name} is in {found} of docs/index.md"
    assert sorted(contents(ROOT / "docs" / "tables.md")) == [f"tables/{one.stem}" for one in TABLES]


def anchors(page):
    return {slug(line.lstrip("# ")) for line in page.read_text().splitlines() if line[:1] == "#"}


def test_links_between_pages_resolve():
    """To a file, and to a heading if it is a page."""
    broken = []
    for page in [*PAGES, *TABLES]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            name, _, anchor = target.partition("#")
            path = page.parent / name if name else page
            if not path.exists() or (
                anchor and path.suffix == ".md" and anchor not in anchors(path)
            ):
                broken.append(f"{page.name} links to {target}")
    assert not broken, "\n".join(broken)


#: How many of each kind the paper numbers; the first numbers of its appendix are letters.
NUMBERED = {"Equation": 28, "Algorithm": 3, "Table": 7, "Figure": 5, "Section": 7}
STATEMENTS = ["Theorem 1", "Lemma 8", *(f"Proposition {k}" for k in (2, 3, 4, 5, 6, 7, 9))]
PARTS = ["Section 3.1", "Section 3.2", "Section 3.3", "Section 3.4"]
PARTS += ["Section 6.1", "Section 6.2", "Section 6.3", *(f"Appendix {k}" for k in "ABCDE")]


def test_every_number_of_the_paper_is_mapped_once():
    rows = re.findall(r"^\| (\w+ [\w.–]+) \|", NAMED["paper.md"].read_text(), re.MULTILINE)
    found = []
    for row in rows:
        kind, number = row.split()
        first, _, last = number.partition("–")
        span = range(int(first), int(last) + 1) if last else [number]
        found += [f"{kind.removesuffix('s') if last else kind} {one}" for one in span]
    expected = [f"{kind} {k + 1}" for kind, count in NUMBERED.items() for k in range(count)]
    assert sorted(found) == sorted([*expected, *STATEMENTS, *PARTS])


def test_experiments_named_in_the_paper_page_exist():
    from experiments.catalogue import EXPERIMENTS

    text = NAMED["paper.md"].read_text()
    runs = re.findall(r"experiments run ([a-z-]+)`(?:, `([a-z-]+)`)?", text)
    named = {name for pair in runs for name in pair if name}
    assert len(named) > 8
    assert named <= set(EXPERIMENTS)
