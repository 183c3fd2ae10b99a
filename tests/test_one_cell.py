"""Every row of docs/reproduction.md can be run by its name."""

from dataclasses import replace
from pathlib import Path

import pytest

from bicore import InputError
from experiments.__main__ import main
from experiments.layout import FIGURE_C
from experiments.one_cell import LAYOUTS, find_cells
from experiments.running import Order
from experiments.tables import Book
from tests.helpers import refuses


@pytest.fixture(scope="module")
def book():
    return Book()


def cells_of_the_page():
    for layout in LAYOUTS:
        for line in layout.lines:
            if not line.hidden:
                cells = find_cells(layout.title.partition(":")[0], line.label)
                places = [place for place in line.places if place is not None]
                assert [one.place for one in cells] == places, (layout.title, line.label)
                yield from cells


@pytest.mark.slow
def test_labels_of_the_page_identify_the_runs_of_its_cells(book):
    for one in list(cells_of_the_page())[::8]:
        order = one.order(Order((one.recorded.experiment,), Path("nowhere"), "data"), book)
        (row,) = order.rows(one.recorded.experiment)
        # with the repository's own records there is nothing left to run
        shown = book.cell(one.place)
        assert order.seeds == shown.seeds
        records = replace(order, folder=book.folder).records(one.recorded.experiment)
        for seed in range(order.seeds):
            for value in order.values_to_try(row):
                assert records.has(row.configuration(seed, value)), (one, seed, value)


def test_one_column_alone():
    (cell,) = find_cells("figure3c", "coreset", "90")
    assert (cell.column, cell.place.memory) == ("90", 90)
    assert cell.place.experiment == FIGURE_C.experiments[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("Table 9", "CBRS"), "no table is called 'Table 9'"),
        (("Table 3", "GSS"), "no row is called 'GSS' in 'Table 3'; there are Reservoir; CBRS"),
        (
            ("Table 2", "Coreset", "SplitCIFAR-10"),
            "no number in a column 'SplitCIFAR-10'; there are PermMNIST, SplitMNIST",
        ),
        (("table", "Coreset"), "several rows"),
    ],
)
def test_unknown_words(words, told):
    refuses(told.replace("(", r"\("), find_cells, *words)


def test_a_toy_of_a_row_end_to_end(tmp_path, capsys):
    words = ["cell", "Table 3", "Reservoir", "SplitMNIST", "--quick", "--records", str(tmp_path)]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("SplitMNIST, a toy: ")
    assert [path.stem for path in tmp_path.glob("*.jsonl")] == ["imbalanced-fresh"]


def test_data_and_sizes_that_no_row_has():
    with pytest.raises(InputError, match="their data are PermMNIST, SplitMNIST"):
        Order(("continual",), Path("nowhere"), on="SplitCIFAR-10")
    # a row whose runs another table has is no mistake: there is nothing to run
    assert Order(("cifar-proxy",), Path("nowhere"), only=("Coreset",)).rows("cifar-proxy") == []
    order = Order(("memory",), Path("nowhere"), on="SplitMNIST", memory=50)
    assert {row.memory for row in order.rows("memory")} == {50}
