"""The records of a folder as cells; every experiment is read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.paper import PAPER_SEEDS
from experiments.records import FOLDER, Record
from experiments.tables import Cell, Measured, cells, choice, gathered


@dataclass(frozen=True)
class Place:
    """Where a cell stands: the experiment, the data, the key of its row, and the size where the row
    has several or another row has the same key."""

    experiment: str
    problem: str
    key: str
    memory: int | None = None

    @classmethod
    def parse(cls, words: str) -> Place:
        """From ``experiment | data | key | memory``, the last where there is one."""
        experiment, problem, key, *memory = words.split(" | ")
        return cls(experiment, problem, key, int(memory[0]) if memory else None)


#: What a place holds, as one side measured it.
Look = Callable[[Place], Measured]


class Absent(Exception):
    """No record, or no published number, stands at a place."""


class Book:
    """What the records of a folder say."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._records: dict[str, list[Record]] = {}
        self._cells: dict[str, list[Cell]] = {}

    def records(self, name: str) -> list[Record]:
        if name not in self._records:
            self._records[name] = gathered(name, self.folder)
        return self._records[name]

    def cells(self, name: str) -> list[Cell]:
        if name not in self._cells:
            self._cells[name] = cells(name, self.records(name))
        return self._cells[name]

    def cell(self, place: Place) -> Cell:
        for cell in self.cells(place.experiment):
            found = (cell.problem, cell.row.key) == (place.problem, place.key)
            if found and cell.memory == (place.memory or cell.row.memory):
                return cell
        raise Absent(place)

    def runs(self, place: Place) -> list[Record]:
        """The runs behind a cell, with what was chosen for it."""
        cell = self.cell(place)
        return [
            one
            for one in self.records(place.experiment)
            if (one["dataset"], one["method"], one["memory"])
            == (place.problem, place.key, cell.memory)
            and choice(one) == cell.chosen
        ]

    def ours(self, place: Place) -> Measured:
        """As we measured it; a spread needs two seeds."""
        cell = self.cell(place)
        if cell.seeds < 2:
            raise Absent(place)
        return cell.measured

    def published(self, place: Place) -> Measured:
        """As the paper has it."""
        paper = self.cell(place).paper
        if paper is None:
            raise Absent(place)
        return paper["mean"], paper["std"], PAPER_SEEDS
