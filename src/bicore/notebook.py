"""The HTML of a coreset in a notebook: facts, a curve and the first points.

The drawing is inline SVG in the colour of the text, for light and dark pages; text from data is
escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

#: Width and height of the drawing, and its margin, in pixels.
WIDTH, HEIGHT, BORDER = 320, 90, 4
#: Limit of the points of a curve.
DRAWN = 200


def as_html(
    title: str,
    facts: Mapping[str, Any],
    curve: npt.NDArray[Any],
    columns: Mapping[str, Sequence[Any]],
    more: int,
) -> str:
    """HTML of a title, facts, the objective after each point, and columns of the first points.

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
    across = BORDER + places / (len(curve) - 1) * (WIDTH - 2 * BORDER)
    down = BORDER + (high - curve[places]) / ((high - low) or 1.0) * (HEIGHT - 2 * BORDER)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    words = f"objective after 1 to {len(curve)} points: {curve[0]:.4g} to {curve[-1]:.4g}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{words}"><title>{words}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )


def _cell(value: Any) -> str:
    return f"<td>{escape(str(value))}</td>"
