"""Gradient-based sample selection: keep rows whose gradients point in many directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, Dataset
from bicore.errors import InputError, unknown_name
from bicore.memory.buffer import Buffer
from bicore.networks.observe import Observed, observe
from bicore.picking import whole_number
from bicore.runtime import Context

#: The score of a row that found nothing to compare itself with: that of orthogonal gradients.
NEUTRAL = 1.0
RULES = ("greedy", "cosine")


class GradientSampling(Buffer):
    """Gradient-based sample selection, on gradients of the last layer under the current model.

    GSS of Aljundi, Lin, Goujaud and Bengio (2019). The scores of kept rows are those of their
    arrival. Every row stands for the same share of the stream.

    Parameters
    ----------
    capacity : int
        The most rows that are ever kept.
    seed : int
        Of whatever is drawn at random.
    rule : {"greedy", "cosine"}
        Greedy (their algorithm 2): a row's score is 1 + its largest cosine to ``compared`` kept
        rows. With the memory filled, a row of score c < 1 proposes to replace a kept row i drawn ∝
        its score C_i, and does so with probability C_i/(C_i + c). Cosine (their surrogate of the
        integer program): of the kept rows and the batch together, drop the row whose cosines to the
        others sum highest, until the memory holds the rest.
    compared : int
        How many kept rows, drawn for every so many new ones, a new row is compared with.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

    Examples
    --------
    >>> from bicore import Context
    >>> buffer = GradientSampling(capacity=4)
    >>> context = Context(model=torch.nn.Linear(2, 2))
    >>> buffer.update(np.ones((9, 2)), [0, 1, 0] * 3, context=context)
    GradientSampling(4 of 4 rows kept, 9 seen)
    """

    needs_labels = True
    needs_model = True

    def __init__(
        self, capacity: int, seed: int = 0, rule: str = "greedy", compared: int = 10
    ) -> None:
        super().__init__(capacity, seed)
        if rule not in RULES:
            raise unknown_name("rule", rule, RULES)
        words = (
            f"compared={compared!r} is not a whole number >= 1; give how many rows a new one is "
            "compared with."
        )
        self.rule = rule
        self.compared = whole_number(compared, 1, words)
        self.scores = np.empty(0)

    @property
    def name(self) -> str:
        return f"GradientSampling ({self.rule})"

    def _take(self, batch: Dataset, context: Context) -> None:
        if self.rule == "greedy":
            # a long batch also meets its own earlier rows
            for start in range(0, len(batch), self.compared):
                self._greedy(batch[start : start + self.compared], context)
        else:
            self._cosine(batch, context)

    def _greedy(self, batch: Dataset, context: Context) -> None:
        both = self._followed_by(batch)
        offset = len(self)
        arrival = self._arrival_scores(both, context)
        source = list(range(offset))  # the row that each place holds
        scores = self.scores.tolist()
        for row, score in enumerate(arrival.tolist(), offset):
            if len(source) < self.capacity:
                source.append(row)
                scores.append(score)
            elif score < NEUTRAL:
                place = self._drawn(np.array(scores))
                if self.rng.random() * (scores[place] + score) < scores[place]:
                    source[place] = row
                    scores[place] = score
        self.kept = both[source]
        self.scores = np.array(scores)

    def _arrival_scores(self, both: Dataset, context: Context) -> Array:
        """1 + the largest cosine of each row after those kept to a few of those kept."""
        offset = len(self)
        if not offset:
            return np.full(len(both), NEUTRAL)
        count = min(self.compared, offset)
        partners = self.rng.choice(offset, count, replace=False)
        left, right = _directions(both[np.r_[partners, np.arange(offset, len(both))]], context)
        cosines = (left[count:] @ left[:count].T) * (right[count:] @ right[:count].T)
        scores: Array = 1 + cosines.amax(1).cpu().numpy()
        return scores

    def _drawn(self, scores: Array) -> int:
        """A place, drawn in proportion to its score."""
        total = float(scores.sum())
        if total > 0:
            return int(self.rng.choice(len(scores), p=scores / total))
        return int(self.rng.integers(len(scores)))

    def _cosine(self, batch: Dataset, context: Context) -> None:
        both = self._followed_by(batch)
        rows = np.arange(len(both))
        if len(both) > self.capacity:
            left, right = _directions(both, context)
            cosines = (left @ left.T) * (right @ right.T)
            sums = cosines.sum(1)
            while len(rows) > self.capacity:
                worst = int(sums[torch.from_numpy(rows).to(sums.device)].argmax())
                sums -= cosines[:, rows[worst]]
                rows = np.delete(rows, worst)
        self.kept = both[rows]
        self.scores = np.full(len(rows), NEUTRAL)

    def _weights(self) -> Array:
        return np.full(len(self), self.seen / len(self))

    def _configuration(self) -> dict[str, Any]:
        return {**super()._configuration(), "rule": self.rule, "compared": self.compared}

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {}, {"scores": self.scores.copy()}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.scores = np.asarray(arrays["scores"])


def _directions(data: Dataset, context: Context) -> tuple[Tensor, Tensor]:
    """Factors of the gradients, scaled so that the product of their inner products is the cosine.

    A zero gradient stays zero.
    """
    if isinstance(context.model, Observed):
        raise InputError(
            "GradientSampling looks at kept rows again and needs the module itself; pass "
            "Context(model=module)."
        )
    assert data.y is not None
    observed = observe(context.model, data.x)
    if context.classes is None and data.y.dtype.kind in "US":
        raise InputError(
            "GradientSampling cannot know which output a text label means; pass Context(model, "
            "classes=[…])."
        )
    classes = None if context.classes is None else tuple(context.classes)
    factors = replace(observed, classes=classes).gradient_factors(data.y)
    left, right = (
        part / part.norm(dim=1, keepdim=True).clamp_min(torch.finfo(part.dtype).tiny)
        for part in factors
    )
    return left, right
