"""Figures and HTML pages of selections and comparisons."""

from bicore.report.comparison import ComparisonResult, compare
from bicore.report.figures import draw, draw_curves, draw_worth, new_figure
from bicore.report.page_of_comparison import comparison_page
from bicore.report.page_of_selection import page

__all__ = [
    "ComparisonResult",
    "compare",
    "comparison_page",
    "draw",
    "draw_curves",
    "draw_worth",
    "new_figure",
    "page",
]
