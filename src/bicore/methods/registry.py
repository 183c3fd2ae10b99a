"""Every selection method by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from bicore._deprecated import renamed_keywords
from bicore.bilevel.problem import PerPoint
from bicore.bilevel.weights import Adam
from bicore.errors import InputError, check_name, unknown_option
from bicore.methods.base import Selector
from bicore.methods.baselines import simple
from bicore.methods.baselines.covering import FacilityLocation, KCenter, KMeansPlusPlus
from bicore.methods.baselines.design import ADesign, InducingPoints, VDesign
from bicore.methods.baselines.matching import GradientMatching, Herding
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.variants import Reconstruction

#: The paper's algorithm, with nothing chosen from the data.
GREEDY = {
    "kernel": "ntk",
    "rule": "gradient",
    "strategy": "greedy",
    "smooth_labels": False,
    "intercept": 0.0,
    "exact": True,
}
#: The paper's experiments: the best of 200 random candidates, a random first point and a ρ = λ|S|.
PAPER = GREEDY | {
    "loss": "cross-entropy",
    "inner_reg": PerPoint(1e-3),
    "candidates": 200,
    "first": "random",
}
#: In the order of tables: bilevel selection, random draws, methods on features, on a model.
METHODS: dict[str, tuple[Callable[..., Selector], dict[str, Any]]] = {
    "bilevel": (BilevelSelector, {}),
    "bilevel-cross-entropy": (BilevelSelector, {"loss": "cross-entropy"}),
    "bilevel-weighted": (BilevelSelector, {"weighting": "final"}),
    "bilevel-ntk": (BilevelSelector, GREEDY),
    "paper": (BilevelSelector, PAPER),
    "paper-weighted": (BilevelSelector, PAPER | {"weighting": "learned", "optimiser": Adam()}),
    "uniform": (simple.Uniform, {}),
    "class-balanced": (simple.ClassBalanced, {}),
    "k-means-features": (KMeansPlusPlus, {"over": "features"}),
    "k-center-features": (KCenter, {"over": "features"}),
    "herding-features": (Herding, {"over": "features", "per_class": False}),
    "v-design": (VDesign, {}),
    "a-design": (ADesign, {}),
    "reconstruction": (Reconstruction, {}),
    "k-medoids": (FacilityLocation, {"over": "directions", "exchange": True}),
    "facility-location": (FacilityLocation, {"over": "features"}),
    "facility-location-per-class": (
        FacilityLocation,
        {"over": "features", "per_class": "proportional"},
    ),
    "glister": (BilevelSelector, GREEDY | {"rule": "first-order"}),
    "reducible-loss": (BilevelSelector, GREEDY | {"rule": "reducible"}),
    "k-means-embedding": (KMeansPlusPlus, {"over": "embedding"}),
    "k-means-gradients": (KMeansPlusPlus, {"over": "gradients"}),
    "k-center-embedding": (KCenter, {"over": "embedding"}),
    "k-center-gradients": (KCenter, {"over": "gradients"}),
    "icarl": (Herding, {"over": "embedding"}),
    "gradient-matching": (GradientMatching, {}),
    "gradient-matching-pursuit": (GradientMatching, {"weighting": "pursuit"}),
    "gradient-matching-frank-wolfe": (GradientMatching, {"weighting": "frank-wolfe"}),
    "craig": (FacilityLocation, {"over": "gradients", "per_class": True, "cluster_weights": True}),
    "frcl": (InducingPoints, {}),
    "hardest": (simple.Hardest, {}),
    "max-entropy": (simple.MaxEntropy, {}),
    "ccs": (simple.Stratified, {}),
    "batchbald": (simple.BatchBALD, {}),
}


def parameters_of(method: str) -> list[str]:
    """Return the names of a method's parameters."""
    build: Any = METHODS[method][0]
    return [field.name for field in fields(build) if field.init]


@renamed_keywords()
def as_selector(method: str | Selector) -> Selector:
    """Build a selector from its name; ``set_params`` changes its parameters.

    Parameters
    ----------
    method : str or Selector
        A name of ``METHODS``; a selector is returned unchanged.

    Returns
    -------
    Selector
        Ready to select.

    Raises
    ------
    InputError
        If the name is unknown.

    Examples
    --------
    >>> as_selector("facility-location").name
    'facility location over features'
    >>> as_selector("paper").set_params(candidates=50).candidates
    50
    """
    return build_selector(method)


def greedy_selector(kernel: Any = "ntk", **options: Any) -> BilevelSelector:
    """Build a bilevel selector with the paper's algorithm, for tests and experiments."""
    return BilevelSelector(**{**GREEDY, "kernel": kernel, **options})


def build_selector(method: Any, **options: Any) -> Selector:
    """Build a selector from its name, with parameters that replace the method's defaults."""
    if isinstance(method, Selector):
        if options:
            raise InputError(f"method is a selector; leave {', '.join(options)} out.")
        return method
    build, defaults = METHODS[check_name("method", method, METHODS)]
    known = parameters_of(method)
    for name in options:
        if not known:
            raise InputError(f"method={method!r} has no options; leave {name} out.")
        if name not in known:
            raise unknown_option(f"method={method!r}", name, known)
    return build(**{**defaults, **options})
