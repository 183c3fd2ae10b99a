"""Names of feature maps, and what else stands for one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any

from torch import nn

from bicore.errors import InputError, unknown_name
from bicore.moments.features.automatic import AutomaticFeatures
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.convolutions import RandomConvolutions
from bicore.moments.features.fourier import RandomFourier
from bicore.moments.features.module import Embedded
from bicore.moments.features.nystrom import Nystrom
from bicore.moments.features.pooled import RandomPooled
from bicore.moments.features.relu import RandomReLU
from bicore.moments.features.rows import Rows


def _rows(seed: int = 0) -> Rows:
    """The rows themselves: nothing is drawn."""
    return Rows()


#: A map by its name, made from a seed.
FEATURES: dict[str, Callable[..., FeatureMap]] = {
    "auto": AutomaticFeatures,
    "rows": _rows,
    "relu": RandomReLU,
    "convolutions": RandomConvolutions,
    "pooled": RandomPooled,
    "fourier": RandomFourier,
    "laplace": partial(RandomFourier, kind="laplace"),
    "nystrom": Nystrom,
}
#: Those that draw as many features as they are asked for.
DRAWN = ("relu", "convolutions", "pooled", "fourier", "laplace")


def as_feature_map(value: Any, seed: int = 0) -> FeatureMap:
    """A feature map from its name, a network's module, or itself.

    Parameters
    ----------
    value : str, FeatureMap or torch.nn.Module
        A name of ``FEATURES``, also with a width behind it ("relu:512"); a map; or a module whose
        embedding is meant.
    seed : int
        Of what a map made here draws.

    Returns
    -------
    FeatureMap
        Not settled yet, where it was made here.

    Raises
    ------
    InputError
        Where it is none of these.

    Examples
    --------
    >>> from bicore.moments.features import as_feature_map
    >>> as_feature_map("relu", seed=3).seed, as_feature_map("relu:512").width
    (3, 512)
    """
    return _made(value, seed)


@singledispatch
def _made(value: Any, seed: int) -> FeatureMap:
    raise InputError(
        f"features={value!r} is a {type(value).__name__}; give one of "
        f"{', '.join(map(repr, FEATURES))}, a FeatureMap, or a torch.nn.Module."
    )


@_made.register
def _(value: FeatureMap, seed: int) -> FeatureMap:
    return value


@_made.register
def _(value: nn.Module, seed: int) -> FeatureMap:
    return Embedded(value)


@_made.register
def _(value: str, seed: int) -> FeatureMap:
    name, colon, width = value.partition(":")
    if name not in FEATURES:
        raise unknown_name("features", value, FEATURES)
    if not colon:
        return FEATURES[name](seed=seed)
    if name not in DRAWN or not width.isdigit():
        raise InputError(
            f"features={value!r}: a name may have a width behind it where features are drawn, such "
            f"as 'relu:512'; that is {', '.join(DRAWN)}."
        )
    return FEATURES[name](width=int(width), seed=seed)


@_made.register
def _(value: type, seed: int) -> FeatureMap:
    raise InputError(
        f"features={value.__name__} is a class; give one of its instances, {value.__name__}(…)."
    )
