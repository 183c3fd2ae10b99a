"""One family of exceptions.

A message names the argument, its value, the bound it breaks and the next step. Everything bicore
raises on purpose derives from :class:`BicoreError`, and also from the built-in exception a caller
would expect to catch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BicoreError(Exception):
    """Base of every error that bicore raises on purpose."""


class InputError(BicoreError, ValueError):
    """A request that cannot be right: the message says which argument to change, and how."""


class DamagedFileError(InputError):
    """A file that was whole when it was written and is not any more: truncated, or with bits that
    changed."""


class MemoryLimitError(BicoreError, MemoryError):
    """The smallest way to do the work needs more bytes than the memory limit allows."""


class NumericalError(BicoreError, ArithmeticError):
    """Arithmetic produced something no answer can be built on (not finite, not positive
    semi-definite)."""


class ConvergenceError(NumericalError):
    """A solver stopped before it reached its tolerance."""


def unknown_name(argument: str, value: object, options: Iterable[str]) -> InputError:
    """The error for a name that is not one of ``options``; it suggests the nearest one."""
    names = sorted(options)
    close = difflib.get_close_matches(str(value).lower(), names, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InputError(
        f"{argument}={value!r} is not known; it is one of {', '.join(map(repr, names))}.{hint}"
    )
