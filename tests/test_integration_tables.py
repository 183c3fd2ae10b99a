"""Columns of lists in tables of other libraries, and Hugging Face data sets."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bicore import Coreset, Dataset, select
from bicore.frames import arrow_lists
from bicore.integrations import huggingface
from bicore.integrations.huggingface import from_hf
from bicore.sources import open_shards
from tests.helpers import blobs, refuses

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = ["a", "b", "a", "b", "b", "a"]


def arrow_column(kind: pa.DataType) -> pa.ChunkedArray:
    whole = pa.array(ROWS.tolist(), type=kind)
    return pa.chunked_array([whole[:4], whole[4:]])


def frames():
    """The same embedding in every way that a table has it."""
    lists = arrow_column(pa.list_(pa.float32()))
    yield "arrow lists", lists, np.float32
    yield "arrow fixed", arrow_column(pa.list_(pa.float32(), 2)), np.float32
    yield "arrow array", lists.combine_chunks(), np.float32
    yield "arrow table", pa.table({"embedding": lists}), np.float32
    yield "pandas arrays", pd.Series(list(ROWS)), np.float32
    yield "pandas lists", pd.Series(ROWS.tolist()), np.float64
    yield "pandas frame", pd.DataFrame({"embedding": list(ROWS)}), np.float32
    held = pd.Series(lists.combine_chunks(), dtype=pd.ArrowDtype(pa.list_(pa.float32())))
    yield "pandas arrow", held, np.float32
    yield "objects", np.array([*ROWS, None], dtype=object)[:-1], np.float32


@pytest.mark.parametrize(
    ("column", "dtype"), [pytest.param(*rest, id=name) for name, *rest in frames()]
)
def test_lists_in_a_column_are_rows(column, dtype):
    data = Dataset(column, LABELS)
    assert data.x.dtype == dtype
    np.testing.assert_array_equal(data.x, ROWS)


def test_polars_lists_are_rows():
    polars = pytest.importorskip("polars", reason="polars is not installed (extra: integrations)")
    frame = polars.DataFrame({"embedding": ROWS.tolist(), "label": LABELS})
    single = frame["embedding"].cast(polars.List(polars.Float32))
    for column in (single, single.to_frame(), single.cast(polars.Array(polars.Float32, 2))):
        data = Dataset(column, frame["label"])
        assert data.x.dtype == np.float32
        np.testing.assert_array_equal(data.x, ROWS)
    plain = frame.select(polars.col("embedding").list.get(0).alias("first"), polars.lit(1.0))
    assert Dataset(plain).x.shape == (6, 2)
    chosen = Coreset(np.array([4, 0]), np.array([0.5, 2.0])).select(frame)
    assert chosen["label"].to_list() == ["b", "a"]
    assert chosen["weight"].to_list() == [0.5, 2.0]
    assert frame[Coreset(np.array([4, 0])).indices]["label"].to_list() == ["b", "a"]
    refuses("'label' already", Coreset(np.array([4])).select, frame, weight="label")
    refuses("x is a LazyFrame", select, frame.lazy(), size=2)


def test_dates_are_alike_in_pandas_and_polars():
    polars = pytest.importorskip("polars", reason="polars is not installed (extra: integrations)")
    times = pd.date_range("2020", periods=60, freq="31h")
    columns = {"when": times, "size": np.arange(60.0) % 7, "label": np.arange(60) % 3}
    for days in (times, times.date):
        frame = pd.DataFrame({**columns, "when": days})
        given = (frame, polars.from_pandas(frame), pa.Table.from_pandas(frame))
        found = [select(one, target="label", size=5).indices.tolist() for one in given]
        assert found[0] == found[1] == found[2]


class DataArray:
    """An array of xarray in memory, which has the method of Dask's collections."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __dask_graph__(self):
        return None


def test_arrays_of_xarray_are_arrays():
    x, y = blobs().x, blobs().y
    rows, labels = DataArray(x), DataArray(y)
    plain = select(x, y, 5, kernel="linear").indices.tolist()
    assert select(rows, labels, 5, kernel="linear").indices.tolist() == plain
    for source in (open_shards((rows, labels)), open_shards(rows, labels=labels)):
        assert select(source, size=5, kernel="linear").indices.tolist() == plain


@pytest.mark.slow
def test_chunks_of_dask_are_rows_also_inside_xarray():
    dask = pytest.importorskip("dask", reason="Dask is not installed (extra: dask)")
    array = pytest.importorskip("dask.array").from_array
    data_array = pytest.importorskip("xarray", reason="xarray is not installed").DataArray
    x, y = blobs().x, blobs().y
    chunked = data_array(array(x, chunks=(15, 4)), dims=("row", "column"))
    halves = [dask.delayed((x[:20], y[:20])), dask.delayed((x[20:], y[20:]))]
    plain = select(x, y, 5, kernel="linear").indices.tolist()
    for given in (
        (data_array(x), data_array(y)),
        (chunked, y),
        (chunked, data_array(array(y, chunks=10))),
        (halves,),
        (dask.delayed((x, y)),),
    ):
        assert select(*given, size=5, kernel="linear").indices.tolist() == plain


def test_a_column_of_arrow_is_not_copied():
    """The numbers of one chunk are those of the array."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 2)
    found = arrow_lists(column, "x")
    assert found is not None
    address = column.values.buffers()[1].address
    assert found.__array_interface__["data"][0] == address


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.chunked_array([pa.array([[1.0, 2.0]]), pa.array([[3.0]])]), "row 1 holds a list of 1"),
        (pa.array([[1.0, 2.0], None]), "x holds nan at row 1"),
        (pd.Series([[1.0, 2.0], [3.0]]), "row 1 holds a list of 1"),
        (pd.Series([[1.0, 2.0], None]), "row 1 holds None"),
        (pd.Series([["a", "b"], ["c", "d"]]), "x has dtype"),
        (pd.Series(["ab", "cd"]), "x holds values that are not numbers|give numbers"),
        (pd.Series([{"a": 1}, {"a": 2}]), "not numbers"),
    ],
)
def test_non_matrix_columns_are_refused_by_row(column, words):
    refuses(words, Dataset, column)


@pytest.fixture
def embedded_dataset(tmp_path):
    datasets = pytest.importorskip(
        "datasets", reason="datasets is not installed (extra: huggingface)"
    )
    data = blobs()
    kinds = datasets.Features(
        {
            "embedding": datasets.Sequence(datasets.Value("float32")),
            "label": datasets.ClassLabel(names=["red", "green", "blue"]),
            "text": datasets.Value("string"),
            "count": datasets.Value("float64"),
        }
    )
    rows = {
        "embedding": data.x.tolist(),
        "label": data.y.tolist(),
        "text": [f"row {number}" for number in range(len(data))],
        "count": np.linspace(1, 2, len(data)).tolist(),
    }
    datasets.Dataset.from_dict(rows, features=kinds).save_to_disk(tmp_path / "embedded")
    return datasets.load_from_disk(tmp_path / "embedded")


def test_rows_of_a_data_set_are_returned(embedded_dataset):
    data = from_hf(embedded_dataset, x="embedding", y="label", sample_weight="count")
    assert data.x.dtype == np.float32
    np.testing.assert_array_equal(data.x, blobs().x.astype(np.float32))
    np.testing.assert_array_equal(data.y, blobs().y)
    assert data.weights[-1] == 2.0
    coreset = select(data, size=7, kernel="rbf", inner_reg=0.1, weighting="final")
    chosen = coreset.select(embedded_dataset)
    assert chosen["text"][:] == [f"row {row}" for row in coreset]
    np.testing.assert_array_equal(chosen["weight"][:], coreset.weights)
    assert chosen.features["label"].names == ["red", "green", "blue"]
    assert embedded_dataset.select(coreset)["text"][:] == chosen["text"][:]
    refuses("'text' already", coreset.select, embedded_dataset, weight="text")


def test_selected_and_shuffled_data_set_keeps_its_rows(embedded_dataset):
    part = embedded_dataset.shuffle(seed=1).select(range(5, 25))
    data = huggingface.from_hf(part, x="embedding", y="text")
    assert data.y.tolist() == part["text"][:]
    np.testing.assert_array_equal(data.x, np.array(part["embedding"][:], dtype=np.float32))


def test_parts_are_put_together(embedded_dataset, monkeypatch):
    monkeypatch.setattr(huggingface, "ROWS_AT_ONCE", 7)
    data = huggingface.from_hf(embedded_dataset, x=["count", "label"], y="text")
    assert data.x.shape == (40, 2)
    assert data.y[39] == "row 39"
    np.testing.assert_array_equal(data.x[:, 1], blobs().y)


def test_data_sets_that_lack_something_are_refused(embedded_dataset):
    refuses("embeding", from_hf, embedded_dataset, x="embeding", y="label")
    lacking = embedded_dataset.map(lambda row: {"text": None} if row["text"] == "row 3" else row)
    refuses("row 3", from_hf, lacking, x="embedding", y="text")
    refuses("from_hf", Dataset, embedded_dataset)
    named = select(embedded_dataset, columns="embedding", target="label", size=5, kernel="linear")
    array = select(blobs().x.astype(np.float32), blobs().y, 5, kernel="linear")
    assert named.indices.tolist() == array.indices.tolist()
