"""The exceptions of bicore.

A message names the argument, its value, the bound it breaks and the next step. Everything bicore
raises on purpose derives from :class:`BicoreError`, and also from the built-in exception a caller
would expect to catch.
"""

from __future__ import annotations

import difflib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from importlib import import_module
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


class StorageError(BicoreError, OSError):
    """A file could not be written, for example because the disk is full.

    Examples
    --------
    >>> from bicore.errors import StorageError
    >>> issubclass(StorageError, OSError)
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


def _has(name: str) -> Callable[[Any], bool]:
    return lambda value: hasattr(value, name)


def _is_flag(value: Any) -> bool:
    return isinstance(value, Integral) or type(value).__name__ in ("bool", "bool_")


def _is_object(value: Any) -> bool:
    """Return whether a value is no class, and no function that cannot take two values."""
    return not isinstance(value, type) and (not callable(value) or _takes(2)(value))


def _is_no_array(value: Any) -> bool:
    return not (hasattr(value, "__array__") and hasattr(value, "ndim") and value.ndim > 0)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _takes(count: int) -> Callable[[Any], bool]:
    """Return a test for functions that can be called with a number of values."""

    def fits(value: Any) -> bool:
        try:
            inspect.signature(value).bind(*range(count))
        except TypeError:
            return False
        except ValueError:  # some functions written in C have no signature
            pass
        return True

    return fits


#: The kind of an argument of some name, in words; others are checked where they are used.
_ARGUMENTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "callback": (_takes(2), "a function of the comparison and a line of text"),
    "classes": (_is_list, "a list of labels"),
    "coreset": (_is_list, "a Coreset or row numbers"),
    "exact": (_is_flag, "True or False"),
    "indices": (_is_list, "a Coreset or row numbers"),
    "initial": (_has("__len__"), "a Coreset or row numbers"),
    "inner": (_has("solve"), "a solver such as bicore.bilevel.Newton()"),
    "inner_reg": (_is_no_array, "a number, 'auto' or 'relative:0.01'"),
    "intercept": (_is_no_array, "a number or 'auto'"),
    "judge": (_is_no_array, "a name, a Judge or a list of these"),
    "kernel": (
        _is_object,
        "a name, a kernel such as bicore.kernels.RBF() or a function of two values",
    ),
    "linear": (_has("solve_range"), "a solver such as bicore.bilevel.ConjugateGradient()"),
    "loss": (
        _is_object,
        "a name, a loss such as bicore.losses.Logistic() or a function of two values",
    ),
    "methods": (_has("__iter__"), "a list of names, or selectors by name"),
    "optimiser": (_has("optimise"), "an optimiser such as bicore.bilevel.Adam()"),
    "pseudo_labels": (
        lambda value: _is_list(value) or _takes(1)(value),
        "one label per row of x_pool, or a function that predicts them from x_pool",
    ),
    "records": (_is_path, "a file or folder name"),
    "reference": (_is_no_array, "the name of a method, or a selector"),
    "runtime": (_has("max_seconds"), "a bicore.Runtime"),
    "selector": (_is_no_array, "a selector"),
    "size": (
        _is_no_array,
        "a number of rows, a fraction or 'auto' (to give labels to a selector: Dataset(x, y))",
    ),
    "sizes": (_has("__iter__"), "a list of sizes"),
    "smooth_labels": (_is_no_array, "True, False or 'auto'"),
    "strategy": (_is_no_array, "the name of a strategy, or a strategy"),
}
_ARGUMENTS |= {"full_pool": _ARGUMENTS["exact"], "outer_loss": _ARGUMENTS["loss"]}
#: The kind of an argument of some annotation, in words; it may be None if that is in it.
_ANNOTATIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (_is_flag, "True or False"),
    "Dataset": (_has("sample_weight"), "a Dataset, as in bicore.Dataset(x, y)"),
    "ShardSource": (_has("describe_shards"), "a source of bicore.sources.open_shards"),
    "Path": (_is_path, "a file or folder name"),
    "PathLike": (_is_path, "a file or folder name"),
    "str | os.PathLike[str]": (_is_path, "a file or folder name"),
}
#: Arguments without a meaning of None.
_NEEDED = ("indices", "initial")
#: Words that other libraries use for names of bicore.
MEANT = {"gpu": "cuda", "random": "uniform"}
#: Most characters of a value in an error.
MOST_SHOWN = 80


def unknown_name(argument: str, value: object, options: Iterable[str]) -> InputError:
    """Return the error for a name that is not one of ``options``, with the nearest one."""
    names = sorted(options)
    word = str(value).lower()
    hint = did_you_mean(MEANT[word] if MEANT.get(word) in names else word, names, 0.55)
    fix = f"use one of {', '.join(map(repr, names))}.{hint}"
    if isinstance(value, type):
        fix = f"give an object, such as {value.__name__}(), or a name."
    return InputError(f"{argument}={shown(value)} is not known; {fix}")


def did_you_mean(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Suggest the nearest of some names, in a sentence after a space; empty if none is near."""
    close = difflib.get_close_matches(word, sorted(names), n=1, cutoff=cutoff)
    return f" Did you mean {close[0]!r}?" if close else ""


def import_extra(module: str, needs: str, install: str) -> Any:
    """Import an optional library, or raise an error with the package to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{needs}: pip install {install}.") from error


def check_name(argument: str, value: object, options: Iterable[str]) -> str:
    """Return a name; refuse one that is not among ``options``."""
    if not isinstance(value, str) or value not in options:
        raise unknown_name(argument, value, options)
    return value


def check_keywords(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keywords that a function does not have."""
    for name in given:
        if name not in known:
            raise unknown_keyword(call, name, known)


def check_kinds(given: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Refuse values of arguments that are not of the kind of these names or annotations."""
    for name, value in given.items():
        annotation = annotations.get(name, "")
        needed = annotation in _ANNOTATIONS or name in _NEEDED
        kind = _ARGUMENTS.get(name) or _ANNOTATIONS.get(annotation.removesuffix(" | None"))
        if kind is not None and (value is not None or needed) and not kind[0](value):
            raise InputError(f"{name} must be {kind[1]}; got {shown(value)}.")


def check_settings(owner: Any, counts: str = "", positive: str = "", others: str = "") -> None:
    """Check attributes by name: integers >= 1, numbers > 0 and numbers >= 0; None is allowed."""
    checks: dict[str, Any] = dict.fromkeys(counts.split(), check_integer)
    checks |= {name: partial(check_number, above=0) for name in positive.split()}
    checks |= {name: partial(check_number, least=0) for name in others.split()}
    for name, check in checks.items():
        if getattr(owner, name) is not None:
            check(name, getattr(owner, name))


def shown(value: Any) -> str:
    """Return a value as an error shows it: in one short line."""
    words = repr(value)
    return words if len(words) <= MOST_SHOWN and "\n" not in words else f"a {type(value).__name__}"


def unknown_keyword(function: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a keyword that a function does not have."""
    if name in RUNTIME_FIELDS:
        return InputError(f"{function}() has no argument {name!r}; use runtime=Runtime({name}=…).")
    return InputError(f"{function}() has no argument {name!r}.{_hint(name, known, 'arguments')}")


def unknown_option(owner: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for an option that a method or a buffer does not have."""
    return InputError(f"{owner} has no option {name!r}.{_hint(name, known, 'options')}")


def _hint(name: str, known: Iterable[str], kind: str) -> str:
    return did_you_mean(name, known) or f" Its {kind}: {', '.join(sorted(known)) or 'none'}."


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
        raise InputError(f"{argument} must be {words}; got {shown(value)}.")


#: How a value is compared with its bounds, and the sign in words.
_COMPARED = ((operator.ge, ">="), (operator.gt, ">"), (operator.le, "<="), (operator.lt, "<"))


def _check_bounds(
    argument: str, value: Any, kind: Any, words: str, bounds: tuple[float | None, ...], fix: str
) -> None:
    """Raise an error unless a value is a finite number of a kind within its bounds."""
    pairs = zip(_COMPARED, bounds, strict=True)
    given = [(*one, bound) for one, bound in pairs if bound is not None]
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
