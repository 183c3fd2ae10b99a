"""Every selection method by name, for the doors only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from bicore.errors import InputError, unknown_name
from bicore.selectors.base import Selector
from bicore.selectors.baselines.covering import FacilityLocation, KCenter, KMeansPlusPlus
from bicore.selectors.baselines.design import ADesign, InducingPoints, VDesign
from bicore.selectors.baselines.matching import GradientMatching, Herding
from bicore.selectors.baselines.simple import (
    BatchBALD,
    ClassBalanced,
    Hardest,
    MaxEntropy,
    Stratified,
    Uniform,
)
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.reconstruction import Reconstruction

#: What the doors leave to the data where nothing is said (docs/choosing.md).
OPEN = {
    "kernel": "auto",
    "rule": "auto",
    "strategy": "auto",
    "targets": "auto",
    "intercept": "auto",
    "exact": False,
}
#: The order in which tables show them: ours, chance, then by what they need.
METHODS: dict[str, tuple[Callable[..., Selector], dict[str, Any]]] = {
    "bilevel": (BilevelSelector, OPEN),
    "bilevel-cross-entropy": (BilevelSelector, OPEN | {"loss": "cross-entropy"}),
    "bilevel-weighted": (BilevelSelector, OPEN | {"weights": "final"}),
    "paper": (BilevelSelector, {}),
    "uniform": (Uniform, {}),
    "class-balanced": (ClassBalanced, {}),
    "k-means-features": (KMeansPlusPlus, {"over": "features"}),
    "k-center-features": (KCenter, {"over": "features"}),
    "herding-features": (Herding, {"over": "features", "per_class": False}),
    "v-design": (VDesign, {}),
    "a-design": (ADesign, {}),
    "reconstruction": (Reconstruction, {}),
    "facility-location": (FacilityLocation, {"over": "features"}),
    "glister": (BilevelSelector, {"rule": "first-order"}),
    "reducible-loss": (BilevelSelector, {"rule": "reducible"}),
    "k-means-embedding": (KMeansPlusPlus, {"over": "embedding"}),
    "k-means-gradients": (KMeansPlusPlus, {"over": "gradients"}),
    "k-center-embedding": (KCenter, {"over": "embedding"}),
    "k-center-gradients": (KCenter, {"over": "gradients"}),
    "icarl": (Herding, {"over": "embedding"}),
    "gradient-matching": (GradientMatching, {}),
    "gradient-matching-pursuit": (GradientMatching, {"weighting": "pursuit"}),
    "gradient-matching-frank-wolfe": (GradientMatching, {"weighting": "frank-wolfe"}),
    "craig": (FacilityLocation, {"over": "gradients", "per_class": True, "counted": True}),
    "frcl": (InducingPoints, {}),
    "hardest": (Hardest, {}),
    "max-entropy": (MaxEntropy, {}),
    "ccs": (Stratified, {}),
    "batchbald": (BatchBALD, {}),
}


def parameters_of(method: str) -> list[str]:
    """The parameters that a method takes, by its name."""
    build: Any = METHODS[method][0]
    return [field.name for field in fields(build) if field.init]


def as_selector(method: Any, **options: Any) -> Selector:
    """A selector by its name.

    Parameters
    ----------
    method : str or Selector
        A name of ``METHODS``; a selector is returned as it is.
    **options
        Parameters that go over the method's own.

    Returns
    -------
    Selector
        Ready to select.

    Raises
    ------
    InputError
        Where the name or an option is unknown; the message names the nearest.

    Examples
    --------
    >>> as_selector("facility-location").name
    'facility location over features'
    """
    if isinstance(method, Selector):
        if options:
            raise InputError(
                f"method is a selector and carries its own options; leave {', '.join(options)} out."
            )
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise unknown_name("method", method, METHODS)
    build, defaults = METHODS[method]
    known = parameters_of(method)
    for name in options:
        if name not in known:
            raise unknown_name(f"the option of method={method!r}", name, known)
    return build(**{**defaults, **options})
