"""Kernels of scaled points: results, fast paths, and numbers of any size."""

import numpy as np
import pytest
import torch

from bicore import Dataset, InputError
from bicore.kernels import (
    RBF,
    Kernel,
    Laplace,
    Linear,
    Normalised,
    Nystrom,
    Polynomial,
    Standardised,
    UnitRows,
    cnn,
    fully_connected,
    scaling,
)
from bicore.methods.registry import greedy_selector
from tests.helpers import refuses

ROWS = np.random.default_rng(3).normal(size=(40, 6)) * [1, 10, 0.1, 1, 1e3, 1] + [0, 5, 0, 0, 0, 9]


def standardise(x):
    deviation = x.std(0)
    return (x - x.mean(0)) / np.where(deviation > 0, deviation, 1)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("inner", [Linear(), RBF(), Laplace(), Polynomial(2), fully_connected()])
def test_scalings_are_those_of_the_rows(inner):
    np.testing.assert_allclose(Standardised(inner)(ROWS), inner(standardise(ROWS)), rtol=1e-9)
    np.testing.assert_allclose(UnitRows(inner)(ROWS), inner(unit(ROWS)), rtol=1e-9)
    both = Normalised(Standardised(inner))(ROWS)
    plain = inner(standardise(ROWS))
    lengths = np.sqrt(np.diagonal(plain))
    np.testing.assert_allclose(both, plain / lengths / lengths[:, None], rtol=1e-9)
    assert (np.diagonal(both) == 1).all()


def test_a_bandwidth_is_chosen_from_transformed_rows():
    fitted = Standardised(RBF()).fit(ROWS)
    assert fitted.kernel.gamma == pytest.approx(RBF().fit(standardise(ROWS)).gamma)
    assert UnitRows(RBF()).fit(ROWS).kernel.gamma == pytest.approx(RBF().fit(unit(ROWS)).gamma)
    # what was measured once is not measured again
    assert fitted.fit(ROWS[:5]) == fitted


def test_other_rows_are_standardised_by_the_first():
    kernel = Standardised(Linear()).fit(ROWS)
    other = (ROWS[:3] * 2 + 1 - ROWS.mean(0)) / ROWS.std(0)
    np.testing.assert_allclose(
        kernel(ROWS[:3] * 2 + 1, ROWS), other @ standardise(ROWS).T, rtol=1e-9
    )
    refuses(r"rows of shape \(5,\)", kernel, ROWS[:, :5], ROWS[:, :5])
    with pytest.raises(InputError, match=r"call \.fit\(x\) first"):
        Standardised(Linear())(ROWS, ROWS)


def test_columns_measured_in_parts_are_those_of_all(monkeypatch):
    whole = scaling.Columns.of(ROWS)
    monkeypatch.setattr(scaling, "AT_ONCE", 6 * 7)
    parts = scaling.Columns.of(ROWS)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(parts.deviation, whole.deviation, rtol=1e-12)
    np.testing.assert_allclose(whole.deviation, ROWS.std(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_columns_and_zero_rows_are_numbers(dtype):
    x = np.column_stack([np.full(5, 0.1), np.arange(5.0), np.full(5, 1e9)]).astype(dtype)
    found = Standardised(Linear())(x)
    column = standardise(np.arange(5.0)[:, None])
    np.testing.assert_allclose(found, column @ column.T, atol=1e-6)
    x[2] = 0
    for kernel in (UnitRows(Linear()), Normalised(Linear()), Normalised(UnitRows(Polynomial(2)))):
        assert np.isfinite(kernel(x)).all()
    assert not Normalised(Linear())(x)[2].any()
    assert not UnitRows(Linear())(x)[2].any()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_rows_of_any_length_have_directions_in_single_precision(size):
    x = (unit(ROWS) * size).astype(np.float32)
    np.testing.assert_allclose(UnitRows(Linear())(x), unit(ROWS) @ unit(ROWS).T, atol=1e-5)


def test_single_precision_far_from_zero_loses_no_more_than_its_rows():
    x = (np.random.default_rng(0).normal(size=(30, 4)) + 1234.56789).astype(np.float32)
    exact = Standardised(RBF()).fit(x.astype(np.float64))
    single = exact.gram(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(single, exact(x.astype(np.float64)), atol=1e-5)


def test_squares_beyond_all_numbers_are_refused():
    with pytest.raises(InputError, match="scale x"):
        Standardised(Linear())([[1e200], [-1e200]])


@pytest.mark.parametrize("wrap", [Normalised, Standardised, UnitRows])
def test_features_and_half_matrices_are_kept(wrap, monkeypatch):
    kernel = wrap(Linear()).fit(ROWS)
    points = torch.from_numpy(ROWS)
    features = kernel.features(points)
    torch.testing.assert_close(features @ features.T, kernel.gram(points))
    assert wrap(RBF()).fit(ROWS).features(points) is None
    # a kernel's own way to a symmetric matrix is asked, not its rectangle
    network = wrap(fully_connected()).fit(ROWS)
    expected = network.gram(points)

    def rectangle(self, a, b):
        raise AssertionError("the whole rectangle was computed")

    monkeypatch.setattr(type(fully_connected()), "evaluate", rectangle)
    torch.testing.assert_close(network.gram(points), expected)


def test_names_and_words():
    kernel = Normalised(Standardised(UnitRows(Linear())))
    assert kernel.name == "normalised linear on unit rows on standardised columns"
    first = Standardised(RBF(1.0)).fit(ROWS)
    other = Standardised(RBF(1.0)).fit(ROWS + 1)
    assert first == Standardised(RBF(1.0)).fit(ROWS)
    assert hash(first) == hash(Standardised(RBF(1.0)).fit(ROWS))
    assert first != other
    # the digest of a configuration is made of this
    assert repr(first) != repr(other)
    assert len(repr(first)) < 200


def test_images_keep_their_shape():
    images = np.random.default_rng(1).normal(size=(6, 1, 5, 5)) * 3 + 2
    flat = Standardised(Linear())(images.reshape(6, -1))
    np.testing.assert_allclose(Standardised(Linear())(images), flat)
    assert Standardised(cnn())(images).shape == (6, 6)


def test_a_callable_that_returns_its_own_matrix_keeps_it():
    matrix = torch.full((3, 3), 4.0, dtype=torch.float64)
    kernel = Normalised(Fixed(matrix))
    for _ in range(2):
        kernel.evaluate(torch.zeros(3, 1).double(), torch.zeros(3, 1).double())
    assert (matrix == 4).all()


class Fixed(Kernel):
    """One matrix, whatever the rows."""

    name = "fixed"

    def __init__(self, matrix):
        self.matrix = matrix

    def evaluate(self, a, b):
        return self.matrix

    def diag(self, a):
        return self.matrix.diagonal()


SCALED = {
    "features": Normalised(Standardised(Linear())),
    "matrix": Normalised(Standardised(RBF())),
    "directions": UnitRows(fully_connected()),
    "landmarks": Nystrom(Normalised(Standardised(RBF())), 12),
}


@pytest.mark.parametrize("name", SCALED)
def test_selections_with_scaled_kernels_do_not_depend_on_how_the_matrix_is_held(name):
    x = ROWS
    y = (ROWS[:, 0] > 0).astype(int)
    kernel = SCALED[name]
    chosen = greedy_selector(kernel=kernel, inner_reg=0.1).select(Dataset(x, y), 6)
    matrix = greedy_selector(kernel="precomputed", inner_reg=0.1)
    expected = matrix.select(Dataset(kernel(x), y), 6)
    assert chosen.indices.tolist() == expected.indices.tolist()
    operator = "features" if name in ("features", "landmarks") else "gram"
    assert chosen.details["operator"] == operator
