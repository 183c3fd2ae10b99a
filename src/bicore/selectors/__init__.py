"""Selectors: bilevel selection and baselines."""

from bicore.bilevel.strategies import Batches, Elimination, Exchange, Greedy, Simplex, Strategy
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
from bicore.selectors.baselines.spaces import (
    Embedding,
    KernelSpace,
    LastLayerGradients,
    Predictions,
    RawFeatures,
    Space,
)
from bicore.selectors.bilevel import BilevelSelector, trusted
from bicore.selectors.network import NetworkSelector
from bicore.selectors.quality_curve import QualityCurve, quality_curve
from bicore.selectors.registry import METHODS, as_selector
from bicore.selectors.variants import JointSelector, Reconstruction

__all__ = [
    "METHODS",
    "ADesign",
    "BatchBALD",
    "Batches",
    "BilevelSelector",
    "ClassBalanced",
    "Elimination",
    "Embedding",
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
    "KernelSpace",
    "LastLayerGradients",
    "MaxEntropy",
    "NetworkSelector",
    "Predictions",
    "QualityCurve",
    "RawFeatures",
    "Reconstruction",
    "Selector",
    "Simplex",
    "Space",
    "Strategy",
    "Stratified",
    "Uniform",
    "VDesign",
    "as_selector",
    "quality_curve",
    "trusted",
]
