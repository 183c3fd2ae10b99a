"""Baselines that choose rows of an embedding to label, each in a few lines.

A baseline is a function of (embedding, labelled rows, number of rows, generator, number of classes)
that returns row numbers; margin and BADGE take the probabilities of a fitted head instead.
"""

from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans

Array, Rng = np.ndarray, np.random.Generator
NONE = np.array([], dtype=int)
#: Neighbours that measure how typical a row is; rows above which k-means reads batches.
NEIGHBOURS, MANY = 20, 5000
#: ProbCover: the share of balls that must lie within one cluster.
PURITY = 0.95


def _squared_distances(a: Array, b: Array) -> Array:
    found = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return np.maximum(found, 0)


def _clusters(x: Array, count: int, rng: Rng) -> KMeans:
    kind = MiniBatchKMeans if len(x) > MANY else KMeans
    return kind(count, n_init=1, random_state=int(rng.integers(2**31))).fit(x)


def uniform(x: Array, labelled: Array, size: int, rng: Rng, classes: int) -> Array:
    free = np.setdiff1d(np.arange(len(x)), labelled)
    return rng.choice(free, size, replace=False)


def k_means(x: Array, labelled: Array, size: int, rng: Rng, classes: int) -> Array:
    """The row nearest to each centre, without repeats."""
    found: list[int] = []
    for distances in _squared_distances(_clusters(x, size, rng).cluster_centers_, x):
        distances[np.r_[labelled, found].astype(int)] = np.inf
        found.append(int(distances.argmin()))
    return np.array(found)


def k_center(x: Array, labelled: Array, size: int, rng: Rng, classes: int) -> Array:
    """The farthest row from the chosen ones, again and again (Sener and Savarese 2018)."""
    found = [] if len(labelled) else [int(rng.integers(len(x)))]
    centres = x[np.r_[labelled, found].astype(int)]
    nearest = _squared_distances(x, centres).min(1)
    while len(found) < size:
        found.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, _squared_distances(x, x[found[-1:]])[:, 0])
    return np.array(found)


def typiclust(x: Array, labelled: Array, size: int, rng: Rng, classes: int) -> Array:
    """The most typical row of each of the largest clusters without labels (Hacohen et al. 2022)."""
    groups = _clusters(x, len(labelled) + size, rng).labels_
    covered = np.isin(groups, groups[labelled.astype(int)])
    names, counts = np.unique(groups[~covered], return_counts=True)
    found: list[int] = []
    for group in names[np.argsort(-counts, kind="stable")][:size]:
        rows = np.flatnonzero(groups == group)
        near = np.sort(np.sqrt(_squared_distances(x[rows], x[rows])), axis=1)[:, 1 : NEIGHBOURS + 1]
        found.append(int(rows[near.mean(1).argmin() if near.size else 0]))
    rest = uniform(x, np.r_[labelled, found].astype(int), size - len(found), rng, classes)
    return np.r_[found, rest].astype(int)


def max_herding(x: Array, labelled: Array, size: int, rng: Rng, classes: int) -> Array:
    """The row that most raises the mean of the largest similarity (Bae et al. 2024), σ = 1."""
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    similar = np.exp(unit @ unit.T - 1)  # exp(−‖a − b‖²/2) of unit rows
    best = similar[:, labelled.astype(int)].max(1, initial=0)
    found: list[int] = []
    gains = np.full(len(x), np.inf)
    while len(found) < size:
        # Gains only fall, so the first row whose fresh gain is the largest is the best one.
        for row in np.argsort(-gains, kind="stable"):
            gains[row] = np.maximum(similar[row] - best, 0).sum()
            if gains[row] >= gains.max():
                break
        chosen = int(gains.argmax())
        found.append(chosen)
        best = np.maximum(best, similar[chosen])
        gains[chosen] = -1
    return np.array(found)


def prob_cover(x: Array, labelled: Array, size: int, rng: Rng, classes: int) -> Array:
    """The row whose ball covers most uncovered rows (Yehuda et al. 2022); radius by purity."""
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    groups = _clusters(unit, classes, rng).labels_
    distances = _squared_distances(unit, unit)
    other = np.array(
        [row[groups != group].min() for row, group in zip(distances, groups, strict=True)]
    )
    covers = distances < np.quantile(other, 1 - PURITY)
    covers[:, covers[labelled.astype(int)].any(0)] = False
    found: list[int] = []
    while len(found) < size:
        counts = covers.sum(1)
        counts[np.r_[labelled, found].astype(int)] = -1
        found.append(int(counts.argmax()))
        covers[:, covers[found[-1]]] = False
    return np.array(found)


def margin(x: Array, odds: Array, labelled: Array, size: int, rng: Rng) -> Array:
    """The rows with the smallest difference of the two largest probabilities."""
    ordered = np.sort(odds, axis=1)
    differences = ordered[:, -1] - ordered[:, -2]
    differences[labelled] = np.inf
    return np.argsort(differences, kind="stable")[:size]


def badge(x: Array, odds: Array, labelled: Array, size: int, rng: Rng) -> Array:
    """k-means++ on gradients of the head (Ash et al. 2020), without forming their products."""
    errors = odds - np.eye(odds.shape[1])[odds.argmax(1)]
    norms = (errors * errors).sum(1) * (x * x).sum(1)
    norms[labelled] = 0
    found = [int(norms.argmax())]
    nearest = np.full(len(x), np.inf)
    while len(found) < size:
        last = found[-1]
        products = (errors @ errors[last]) * (x @ x[last])
        nearest = np.minimum(nearest, np.maximum(norms + norms[last] - 2 * products, 0))
        nearest[np.r_[labelled, found].astype(int)] = 0
        found.append(int(rng.choice(len(x), p=nearest / nearest.sum())))
    return np.array(found)


Chooser = Callable[[Array, Array, int, Rng, int], Array]
#: Baselines that need no labels.
COLD: dict[str, Chooser] = {
    "uniform": uniform,
    "k-means centres": k_means,
    "k-center": k_center,
    "TypiClust": typiclust,
    "MaxHerding": max_herding,
    "ProbCover": prob_cover,
}
#: Baselines that query by a fitted head.
WARM = {"margin": margin, "BADGE": badge}
