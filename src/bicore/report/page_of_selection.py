"""The page of a selection: its worth, the picks, the other rows, and suspect labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore._deprecated import renamed_keywords
from bicore._version import __version__
from bicore.bilevel.outer_targets import find_contradicted
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, Targets, Task, read_targets
from bicore.errors import InputError
from bicore.evaluate.models import RidgeJudge, Sample, as_sample, draw_tuning_rows
from bicore.evaluate.records import finite, half_width
from bicore.evaluate.worth import Appraisal, Curve, Verdict, Worth
from bicore.report.document import LONGEST_NAME, RowView, shorten, write_document
from bicore.types import PathLike

#: Maximum numbers of picks, and of suspect labels, shown one by one.
MOST_CARDS, MOST_SUSPECT = 500, 24


@renamed_keywords(columns="cells")
def page(
    data: Dataset,
    coreset: Coreset,
    path: PathLike,
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
        "suspects": _suspect_labels(view, targets),
        "parameters": _parameters(coreset),
        "notes": [*notes, *known.notes, *([f"first gain: {first}"] if first else [])],
        "command": command,
    }
    return write_document("selection", facts, path)


def _picks(view: RowView, coreset: Coreset, places: list[list[int]]) -> dict[str, Any]:
    """Return columns of all picks in order, and the first ones as cards."""
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
    """Return suspect labels as cards; None without labels or with a single class."""
    if targets is None or (targets.classes is not None and len(targets.classes) < 2):
        return None
    examined, rows, predicted = find_suspect_labels(view.data, targets)
    first = [
        {
            "row": row,
            "predicted": _format_prediction(targets, values),
            "label": view.label(row),
            "shown": view.card(row),
        }
        for row, values in zip(rows[:MOST_SUSPECT].tolist(), predicted, strict=False)
    ]
    return {"examined": examined, "count": len(rows), "rows": rows.tolist(), "first": first}


def _format_prediction(targets: Targets, predicted: Array) -> str:
    if targets.classes is None:
        return ", ".join(f"{value:.4g}" for value in predicted.tolist())
    return shorten(targets.classes.tolist()[int(predicted.argmax())], LONGEST_NAME)


def _parameters(coreset: Coreset) -> list[list[str]]:
    """Return names and values as text."""
    known = coreset.provenance
    values = {
        "method": known.method,
        "task": known.task,
        "kernel": known.kernel,
        "loss": known.loss,
        "regularisation": known.regulariser,
        "weights": "1 each" if coreset.binary else "learned",
        "objective": None if coreset.objective is None else f"{coreset.objective:.6g}",
        "seed": known.seed,
        "seconds": f"{known.seconds:.2f}",
        "status": coreset.message or coreset.status.value,
        "fingerprint of the data": known.fingerprint,
        "bicore": __version__,
    }
    return [[name, str(value)] for name, value in values.items() if value not in (None, "")]


#: Number of halvings of the size at which first picks are evaluated, and minimum size.
HALVES, FEWEST = 4, 3
#: Decimals of a recall in the file; the page shows three.
DECIMALS = 4

#: Folds of the search for suspect labels, training rows of a fold (a fit has cubic cost), and
#: maximum number of examined rows, evenly spaced.
FOLDS, MOST_TRAINED, MOST_EXAMINED = 5, 2000, 20_000
#: A target is suspect from this many deviations on (fewer than one normal residual in a million).
#: The deviation comes from the median, which is robust against a few wrong targets.
FAR, NORMAL_MEDIAN = 5.0, 0.6745


def further_fits(appraisal: Appraisal) -> int:
    """Return the number of fits by :func:`evaluate_picks` beyond those of the worth."""
    return len(appraisal.splits) * 2 * (len(_prefix_sizes(appraisal.size)) + 1)


def _prefix_sizes(size: int) -> list[int]:
    """Return the sizes at which first picks are evaluated, largest first."""
    halves = [round(size / 2**step) for step in range(1, HALVES + 1)]
    return [one for one in dict.fromkeys(halves) if FEWEST <= one < size]


def evaluate_picks(appraisal: Appraisal) -> dict[str, Any]:
    """Return the worth, computed if necessary, and the scores of first picks and by class."""
    worth, name = appraisal.worth(), appraisal.baselines[0]
    scores = {size: _scores(appraisal, size) for size in sorted(_prefix_sizes(appraisal.size))}
    random = {size: drawn for size, (_, drawn) in scores.items()}
    for size in worth.baselines[0].sizes:
        known = [appraisal.known[name, size, split.seed] for split in appraisal.splits]
        random[size] = np.array(known)
    prefixes = [
        {
            "size": size,
            "score": float(chosen.mean()),
            "spread": float(chosen.std(ddof=1)),
            "random": float(drawn.mean()),
            "random_spread": float(drawn.std(ddof=1)),
            "worth": Curve(chosen, appraisal.has_test, random).equivalent(name, size).ends(),
        }
        for size, (chosen, drawn) in scores.items()
    ]
    whole = {"size": worth.size, "score": worth.score, "spread": worth.spread}
    return {
        "answer": answer(worth),
        "curve": {"metric": worth.metric, "prefixes": prefixes, "whole": whole},
        "classes": _scores_by_class(appraisal),
    }


def answer(worth: Worth) -> dict[str, Any]:
    """Return the headline and the sentences below it."""
    sentence = f"Your {worth.size} rows are worth {worth.baselines[0]}"
    headline, how = worth.conclusion, worth.how()
    if worth.verdict is Verdict.MORE:
        headline, how = sentence, "; ".join(filter(None, [worth.conclusion, how]))
    return {
        **worth.as_dict(),
        "headline": headline[:1].upper() + headline[1:],
        "sentence": sentence,
        "how": how,
        "baselines": [{**one.as_dict(), "words": str(one)} for one in worth.baselines],
    }


def _scores(appraisal: Appraisal, size: int) -> tuple[Array, Array]:
    """Return scores of the first picks and of random rows, one per split."""
    pairs = []
    for split in appraisal.splits:
        first = appraisal.select_rows(split).indices[:size]  # fewer if the coreset is smaller
        both = first, appraisal.draw_rows(appraisal.baselines[0], size, split)
        pairs.append([appraisal.score(split, rows, np.ones(len(rows))) for rows in both])
    chosen, random = np.array(pairs).T
    return chosen, random


def _scores_by_class(appraisal: Appraisal) -> list[dict[str, Any]]:
    """Return scores by class; empty for targets."""
    if not appraisal.classification:
        return []
    chosen, random = [], []
    for split in appraisal.splits:
        picked = appraisal.select_rows(split).normalise()
        drawn = appraisal.draw_rows(appraisal.baselines[0], appraisal.size, split)
        chosen.append(appraisal.recalls(split, picked.indices, picked.weights))
        random.append(appraisal.recalls(split, drawn, np.ones(len(drawn))))
    return compare_recalls(np.array(chosen), np.array(random))


def compare_recalls(chosen: Array, random: Array) -> list[dict[str, Any]]:
    """Return the recall of each class by the chosen rows and by random rows.

    Both are paired (tests, classes), nan for a test without rows of a class. ``gap`` is the mean
    difference, ``half`` half the width of its 95% interval, None without one.
    """
    found = []
    for code, (ours, theirs) in enumerate(zip(chosen.T, random.T, strict=True)):
        ours, theirs = ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]
        if not len(ours):
            continue
        half = finite(half_width(ours - theirs))
        found.append(
            {
                "code": code,
                "chosen": round(float(ours.mean()), DECIMALS),
                "random": round(float(theirs.mean()), DECIMALS),
                "gap": round(float((ours - theirs).mean()), DECIMALS),
                "half": None if half is None else round(half, DECIMALS),
            }
        )
    return found


def find_suspect_labels(data: Dataset, targets: Targets, seed: int = 0) -> tuple[int, Array, Array]:
    """Find rows whose label contradicts the prediction of a model trained on other rows.

    Kernel ridge regression is trained on the other folds. Such a label may be wrong, or the model
    may be; the page does not call it an error. Returns the number of rows examined, the suspect
    ones, the clearest first, and the predictions for them.
    """
    counted = np.flatnonzero(data.weights > 0)
    spaced = np.linspace(0, len(counted) - 1, min(MOST_EXAMINED, len(counted))).round()
    examined = counted[np.unique(spaced.astype(np.int64))]
    predicted = _predict_by_others(data, targets, examined, seed)
    if targets.classes is None:
        margins = _deviations(predicted - targets.values[examined])
        suspect = margins > FAR
    else:
        labels = targets.values.reshape(-1)[examined]
        margins = predicted.max(1) - predicted[np.arange(len(labels)), labels]
        suspect = find_contradicted(torch.from_numpy(predicted), labels)
    places = np.flatnonzero(suspect)
    places = places[np.argsort(-margins[places], kind="stable")]
    return len(examined), examined[places], predicted[places]


def _deviations(residuals: Array) -> Array:
    """Return the largest residual of a row, in standard deviations of its target."""
    sizes = np.abs(residuals)
    spread = np.median(sizes, axis=0) / NORMAL_MEDIAN
    scaled = np.divide(sizes, spread, out=np.zeros_like(sizes), where=spread > 0)
    return np.asarray(scaled.max(1))


def _predict_by_others(data: Dataset, targets: Targets, rows: Array, seed: int) -> Array:
    """Predict each row (class shares, or targets) by a model of other rows."""
    found = np.zeros((len(rows), targets.outputs))
    order = np.random.default_rng(seed).permutation(len(rows))
    for part in np.array_split(order, FOLDS):
        rest = rows[np.setdiff1d(order, part, assume_unique=True)]
        if not len(part) or not len(rest):
            continue
        rest = np.random.default_rng((seed, len(rest))).permutation(rest)
        tuning = rest[draw_tuning_rows(len(rest), seed)]
        model = RidgeJudge().tune(_sample(data, targets, tuning))
        points, test = (_sample(data, targets, one) for one in (rest[:MOST_TRAINED], rows[part]))
        found[part] = model.predictions([points], test, targets.outputs, seed)[0].numpy()
    return found


def _sample(data: Dataset, targets: Targets, rows: Array) -> Sample:
    classification = targets.classes is not None
    labels = targets.values.reshape(-1) if classification else targets.values
    weights, cpu = np.ones(len(rows)), torch.device("cpu")
    return as_sample(data.x[rows], labels[rows], weights, cpu, classification)
