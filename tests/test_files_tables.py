"""Common tables, through the command: encodings, notes and errors.

The names of the tests, with those of ``test_files_arrays`` and ``test_files_images``, are the list.
"""

import bz2
import gzip
import json
import sys
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from bicore.sources import cells
from bicore.sources.opening import open_source
from tests.commands import assert_refused, says
from tests.fuzzing import zstd

ROWS = 60


def table(folder, name, columns, delimiter=","):
    """A text table; returns its words for the command."""
    lines = [delimiter.join(columns)]
    lines += [delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (folder / name).write_text("\n".join(lines) + "\n")


def numbers(seed=0, rows=ROWS):
    return np.random.default_rng(seed).normal(size=rows).round(3).tolist()


def labels(rows=ROWS):
    return ["ab"[row % 2] for row in range(rows)]


SELECT = ("select", "--method", "uniform", "--size", "2", "--json")


@pytest.fixture
def read(command):
    """What a selection by chance says of a file: notes, rows and features cost nothing else."""

    def run(name, *words, verb=SELECT, **rest):
        return command(*verb, name, *words, **rest)

    return run


# 1. Text columns with many values; --limit and --memory hold while reading.


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """As many tail numbers as a large table has, in few rows and under a smaller bound."""
    folder = tmp_path_factory.mktemp("many")
    rows = 2400
    columns = {
        "tail": [f"N{row % 100}" for row in range(rows)],
        "one": numbers(rows=rows),
        "label": labels(rows),
    }
    table(folder, "many.csv", columns)
    return folder


def test_1_a_text_column_of_many_values_becomes_frequencies_with_a_note(texts, monkeypatch):
    from bicore.sources import columns

    path = str(texts / "many.csv")
    assert open_source(path, target="label").data.x.shape == (2400, 101)
    monkeypatch.setattr(columns, "MOST_INDICATORS", 2400 * 100 - 1)
    source = open_source(path, target="label", scale="none")
    assert source.data.x.shape == (2400, 2)
    np.testing.assert_allclose(source.data.x[:, 0], np.log(24 / 2400))
    assert any("tail (100 values → log frequency" in note for note in source.notes)


def test_1_the_memory_limit_holds_during_encoding(command, texts):
    words = ["select", texts / "many.csv", "--target", "label", "--size", "2"]
    words += ["--method", "uniform"]
    assert_refused(
        command(*words, "--memory", "2MB"),
        "2400 rows of 101 features would take 3.88 MB",
        "--limit",
    )
    assert_refused(command(*words, "--memory", "30kB"), "the cells of the first")
    says(command(*words, "--memory", "2MB", "--limit", "1000"), "excluded columns: tail")


def test_1_no_more_rows_are_read_than_the_limit_asks_for(monkeypatch, tmp_path):
    from bicore.sources import tables, text_files

    table(tmp_path, "long.csv", {"a": numbers(rows=5000), "label": labels(5000)})
    monkeypatch.setattr(text_files, "BLOCK", 2**12)
    plain = tables.load_columns
    seen = []
    monkeypatch.setattr(
        tables,
        "load_columns",
        lambda batches, reading: plain((seen.append(1) or one for one in batches), reading),
    )
    assert len(open_source(str(tmp_path / "long.csv"), target="label", limit=10).data) == 10
    assert len(seen) == 1


def test_1_a_long_text_among_the_labels_is_held_against_the_memory_limit(read, tmp_path):
    table(tmp_path, "t.csv", {"a": numbers(), "label": ["x" * 200_000, *labels()[1:]]})
    assert_refused(
        read("t.csv", "--target", "label", "--memory", "20MB"), "the target 'label' as text"
    )


@pytest.mark.slow
def test_1_a_table_of_336_000_rows_and_19_columns_takes_less_than_a_gigabyte(process, tmp_path):
    """As the flights of New York are: 4000 tail numbers, 100 airports, hours of a year."""
    rows, rng = 336_000, np.random.default_rng(0)
    hours = np.datetime64("2013-01-01T05") + rng.integers(0, 8760, rows).astype("timedelta64[h]")
    columns = [rng.integers(0, 2400, rows).astype(str) for _ in range(14)]
    columns += [np.char.add("N", rng.integers(0, 4000, rows).astype(str))]
    columns += [rng.choice([f"A{number}" for number in range(100)], rows)]
    columns += [rng.choice(["EWR", "JFK", "LGA"], rows), np.char.add(hours.astype(str), ":00:00Z")]
    table = pyarrow.table({f"c{place}": column for place, column in enumerate(columns)})
    pyarrow.csv.write_csv(table.append_column("y", [rng.normal(size=rows)]), tmp_path / "t.csv")
    words = ["t.csv", "--target", "y", "--memory", "1GB", "--json"]
    result = process("select", *words, "--method", "uniform", "--size", "2", cwd=tmp_path)
    says(result, "frequency columns: c14 (4000 values", "c15 (100 values", "time columns: c17")
    assert result.peak < 10**9


# 4. Row numbers; --drop, --features, --drop-missing-target.


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "...1", "id", "rownames"])
def test_4_row_numbers_are_not_a_feature(read, tmp_path, name):
    table(tmp_path, "t.csv", {name: range(1, ROWS + 1), "a": numbers(), "label": labels()})
    result = read("t.csv", "--target", "label")
    says(result, f"excluded columns: {name or '(unnamed)'} (row numbers")
    assert "60 rows of 1 features" in result.stderr


def test_4_columns_that_number_no_rows_stay(read, tmp_path):
    columns = {"": numbers(), "id": np.repeat(range(20), 3), "row": ["4", *range(1, ROWS)]}
    table(tmp_path, "t.csv", {**columns, "time": range(ROWS), "label": labels()})
    says(read("t.csv", "--target", "label"), "numeric columns: (unnamed), id, row, time")


def test_4_requested_row_numbers_are_a_feature(read, tmp_path):
    table(tmp_path, "t.csv", {"id": range(ROWS), "a": numbers(), "label": labels()})
    says(read("t.csv", "--target", "label", "--columns", "id"), "numeric columns: id\n")


def test_4_features_and_drop_name_columns(read, tmp_path):
    columns = {"a": numbers(), "b": numbers(1), "c,d": numbers(2), "label": labels()}
    table(tmp_path, "t.tsv", columns, "\t")
    words = ["t.tsv", "--target", "label"]
    says(read(*words, "--drop", "a"), "numeric columns: b, c,d\n", "dropped columns: a")
    says(read(*words, "--columns", 'a,"c,d"'), "feature columns: a, c,d")
    assert_refused(read(*words, "--drop", "aa"), "--drop aa is not known", "Did you mean 'a'")
    assert_refused(read(*words, "--drop", "label"), "column 'label' is in both target and drop")
    assert_refused(read(*words, "--columns", "a,b", "--drop", "b"), "column 'b' is in both")
    assert_refused(read("digits", "--drop", "a"), "--drop does not apply to digits")


def test_4_rows_without_a_target_are_excluded_on_request(read, tmp_path):
    table(tmp_path, "t.csv", {"a": numbers(), "label": ["", "NA", *labels()[2:]]})
    assert_refused(
        read("t.csv", "--target", "label"),
        "has no value in row 0 and 1 more",
        "--drop-missing-target",
    )
    words = ["t.csv", "--target", "label", "--drop-missing-target", "--out", "picks.csv"]
    result = read(*words)
    says(result, "58 rows", "2 rows without a target are excluded")
    chosen = json.loads(result.stdout)
    lines = (tmp_path / "t.csv").read_text().splitlines()
    written = (tmp_path / "picks.csv").read_text().splitlines()[1:]
    assert [f"{lines[row + 1]},1.0" for row in chosen["rows"]] == written
    assert chosen["rows"] == [row + 2 for row in chosen["indices"]]


def test_4_a_pipe_drops_columns_and_rows_alike(command):
    rows = [f"{i},{i * 0.5},{'' if i == 3 else 'ab'[i % 2]}" for i in range(140)]
    text = "\n".join(["id,b,y", *rows]) + "\n"
    words = ["stream", "-", "--target", "y", "--capacity", "5", "--buffer", "reservoir"]
    words += ["--state", "s", "--drop-missing-target", "--drop"]
    assert_refused(
        command(*words, "b", "--quiet", input=text),
        "no column can be used as a feature: id (row numbers",
    )
    result = command(*words, "id", "--json", input=text)
    says(result, "numeric columns: b", "dropped columns: id")
    assert json.loads(result.stdout)["position"] == 139


# 8. Targets that no number holds.


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("inf", "is inf in row 3, and targets must be finite"),
        ("1e999", "is inf in row 3"),
        ("99999999999999999999", "integers from -2**63"),
        ("-99999999999999999999", "integers from -2**63"),
    ],
)
def test_8_a_target_that_is_infinite_or_beyond_64_bits(read, tmp_path, value, words):
    whole = value.lstrip("-").isdigit()
    target = [row if whole else row / 2 for row in range(ROWS)]
    table(tmp_path, "t.csv", {"a": numbers(), "y": [*target[:3], value, *target[4:]]})
    assert_refused(read("t.csv", "--target", "y"), words)


def test_8_a_feature_that_is_infinite_is_named(read, tmp_path):
    table(tmp_path, "t.csv", {"a": ["-inf", *numbers()[1:]], "label": labels()})
    assert_refused(
        read("t.csv", "--target", "label"), "the column 'a' holds -inf in row 0", "--drop"
    )


# 9. Words that misled.


def commas(values):
    return [str(value).replace(".", ",") for value in values]


def test_9_decimal_commas_are_numbers(read, tmp_path):
    columns = {"a": commas(numbers()), "b": ["1.234,5", *commas(numbers(1))[1:]], "y": labels()}
    table(tmp_path, "t.csv", columns, ";")
    says(read("t.csv", "--target", "y"), "numeric columns: a (decimal commas), b (decimal commas)")
    x = open_source(str(tmp_path / "t.csv"), target="y", scale="none").data.x
    assert x[:, 0].tolist() == numbers()
    assert x[0, 1] == 1234.5
    table(tmp_path, "r.csv", {"a": numbers(), "y": commas(numbers(1))}, ";")
    target = open_source(str(tmp_path / "r.csv"), target="y").data.y
    assert target.tolist() == numbers(1)


def test_9_a_comma_that_may_be_either_gets_the_right_advice(read, tmp_path):
    columns = {"a": numbers(), "b": [f'"1,{100 + row}"' for row in range(ROWS)], "y": labels()}
    table(tmp_path, "t.csv", columns)
    says(read("t.csv", "--target", "y"), "numbers such as 1,100", "--decimal point or --decimal")
    assert_refused(read("t.csv", "--target", "b"), "target column 'b' holds numbers such as 1,100")
    for decimal, first in (("point", 1100), ("comma", 1.1)):
        source = open_source(str(tmp_path / "t.csv"), target="y", decimal=decimal, scale="none")
        assert source.data.x[0, 1] == first
    assert_refused(read("t.csv", "--target", "y", "--decimal", ","), "--decimal , is not known")
    columns["b"][0] = '"1,234,567"'
    table(tmp_path, "t.csv", columns)
    says(read("t.csv", "--target", "y"), "b (commas at thousands)")


def test_9_timestamps_are_refused_as_classes(read, tmp_path):
    times = [(datetime(2020, 1, 1) + timedelta(hours=row)).isoformat() for row in range(ROWS)]
    table(tmp_path, "t.csv", {"a": numbers(), "when": times})
    assert_refused(
        read("t.csv", "--target", "when"), "'when' holds dates or times, such as 2020-01-01T00"
    )
    typed = pyarrow.table({"a": numbers(), "when": [datetime(2020, 1, 1)] * ROWS})
    pyarrow.parquet.write_table(typed, tmp_path / "t.parquet")
    assert_refused(read("t.parquet", "--target", "when"), "'when' holds dates or times")
    table(tmp_path, "n.csv", {"a": numbers(), "name": [f"name {row}" for row in range(ROWS)]})
    says(
        read("n.csv", "--target", "name"),
        "60 classes of text; check that this is the column to predict",
    )


def test_9_columns_of_extreme_numbers_are_scaled_like_others(tmp_path):
    plain = np.array(numbers())
    columns = {"a": plain, "b": plain * 1e307, "c": plain * 1e-300, "label": labels()}
    columns["d"] = [1.7e308, -1.7e308] * (ROWS // 2)
    table(tmp_path, "t.csv", columns)
    x = open_source(str(tmp_path / "t.csv"), target="label").data.x
    np.testing.assert_allclose(x[:, 1], x[:, 0], rtol=1e-9)
    np.testing.assert_allclose(x[:, 2], x[:, 0], rtol=1e-9)
    assert x[:, 3].tolist() == [1.0, -1.0] * (ROWS // 2)


# 10. Formats and habits.


def make_frame():
    cities, days = [["Bern", "Oslo"][row % 2] for row in range(ROWS)], np.arange(ROWS) % 28
    when = [date(2020, 1, 1 + day) for day in days.tolist()]
    frame = pd.DataFrame({"a": numbers(), "city": cities, "when": when, "label": labels()})
    return frame.assign(a=frame["a"].where(frame.index != 3))


def csv_text():
    return make_frame().to_csv(index=False)


def json_text():
    return make_frame().astype({"when": str}).to_json(orient="records", lines=True)


def make_table():
    return pyarrow.Table.from_pandas(make_frame(), preserve_index=False)


def arrow_stream(path):
    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_stream(file, make_table().schema) as to,
    ):
        to.write_table(make_table())


WRITERS = {
    "t.csv": lambda path: path.write_text(csv_text()),
    "t.txt": lambda path: path.write_text(csv_text().replace(",", "|")),
    "t.tsv": lambda path: path.write_text(csv_text().replace(",", "\t")),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(csv_text().encode())),
    "t.CSV.BZ2": lambda path: path.write_bytes(bz2.compress(csv_text().encode())),
    "t.csv.zst": lambda path: path.write_bytes(zstd(csv_text().encode())),
    "t.jsonl": lambda path: path.write_text(json_text()),
    "t.jsonl.gz": lambda path: path.write_bytes(gzip.compress(json_text().encode())),
    "t.parquet": lambda path: pyarrow.parquet.write_table(make_table(), path),
    "t.feather": lambda path: pyarrow.feather.write_feather(make_table(), path),
    "t.arrow": arrow_stream,
}


@pytest.mark.parametrize("name", WRITERS)
def test_10_every_format_gives_the_same_features(read, tmp_path, name):
    WRITERS["t.csv"](tmp_path / "t.csv")
    WRITERS[name](tmp_path / name)
    plain, found = (open_source(str(tmp_path / one), target="label") for one in ("t.csv", name))
    assert found.data.fingerprint() == plain.data.fingerprint()
    assert found.notes == plain.notes


def test_10_date_features_match_the_guide(tmp_path):
    times = ["2021-07-02 06:00", "2020-01-01 00:00", "2020-12-31 18:00", ""] * 3
    table(
        tmp_path,
        "t.csv",
        {"when": times, "at": ["06:00", "18:30:00", "0:00", "NA"] * 3, "y": labels(12)},
    )
    x = open_source(str(tmp_path / "t.csv"), target="y", scale="none").data.x
    assert x.shape == (12, 7 + 3)
    day = (datetime(2021, 7, 2) - datetime(1970, 1, 1)).days
    angles = [2 * np.pi * 182 / 365.2425, 2 * np.pi * (day % 7) / 7, np.pi / 2]
    parts = [part(angle) for angle in angles for part in (np.cos, np.sin)]
    np.testing.assert_allclose(x[0, :7], [day + 0.25, *parts], atol=1e-12)
    np.testing.assert_allclose(x[0, 7:], [0.25, 0, 1], atol=1e-12)
    assert x[3, 0] == x[2, 0]  # the median of the days
    scaled = open_source(str(tmp_path / "t.csv"), target="y").data.x
    np.testing.assert_allclose(scaled[:, 1:7], x[:, 1:7])  # points of circles stay on them


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["5.1.2013", "31.12.2013"], datetime(2013, 1, 5)),
        (["1/5/2013 3:04 PM", "12/31/2013 11:00 AM"], datetime(2013, 1, 5, 15, 4)),
        (["5/1/2013", "31/12/2013"], datetime(2013, 1, 5)),
        (["2013-01-05T10:00:00+02:00", "2013-01-06T10:00:00Z"], datetime(2013, 1, 5, 8)),
        (["2013/1/5", "2013/12/31"], datetime(2013, 1, 5)),
    ],
)
def test_10_dates_in_common_formats(tmp_path, texts, first):
    table(tmp_path, "t.csv", {"when": texts * 30, "y": labels()})
    x = open_source(str(tmp_path / "t.csv"), target="y", scale="none").data.x
    assert x[0, 0] == (first - datetime(1970, 1, 1)) / timedelta(days=1)


def test_10_dates_that_may_be_either_are_text(read, tmp_path):
    table(tmp_path, "t.csv", {"a": numbers(), "when": ["5/1/2013", "1/2/2013"] * 30, "y": labels()})
    says(read("t.csv", "--target", "y"), "categorical columns: when (2 values)")


def test_10_lists_in_parquet_are_features(read, tmp_path):
    rows = np.random.default_rng(0).normal(size=(ROWS, 4))
    lists = rows.tolist()
    lists[5] = None
    ragged = [[1.0] * (1 + row % 2) for row in range(ROWS)]
    for name, kind in (
        ("t.parquet", pyarrow.list_(pyarrow.float32())),
        ("f.feather", pyarrow.list_(pyarrow.float64(), 4)),
    ):
        made = pyarrow.table({"v": pyarrow.array(lists, kind), "r": ragged, "y": labels()})
        write = pyarrow.parquet.write_table if name.endswith("t") else pyarrow.feather.write_feather
        write(made, tmp_path / name)
        source = open_source(str(tmp_path / name), target="y", scale="none")
        np.testing.assert_allclose(source.data.x[6:], rows[6:], rtol=1e-6)
        np.testing.assert_allclose(source.data.x[5], np.median(np.delete(rows, 5, 0), 0), rtol=1e-6)
    result = read("t.parquet", "--target", "y", "--columns", "v")
    says(result, "list columns: v (4 numbers, 4 missing → median)")
    says(read("t.parquet", "--target", "y"), "r (lists that are not numbers of one length)")


@pytest.mark.slow
def test_10_lists_of_two_tables_are_features_together(command, tmp_path):
    rows = np.random.default_rng(0).normal(size=(ROWS, 3)).tolist()
    made = pyarrow.table({"v": rows, "day": make_table()["when"], "y": labels()})
    for name, part in (("train", made[:45]), ("test", made[45:])):
        pyarrow.parquet.write_table(part, tmp_path / f"{name}.parquet")
    words = ["worth", "train.parquet", "--test", "test.parquet", "--target", "y", "--size", "8"]
    words += ["--judge", "ridge", "--seeds", "2", "--method", "uniform"]
    says(command(*words, "--drop", "day"), "train.parquet: 45 rows")
    assert_refused(
        command(*words, "--drop", "v,day", "--quiet"), "no column can be used as a feature"
    )


def test_10_parquet_types_are_respected(tmp_path):
    from decimal import Decimal

    columns = {
        "truth": [row % 2 == 0 for row in range(ROWS)],
        "money": [Decimal(row).scaleb(-2) for row in range(ROWS)],
        "span": [timedelta(seconds=row / 2) for row in range(ROWS)],
        "word": pyarrow.array(["x", "y", None] * 20).dictionary_encode(),
        "small": pyarrow.array(range(ROWS), pyarrow.uint8()),
        "deep": [{"a": 1}] * ROWS,
        "none": pyarrow.nulls(ROWS),
        "label": pyarrow.array(range(ROWS), pyarrow.int16()),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    source = open_source(str(tmp_path / "t.parquet"), target="label", scale="none")
    assert "numeric columns: money, span, small" in source.notes
    assert "categorical columns: truth (2 values), word (2 values)" in source.notes
    assert "excluded columns: deep (values of an unsupported type), none (empty)" in source.notes
    np.testing.assert_allclose(source.data.x[:, 2:4], np.outer(range(ROWS), [0.01, 0.5]))
    assert source.data.y.tolist() == list(range(ROWS))


def test_10_several_targets_are_numbers(read, tmp_path):
    table(tmp_path, "t.csv", {"a": numbers(), "y": numbers(1), "z": range(ROWS), "t": labels()})
    y = open_source(str(tmp_path / "t.csv"), target="y,z").data.y
    assert y.tolist() == [[a, b] for a, b in zip(numbers(1), range(ROWS), strict=True)]
    verb = ("select", "--kernel", "linear", "--inner-reg", "0.1", "--size", "3", "--json")
    says(read("t.csv", "--target", "y, z", "--drop", "t", verb=verb), "numeric columns: a\n")
    assert_refused(
        read("t.csv", "--target", "y,t"), "'t' holds text, and several targets must be numbers"
    )
    assert_refused(read("t.csv", "--target", "y,x"), "--target x is not known")


def test_10_numbers_as_python_reads_them_stay_numbers(read, tmp_path):
    odd = ["+1.5", " 2 ", "1e3", "-.5", "5.", "1_000"]
    table(tmp_path, "t.csv", {"a": odd * 10, "y": labels()})
    says(read("t.csv", "--target", "y"), "numeric columns: a\n")
    pieces = [cells.as_array(np.array(one)) for one in ([2**60], [0.5])]
    assert cells.join(pieces).to_pylist() == [2.0**60, 0.5]
    assert cells.as_array(np.array([1j])).to_pylist() == ["1j"]


def test_10_without_pyarrow_a_plain_message(monkeypatch, read, tmp_path):
    table(tmp_path, "t.csv", {"a": numbers(), "y": labels()})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert_refused(read("t.csv", "--target", "y"), "pip install 'bicore[tables]'")


DAMAGED = {
    "cut.csv.gz": lambda: gzip.compress(csv_text().encode())[:-30],
    "no.csv.zst": lambda: csv_text().encode(),
    "empty.csv": lambda: b"",
    "header.csv": lambda: b"a,label\n",
    "binary.csv": lambda: b"a,label\n1,\0\n",
    "double.csv": lambda: b"a,a,label\n1,2,x\n",
    "no.jsonl": lambda: b'{"a": 1, "label": 0}\n{"a": ',
    "deep.jsonl": lambda: b'{"a": ' + b"[" * 100_000,
    "empty.jsonl": lambda: b"\n\n",
    "cut.parquet": lambda: b"PAR1 and nothing",
    "cut.feather": lambda: b"ARROW1 and nothing",
    "no.arrow": lambda: b"\xff\xff\xff\xff\x10\0\0\0",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_10_unreadable_files_end_with_one_line(read, tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name]())
    result = read(name, "--target", "label")
    assert_refused(result, name)
    assert "unknown file extension" not in result.stderr


def test_missing_words_and_the_encoding_are_options_of_the_command(command, tmp_path):
    lines = ["größe,art"] + [f"{'fehlt' if i % 5 == 0 else i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("cp1250"))
    words = ("select", "t.csv", "--target", "art", "--size", "3")
    result = command(*words, "--missing", "fehlt", "--encoding", "cp1250")
    assert "größe (8 missing" in result.stderr + result.stdout
