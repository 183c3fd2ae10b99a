"""Writes docs/parameters.md from the signatures: ``python -m tests.parameters``."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections import Counter, defaultdict
from pathlib import Path

from numpydoc.docscrape import NumpyDocString

from tests.architecture.test_docstrings import packages

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"
HEAD = """# Parameters

Every parameter of the public functions and classes, with its meaning and where it applies. If functions and classes describe a
parameter differently, the most frequent description is shown; the [API](api.md) has the others. Generated from signatures and
docstrings by `python -m tests.parameters`.

| parameter | meaning | of |
|---|---|---|
"""
#: The callables whose words the page prefers.
FIRST = ("bicore.select", "bicore.methods.BilevelSelector", "bicore.BilevelSelector")


def callables() -> dict[str, object]:
    """Public functions and classes by the first dotted name."""
    found: dict[int, tuple[str, object]] = {}
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            skipped = isinstance(thing, type) and issubclass(thing, (Exception, enum.Enum))
            if callable(thing) and not skipped:
                found.setdefault(id(thing), (f"{package}.{name}", thing))
    return dict(found.values())


def parameters(thing: object) -> dict[str, inspect.Parameter]:
    """The parameters of a callable; a leading underscore is for loading."""
    found = inspect.signature(thing).parameters  # type: ignore[arg-type]
    return {name: one for name, one in found.items() if not name.startswith("_")}


def meanings(thing: object) -> dict[str, str]:
    """The first sentence on each parameter of a docstring."""
    text = NumpyDocString(inspect.getdoc(thing) or "")
    found = {}
    for names, _, lines in text["Parameters"]:
        sentence = re.split(r"(?<=\.)\s(?![^(]*\))", " ".join(lines).strip())[0].rstrip(".")
        if "; or " not in sentence:  # which joins the last of several choices
            sentence = re.split(r";\s(?![^(]*\))", sentence)[0]
        plain = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", sentence)
        for name in names.split(","):
            found[name.strip().lstrip("*")] = plain.replace("|", "\\|")
    return found


def most_frequent(words: Counter[str]) -> str:
    """The description that most callables have; the first one of equally frequent ones."""
    return words.most_common(1)[0][0] if words else ""


def page() -> str:
    """The text of the page."""
    public = callables()
    of = defaultdict(list)
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for place in sorted(public, key=lambda name: (name not in FIRST, name.count("."), name)):
        words = meanings(public[place])
        for name in parameters(public[place]):
            of[name].append(place.removeprefix("bicore."))
            known = words.get(name, "")
            if known and not re.search(r"\b[Aa]s in `", known):
                # the first callables decide
                said[name][known] += 100 if place in FIRST else 1
    rows = [
        f"| `{name}` | {most_frequent(said[name])} | {', '.join(f'`{one}`' for one in sorted(of[name]))} |"
        for name in sorted(of, key=str.lower)
    ]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
