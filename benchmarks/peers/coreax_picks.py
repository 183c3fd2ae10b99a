"""Let coreax pick out of the benchmark's pools. Not a dependency: run by an environment of its own,
on the processor.

    python3 -m venv coreax coreax/bin/pip install coreax==1.0.0 jax==0.10.2 jaxlib==0.10.2
    equinox==0.13.8 numpy==2.4.6 scikit-learn==1.9.1 coreax/bin/python
    benchmarks/peers/coreax_picks.py POOLS.npz OUT.json

POOLS.npz holds `x_{seed}` (rows, features) for every seed, and `sizes`. Labels are not read.

Notes:
SquaredExponentialKernel with coreax's median_heuristic over the whole pool; solvers with their
defaults (unique picks). No labels. Herding and RPCholesky see the pixels. Stein thinning sees 16
principal components, as in coreax's own MNIST benchmark, because its density estimate is NaN on
pixels; its SteinKernel is built explicitly with KernelDensityMatching, because coreax 1.0.0 selects
with the plain kernel when given one. Weights are not used. selection_seconds is the second call on
a pool and size, first_call_seconds the first, which compiles; both include the length scale and the
components.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from coreax import Data, KernelDensityMatching, SquaredExponentialKernel, SteinKernel
from coreax.kernels import median_heuristic
from coreax.solvers import KernelHerding, RPCholesky, SteinThinning
from picking import pick_all, row, time_pick
from sklearn.decomposition import PCA

jax.config.update("jax_platforms", "cpu")

PACKAGES = ["coreax", "jax", "jaxlib", "equinox", "numpy", "scikit-learn"]
COMPONENTS = 16

length_scale = jax.jit(median_heuristic)


# The length scale and the size are Python numbers, so filter_jit compiles for each pair of them:
# the solvers refuse traced ones.
@eqx.filter_jit
def herding(points, scale, size, key):
    solver = KernelHerding(size, kernel=SquaredExponentialKernel(length_scale=scale))
    return solver.reduce(Data(points))[0].unweighted_indices


@eqx.filter_jit
def cholesky(points, scale, size, key):
    solver = RPCholesky(size, random_key=key, kernel=SquaredExponentialKernel(length_scale=scale))
    return solver.reduce(Data(points))[0].unweighted_indices


@eqx.filter_jit
def stein(points, scale, size, key):
    score = KernelDensityMatching(length_scale=scale).match(points)
    kernel = SteinKernel(SquaredExponentialKernel(length_scale=scale), score_function=score)
    return SteinThinning(size, kernel=kernel).reduce(Data(points))[0].unweighted_indices


def pixels(x):
    return x


def components(x):
    return PCA(COMPONENTS, svd_solver="full").fit_transform(x)


METHODS = {
    "coreax kernel herding": (herding, pixels),
    "coreax RPCholesky": (cholesky, pixels),
    "coreax Stein thinning (16 components)": (stein, components),
}


def pick(method, x, size, seed):
    select, view = METHODS[method]
    points = jnp.asarray(view(x))
    return np.asarray(
        select(points, float(length_scale(points)), size, jax.random.key(seed))
    ).tolist()


def make_row(method, x, size, seed):
    call = (pick, method, x, size, seed)
    return row(method, time_pick(*call), time_pick(*call), size, len(x), seed)


if __name__ == "__main__":
    pick_all(make_row, METHODS, PACKAGES, __doc__)
