"""Evaluation of selections: comparisons of methods, and their worth in random rows."""

from bicore.evaluate.comparison import Comparison, Grid
from bicore.evaluate.equivalence import Equivalent, Worth
from bicore.evaluate.findings import findings_of
from bicore.evaluate.model import Judge
from bicore.evaluate.models import JUDGES, LogisticJudge, NearestJudge, RidgeJudge, as_judge
from bicore.evaluate.networks import NetworkJudge
from bicore.evaluate.pools import make_pools
from bicore.evaluate.records import Records, Row
from bicore.evaluate.samples import Sample
from bicore.evaluate.statistics import summarise
from bicore.evaluate.streams import StreamComparison
from bicore.evaluate.worth import Appraisal

__all__ = [
    "JUDGES",
    "Appraisal",
    "Comparison",
    "Equivalent",
    "Grid",
    "Judge",
    "LogisticJudge",
    "NearestJudge",
    "NetworkJudge",
    "Records",
    "RidgeJudge",
    "Row",
    "Sample",
    "StreamComparison",
    "Worth",
    "as_judge",
    "findings_of",
    "make_pools",
    "summarise",
]
