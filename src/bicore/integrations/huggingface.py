"""Hugging Face data sets: Arrow columns as arrays, without Python lists in between."""

from __future__ import annotations

from collections.abc import Sequence

from bicore._deprecated import renamed_keywords
from bicore.data import Dataset
from bicore.sources.arrow_files import HuggingFaceShards
from bicore.sources.parts import rows_of
from bicore.types import HubDataset

__all__ = ["from_hf"]

#: Rows per read: their memory is negligible next to that of all rows.
ROWS_AT_ONCE = 4096


@renamed_keywords()
def from_hf(
    dataset: HubDataset,
    x: str | Sequence[str] | None = None,
    y: str | None = None,
    sample_weight: str | None = None,
) -> Dataset:
    """Load the rows of a Hugging Face data set as arrays of the stored precision.

    Memory holds the rows once. For rows that do not fit into memory use
    :func:`bicore.select` with the data set itself.

    Parameters
    ----------
    dataset : datasets.Dataset
        One split, with its selection, order and filters.
    x : str or list of str, optional
        One column of lists (an embedding), or columns of numbers. Default: the one column of lists,
        or all numeric columns except y and the weight.
    y : str, optional
        The column of labels or targets.
    sample_weight : str, optional
        The column of weights.

    Returns
    -------
    Dataset
        In the order of the data set; ``coreset.select(dataset)`` selects its rows.

    Raises
    ------
    InputError
        If a column is missing, of the wrong kind, or lacks a value.

    Examples
    --------
    >>> import bicore, datasets  # doctest: +SKIP
    >>> ds = datasets.load_from_disk("embedded")  # doctest: +SKIP
    >>> coreset = bicore.select(from_hf(ds, x="embedding", y="label"), 100)  # doctest: +SKIP
    >>> coreset.select(ds)  # with a column of weights  # doctest: +SKIP
    """
    return rows_of(HuggingFaceShards(dataset, x, y, sample_weight, part_rows=ROWS_AT_ONCE))
