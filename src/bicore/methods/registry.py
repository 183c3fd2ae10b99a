"""Every selection method by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from bicore.bilevel.problem import PerPoint
from bicore.bilevel.solvers.weights import Adam
from bicore.errors import InputError, unknown_name
from bicore.methods.base import Selector
from bicore.methods.baselines.covering import FacilityLocation, KCenter, KMeansPlusPlus
from bicore.methods.baselines.design import ADesign, InducingPoints, VDesign
from bicore.methods.baselines.matching import GradientMatching, Herding
from bicore.methods.baselines.simple import (
    BatchBALD,
    ClassBalanced,
    Hardest,
    MaxEntropy,
    Stratified,
    Uniform,
)
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.variants import Clusters, Reconstruction

#: Defaults of all entry points: these choices are resolved by the data (docs/choosing.md).
OPEN = {
    "kernel": "auto",
    "rule": "auto",
    "strategy": "auto",
    "smooth_labels": "auto",
    "intercept": "auto",
    "exact": False,
}
#: The paper's experiments: the best of 200 random candidates, a random first point and a ρ = λ|S|.
PAPER = {
    "kernel": "ntk",
    "loss": "cross-entropy",
    "inner_reg": PerPoint(1e-3),
    "candidates": 200,
    "first": "random",
}
#: In the order of tables: bilevel, random, then by what they need.
METHODS: dict[str, tuple[Callable[..., Selector], dict[str, Any]]] = {
    "bilevel": (BilevelSelector, OPEN),
    "bilevel-cross-entropy": (BilevelSelector, OPEN | {"loss": "cross-entropy"}),
    "bilevel-weighted": (BilevelSelector, OPEN | {"weighting": "final"}),
    "bilevel-ntk": (BilevelSelector, {}),
    "paper": (BilevelSelector, PAPER),
    "paper-weighted": (BilevelSelector, PAPER | {"weighting": "learned", "optimiser": Adam()}),
    "uniform": (Uniform, {}),
    "class-balanced": (ClassBalanced, {}),
    "k-means-features": (KMeansPlusPlus, {"over": "features"}),
    "k-center-features": (KCenter, {"over": "features"}),
    "herding-features": (Herding, {"over": "features", "per_class": False}),
    "v-design": (VDesign, {}),
    "a-design": (ADesign, {}),
    "reconstruction": (Reconstruction, {}),
    "clusters": (Clusters, {}),
    "facility-location": (FacilityLocation, {"over": "features"}),
    "facility-location-per-class": (
        FacilityLocation,
        {"over": "features", "per_class": "proportional"},
    ),
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
    """Return the names of a method's parameters."""
    build: Any = METHODS[method][0]
    return [field.name for field in fields(build) if field.init]


def as_selector(method: Any, **options: Any) -> Selector:
    """Build a selector from its name.

    Parameters
    ----------
    method : str or Selector
        A name of ``METHODS``; a selector is returned unchanged.
    **options
        Parameters that replace the method's defaults.

    Returns
    -------
    Selector
        Ready to select.

    Raises
    ------
    InputError
        If the name or an option is unknown.

    Examples
    --------
    >>> as_selector("facility-location").name
    'facility location over features'
    """
    if isinstance(method, Selector):
        if options:
            raise InputError(f"method is a selector; leave {', '.join(options)} out.")
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise unknown_name("method", method, METHODS)
    build, defaults = METHODS[method]
    known = parameters_of(method)
    for name in options:
        if name not in known:
            if not known:
                raise InputError(f"method={method!r} has no options; leave {name} out.")
            raise unknown_name("the option", name, known)
    return build(**{**defaults, **options})
