"""Columns of Arrow tables as arrays: numbers, lists that hold an embedding, labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.frames import arrow, dense, is_list, plain
from bicore.shards.source import Chunk, Part
from bicore.shards.sources.gathered import changed
from bicore.shards.sources.values import as_floats, family
from bicore.sources.cells import texts
from bicore.sources.reading import name_list, unknown_column

#: Rows among which one is sought that shows how long the lists of a column are.
FIRST_ROWS = 64


@dataclass(frozen=True)
class Columns:
    """Which columns are features, labels and weights.

    Parameters
    ----------
    features : tuple of str
        Columns of numbers, or the one that holds lists.
    nested : bool
        Whether it is lists.
    target, weight : str, optional
        Labels or targets, and weights.
    """

    features: tuple[str, ...]
    nested: bool
    target: str | None = None
    weight: str | None = None

    @property
    def names(self) -> list[str]:
        """All that are read, each once."""
        rest = [name for name in (self.target, self.weight) if name is not None]
        return list(dict.fromkeys([*self.features, *rest]))

    def kind(self, schema: Any) -> str:
        """What the features are, in words."""
        return family(np.result_type(*[_dtype(schema.field(name).type) for name in self.features]))

    def label(self, schema: Any) -> tuple[str, tuple[int, ...]] | None:
        """What labels are and the shape of one; lists of targets are checked when they are read."""
        if self.target is None:
            return None
        return _label_kind(schema.field(self.target).type, self.target), ()

    def told(self) -> str:
        """In words, what was taken as features."""
        if self.nested:
            return f"features: the lists of column {self.features[0]!r}"
        return f"features: {len(self.features)} columns of numbers: {name_list(self.features)}"

    def shape(self, table: Any, place: str) -> tuple[int, ...]:
        """The shape of a row, as the first rows show it."""
        if not self.nested:
            return (len(self.features),)
        column = table.column(self.features[0])
        for chunk in column.chunks:
            shown = chunk.drop_null()
            if len(shown):
                return tuple(dense(shown.slice(0, 1), None, 0, place).shape[1:])
        raise InputError(
            f"{place} holds no value in the first {len(column)} rows of {self.features[0]!r}; "
            "drop the rows without one."
        )

    def gathered(self, tables: Iterable[Any], shape: tuple[int, ...], part: Part) -> Chunk:
        """The rows of a part from tables of some of them each, written to one array."""
        pieces: list[Chunk] = []
        x: Array | None = None
        done = 0
        for table in tables:
            count = table.num_rows
            if done + count > part.count:
                raise changed(part.place, f"{part.count} rows", "longer")
            some = self.chunk(table, shape, replace(part, offset=part.offset + done, count=count))
            if x is None:
                x = np.empty((part.count, *shape), dtype=some.x.dtype)
            x[done : done + count] = some.x
            pieces.append(replace(some, x=some.x[:0]))
            done += count
        if x is None or done != part.count:
            raise changed(part.place, f"{part.count} rows", f"{done} rows")
        y, weight = (_joined([getattr(one, name) for one in pieces]) for name in ("y", "weight"))
        return Chunk(x, y, weight)

    def chunk(self, table: Any, shape: tuple[int, ...], part: Part) -> Chunk:
        """The rows of a part from its table."""
        if table.num_rows != part.count:
            raise changed(part.place, f"{part.count} rows", f"{table.num_rows} rows")
        if self.nested:
            x = _matrix(table.column(self.features[0]), shape, part)
        else:
            x = _side_by_side([table.column(name) for name in self.features])
        return Chunk(
            x,
            None if self.target is None else _labels(table.column(self.target), part),
            None if self.weight is None else as_floats(_numbers(table.column(self.weight))),
        )


def _joined(pieces: list[Array | None]) -> Array | None:
    """Pieces of a column below each other; masked if one is."""
    if pieces[0] is None:
        return None
    masked = any(np.ma.is_masked(piece) for piece in pieces)
    join: Any = np.ma.concatenate if masked else np.concatenate
    joined: Array = join(pieces)
    return joined


def choose(
    schema: Any,
    features: str | Sequence[str] | None,
    target: str | None,
    weight: str | None,
    place: str,
) -> Columns:
    """The columns that were asked for; without a word on features, those that can be."""
    for argument, name in (("target", target), ("weight", weight)):
        if name is not None:
            _need(schema, name, argument, place)
    if weight is not None and not _is_number(schema.field(weight).type):
        raise InputError(f"{place}: weight={weight!r} is not a column of numbers.")
    names = _named(schema, features, {target, weight}, place)
    nested = [name for name in names if is_list(schema.field(name).type)]
    for name in names:
        kind = schema.field(name).type
        if not _is_number(_innermost(kind)):
            raise InputError(
                f"{place}: features={name!r} is a column of {kind}; give columns of numbers, or "
                "one of lists of numbers (encode text and dates first)."
            )
    if nested and len(names) > 1:
        raise InputError(
            f"{place}: features={names!r} mixes lists ({nested[0]!r}) with other columns; give "
            "the one column of lists, or columns of numbers."
        )
    return Columns(tuple(names), bool(nested), target, weight)


def _named(
    schema: Any, features: str | Sequence[str] | None, others: set[str | None], place: str
) -> list[str]:
    if features is not None:
        names = [str(features)] if features == str(features) else list(features)
        if not names:
            raise InputError("features is an empty list; name at least one column.")
        for name in names:
            _need(schema, name, "features", place)
        return names
    free = [field for field in schema if field.name not in others]
    lists = [field.name for field in free if is_list(field.type)]
    if len(lists) > 1:
        raise InputError(
            f"{place} holds several columns of lists ({', '.join(lists)}); say which one with "
            f"features={lists[0]!r}."
        )
    names = lists or [field.name for field in free if _is_number(field.type)]
    if not names:
        raise InputError(
            f"{place} holds no column of numbers or lists besides target and weight (columns: "
            f"{name_list(schema.names)}); name the features."
        )
    return names


def _need(schema: Any, name: str, argument: str, place: str) -> None:
    if schema.names.count(name) != 1:
        raise InputError(f"{place}: {unknown_column(argument, str(name), schema.names)}")


def _innermost(kind: Any) -> Any:
    kind = plain(kind)
    return _innermost(kind.value_type) if is_list(kind) else kind


def _is_number(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    types = arrow().types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _dtype(kind: Any) -> np.dtype[np.generic]:
    """NumPy's dtype for a type of numbers, or of numbers in lists."""
    dtype: np.dtype[np.generic] = np.dtype(_innermost(kind).to_pandas_dtype())
    return dtype


def _label_kind(kind: Any, name: str) -> str:
    if _is_text(kind):
        return family(np.dtype(np.str_))
    inner = kind.value_type if arrow().types.is_dictionary(kind) else _innermost(kind)
    if not _is_number(inner):
        raise InputError(
            f"target={name!r} is a column of {kind}; give integers, text, booleans or floats."
        )
    return family(_dtype(inner))


def _numbers(column: Any) -> Array:
    """A column of numbers; NaN where one is missing."""
    if arrow().types.is_boolean(column.type):
        column = column.cast("uint8")
    return np.asarray(column.to_numpy())


def _side_by_side(columns: Sequence[Any]) -> Array:
    kinds = [as_floats(np.empty(0, dtype=_dtype(column.type))).dtype for column in columns]
    x = np.empty((len(columns[0]), len(columns)), dtype=np.result_type(*kinds))
    for place, column in enumerate(columns):
        x[:, place] = _numbers(column)
    return x


def _matrix(column: Any, shape: tuple[int, ...] | None, part: Part) -> Array:
    """Lists of equal length as rows; NaN where a list or a value is missing."""
    starts = accumulate(map(len, column.chunks), initial=part.offset)
    pieces = [
        as_floats(dense(chunk, shape, start, part.place))
        for chunk, start in zip(column.chunks, starts, strict=False)
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _labels(column: Any, part: Part) -> Array:
    """Labels as stored, text as NumPy's; masked where they are missing."""
    if is_list(column.type):
        return _matrix(column, None, part)
    missing = column.is_null().to_numpy()
    if _is_text(column.type):
        known = texts(column.cast("string"))
        values = np.array([*known.values, ""], dtype=np.str_)[known.codes]
    else:
        if arrow().types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = np.asarray(column.fill_null(arrow().scalar(0).cast(column.type)).to_numpy())
    return np.ma.MaskedArray(values, missing) if missing.any() else values
