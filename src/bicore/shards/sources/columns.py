"""Columns of Arrow tables as arrays: numbers, lists that hold an embedding, labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError, unknown_name
from bicore.frames import arrow, dense, is_list, plain
from bicore.shards.source import Chunk, Part
from bicore.shards.sources.gathered import changed
from bicore.shards.sources.values import as_floats, family

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
        return f"features: {len(self.features)} columns of numbers: {', '.join(self.features)}"

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
        x = np.empty((part.count, *shape), dtype=np.float16)
        y: list[Array] = []
        weights: list[Array] = []
        done = 0
        for table in tables:
            count = table.num_rows
            if done + count > part.count:
                raise changed(part.place, f"{part.count} rows", "longer")
            some = self.chunk(table, shape, replace(part, offset=part.offset + done, count=count))
            if some.x.dtype != x.dtype:
                wide = some.x.dtype if not done else np.result_type(x, some.x)
                x = x.astype(wide) if done else np.empty(x.shape, dtype=wide)
            x[done : done + count] = some.x
            y += [] if some.y is None else [some.y]
            weights += [] if some.weight is None else [some.weight]
            done += count
        if done != part.count:
            raise changed(part.place, f"{part.count} rows", f"{done} rows")
        return Chunk(x, _joined(y), _joined(weights))

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


def _joined(pieces: list[Array]) -> Array | None:
    """Pieces of a column end to end; masked where one is."""
    if not pieces:
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
            f"{', '.join(schema.names)}); name the features."
        )
    return names


def _need(schema: Any, name: str, argument: str, place: str) -> None:
    if schema.names.count(name) != 1:
        raise _lacking(schema, name, argument, place)


def _lacking(schema: Any, name: Any, argument: str, place: str) -> InputError:
    return InputError(f"{place} has no column for {unknown_name(argument, name, schema.names)}")


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
    """NumPy's for a type of numbers, or for those in lists."""
    dtype: np.dtype[np.generic] = np.dtype(_innermost(kind).to_pandas_dtype())
    return dtype


def _label_kind(kind: Any, name: str) -> str:
    inner = kind.value_type if arrow().types.is_dictionary(kind) else _innermost(kind)
    if _is_text(inner) and not is_list(kind):
        return family(np.dtype(np.str_))
    if not _is_number(inner):
        raise InputError(
            f"target={name!r} is a column of {kind}; give integers, text, booleans or floats."
        )
    return family(np.dtype(inner.to_pandas_dtype()))


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
    pieces = []
    before = 0
    for chunk in column.chunks:
        pieces.append(as_floats(dense(chunk, shape, part.offset + before, part.place)))
        before += len(chunk)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _labels(column: Any, part: Part) -> Array:
    """As stored; text as NumPy's, and masked where they are missing."""
    if is_list(column.type):
        return _matrix(column, None, part)
    text = _is_text(column.type)
    missing = column.is_null().to_numpy() if column.null_count else None
    if arrow().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if missing is not None:
        column = column.fill_null(arrow().scalar("" if text else 0).cast(column.type))
    values = np.asarray(column.to_numpy())
    if text:
        values = values.astype(np.str_)
    return values if missing is None else np.ma.MaskedArray(values, missing)
