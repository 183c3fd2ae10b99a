"""CIFAR-10: sizes, and how each row's β and λ are found.

Every training is long, so β is searched with one seed and fewer epochs or steps, on held-out
points; ``choose`` writes what was found to ``chosen.json``. Tables then hold one β a row, two for
the rows that matter most.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.courses import BETAS, RehearsingRow

MEMORY = 200
#: β tried: everything for the rows that matter most; for the others the published best (1 for most,
#: 10, 100 for k-means of grads) and its neighbours; in continual learning on beyond an end that was
#: best.
EVERY = BETAS
OTHERS = (1.0, 10.0, 100.0)
LOWER = (0.1, *OTHERS)
HIGHER = (*OTHERS, 1000.0)
LOW = (0.01, 0.1, 1.0)
CHOSEN = Path(__file__).with_name("chosen.json")
#: Tables of the file of β that were chosen.
CONTINUAL, IMBALANCED = "continual", "imbalanced"
STREAMING, NORMALISED = "streaming", "normalised"


@dataclass(frozen=True)
class Plan:
    """A row, and how it finds its β: among those ``tried``, or as the row it ``follows`` does.

    ``also`` is run in addition to the choice of few epochs, which learn a last task less well than
    many and so favour a small β. ``by_proxy`` takes the λ that gives the proxy the lowest held-out
    loss; it is much smaller than that of the authors' scripts.
    """

    table: str
    row: RehearsingRow
    tried: tuple[float, ...] = OTHERS
    also: tuple[float, ...] = ()
    follows: str | None = None
    by_proxy: bool = False

    @property
    def searched(self) -> tuple[float, ...]:
        """The β to try; none if none is rehearsed, or if the row follows another."""
        return self.tried if self.row.rehearsed and self.follows is None else ()

    @property
    def beta(self) -> float:
        """The β found on held-out points; not a number before that."""
        found = _read_chosen().get(self.table, {})
        return float(found.get(self.follows or self.row.key, math.nan))

    @property
    def penalty(self) -> float:
        """λ: the row's own, or the proxy's choice."""
        own = self.row.penalty
        return float(_read_chosen().get("penalty", own)) if self.by_proxy else own

    def build(self) -> RehearsingRow:
        """The row of the table, with the β that it runs."""
        betas = tuple(dict.fromkeys((self.beta, *self.also)))
        return replace(self.row, betas=betas, penalty=self.penalty)

    def searching(self, **fewer: Any) -> RehearsingRow:
        """The row that searches β, with ``fewer`` steps or epochs."""
        return replace(self.row, betas=self.searched, penalty=self.penalty, paper=None, **fewer)


def _read_chosen() -> dict[str, Any]:
    return json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}


def choose(
    plans: Sequence[Plan],
    betas: Mapping[str, Iterable[dict[str, Any]]],
    penalties: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    """For each row whose β have all been tried that of the highest accuracy on held-out points; λ
    of the lowest held-out loss."""
    found: dict[str, Any] = {}
    losses = {float(record["penalty"]): float(np.mean(record["held_loss"])) for record in penalties}
    if losses:
        found["penalty"] = min(losses, key=lambda value: losses[value])
    for table, records in betas.items():
        searched = {plan.row.key: plan.searched for plan in plans if plan.table == table}
        held: dict[str, dict[float, float]] = {key: {} for key in sorted(searched)}
        for record in records:
            if record["method"] in held:
                held[record["method"]][float(record["beta"])] = float(np.mean(record["held"]))
        best = {
            key: max(scores, key=lambda beta: scores[beta])
            for key, scores in held.items()
            if scores and set(searched[key]) <= set(scores)
        }
        if best:
            found[table] = best
    return found
