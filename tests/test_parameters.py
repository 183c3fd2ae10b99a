"""The page of parameters: generated, complete, and one meaning for each word."""

import inspect
import re
import runpy
from collections import defaultdict

import pytest

from bicore.errors import InputError
from tests.parameters import PAGE, callables, page, parameters

#: Words of version 0.2 that had another meaning elsewhere, or another word for it.
OLD = {"weight", "targets", "features", "seed", "rng", "large", "dask", "context"}
#: One meaning in several forms: rows as arrays, names of columns or parts; a path; a network; a
#: memory by its name, or itself.
FORMS = {"buffer", "data", "dataset", "device", "indices", "model", "module", "outer", "path"}
FORMS |= {"columns", "sample_weight", "selector", "source", "training", "x", "y"}


#: Types of several alternatives, in ``bicore.types``.
ALIASES = {"RandomState": "int | np.random.Generator", "Path": "str | os.PathLike"}
ALIASES["Prior"] = "str | Mapping"  # of memories
#: A client of Dask, whose type a program without Dask does not have.
UNTYPED = ("shards.DaskExecutor",)


def kinds(annotation: str) -> set[str]:
    """The alternatives of a type, without their arguments."""
    while re.search(r"\[[^\[\]]*\]", annotation):
        annotation = re.sub(r"\[[^\[\]]*\]", "", annotation)
    parts = [ALIASES.get(one.strip(), one.strip()) for one in annotation.split("|")]
    return {one.strip() for one in "|".join(parts).split("|")} - {"None", "Any"}


def test_the_page_is_that_of_the_signatures():
    assert PAGE.read_text() == page(), "run python -m tests.parameters"


def test_every_public_callable_is_in_the_reference():
    """The reference has a page for each module with public names, and one row of parameters."""
    conf = runpy.run_path(str(PAGE.parent / "conf.py"))
    rows = PAGE.read_text()
    for place, thing in callables().items():
        assert place.rpartition(".")[0] in conf["autosummary_context"]["public"]
        assert not parameters(thing) or f"`{place.removeprefix('bicore.')}`" in rows


def test_public_callables_have_typed_keywords():
    for place, thing in callables().items():
        for name, one in parameters(thing).items():
            assert one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL), f"{place}: {name}"
            assert one.annotation is not one.empty, f"{place}: {name}"
            assert name not in OLD, f"{place}: {name}"


def own_methods(thing: object) -> dict[str, object]:
    """The public methods that a class itself defines."""
    if not isinstance(thing, type):
        return {}
    methods = {name: getattr(thing, name) for name in vars(thing) if not name.startswith("_")}
    return {name: one for name, one in methods.items() if callable(one)}


def test_no_parameter_takes_anything():
    """A protocol or a union of ``bicore.types`` says what a parameter takes."""
    found = []
    for place, thing in callables().items():
        for method, one in {"": thing, **own_methods(thing)}.items():
            kept = [own for own in parameters(one).values() if own.kind is not own.VAR_KEYWORD]
            names = [own.name for own in kept if str(own.annotation) in ("Any", "Any | None")]
            found += [f"{place}.{method}: {name}" for name in names]
    assert not [one for one in found if not one.removeprefix("bicore.").startswith(UNTYPED)]


def test_a_word_has_one_meaning():
    """Types of one meaning overlap; a word with a second meaning gets another name."""
    groups = defaultdict(list)
    for thing in callables().values():
        for name, one in parameters(thing).items():
            found = kinds(str(one.annotation))
            if found and name not in FORMS:
                near = [group for group in groups[name] if group & found]
                groups[name] = [group for group in groups[name] if group not in near]
                groups[name].append(found.union(*near))
    assert not {name: found for name, found in groups.items() if len(found) > 1}


def test_an_unknown_keyword_is_refused_with_the_nearest_one():
    for place, thing in callables().items():
        names = parameters(thing)
        if names and not inspect.isabstract(thing):
            longest = max(names, key=len)
            with pytest.raises(InputError) as caught:
                thing(**{longest + "x": 1})
            assert longest in str(caught.value), place
