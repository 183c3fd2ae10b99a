"""Feature maps by name, chosen from the first rows without labels, and as JSON values and arrays.

In a state file a map is the values of its fields; maps and kernels within it are stored in the same
way, and random draws are repeated from the seed. Of a custom map a file holds the fields as far as
it can; the map is given again when the state is loaded, and supplies the rest. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bicore._deprecated import rename_fields
from bicore.arguments import step_rng
from bicore.data import Array, as_features
from bicore.errors import InputError, unknown_name
from bicore.kernels import architecture, base, classical, scaling, tangent
from bicore.moments.features import maps
from bicore.moments.features.base import FeatureMap, UnitRows, WithConstant

#: Maximum number of inspected rows, evenly spaced.
INSPECTED = 512
#: Minimum side of an image for filters, and for two layers of them.
IMAGE_SIDE = 8
DEEP_SIDE = 18
#: Minimum number of columns of an embedding or of pixels.
BROAD = 32
#: Minimum number of different values of an embedding, as a share of its entries and absolutely:
#: pixels have 256 per colour, and float16 repeats values too.
DIFFERENT_SHARE = 0.3
DIFFERENT = 1024
#: From this number on float32 has no fractions, and whole numbers mean nothing.
FRACTIONS = 2.0**24
#: Maximum share of entries equal to the one above in an embedding: dead units of a network, not the
#: background of images.
EQUAL_ABOVE = 0.5
#: Minimum correlation of adjacent columns of pixels and signals; an embedding's columns have no
#: order.
ADJACENT = 0.4
#: Maximum ratio of standard deviations among the middle 90% of the columns of an embedding, and the
#: minimum number of rows to measure it.
UNLIKE = 20.0
SPREAD_ROWS = 5
#: If fewer columns than this hold nearly all of the sum of squares, the rows are a table with
#: different units.
DOMINANT = 8.0
#: Number of standard deviations beyond which the values of a table are softened: the first rows say
#: little about tails.
FAR = 3.0


@dataclass(frozen=True, eq=False)
class AutomaticFeatures(FeatureMap):
    """A map chosen from the first rows.

    Memories and heads compare a few by their held-out loss if at least 200 first rows of several
    classes are known: for images random convolutions, two layers of them (from 18 x 18 pixels on)
    and whitened patches; for tables random features and the columns themselves. Otherwise rows
    alone decide:

    Images (with channels first) get random convolutions. Rows of at least 32 columns that look like
    an embedding stay as they are: their values hardly repeat, adjacent columns are hardly
    correlated, and the columns have similar spreads. Other rows get random ReLU features: as they
    are if many columns share one scale (pixels in a row), else with standardised columns that are
    softened beyond three deviations (a table). ``reason`` of the fitted map is "image",
    "embedding", "pixels" or "table".
    """

    random_state: int = 0

    _integers = ("random_state",)

    @property
    def width(self) -> int:
        raise self._not_fitted_error()  # fit returns another map

    def features(self, x: Tensor) -> Tensor:
        raise self._not_fitted_error()

    def fit(self, x: Array) -> FeatureMap:
        return self.candidates(x)[0].fit(as_features(x, "x"))

    def candidates(self, x: Array) -> list[FeatureMap]:
        """Return the maps that may suit some rows, the default first."""
        rows, seed = as_features(x, "x"), self.random_state
        relu = maps.RandomReLU(random_state=seed)
        kinds = (maps.RandomConvolutions, maps.WhitenedPatches)
        filters = [kind(random_state=seed) for kind in kinds]
        if min(rows.shape[-2:]) >= DEEP_SIDE:
            filters.insert(1, _deep_convolutions(random_state=seed))
        found: dict[str, Sequence[FeatureMap]] = {
            "image": filters,
            "embedding": (maps.Rows(),),
            "pixels": (relu,),
            "table": [maps.Standardised(one, beyond=FAR) for one in (relu, maps.Rows())],
        }
        reason = _kind_of_rows(rows)
        return [replace(one, reason=reason) for one in found[reason]]


def _kind_of_rows(rows: Array) -> str:
    """Classify rows as "image", "embedding", "pixels" or "table"."""
    if rows.ndim in (3, 4) and min(rows.shape[-2:]) >= IMAGE_SIDE:
        return "image"
    step = -(-len(rows) // INSPECTED)
    some = rows[::step].reshape(len(rows[::step]), -1).astype(np.float64)
    if some.shape[1] < BROAD:
        return "table"
    scaled: Array = some / (np.abs(some).max() or 1.0)  # whose squares do not overflow
    if _is_continuous(some) and _is_unordered(scaled) and _has_similar_spreads(scaled):
        return "embedding"
    shares = np.square(scaled).mean(0)
    total = float(shares.sum())
    dominated = total > 0 and total**2 / float(np.square(shares).sum()) < DOMINANT
    return "table" if dominated else "pixels"


def _is_continuous(rows: Array) -> bool:
    """Whether values are fractions that hardly repeat, over all rows and in columns."""
    if np.abs(rows).max() < FRACTIONS and np.array_equal(rows, np.round(rows)):
        return False
    different = len(np.unique(rows))
    above = float((rows[1:] == rows[:-1]).mean()) if len(rows) > 1 else 0.0
    return different >= min(DIFFERENT, DIFFERENT_SHARE * rows.size) and above < EQUAL_ABOVE


def _is_unordered(rows: Array) -> bool:
    """Whether adjacent columns are hardly correlated."""
    spread = rows.std(0)
    varying = spread > 0
    if varying.sum() < 2:
        return True
    scores = (rows[:, varying] - rows[:, varying].mean(0)) / spread[varying]
    return float((scores[:, 1:] * scores[:, :-1]).mean()) < ADJACENT


def _has_similar_spreads(rows: Array) -> bool:
    """Whether the columns that vary have similar spreads."""
    spread = rows.std(0)
    if len(rows) < SPREAD_ROWS or not spread.any():
        return True
    low, high = np.quantile(spread[spread > 0], (0.05, 0.95))
    return bool(high <= UNLIKE * low)


def _deep_convolutions(width: int = 1152, random_state: int = 0) -> maps.RandomConvolutions:
    """Two layers of filters; parts and shifts were chosen on held-out training rows of MNIST."""
    return maps.RandomConvolutions(width, pool=3, bias=0.3, random_state=random_state, depth=2)


#: A map by its name, made from a seed.
FEATURES: dict[str, Callable[..., FeatureMap]] = {
    "auto": AutomaticFeatures,
    "rows": lambda random_state: maps.Rows(),
    "relu": maps.RandomReLU,
    "convolutions": maps.RandomConvolutions,
    "deep-convolutions": _deep_convolutions,
    "patches": maps.WhitenedPatches,
    "pooled": maps.RandomPooled,
    "fourier": maps.RandomFourier,
    "laplace": partial(maps.RandomFourier, kind="laplace"),
    "nystrom": maps.Nystrom,
}
#: Maps whose width can be given behind the name.
WITH_WIDTH = tuple(
    name for name, make in FEATURES.items() if "width" in inspect.signature(make).parameters
)


def as_feature_map(value: Any, random_state: int = 0) -> FeatureMap:
    """Make a feature map from its name or from a module."""
    if isinstance(value, FeatureMap):
        return value
    if isinstance(value, nn.Module):
        return maps.Embedded(value)
    if not isinstance(value, str):
        names = ", ".join(map(repr, FEATURES))
        raise InputError(
            f"feature_map must be one of {names}, a FeatureMap instance or a torch.nn.Module; got "
            f"{value!r}."
        )
    name, colon, width = value.partition(":")
    if name not in FEATURES:
        raise unknown_name("feature_map", value, FEATURES)
    if colon and not (name in WITH_WIDTH and width.isdigit()):
        raise InputError(
            f"feature_map={value!r}: a width must be an integer, such as 'relu:512', and is "
            f"allowed for {', '.join(WITH_WIDTH)}."
        )
    return FEATURES[name](random_state=random_state, **({"width": int(width)} if colon else {}))


_MAPS: list[type] = [
    one for one in vars(maps).values() if inspect.isclass(one) and issubclass(one, FeatureMap)
]
_KERNELS: list[type] = [
    one
    for module in (architecture, base, classical, scaling, tangent)
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
    if made is maps.Embedded:
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
