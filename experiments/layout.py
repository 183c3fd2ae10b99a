"""The layout of the paper's tables in docs/reproduction.md, from ``layout.json``.

Streams are those with a fresh optimiser a batch, as the authors run them, if such runs exist; the
others follow below them. Errors of the authors' code are not repeated here: rows that repeat them
are in the appendix.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.problems import PERM_MNIST, SPLIT_CIFAR, SPLIT_MNIST
from experiments.tables import Place

PERM, SPLIT, CIFAR = PERM_MNIST.name, SPLIT_MNIST.name, SPLIT_CIFAR.name
#: Where continual learning is recorded.
CONTINUAL = {PERM: "continual", SPLIT: "continual", CIFAR: "cifar-continual"}
ON_MNIST = (PERM, SPLIT)


@dataclass(frozen=True)
class Line:
    """A row: its label, a place for every column, the label of the row its marks compare it with,
    whether its numbers are published here and nowhere above, and whether it is there for marks
    alone, because another table shows it."""

    label: str
    places: Sequence[Place | None]
    against: str | None = None
    counted: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class Layout:
    """A table: its title, the experiments of its runs, its columns and lines; the name of its
    figure, if it has one."""

    title: str
    experiments: Sequence[str]
    columns: Sequence[str]
    lines: Sequence[Line]
    note: str = ""
    picture: str = ""

    def references(self, line: Line) -> Sequence[Place | None]:
        """The places that a line's marks compare with, one for every column."""
        none = [None] * len(line.places)
        return next((one.places for one in self.lines if one.label == line.against), none)


def _layouts() -> Iterator[Layout]:
    for layout in json.loads(Path(__file__).with_name("layout.json").read_text()):
        lines = []
        for line in layout.pop("lines"):
            places = [Place.parse(one) if one else None for one in line.pop("places")]
            lines.append(Line(places=places, **line))
        yield Layout(lines=lines, **layout)


LAYOUTS = list(_layouts())
*TABLES, FIGURE_A, FIGURE_C = LAYOUTS


def list_published() -> Iterator[tuple[str, str, Place]]:
    """Every published number once: the title of its table, the label of its row (with the size if
    the table varies it), and its place."""
    for layout in TABLES:
        for line in layout.lines:
            for place in filter(None, line.places if line.counted else ()):
                size = "" if place.memory is None else f", {place.memory} rows"
                yield layout.title, line.label + size, place
