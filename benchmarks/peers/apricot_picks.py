"""Let apricot-select pick out of the benchmark's pools. Not a dependency: run by an environment of its own.

    python3 -m venv apricot
    apricot/bin/pip install apricot-select==0.6.1 numba==0.68.1 numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1
    apricot/bin/python benchmarks/peers/apricot_picks.py POOLS.npz OUT.json

POOLS.npz holds `x_{seed}` (rows, features) for every seed, and `sizes`. Labels are not read. scikit-learn is named because
apricot-select imports it without declaring it.
"""

import functools
import importlib.metadata
import json
import pathlib
import platform
import sys
import time
from unittest import mock

import numpy as np
from apricot import FacilityLocationSelection
from apricot.functions import facilityLocation

METHOD = "apricot facility location"
PACKAGES = ["apricot-select", "numba", "numpy", "scipy", "scikit-learn"]
# apricot compiles these two anew in every fit, so that no warm-up of its own would keep compilation out of the seconds.
KEPT = {name: functools.cache(getattr(facilityLocation, name)) for name in ("calculate_gains", "calculate_gains_sieve")}
NOTES = (
    "FacilityLocationSelection with its defaults: metric euclidean (similarity is the largest squared distance less the squared "
    "distance), lazy greedy. No labels. first_call_seconds is the call as shipped, which compiles its numba functions in every "
    "fit; selection_seconds is the same call with the compiled functions kept. Both include the pairwise distances."
)


def pick(x, size, seed):
    return FacilityLocationSelection(size, random_state=seed).fit(x).ranking.tolist()


def timed(x, size, seed):
    start = time.perf_counter()
    indices = pick(x, size, seed)
    return indices, time.perf_counter() - start


def check(indices, again, size, rows):
    if len(set(indices)) != size or len(indices) != size or not set(indices) <= set(range(rows)):
        raise ValueError(f"{METHOD}: {len(indices)} picks, {len(set(indices))} of them distinct, where {size} were asked for")
    if indices != again:
        raise ValueError(f"{METHOD}: two calls with one seed picked different points")


def row(x, size, seed):
    first, first_seconds = timed(x, size, seed)
    with mock.patch.multiple(facilityLocation, **KEPT):
        pick(x, size, seed)
        indices, seconds = timed(x, size, seed)
    check(indices, first, size, len(x))
    keys = {"method": METHOD, "size": size, "seed": seed, "indices": indices}
    return {**keys, "selection_seconds": seconds, "first_call_seconds": first_seconds}


def versions():
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"python": platform.python_version()}


def main():
    pools = np.load(sys.argv[1])
    seeds = sorted(int(name[2:]) for name in pools.files if name.startswith("x_"))
    rows = [row(pools[f"x_{seed}"], int(size), seed) for seed in seeds for size in pools["sizes"]]
    pathlib.Path(sys.argv[2]).write_text(json.dumps({"rows": rows, "versions": versions(), "notes": NOTES}) + "\n")


if __name__ == "__main__":
    main()
