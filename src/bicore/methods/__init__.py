"""Selectors: bilevel selection and baselines."""

from bicore.bilevel.strategies import Batches, Elimination, Exchange, Greedy, Simplex, Strategy
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
from bicore.methods.baselines.spaces import (
    Embedding,
    KernelSpace,
    LastLayerGradients,
    Predictions,
    RawFeatures,
    Space,
)
from bicore.methods.bilevel import BilevelSelector, trusted
from bicore.methods.network import NetworkSelector
from bicore.methods.quality_curve import QualityCurve, quality_curve
from bicore.methods.registry import METHODS, as_selector
from bicore.methods.variants import Clusters, JointSelector, Reconstruction

__all__ = [
    "METHODS",
    "ADesign",
    "BatchBALD",
    "Batches",
    "BilevelSelector",
    "ClassBalanced",
    "Clusters",
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
