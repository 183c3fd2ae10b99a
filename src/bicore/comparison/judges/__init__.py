"""Judges of a selection: models trained on the chosen points, tested on data that no method saw."""

from bicore.comparison.judges.architectures import convolutional, perceptron
from bicore.comparison.judges.base import Judge
from bicore.comparison.judges.boosting import BoostingJudge
from bicore.comparison.judges.forest import ForestJudge
from bicore.comparison.judges.logistic import LogisticJudge
from bicore.comparison.judges.majority import MajorityJudge
from bicore.comparison.judges.measures import Measures
from bicore.comparison.judges.nearest import NearestJudge
from bicore.comparison.judges.network import NetworkJudge
from bicore.comparison.judges.registry import JUDGES, as_judge
from bicore.comparison.judges.ridge import RidgeJudge
from bicore.comparison.judges.sample import Sample, as_sample

__all__ = [
    "JUDGES",
    "BoostingJudge",
    "ForestJudge",
    "Judge",
    "LogisticJudge",
    "MajorityJudge",
    "Measures",
    "NearestJudge",
    "NetworkJudge",
    "RidgeJudge",
    "Sample",
    "as_judge",
    "as_sample",
    "convolutional",
    "perceptron",
]
