"""One selection from many rows by one peer, in a process of its own under limits.

    python benchmarks/peers/at_scale.py METHOD X.npy Y.npy SIZE PICKS.npy

Run by the environment that has the peer: apricot-select 0.6.1, coreax 1.0.0, scikit-learn. Prints
the processor seconds of the selection, without imports and reading: other processes may be at work.
"""

import json
import sys
import time

import numpy as np

#: Neighbours of a row in sparse similarities.
NEIGHBOURS = 32
#: Rows of a batch; rows of a leaf in addition to the size, which must be below the leaf's.
BATCH, LEAF = 4096, 2000


def uniform(x, y, size):
    return np.random.default_rng(0).choice(len(x), size, replace=False)


def class_balanced(x, y, size):
    rng = np.random.default_rng(0)
    classes = np.unique(y)
    shares = np.full(len(classes), size // len(classes))
    shares[: size - shares.sum()] += 1
    own = [np.flatnonzero(y == label) for label in classes]
    return np.concatenate(
        [rng.choice(rows, share, replace=False) for rows, share in zip(own, shares, strict=True)]
    )


def k_center(x, y, size):
    """The row farthest from those chosen, one at a time."""
    x = x.astype(np.float32)
    squares = (x * x).sum(1)
    picks = [int(np.random.default_rng(0).integers(len(x)))]
    nearest = np.full(len(x), np.inf, dtype=np.float32)
    while len(picks) < size:
        last = picks[-1]
        nearest = np.minimum(nearest, squares - 2 * (x @ x[last]) + squares[last])
        nearest[picks] = -1
        picks.append(int(nearest.argmax()))
    return np.array(picks)


def mini_batch_k_means(x, y, size):
    """The row nearest each centre."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import pairwise_distances_argmin

    x = x.astype(np.float32)
    found = MiniBatchKMeans(size, batch_size=BATCH, n_init=1, random_state=0).fit(x)
    picks = np.unique(pairwise_distances_argmin(found.cluster_centers_, x))
    rest = np.setdiff1d(np.arange(len(x)), picks)
    more = np.random.default_rng(0).choice(rest, size - len(picks), replace=False)
    return np.concatenate([picks, more])


def apricot_dense(x, y, size):
    from apricot import FacilityLocationSelection

    return FacilityLocationSelection(size, random_state=0).fit(x.astype(np.float32)).ranking


def apricot_sparse(x, y, size):
    """Facility location over a graph of nearest neighbours, which scikit-learn makes.

    apricot is compiled for values in double precision and indices of 32 bits.
    """
    from apricot import FacilityLocationSelection
    from scipy.sparse import csr_matrix
    from sklearn.neighbors import kneighbors_graph

    found = kneighbors_graph(x.astype(np.float32), NEIGHBOURS, mode="distance", include_self=True)
    values = (found.data.max() - found.data).astype(np.float64)
    indices = found.indices.astype(np.int32), found.indptr.astype(np.int32)
    graph = csr_matrix((values, *indices), found.shape)
    return FacilityLocationSelection(size, metric="precomputed", random_state=0).fit(graph).ranking


def coreax_map_reduce(x, y, size):
    """Kernel herding in leaves, joined and reduced again."""
    import jax
    import jax.numpy as jnp
    from coreax import Data, SquaredExponentialKernel
    from coreax.kernels import median_heuristic
    from coreax.solvers import KernelHerding, MapReduce

    jax.config.update("jax_platforms", "cpu")
    points = jnp.asarray(x.astype(np.float32))
    scale = float(median_heuristic(points[:BATCH]))
    solver = KernelHerding(size, kernel=SquaredExponentialKernel(length_scale=scale))
    whole = MapReduce(solver, leaf_size=max(LEAF, 2 * size))
    return np.asarray(whole.reduce(Data(points))[0].unweighted_indices)


def bicore_default(x, y, size):
    from bicore import Runtime, select

    return select(x, y, size, runtime=Runtime("cpu")).indices


def bicore_passes(x, y, size):
    from bicore.runtime.context import Runtime
    from bicore.shards import select_from_shards
    from bicore.sources.parts import ArrayShards

    return select_from_shards(ArrayShards(x, y), size, runtime=Runtime("cpu")).indices


METHODS = {
    "bicore": bicore_default,
    "bicore, passes": bicore_passes,
    "apricot facility location": apricot_dense,
    "apricot facility location, sparse": apricot_sparse,
    "coreax map-reduce herding": coreax_map_reduce,
    "MiniBatchKMeans": mini_batch_k_means,
    "k-center": k_center,
    "uniform": uniform,
    "class-balanced": class_balanced,
}


if __name__ == "__main__":
    name, x, y, size, out = sys.argv[1:]
    rows, labels = np.load(x, mmap_mode="r"), np.load(y)
    began = time.process_time()
    picks = np.asarray(METHODS[name](rows, labels, int(size)), dtype=np.int64)
    seconds = time.process_time() - began
    if len(set(picks.tolist())) != int(size):
        raise SystemExit(f"{len(set(picks.tolist()))} distinct picks where {size} were asked for")
    np.save(out, picks)
    print(json.dumps({"seconds": seconds}))
