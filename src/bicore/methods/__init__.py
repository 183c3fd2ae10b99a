"""Selectors: bilevel selection and baselines."""

from bicore._deprecated import keep_old_names
from bicore.bilevel.strategies.base import Batches, Greedy
from bicore.bilevel.strategies.refining import Elimination, Exchange, Simplex
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
from bicore.methods.bilevel import BilevelSelector, exclude_suspect_labels
from bicore.methods.network import NetworkSelector
from bicore.methods.quality_curve import quality_curve
from bicore.methods.registry import METHODS, as_selector
from bicore.methods.variants import JointSelector, Reconstruction

__all__ = [
    "METHODS",
    "ADesign",
    "BatchBALD",
    "Batches",
    "BilevelSelector",
    "ClassBalanced",
    "Elimination",
    "Exchange",
    "FacilityLocation",
    "GradientMatching",
    "Greedy",
    "Hardest",
    "Herding",
    "InducingPoints",
    "JointSelector",
    "KCenter",
    "KMeansPlusPlus",
    "MaxEntropy",
    "NetworkSelector",
    "Reconstruction",
    "Selector",
    "Simplex",
    "Stratified",
    "Uniform",
    "VDesign",
    "as_selector",
    "exclude_suspect_labels",
    "quality_curve",
]

keep_old_names(__name__)
