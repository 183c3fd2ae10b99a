"""The same request gives the same result or error for every form of rows."""

import json
import sys
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine

import bicore
from bicore import BicoreError, Dataset
from bicore.integrations.sklearn import CoresetSampler
from bicore.methods.registry import build_selector
from bicore.sources import encode_table, open_shards
from tests.commands import assert_success
from tests.helpers import DataSet, fails
from tests.marks import diagonal, few

pytestmark = pytest.mark.filterwarnings("ignore::bicore.LargeDataWarning")


def _wine():
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:120]
    return x[order], y[order]


def from_array(x, y, folder, request):
    return bicore.select(x, y, **request)


def from_dataset(x, y, folder, request):
    weight = request.pop("sample_weight", None)
    return bicore.select(Dataset(x, y, weight), **request)


def from_frame(x, y, folder, request):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x, columns=[f"column {k}" for k in range(x.shape[1])])
    return bicore.select(frame, y, scale="none", **request)


def from_polars(x, y, folder, request):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({f"column {k}": x[:, k] for k in range(x.shape[1])})
    return bicore.select(frame, y, scale="none", **request)


def from_npy(x, y, folder, request):
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    if "sample_weight" in request:
        np.save(folder / "w.npy", request["sample_weight"])
        request["sample_weight"] = str(folder / "w.npy")
    return bicore.select(folder / "x.npy", labels=folder / "y.npy", **request)


def from_npz(x, y, folder, request):
    weight = {"weight": request.pop("sample_weight")} if "sample_weight" in request else {}
    np.savez(folder / "rows.npz", x=x, y=y, **weight)
    return bicore.select(folder / "rows.npz", **request)


def from_shards(x, y, folder, request):
    weight = request.pop("sample_weight", None)
    cuts = [0, 17, 60, len(x)]
    for number, (low, high) in enumerate(pairwise(cuts)):
        extra = {} if weight is None else {"weight": weight[low:high]}
        np.savez(folder / f"part-{number}.npz", x=x[low:high], y=y[low:high], **extra)
    return bicore.select(str(folder / "part-*.npz"), **request)


def from_parquet(x, y, folder, request):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {f"c{k:02d}": x[:, k] for k in range(x.shape[1])} | {"y": y}
    if "sample_weight" in request:
        columns["w"] = request["sample_weight"]
        request["sample_weight"] = "w"
    parquet.write_table(arrow.table(columns), folder / "rows.parquet")
    names = [f"c{k:02d}" for k in range(x.shape[1])]
    rows = {"columns": names, "target": "y", "scale": "none"}
    return bicore.select(folder / "rows.parquet", **rows, **request)


def from_dask(x, y, folder, request):
    array = pytest.importorskip("dask.array")
    return bicore.select(array.from_array(x, chunks=(50, -1)), y, **request)


def from_sampler(x, y, folder, request):
    if set(request) & {"quotas", "initial", "sample_weight"}:
        pytest.skip("the sampler has no such argument")
    names = ("size", "tolerance", "random_state", "runtime")
    own = {name: request.pop(name) for name in names if name in request}
    selector = request.pop("method", "bilevel")
    selector = build_selector(selector, **request) if request else selector
    return CoresetSampler(selector=selector, **own).fit(x, y).coreset_


ROUTES = [
    from_dataset,
    from_frame,
    from_polars,
    from_npy,
    from_npz,
    from_shards,
    from_parquet,
    from_dask,
    from_sampler,
]
REQUESTS = {
    "count": {"size": 8},
    "fraction": {"size": 0.1},
    "tiny fraction": {"size": 0.001},
    "all rows": {"size": 1.0},
    "too many": {"size": 500},
    "true": {"size": True},
    "zero": {"size": 0},
    "automatic size": {"size": "auto"},
    "random_state": {"size": 8, "random_state": 3},
    "balanced": {"size": 9, "quotas": "balanced"},
    "quotas": {"size": 8, "quotas": {0: 2, 1: 4, 2: 4}},
    "short quotas": {"size": 8, "quotas": {0: 2, 1: 1, 2: 1}},
    "unknown class": {"size": 8, "quotas": {7: 2}},
    "prior": {"size": 8, "prior": {0: 0.2, 1: 0.5, 2: 0.3}},
    "prior of a text": {"size": 8, "prior": {"0": 1, "7": 1}},
    "initial": {"size": 8, "initial": [3, 50]},
    "initial outside": {"size": 8, "initial": [3, 500]},
    "weights": {"size": 8, "sample_weight": np.linspace(0.0, 2.0, 120)},
    "absolute ρ": {"size": 8, "inner_reg": 0.5},
    "kernel": {"size": 8, "kernel": "linear"},
    "loss": {"size": 8, "loss": "cross-entropy"},
    "method": {"size": 8, "method": "class-balanced"},
}


def _answer(route, x, y, folder, request):
    try:
        found = route(x, y, folder, dict(request))
    except BicoreError as error:
        return type(error).__name__, str(error)
    return found.indices.tolist(), found.weights.tolist(), found.objectives.tolist(), found.status


def show(value):
    return value.__name__[5:] if callable(value) else value


EXPECTED = {}


def _assert_same(route, x, y, folder, request, case):
    """``case`` names rows and request: an array's answer serves every route."""
    if case not in EXPECTED:
        EXPECTED[case] = _answer(from_array, x, y, folder, request)
    expected = EXPECTED[case]
    found = _answer(route, x, y, folder, request)
    assert found[:2] == expected[:2]
    if len(expected) == 4:
        assert found[3] == expected[3]
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-9)


@pytest.mark.parametrize(("route", "name"), diagonal(ROUTES, REQUESTS, 5), ids=show)
def test_a_request_means_the_same_everywhere(route, name, tmp_path):
    _assert_same(route, *_wine(), tmp_path, REQUESTS[name], name)


LABELS = {
    "text": lambda y: np.array(["red", "green", "blue"])[y],
    "negative": lambda y: y - 5,
    "boolean": lambda y: y > 0,
    "targets": lambda y: y * 0.5 + 1e6,
    "one class": lambda y: y * 0,
}


@pytest.mark.parametrize(("route", "kind"), diagonal(ROUTES[:-1], LABELS, 3), ids=show)
def test_labels_of_any_kind_mean_the_same_everywhere(route, kind, tmp_path):
    x, y = _wine()
    _assert_same(route, x, LABELS[kind](y), tmp_path, {"size": 6}, f"labels: {kind}")


@pytest.mark.parametrize("route", few(ROUTES[:-1], 5), ids=show)
def test_d2_duplicate_rows_and_targets_mean_the_same_everywhere(route, tmp_path):
    x, y = load_diabetes(return_X_y=True)
    x, y = np.concatenate([x[:60], x[:60]]), np.concatenate([y[:60], y[:60]])
    _assert_same(route, x, y, tmp_path, {"size": 10}, "duplicates")


def test_files_beyond_the_memory_limit_give_the_rows_of_an_array(tmp_path, monkeypatch, few_exact):
    from bicore.sources import parts

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    x = rng.normal(size=(600, 5)) + y[:, None]
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    expected = bicore.select(x, y, 10)
    monkeypatch.setattr(parts, "COPIES", 10**9)  # no row fits
    found = bicore.select(tmp_path / "rows.npz", size=10)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.objective == expected.objective
    assert any("large data" in note for note in found.provenance.notes)
    with pytest.raises(bicore.MemoryLimitError, match="passes"):
        bicore.select(tmp_path / "rows.npz", size=10, exact=True)


@pytest.mark.parametrize("name", few(["balanced", "fraction", "count", "prior"], 2))
def test_the_command_gives_the_rows_of_the_library(name, tmp_path, command):
    x, y = _wine()
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    request = REQUESTS[name]
    words = []
    for key, value in request.items():
        shares = isinstance(value, dict) and ",".join(f"{one}={value[one]}" for one in value)
        words += ["--" + key.replace("_", "-"), shares or value]
    found = assert_success(command("select", tmp_path / "rows.npz", *words, "--json", "--quiet"))
    assert json.loads(found.stdout)["indices"] == bicore.select(x, y, **request).indices.tolist()


def _people():
    """A table of every kind of column, with missing and stray cells."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    rows = 120
    y = rng.integers(0, 2, rows)
    spend = [f"{value:.2f}" for value in rng.normal(50 + 20 * y, 9)]
    spend[31] = "n.a."
    return pandas.DataFrame(
        {
            "customer_id": np.arange(rows),
            "spend": spend,
            "size": np.where(np.arange(rows) % 9, rng.normal(y, 1).round(4), np.nan),
            "colour": rng.choice(["red", "blue", "green", None], rows),
            "vip": rng.random(rows) < 0.3 + 0.3 * y,
            "day": [f"{1 + row % 28}.2.2020" for row in rng.permutation(rows)],
            "label": np.array(["no", "yes"])[y],
        }
    )


def _table_forms(frame, folder):
    """Ways to give a table to ``select``, each with its target."""
    pyarrow = pytest.importorskip("pyarrow")
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "rows.tsv.gz", index=False, sep="\t")
    frame.to_parquet(folder / "rows.parquet")
    for number, part in enumerate((frame[:50], frame[50:])):
        part.to_parquet(folder / f"part-{number}.parquet")
    yield folder / "rows.csv", {"target": "label"}
    yield folder / "rows.tsv.gz", {"y": "label"}
    yield folder / "rows.parquet", {"target": "label"}
    yield str(folder / "part-*.parquet"), {"target": "label"}
    yield frame, {"y": "label"}
    yield frame, {"target": "label"}
    yield frame.drop(columns="label"), {"y": frame["label"]}
    yield pyarrow.Table.from_pandas(frame), {"y": "label"}


@pytest.mark.parametrize("request_", few([{}, {"kernel": "linear"}, {"method": "class-balanced"}]))
def test_m4_a_table_means_the_same_in_files_frames_and_the_command(request_, tmp_path, command):
    frame = _people()
    forms = list(_table_forms(frame, tmp_path))
    words = [
        part for key, value in request_.items() for part in ("--" + key.replace("_", "-"), value)
    ]
    table = tmp_path / "rows.csv"
    printed = command("select", table, "--target", "label", "--size", 8, *words, "--json")
    assert printed.returncode == 0, printed.stderr
    expected = json.loads(printed.stdout)["indices"]
    for x, labels in forms:
        assert bicore.select(x, size=8, **labels, **request_).indices.tolist() == expected
    parts = ("select", tmp_path / "part-*.parquet", "--target", "label", "--drop", "vip")
    printed = command(*parts, "--size", 8, *words, "--json")
    found = bicore.select(frame, "label", 8, drop="vip", **request_)
    assert json.loads(printed.stdout)["indices"] == found.indices.tolist(), printed.stderr


def _forms_in_parts(frame, folder):
    """A table in files and data sets that can be read in parts."""
    pyarrow = pytest.importorskip("pyarrow")
    frame.to_parquet(folder / "rows.parquet", row_group_size=25)
    (folder / "parts").mkdir()
    for number, (low, high) in enumerate(pairwise((0, 17, 60, len(frame)))):
        frame[low:high].to_parquet(folder / "parts" / f"{number}.parquet", row_group_size=11)
    yield folder / "rows.parquet"
    yield folder / "parts"
    yield DataSet(pyarrow.Table.from_pandas(frame, preserve_index=False))


@pytest.mark.parametrize("scale", few([None, "none"]))
def test_a_table_is_encoded_alike_whether_it_fits_or_not(scale, tmp_path, monkeypatch):
    frame = _people()
    frame["mixed"] = frame["size"].map("{:.3f} €".format).where(frame["size"] > 0, "?")
    encoded = encode_table(frame, "label").scale_features(scale).data
    array = bicore.select(encoded, size=8)
    passes = bicore.select(open_shards(encoded), size=8, passes=True)
    options = {"target": "label", "size": 8, "scale": scale}
    assert bicore.select(frame, **options, passes=True).indices.tolist() == passes.indices.tolist()
    for x in _forms_in_parts(frame, tmp_path):
        with monkeypatch.context() as patch:
            for module in ("columns", "parts"):
                patch.setattr(f"bicore.sources.{module}.COPIES", 10**9)  # no row fits
            small = bicore.select(x, **options)
        assert any("when needed" in note for note in small.provenance.notes)
        for found in (small, bicore.select(x, **options)):
            assert found.indices.tolist() == array.indices.tolist()
            np.testing.assert_allclose(found.objectives, array.objectives, rtol=1e-9)
        found = bicore.select(x, **options, passes=True)
        assert found.indices.tolist() == passes.indices.tolist()
        with pytest.raises(bicore.InputError, match="scale='unit'"):
            bicore.select(x, **(options | {"scale": "unit"}), passes=True)
        np.testing.assert_allclose(found.objectives, passes.objectives, rtol=1e-6)


def test_m4_the_outer_set_of_a_table_is_encoded_like_its_rows():
    frame = _people()
    rows, outer = frame[:80], frame[80:]
    named = bicore.select(rows, "label", 6, outer=outer)
    apart = bicore.select(rows, "label", 6, outer=(outer.drop(columns="label"), outer["label"]))
    assert named.indices.tolist() == apart.indices.tolist()
    assert named.objective == apart.objective
    with pytest.raises(bicore.InputError, match="colour"):
        bicore.select(rows, "label", 6, outer=outer.drop(columns="colour"))


def test_m4_a_numeric_frame_needs_no_pyarrow(monkeypatch):
    pandas = pytest.importorskip("pandas")
    x, y = _wine()
    frame = pandas.DataFrame(x)
    expected = bicore.select(frame, y, 6, kernel="linear").indices.tolist()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert bicore.select(frame, y, 6, kernel="linear").indices.tolist() == expected
    fails(bicore.InputError, "pyarrow", bicore.select, _text_frame(pandas), y, 6)


def _text_frame(pandas):
    return pandas.DataFrame({"word": ["a", "b"] * 60})


@pytest.mark.parametrize("dtype", few(["uint8", "bool", "int16"]))
def test_integers_in_a_file_have_the_precision_of_the_array(dtype, tmp_path):
    x, y = _wine()
    x = (x * 3 % 200).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    expected = bicore.select(x, y, 6)
    found = bicore.select(tmp_path / "x.npy", tmp_path / "y.npy", 6)
    assert found.provenance.fingerprint == expected.provenance.fingerprint
    assert found.objectives.tolist() == expected.objectives.tolist()
