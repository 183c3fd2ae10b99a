"""Every selector of the package, found by walking it, with the configurations under which it is
tested."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from bicore import BilevelSelector
from bicore.bilevel import PerPoint
from bicore.kernels import RBF, Laplace, Nystrom
from bicore.methods import (
    ADesign,
    BatchBALD,
    Batches,
    ClassBalanced,
    FacilityLocation,
    GradientMatching,
    Hardest,
    Herding,
    InducingPoints,
    JointSelector,
    KCenter,
    KMeansPlusPlus,
    MaxEntropy,
    NetworkSelector,
    Reconstruction,
    Selector,
    Simplex,
    Stratified,
    Uniform,
    VDesign,
)
from bicore.methods.registry import greedy_selector
from bicore.networks import ConjugateGradients, QuasiNewton

SPACES = ("features", "embedding", "gradients")
squared = partial(greedy_selector, kernel=RBF(0.2), inner_reg=0.1)
softmax = partial(greedy_selector, kernel=RBF(0.2), loss="cross-entropy", inner_reg=0.05)
fast_network = partial(NetworkSelector, inner_reg=0.1, curvature="gauss-newton")
#: Configurations of each selector class. A class without one fails the battery. Bandwidths are
#: fixed: the median heuristic looks at the features of every row, also of one whose weight is zero.
CONFIGURATIONS: dict[type[Selector], dict[str, Selector]] = {
    BilevelSelector: {
        "squared": squared(),
        "squared gain": squared(rule="gain"),
        "squared, features": greedy_selector(kernel="linear", inner_reg=0.1),
        "squared, automatic": greedy_selector(kernel="ntk"),
        "squared, automatic kernel": greedy_selector(kernel="auto"),
        "squared, per point": greedy_selector(kernel=Laplace(0.2), inner_reg=PerPoint(1e-2)),
        "squared, learnt": squared(weighting="learned"),
        "squared, exchange": squared(strategy="exchange"),
        "squared, elimination": greedy_selector(
            kernel="linear", inner_reg=0.1, strategy="elimination"
        ),
        "squared, simplex": squared(strategy=Simplex(steps=2)),
        "squared, batches": squared(strategy=Batches(4)),
        "cross-entropy": softmax(),
        "cross-entropy, final": softmax(weighting="final"),
        "cross-entropy, candidates": softmax(candidates=10, first="random"),
        "squared, drawn": squared(candidates=5, first="random", quotas="balanced"),
        "squared, landmarks": greedy_selector(kernel=Nystrom(RBF(0.2), 8), inner_reg=0.1),
        "glister": squared(rule="first-order"),
        "glister, cross-entropy": softmax(rule="first-order"),
        "reducible": squared(rule="reducible"),
        "reducible, cross-entropy": softmax(rule="reducible"),
    },
    JointSelector: {
        "joint": JointSelector(
            [
                squared(),
                greedy_selector(kernel="linear", loss="cross-entropy", inner_reg=0.05),
            ]
        )
    },
    Reconstruction: {
        "reconstruction": Reconstruction(RBF(0.2), 0.1),
        "reconstruction, candidates": Reconstruction(RBF(0.2), 0.1, candidates=5),
    },
    Uniform: {"uniform": Uniform()},
    VDesign: {
        "v-design": VDesign(noise=0.1),
        "v-design, kernel": VDesign(RBF(0.2), 0.1),
        "v-design, certified": VDesign(noise=0.1, certify=True),
    },
    NetworkSelector: {
        "network": fast_network(
            first="best", training=QuasiNewton(4), inverse=ConjugateGradients(2)
        ),
        "network, candidates": fast_network(
            candidates=3, training=QuasiNewton(2), inverse=ConjugateGradients(1)
        ),
    },
    ADesign: {"a-design": ADesign(noise=0.1), "a-design, kernel": ADesign(RBF(0.2), 0.1)},
    ClassBalanced: {"class-balanced": ClassBalanced()},
    Hardest: {"hardest": Hardest()},
    MaxEntropy: {"max-entropy": MaxEntropy()},
    Stratified: {"ccs": Stratified(), "ccs, nothing left out": Stratified(prune=0.0, strata=3)},
    KMeansPlusPlus: {f"k-means++ {space}": KMeansPlusPlus(space) for space in SPACES},
    KCenter: {
        **{f"k-center {space}": KCenter(space) for space in SPACES},
        "k-center kernel": KCenter(RBF(0.2)),
        "k-center per class": KCenter(per_class="balanced"),
    },
    FacilityLocation: {
        "facility location": FacilityLocation(),
        "craig": FacilityLocation("gradients", per_class=True, cluster_weights=True),
        "facility location, predictions": FacilityLocation("predictions"),
        "facility location per class": FacilityLocation(per_class="proportional"),
        "k-medoids": FacilityLocation("directions", exchange=True),
        "k-medoids, counted": FacilityLocation(cluster_weights=True, exchange=True),
    },
    InducingPoints: {"frcl": InducingPoints(proposals=50)},
    Herding: {
        "icarl": Herding(),
        "herding features": Herding("features", per_class=False),
        "herding kernel": Herding(RBF(0.2), per_class=False),
    },
    GradientMatching: {
        "gradient matching": GradientMatching(),
        "gradient matching, normalised": GradientMatching(normalise=True),
        "gradient matching, pursuit": GradientMatching(weighting="pursuit"),
        "gradient matching, frank-wolfe": GradientMatching(weighting="frank-wolfe"),
    },
    BatchBALD: {"batchbald": BatchBALD(draws=6, configurations=100)},
}
#: Configurations that draw what they look at, step by step: of two equal rows either may come
#: first.
DRAWS = {"squared, drawn"}
DRAWS |= {f"{name}, candidates" for name in ("cross-entropy", "reconstruction", "network")}
#: Configurations whose kernel is fitted to every row, also of weight zero.
FITTED = {"squared, landmarks", "squared, automatic kernel"}
#: Configurations that draw what they take: of two equal rows either may come first, and rounding
#: may change a draw.
CHANCE = {"uniform", "class-balanced", "ccs", "ccs, nothing left out", "frcl", "batchbald"}
CHANCE |= {"k-center kernel", "k-center per class"}
CHANCE |= {f"{name} {space}" for name in ("k-means++", "k-center") for space in SPACES}
#: Configurations in which a point may leave again, so that prefixes need not be nested and fewer
#: points may come back.
CORRECTED = {f"gradient matching, {name}" for name in ("pursuit", "frank-wolfe")}
CORRECTED |= {"squared, learnt", "cross-entropy, final"}
#: Configurations whose weights are not 1.
WEIGHTED = {*CORRECTED, "craig", "k-medoids, counted"}


def network() -> nn.Module:
    """A network for four features and three classes, with dropout, left in train mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)).double()


CASES = {name: case for group in CONFIGURATIONS.values() for name, case in group.items()}
