"""Judges of a selection: models trained on the chosen points, tested on data that no method saw."""

from bicore.evaluate.judges.architectures import convolutional, perceptron
from bicore.evaluate.judges.base import Judge
from bicore.evaluate.judges.boosting import BoostingJudge
from bicore.evaluate.judges.forest import ForestJudge
from bicore.evaluate.judges.logistic import LogisticJudge
from bicore.evaluate.judges.majority import MajorityJudge
from bicore.evaluate.judges.measures import Measures
from bicore.evaluate.judges.nearest import NearestJudge
from bicore.evaluate.judges.network import NetworkJudge
from bicore.evaluate.judges.registry import JUDGES, as_judge
from bicore.evaluate.judges.ridge import RidgeJudge
from bicore.evaluate.judges.sample import Sample, as_sample

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
