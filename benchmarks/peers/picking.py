"""Timing, checks and the output file of the peers' scripts. Imports NumPy only, because every
environment runs it."""

import importlib.metadata
import json
import pathlib
import platform
import sys
import time

import numpy as np


def time_pick(pick, *arguments):
    """The picks, and the seconds they took."""
    start = time.perf_counter()
    indices = pick(*arguments)
    return indices, time.perf_counter() - start


def row(method, first, again, size, rows, seed):
    """One row from two timed calls with one seed, which must agree; the second is the one that
    counts."""
    (earlier, first_seconds), (indices, seconds) = first, again
    if len(set(indices)) != size or len(indices) != size or not set(indices) <= set(range(rows)):
        raise ValueError(
            f"{method}: {len(indices)} picks, {len(set(indices))} of them distinct, where {size} "
            "were asked for"
        )
    if indices != earlier:
        raise ValueError(f"{method}: two calls with one seed picked different points")
    keys = {"method": method, "size": size, "seed": seed, "indices": indices}
    return {**keys, "selection_seconds": seconds, "first_call_seconds": first_seconds}


def pick_all(make_row, methods, packages, docstring):
    """Read the pools named first on the command line, make a row of every method, seed and size,
    write the file named second with the notes that end the script's docstring."""
    notes = " ".join(docstring.split("Notes:")[1].split())
    pools = np.load(sys.argv[1])
    seeds = sorted(int(name[2:]) for name in pools.files if name.startswith("x_"))
    cells = [
        (method, seed, int(size)) for method in methods for seed in seeds for size in pools["sizes"]
    ]
    rows = [make_row(method, pools[f"x_{seed}"], size, seed) for method, seed, size in cells]
    versions = {name: importlib.metadata.version(name) for name in packages} | {
        "python": platform.python_version()
    }
    pathlib.Path(sys.argv[2]).write_text(
        json.dumps({"rows": rows, "versions": versions, "notes": notes}) + "\n"
    )
