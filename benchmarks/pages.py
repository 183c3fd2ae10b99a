"""Build Markdown pages from records: tables, mean ± error, templates and figures.

A page is a Jinja2 template under ``benchmarks/templates``. It loads records with ``record(NAME)``
and calls the functions of this module and of the modules that :func:`render` is given.
"""

import json
import re
import string
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import jinja2
import numpy as np

RECORDS = Path(__file__).parent / "records"
DOCS = Path(__file__).parents[1] / "docs"
#: Characters of a line of prose.
WIDTH = 130
Row = Mapping[str, Any]


@cache
def read_record(name: str) -> dict[str, Any]:
    """A record, read once; callers do not change it."""
    return json.loads((RECORDS / f"{name}.json").read_text())


def where(rows: Iterable[Row], **fields: Any) -> list[Row]:
    """The rows whose fields have these values."""
    return [row for row in rows if all(row.get(key) == one for key, one in fields.items())]


def unique(rows: Iterable[Row], field: str) -> list[Any]:
    """The values of a field, in the order of their first row."""
    return list(dict.fromkeys(row[field] for row in rows))


def percent(rows: Iterable[Row], field: str = "accuracy") -> np.ndarray:
    """The values of a field, in percent."""
    return 100 * np.array([row[field] for row in rows])


def spread(values: Any, spec: str = ".1f", scale: float = 1.0, none: str = "–") -> str:
    """Mean ± standard error; the mean alone for one value, ``none`` for no value."""
    found = scale * np.asarray(values, dtype=float)
    if len(found) < 2:
        return f"{found[0]:{spec}}" if len(found) else none
    error = found.std(ddof=1) / len(found) ** 0.5
    return f"{found.mean():{spec}} ± {error:{spec.lstrip('+')}}"


class _Formatter(string.Formatter):
    """``{x:.1f*100}`` scales before it formats; a list is shown as mean ± standard error."""

    def format_field(self, value: Any, spec: str) -> str:
        spec, _, scale = spec.partition("*")
        if isinstance(value, list | np.ndarray) and spec:
            return spread(value, spec, float(scale or 1))
        return format(value * float(scale) if scale else value, spec)


def show(value: Any, spec: str) -> str:
    """One value by a format specification, see ``_Formatter``."""
    return _Formatter().format_field(value, spec)


def fill(row: Row, pattern: str) -> str:
    """Fill the fields of a row into a pattern; empty if the pattern starts with ``?`` and a field
    is missing."""
    try:
        return _Formatter().vformat(pattern.removeprefix("?"), (), row)
    except (KeyError, TypeError):
        if pattern.startswith("?"):
            return ""
        raise


def cells(rows: Iterable[Row], patterns: str) -> list[list[str]]:
    """The body of a table, by patterns of its columns that are separated by ``|``."""
    columns = [one.strip() for one in patterns.split("|")]
    return [[fill(row, column) for column in columns] for row in rows]


def lines(body: Iterable[Any], patterns: str | None = None) -> str:
    """Lines of a Markdown table from its cells, or from rows and the patterns of its columns."""
    found = body if patterns is None else cells(body, patterns)
    return "\n".join("| " + " | ".join(row) + " |" for row in found)


def table(head: Iterable[str], body: Iterable[Any], patterns: str | None = None) -> str:
    """A Markdown table."""
    names = list(head)
    rule = "|" + "---|" * len(names)
    return "\n".join(filter(None, [lines([names]), rule, lines(body, patterns)])) + "\n"


def pivot(
    rows: Sequence[Row],
    line: str,
    column: str,
    cell: Callable[[list[Row]], str],
    head: Callable[[Any], str] = str,
    names: Mapping[Any, str] = MappingProxyType({}),
    corner: str | None = None,
) -> str:
    """A table with a line for each value of one field and a column for each value of another;
    ``cell`` shows the rows that have both, ``names`` are those of lines with another name."""
    columns = sorted(unique(rows, column))
    body = [
        [names.get(one, one), *(cell(where(rows, **{line: one, column: two})) for two in columns)]
        for one in unique(rows, line)
    ]
    return table([line if corner is None else corner, *map(head, columns)], body)


def format_count(number: int) -> str:
    """A whole number with commas between its thousands."""
    return f"{number:,}"


def group_thousands(text: str) -> str:
    """Replace the spaces between thousands, which names in records have, by commas."""
    return re.sub(r"(?<=\d) (?=\d{3}(?!\d))", ",", text)


def join_words(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def wrap(paragraph: str) -> str:
    """A paragraph in lines of prose."""
    lines = textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines + "\n"


def describe_run(record: Row) -> str:
    """The command and the machine of a record."""
    machine = record["machine"]
    card = f", {machine['gpu']}" if machine["gpu"] else ""
    return (
        f"Recorded by `{record['command']}` on {machine['processor']} ({machine['cores']} "
        f"cores{card}) with torch {machine['torch']}."
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    shared = [where, unique, percent, spread, cells, lines, table, describe_run, format_count]
    shared += [join_words, slug, wrap, len, np.mean, np.transpose]
    environment.globals |= {"record": read_record} | {one.__name__: one for one in shared}
    environment.filters |= {"f": show} | {one.__name__: one for one in shared}
    return environment


def render(page: str, *modules: ModuleType, **names: Any) -> str:
    """A page from its template, which uses the names of these modules, and further names."""
    known = {name: value for module in modules for name, value in vars(module).items()}
    return group_thousands(_environment().get_template(page).render(known | names))


@contextmanager
def drawing(path: Path, *shape: int, dpi: int = 130, **options: Any) -> Iterator[tuple[Any, Any]]:
    """A Matplotlib figure and its axes, which are written to ``path`` at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(*shape, layout="constrained", **options)
    yield figure, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    pyplot.close(figure)


#: Functions that draw the figures of docs/, by the paths of these.
FIGURES: dict[str, Callable[[], None]] = {}


def figure(name: str, *shape: int, **options: Any) -> Callable[[Callable[[Any], None]], Any]:
    """Register a function that draws docs/NAME on the axes it is given."""

    def register(paint: Callable[[Any], None]) -> Callable[[], None]:
        def draw() -> None:
            with drawing(DOCS / name, *shape, **options) as (_, axes):
                paint(axes)

        FIGURES[name] = draw
        return draw

    return register


def label(axis: Any, legend: dict[str, Any] | None = None, **labels: Any) -> None:
    """Set labels, scales and a grid, and a legend if its options are given."""
    axis.set(**labels)
    axis.grid(alpha=0.3)
    if legend is not None:
        axis.legend(**legend)
