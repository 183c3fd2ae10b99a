"""Evaluation of selections: comparisons of methods, and their worth in random rows."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved
from bicore.evaluate.models import Judge, NetworkJudge, RidgeJudge
from bicore.evaluate.worth import Appraisal, Worth

__all__ = [
    "Appraisal",
    "Judge",
    "NetworkJudge",
    "RidgeJudge",
    "Worth",
]

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)
