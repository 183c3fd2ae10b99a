"""What is particular to CIFAR-10: sizes, and how each row's β and λ are found.

Every training is long, so that β is looked for with one seed and fewer epochs or steps, on points
held out; ``choose`` writes what was found beside this file. Tables then hold one β a row, two where
it matters most.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

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
Rehearsing = TypeVar("Rehearsing", bound=RehearsingRow)


class Table(Enum):
    """Where the β of a row stands in the file of those chosen."""

    CONTINUAL = "continual"
    IMBALANCED = "imbalanced"
    STREAMING = "streaming"
    NORMALISED = "normalised"


@dataclass(frozen=True)
class Plan(Generic[Rehearsing]):
    """A row, and how it finds its β: among those ``tried``, or as the row it ``follows`` does.

    ``also`` is run beside the choice of few epochs, which learn a last task less well than many and
    so speak for a small β. ``by_proxy`` takes the λ that gives the proxy the lowest held-out loss;
    it is much smaller than that of the authors' scripts.
    """

    table: Table
    row: Rehearsing
    tried: tuple[float, ...] = OTHERS
    also: tuple[float, ...] = ()
    follows: str | None = None
    by_proxy: bool = False

    @property
    def searched(self) -> tuple[float, ...]:
        """The β to try; none where none is rehearsed, and where a row goes with another."""
        return self.tried if self.row.rehearsed and self.follows is None else ()

    @property
    def beta(self) -> float:
        """The β found on held-out points; not a number while it has not been."""
        found: Mapping[str, float] = _chosen().get(self.table.value, {})
        return float(found.get(self.follows or self.row.key, math.nan))

    @property
    def penalty(self) -> float:
        """λ: the row's own, but where the proxy's choice is asked for."""
        own = self.row.penalty
        return float(_chosen().get("penalty", own)) if self.by_proxy else own

    def build(self) -> Rehearsing:
        """The row of the table, with the β that it runs."""
        betas = tuple(dict.fromkeys((self.beta, *self.also)))
        return replace(self.row, betas=betas, penalty=self.penalty)

    def searching(self, **fewer: Any) -> Rehearsing:
        """The row that looks for β, with ``fewer`` steps or epochs."""
        return replace(self.row, betas=self.searched, penalty=self.penalty, paper=None, **fewer)


def _chosen() -> dict[str, Any]:
    return dict(json.loads(CHOSEN.read_text())) if CHOSEN.exists() else {}


def choose(
    plans: Sequence[Plan[Any]],
    betas: Mapping[Table, Iterable[dict[str, Any]]],
    penalties: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    """For each row whose β have all been tried that of the highest accuracy on held-out points; λ
    of the lowest held-out loss."""
    found: dict[str, Any] = {}
    losses = {float(record["penalty"]): float(np.mean(record["held_loss"])) for record in penalties}
    if losses:
        found["penalty"] = min(losses, key=lambda value: losses[value])
    for table, records in betas.items():
        searched = {plan.row.key: plan.searched for plan in plans if plan.table is table}
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
            found[table.value] = best
    return found
