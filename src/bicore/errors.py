"""The exceptions of bicore.

A message names the argument, its value, the bound it breaks and the next step. Everything bicore
raises on purpose derives from :class:`BicoreError`, and also from the built-in exception a caller
would expect to catch.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from enum import StrEnum
from numbers import Integral, Real
from typing import Any, TypeVar

Option = TypeVar("Option", bound=StrEnum)


class LargeDataWarning(UserWarning):
    """An approximation replaces an exact method, or the request takes long.

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
    y has 1 rows and x has 2; give one value per row of x.
    """


class InputError(BicoreError, ValueError):
    """An invalid request: the message names the argument and the fix.

    Examples
    --------
    >>> from bicore import Runtime
    >>> Runtime(threads=0)
    Traceback (most recent call last):
    bicore.errors.InputError: threads must be an integer >= 1; got 0.
    """


class DamagedFileError(InputError):
    """A damaged file: truncated, or with changed bits.

    Examples
    --------
    >>> from bicore.errors import DamagedFileError, InputError
    >>> issubclass(DamagedFileError, InputError)
    True
    """


class MemoryLimitError(BicoreError, MemoryError):
    """The request needs more memory than the limit, in every way of computing it.

    Examples
    --------
    >>> from bicore import MemoryLimitError
    >>> issubclass(MemoryLimitError, MemoryError)
    True
    """


class TimeLimitError(BicoreError, TimeoutError):
    """The time limit ended before there was a result.

    Examples
    --------
    >>> from bicore import TimeLimitError
    >>> issubclass(TimeLimitError, TimeoutError)
    True
    """


class WorkerLostError(BicoreError, RuntimeError):
    """The workers of a selection in passes were lost.

    Examples
    --------
    >>> raise WorkerLostError("the Dask scheduler was lost; start it again.")
    Traceback (most recent call last):
    bicore.errors.WorkerLostError: the Dask scheduler was lost; start it again.
    """


class NumericalError(BicoreError, ArithmeticError):
    """A computation failed: not finite, or not positive semi-definite.

    Examples
    --------
    >>> from bicore.kernels.base import CallableKernel
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


#: Limits that belong to a Runtime.
RUNTIME_FIELDS = ("device", "dtype", "memory", "threads", "progress", "max_seconds")
#: What an argument of some name must have, and in words; others are checked where they are used.
_ARGUMENTS = {
    "classes": ("__iter__", "a list of labels"),
    "everything": ("__bool__", "True or False"),
    "exact": ("__bool__", "True or False"),
    "initial": ("__len__", "a Coreset or row numbers"),
    "inner": ("solve", "a solver such as bicore.bilevel.Newton()"),
    "linear": ("solve_range", "a solver such as bicore.bilevel.ConjugateGradient()"),
    "optimiser": ("optimise", "an optimiser such as bicore.bilevel.Adam()"),
    "runtime": ("max_seconds", "a bicore.Runtime"),
    "sizes": ("__iter__", "a list of sizes"),
}


def unknown_name(argument: str, value: object, options: Iterable[str]) -> InputError:
    """Return the error for a name that is not one of ``options``, with the nearest one."""
    names = sorted(options)
    close = difflib.get_close_matches(str(value).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InputError(
        f"{argument}={value!r} is not known; it is one of {', '.join(map(repr, names))}.{hint}"
    )


def check_name(argument: str, value: object, options: Iterable[str]) -> str:
    """Return a name; refuse one that is not among ``options``."""
    if not isinstance(value, str) or value not in options:
        raise unknown_name(argument, value, options)
    return value


def check_arguments(call: str, given: dict[str, Any], known: Iterable[str], values: bool) -> None:
    """Refuse keywords that a function does not have, and values that are not of their kind."""
    for name, value in given.items():
        if name not in known:
            raise unknown_keyword(call, name, known)
        needed, words = _ARGUMENTS.get(name, ("__class__", ""))
        if values and value is not None and not hasattr(value, needed):
            raise InputError(f"{name} must be {words}; got {value!r}.")


def unknown_keyword(function: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a keyword that a function does not have."""
    if name in RUNTIME_FIELDS:
        return InputError(f"{function}() has no argument {name!r}; use runtime=Runtime({name}=…).")
    return InputError(f"{function}() has no argument {name!r}. {_hint(name, known, 'arguments')}")


def unknown_option(owner: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for an option that a method or a buffer does not have."""
    return InputError(f"{owner} has no option {name!r}. {_hint(name, known, 'options')}")


def _hint(name: str, known: Iterable[str], kind: str) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Its {kind}: {', '.join(sorted(known))}."


def as_option(argument: str, value: Any, options: type[Option]) -> Option:
    """Convert a word to a member of an enum; refuse others by name."""
    try:
        return options(value)
    except ValueError:
        raise unknown_name(argument, value, [option.value for option in options]) from None


def check_number(
    argument: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    fix: str = "",
) -> float:
    """Return a finite number within the bounds; otherwise raise an error that names them."""
    _check_bounds(argument, value, Real, "a number", (least, above, most, below), fix)
    return float(value)


def check_integer(
    argument: str, value: Any, least: int = 1, most: int | None = None, fix: str = ""
) -> int:
    """Return an integer within the bounds; otherwise raise an error that names them."""
    _check_bounds(argument, value, Integral, "an integer", (least, None, most, None), fix)
    return int(value)


def check_type(argument: str, value: Any, kinds: type | tuple[type, ...], words: str) -> None:
    """Raise an error unless ``value`` is an instance of ``kinds``, which ``words`` describe."""
    if not isinstance(value, kinds):
        raise InputError(f"{argument} must be {words}; got {type(value).__name__}.")


#: How a value is compared with its bounds, and the sign in words.
_COMPARED = ((operator.ge, ">="), (operator.gt, ">"), (operator.le, "<="), (operator.lt, "<"))


def _check_bounds(
    argument: str, value: Any, kind: Any, words: str, bounds: tuple[float | None, ...], fix: str
) -> None:
    """Raise an error unless a value is a finite number of a kind within its bounds."""
    given = [
        (*one, bound) for one, bound in zip(_COMPARED, bounds, strict=True) if bound is not None
    ]
    number = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    if number and all(holds(value, bound) for holds, _, bound in given):
        return
    least, _, most, _ = bounds
    if least is not None and most is not None:
        words += f" between {least} and {most}"
    elif given:
        words += " " + " and ".join(f"{sign} {bound}" for _, sign, bound in given)
    more = f", {fix}" if fix else ""
    raise InputError(f"{argument} must be {words}{more}; got {value!r}.")
