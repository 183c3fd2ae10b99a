"""Pictures of what was chosen, and of how well it served."""

from bicore.report.curves import draw_curves
from bicore.report.pictures import draw, new_figure
from bicore.report.rows import draw_rows
from bicore.report.worth import draw_worth

__all__ = ["draw", "draw_curves", "draw_rows", "draw_worth", "new_figure"]
