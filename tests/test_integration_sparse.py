"""Sparse rows: the picks of dense rows, without dense copies."""

import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from bicore import Dataset, Runtime, estimate, select
from bicore.data import join_datasets
from bicore.kernels import RBF, Linear, Normalised, Nystrom
from bicore.methods.registry import greedy_selector
from tests.helpers import refuses

WORDS = np.array([f"word{number}" for number in range(400)])


def texts(n: int = 120) -> tuple[sparse.csr_matrix, np.ndarray]:
    """TF-IDF of made-up texts of three kinds, with a text that occurs twice."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    pages = [
        " ".join(
            WORDS[np.concatenate([rng.integers(0, 400, 12), kind * 9 + rng.integers(0, 9, 4)])]
        )
        for kind in y
    ]
    pages[7], y[7] = pages[3], y[3]
    return TfidfVectorizer().fit_transform(pages), y


#: A limit below the matrix of all pairs, which is then computed in blocks.
SMALL = Runtime(memory=120_000)
QUICK = {"inner_reg": 0.1, "strategy": "greedy"}
OPTIONS = {
    "linear": {"kernel": "linear", **QUICK},
    "rbf": {"kernel": "rbf", **QUICK},
    "blocks": {"kernel": "rbf", "exact": True, "runtime": SMALL, **QUICK},
    "automatic": {"kernel": "rbf"},
    "weights": {"kernel": "rbf", "inner_reg": 0.1, "weighting": "final"},
    "cross-entropy": {"kernel": "rbf", "inner_reg": 0.1, "loss": "cross-entropy"},
    "sum": {"kernel": RBF(0.3) + 0.5 * Linear(bias=1.0), "inner_reg": 0.1},
    "cosine": {"kernel": Normalised(Linear()), "inner_reg": 0.1, "rule": "gain"},
    "landmarks": {"kernel": Nystrom(RBF(), 40), "inner_reg": 0.1},
    "float32": {"kernel": "rbf", "inner_reg": 0.1, "runtime": Runtime(dtype="float32")},
}
FAST = ("linear", "rbf")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in FAST)) for one in OPTIONS]
)
def test_picks_are_those_of_dense_rows(name):
    x, y = texts()
    options = OPTIONS[name]
    loose, dense = select(x, y, 12, **options), select(x.toarray(), y, 12, **options)
    assert loose.indices.tolist() == dense.indices.tolist()
    np.testing.assert_allclose(loose.weights, dense.weights, rtol=1e-4)
    assert loose.objective == pytest.approx(dense.objective, rel=1e-5)


@pytest.mark.slow
def test_the_blocks_of_the_small_memory_are_blocks():
    x, y = texts()
    assert estimate(x, y, 12, **OPTIONS["blocks"]).operator == "blocked"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["linear", "rbf", "cross-entropy", "landmarks", "blocks"])
def test_picks_on_a_gpu_are_those_of_the_host(name):
    x, y = texts()
    memory = SMALL.memory if name == "blocks" else None
    options = {**OPTIONS[name], "runtime": Runtime(device="cuda", memory=memory)}
    found, host = select(x, y, 12, **options), select(x, y, 12, **OPTIONS[name])
    assert found.details["device"].startswith("cuda")
    assert found.indices.tolist() == host.indices.tolist()


@pytest.mark.parametrize("kernel", ["linear", "rbf", "auto"])
def test_sparse_rows_are_never_fully_dense(kernel):
    rng = np.random.default_rng(0)
    columns = 200_000
    places = (np.repeat(np.arange(100), 20), rng.integers(0, columns, 2000))
    x = sparse.csr_matrix((np.ones(2000), places), shape=(100, columns))
    y = rng.integers(0, 2, 100)
    select(x[:20], y[:20], 2, kernel=kernel, **QUICK)  # what is imported counts for nothing
    tracemalloc.start()
    try:
        select(x, y, 5, kernel=kernel, **QUICK)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # NumPy's memory alone is traced; a hundredth of the dense rows would be seen.
    assert peak < 100 * columns * 8 / 100


def test_automatic_choices_are_noted():
    x, y = texts()
    coreset = select(x, y, 8, **QUICK)
    assert coreset.provenance.kernel == "normalised linear with intercept"
    assert "x is sparse" in coreset.provenance.notes[0]
    assert select(x, y, 10, initial=coreset, **QUICK).indices[:8].tolist() == list(coreset)


def test_every_form_of_a_sparse_matrix_is_one_data_set():
    x, y = texts()
    twice = sparse.coo_matrix(
        (np.r_[x.data / 2, x.data / 2], (np.tile(x.tocoo().row, 2), np.tile(x.tocoo().col, 2))),
        shape=x.shape,
    )
    prints = {
        Dataset(form, y).fingerprint()
        for form in (x, x.tocsc(), x.tocoo(), x.tolil(), sparse.csr_array(x), twice)
    }
    assert len(prints) == 1
    data = Dataset(x, y)
    assert Dataset(x[:50], y[:50]).fingerprint() not in prints
    both = join_datasets(data[:50], data[50:])
    np.testing.assert_array_equal(both.x.matrix.toarray(), x.toarray())
    assert pickle.loads(pickle.dumps(data)).fingerprint() in prints
    assert Dataset(x.astype(np.int64), y).x.dtype == np.float64
    predicted = greedy_selector("rbf", inner_reg=0.01).predict(data, x[:9])
    dense = greedy_selector("rbf", inner_reg=0.01).predict(Dataset(x.toarray(), y), x[:9].toarray())
    assert predicted.tolist() == dense.tolist()


def test_distances_of_equal_and_near_rows_do_not_cancel():
    base = sparse.random(1, 50, density=0.5, random_state=0, format="csr") * 1e4
    near = base.copy()
    near.data[0] += 1e-4
    rows = sparse.vstack([base, base, near]).tocsr()
    found = RBF(gamma=1e6)(rows)
    expected = np.exp(-1e6 * (near.data[0] - base.data[0]) ** 2)
    assert found[0, 1] == 1.0
    assert found[0, 2] == pytest.approx(expected, rel=1e-6)


def test_methods_that_need_dense_rows_are_refused():
    x, y = texts()
    for options in (
        {"kernel": "laplace"},
        {"kernel": "ntk"},
        {"kernel": lambda a, b: a @ b.T},
        {"method": "k-center-features"},
        {"method": "reconstruction"},
    ):
        refuses(r"x is sparse.*toarray\(\)", select, x, y, 5, **options)
    for one, other in ((x, x.toarray()), (x.toarray(), x)):
        refuses("both in one form", select, one, y, 5, kernel="rbf", outer=(other, y))
    for blind in ("uniform", "class-balanced"):
        assert len(select(x, y, 5, method=blind)) == 5
    refuses("row 1, column 2", Dataset, sparse.csr_matrix([[0.0, 1.0, 0.0], [0.0, 0.0, np.inf]]))
    refuses("dtype complex", Dataset, sparse.csr_matrix(np.eye(2) * 1j))
    refuses("at least one row", Dataset, sparse.csr_matrix((0, 3)))
    refuses("only x may be", Dataset, x, sparse.csr_matrix(y))
    assert not torch.is_tensor(Dataset(x).x)
