"""Data sources: small files written by the tests."""

import gzip

import numpy as np
import pytest

from bicore.sources import digits, mnist
from bicore.sources.base import fit_scaling
from bicore.sources.opening import open_source
from tests.fuzzing import idx
from tests.helpers import refuses

PIXELS = np.random.default_rng(0).integers(0, 256, size=(6, 28, 28), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 3, 4, 5], dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for split in ("train", "t10k"):
        (raw / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(PIXELS)))
        (raw / f"{split}-labels-idx1-ubyte").write_bytes(idx(LABELS))
    return tmp_path


def test_mnist_is_read_gzipped_or_not_and_standardised(folder):
    x, y = mnist(folder)
    assert x.shape == (6, 1, 28, 28)
    np.testing.assert_allclose(x[:, 0], (PIXELS / 255 - 0.1307) / 0.3081, rtol=1e-5)
    assert y.tolist() == LABELS.tolist()
    assert len(mnist(folder, "test", limit=4)[0]) == 4


def test_mnist_refusals(folder, tmp_path):
    refuses(r"does not hold train-images.*torchvision", mnist, tmp_path / "elsewhere")
    refuses("split='valid'", mnist, folder, "valid")
    path = folder / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refuses(r"train-images.*truncated", mnist, folder)
    path.write_bytes(gzip.compress(idx(PIXELS)[:-5]))
    refuses("truncated", mnist, folder)
    path.write_bytes(gzip.compress(idx(LABELS) + b"0" * 9))
    refuses("not have 3 dimensions", mnist, folder)
    path.write_bytes(gzip.compress(idx(PIXELS[:3])))
    refuses("3 images and 6 labels", mnist, folder)


def test_digits():
    x, y = digits()
    assert x.shape == (1797, 64)
    assert 0 <= x.min() < x.max() == 1
    assert sorted(set(y)) == list(range(10))


def test_arrays_under_each_others_ending_are_refused(tmp_path):
    np.savez(tmp_path / "several.npz", x=np.ones((2, 1)), y=np.arange(2))
    np.save(tmp_path / "one.npy", np.ones((2, 1)))
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    refuses(
        r"one\.npz has the ending \.npz .*name it \.npy", open_source, str(tmp_path / "one.npz")
    )
    several = str(tmp_path / "several.npy")
    refuses(
        r"several\.npy has the ending \.npy .*name it \.npz", open_source, several, labels=several
    )


@pytest.mark.parametrize("value", [0.3, 100000.1])
def test_constant_columns_become_zero_despite_rounding(value):
    x = np.c_[np.full(10, value), np.arange(10.0)]
    scaling = fit_scaling(x)
    assert (scaling(x)[:, 0] == 0).all()
    np.testing.assert_allclose(scaling(x + 0.5)[:, 0], 0.5)
