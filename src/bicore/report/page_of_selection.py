"""The page of a selection: its worth, the picks, and the data around them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bicore._deprecated import renamed_keywords
from bicore._version import __version__
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, Targets, Task, read_targets
from bicore.errors import InputError
from bicore.evaluate.records import finite
from bicore.evaluate.worth import Appraisal
from bicore.report.document import write_document
from bicore.report.evaluation import evaluate_picks, find_suspect_labels
from bicore.report.rows import LONGEST_NAME, RowView, shorten

#: Limits of the picks, and of the suspect labels, that are shown one by one.
MOST_CARDS, MOST_SUSPECT = 500, 24


@renamed_keywords(columns="cells")
def page(
    data: Dataset,
    coreset: Coreset,
    path: str | os.PathLike[str],
    *,
    appraisal: Appraisal | None = None,
    name: str = "data",
    images: Array | None = None,
    cells: Mapping[str, Sequence[Any]] | None = None,
    command: str = "",
    notes: Sequence[str] = (),
) -> Path:
    """Write a selection as one HTML file that needs no network.

    It begins with the worth of the rows, if an appraisal is given. It shows the picks in order
    under a slider over the size, the balance of classes, a map of the data, the gain of each pick,
    scores by class, suspect labels, and how to repeat the selection.

    Parameters
    ----------
    data : Dataset
        The data selected from.
    coreset : Coreset
        The selection.
    path : path
        The file.
    appraisal : Appraisal, optional
        Appraisal of the same coreset. The evaluation model is trained as often as for
        :func:`bicore.worth`, and a few times more on the first picks.
    name : str
        The name of the data on the page.
    images : array (n, height, width[, 3]), optional
        Images of the rows, in 0 … 1.
    cells : mapping of name to sequence, optional
        Columns of cells, a cell for each row.
    command : str
        The command that repeats the selection.
    notes : sequence of str
        Notes for the list of parameters.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If the coreset is empty, or belongs to other data.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from bicore import select
    >>> rng = np.random.default_rng(0)
    >>> data = Dataset(rng.normal(size=(60, 2)), rng.integers(2, size=60))
    >>> picks = select(data, size=5, kernel="rbf")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page(data, picks, folder + "/page.html", name="noise").name
    'page.html'
    """
    if not len(coreset):
        raise InputError("coreset is empty; give one with at least one row.")
    coreset.check_rows(len(data))
    known = coreset.provenance
    targets = None if data.y is None else read_targets(data.y, known.task or Task.AUTO)
    view = RowView(data, targets, images, cells)
    plane, places = view.map(coreset.indices)
    found: dict[str, Any] = {"answer": None, "curve": None, "classes": []}
    if appraisal is not None:
        found = evaluate_picks(appraisal)
    first = coreset.explain_first_gain()
    facts = {
        "name": name,
        "version": __version__,
        "rows": len(data),
        **found,
        **view.as_json(),
        "plane": plane,
        "picks": _picks(view, coreset, places),
        "doubts": _suspect_labels(view, targets),
        "parameters": _parameters(coreset),
        "notes": [*notes, *known.notes, *([f"first gain: {first}"] if first else [])],
        "command": command,
    }
    return write_document("selection", facts, path)


def _picks(view: RowView, coreset: Coreset, places: list[list[int]]) -> dict[str, Any]:
    """Columns of all picks in order, and the first ones as they are shown."""
    rows = coreset.indices
    return {
        **view.of(rows),
        "places": places,
        "cards": [view.card(row) for row in rows[:MOST_CARDS].tolist()],
        "weights": None if coreset.binary else coreset.weights.tolist(),
        "gains": [finite(value) for value in coreset.gains.tolist()],
        "objectives": [finite(value) for value in coreset.objectives.tolist()],
        "empty": coreset.provenance.empty_objective,
    }


def _suspect_labels(view: RowView, targets: Targets | None) -> dict[str, Any] | None:
    """Suspect labels as they are shown; None without labels, or with a single class."""
    if targets is None or (targets.classes is not None and len(targets.classes) < 2):
        return None
    examined, rows, predicted = find_suspect_labels(view.data, targets)
    first = [
        {
            "row": row,
            "said": _words(targets, values),
            "label": view.label(row),
            "shown": view.card(row),
        }
        for row, values in zip(rows[:MOST_SUSPECT].tolist(), predicted, strict=False)
    ]
    return {"asked": examined, "count": len(rows), "rows": rows.tolist(), "first": first}


def _words(targets: Targets, predicted: Array) -> str:
    if targets.classes is None:
        return ", ".join(f"{value:.4g}" for value in predicted.tolist())
    return shorten(targets.classes.tolist()[int(predicted.argmax())], LONGEST_NAME)


def _parameters(coreset: Coreset) -> list[list[str]]:
    """Names and values, in words."""
    known = coreset.provenance
    values = {
        "method": known.method,
        "task": known.task,
        "kernel": known.kernel,
        "loss": known.loss,
        "regulariser": known.regulariser,
        "weights": "1 each" if coreset.binary else "learned",
        "objective": None if coreset.objective is None else f"{coreset.objective:.6g}",
        "seed": known.seed,
        "seconds": f"{known.seconds:.2f}",
        "status": coreset.message or coreset.status.value,
        "fingerprint of the data": known.fingerprint,
        "bicore": __version__,
    }
    return [[name, str(value)] for name, value in values.items() if value not in (None, "")]
