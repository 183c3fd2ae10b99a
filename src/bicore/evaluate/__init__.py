"""Evaluation of selections: comparisons of methods, and their worth in random rows."""

from bicore.evaluate.comparison import Comparison, Grid, Stream, StreamComparison
from bicore.evaluate.findings import findings_of
from bicore.evaluate.models import (
    JUDGES,
    Judge,
    LogisticJudge,
    NearestJudge,
    NetworkJudge,
    RidgeJudge,
    as_judge,
)
from bicore.evaluate.pools import make_pools
from bicore.evaluate.records import Records, Row, summarise
from bicore.evaluate.samples import Sample
from bicore.evaluate.worth import Appraisal, Equivalent, Worth

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
    "Stream",
    "StreamComparison",
    "Worth",
    "as_judge",
    "findings_of",
    "make_pools",
    "summarise",
]
