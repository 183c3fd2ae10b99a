"""Configuration of the site: ``make docs`` writes it to build/docs. Pages are plain Markdown."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bicore"


def public_modules() -> list[str]:
    """Modules that say what is public, and the packages they are in."""
    found = {"bicore"}
    for path in SOURCE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        if "__all__" in (node.id for node in nodes if isinstance(node, ast.Name)):
            parts = ["bicore", *path.relative_to(SOURCE).with_suffix("").parts]
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return sorted(found)


def homes(modules: list[str]) -> dict[str, str]:
    """Where a name that several modules have is described: in the one nearest the top."""
    first: dict[int, str] = {}
    found = {}
    for module in sorted(modules, key=lambda name: (name.count("."), name)):
        try:
            loaded = import_module(module)
        except ImportError:  # an integration whose library is not installed
            continue
        for name in getattr(loaded, "__all__", ()):
            thing = getattr(loaded, name)
            home = first.setdefault(id(thing), f"{module}.{name}")
            if home != f"{module}.{name}" and callable(thing):
                found[f"{module}.{name}"] = home
    return found


def stated_version() -> str:
    """Of the package, without importing it."""
    stated = re.search(r'"(.+)"', (SOURCE / "_version.py").read_text().split("__version__")[1])
    assert stated is not None
    return stated[1]


project = "bicore"
author = "the bicore developers"
project_copyright = f"2026 {author}"
release = stated_version()

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
]
exclude_patterns = ["_templates"]
templates_path = ["_templates"]

myst_heading_anchors = 4

autosummary_context = {"public": public_modules(), "homes": homes(public_modules())}
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_typehints = "none"
#: Libraries that are not installed: their integrations are documented all the same.
HOSTS = ("imblearn", "avalanche", "datasets", "skactiveml", "distributed", "dask", "polars")
autodoc_mock_imports = [name for name in HOSTS if find_spec(name) is None]
numpydoc_show_class_members = False

#: The size of a coreset, as docstrings write it, is no name of a substitution.
rst_epilog = r".. |S| replace:: \|S\|"

html_theme = "furo"
html_title = f"bicore {release}"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def without_outside_links(app: object, name: str, source: list[str]) -> None:
    """Replace links to files outside docs/, which the site does not contain, by their text."""
    source[0] = re.sub(r"\[([^\]]*)\]\(\.\./[^)]+\)", r"\1", source[0])


def made_by_scikit_learn(
    app: object, kind: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Leave out the methods for metadata that scikit-learn writes into estimators."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Any) -> None:
    app.connect("source-read", without_outside_links)
    app.connect("autodoc-skip-member", made_by_scikit_learn)
