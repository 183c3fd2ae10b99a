"""Selection methods side by side: the same pools, one judge, tests on data no method saw."""

from bicore.evaluate.answer import Price, Worth
from bicore.evaluate.appraisal import Appraisal
from bicore.evaluate.equivalence import Curve, Equivalent, Verdict, search, worth_of_rows
from bicore.evaluate.grid import MAJORITY, WHOLE, Comparison, Grid, Stage
from bicore.evaluate.judges import (
    JUDGES,
    BoostingJudge,
    ForestJudge,
    Judge,
    LogisticJudge,
    MajorityJudge,
    Measures,
    NearestJudge,
    NetworkJudge,
    RidgeJudge,
    Sample,
    as_judge,
    as_sample,
    convolutional,
    perceptron,
)
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Row, digest
from bicore.evaluate.statistics import (
    Entry,
    Summary,
    paired_difference,
    scored,
    smallest_detectable,
    summarise,
)
from bicore.evaluate.streams import Order, StreamComparison, positions_of

__all__ = [
    "JUDGES",
    "MAJORITY",
    "WHOLE",
    "Appraisal",
    "BoostingJudge",
    "Comparison",
    "Curve",
    "Entry",
    "Equivalent",
    "ForestJudge",
    "Grid",
    "Judge",
    "LogisticJudge",
    "MajorityJudge",
    "Measures",
    "NearestJudge",
    "NetworkJudge",
    "Order",
    "Pools",
    "Price",
    "Records",
    "RidgeJudge",
    "Row",
    "Sample",
    "Stage",
    "StreamComparison",
    "Summary",
    "Verdict",
    "Worth",
    "as_judge",
    "as_sample",
    "convolutional",
    "digest",
    "make_pools",
    "paired_difference",
    "perceptron",
    "positions_of",
    "scored",
    "search",
    "smallest_detectable",
    "summarise",
    "worth_of_rows",
]
