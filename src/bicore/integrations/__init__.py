"""Integrations with other libraries, one file each; none is imported by default."""

from typing import Any

from bicore.errors import InputError


def missing_base(words: str) -> type:
    """Base class to use if a library is not installed; making an instance raises ``words``."""

    class Missing:
        def __init__(self, **_: Any) -> None:
            raise InputError(words)

    return Missing
