"""Sources in parts: every kind gives the same rows, and errors name the shard."""

import json
import pickle
import tracemalloc
import zipfile
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from bicore import Dataset, InputError, estimate, select
from bicore.errors import StorageError
from bicore.sources import embed_to_folder, encode_table
from bicore.sources.arrow_files import HuggingFaceShards, ParquetShards
from bicore.sources.numpy_files import NpyShards, NpzShards
from bicore.sources.opening import open_shards
from bicore.sources.parts import ArrayShards, Chunk, IterableShards, Part, check_values
from bicore.sources.tables import Encoder
from tests.helpers import DataSet, fails, refuses

SIZES = (10, 7, 4)
ROWS = sum(SIZES)
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
Y = np.arange(ROWS) % 4
WEIGHT = 1.0 + np.arange(ROWS) / 8
CUTS = np.cumsum(SIZES)[:-1]


def pieces(*columns):
    return list(zip(*(np.split(column, CUTS) for column in columns), strict=True))


def table(x, y, weight):
    return pyarrow.table({"embedding": list(x), "label": y, "w": weight})


def write(path, content, **options):
    pyarrow.parquet.write_table(content, path, **options)


def chunks():
    yield from pieces(X, Y, WEIGHT)


def make_arrays(folder):
    return ArrayShards(X, Y, WEIGHT, part_rows=8)


def make_map(folder):
    np.save(folder / "x.npy", X)
    return ArrayShards(np.load(folder / "x.npy", mmap_mode="r"), Y, WEIGHT, part_rows=8)


def make_npy(folder):
    for number, (x, y, weight) in enumerate(pieces(X, Y, WEIGHT)):
        np.save(folder / f"x-{number}.npy", x)
        np.save(folder / f"y-{number}.npy", y)
        np.save(folder / f"w-{number}.npy", weight)
    return NpyShards(folder / "x-*.npy", folder / "y-*.npy", str(folder / "w-*.npy"), part_rows=4)


def make_npz(folder):
    for number, (x, y, weight) in enumerate(pieces(X, Y, WEIGHT)):
        save = np.savez if number else np.savez_compressed
        save(folder / f"part-{number}.npz", x=x, y=y, weight=weight)
    return NpzShards(folder)


def make_lists(folder):
    for number, columns in enumerate(pieces(X, Y, WEIGHT)):
        write(folder / f"part-{number}.parquet", table(*columns), row_group_size=4)
    return ParquetShards(folder, "embedding", "label", "w")


def make_columns(folder):
    names = ["a", "b", "c"]
    whole = pyarrow.table({**dict(zip(names, X.T, strict=True)), "label": Y, "w": WEIGHT})
    write(folder / "all.parquet", whole, row_group_size=9)
    return ParquetShards(folder / "all.parquet", names, "label", "w")


def make_huggingface(folder):
    return HuggingFaceShards(DataSet(table(X, Y, WEIGHT)), "embedding", "label", "w", part_rows=8)


def make_iterable(folder):
    return IterableShards(chunks)


def make_list(folder):
    return IterableShards(pieces(X, Y, WEIGHT))


KINDS = [make_arrays, make_map, make_npy, make_npz, make_lists, make_columns]
KINDS += [make_huggingface, make_iterable, make_list]


def read_all(source):
    read = [source.read(part) for part in source.parts]
    return [
        None
        if getattr(read[0], name) is None
        else np.concatenate([getattr(one, name) for one in read])
        for name in ("x", "y", "weight")
    ]


@pytest.mark.parametrize("make", KINDS)
def test_every_kind_gives_the_rows_in_parts(make, tmp_path):
    source = make(tmp_path)
    assert [part.number for part in source.parts] == list(range(len(source.parts)))
    assert len(source.parts) > 1
    assert source.parts[0].start == 0
    assert all(a.stop == b.start for a, b in zip(source.parts, source.parts[1:], strict=False))
    assert (source.rows, source.shape, source.labelled) == (ROWS, (3,), True)
    for part in source.parts:
        assert len(source.read(part)) == part.count
    encoded = X.astype(np.float64) if make is make_columns else X
    for found, wanted in zip(read_all(source), (encoded, Y, WEIGHT), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
    backwards = [source.read(part).x for part in source.parts[::-1]][::-1]
    np.testing.assert_array_equal(np.concatenate(backwards), X)
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(read_all(again)[0], X)
    assert again.fingerprint() == source.fingerprint()
    assert len(source.fingerprint()) == 16
    assert source.name


def test_rows_know_their_place_in_their_file(tmp_path):
    source = make_npy(tmp_path)
    part = source.parts[4]
    assert (part.start, part.offset, part.count) == (14, 4, 3)
    assert part.place.endswith("x-1.npy")
    (tmp_path / "tables").mkdir()
    part = make_lists(tmp_path / "tables").parts[4]
    assert (part.start, part.offset, part.count) == (14, 4, 3)
    assert part.place.endswith("part-1.parquet, row group 1")


def test_pickles_carry_no_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100_000, 4), dtype=np.float16))
    np.savez(tmp_path / "x.npz", x=np.zeros((100_000, 4), dtype=np.float16))
    for source in (NpyShards(tmp_path / "x.npy"), NpzShards(tmp_path / "x.npz")):
        assert len(pickle.dumps(source)) < 3000


def test_only_the_requested_part_is_read(tmp_path):
    x = np.zeros((40_000, 32), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    whole = pyarrow.table({"e": pyarrow.FixedSizeListArray.from_arrays(x.ravel(), 32)})
    write(tmp_path / "x.parquet", whole, row_group_size=4000)
    for source in (
        NpyShards(tmp_path / "x.npy", part_rows=4000),
        ParquetShards(tmp_path / "x.parquet"),
    ):
        pyarrow.default_memory_pool().release_unused()
        tracemalloc.start()
        before = pyarrow.total_allocated_bytes()
        chunk = source.read(source.parts[3])
        peak = tracemalloc.get_traced_memory()[1] + pyarrow.total_allocated_bytes() - before
        tracemalloc.stop()
        assert peak < 2 * chunk.x.nbytes


def test_parts_in_order_are_one_run():
    runs = []

    def make():
        runs.append(1)
        yield from pieces(X, Y)

    source = IterableShards(make)
    assert source.rows == ROWS
    for _ in range(2):
        read_all(source)
    assert len(runs) == 3


# What is stored, and what is read.


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("f2", "f2"),
        ("f4", "f4"),
        ("f8", "f8"),
        (">f4", "f4"),
        ("u1", "f4"),
        ("i8", "f8"),
        ("?", "f4"),
    ],
)
def test_numbers_are_read_as_the_floats_that_hold_them(stored, read, tmp_path):
    x = np.arange(6).reshape(3, 2).astype(stored)
    np.save(tmp_path / "x.npy", x)
    (found, *_) = read_all(NpyShards(tmp_path / "x.npy"))
    assert found.dtype == np.dtype(read)
    np.testing.assert_array_equal(found, x)


def test_numbers_of_tables_too(tmp_path):
    half = np.array([0.5, 1.5], dtype=np.float16)
    columns = {"a": half, "b": np.array([1, 2], dtype=np.int8), "c": [3, 4]}
    write(tmp_path / "x.parquet", pyarrow.table(columns))
    (found, *_) = read_all(ParquetShards(tmp_path / "x.parquet"))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.column_stack(list(columns.values())))


@pytest.mark.parametrize("kind", ["list", "fixed", "large", "nested"])
def test_lists_of_every_kind_with_gaps(kind, tmp_path):
    types = {
        "list": pyarrow.list_(pyarrow.float32()),
        "fixed": pyarrow.list_(pyarrow.float32(), 4),
        "large": pyarrow.large_list(pyarrow.float16()),
        "nested": pyarrow.list_(pyarrow.list_(pyarrow.float32(), 2)),
    }
    rows = [None, [1, 2, 3, 4], [5, None, 7, 8], [9, 10, 11, 12]]
    if kind == "nested":
        rows = [row and [row[:2], row[2:]] for row in rows]
    try:
        column = pyarrow.array(rows, type=types[kind])
        write(tmp_path / "x.parquet", pyarrow.table({"e": column}).slice(0, 4))
        pyarrow.parquet.read_table(tmp_path / "x.parquet")
    except (pyarrow.ArrowTypeError, pyarrow.ArrowInvalid) as error:
        pytest.skip(f"pyarrow {pyarrow.__version__} itself cannot: {error}")
    source = ParquetShards(tmp_path / "x.parquet")
    (x, *_) = read_all(source)
    assert source.shape == ((2, 2) if kind == "nested" else (4,))
    wanted = np.array([[np.nan] * 4, [1, 2, 3, 4], [5, np.nan, 7, 8], [9, 10, 11, 12]])
    np.testing.assert_array_equal(x.reshape(4, 4), wanted)
    clean, bad = check_values(source.read(source.parts[0]), source.parts[0], skip_bad=True)
    assert bad == 2
    assert clean.weight.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (pyarrow.array(["cat", "tiger"]), "U5"),
        (pyarrow.array(["cat", "tiger"]).dictionary_encode(), "U5"),
        (pyarrow.array([3, 4], pyarrow.int16()), "i8"),
        (pyarrow.array([True, False]), "i8"),
        (pyarrow.array([0.5, 1.5]), "f8"),
        (pyarrow.array([[0.5, 1.5], [2.5, 3.5]]), "f8"),
    ],
)
def test_labels_come_as_stored(labels, dtype, tmp_path):
    write(tmp_path / "x.parquet", pyarrow.table({"a": [0.0, 1.0], "y": labels}))
    _, y, _ = read_all(ParquetShards(tmp_path / "x.parquet", target="y"))
    assert y.dtype == np.dtype(dtype)
    assert y.tolist() == labels.to_pylist()


@pytest.mark.parametrize(
    "labels", [["cat", None, "dog"], [1, None, 2], [True, None, False], [0.5, None, 1.5]]
)
def test_missing_labels_are_bad_rows(labels, tmp_path):
    for column in (pyarrow.array(labels), pyarrow.array(labels).dictionary_encode()):
        write(tmp_path / "x.parquet", pyarrow.table({"a": [0.0, 1.0, 2.0], "y": column}))
        source = ParquetShards(tmp_path / "x.parquet", target="y")
        part = source.parts[0]
        refuses(r"x\.parquet: row 1 .*(nan|no value) in y", check_values, source.read(part), part)
        clean, bad = check_values(source.read(part), part, skip_bad=True)
        assert (bad, clean.weight.tolist()) == (1, [1, 0, 1])
        assert set(clean.y.tolist()) <= {labels[0], labels[2]}
        assert not np.ma.isMaskedArray(clean.y)


def test_missing_durations_and_infinite_columns_are_bad_rows(tmp_path):
    gone, endless = pyarrow.array([1, None, 3], pyarrow.duration("s")), [np.inf] * 3
    write(tmp_path / "x.parquet", pyarrow.table({"a": [0.0, 1.0, 2.0], "b": endless, "y": gone}))
    for options, rows in (({}, 3), ({"drop": "b"}, 1)):
        source = open_shards(tmp_path / "x.parquet", target="y", **options)
        assert check_values(source.read(source.parts[0]), source.parts[0], True)[1] == rows


def test_one_file_of_labels_may_serve_all(tmp_path):
    make_npy(tmp_path)
    np.save(tmp_path / "all.npy", Y)
    np.testing.assert_array_equal(
        read_all(NpyShards(tmp_path / "x-*.npy", tmp_path / "all.npy"))[1], Y
    )


def test_empty_shards_are_passed_over_with_a_note(tmp_path):
    source = make_npy(tmp_path)
    for column in "xyw":
        stored = np.load(tmp_path / f"{column}-0.npy")
        np.save(tmp_path / f"{column}-00.npy", stored[:0])
    source = NpyShards(tmp_path / "x-*.npy", tmp_path / "y-*.npy")
    assert source.rows == ROWS
    assert "x-00.npy has no rows" in source.notes[0]
    np.testing.assert_array_equal(read_all(source)[1], Y)
    source = IterableShards([(X[:0], Y[:0]), (X, Y)])
    assert source.rows == ROWS
    assert "chunk 0 has no rows" in source.notes[0]
    write(tmp_path / "a.parquet", table(X[:0], Y[:0], WEIGHT[:0]))
    write(tmp_path / "b.parquet", table(X, Y, WEIGHT))
    assert "a.parquet has no rows" in ParquetShards(tmp_path, "embedding").notes[0]


# Checks of rows.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bad_row_is_an_error_or_skipped(dtype, value):
    x = np.ones((5000, 3), dtype=dtype)
    x[4321, 2] = value
    part = Part(2, 10_000, 5000, "x-1.npy", 3000)
    refuses(rf"x-1\.npy: row 7321 \(row 14321 .*{value} in column 2", check_values, Chunk(x), part)
    clean, bad = check_values(Chunk(x, np.arange(5000), np.full(5000, 2.0)), part, skip_bad=True)
    assert bad == 1
    assert clean.weight[4321] == 0
    assert clean.weight.sum() == 2 * 4999
    assert np.isfinite(clean.x).all()
    assert clean.x.dtype == dtype
    assert not np.isfinite(x[4321, 2])  # the caller's array is as it was


def test_bad_targets_and_weights_are_bad_rows():
    x = np.ones((3, 2))
    part = Part(0, 0, 3, "a")
    for chunk, words in (
        (Chunk(x, np.array([0.5, np.nan, 1.0])), "row 1 .* holds nan in y"),
        (Chunk(x, None, np.array([1.0, 1.0, -2.0])), "row 2 .* holds -2.0 in weight"),
        (Chunk(x, None, np.array([np.inf, 1.0, 2.0])), "row 0 .* holds inf in weight"),
    ):
        refuses(words, check_values, chunk, part)
        assert check_values(chunk, part, skip_bad=True)[1] == 1
    chunk, bad = check_values(Chunk(x, np.array(["a", "b", "c"])), part)
    assert (bad, chunk.y.tolist(), chunk.weight) == (0, ["a", "b", "c"], None)


# What may be wrong with a shard.


def changed_bytes(change):
    """Change the bytes of the second file of features."""

    def spoil(folder):
        path = folder / "x-1.npy"
        path.write_bytes(change(path.read_bytes()))

    return spoil


def other_array(name, array):
    return lambda folder: np.save(folder / f"{name}-1.npy", array, allow_pickle=True)


WRONG = {
    r"x-1\.npy is truncated": changed_bytes(lambda content: content[:-5]),
    r"x-1\.npy is not a readable \.npy": changed_bytes(lambda content: b"hello"),
    r"x-1\.npy .*\(-7, 3\)": changed_bytes(lambda old: old.replace(b"(7, 3), ", b"(-7, 3),", 1)),
    r"x-1\.npy holds pickled": other_array("x", np.array([{}], dtype=object)),
    r"x-1\.npy has rows of shape \(2,\)": other_array("x", np.zeros((7, 2), np.float32)),
    r"x-1\.npy has features that are integers": other_array("x", np.zeros((7, 3), np.int64)),
    r"x-1\.npy holds features of dtype <U1": other_array("x", np.full((7, 3), "a")),
    "labels: 2 files for 3": lambda folder: (folder / "y-1.npy").unlink(),
    r"y-1\.npy has 6 rows": other_array("y", Y[:6]),
    r"x-1\.npy has labels that are text": other_array("y", np.full(7, "cat")),
    r"x-1\.npy has labels of shape \(2,\)": other_array("y", np.zeros((7, 2), dtype=int)),
}


@pytest.mark.parametrize("words", WRONG)
def test_npy_shards_that_are_wrong(words, tmp_path):
    make_npy(tmp_path)
    WRONG[words](tmp_path)
    refuses(words, NpyShards, tmp_path / "x-*.npy", tmp_path / "y-*.npy")


def test_npz_shards_that_are_wrong(tmp_path):
    make_npz(tmp_path)
    path = tmp_path / "part-1.npz"
    x = X[:7]
    for content, words in (
        ({"a": x}, r"part-1\.npz has no array 'x'; it holds a"),
        ({"x": x}, r"part-1\.npz has labels that are missing and .*part-0\.npz"),
        ({"x": x, "y": Y[:6]}, r"part-1\.npz, array 'y' has 6 rows"),
        ({"x": x, "y": Y[:7]}, r"part-1\.npz has no array 'weight'; every file"),
        ({"x": x[:, :1], "y": Y[:7]}, r"part-1\.npz has rows of shape \(1,\)"),
        ({"x": x, "y": np.array([{}] * 7)}, r"part-1\.npz, array 'y' holds pickled"),
        ({"x": x, "y": Y[:7].astype(str)}, r"part-1\.npz has labels that are text"),
    ):
        np.savez(path, **content)
        refuses(words, NpzShards, tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    refuses(r"part-1\.npz is not a readable \.npz", NpzShards, tmp_path)


def header_of(text):
    """An .npy file of 24 bytes with this header."""
    line = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + bytes(24)


HEADERS = {
    "open bracket": "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1",
    "open text": "{'descr': '<f8', 'fortran_order': False, 'shape': '''(3, 1)}",
    "unknown type": "{'descr': '<q9', 'fortran_order': False, 'shape': (3, 1)}",
    "nested type": "{'descr': [('a',)], 'fortran_order': False, 'shape': (3, 1)}",
    "deep": "{'descr': " + "[" * 90,
    "wrong keys": "{3: 1}",
    "huge shape": "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1000000000)}",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_m1_damaged_headers_give_one_line(tmp_path, header):
    (tmp_path / "x.npy").write_bytes(header_of(header))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header_of(header))
    for name, kind in (("x.npy", NpyShards), ("x.npz", NpzShards)):
        with pytest.raises(InputError) as raised:
            kind(tmp_path / name)
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.slow
def test_m1_damaged_bytes_give_an_input_error(tmp_path):
    """Each byte of the three formats in turn, as far as their headers go."""
    np.save(tmp_path / "x.npy", X)
    np.savez_compressed(tmp_path / "x.npz", x=X)
    write(tmp_path / "x.parquet", pyarrow.table({"embedding": list(X)}))
    for name, kind in (("x.npy", NpyShards), ("x.npz", NpzShards), ("x.parquet", ParquetShards)):
        content = (tmp_path / name).read_bytes()
        for place in [*range(140), *range(-140, 0)]:
            spoilt = bytearray(content)
            spoilt[place] ^= 0x55
            (tmp_path / name).write_bytes(spoilt)
            with suppress(InputError):  # some bytes are values or padding
                source = kind(tmp_path / name)
                [source.read(part) for part in source.parts]


def test_parquet_shards_that_are_wrong(tmp_path):
    make_lists(tmp_path)
    path = tmp_path / "part-1.parquet"
    lists = [[1.0, 2.0, 3.0]] * 2
    for columns, words in (
        ({"embedding": lists}, r"part-1\.parquet and .*'label' is in one"),
        ({"embedding": [[1.0, 2.0]], "label": [1]}, r"part-1\.parquet has rows of shape \(2,\)"),
        ({"embedding": [[1, 2, 3]], "label": [1]}, r"part-1\.parquet has features .* integers"),
        ({"embedding": ["a"], "label": [1]}, r"part-1\.parquet: columns='embedding'"),
        ({"embedding": [[None]], "label": [None]}, r"part-1\.parquet: columns='embedding'"),
        ({"e": lists, "label": [1, 2]}, r"part-1\.parquet and .*'e' is in one"),
    ):
        weights = [1.0] * len(next(iter(columns.values())))
        write(path, pyarrow.table({**columns, "w": weights}))
        with pytest.raises(InputError, match=words):
            _ = ParquetShards(tmp_path, columns="embedding", target="label").parts
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=r"part-1\.parquet is not a readable Parquet"):
        _ = ParquetShards(tmp_path, columns="embedding", target="label").parts


def test_a_row_group_is_decoded_some_rows_at_a_time(tmp_path, monkeypatch):
    """Pages, a table and an array of a whole row group are three times its rows in memory."""
    monkeypatch.setattr("bicore.sources.arrow_files.BLOCK", 40)
    x = np.arange(60, dtype=np.float32).reshape(15, 4)
    labels = ["a"] * 9 + [None] + ["long"] * 5
    table = pyarrow.table({"x": [*x[:12], None, *x[13:]], "y": labels, "w": np.arange(15.0)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    seen, real = [], Encoder.chunk

    def watch(self, table, *rest):
        seen.append(table.num_rows)
        return real(self, table, *rest)

    monkeypatch.setattr(Encoder, "chunk", watch)
    source = ParquetShards(tmp_path / "a.parquet", "x", "y", "w")
    chunk = source.read(source.parts[0])
    assert seen == [10, 5]
    x[12] = np.nan
    np.testing.assert_array_equal(chunk.x, x)
    assert chunk.y.tolist() == labels
    assert chunk.weight.tolist() == list(range(15))


@pytest.mark.parametrize("name", ["a.npz", "a.parquet"])
def test_damaged_values_are_found_when_they_are_read(name, tmp_path):
    path = tmp_path / name
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    if name == "a.npz":
        np.savez(path, x=np.zeros((1000, 2)))
    else:
        write(path, pyarrow.table({"a": np.zeros(1000)}), **options)
    source = open_shards(path)
    content = bytearray(path.read_bytes())
    content[5000] = 1
    path.write_bytes(content)
    refuses(f"{name} .*CRC", source.read, source.parts[0])


def test_lists_of_other_lengths_are_named_by_their_row(tmp_path):
    rows = [[1.0, 2.0]] * 5 + [[1.0]]
    write(tmp_path / "a.parquet", pyarrow.table({"e": rows}), row_group_size=4)
    source = ParquetShards(tmp_path)
    refuses(r"a\.parquet, row group 1: row 5 ", source.read, source.parts[1])


def test_features_of_a_table_are_those_of_a_table_in_memory(tmp_path):
    path = tmp_path / "a.parquet"
    content = pyarrow.table({"id": [1, 2, 3], "e": [[1.0, 2.0]] * 3, "y": [0, 1, 0], "t": [*"aba"]})
    write(path, content)
    for source in (ParquetShards(path, target="y"), HuggingFaceShards(DataSet(content), y="y")):
        assert any("excluded columns: id" in note for note in source.notes)
        np.testing.assert_array_equal(read_all(source)[0], encode_table(content, "y").data.x)
    source = ParquetShards(path, "e", target="y")
    assert source.shape == (2,)
    assert "column 'e'" in source.notes[0]
    write(path, pyarrow.table({"y": [1]}))
    with pytest.raises(InputError, match="no column can be used as a feature"):
        _ = ParquetShards(path, target="y").parts


def test_all_empty_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X[:0])
    np.savez(tmp_path / "x.npz", x=X[:0])
    write(tmp_path / "x.parquet", table(X[:0], Y[:0], WEIGHT[:0]))
    for name in ("x.npy", "x.npz", "x.parquet"):
        refuses(rf"{name}: there are no rows", open_shards, tmp_path / name)
    with pytest.raises(InputError, match="no rows in 1 shards"):
        _ = IterableShards([(X[:0], Y[:0])]).rows
    refuses("at least one row", ArrayShards, X[:0])


# Sources that change.


@pytest.mark.parametrize("rows", [20, 900])
def test_a_shard_that_changed_is_noticed_when_it_is_read(rows, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((500, 3)))
    np.savez(tmp_path / "x.npz", x=np.zeros((500, 3)))
    write(tmp_path / "x.parquet", pyarrow.table({"a": np.zeros(500)}))
    opened = [open_shards(tmp_path / f"x.{ending}") for ending in ("npy", "npz", "parquet")]
    np.save(tmp_path / "x.npy", np.zeros((rows, 3)))
    np.savez(tmp_path / "x.npz", x=np.zeros((rows, 3)))
    write(tmp_path / "x.parquet", pyarrow.table({"a": np.zeros(rows)}))
    for source in opened:
        refuses(r"changed since it was opened: it was .*open", source.read, source.parts[0])


def test_an_iterable_that_changes_is_noticed():
    rng = np.random.default_rng(0)
    source = IterableShards(lambda: ((rng.normal(size=(4, 2)), None) for _ in range(3)))
    refuses(r"chunk 0 changed .* do not shuffle", source.read, source.parts[0])
    with pytest.raises(InputError, match="generator"):  # which runs once only
        IterableShards(chunk for chunk in [(X, Y)])
    grows = [(X, Y)]
    source = IterableShards(grows)
    assert source.rows == ROWS
    grows.append((X, Y))
    refuses("1 chunks long and is longer", source.read, source.parts[0])
    once = iter([(X, Y), (X, Y)])
    source = IterableShards(lambda: once)
    assert source.rows == 2 * ROWS
    refuses(r"not there.*new iterator when called", source.read, source.parts[0])


def test_chunks_that_do_not_agree_are_named():
    for second, words in (
        ((X[:, :2], Y), r"chunks, chunk 1 has rows of shape \(2,\)"),
        ((X, Y.astype(str)), "chunk 1 has labels that are text"),
        ((X, None), "chunk 1 has labels that are missing"),
        ((X, Y[:3]), "chunk 1: y has shape"),
        ((X, Y, WEIGHT, Y), "chunk 1: a chunk holds 4 values"),
    ):
        with pytest.raises(InputError, match=words):
            _ = IterableShards([(X, Y), second]).parts


@pytest.mark.parametrize("make", [make_npy, make_npz, make_lists])
def test_fingerprints_of_files(make, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    source = make(first)
    known = source.fingerprint()
    assert make(second).fingerprint() == known  # neither folders nor times are in it
    path = sorted(first.iterdir())[-1]
    content = path.read_bytes()
    path.write_bytes(content + b"\0")
    assert source.fingerprint() != known
    path.write_bytes(content[:-1])
    assert source.fingerprint() != known
    path.write_bytes(content[:-20] + b"\7" + content[-19:])
    assert source.fingerprint() != known
    path.write_bytes(content)
    assert source.fingerprint() == known
    path.unlink()
    refuses("cannot be read any more", source.fingerprint)


def test_fingerprints_of_the_rest():
    base = ArrayShards(X, Y, WEIGHT).fingerprint()
    other = X.copy()
    other[-1, -1] += 1
    unlike = [(other, Y, WEIGHT), (X, Y + 1, WEIGHT), (X, Y, None), (X[1:], Y[1:], WEIGHT[1:])]
    for columns in unlike:
        assert ArrayShards(*columns).fingerprint() != base
        assert IterableShards([columns]).fingerprint() != IterableShards(chunks).fingerprint()
    known = make_huggingface(None).fingerprint()
    assert (
        HuggingFaceShards(DataSet(table(other, Y, WEIGHT)), "embedding", "label", "w").fingerprint()
        != known
    )


def test_options_are_in_the_fingerprint(tmp_path):
    write(tmp_path / "a.parquet", pyarrow.table({"a": [1.0], "b": [2.0], "y": [0]}))
    found = {
        ParquetShards(tmp_path, features, target).fingerprint()
        for features, target in ((["a"], "y"), (["a", "b"], "y"), (["a"], None))
    }
    assert len(found) == 3


# Hugging Face.


def test_data_sets_that_cannot_be_read_in_parts():
    refuses("dataset has type object; give one split", HuggingFaceShards, object())
    unread = DataSet(table(X, Y, WEIGHT))
    unread.select_columns = None
    for use in (
        open_shards,
        partial(select, size=3, passes=True),
        partial(estimate, size=3, rule="gradient", passes=True),
    ):
        refuses("target is missing; name one of embedding, label, w", use, unread)
    splits = DataSet(table(X, Y, WEIGHT))
    splits.keys = lambda: ["train", "test"]
    refuses("holds the splits train, test; give one", HuggingFaceShards, splits)
    with pytest.raises(InputError, match="no rows"):
        _ = HuggingFaceShards(DataSet(table(X[:0], Y[:0], WEIGHT[:0]))).parts


def test_a_real_data_set_on_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "embedding": datasets.Sequence(datasets.Value("float32"), length=3),
            "image": datasets.Array2D((3, 1), "float32"),
            "label": datasets.ClassLabel(names=list("abcd")),
        }
    )
    columns = {"embedding": list(X), "image": list(X[:, :, None]), "label": Y}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "set")
    dataset = datasets.load_from_disk(tmp_path / "set")
    source = HuggingFaceShards(dataset, x="embedding", y="label", part_rows=8)
    source = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(read_all(source)[0], X)
    np.testing.assert_array_equal(read_all(source)[1], Y)
    shuffled = dataset.select([5, 3, 1])
    image = HuggingFaceShards(shuffled, x="image", y="label")
    assert image.shape == (3, 1)
    np.testing.assert_array_equal(read_all(image)[0][..., 0], X[[5, 3, 1]])
    assert open_shards(dataset, columns="embedding", target="label").rows == ROWS
    assert image.fingerprint() != source.fingerprint()


# Embedding.


def loader(rows=20, **options):
    x = torch.arange(4.0 * rows).reshape(rows, 4) / 100
    data = torch.utils.data.TensorDataset(x, torch.arange(rows))
    return torch.utils.data.DataLoader(data, batch_size=3, **options), x


class Counting(torch.nn.Module):
    """A module that counts its calls, and fails at one of them."""

    def __init__(self, fails=None, scale=1.0):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        torch.nn.init.constant_(self.linear.weight, scale)
        torch.nn.init.zeros_(self.linear.bias)
        self.calls = 0
        self.fails = fails

    def forward(self, x):
        self.calls += 1
        if self.calls == self.fails:
            raise KeyboardInterrupt
        return self.linear(x)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_embedding_once_and_for_all(dtype, tmp_path):
    batches, x = loader()
    module = Counting()
    module.linear.eval()
    source = embed_to_folder(batches, module, tmp_path, dtype=dtype, shard_rows=6)
    wanted = x.sum(dim=1, keepdim=True).expand(-1, 2).numpy().astype(dtype)
    found, y, _ = read_all(source)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
    np.testing.assert_array_equal(y, np.arange(20))
    assert [part.count for part in source.parts] == [6, 6, 6, 2]
    assert (module.training, module.linear.training) == (True, False)
    assert module.calls == 7
    embed_to_folder(batches, module, tmp_path, dtype=dtype, shard_rows=6)
    assert module.calls == 7
    again = open_shards(tmp_path)
    np.testing.assert_array_equal(read_all(again)[1], y)
    assert again.fingerprint() == source.fingerprint()


def test_embedding_continues_after_an_interrupt(tmp_path):
    batches, _ = loader()
    with pytest.raises(KeyboardInterrupt):
        embed_to_folder(batches, Counting(fails=6), tmp_path, shard_rows=6)
    assert sorted(path.name for path in tmp_path.glob("x-*")) == ["x-00000.npy", "x-00001.npy"]
    # The state after a kill: a partly written file, and labels without features.
    (tmp_path / ".x-00002.1.part.npy").write_bytes(b"half")
    np.save(tmp_path / "y-00002.npy", np.zeros(1))
    before = (tmp_path / "x-00000.npy").stat().st_mtime_ns
    module = Counting()
    source = embed_to_folder(batches, module, tmp_path, shard_rows=6)
    assert module.calls == 3
    assert (tmp_path / "x-00000.npy").stat().st_mtime_ns == before
    whole = embed_to_folder(batches, Counting(), tmp_path / "whole", shard_rows=6)
    for one, other in zip(read_all(source)[:2], read_all(whole)[:2], strict=True):
        np.testing.assert_array_equal(one, other)


def test_full_disk_keeps_finished_shards(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        words = "No space left on device: the embedding could not be written.*free disk space"
        told = fails(StorageError, words, embed_to_folder, loader()[0], Counting(), tmp_path)
    assert "\n" not in told
    assert len(read_all(embed_to_folder(loader()[0], Counting(), tmp_path))[0]) == 20


def test_embeddings_are_not_mixed(tmp_path):
    batches, _ = loader()
    with pytest.raises(KeyboardInterrupt):
        embed_to_folder(batches, Counting(fails=4), tmp_path, shard_rows=6)
    given = {"loader": batches, "module": Counting(), "folder": tmp_path, "shard_rows": 6}
    for change, words in (
        ({"module": Counting(scale=2.0)}, "module="),
        ({"loader": loader(30)[0]}, "batches=7"),
        ({"dtype": "float32"}, "dtype='float16'"),
    ):
        refuses(words, embed_to_folder, **{**given, **change})
    (tmp_path / "embedding.json").write_text("{")
    refuses(r"embedding\.json is damaged", embed_to_folder, batches, Counting(), tmp_path)
    (tmp_path / "embedding.json").write_text("{}")
    refuses("module=None.*another folder", embed_to_folder, batches, Counting(), tmp_path)
    (tmp_path / "embedding.json").unlink()
    refuses(r"without embedding\.json", embed_to_folder, batches, Counting(), tmp_path)


@pytest.mark.parametrize(
    "changed",
    [(torch.ones(4, 4), torch.arange(4)), (torch.zeros(4, 4), torch.ones(4)), (torch.ones(4, 4),)],
)
def test_a_complete_embedding_of_other_rows_is_refused(changed, tmp_path):
    def embed(*columns):
        rows = torch.utils.data.TensorDataset(*columns)
        batches = torch.utils.data.DataLoader(rows, batch_size=2)
        return embed_to_folder(batches, Counting(), tmp_path)

    embed(torch.zeros(4, 4), torch.arange(4))
    assert embed(torch.zeros(4, 4), torch.arange(4)).rows == 4
    refuses("first_batch=.*another folder", embed, *changed)
    record = tmp_path / "embedding.json"
    older = json.loads(record.read_text())
    del older["first_batch"]  # as in version 0.2
    record.write_text(json.dumps(older))
    assert embed(*changed).rows == 4


@pytest.mark.parametrize(
    ("batches", "module", "options", "words"),
    [
        (loader(shuffle=True)[0], Counting(), {}, "shuffle=False"),
        (loader(drop_last=True)[0], Counting(), {}, "drop_last=False"),
        (loader()[0], Counting(scale=1e6), {}, "dtype='float32'"),
        (loader()[0], torch.nn.LSTM(4, 2), {}, "one tensor"),
        ([{"x": torch.zeros(3, 4)}], Counting(), {}, "loader gives a dict"),
        (loader()[0], Counting(), {"dtype": "int8"}, "dtype='int8'"),
    ],
)
def test_rows_that_cannot_be_embedded(batches, module, options, words, tmp_path):
    refuses(words, embed_to_folder, batches, module, tmp_path, **options)


# Opening.


def test_source_is_opened_by_its_type(tmp_path):
    tables, arrays, archives = (tmp_path / name for name in ("tables", "arrays", "archives"))
    for folder in (tables, arrays, archives):
        folder.mkdir()
    make_lists(tables)
    make_npy(arrays)
    make_npz(archives)
    (tables / "_SUCCESS").write_text("")
    (tables / "_metadata.parquet").write_text("")
    (tables / ".part-0.parquet.crc").write_text("")
    columns = {"columns": "embedding", "target": "label", "sample_weight": "w"}
    for source in (
        open_shards(tables, **columns),
        open_shards(str(tables / "part-*.parquet"), **columns),
        open_shards(sorted(tables.glob("part-*.parquet")), **columns),
        open_shards(arrays),
        open_shards(
            arrays / "x-*.npy", labels=arrays / "y-*.npy", sample_weight=arrays / "w-*.npy"
        ),
        open_shards(archives),
        open_shards(archives, sample_weight="weight"),
        open_shards(X, labels=Y, sample_weight=WEIGHT),
        open_shards(torch.from_numpy(X), labels=torch.from_numpy(Y), sample_weight=WEIGHT),
        open_shards((X, Y, WEIGHT)),
        open_shards(Dataset(X, Y, WEIGHT)),
        open_shards(DataSet(table(X, Y, WEIGHT)), **columns),
        open_shards(chunks),
        open_shards(list(chunks())),
        open_shards(ArrayShards(X, Y, WEIGHT)),
    ):
        for found, wanted in zip(read_all(source), (X, Y, WEIGHT), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_labels_folder_of_its_own(tmp_path):
    make_npy(tmp_path)
    for name, letter in (("features", "x"), ("labels", "y")):
        (tmp_path / name).mkdir()
        for path in tmp_path.glob(f"{letter}-*.npy"):
            path.rename(tmp_path / name / path.name)
    source = open_shards(tmp_path / "features", labels=tmp_path / "labels")
    np.testing.assert_array_equal(read_all(source)[1], Y)


def test_sources_that_cannot_be_opened(tmp_path):
    make_npy(tmp_path)
    make_npz(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "named").mkdir()
    np.save(tmp_path / "named" / "x-0.npy", X)
    for given, options, words in (
        (tmp_path / "none.npy", {}, "none.npy does not exist"),
        (tmp_path / "z*.npy", {}, "no file matches .*z.*give a .npy or .npz"),
        (tmp_path / "a.txt", {}, "a.txt has an unknown file extension; give a .npy"),
        (tmp_path / "empty", {}, "no file matches .*empty.*give a .npy or .npz"),
        (tmp_path, {}, r"several kinds \(.npy, .npz\); give a pattern"),
        (tmp_path / "x-0.npy", {"target": "a"}, "target= does not apply to .npy files"),
        (tmp_path / "part-0.npz", {"labels": "a"}, "labels= does not apply to .npz files"),
        (chunks, {"labels": Y}, "labels= does not apply to an iterable"),
        (3, {}, "source has type int; give"),
        ({"x": X}, {}, "source is a dict of named columns; give arrays"),
        ((X, Y, WEIGHT, X), {}, "tuple of 4"),
        (X, {"labels": Y[:3]}, r"y has shape \(3,\) and x has 21 rows"),
        (X.astype(str), {}, "x holds features of dtype"),
        (X, {"labels": Y, "sample_weight": Y[:2]}, r"sample_weight has shape \(2,\)"),
        (tmp_path / "x-0.npy", {"labels": 3}, "labels has type int; give a file"),
        (tmp_path / "named", {"labels": Y}, "labels has type ndarray; give a file"),
        ([], {}, "there are no rows in 0 shards"),
    ):
        with pytest.raises(InputError, match=words):
            _ = open_shards(given, **options).parts
    refuses("part_rows must be an integer >= 1; got 0", ArrayShards, X, part_rows=0)
