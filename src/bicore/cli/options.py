"""Options that several verbs share, and how their words are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from bicore.errors import InputError

SourceWord = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="digits, mnist, cifar10, FILE.npz|.npy|.csv|.tsv|.txt|.jsonl|.parquet|.feather|.arrow "
        "(text also .gz|.bz2|.zst), an image folder, or - (CSV); "
        "for select and estimate also a folder or 'pattern' of .npy|.npz|.parquet shards.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column to predict (tables); several of numbers with commas."
    ),
]
Features = Annotated[
    str | None,
    typer.Option(metavar="COLUMNS", help="Columns that serve as features, with commas (tables)."),
]
Drop = Annotated[
    str | None,
    typer.Option(metavar="COLUMNS", help="Columns that are no features, with commas (tables)."),
]
DropMissingTarget = Annotated[
    bool,
    typer.Option("--drop-missing-target", help="Leave out rows without a target (tables)."),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar="comma|point", help="What stands before a fraction, where a table cannot tell."
    ),
]
Labels = Annotated[
    str | None, typer.Option(metavar="FILE.npy", help="Labels of a .npy, or of a sparse .npz.")
]
Folder = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of mnist or cifar10 in torchvision's layout [$BICORE_DATA].",
    ),
]
Limit = Annotated[int | None, typer.Option(metavar="N", help="Use the first N rows only.")]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="standard|none", help="Feature scaling; by default what suits the source."
    ),
]
KernelName = Annotated[
    str,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help="auto, ntk, nngp, cntk, resnet18, pooled-cntk, rbf, laplace, linear, polynomial.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option("--dtype", help="float64 or float32.")]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory limit, for example 4GB; default: half of what is free."
    ),
]
Threads = Annotated[int | None, typer.Option(help="CPU threads.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
ReportPage = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", help="Write a page that shows it: one file, no network."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notes.")]


def read_size(text: str) -> int | float | str:
    """A count, a fraction below 1, a percentage, or auto."""
    if text == "auto":
        return text
    try:
        if text.endswith("%"):
            share = float(text[:-1])
            if not 0 < share <= 100:
                raise InputError(
                    f"--size {text} is outside 0 … 100%; give a share of the points, or a count."
                )
            return share / 100
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except InputError:
        raise
    except ValueError:
        raise InputError(
            f"--size {text!r} is neither a count, a fraction nor a percentage; for example 100, "
            "0.05, 5% or auto."
        ) from None


def read_regulariser(text: str) -> Any:
    """Read auto, a number, relative:SHARE or per-point:NUMBER."""
    if text == "auto" or text.lower().startswith("relative:"):
        return text
    from bicore.bilevel.problem import PerPoint

    try:
        if text.startswith("per-point:"):
            return PerPoint(float(text.removeprefix("per-point:")))
        return float(text)
    except InputError:
        raise
    except ValueError:
        raise InputError(
            f"--inner-reg {text!r} is no number > 0, relative:SHARE, per-point:NUMBER or auto."
        ) from None


def check_output(path: Path | None, force: bool, endings: tuple[str, ...], option: str) -> None:
    """Before any work: the ending is known, the folder can be written to, nothing would be lost."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise InputError(
            f"{option} {path} ends in {path.suffix!r}; it can be {', '.join(endings)}."
        )
    if not path.parent.is_dir():
        raise InputError(
            f"{option} {path}: the folder {path.parent} does not exist; create it first."
        )
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder; give a file name.")
    if path.exists() and not force:
        raise InputError(
            f"{option} {path} exists; choose another name, or --force to overwrite it."
        )
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option} {path}: no permission to write into {path.parent}.")
