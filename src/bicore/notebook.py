"""How a coreset shows itself in a notebook: facts, a curve and its first points, as HTML.

The drawing is inline SVG in the colour of the text around it, so that it is at home on light and
dark pages; words that came from data are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

#: Width and height of the drawing, and the room that its lines keep from the border, in pixels.
WIDTH, HEIGHT, BORDER = 320, 90, 4
#: Points of a curve that are drawn; a longer one is drawn through so many of its points.
DRAWN = 200


@dataclass(frozen=True)
class Shown:
    """What a notebook is to show.

    Parameters
    ----------
    title : str
        One line.
    facts : mapping
        Names and values; what is None is left out.
    curve : array
        The objective after each point, or nothing.
    header : sequence of str
        Names of the columns of ``rows``.
    rows : sequence
        The first points, cell by cell.
    more : int
        How many points there are besides.

    Examples
    --------
    >>> "&lt;b&gt;" in as_html(Shown("<b>", {}, np.empty(0), (), (), 0))
    True
    """

    title: str
    facts: Mapping[str, Any]
    curve: npt.NDArray[Any]
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: int


def as_html(shown: Shown) -> str:
    """The whole of it, as a piece of a page."""
    facts = [f"{escape(name)}: {escape(str(value))}" for name, value in shown.facts.items()]
    parts = [f"<strong>{escape(shown.title)}</strong>", f"<div>{' · '.join(facts)}</div>"]
    if len(shown.curve) > 1:
        parts.append(_drawing(shown.curve))
    if shown.rows:
        parts.append(_table(shown))
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


def _table(shown: Shown) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in shown.header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown.rows)
    rest = f"<caption>and {shown.more} more</caption>" if shown.more else ""
    style = "caption-side:bottom"
    return (
        f'<table style="{style}">{rest}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _cell(value: Any) -> str:
    return f"<td>{escape(str(value))}</td>"
