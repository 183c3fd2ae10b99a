"""``bicore show``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bicore.cli.starting import starting
from bicore.cli.telling import say
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.coreset import Coreset, Provenance

#: How many rows and weights are listed, and how many characters of anything else.
MOST_ROWS = 15
MOST_CHARACTERS = 300


def show(
    file: Annotated[
        Path, typer.Argument(metavar="CORESET.npz", help="A file written by bicore select --out.")
    ],
) -> None:
    """Say what is in a coreset file and how to make it again.

    Example: bicore show picks.npz
    """
    if not file.exists():
        raise InputError(f"{file} does not exist; check the name.")
    with starting():
        from bicore.coreset import Coreset
    coreset = Coreset.load(file)
    say(f"{file}: {coreset!r}")
    if coreset.message:
        _line("message", coreset.message)
    for name, value in {**_origin(coreset.provenance), **coreset.details}.items():
        if value is not None:
            _line(name, _words(value))
    for note in coreset.provenance.notes:
        _line("note", note)
    _line("rows", _first(coreset, map(str, coreset.indices.tolist())))
    if not coreset.binary:
        _line("weights", _first(coreset, (f"{weight:.3g}" for weight in coreset.weights)))


def _line(name: str, words: str) -> None:
    say(f"  {name[:MOST_CHARACTERS]:15s} {words}")


def _origin(known: Provenance) -> dict[str, Any]:
    """What made the coreset, by the names people know it by."""
    inner_reg = None
    if known.inner_reg is not None:
        form = " a point" if known.per_point else ""
        inner_reg = f"{known.inner_reg}{form}{' (auto)' if known.automatic else ''}"
    return {
        "n": known.rows,
        "method": known.method,
        "task": known.task,
        "kernel": known.kernel,
        "loss": known.loss,
        "inner_reg": inner_reg,
        "seed": known.seed,
        "seconds": known.seconds,
        "fingerprint": known.fingerprint,
    }


def _words(value: Any) -> str:
    """One line of anything a file may hold."""
    text = str(value)
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {part}" for name, part in value.items())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"


def _first(coreset: Coreset, words: Iterable[str]) -> str:
    listed = ", ".join(islice(words, MOST_ROWS))
    return f"{listed} …" if len(coreset) > MOST_ROWS else listed
