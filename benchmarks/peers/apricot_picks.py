"""Let apricot-select pick out of the benchmark's pools. Not a dependency: run by an environment of
its own.

    python3 -m venv apricot apricot/bin/pip install apricot-select==0.6.1 numba==0.68.1 numpy==2.4.6
    scipy==1.17.1 scikit-learn==1.9.1 apricot/bin/python benchmarks/peers/apricot_picks.py POOLS.npz
    OUT.json

POOLS.npz holds `x_{seed}` (rows, features) for every seed, and `sizes`. Labels are not read.
scikit-learn is named because apricot-select imports it without declaring it.

Notes:
FacilityLocationSelection with its defaults: metric euclidean (similarity is the largest squared
distance less the squared distance), lazy greedy. No labels. first_call_seconds is the call as
shipped, which compiles its numba functions in every fit; selection_seconds is the same call with
the compiled functions kept. Both include the pairwise distances.
"""

import functools
from unittest import mock

from apricot import FacilityLocationSelection
from apricot.functions import facilityLocation
from picking import pick_all, row, time_pick

METHOD = "apricot facility location"
PACKAGES = ["apricot-select", "numba", "numpy", "scipy", "scikit-learn"]
# apricot compiles these two anew in every fit, so that no warm-up of its own would keep compilation
# out of the seconds.
KEPT = {
    name: functools.cache(getattr(facilityLocation, name))
    for name in ("calculate_gains", "calculate_gains_sieve")
}


def pick(x, size, seed):
    return FacilityLocationSelection(size, random_state=seed).fit(x).ranking.tolist()


def make_row(method, x, size, seed):
    first = time_pick(pick, x, size, seed)
    with mock.patch.multiple(facilityLocation, **KEPT):
        pick(x, size, seed)
        again = time_pick(pick, x, size, seed)
    return row(method, first, again, size, len(x), seed)


if __name__ == "__main__":
    pick_all(make_row, [METHOD], PACKAGES, __doc__)
