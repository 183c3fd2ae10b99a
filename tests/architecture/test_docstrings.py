"""Every public name has a numpydoc docstring with an example."""

import enum
import importlib
import inspect
import pkgutil
from functools import cache
from pydoc import locate

import bicore

#: Ignored errors of numpydoc's validation: text on the line of the quotes, summaries that are nouns,
#: and missing extended summaries and "See Also" sections.
LEFT_OUT = {"GL01", "GL02", "ES01", "SA01", "SA04", "SS05", "RT02", "YD01", "GL09", "PR07"}
#: Only the names of ``__all__`` themselves must have an example; a method may lean on its class's.
EXAMPLE = "EX01"


def packages() -> list[str]:
    """Packages that say what is public."""
    found = ["bicore"]
    inside = pkgutil.walk_packages(bicore.__path__, "bicore.")
    found += [one.name for one in inside if hasattr(importlib.import_module(one.name), "__all__")]
    return found


def find_documentation(owner: type, member: str) -> type:
    """The class whose words hold for a member: documentation lives on the abstract one."""
    for base in owner.__mro__:
        if base.__module__.startswith("bicore") and getattr(
            vars(base).get(member), "__doc__", None
        ):
            return base
    return owner


@cache
def public() -> dict[str, bool]:
    """Dotted names that numpydoc can import, and whether each must have an example of its own."""
    names: dict[str, bool] = {}
    seen: set[int] = set()
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            ours = getattr(thing, "__module__", "").startswith("bicore")
            if id(thing) in seen or not ours or not (inspect.isclass(thing) or callable(thing)):
                continue
            seen.add(id(thing))
            names[f"{thing.__module__}.{thing.__qualname__}"] = True
            if inspect.isclass(thing):
                for member, value in vars(thing).items():
                    kind = isinstance(value, (property, classmethod, staticmethod))
                    if not member.startswith("_") and (kind or inspect.isfunction(value)):
                        home = find_documentation(thing, member)
                        names.setdefault(f"{home.__module__}.{home.__qualname__}.{member}", False)
    return names


def docstring_errors(name: str) -> list[str]:
    """What numpydoc finds wrong with the docstring of a public name."""
    from numpydoc.validate import Validator, validate

    Validator.source_file_def_line = None  # parses the file for every name
    ignored = LEFT_OUT if public()[name] else LEFT_OUT | {EXAMPLE}
    if isinstance(locate(name), enum.EnumType):  # whose constructor is not theirs
        ignored = ignored | {"PR01"}
    found = validate(name)["errors"]
    return [f"{name}: {code} {words}" for code, words in found if code not in ignored]


def test_every_public_name_has_a_numpydoc_docstring():
    errors = [error for name in public() for error in docstring_errors(name)]
    assert not errors, "\n".join(errors)


def test_an_undocumented_name_is_seen(monkeypatch):
    monkeypatch.setattr(bicore.Coreset.prefix, "__doc__", "The first points")
    assert any("PR01" in error for error in docstring_errors("bicore.coreset.Coreset.prefix"))
