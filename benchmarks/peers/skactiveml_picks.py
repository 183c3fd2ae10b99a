"""Let scikit-activeml pick out of the benchmark's pools. Not a dependency: run by an environment of
its own.

    python3 -m venv skactiveml
    skactiveml/bin/pip install scikit-activeml==1.0.1 scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
    skactiveml/bin/python benchmarks/peers/skactiveml_picks.py POOLS.npz OUT.json

POOLS.npz holds `x_{seed}` (rows, features) for every seed, and `sizes`. Labels are not read: every
strategy queries one batch out of a pool in which nothing is labelled.

Notes:
One query of batch_size = size, nothing labelled, random_state = seed. MaxHerding normalises the
samples itself and uses an RBF kernel: once with gamma = 1 / median squared distance of the
normalised samples (the median heuristic), once with the library's default gamma (1 / features).
CoreSet and TypiClust: defaults, on the pixels. ProbCover: on samples of unit length, 10 classes,
radii tried in steps of 0.02, because its default radii (0.2 and up) cover no neighbour of a raw
image and few of a normalised one, which leaves random picks. selection_seconds is the second call
on a pool and size, first_call_seconds the first; both include the median and the normalising.
"""

import numpy as np
from picking import pick_all, row, time_pick
from skactiveml.pool import CoreSet, MaxHerding, ProbCover, TypiClust
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import normalize

PACKAGES = ["scikit-activeml", "scikit-learn", "numpy", "scipy"]
CLASSES = 10
RADII = np.arange(0.02, 2.01, 0.02)


def median_gamma(x):
    squared = pairwise_distances(normalize(x), metric="sqeuclidean")
    return float(1 / np.median(squared[np.triu_indices(len(x), k=1)]))


# A strategy is made anew for every call: ProbCover keeps the distances of the first pool it has
# seen.
def max_herding(x, seed):
    return MaxHerding(metric_dict={"gamma": median_gamma(x)}, random_state=seed), x


def max_herding_default(x, seed):
    return MaxHerding(random_state=seed), x


def core_set(x, seed):
    return CoreSet(random_state=seed), x


def typical_clusters(x, seed):
    return TypiClust(random_state=seed), x


def probability_cover(x, seed):
    return ProbCover(n_classes=CLASSES, deltas=RADII, random_state=seed), normalize(x)


METHODS = {
    "skactiveml MaxHerding": max_herding,
    "skactiveml MaxHerding (default gamma)": max_herding_default,
    "skactiveml CoreSet": core_set,
    "skactiveml TypiClust": typical_clusters,
    "skactiveml ProbCover": probability_cover,
}


def pick(method, x, size, seed):
    strategy, points = METHODS[method](x, seed)
    return strategy.query(points, np.full(len(points), np.nan), batch_size=size).tolist()


def make_row(method, x, size, seed):
    call = (pick, method, x, size, seed)
    return row(method, time_pick(*call), time_pick(*call), size, len(x), seed)


if __name__ == "__main__":
    pick_all(make_row, METHODS, PACKAGES, __doc__)
