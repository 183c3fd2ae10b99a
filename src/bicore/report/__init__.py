"""Figures and HTML pages of selections and comparisons."""

from bicore._deprecated import keep_old_names
from bicore.report.comparison import ComparisonResult
from bicore.report.figures import draw
from bicore.report.page_of_selection import page

__all__ = ["ComparisonResult", "draw", "page"]

keep_old_names(__name__)
