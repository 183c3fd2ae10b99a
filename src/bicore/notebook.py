"""HTML of a coreset in a notebook: facts, a curve and the first rows.

The drawing is inline SVG in the colour of the text, for light and dark pages; text from data is
escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

#: Width, height and margins of the drawing in pixels; numbers are at the left and below.
WIDTH, HEIGHT, BORDER, LEFT, BELOW = 360, 130, 8, 62, 30
#: Maximum number of points of a curve.
DRAWN = 200


def in_notebook() -> bool:
    """Whether the code runs in a notebook cell."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class ProgressBar:
    """A bar below the cell of a notebook, redrawn in place."""

    def __init__(self) -> None:
        self._shown: Any = None

    def draw(self, share: float, words: str) -> None:
        """Show the finished share, and text next to the bar."""
        pages = import_module("IPython.display")
        page = pages.HTML(f'<progress max="1" value="{share:.3f}"></progress> {escape(words)}')
        if self._shown is None:
            self._shown = pages.display(page, display_id=True)
        else:
            self._shown.update(page)


def as_html(
    title: str,
    facts: Mapping[str, Any],
    curve: npt.NDArray[Any],
    columns: Mapping[str, Sequence[Any]],
    more: int,
) -> str:
    """Return HTML of a title, facts, the objective after each row, and columns of the first rows.

    ``more`` is the number of points that the columns leave out.
    """
    words = " · ".join(f"{escape(name)}: {escape(str(value))}" for name, value in facts.items())
    parts = [f"<strong>{escape(title)}</strong><div>{words}</div>"]
    if len(curve) > 1:
        parts.append(_drawing(curve))
    rows = ["".join(map(_cell, row)) for row in zip(*columns.values(), strict=True)]
    if rows:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
        rest = f"<caption>and {more} more</caption>" if more else ""
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(
            f'<table style="caption-side:bottom">{rest}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
    return f'<div class="bicore-coreset">{"".join(parts)}</div>'


def _drawing(curve: npt.NDArray[Any]) -> str:
    places = np.unique(np.linspace(0, len(curve) - 1, DRAWN).astype(int))
    low, high = float(curve.min()), float(curve.max())
    right, bottom = WIDTH - BORDER, HEIGHT - BELOW
    across = LEFT + places / (len(curve) - 1) * (right - LEFT)
    down = BORDER + (high - curve[places]) / ((high - low) or 1.0) * (bottom - BORDER)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    words = f"objective after 1 to {len(curve)} rows: {curve[0]:.4g} to {curve[-1]:.4g}"
    labels = [
        (LEFT - 5, BORDER + 6, "end", f"{high:.3g}"),
        (LEFT - 5, bottom, "end", f"{low:.3g}"),
        (LEFT, bottom + 14, "middle", "1"),
        (right, bottom + 14, "end", f"{len(curve)}"),
        ((LEFT + right) / 2, HEIGHT - 3, "middle", "rows"),
        (0, (BORDER + bottom) / 2, "start", "objective"),
    ]
    texts = "".join(
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'
        for x, y, anchor, text in labels
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'font-size="11" fill="currentColor" aria-label="{words}"><title>{words}</title>{texts}'
        f'<path d="M{LEFT} {BORDER}V{bottom}H{right}" fill="none" stroke="currentColor" '
        f'opacity="0.4"/><polyline points="{points}" fill="none" stroke="currentColor" '
        'stroke-width="1.5"/></svg>'
    )


def _cell(value: Any) -> str:
    return f"<td>{escape(str(value))}</td>"
