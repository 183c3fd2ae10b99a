"""One family of exceptions.

A message names the argument, its value, the bound it breaks and the next step. Everything bicore
raises on purpose derives from :class:`BicoreError`, and also from the built-in exception a caller
would expect to catch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

__all__ = [
    "BicoreError",
    "ConvergenceError",
    "DamagedFileError",
    "InputError",
    "LargeDataWarning",
    "MemoryLimitError",
    "NumericalError",
    "NumericalWarning",
    "TimeLimitError",
    "WorkerLostError",
]


Option = TypeVar("Option", bound=StrEnum)


class LargeDataWarning(UserWarning):
    """An approximation stands in for what would take too long, or what was asked for takes long.

    Examples
    --------
    >>> import warnings
    >>> from bicore import LargeDataWarning
    >>> warnings.simplefilter("ignore", LargeDataWarning)  # its sentence is in provenance.notes too
    """


class NumericalWarning(UserWarning):
    """The reported objective could not be verified; the coreset's notes say why.

    Examples
    --------
    >>> import warnings
    >>> from bicore import NumericalWarning
    >>> warnings.simplefilter("error", NumericalWarning)  # raise instead
    """


class BicoreError(Exception):
    """Base of every error that bicore raises on purpose.

    Examples
    --------
    >>> from bicore import BicoreError, Dataset
    >>> try:
    ...     Dataset([[0.0], [1.0]], ["a"])
    ... except BicoreError as error:
    ...     print(error)
    y has 1 rows and x has 2; they must have the same length, row by row.
    """


class InputError(BicoreError, ValueError):
    """A request that cannot be right: the message says which argument to change, and how.

    Examples
    --------
    >>> from bicore import Runtime
    >>> Runtime(threads=0)
    Traceback (most recent call last):
    bicore.errors.InputError: threads=0 is below 1; give at least 1, or None ...
    """


class DamagedFileError(InputError):
    """A file that was whole when it was written and is not any more: truncated, or bits changed.

    Examples
    --------
    >>> from bicore.errors import DamagedFileError, InputError
    >>> issubclass(DamagedFileError, InputError)
    True
    """


class MemoryLimitError(BicoreError, MemoryError):
    """The smallest way to do the work needs more bytes than the memory limit allows.

    Examples
    --------
    >>> from bicore import MemoryLimitError
    >>> issubclass(MemoryLimitError, MemoryError)
    True
    """


class TimeLimitError(BicoreError, TimeoutError):
    """The time limit was over before there was anything to return.

    Examples
    --------
    >>> from bicore import TimeLimitError
    >>> issubclass(TimeLimitError, TimeoutError)
    True
    """


class WorkerLostError(BicoreError, RuntimeError):
    """Processes that work on parts of a source die again and again.

    Examples
    --------
    >>> raise WorkerLostError("4 processes in a row died; ask for fewer.")
    Traceback (most recent call last):
    bicore.errors.WorkerLostError: 4 processes in a row died; ask for fewer.
    """


class NumericalError(BicoreError, ArithmeticError):
    """Arithmetic gave nothing to build on: not finite, or not positive semi-definite.

    Examples
    --------
    >>> from bicore.kernels import CallableKernel
    >>> CallableKernel(lambda a, b: a @ b.T / 0)([[1.0], [2.0]])
    Traceback (most recent call last):
    bicore.errors.NumericalError: kernel=<lambda> returned a value that is not finite ...
    """


class ConvergenceError(NumericalError):
    """A solver stopped before it reached its tolerance.

    Examples
    --------
    >>> from bicore import ConvergenceError, NumericalError
    >>> issubclass(ConvergenceError, NumericalError)
    True
    """


def unknown_name(argument: str, value: object, options: Iterable[str]) -> InputError:
    """The error for a name that is not one of ``options``; it suggests the nearest one."""
    names = sorted(options)
    close = difflib.get_close_matches(str(value).lower(), names, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InputError(
        f"{argument}={value!r} is not known; it is one of {', '.join(map(repr, names))}.{hint}"
    )


def as_option(argument: str, value: Any, options: type[Option]) -> Option:
    """One of a few words as the enum that holds them; others are refused by name."""
    try:
        return options(value)
    except ValueError:
        raise unknown_name(argument, value, [option.value for option in options]) from None
