"""``bicore show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bicore.coreset import Coreset
from bicore.errors import InputError

SHOWN = (
    "source",
    "scale",
    "n",
    "method",
    "task",
    "kernel",
    "loss",
    "rule",
    "candidates",
    "inner_reg",
    "inner_reg_form",
    "weights",
    "seed",
    "dtype",
    "device",
    "seconds",
    "fingerprint",
    "versions",
)


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
    coreset = Coreset.load(file)
    print(f"{file}: {coreset!r}")
    for key in SHOWN:
        value = coreset.info.get(key)
        if value is not None:
            print(
                f"  {key:15s} {', '.join(f'{k} {v}' for k, v in value.items()) if isinstance(value, dict) else value}"
            )
    for note in coreset.info.get("notes", []):
        print(f"  {'note':15s} {note}")
    print(
        f"  {'rows':15s} "
        f"{', '.join(map(str, coreset.indices[:15].tolist()))}{' …' if len(coreset) > 15 else ''}"
    )
    if not coreset.binary:
        print(
            f"  {'weights':15s} {', '.join(f'{w:.3g}' for w in coreset.weights[:15])}{' …' if len(coreset) > 15 else ''}"
        )
    if "command" in coreset.info:
        print(f"To make it again: {coreset.info['command']}")
