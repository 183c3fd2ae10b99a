"""Integrations with other libraries, one file each; none is imported by default."""

from functools import wraps
from typing import Any

from bicore._deprecated import renamed_keywords, warn
from bicore.errors import InputError
from bicore.methods.registry import build_selector

#: Helpers of the integrations, none of which is public.
__all__: list[str] = []

#: Parameters of samplers in version 0.2 that are now those of their selector.
_OPTIONS = (
    *("kernel", "loss", "outer_loss", "inner_reg", "weights", "rule", "candidates"),
    *("strategy", "first", "task", "classes", "targets", "prior"),
)


def missing_base(words: str) -> type:
    """Return a base class for a missing library; creating an instance raises ``words``."""

    class Missing:
        def __init__(self, **_: Any) -> None:
            raise InputError(words)

    return Missing


def accept_old_options(sampler: Any) -> Any:
    """Accept the keywords of a sampler of version 0.2: ``method`` and options of the method."""

    @wraps(sampler.__init__)
    def call(self: Any, *args: Any, **given: Any) -> None:
        if "method" in given:
            warn("method=", "selector=")
            given["selector"] = given.pop("method")
        old = {name: given.pop(name) for name in _OPTIONS if name in given}
        if old:
            words = ", ".join(f"{name}=" for name in old)
            warn(f"{words} of {type(self).__name__}", "selector=BilevelSelector(...)")
            given["selector"] = build_selector(given.get("selector", "bilevel"), **old)
        known(self, *args, **given)

    known = renamed_keywords()(sampler.__init__)
    sampler.__init__ = call
    return sampler
