"""Types of public arguments: arrays, tables, sources and models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np


class SupportsArray(Protocol):
    """Input that NumPy can read: an array, a tensor, a series, a data frame, a Dask collection."""

    def __array__(self) -> Any: ...


class SparseMatrix(Protocol):
    """A sparse matrix or array of SciPy."""

    def tocsr(self) -> Any: ...


class HubDataset(Protocol):
    """A data set of Hugging Face."""

    @property
    def column_names(self) -> Any: ...

    def with_format(self, type: str) -> Any: ...


class Items(Protocol):
    """A map-style torch data set, or any object with a length and items by row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Any: ...


class Table(Protocol):
    """A data frame of pandas or polars, a table of Arrow, or a data set of Hugging Face."""

    def __len__(self) -> int: ...

    def __getitem__(self, name: Any, /) -> Any: ...


class PartSource(Protocol):
    """A source that is read in parts, as :class:`bicore.sources.ShardSource`."""

    def parts(self) -> Any: ...

    def read(self, part: Any, /) -> Any: ...


class Sampler(Protocol):
    """A sampler of imbalanced-learn or bicore."""

    def fit_resample(self, X: Any, y: Any) -> Any: ...


class Estimator(Protocol):
    """A model of scikit-learn."""

    def get_params(self, deep: bool = True) -> Any: ...


PathLike: TypeAlias = str | os.PathLike[str]
#: Rows of numbers.
Numbers: TypeAlias = SupportsArray | Sequence[Any]
#: Rows of numbers, or of columns that are encoded as numbers.
Matrix: TypeAlias = Numbers | SparseMatrix
#: Rows to select from; a string is a path, a pattern or the name of a built-in data set.
Rows: TypeAlias = Matrix | HubDataset | PartSource | os.PathLike[str]
#: Labels or targets, or the name of a table's column with them.
Labels: TypeAlias = Numbers | str
#: One number per row, or the name of a table's column.
Weights: TypeAlias = Numbers | str
#: Rows on which the objective is measured.
Outer: TypeAlias = tuple[Rows, Labels] | tuple[Rows, Labels, Weights] | PathLike
#: A label of a class.
Label: TypeAlias = str | int | float | bool | np.generic
#: A seed, in any form of NumPy or scikit-learn.
RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None
