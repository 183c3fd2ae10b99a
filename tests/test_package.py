"""The package: long description, lowest versions, and included files."""

import re
import runpy
import tomllib
from pathlib import Path

import bicore
from tests.helpers import fails
from tests.lowest import lowest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
description = runpy.run_path(str(ROOT / "setup.py"))["description"]


def test_readme_links_are_absolute():
    readme = (ROOT / "README.md").read_text()
    alone = description(readme, None)
    assert re.findall(r"\]\((?!https?://)", readme)
    assert not re.findall(r"\]\((?!https?://)", alone)
    assert "https://arxiv.org/abs/2006.03875" in alone
    assert "*Thirty of 1,797 images of digits, the most useful first*" in alone


def test_lowest_versions_are_those_of_the_bounds():
    found = lowest(PROJECT)
    assert "typer==0.16" in found  # an older one breaks the command
    assert {"torch==2.4", "pyarrow==15"} <= set(found)
    assert len(found) == len(set(found))
    unbound = {"dependencies": ["torch"], "optional-dependencies": PROJECT["optional-dependencies"]}
    fails(SystemExit, "torch", lowest, unbound)


def test_one_version_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == bicore.__version__
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = next(head for head in heads if head != "Unreleased")
    assert re.fullmatch(rf"\[?{re.escape(bicore.__version__)}\]? . \d{{4}}-\d\d-\d\d", released)


def test_test_data_is_in_the_source_distribution():
    kept = (ROOT / "MANIFEST.in").read_text()
    for folder in ("tests", "benchmarks", "experiments", "examples", "docs"):
        assert re.search(rf"^graft {folder}$", kept, re.MULTILINE)
    for name in ("Makefile", "CITATION.cff", "CHANGELOG.md"):
        assert name in kept
