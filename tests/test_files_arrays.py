"""Damaged and unusual files of arrays, through the command."""

import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse

import bicore
from bicore.sources import opening
from bicore.sources.base import Source
from bicore.sources.opening import open_source
from tests.commands import assert_refused, assert_success, says
from tests.fuzzing import encrypt
from tests.helpers import refuses

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 2
WORDS = ("select", "--method", "uniform", "--size", "2", "--json")


def header(shape, dtype="<f8"):
    """The first bytes of an array of this shape, whatever follows."""
    file = io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()


def encode_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)


# 6. Decompression bombs.


def test_6_an_npz_that_unpacks_beyond_the_limit_is_refused_by_its_header(command, tmp_path):
    rows = 250_000  # 8 MB in 8 kB
    archive(tmp_path / "bomb.npz", {"x": header((rows, 4)) + bytes(rows * 32), "y": encode_npy(Y)})
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    assert_refused(
        command(*WORDS, "bomb.npz", "--memory", "1MB"),
        "bomb.npz, array 'x' of shape 250000×4 would take 8 MB, and the memory limit is 1 MB",
    )
    says(command(*WORDS, "bomb.npz", "--memory", "1MB", "--limit", "60"), "60 rows")


def test_6_integers_count_as_floats_in_the_memory_limit(command, tmp_path):
    np.savez_compressed(tmp_path / "bytes.npz", x=np.zeros((60, 4000), np.uint8), y=Y)
    assert_refused(command(*WORDS, "bytes.npz", "--memory", "1MB"), "would take 1.92 MB")


def test_6_sparse_matrix_is_made_dense_only_if_it_fits(command, tmp_path):
    np.save(tmp_path / "y.npy", Y)
    wide = scipy.sparse.csr_array((np.ones(60), (np.arange(60), np.arange(60))), (60, 10**6))
    scipy.sparse.save_npz(tmp_path / "wide.npz", wide)
    words = [*WORDS, "wide.npz", "--labels", "y.npy", "--memory", "20MB"]
    assert_refused(
        command(*words), "a sparse matrix, written out as 60×1000000 numbers, would take 480 MB"
    )


# 8. Damaged, encrypted, of unknown compression; lying headers.


def pack_archive(x=None):
    """The bytes of an archive of labels and these rows."""
    file = io.BytesIO()
    archive(file, {"x": x or encode_npy(X), "y": encode_npy(Y)})
    return file.getvalue()


def patch_archive(*changes):
    """An archive with other bytes at some places, counted in part from its directory."""
    content = bytearray(pack_archive())
    for place, inside, value in changes:
        content[place + inside * content.index(b"PK\x01\x02")] = value
    return bytes(content)


UNREADABLE = "not a readable .npz file"
BROKEN = {
    "encrypted": (encrypt(pack_archive()), "encrypted"),
    "of unknown compression": (patch_archive((8, 0, 99), (10, 1, 99)), "compression"),
    "damaged": (patch_archive((200, 0, pack_archive()[200] ^ 255)), UNREADABLE),
    "a text": (b"x, y", UNREADABLE),
    "empty": (b"PK\x05\x06" + bytes(18), "has no array 'x'; it holds nothing"),
    "a member that is no array": (pack_archive(b"hello"), UNREADABLE),
    "a shape that is not there": (
        pack_archive(header((60, 4)) + bytes(32)),
        "array 'x' is truncated: it has 32 of 1920 bytes",
    ),
    "a negative shape": (pack_archive(header((-60, -4))), UNREADABLE),
    "values of no bytes": (pack_archive(header((10**15,), "|V0")), UNREADABLE),
    "fields": (pack_archive(encode_npy(np.zeros(60, "f8,i4"))), "x has dtype"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_8_an_npz_that_is(command, tmp_path, name):
    content, words = BROKEN[name]
    (tmp_path / "b.npz").write_bytes(content)
    assert_refused(command(*WORDS, "b.npz"), words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header((10**12, 4)), "would take 32 TB"),
        (header((60, 4)) + bytes(100), "is truncated: it has 100 of 1920 bytes"),
        (encode_npy(X)[:50], "not a readable .npy file"),
        (b"\x93NUMPY\x01\0\xff\xff{", "not a readable .npy file"),
        (b"", "not a readable .npy file"),
    ],
)
def test_8_npy_with_a_wrong_header(command, tmp_path, content, words):
    (tmp_path / "x.npy").write_bytes(content)
    np.save(tmp_path / "y.npy", Y)
    assert_refused(command(*WORDS, "x.npy", "--labels", "y.npy"), words)


# 10. Sparse matrices.


def test_10_a_sparse_npz_is_read_with_separate_or_stored_labels(tmp_path, command):
    sparse = scipy.sparse.csr_array(X * (X > 0))
    scipy.sparse.save_npz(tmp_path / "s.npz", sparse)
    np.save(tmp_path / "y.npy", Y)
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr}
    np.savez(tmp_path / "both.npz", **parts, shape=sparse.shape, format="csr", y=Y)
    separate = open_source(str(tmp_path / "s.npz"), labels=str(tmp_path / "y.npy"), limit=50)
    inside = open_source(str(tmp_path / "both.npz"))
    np.testing.assert_array_equal(inside.data.x, X * (X > 0))
    np.testing.assert_array_equal(separate.data.x, inside.data.x[:50])
    says(command(*WORDS, "s.npz", "--labels", "y.npy"), "60 rows of 4 features")
    assert_refused(command(*WORDS, "s.npz"), "has no array 'y'", "--labels FILE.npy")
    scipy.sparse.save_npz(tmp_path / "c.npz", sparse.tocsc())
    assert_refused(
        command(*WORDS, "c.npz", "--labels", "y.npy"), "in the format 'csc'; store it by rows"
    )
    np.savez(
        tmp_path / "evil.npz",
        **parts | {"indices": sparse.indices + 99},
        shape=sparse.shape,
        format="csr",
        y=Y,
    )
    assert_refused(command(*WORDS, "evil.npz"), "evil.npz is not a readable .npz file")


def test_10_arrays_equal_those_of_numpy(tmp_path):
    """Other byte orders, columns that lie together, text and whole numbers, with and without a
    limit."""
    arrays = [X.astype(">f4"), np.asfortranarray(X), (X * 9).astype(np.int16), X[:, :, None, None]]
    for x in arrays:
        for y in (Y, Y.astype(str), X[:, :2]):
            np.savez(tmp_path / "a.npz", x=x, y=y)
            for limit in (None, 7):
                data = open_source(str(tmp_path / "a.npz"), scale="none", limit=limit).data
                np.testing.assert_array_equal(data.x, x[:limit])
                np.testing.assert_array_equal(data.y, y[:limit])


@pytest.mark.parametrize("names", [("embeddings", "labels"), ("X", "y"), ("features", "target")])
def test_m5_features_and_labels_in_one_folder_are_understood(command, tmp_path, names):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    (tmp_path / "pair").mkdir()
    for name, array in zip(names, (x, y), strict=True):
        np.save(tmp_path / "pair" / f"{name}.npy", array)
    found = assert_success(command("select", "pair", "--size", 4, "--json"))
    assert json.loads(found.stdout)["indices"] == bicore.select(x, y, 4).indices.tolist()


def test_one_entry_adds_a_reader_for_the_command_and_the_library(tmp_path, monkeypatch):
    def read(path, reading):
        rows = np.loadtxt(path)
        return Source(path.name, bicore.Dataset(rows[:, 1:], rows[:, 0].astype(int)))

    monkeypatch.setitem(opening.ARRAYS, ".rows", (read, ()))
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    file = tmp_path / "data.rows"
    np.savetxt(file, np.column_stack([y, x]), fmt="%.17g")
    expected = bicore.select(x, y, 5).indices.tolist()
    assert bicore.select(file, size=5).indices.tolist() == expected
    assert bicore.select(open_source(str(file)).data, size=5).indices.tolist() == expected
    labels = bicore.select(file, 1 - y, size=5)
    assert labels.indices.tolist() == bicore.select(x, 1 - y, 5).indices.tolist()
    refuses("drop", bicore.select, file, size=5, drop="a")
