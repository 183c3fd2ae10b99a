"""Stratified draws: points per class, and the sample that replaces large data.

A kernel without finite features needs a matrix of all pairs. Beyond ``EXACT_ROWS`` rows that matrix
has ``candidates × objective rows`` entries instead: points are chosen among a stratified sample,
and the objective is measured on a larger one. Both depend only on the rows, labels and seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bicore.arguments import in_id_order
from bicore.data import Array, Dataset, Targets

#: Up to this many rows all of them are candidates.
EXACT_ROWS = 5000
#: Candidates: this many, or this many per point where that is more.
CANDIDATES, PER_POINT = 5000, 4
#: Rows that measure the objective: this many, or as many as candidates if those are more.
OBJECTIVE_ROWS = 8000
#: A kernel with features has all rows as candidates up to this many rows, because exchanges hold
#: columns for a share of them, and up to this many numbers in the features.
FEATURE_ROWS, FEATURE_NUMBERS = 50_000, 20_000_000
#: Every class keeps at least this many candidates, or all its rows.
FEWEST_PER_CLASS = 20
#: Targets are stratified by this many quantiles.
QUANTILES = 20


def holds_features(rows: int, width: int) -> bool:
    """Whether all rows can be candidates with features of this width."""
    return rows <= FEATURE_ROWS and rows * width <= FEATURE_NUMBERS


@dataclass(frozen=True, eq=False)
class Sample:
    """Row numbers of candidates and objective rows, and the weights of the latter."""

    candidates: Array
    objective_rows: Array
    objective_weights: Array

    def note(self, rows: int) -> str:
        """State in one line how the sample was used."""
        return (
            f"large data: {len(self.candidates)} of {rows} rows are candidates, and the objective "
            f"is measured on {len(self.objective_rows)} (exact=True uses all rows)"
        )

    def objective_data(self, data: Dataset) -> Dataset:
        """Return the rows that measure the objective, weighted like all rows."""
        return data[self.objective_rows].with_columns(sample_weight=self.objective_weights)


def draw_sample(
    data: Dataset, targets: Targets, size: int, seed: int, keep: Array | None = None
) -> Sample:
    """Draw candidates and objective rows, stratified by class or by quantile of the target.

    ``keep`` are rows that must be candidates.
    """
    weights = data.weights
    eligible = in_id_order(np.flatnonzero(weights > 0), data.ids)
    strata = strata_of(targets)[eligible]
    wanted = min(max(CANDIDATES, PER_POINT * size), len(eligible))
    counts = np.bincount(strata)
    chosen = allocate(counts, wanted, FEWEST_PER_CLASS)
    measured = np.maximum(allocate(counts, min(max(OBJECTIVE_ROWS, wanted), len(eligible))), 1)
    rng = np.random.default_rng((seed, len(data)))
    candidates, drawn, objective_weights = [np.zeros(0, int) if keep is None else keep], [], []
    for stratum in np.flatnonzero(counts):
        order = rng.permutation(eligible[strata == stratum])
        candidates.append(order[: chosen[stratum]])
        some = order[: measured[stratum]]
        drawn.append(some)
        objective_weights.append(weights[some] * (weights[order].sum() / weights[some].sum()))
    rows = np.concatenate(drawn)
    order = np.argsort(rows)
    return Sample(
        np.unique(np.concatenate(candidates)), rows[order], np.concatenate(objective_weights)[order]
    )


def strata_of(targets: Targets, most: int = QUANTILES) -> Array:
    """Return the class of each row, or the quantile of its first target."""
    if targets.classes is not None:
        codes: Array = targets.values
        return codes
    first = targets.values[:, 0]
    edges = np.quantile(first, np.linspace(0, 1, most + 1)[1:-1])
    return np.asarray(np.searchsorted(edges, first))


def draw_stratified(
    strata: Array, rows: Array, size: int, shares: Array, rng: np.random.Generator
) -> Array:
    """Draw ``size`` of the rows, from every stratum by its share."""
    own = strata[rows]
    counts = allocate(np.bincount(own, minlength=len(shares)), size, shares=shares)
    parts = [
        rng.choice(rows[own == stratum], count, replace=False)
        for stratum, count in enumerate(counts)
    ]
    return np.concatenate(parts)


def allocate(counts: Array, total: int, fewest: int = 0, shares: Array | None = None) -> Array:
    """Split ``total`` over strata by their shares, with at least ``fewest`` of each.

    The shares are the counts by default. The sum exceeds ``total`` if ``fewest`` demands it.
    """
    shares = counts if shares is None else shares
    exact = shares / shares.sum() * total
    found: Array = np.minimum(np.maximum(np.floor(exact).astype(int), fewest), counts)
    for _ in range(total - int(found.sum())):
        found[np.argmax(np.where(found < counts, exact - found, -np.inf))] += 1
    return found


def allocate_points(counts: Array, total: int, balanced: bool, given: Array) -> Array:
    """Split points over classes, at least one each if there are enough, and those ``given``."""
    present = (counts > 0).astype(int)
    shares = present if balanced else counts
    found = allocate(counts, total, int(total >= present.sum()), shares)
    found = np.maximum(found, given)
    exact = shares / shares.sum() * total
    while found.sum() > total:
        spare = found > np.maximum(given, 1)
        if not spare.any():  # the given points leave no point for some class
            spare = found > given
        found[np.argmax(np.where(spare, found - exact, -np.inf))] -= 1
    return found
