"""Facts of a page that come from models: scores of the picks and suspect labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bicore.bilevel.outer_targets import find_contradicted
from bicore.data import Array, Dataset, Targets
from bicore.evaluate.models import RidgeJudge
from bicore.evaluate.records import finite, half_width
from bicore.evaluate.samples import Sample, as_sample, draw_tuning_rows
from bicore.evaluate.worth import Appraisal, Curve, Verdict, Worth

#: The first picks are evaluated at halves of the size: how often, and the fewest rows.
HALVES, FEWEST = 4, 3
#: Decimals of a recall in the file; a page shows three.
DECIMALS = 4

#: Folds of the search for suspect labels, training rows of a fold (the cost of a fit grows with the
#: third power), and limit of the rows examined, evenly spaced.
FOLDS, MOST_TRAINED, MOST_EXAMINED = 5, 2000, 20_000
#: A target is suspect from this many deviations on (fewer than one normal residual in a million);
#: the deviation comes from the median, which a few wrong targets do not move.
FAR, NORMAL_MEDIAN = 5.0, 0.6745


def further_fits(appraisal: Appraisal) -> int:
    """The number of fits by :func:`evaluate_picks` in addition to those of the worth."""
    return len(appraisal.splits) * 2 * (len(_prefix_sizes(appraisal.size)) + 1)


def _prefix_sizes(size: int) -> list[int]:
    """The sizes at which the first picks are evaluated, largest first."""
    halves = [round(size / 2**step) for step in range(1, HALVES + 1)]
    return [one for one in dict.fromkeys(halves) if FEWEST <= one < size]


def evaluate_picks(appraisal: Appraisal) -> dict[str, Any]:
    """The worth, if it is not known yet, and the scores of the first picks and by class."""
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
    """The headline, and the sentences below it."""
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
    """Scores of the first picks and of random rows, one per split."""
    pairs = []
    for split in appraisal.splits:
        first = appraisal.picked(split).indices[:size]  # fewer if the coreset is smaller
        both = first, appraisal.drawn(appraisal.baselines[0], size, split)
        pairs.append([appraisal.score(split, rows, np.ones(len(rows))) for rows in both])
    chosen, random = np.array(pairs).T
    return chosen, random


def _scores_by_class(appraisal: Appraisal) -> list[dict[str, Any]]:
    """Empty for targets."""
    if not appraisal.classification:
        return []
    chosen, random = [], []
    for split in appraisal.splits:
        picked = appraisal.picked(split).normalised()
        drawn = appraisal.drawn(appraisal.baselines[0], appraisal.size, split)
        chosen.append(appraisal.recalls(split, picked.indices, picked.weights))
        random.append(appraisal.recalls(split, drawn, np.ones(len(drawn))))
    return compare_recalls(np.array(chosen), np.array(random))


def compare_recalls(chosen: Array, random: Array) -> list[dict[str, Any]]:
    """The recall of each class by the chosen rows and by as many random ones.

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
    """Rows whose label contradicts the prediction of a model trained on other rows.

    Kernel ridge regression is trained on the other folds. Such rows may be wrong, or beyond the
    model; a person decides, and the page does not call them errors. Returns the number of rows
    examined, the suspect ones, the clearest first, and the predictions for them.
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
    """The largest residual of a row, in standard deviations of its target."""
    sizes = np.abs(residuals)
    spread = np.median(sizes, axis=0) / NORMAL_MEDIAN
    scaled = np.divide(sizes, spread, out=np.zeros_like(sizes), where=spread > 0)
    return np.asarray(scaled.max(1))


def _predict_by_others(data: Dataset, targets: Targets, rows: Array, seed: int) -> Array:
    """Predictions for each row (shares of classes, or targets) by a model of other rows."""
    found = np.zeros((len(rows), targets.outputs))
    order = np.random.default_rng(seed).permutation(len(rows))
    for part in np.array_split(order, FOLDS):
        rest = rows[np.setdiff1d(order, part, assume_unique=True)]
        if not len(part) or not len(rest):
            continue
        rest = np.random.default_rng((seed, len(rest))).permutation(rest)
        tuning = rest[draw_tuning_rows(len(rest), seed)]
        model = RidgeJudge().tuned_by(_sample(data, targets, tuning))
        points, test = (_sample(data, targets, one) for one in (rest[:MOST_TRAINED], rows[part]))
        found[part] = model.predictions([points], test, targets.outputs, seed)[0].numpy()
    return found


def _sample(data: Dataset, targets: Targets, rows: Array) -> Sample:
    classification = targets.classes is not None
    labels = targets.values.reshape(-1) if classification else targets.values
    weights, cpu = np.ones(len(rows)), torch.device("cpu")
    return as_sample(data.x[rows], labels[rows], weights, cpu, classification)
