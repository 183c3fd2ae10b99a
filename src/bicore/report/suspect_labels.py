"""Rows whose label contradicts the prediction of a model trained on other rows.

Kernel ridge regression is trained on the other folds and compared with the labels. Such rows may be
wrong, or beyond the model; a person decides, and the page does not call them errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bicore.bilevel.aims import DENIAL, MOST_DENIED
from bicore.data import Array, Dataset, Targets
from bicore.evaluate.models import RidgeJudge
from bicore.evaluate.samples import Sample, as_sample, draw_tuning_rows
from bicore.report.row_display import LONGEST_NAME, shorten

FOLDS = 5
#: Training rows of a fold; the cost of a fit grows with the third power.
MOST_TRAINED = 2000
#: Limit of the rows examined, evenly spaced.
MOST_ASKED = 20_000
#: A target is suspect from this many deviations on (fewer than one normal residual in a million);
#: the deviation comes from the median, which a few wrong targets do not move.
FAR, NORMAL_MEDIAN = 5.0, 0.6745


@dataclass(frozen=True, eq=False)
class Doubts:
    """Suspect rows, the clearest first, and the predictions for them."""

    asked: int
    rows: Array
    said: tuple[str, ...]

    def as_json(self, most: int) -> dict[str, Any]:
        """The first rows, and the number of all."""
        rows = self.rows.tolist()
        pairs = zip(rows[:most], self.said[:most], strict=True)
        first = [{"row": row, "said": said} for row, said in pairs]
        return {"asked": self.asked, "count": len(rows), "rows": rows, "first": first}


def doubts_of(data: Dataset, targets: Targets, seed: int = 0) -> Doubts:
    """Find the rows whose label contradicts the prediction."""
    counted = np.flatnonzero(data.weights > 0)
    spaced = np.linspace(0, len(counted) - 1, min(MOST_ASKED, len(counted))).round()
    asked = counted[np.unique(spaced.astype(np.int64))]
    said = _said(data, targets, asked, seed)
    if targets.classes is None:
        margins = _deviations(said - targets.values[asked])
        denied = margins > FAR
    else:
        margins, denied = _denied(said, targets.values.reshape(-1)[asked])
    places = np.flatnonzero(denied)
    places = places[np.argsort(-margins[places], kind="stable")]
    words = tuple(_words(targets, said[place]) for place in places)
    return Doubts(len(asked), asked[places], words)


def _denied(shares: Array, labels: Array) -> tuple[Array, Array]:
    """The margin of another class over the label's, and whether it is large.

    If most of a class is suspect, the model does not see that class, and none of it is.
    """
    margins = shares.max(1) - shares[np.arange(len(labels)), labels]
    denied = margins > DENIAL
    for code in np.unique(labels):
        if denied[labels == code].mean() > MOST_DENIED:
            denied[labels == code] = False
    return margins, denied


def _deviations(residuals: Array) -> Array:
    """The largest residual of a row, in standard deviations of its target."""
    sizes = np.abs(residuals)
    spread = np.median(sizes, axis=0) / NORMAL_MEDIAN
    scaled = np.divide(sizes, spread, out=np.zeros_like(sizes), where=spread > 0)
    return np.asarray(scaled.max(1))


def _words(targets: Targets, said: Array) -> str:
    if targets.classes is None:
        return ", ".join(f"{value:.4g}" for value in said.tolist())
    return shorten(targets.classes.tolist()[int(said.argmax())], LONGEST_NAME)


def _said(data: Dataset, targets: Targets, asked: Array, seed: int) -> Array:
    """For each row predictions (shares of classes, or targets) by a model of other rows."""
    found = np.zeros((len(asked), targets.outputs))
    order = np.random.default_rng(seed).permutation(len(asked))
    for part in np.array_split(order, FOLDS):
        rest = asked[np.setdiff1d(order, part, assume_unique=True)]
        if not len(part) or not len(rest):
            continue
        rest = np.random.default_rng((seed, len(rest))).permutation(rest)
        trained, tuning = rest[:MOST_TRAINED], rest[draw_tuning_rows(len(rest), seed)]
        judge = RidgeJudge().tuned_by(_sample(data, targets, tuning))
        points, test = (_sample(data, targets, rows) for rows in (trained, asked[part]))
        found[part] = judge.predictions([points], test, targets.outputs, seed)[0].numpy()
    return found


def _sample(data: Dataset, targets: Targets, rows: Array) -> Sample:
    cpu = torch.device("cpu")
    classification = targets.classes is not None
    labels = targets.values.reshape(-1) if classification else targets.values
    return as_sample(data.x[rows], labels[rows], np.ones(len(rows)), cpu, classification)
