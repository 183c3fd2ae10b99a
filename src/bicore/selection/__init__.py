"""Selectors: everything that chooses points."""

from bicore.selection.base import Selector
from bicore.selection.batchbald import BatchBALD
from bicore.selection.bilevel import BilevelSelector
from bicore.selection.cover import KCenter, KMeansPlusPlus
from bicore.selection.curve import QualityCurve, quality_curve
from bicore.selection.design import ADesign, VDesign
from bicore.selection.direct import NetworkSelector
from bicore.selection.facility import FacilityLocation
from bicore.selection.inducing import InducingPoints
from bicore.selection.joint import JointSelector
from bicore.selection.matching import GradientMatching, Herding
from bicore.selection.methods import METHODS, as_selector
from bicore.selection.pointwise import ClassBalanced, Hardest, MaxEntropy, Stratified, Uniform
from bicore.selection.reconstruction import Reconstruction
from bicore.selection.space import Embedding, KernelSpace, LastLayerGradients, Predictions, RawFeatures, Space
from bicore.selection.strategies import Batches, Elimination, Exchange, Simplex, Strategy
from bicore.selection.trust import trusted

__all__ = [
    "METHODS", "ADesign", "BatchBALD", "Batches", "BilevelSelector", "ClassBalanced", "Elimination", "Embedding", "Exchange",
    "FacilityLocation", "GradientMatching", "Hardest", "Herding", "InducingPoints", "JointSelector", "KCenter", "KMeansPlusPlus",
    "KernelSpace", "LastLayerGradients", "MaxEntropy", "NetworkSelector", "Predictions", "QualityCurve", "RawFeatures",
    "Reconstruction", "Selector", "Simplex", "Space", "Strategy", "Stratified", "Uniform", "VDesign", "as_selector",
    "quality_curve", "trusted",
]  # fmt: skip
