"""Feature maps as values and arrays, without pickle: what a state file takes, and back.

A map is the values of its fields; maps and kernels within it are taken apart in the same way. What
is drawn from a seed is drawn again. Of a map of one's own a file holds the fields as far as it can:
the map is given anew, and what is left of it comes from there.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import nn

from bicore import kernels
from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels.base import Product, Scaled, Sum
from bicore.kernels.scaling import Columns
from bicore.moments.features.automatic import AutomaticFeatures
from bicore.moments.features.base import FeatureMap, UnitRows, WithConstant
from bicore.moments.features.convolutions import RandomConvolutions
from bicore.moments.features.fourier import RandomFourier
from bicore.moments.features.module import Embedded
from bicore.moments.features.nystrom import Nystrom
from bicore.moments.features.pooled import RandomPooled
from bicore.moments.features.relu import RandomReLU
from bicore.moments.features.rows import Rows
from bicore.moments.features.scaled import Standardised
from bicore.picking import step_rng

_MAPS: tuple[type, ...] = (
    AutomaticFeatures,
    Embedded,
    Nystrom,
    RandomConvolutions,
    RandomFourier,
    RandomPooled,
    RandomReLU,
    Rows,
    Standardised,
    UnitRows,
    WithConstant,
)
_KERNELS: list[type] = [
    one for one in map(kernels.__dict__.get, kernels.__all__) if inspect.isclass(one)
]
#: What a state may hold, by name; a kernel's name is told apart from a map's.
_KINDS: dict[str, type] = {
    **{one.__name__: one for one in _MAPS},
    **{f"kernel {one.__name__}": one for one in (*_KERNELS, Sum, Product, Scaled, Columns)},
}
_NAMES = {one: name for name, one in _KINDS.items()}


def stored(features: FeatureMap) -> tuple[dict[str, Any], dict[str, Array]]:
    """A map as values for JSON and as arrays.

    Parameters
    ----------
    features : FeatureMap
        Settled or not.

    Returns
    -------
    values : dict
        Its kind and fields, its identity, and what random numbers look like here.
    arrays : dict of array
        Landmarks and measured columns; a map that is drawn has none.

    Raises
    ------
    InputError
        Where a part is a function or a class of one's own, which no state file holds.

    Examples
    --------
    >>> from bicore.moments.features import RandomReLU, restored, stored
    >>> values, arrays = stored(RandomReLU(width=64, seed=7))
    >>> restored(values, arrays).seed, arrays
    (7, {})
    """
    arrays: dict[str, Array] = {}
    values = _taken_apart(features, "features", arrays)
    return {"map": values, "identity": features.identity, "draws": _draws()}, arrays


def restored(
    values: Mapping[str, Any],
    arrays: Mapping[str, Array],
    module: nn.Module | None = None,
    given: FeatureMap | None = None,
) -> FeatureMap:
    """The map that :func:`stored` took apart.

    Parameters
    ----------
    values : mapping
        As it gave them.
    arrays : mapping of array
        As it gave them.
    module : torch.nn.Module, optional
        The network of an :class:`Embedded` map, whose weights are not stored.
    given : FeatureMap, optional
        The map that the user gave anew, where it is of a class of their own.

    Returns
    -------
    FeatureMap
        With the same features, bit for bit.

    Raises
    ------
    InputError
        Where the module is missing or another one, or the map is of another version.

    Examples
    --------
    >>> from bicore.moments.features import Rows, restored, stored
    >>> restored(*stored(Rows(constant=True))) == Rows(constant=True)
    True
    """
    if values["draws"] != _draws():
        raise InputError(
            "this NumPy draws other random numbers from a seed than the one that the features were "
            "stored under; use that version."
        )
    found: FeatureMap = _put_together(values["map"], arrays, Given(module, given))
    if found.identity != values["identity"]:
        raise InputError(
            f"the features stored as {values['identity']} cannot be made by this version of "
            "bicore; use the one that stored them."
        )
    return found


def _draws() -> list[float]:
    """First draws of each kind: a NumPy that draws others would make other features."""
    rng = step_rng(0, 0)
    return [float(rng.standard_normal()), float(rng.standard_cauchy()), float(rng.random())]


@singledispatch
def _taken_apart(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    """A value as JSON; arrays go by their place."""
    if type(value) not in _NAMES:
        raise InputError(
            f"{place} is a {type(value).__name__}, which no state file holds; use maps and kernels "
            "of bicore, or give the map anew when the state is loaded."
        )
    fields = {
        one.name: _taken_apart(getattr(value, one.name), f"{place}.{one.name}", arrays)
        for one in dataclasses.fields(value)
    }
    return {"kind": _NAMES[type(value)], "fields": fields}


@_taken_apart.register(FeatureMap)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    """A map of bicore, or of a class of one's own, which is given anew."""
    if type(value) in _NAMES:
        return _taken_apart.dispatch(object)(value, place, arrays)
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(value):
        if not one.init:
            continue
        try:
            fields[one.name] = _taken_apart(getattr(value, one.name), f"{place}.{one.name}", arrays)
        except InputError:  # a function, say
            fields[one.name] = {"kind": "left"}
    return {"kind": "own", "name": type(value).__name__, "fields": fields}


@_taken_apart.register(type(None))
@_taken_apart.register(bool)
@_taken_apart.register(int)
@_taken_apart.register(float)
@_taken_apart.register(str)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    return value


@_taken_apart.register(np.generic)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    return value.item()


@_taken_apart.register(list)
@_taken_apart.register(tuple)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    return [_taken_apart(part, f"{place}.{k}", arrays) for k, part in enumerate(value)]


@_taken_apart.register(np.ndarray)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    arrays[place] = value
    return {"kind": "array", "place": place}


@_taken_apart.register(torch.Tensor)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    arrays[place] = value.detach().cpu().numpy()
    return {"kind": "tensor", "place": place}


@_taken_apart.register(nn.Module)
def _(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    return {"kind": "module"}  # which is given anew


@dataclasses.dataclass(frozen=True)
class Given:
    """What no state file holds, and is given anew."""

    module: nn.Module | None
    map: FeatureMap | None

    def named(self, name: str) -> FeatureMap | None:
        """The map of that class, or the one within it."""
        found: Any = self.map
        while found is not None and type(found).__name__ != name:
            found = getattr(found, "map", None)
        return found  # type: ignore[no-any-return]


@singledispatch
def _put_together(value: Any, arrays: Mapping[str, Array], given: Given) -> Any:
    """The value that :func:`_taken_apart` saw."""
    return value


@_put_together.register(list)
def _(value: list[Any], arrays: Mapping[str, Array], given: Given) -> Any:
    return tuple(_put_together(part, arrays, given) for part in value)


@_put_together.register(dict)
def _(value: dict[str, Any], arrays: Mapping[str, Array], given: Given) -> Any:
    match value["kind"]:
        case "module":
            return given.module
        case "own":
            return _own_put_together(value, arrays, given)
        case "array":
            return arrays[value["place"]]
        case "tensor":
            return torch.from_numpy(np.array(arrays[value["place"]]))
    kind = _KINDS.get(value["kind"])
    if kind is None:
        raise InputError(
            f"the state holds a map of kind {value['kind']!r}, which this version does not know; "
            "use the one that wrote it."
        )
    fields = {name: _put_together(part, arrays, given) for name, part in value["fields"].items()}
    return _embedded(**fields) if kind is Embedded else kind(**fields)


def _own_put_together(value: dict[str, Any], arrays: Mapping[str, Array], given: Given) -> Any:
    """The user's own map, settled as it was then; its class, and what was left, is as given."""
    own = given.named(value["name"])
    if own is None:
        raise InputError(
            f"the features are a {value['name']}, a map of your own, which no state file holds; "
            "give features=… as it was."
        )
    fields = {
        name: getattr(own, name) if part == {"kind": "left"} else _put_together(part, arrays, given)
        for name, part in value["fields"].items()
    }
    return type(own)(**fields)


def _embedded(module: nn.Module | None, digest: str, **fields: Any) -> Embedded:
    """The map of a module that is given anew; its weights must be those of then."""
    if module is None:
        raise InputError(
            f"the features are the embedding of a module (fingerprint {digest}), whose weights are "
            "not stored; give features=… (or module=…) as it was."
        )
    found = Embedded(module, **fields)
    if found.digest != digest:
        raise InputError(
            f"module has fingerprint {found.digest}, and the features were those of {digest}; give "
            "the module with the weights it had then."
        )
    return found
