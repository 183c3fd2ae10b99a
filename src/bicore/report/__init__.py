"""Figures and HTML pages of selections and comparisons."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved
from bicore.report.comparison import ComparisonResult
from bicore.report.figures import draw
from bicore.report.page_of_selection import page

__all__ = [
    "ComparisonResult",
    "draw",
    "page",
]

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)
