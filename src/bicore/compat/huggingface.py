"""Hugging Face data sets: their Arrow columns as arrays, without Python lists on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.shards.sources.huggingface import HuggingFaceShards

__all__ = ["from_hf"]

#: Rows that are read together: few enough that they count for nothing beside the whole.
ROWS_AT_ONCE = 4096


def from_hf(
    dataset: Any,
    x: str | Sequence[str] | None = None,
    y: str | None = None,
    weight: str | None = None,
) -> Dataset:
    """The rows of a Hugging Face data set as arrays, in the numbers they are stored in.

    Parts are copied from Arrow's memory into one array, so that memory holds the rows once. What
    does not fit into memory is read in parts instead:
    :class:`bicore.shards.sources.HuggingFaceShards`.

    Parameters
    ----------
    dataset : datasets.Dataset
        One split; what was selected, shuffled or filtered stays so.
    x : str or list of str, optional
        One column of lists (an embedding), or columns of numbers. Default: the one column of lists,
        or all columns of numbers besides y and weight.
    y : str, optional
        The column of labels or targets.
    weight : str, optional
        The column of weights.

    Returns
    -------
    Dataset
        Row by row as in the data set; ``coreset.select(dataset)`` goes the way back.

    Raises
    ------
    InputError
        Where a column is missing, of the wrong kind, or lacks a value.

    Examples
    --------
    >>> import bicore, datasets  # doctest: +SKIP
    >>> ds = datasets.load_from_disk("embedded")  # doctest: +SKIP
    >>> coreset = bicore.select(from_hf(ds, x="embedding", y="label"), 100)  # doctest: +SKIP
    >>> coreset.select(ds)  # with a column of weights  # doctest: +SKIP
    """
    source = HuggingFaceShards(dataset, x, y, weight, part_rows=ROWS_AT_ONCE)
    rows: Array | None = None
    others: dict[str, list[Array]] = {"y": [], "weight": []}
    for part in source.parts:
        chunk = source.read(part)
        if rows is None:
            # float16 grows here as a Dataset would let it, so that nothing is copied later.
            kind = np.result_type(chunk.x.dtype, np.float32)
            rows = np.empty((len(source), *source.shape), dtype=kind)
        rows[part.start : part.stop] = chunk.x
        _refuse_missing(chunk.y, part.start, y)
        for name, pieces in others.items():
            pieces.append(getattr(chunk, name))
    given = {"y": y, "weight": weight}
    columns = {name: np.concatenate(others[name]) for name in others if given[name] is not None}
    return Dataset(rows, **columns)  # type: ignore[arg-type]  # there is at least one part


def _refuse_missing(labels: Array | None, start: int, name: str | None) -> None:
    """Labels come masked where one is missing; missing numbers are NaN, which a Dataset refuses."""
    missing = np.flatnonzero(False if labels is None else np.ma.getmaskarray(labels))
    if len(missing):
        raise InputError(
            f"y={name!r} has no value in row {start + missing[0]}; drop such rows "
            "(dataset.filter), or fill them first."
        )
