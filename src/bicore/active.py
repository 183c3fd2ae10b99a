"""Batch active learning: select the rows of a pool to label next.

After Borsos, Tagliasacchi and Krause 2020: the coreset begins with the labelled rows, a model
predicts labels for the pool, and the rows are selected that, fitted together with the labelled
ones, predict all rows best.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bicore._deprecated import renamed_keywords
from bicore.arguments import as_seed
from bicore.coreset import Coreset, describe_early_end
from bicore.data import Array, Dataset, as_features, as_labels, join_datasets
from bicore.errors import InputError, LargeDataWarning, check_integer, check_type
from bicore.kernels.classical import Exponential
from bicore.methods.base import Selector
from bicore.methods.baselines.design import VDesign
from bicore.methods.bilevel import BilevelSelector
from bicore.runtime.clock import Clock, ProgressLine, Step
from bicore.runtime.context import Runtime
from bicore.types import Labels, Numbers, RandomState

#: Larger sets are sampled, with at least this many candidates per requested row.
LARGE, PER_POINT = 5000, 4
#: Kernel, noise and head of V-design; of the values tried on Reuters texts and an embedding of
#: CIFAR-10 these were best.
SHARPNESS, NOISE, STRENGTH = 2.0, 1.0, 10.0
#: Maximum number of steps of the head's fit.
STEPS = 300
#: Minimum weight of a row.
LEAST_DOUBT = 1e-3
#: Shorter rows are not scaled to length 1.
SHORTEST = 1e-12


@renamed_keywords()
def query(
    x_labelled: Numbers,
    y_labelled: Labels,
    x_pool: Numbers,
    batch_size: int,
    *,
    pseudo_labels: Labels | Callable[[Any], Labels] | None = None,
    selector: BilevelSelector | None = None,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
) -> Coreset:
    """Select the rows of a pool to label next."""
    labelled, known, pool = _check_rows(x_labelled, y_labelled, x_pool)
    wanted = check_integer("batch_size", batch_size, most=len(pool))
    selector = selector or BilevelSelector("ntk", intercept=0.0, exact=True)
    check_type("selector", selector, BilevelSelector, "a BilevelSelector")
    selector = selector.fill_as_paper()
    if pseudo_labels is not None:
        given = pseudo_labels(pool) if callable(pseudo_labels) else pseudo_labels
        guesses = _as_column(given, len(pool), "pseudo_labels")
    elif known.dtype.kind != "f" and len(np.unique(known)) < 2:
        raise InputError("y_labelled has a single class; label more, or give pseudo_labels.")
    else:
        guesses = selector.predict(
            Dataset(labelled, known), pool, random_state=random_state, runtime=runtime
        )
    both = join_pool(labelled, known, pool, guesses)
    return select_new(selector, both, len(labelled), wanted, random_state, runtime)


@renamed_keywords()
def query_by_variance(
    x_labelled: Numbers,
    y_labelled: Labels,
    x_pool: Numbers,
    batch_size: int,
    *,
    classes: Sequence[Any] | None = None,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
) -> Coreset:
    """Select the rows that most lower the variance of uncertain predictions.

    It is V-design on rows that are centred and scaled to length 1, as suits embeddings. Each row
    counts by one minus the margin of a logistic regression on the labelled rows; with targets,
    all rows count the same.
    """
    labelled, known, pool = _check_rows(x_labelled, y_labelled, x_pool)
    wanted = check_integer("batch_size", batch_size, most=len(pool))
    _check_labels(known, classes)
    kept = np.arange(len(pool))
    notes: tuple[str, ...] = ()
    most = max(LARGE - len(labelled), PER_POINT * wanted)
    if len(pool) > most:
        rng = np.random.default_rng((as_seed(random_state), len(pool)))
        kept = np.sort(rng.choice(len(pool), most, replace=False))
        notes = (f"large data: {most} of {len(pool)} rows of the pool are candidates",)
        warnings.warn(notes[0], LargeDataWarning, stacklevel=2)
    both = join_pool(labelled, None, pool[kept], None)
    rows = _directions(both.x)
    weights = None if known.dtype.kind == "f" else _uncertainty(rows, known)
    selector = VDesign(over=Exponential(sharpness=SHARPNESS), noise=NOISE)
    data = Dataset(rows, sample_weight=weights)
    part = select_new(selector, data, len(labelled), wanted, random_state, runtime)
    part = replace(part, indices=kept[part.indices], ids=kept[part.indices])
    return part.with_details({"method": "query by variance", "rows": len(pool), "notes": notes})


class _NewRows(ProgressLine):
    """Progress of a selection that does not count the labelled rows."""

    def __init__(self, runtime: Runtime, labelled: int) -> None:
        super().__init__(runtime.progress, Clock(), 0, "selecting")
        self.labelled = labelled

    def __call__(self, step: Step) -> None:
        self.total = step.total - self.labelled
        self.update(step.done - self.labelled, step.objective)


def _directions(x: Array) -> Array:
    """Subtract the mean of the rows and scale them to length 1."""
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    rows = rows - rows.mean(0)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), SHORTEST))


def _uncertainty(rows: Array, known: Array) -> Array:
    """Return one minus the margin of a logistic regression on the first rows, which are
    labelled."""
    with warnings.catch_warnings():
        # A nearly fitted head is enough to find uncertain rows.
        warnings.simplefilter("ignore", ConvergenceWarning)
        head = LogisticRegression(C=STRENGTH, max_iter=STEPS).fit(rows[: len(known)], known)
    odds = np.sort(head.predict_proba(rows), axis=1)
    return np.asarray(np.maximum(1 - (odds[:, -1] - odds[:, -2]), LEAST_DOUBT))


def _check_labels(known: Array, classes: Sequence[Any] | None) -> None:
    """Refuse labels of a single class, and labels that are not allowed."""
    if known.dtype.kind != "f" and len(np.unique(known)) < 2:
        raise InputError("y_labelled has a single class; label more rows first.")
    allowed = known if classes is None else np.asarray(classes)
    wrong = ~np.isin(known, allowed).reshape(len(known), -1).all(1)
    if wrong.any():
        label = f"y_labelled[{wrong.argmax()}]={known[wrong.argmax()].tolist()!r}"
        raise InputError(f"{label} is not in classes; correct the label, or add it to classes.")


def _check_rows(x_labelled: Any, y_labelled: Any, x_pool: Any) -> tuple[Array, Array, Array]:
    """Return labelled rows, their labels and the pool as matching arrays."""
    labelled = as_features(x_labelled, "x_labelled")
    pool = as_features(x_pool, "x_pool")
    known = _as_column(y_labelled, len(labelled), "y_labelled")
    if labelled.shape[1:] != pool.shape[1:]:
        shapes = f"{labelled.shape[1:]} and rows of x_pool {pool.shape[1:]}"
        raise InputError(f"rows of x_labelled have shape {shapes}; they must match.")
    return labelled, known, pool


def join_pool(x: Array, y: Array | None, pool: Array, guesses: Array | None) -> Dataset:
    """Return the labelled rows, then the pool with predicted labels."""
    numbers = np.arange(len(x), len(x) + len(pool))
    second = Dataset(pool, guesses, ids=numbers)
    return join_datasets(Dataset(x, y), second) if len(x) else second


def select_new(
    selector: Selector,
    data: Dataset,
    labelled: int,
    wanted: int,
    random_state: RandomState,
    runtime: Runtime | None,
) -> Coreset:
    """Select rows of the pool, which follow the labelled rows; return their numbers in the pool."""
    runtime = runtime or Runtime()
    with _NewRows(runtime, labelled) as line:
        own: dict[str, Any] = {"initial": range(labelled), "random_state": random_state}
        own["runtime"] = replace(runtime, progress=line)
        coreset = selector.select(data, labelled + wanted, **own)
    new = coreset.indices >= labelled
    rows = coreset.indices[new] - labelled
    message = coreset.message
    if not coreset.status.whole:
        message = describe_early_end(coreset.status, len(rows), wanted)
    begun = coreset.provenance.empty_objective
    if labelled and len(coreset.objectives) >= labelled:
        begun = float(coreset.objectives[labelled - 1])
    part = replace(
        coreset,
        indices=rows,
        weights=coreset.weights[new],
        ids=rows,
        objectives=coreset.objectives[new],
        message=message,
    )
    # fingerprint and configuration belong to both parts together
    pool = len(data) - labelled
    changes = {"rows": pool, "empty_objective": begun, "fingerprint": None, "configuration": None}
    return part.with_details({"method": "bilevel query", **changes}, labelled=labelled)


def _as_column(values: Any, count: int, name: str) -> Array:
    """Return labels or targets; a single column as a vector."""
    try:
        found = as_labels(values, count)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
    if found.ndim > 1 and found.dtype.kind != "f":
        raise InputError(f"{name} has shape {found.shape}; give one label per row, or floats.")
    return found
