"""Selection methods side by side: the same pools, one judge, tests on data no method saw."""

from bicore.comparison.answer import Price, Worth
from bicore.comparison.appraisal import Appraisal
from bicore.comparison.equivalence import Curve, Equivalent, Verdict, search, worth_of_rows
from bicore.comparison.grid import MAJORITY, WHOLE, Comparison, Grid, Stage
from bicore.comparison.judges import (
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
from bicore.comparison.pools import Pools, make_pools
from bicore.comparison.records import Records, Row, digest
from bicore.comparison.statistics import (
    Entry,
    Summary,
    paired_difference,
    scored,
    smallest_detectable,
    summarise,
)

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
    "Pools",
    "Price",
    "Records",
    "RidgeJudge",
    "Row",
    "Sample",
    "Stage",
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
    "scored",
    "search",
    "smallest_detectable",
    "summarise",
    "worth_of_rows",
]
