"""A Hugging Face data set on disk: its Arrow tables are mapped, never made into Python lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bicore.errors import InputError
from bicore.frames import arrow
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources import sampling
from bicore.shards.sources.arrays import PART_ROWS
from bicore.shards.sources.columns import FIRST_ROWS, choose
from bicore.shards.sources.gathered import equal_parts, need_part_rows


class HuggingFaceShards(ShardSource):
    """Rows of a ``datasets.Dataset``, such as ``datasets.load_from_disk`` gives.

    Parameters
    ----------
    dataset : datasets.Dataset
        One split, on disk or in memory; what was selected or shuffled stays so.
    x : str or list of str, optional
        One column of lists (an embedding), or columns of numbers. Default: the one column of lists,
        or all columns of numbers besides y and weight.
    y : str, optional
        The column of labels or targets.
    weight : str, optional
        The column of weights.
    part_rows : int
        Rows that are read together.

    Examples
    --------
    >>> import datasets  # doctest: +SKIP
    >>> dataset = datasets.load_from_disk("embedded")  # doctest: +SKIP
    >>> source = HuggingFaceShards(dataset, x="embedding", y="label")  # doctest: +SKIP
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        dataset: Any,
        x: str | Sequence[str] | None = None,
        y: str | None = None,
        weight: str | None = None,
        part_rows: int = PART_ROWS,
    ) -> None:
        if not hasattr(dataset, "with_format") or not hasattr(dataset, "__len__"):
            raise InputError(
                f"dataset is a {type(dataset).__name__}; give one split of a datasets.Dataset "
                "that is on disk (not streamed)."
            )
        if hasattr(dataset, "keys"):
            splits = list(dataset.keys())
            raise InputError(
                f"dataset holds the splits {', '.join(splits)}; give one of them, such as "
                f"dataset[{splits[0]!r}]."
            )
        if not len(dataset):
            raise InputError("dataset has no rows; check how it was made.")
        arrow()
        self._name = str(getattr(getattr(dataset, "info", None), "dataset_name", 0) or "dataset")
        first = dataset.with_format("arrow")[:FIRST_ROWS]
        self._columns = choose(first.schema, x, y, weight, self._name)
        self.dataset = dataset.select_columns(self._columns.names).with_format("arrow")
        self._shape = self._columns.shape(first, self._name)
        self._columns.label(first.schema)
        self.part_rows = need_part_rows(part_rows)
        if x is None:
            self.notes = (self._columns.told(),)

    @property
    def name(self) -> str:
        return self._name

    @property
    def parts(self) -> tuple[Part, ...]:
        return equal_parts(len(self.dataset), self.part_rows, self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def labelled(self) -> bool:
        return self._columns.target is not None

    def read(self, part: Part) -> Chunk:
        return self._columns.chunk(self.dataset[part.start : part.stop], self._shape, part)

    def fingerprint(self) -> str:
        rows = len(self.dataset)
        sample = sampling.spread(rows).tolist()
        part = Part(0, 0, len(sample), self.name)
        chunk = self._columns.chunk(self.dataset[sample], self._shape, part)
        words = f"dataset {rows} {self._columns.names}"
        return sampling.of_columns(words, (chunk.x, chunk.y, chunk.weight))
