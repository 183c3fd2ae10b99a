"""Pictures of what was chosen, and of how well it served; and a page of both."""

from bicore.report.curves import draw_curves
from bicore.report.pages.comparison import comparison_page
from bicore.report.pages.selection import page
from bicore.report.pictures import draw, new_figure
from bicore.report.rows import draw_rows
from bicore.report.worth import draw_worth

__all__ = [
    "comparison_page",
    "draw",
    "draw_curves",
    "draw_rows",
    "draw_worth",
    "new_figure",
    "page",
]
