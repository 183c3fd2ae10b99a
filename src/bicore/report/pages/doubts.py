"""Labels that the other rows deny: a model that never saw a row's label says another, and clearly.

Rows are cut into folds, kernel ridge regression is trained on rows of the others, and its shares of
the classes are compared with the label. What the model cannot see stands beside what is wrong: a
person looks at them, the page does not call them errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bicore.bilevel.aims import DENIAL, MOST_DENIED
from bicore.comparison.judges import RidgeJudge, Sample, as_sample
from bicore.comparison.judges.tuning import drawn
from bicore.data import Array, Dataset, Targets

FOLDS = 5
#: Rows that a fold's model is trained on; a fit grows with the third power.
MOST_TRAINED = 2000
#: Rows that are asked about, evenly spaced where there are more.
MOST_ASKED = 20_000


@dataclass(frozen=True, eq=False)
class Doubts:
    """Rows in doubt, clearest first: what the others say, and by how much more than the label."""

    asked: int
    rows: Array
    said: Array
    margins: Array

    def as_json(self, most: int) -> dict[str, Any]:
        """The first ones, and how many there are."""
        first = zip(self.rows[:most], self.said[:most], self.margins[:most], strict=True)
        found = [
            {"row": int(row), "said": int(said), "margin": float(margin)}
            for row, said, margin in first
        ]
        rows = self.rows.tolist()
        return {"asked": self.asked, "count": len(rows), "rows": rows, "first": found}


def doubts_of(data: Dataset, targets: Targets, seed: int = 0) -> Doubts:
    """The rows whose class the other rows deny; never most of a class, which is not seen then."""
    counted = np.flatnonzero(data.weights > 0)
    spaced = np.linspace(0, len(counted) - 1, min(MOST_ASKED, len(counted))).round()
    asked = counted[np.unique(spaced.astype(np.int64))]
    labels = targets.values.reshape(-1)
    shares = _shares(data, labels, targets.outputs, asked, seed)
    own = shares[np.arange(len(asked)), labels[asked]]
    margins = shares.max(1) - own
    denied = margins > DENIAL
    for code in np.unique(labels[asked]):
        of_class = labels[asked] == code
        if denied[of_class].mean() > MOST_DENIED:
            denied[of_class] = False
    places = np.flatnonzero(denied)
    places = places[np.argsort(-margins[places], kind="stable")]
    return Doubts(len(asked), asked[places], shares[places].argmax(1), margins[places])


def _shares(data: Dataset, labels: Array, outputs: int, asked: Array, seed: int) -> Array:
    """For each row asked about a share a class, by a model of other rows."""
    found = np.zeros((len(asked), outputs))
    order = np.random.default_rng(seed).permutation(len(asked))
    for part in np.array_split(order, FOLDS):
        rest = asked[np.setdiff1d(order, part, assume_unique=True)]
        if not len(part) or not len(rest):
            continue
        rest = np.random.default_rng((seed, len(rest))).permutation(rest)
        trained, tuning = rest[:MOST_TRAINED], rest[drawn(len(rest), seed)]
        judge = RidgeJudge().tuned_by(_sample(data, labels, tuning))
        points, test = (_sample(data, labels, rows) for rows in (trained, asked[part]))
        found[part] = judge.predictions([points], test, outputs, seed)[0].numpy()
    return found


def _sample(data: Dataset, labels: Array, rows: Array) -> Sample:
    cpu = torch.device("cpu")
    return as_sample(data.x[rows], labels[rows], np.ones(len(rows)), cpu, classification=True)
