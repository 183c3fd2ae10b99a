"""``bicore estimate``: what a selection from rows in parts would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bicore.cli.options import Labels, Memory, Quiet, SourceWord, Target, Threads, read_size
from bicore.cli.starting import starting
from bicore.cli.telling import say, say_json, tell

if TYPE_CHECKING:
    from bicore.shards import ShardEstimate


def estimate(
    source: SourceWord,
    size: Annotated[
        str,
        typer.Option(metavar="M", help="How many points: a count, a fraction or a percentage."),
    ],
    features: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns of features (tables).")
    ] = None,
    target: Target = None,
    labels: Labels = None,
    kernel: Annotated[str | None, typer.Option(metavar="NAME", help="As in select.")] = None,
    passes: Annotated[str, typer.Option(help="auto or exact, as in select.")] = "auto",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Say what a selection from files that are read in parts would take: bytes, passes, seconds.

    Example: bicore estimate 'part-*.parquet' --features embedding --target label --size 10000
    """
    with starting():
        from bicore.runtime import Runtime
        from bicore.selectors.from_shards import asked
        from bicore.shards import estimate as estimated
        from bicore.shards.opening import open_shards
    count: Any = read_size(size)
    runtime = Runtime("cpu", memory=memory, threads=threads)
    wanted = asked({"kernel": kernel, "passes": passes}, size=count)
    opened = open_shards(source, features=columns(features), target=target, labels=labels)
    if not quiet:
        for note in wanted.notes:
            tell(note)
    found = estimated(opened, count, features=wanted.features, runtime=runtime, **wanted.options)
    if as_json:
        say_json(found.as_dict())
    else:
        say(*words_of(found))


def columns(features: str | None) -> str | list[str] | None:
    """Columns as people write them: one, or several with commas between."""
    if features is None or "," not in features:
        return features
    return [name.strip() for name in features.split(",")]


def words_of(found: ShardEstimate) -> list[str]:
    """An estimate in words, a line each."""
    from bicore.runtime import human_bytes
    from bicore.selectors.large import human_seconds

    lines = [
        f"{found.size} of {found.rows} points of {found.width} features, {found.parts} parts",
        f"{found.passes} passes, {human_bytes(found.bytes_read)} read, "
        f"{found.operations:.3g} multiply-adds",
    ]
    for way in found.ways:
        workers = way.name if way.workers != 1 else way.name.removesuffix("s")
        over = "" if way.fits else f", beyond the limit of {human_bytes(found.limit)}"
        taken = " (taken)" if way == found.taken else ""
        lines.append(
            f"{way.workers} {workers}: about {human_seconds(way.seconds)}, "
            f"{human_bytes(way.bytes)} of memory{over}{taken}"
        )
    return lines
