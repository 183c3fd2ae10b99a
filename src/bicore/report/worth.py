"""Random scores against size, the score of the chosen rows, and the way from one to the other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bicore.evaluate.equivalence import Equivalent, Worth
from bicore.files import replacing
from bicore.report.pictures import new_figure


def draw_worth(worth: Worth, title: str, path: Path) -> None:
    """Draw the curves of random scores, and from the chosen rows an arrow to those of equal score.

    Parameters
    ----------
    worth : Worth
        What is drawn.
    title : str
        Above the picture, before the sentence.
    path : Path
        A PNG, PDF or SVG, by its ending; it is written beside and renamed.

    Raises
    ------
    InputError
        Where matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from bicore.evaluate.equivalence import Equivalent
    >>> random = Equivalent("uniform", 50, 480, 410, 560, (50, 800), (0.8, 0.95), (0.02, 0.01))
    >>> found = Worth(50, (random,), 0.93, 0.01, "accuracy", "ridge", 10, "on 10 cuts", 30)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_worth(found, "digits", Path(folder) / "worth.png")
    ...     [file.name for file in Path(folder).iterdir()]
    ['worth.png']
    """
    figure = new_figure()
    figure.set_size_inches(7.5, 5.0)
    axis = figure.subplots()
    axis.set_xscale("log")
    for number, rival in enumerate(worth.baselines):
        _curve(axis, rival, f"C{number}")
    axis.plot([worth.size], [worth.score], "o", color="black", label="chosen rows")
    first = worth.baselines[0]
    if first.rows > 0 and not first.beyond:
        style = {"arrowstyle": "->", "color": "C0"}
        axis.annotate(
            "", xy=(first.rows, worth.score), xytext=(worth.size, worth.score), arrowprops=style
        )
    sizes = sorted({size for rival in worth.baselines for size in rival.sizes})
    axis.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    axis.minorticks_off()
    axis.set_xlabel("rows")
    axis.set_ylabel(worth.metric)
    axis.set_title(f"{title}\n{worth}", fontsize=9)
    axis.grid(alpha=0.25)
    axis.legend(loc="lower right", fontsize=8)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)


def _curve(axis: Any, rival: Equivalent, colour: str) -> None:
    """One way to draw: means over seeds in a band of a standard deviation, and its interval."""
    pairs = list(zip(rival.means, rival.spreads, strict=True))
    axis.plot(
        rival.sizes, rival.means, "-o", markersize=3, color=colour, label=f"{rival.baseline} rows"
    )
    low = [mean - spread for mean, spread in pairs]
    high = [mean + spread for mean, spread in pairs]
    axis.fill_between(rival.sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    ends = (max(rival.low, rival.sizes[0]), min(rival.high, rival.sizes[-1]))
    if ends[0] < ends[1] and math.isfinite(rival.low):
        axis.axvspan(*ends, color=colour, alpha=0.08, linewidth=0)
