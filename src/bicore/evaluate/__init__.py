"""Evaluation of selections: comparisons of methods, and their worth in random rows."""

from bicore._deprecated import keep_old_names
from bicore.evaluate.models import Judge, NetworkJudge, RidgeJudge
from bicore.evaluate.worth import Appraisal, Worth

__all__ = ["Appraisal", "Judge", "NetworkJudge", "RidgeJudge", "Worth"]

keep_old_names(__name__)
