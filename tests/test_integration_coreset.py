"""A coreset as an index of arrays, frames and data sets."""

import re
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from bicore import Coreset, select
from bicore.coreset import Provenance
from bicore.runtime.clock import Clock, ProgressLine
from tests.helpers import blobs, refuses

PICKED = Coreset(np.array([4, 2, 7]), np.array([1.0, 0.5, 2.0]))


def test_it_is_iterated_and_indexed_like_its_rows():
    assert list(PICKED) == [4, 2, 7]
    assert all(type(row) is int for row in PICKED)
    assert PICKED[-1] == 7
    assert type(PICKED[0]) is int
    assert PICKED[:2].tolist() == [4, 2]
    assert 2 in PICKED
    assert 3 not in PICKED
    assert dict(zip(PICKED, PICKED.weights, strict=True))[7] == 2.0


def test_it_is_an_array_of_its_rows():
    assert np.asarray(PICKED).tolist() == [4, 2, 7]
    assert np.asarray(PICKED, dtype=np.float32).dtype == np.float32
    copy = np.array(PICKED)
    copy[0] = 9
    assert PICKED.indices[0] == 4
    assert np.isin(np.arange(5), PICKED).tolist() == [False, False, True, False, True]
    assert torch.as_tensor(np.asarray(PICKED)).tolist() == [4, 2, 7]


def test_it_is_an_index():
    values = np.arange(20).reshape(10, 2)
    assert values[PICKED].tolist() == [[8, 9], [4, 5], [14, 15]]
    assert torch.from_numpy(values)[PICKED].tolist() == [[8, 9], [4, 5], [14, 15]]
    assert pd.DataFrame(values).iloc[PICKED].index.tolist() == [4, 2, 7]
    assert pd.Series(values[:, 0]).iloc[PICKED].tolist() == [8, 4, 14]


def test_a_mask_has_one_entry_per_row():
    assert np.flatnonzero(PICKED.mask(9)).tolist() == [2, 4, 7]
    known = Coreset(np.array([1]), provenance=Provenance(rows=3))
    assert known.mask().tolist() == [False, True, False]
    refuses(r"mask\(n\)", PICKED.mask)
    refuses("beyond the 7 rows", PICKED.mask, 7)


def test_a_frame_has_a_row_a_point():
    data = blobs()
    coreset = select(data, size=5, kernel="rbf", inner_reg=0.1)
    frame = coreset.to_frame()
    assert frame["index"].tolist() == coreset.indices.tolist()
    assert frame.columns.tolist() == ["index", "id", "weight", "objective", "gain"]
    np.testing.assert_array_equal(frame["gain"], coreset.gains)
    assert PICKED.to_frame().columns.tolist() == ["index", "id", "weight"]
    assert len(Coreset(np.empty(0)).to_frame()) == 0


def test_rows_of_a_table_keep_their_order_and_get_weights():
    table = pd.DataFrame({"text": list("abcdefgh")}, index=np.arange(8) + 100)
    chosen = PICKED.select(table)
    assert chosen["text"].tolist() == ["e", "c", "h"]
    assert chosen["weight"].tolist() == [1.0, 0.5, 2.0]
    assert chosen.index.tolist() == [104, 102, 107]
    assert PICKED.select(table, weight=None).columns.tolist() == ["text"]
    stored = PICKED.select(pa.table({"text": list("abcdefgh")}), weight="w")
    assert stored.to_pydict() == {"text": ["e", "c", "h"], "w": [1.0, 0.5, 2.0]}
    refuses("'text' already", PICKED.select, table, weight="text")
    refuses("beyond the 3 rows of table", PICKED.select, table[:3])
    refuses("has no columns", PICKED.select, np.arange(8))


def test_a_notebook_shows_it():
    data = blobs()
    coreset = select(data, size=12, kernel="rbf", inner_reg=0.1)
    page = ElementTree.fromstring(coreset._repr_html_())  # it is well-formed
    words = " ".join(page.itertext())
    assert "12 of 40 rows" in words
    assert "and 2 more" in words
    cells = [cell.text for cell in page.iter("td")]
    assert cells[0] == str(coreset.indices[0])
    assert len(list(page.iter("tr"))) == 11
    axis = [label.text for label in page.iter("text")]
    assert {"objective", "rows", "1", "12", f"{coreset.objectives.max():.3g}"} <= set(axis)
    line = next(page.iter("polyline")).attrib["points"].split()
    heights = [float(place.split(",")[1]) for place in line]
    assert len(heights) == 12
    # The lowest objective is drawn lowest, which is the largest number.
    assert int(np.argmax(heights)) == int(np.argmin(coreset.objectives))


def test_notebook_display_is_escaped_and_complete():
    hostile = Provenance(method="<script>alert(1)</script>", rows=10**8)
    shown = Coreset(np.array([12345678]), provenance=hostile)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "12345678</td>" in shown
    assert "<svg" not in shown
    assert "0 of ?" in Coreset(np.empty(0))._repr_html_()
    level = Coreset(np.arange(3), objectives=np.ones(3))._repr_html_()
    assert "nan" not in level
    long = Coreset(np.arange(5000), objectives=np.linspace(1, 0, 5000))._repr_html_()
    assert len(re.findall(r"[\d.]+,[\d.]+", long)) <= 200


def test_progress_is_a_bar_in_a_notebook(monkeypatch):
    drawn = []
    handle = SimpleNamespace(update=drawn.append)
    display = SimpleNamespace(
        HTML=str, display=lambda page, display_id: drawn.append(page) or handle
    )
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1), display=display)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with ProgressLine(True, Clock(), total=4, label="<selecting>") as line:
        line.update(3, 0.5)
    assert 'value="0.750"' in drawn[-1]
    assert "&lt;selecting&gt; 3/4" in drawn[-1]
