"""First use with tables of people, spreadsheets and data frames."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from bicore import InputError, MemoryLimitError
from bicore.sources import encode_table
from bicore.sources.opening import open_source
from bicore.sources.tables import count_bytes
from tests.helpers import refuses

ROWS = 200
RNG = np.random.default_rng(0)
SPEND = [f"{value:.2f}" for value in RNG.normal(50, 9, ROWS)]
LABELS = ["ab"[row % 2] for row in range(ROWS)]


def csv_of(columns, delimiter=","):
    lines = [delimiter.join(columns)]
    lines += [delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def read(folder, columns, name="t.csv", **options):
    (folder / name).write_text(csv_of(columns))
    return open_source(str(folder / name), target="label", scale="none", **options)


def with_stray(*rows, word="n.a."):
    return [word if row in rows else cell for row, cell in enumerate(SPEND)]


def test_m2_stray_cells_of_a_numeric_column_are_missing_with_a_note(tmp_path):
    source = read(tmp_path, {"spend": with_stray(149, 31), "label": LABELS})
    assert source.data.x.shape == (ROWS, 1)
    (note,) = (note for note in source.notes if note.startswith("spend"))
    for word in ("198 of 200", "row 31", "'n.a.'"):
        assert word in note
    others = [float(cell) for row, cell in enumerate(SPEND) if row not in (31, 149)]
    np.testing.assert_allclose(source.data.x[[31, 149], 0], np.median(others))


def test_m2_more_than_one_percent_of_strays_are_text(tmp_path):
    columns = {"spend": with_stray(1, 2, 3), "other": SPEND, "label": LABELS}
    source = read(tmp_path, columns)
    assert source.data.x.shape == (ROWS, 1)
    named = read(tmp_path, columns, missing="n.a., --")
    assert named.data.x.shape == (ROWS, 2)
    assert named.data.x[5, 0] == float(SPEND[5])


def test_m2_a_stray_cell_of_json_lines(tmp_path):
    rows = [{"a": float(cell), "label": label} for cell, label in zip(SPEND, LABELS, strict=True)]
    rows[7]["a"] = "n.a."
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_source(str(tmp_path / "t.jsonl"), target="label", scale="none")
    assert source.data.x[8, 0] == float(SPEND[8])


@pytest.mark.parametrize(
    ("written", "value"),
    [("$12.3", 12.3), ("-$12.3", -12.3), ("5%", 5.0), ("12 €", 12.0), ("£1,234,567", 1234567)],
)
def test_m2_currencies_and_percents_are_numbers(tmp_path, written, value):
    cells = [f'"{written}"', *("7" for _ in LABELS[1:])]
    source = read(tmp_path, {"price": cells, "label": LABELS})
    assert source.data.x[:2, 0].tolist() == [value, 7.0]


@pytest.mark.parametrize("name", ["id", "customer_id", "USER_ID"])
def test_m3_rising_ids_are_left_out_with_a_note(tmp_path, name):
    columns = {name: np.arange(ROWS) * 3, "a": SPEND, "label": LABELS}
    source = read(tmp_path, columns)
    assert source.data.x.shape == (ROWS, 1)
    assert any(name in note for note in source.notes)
    columns[name] = columns[name][::-1] % 7
    assert read(tmp_path, columns).data.x.shape == (ROWS, 2)


FRAME = pd.DataFrame(
    {
        "customer_id": range(ROWS),
        "spend": with_stray(31),
        "size": [None, *RNG.normal(size=ROWS - 1).round(4)],
        "colour": ["red", "blue", None, "green"] * (ROWS // 4),
        "vip": [row % 3 == 0 for row in range(ROWS)],
        "day": [f"{1 + row % 28}.2.2020" for row in range(ROWS)],
        "words": [f"text {row}" for row in range(ROWS)],
        "label": LABELS,
    }
)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_m4_a_data_frame_is_encoded_like_its_file(tmp_path, kind):
    frame = FRAME
    if kind == "polars":
        frame = pytest.importorskip("polars").from_pandas(FRAME)
    if kind == "arrow":
        frame = pytest.importorskip("pyarrow").table(FRAME)
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    whole = open_source(str(tmp_path / "t.csv"), target="label")
    found = encode_table(frame, "label").scale_features(None)
    assert found.data.fingerprint() == whole.data.fingerprint()
    assert found.notes == whole.notes
    apart = encode_table(frame, LABELS, drop="label").scale_features(None)
    assert apart.data.fingerprint() == whole.data.fingerprint()


def test_m4_mixed_cells_weights_and_types(tmp_path):
    frame = pd.DataFrame({"mixed": ["1", 2, 3.5] * 10, "day": pd.date_range("2020", periods=30)})
    data = encode_table(frame, np.arange(30.0), sample_weight=np.ones(30)).data
    assert data.x[:3, 0].tolist() == [1, 2, 3.5]
    assert data.y[3] == 3
    assert data.weights.sum() == 30
    refuses("drop", encode_table, frame, drop="none of these")


def test_m10_lists_of_numbers_in_json_lines_are_embeddings(tmp_path):
    rows = [{"v": [row, row / 2], "w": [1] * (1 + row % 2), "label": row % 2} for row in range(30)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_source(str(tmp_path / "t.jsonl"), target="label", scale="none")
    assert source.data.x.tolist() == [row["v"] for row in rows]
    assert any("w (" in note for note in source.notes if note.startswith("excluded"))


def test_m10_drop_works_on_columns_that_cannot_be_read(tmp_path):
    odd = [{"deep": [1]}, ["x", 1], 3, None]
    rows = [{"a": row / 2, "odd": odd[row % 4], "label": row % 2} for row in range(30)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_source(str(tmp_path / "t.jsonl"), target="label", drop="odd", scale="none")
    assert source.data.x.shape == (30, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "latin-1", "cp1252"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_m11_encodings_are_detected_or_named(tmp_path, encoding, ending):
    cities = ["Zürich", "Orléans"] * (ROWS // 2)
    columns = {"a": SPEND, "city": cities, "label": LABELS}
    text = csv_of(columns)
    if ending == "jsonl":
        rows = pd.DataFrame(columns).to_dict("records")
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path = tmp_path / f"t.{ending}"
    path.write_bytes(text.encode(encoding))
    marked = encoding != "utf-16-le"
    source = open_source(str(path), target="label", encoding=None if marked else encoding)
    assert source.cells["city"][0] == "Zürich"
    assert source.data.x.shape == (ROWS, 3)
    refuses("encoding", open_source, str(path), target="label", encoding="no such")


def test_m11_a_long_file_of_another_encoding_loses_no_row(tmp_path, monkeypatch):
    from bicore.sources import text_files

    monkeypatch.setattr(text_files, "LONGEST", 1000)
    monkeypatch.setattr(text_files, "BLOCK", 700)
    columns = {"a": range(ROWS), "city": ["Zürich", "Orléans"] * (ROWS // 2), "label": LABELS}
    (tmp_path / "t.csv").write_bytes(csv_of(columns).encode("utf-16"))
    source = open_source(str(tmp_path / "t.csv"), target="label", scale="none")
    assert source.data.x[:, 0].tolist() == list(range(ROWS))


def test_l9_a_first_line_names_the_delimiter(tmp_path):
    columns = {"a, b, c, d": SPEND, "label": LABELS}
    (tmp_path / "t.csv").write_text("sep=;\n" + csv_of(columns, ";"))
    source = open_source(str(tmp_path / "t.csv"), target="label", scale="none")
    assert source.data.x[:, 0].tolist() == [float(cell) for cell in SPEND]


def test_l9_a_table_in_a_zip_archive(tmp_path):
    columns = {"a": SPEND, "label": LABELS}
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.csv", csv_of(columns))
        archive.writestr("__MACOSX/inner.csv", "no table")
    source = open_source(str(tmp_path / "t.csv.zip"), target="label")
    assert (
        source.data.fingerprint()
        == read(tmp_path, columns).scale_features("standard").data.fingerprint()
    )
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "a") as archive:
        archive.writestr("second.csv", csv_of(columns))
    refuses("2 files", open_source, str(tmp_path / "t.csv.zip"), target="label")


@pytest.mark.parametrize("form", ["array", "pretty", "lines"])
def test_l9_json_files(tmp_path, form):
    rows = [{"a": row / 2, "label": row % 2} for row in range(30)]
    texts = {
        "array": json.dumps(rows),
        "pretty": json.dumps(rows, indent=2),
        "lines": "".join(json.dumps(row) + "\n" for row in rows),
    }
    (tmp_path / "t.json").write_text(texts[form])
    source = open_source(str(tmp_path / "t.json"), target="label", scale="none")
    assert source.data.x[:, 0].tolist() == [row / 2 for row in range(30)]
    # a limit is not reserved: no machine has this much memory
    open_source(str(tmp_path / "t.json"), target="label", memory="1000000GB")
    (tmp_path / "t.json").write_text(texts[form].rstrip().rstrip("]}") + ', "')
    refuses(r"t\.json", open_source, str(tmp_path / "t.json"), target="label")


def test_l3_messages_name_ten_columns_and_count_them(tmp_path):
    columns = {f"column {number}": SPEND for number in range(300)}
    with pytest.raises(InputError) as caught:
        read(tmp_path, {**columns, "target": LABELS})
    assert "301 columns" in str(caught.value)
    assert str(caught.value).count("column ") == 10


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.jsonl"])
def test_m6_cells_and_features_are_counted_together(tmp_path, name):
    frame = pd.DataFrame({"word": ["some words"] * 5000, "a": range(5000), "label": [0, 1] * 2500})
    path = tmp_path / name
    if name == "t.csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=name == "t.jsonl")
    source = open_source(str(path), target="label", memory="100MB")
    both = 2 * count_bytes(source.table) + 2 * source.data.x.nbytes
    with pytest.raises(MemoryLimitError):
        open_source(str(path), target="label", memory=both - 1)
