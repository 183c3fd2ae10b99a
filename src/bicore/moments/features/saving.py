"""Feature maps as JSON values and arrays, for state files without pickle.

A map is the values of its fields; maps and kernels within it are stored in the same way, and random
draws are repeated from the seed. Of a custom map a file holds the fields as far as it can; the map
is given again when the state is loaded, and supplies the rest.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from bicore._deprecated import rename_fields
from bicore.arguments import step_rng
from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels import activations, architecture, base, classical, scaling, tangent
from bicore.moments.features import maps
from bicore.moments.features.base import FeatureMap, UnitRows, WithConstant
from bicore.moments.features.maps import Embedded
from bicore.moments.features.registry import AutomaticFeatures

_MAPS: list[type] = [
    one for one in vars(maps).values() if inspect.isclass(one) and issubclass(one, FeatureMap)
]
_KERNELS: list[type] = [
    one
    for module in (activations, architecture, base, classical, scaling, tangent)
    for one in vars(module).values()
    if inspect.isclass(one) and dataclasses.is_dataclass(one) and one.__module__ == module.__name__
]
#: Classes that a state may hold, by name; names of kernels and maps differ.
_CLASSES: dict[str, type] = {
    **{one.__name__: one for one in (*_MAPS, AutomaticFeatures, UnitRows, WithConstant)},
    **{f"kernel {one.__name__}": one for one in _KERNELS},
}
_NAMES = {one: name for name, one in _CLASSES.items()}
#: The kind of a custom map, and of a field of it that JSON cannot hold.
_CUSTOM, _OMITTED = "own", {"kind": "left"}


def map_to_state(features: FeatureMap) -> tuple[dict[str, Any], dict[str, Array]]:
    """Encode a map as values for JSON and arrays."""
    arrays: dict[str, Array] = {}
    values = _encode(features, "features", arrays)
    return {"map": values, "identity": features.identity, "draws": _sample_draws()}, arrays


def map_from_state(
    values: Mapping[str, Any], arrays: Mapping[str, Array], given: FeatureMap | None = None
) -> FeatureMap:
    """Decode a map that :func:`map_to_state` encoded."""
    if values["draws"] != _sample_draws():
        raise InputError(
            "this version of NumPy draws different random numbers from a seed than the version "
            "that stored the features; use that version."
        )
    found: FeatureMap = _decode(values["map"], arrays, given)
    if found.identity != values["identity"]:
        raise InputError(
            f"the features stored as {values['identity']} are not those made here, "
            f"{found.identity}; give feature_map=… as it was, or use the version of bicore that "
            "stored them."
        )
    return found


def _sample_draws() -> list[float]:
    """Draw one number of each kind, to detect a NumPy with other random streams."""
    rng = step_rng(0, 0)
    return [float(rng.standard_normal()), float(rng.standard_cauchy()), float(rng.random())]


def _encode(value: Any, place: str, arrays: dict[str, Array]) -> Any:
    """Encode a value for JSON; arrays are stored under their place."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_encode(part, f"{place}.{k}", arrays) for k, part in enumerate(value)]
    if isinstance(value, np.ndarray):
        arrays[place] = value
        return {"kind": "array", "place": place}
    if isinstance(value, torch.Tensor):
        arrays[place] = value.detach().cpu().numpy()
        return {"kind": "tensor", "place": place}
    if isinstance(value, nn.Module):
        return {"kind": "module"}  # given again when loading
    return _encode_fields(value, place, arrays)


def _encode_fields(value: Any, place: str, arrays: dict[str, Array]) -> dict[str, Any]:
    kind = _NAMES.get(type(value))
    if kind is None and not isinstance(value, FeatureMap):
        raise InputError(
            f"{place} is a {type(value).__name__}, which a state file cannot hold; use maps and "
            "kernels of bicore, or give the map again when the state is loaded."
        )
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(value):
        if not one.init:
            continue
        try:
            fields[one.name] = _encode(getattr(value, one.name), f"{place}.{one.name}", arrays)
        except InputError:
            if kind is not None:
                raise
            fields[one.name] = _OMITTED
    if kind is None:
        return {"kind": _CUSTOM, "name": type(value).__name__, "fields": fields}
    return {"kind": kind, "fields": fields}


def _decode(value: Any, arrays: Mapping[str, Array], given: FeatureMap | None) -> Any:
    """Invert :func:`_encode`."""
    if isinstance(value, list):
        return tuple(_decode(part, arrays, given) for part in value)
    if not isinstance(value, dict):
        return value
    kind = value["kind"]
    if kind in ("array", "tensor"):
        found = arrays[value["place"]]
        return found if kind == "array" else torch.from_numpy(np.array(found))
    if kind == "module":
        return _find_given(None, given).network()
    custom = _find_given(value["name"], given) if kind == _CUSTOM else None
    made = _CLASSES.get(kind) if custom is None else type(custom)
    if made is None:
        raise InputError(
            f"the state holds a map of kind {kind!r}, which this version does not know; use the "
            "one that wrote it."
        )
    known = [one.name for one in dataclasses.fields(made)]
    fields = {
        name: getattr(custom, name) if part == _OMITTED else _decode(part, arrays, given)
        for name, part in rename_fields(value["fields"], known).items()
    }
    if made is Embedded:
        fields["digest"] = None  # computed from the weights of the given network
    return made(**fields)


def _find_given(name: str | None, given: FeatureMap | None) -> FeatureMap:
    """Find the custom map of that class in the given map; None for the whole map."""
    found = given
    while found is not None and name not in (None, type(found).__name__):
        found = getattr(found, "map", None)
    if found is None:
        raise InputError(
            f"the features hold a {name or 'network'}, which is not part of a state file; give "
            "feature_map=… as it was."
        )
    return found
