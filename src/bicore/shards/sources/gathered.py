"""What sources of files have in common: shards that must agree, cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bicore.errors import InputError
from bicore.shards.source import Part, ShardSource
from bicore.shards.sources import sampling
from bicore.shards.sources.files import common_name


@dataclass(frozen=True)
class Shard:
    """What is known of a file, or of a row group, before its rows are read.

    Parameters
    ----------
    path : Path
        The file.
    rows : int
        How many it has.
    shape : tuple of int
        The shape of a row.
    kind : str
        What its features are, in words.
    label : tuple, optional
        What its labels are and the shape of one; None without labels.
    offset : int
        Row of the file with which it begins.
    inside : str
        Its place inside the file, in words.
    group : int
        Its number inside the file.
    """

    path: Path
    rows: int
    shape: tuple[int, ...]
    kind: str
    label: tuple[str, tuple[int, ...]] | None = None
    offset: int = 0
    inside: str = ""
    group: int = 0

    @property
    def place(self) -> str:
        """Where it lies, as errors name it."""
        return f"{self.path}, {self.inside}" if self.inside else str(self.path)


class FileShards(ShardSource):
    """Rows in files that agree with one another."""

    def __init__(self, shards: Sequence[Shard], part_rows: int | None, words: str) -> None:
        refuse_unlike(shards)
        self.notes = tuple(
            f"{shard.place} has no rows and is passed over" for shard in shards if not shard.rows
        )
        self.shards = tuple(shard for shard in shards if shard.rows)
        if not self.shards:
            raise InputError(
                f"{common_name([shard.path for shard in shards])}: no file has any rows; check "
                "what wrote them."
            )
        self._parts, self._homes = _cut(self.shards, part_rows)
        self._words = words

    @property
    def name(self) -> str:
        return common_name(self.files)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold rows, each once."""
        return tuple(dict.fromkeys(shard.path for shard in self.shards))

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shards[0].shape

    @property
    def labelled(self) -> bool:
        return self.shards[0].label is not None

    def fingerprint(self) -> str:
        return sampling.of_files(self._words, self.sampled)

    @property
    def sampled(self) -> tuple[Path, ...]:
        """The files whose sizes and contents are in the fingerprint."""
        return self.files

    def home(self, part: Part) -> Shard:
        """The shard that a part is cut from."""
        return self.shards[self._homes[part.number]]


def refuse_unlike(shards: Sequence[Shard]) -> None:
    """Every shard with rows must be like the first of them."""
    filled = [shard for shard in shards if shard.rows]
    for shard in filled:
        first = filled[0]
        if shard.shape != first.shape:
            raise InputError(
                f"{shard.place} has rows of shape {shard.shape} and {first.place} of shape "
                f"{first.shape}; all must be alike: leave one of them out, or make it again."
            )
        if shard.kind != first.kind:
            raise InputError(
                f"{shard.place} holds {shard.kind} and {first.place} {first.kind}; save all in one "
                "kind of number."
            )
        _refuse_unlike_labels(shard, first)


def _refuse_unlike_labels(shard: Shard, first: Shard) -> None:
    if shard.label == first.label:
        return
    if shard.label is None or first.label is None:
        without, having = (shard, first) if shard.label is None else (first, shard)
        raise InputError(
            f"{without.place} has no labels and {having.place} has; add them, or leave the file "
            "out."
        )
    if shard.label[0] != first.label[0]:
        raise InputError(
            f"{shard.place} has labels that are {shard.label[0]} and {first.place} "
            f"{first.label[0]}; save all labels as one kind."
        )
    raise InputError(
        f"{shard.place} has labels of shape {shard.label[1]} a row and {first.place} "
        f"{first.label[1]}; save all labels alike."
    )


def _cut(
    shards: Sequence[Shard], part_rows: int | None
) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    parts: list[Part] = []
    homes: list[int] = []
    start = 0
    for number, shard in enumerate(shards):
        step = part_rows or shard.rows
        for first in range(0, shard.rows, step):
            count = min(step, shard.rows - first)
            parts.append(Part(len(parts), start, count, shard.place, shard.offset + first))
            homes.append(number)
            start += count
    return tuple(parts), tuple(homes)


def equal_parts(rows: int, part_rows: int, place: str) -> tuple[Part, ...]:
    """Parts of ``part_rows`` rows each, the last one shorter."""
    starts = range(0, rows, part_rows)
    return tuple(
        Part(number, start, min(part_rows, rows - start), place, start)
        for number, start in enumerate(starts)
    )


def need_part_rows(part_rows: int) -> int:
    """How many rows a part has, refused below 1."""
    if part_rows < 1:
        raise InputError(f"part_rows={part_rows} is below 1; give the number of rows of a part.")
    return part_rows


def changed(place: str, known: object, found: object) -> InputError:
    """The error for a shard that is not what it was when the source was opened."""
    return InputError(
        f"{place} changed since it was opened: it was {known} and is {found}; put it back, or open "
        "the source again and start anew."
    )
