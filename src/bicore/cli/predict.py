"""``bicore predict``: predictions of a head, and heads for ``bicore stream``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bicore.cli.options import Files, Table, option
from bicore.cli.terminal import exit_on_interrupt, print_answer, print_json
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.moments.heads import Head
    from bicore.sources.base import Source
    from bicore.streaming.buffer import Buffer


@dataclass(frozen=True)
class Rows(Table):
    """The rows to predict."""

    scale: str | None = option(
        "Feature scaling: none (default); a table is encoded as in the stream.", "none"
    )


@dataclass(frozen=True)
class Predictions(Files):
    """How predictions are printed and written."""

    out: Path | None = option("Write the predictions, one line per row.", "FILE.csv")


def predict(
    head: Annotated[
        Path,
        typer.Argument(
            metavar="HEAD",
            help="Head file written by bicore stream --head.",
            rich_help_panel="Data",
        ),
    ],
    data: Rows,
    output: Predictions,
) -> None:
    """Predict with a head written by bicore stream --head.

    A head is a ridge regression on all rows of a stream. The source must have the feature columns
    of the stream; they are encoded as in the stream. With --target or --labels, the score is
    printed.

    Example: bicore predict head.npz digits
    """
    with exit_on_interrupt():
        from bicore.files import replacing
        from bicore.moments.heads import Head
    output.check(out=(".csv",))
    if data.scale not in (None, "none"):
        raise InputError(f"--scale {data.scale} does not apply to the rows of a head; omit it.")
    if not head.is_file():
        raise InputError(f"HEAD {head} is not a file; give one written by bicore stream --head.")
    model = Head.load(head)
    source = replace(data, scale="none").open(needs_target=False)
    x = _encode(head, model, source)
    found: Any = model.predict(x)
    score = None if source.data.y is None else _score(model, x, source.data.y)
    if output.out is not None:
        with replacing(output.out, overwrite=output.force) as path:
            path.write_text("".join(f"{_words(one)}\n" for one in found.tolist()))
    if output.json:
        print_json({"rows": len(found), "predictions": found.tolist(), "score": score})
    elif output.out is None:
        print_answer(*(_words(one) for one in found.tolist()))
    kind = "accuracy" if hasattr(model, "classes_") else "R²"
    known = "" if source.data.y is None else ", no score: the head predicts labels of another type"
    known = known if score is None else f", {kind} {score:.4f}"
    output.print_note(f"{source.name}: {len(found)} predictions{known}")


def _encode(head: Path, model: Head, source: Source) -> Any:
    """Return the features of a source; a table is encoded as that of the stream was."""
    from bicore.files import refuse_damage
    from bicore.moments.heads import WRITER
    from bicore.sources.columns import columns_from_json

    if model._columns is None or source.table is None or source.columns is None:
        return source.data.x
    with refuse_damage(head, WRITER):
        return columns_from_json(model._columns, source.columns.words).encode(source.table)


def _score(model: Head, x: Any, y: Any) -> float | None:
    """Return the accuracy, or R²; None if the labels are of another kind."""
    if hasattr(model, "classes_") and y.dtype.kind != model.classes_.dtype.kind:
        return None
    return float(model.score(x, y))


def _words(prediction: Any) -> str:
    return ",".join(map(str, prediction)) if isinstance(prediction, list) else str(prediction)


def check_head(head: Path | None, merge: str | None, buffer: str, scale: str) -> None:
    """Check, before any work, that a head can be written at the end."""
    if merge and head is None:
        raise InputError("--merge needs a head; give --head FILE.npz.")
    if head is not None and buffer != "moments":
        raise InputError(f"--head needs --buffer moments; got {buffer}.")
    if head is not None and scale == "standard":
        raise InputError(
            "--head needs --scale none: a head must not depend on the mean and variance of this "
            "source (the feature map standardises the columns of a table)."
        )


def make_head(buffer: Buffer, merge: str | None, source: Source) -> Head:
    """Return the head of a stream, with the sums of other state folders added."""
    import copy

    from bicore.sources.columns import columns_to_json
    from bicore.streaming import MomentMemory

    assert isinstance(buffer, MomentMemory)
    whole = copy.copy(buffer)  # a merge replaces attributes, so the buffer is unchanged
    for folder in merge.split(",") if merge else ():
        other = load_memory(Path(folder))
        if other.feature_map_ is not None and other.feature_map_ != whole.feature_map_:
            raise InputError(
                f"--merge {folder} has other features; run one of the two streams again with "
                "--feature-map and the --state folder of the other."
            )
        whole.merge(other)
    head: Head = whole.head()
    if source.columns is not None:
        head._columns = columns_to_json(source.columns)
    return head


def load_memory(folder: Path) -> Any:
    """Return the newest state in a folder of ``bicore stream``."""
    from bicore.streaming import MomentMemory
    from bicore.streaming.buffer import StateFolder

    found = StateFolder(folder).load(MomentMemory.load) if folder.is_dir() else None
    if found is None:
        raise InputError(f"{folder} holds no state; give the --state folder of another stream.")
    return found
