"""Which settings a judge takes, and how it scales rows: by rows of the pool, where it has some.

The points of a good selection are unlike one another: leave one out, and no other says what it
said. What a model should believe cannot be learnt from them, but from any rows of the pool, the
same for all selections. Without such rows the first of the settings is taken, and the selection's
own columns scale it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.evaluate.judges.sample import Sample

Setting = TypeVar("Setting")

#: So many rows of a pool say which settings are best.
ROWS = 300

#: A column whose deviation is less than this share of its mean is the same in all rows, up to the
#: rounding of sums, and has nothing to teach.
FLAT = 1e-10


class Scaling(Enum):
    """What is done to rows before a model sees them."""

    #: Nothing: trees.
    NONE = auto()
    #: Every column to mean 0 and variance 1: tables.
    COLUMNS = auto()
    #: All columns by one number, so that their mean variance is 1: embeddings, pixels.
    WHOLE = auto()


def drawn(count: int, seed: int) -> Array:
    """Which rows of a pool judges are tuned by: the same for all selections of a seed.

    Parameters
    ----------
    count : int
        Rows of the pool.
    seed : int
        Of the draw.

    Returns
    -------
    array of int
        At most 300 of them, in order.

    Examples
    --------
    >>> len(drawn(1000, seed=0)), len(drawn(20, seed=0))
    (300, 20)
    """
    rng = np.random.default_rng((seed, ROWS))
    return np.sort(rng.choice(count, min(count, ROWS), replace=False))


def plain(sample: Sample) -> Sample:
    """The points that have weight, as rows of numbers in float64 on the CPU.

    Parameters
    ----------
    sample : Sample
        The points.

    Returns
    -------
    Sample
        Without those of no weight.

    Raises
    ------
    NumericalError
        Where features are beyond what models of tables can hold.
    """
    rows = sample.x.double().flatten(1).cpu()
    if not torch.isfinite(rows.float()).all():  # trees are so precise
        raise NumericalError(
            "features go beyond what a judge of tables can hold; scale them, or use another judge."
        )
    weight = sample.weight.double().cpu()
    kept = weight > 0
    labels = sample.y.cpu()[kept] if sample.classification else sample.y.double().cpu()[kept]
    return Sample(rows[kept], labels, weight[kept])


def scaling(by: Sample, how: Scaling) -> Callable[[Tensor], Tensor]:
    """What scales rows as these are to be scaled.

    Parameters
    ----------
    by : Sample
        Rows of numbers, with their weights.
    how : Scaling
        By the column, as a whole, or not.

    Returns
    -------
    callable
        From rows to rows.

    Examples
    --------
    >>> rows = Sample(torch.tensor([[0.0, 5.0], [2.0, 5.0]]), torch.zeros(2).long(), torch.ones(2))
    >>> scaling(plain(rows), Scaling.COLUMNS)(torch.tensor([[4.0, 6.0]]).double()).tolist()
    [[3.0, 1.0]]
    """
    if how is Scaling.NONE:
        return lambda rows: rows
    share = by.weight / by.weight.sum()
    mean = share @ by.x
    deviation = (share @ (by.x - mean).square()).sqrt()
    if how is Scaling.WHOLE:
        deviation = deviation.square().mean().sqrt().expand_as(deviation)
    deviation = torch.where(deviation <= FLAT * mean.abs(), torch.ones_like(deviation), deviation)
    return lambda rows: (rows - mean) / deviation


def apart(sample: Sample, rows: Sample) -> tuple[Sample, Sample]:
    """What a setting is tried with, and on what: never on rows that it was fitted to.

    Parameters
    ----------
    sample : Sample
        The selection.
    rows : Sample
        Rows of the pool, of which some may be chosen.

    Returns
    -------
    tuple of Sample
        The selection and the rows that it does not hold; where it holds most of them, the
        selection without them and all the rows.

    Examples
    --------
    >>> points = Sample(torch.arange(6.0)[:, None], torch.zeros(6).long(), torch.ones(6))
    >>> few = Sample(points.x[:1], points.y[:1], points.weight[:1])
    >>> [len(part) for part in apart(few, points)]
    [1, 5]
    >>> some = Sample(points.x[:4], points.y[:4], points.weight[:4])
    >>> [len(part) for part in apart(points, some)]
    [2, 4]
    """
    own, other = (
        [line.tobytes() for line in one.x.flatten(1).cpu().numpy()] for one in (sample, rows)
    )
    chosen = set(own)
    left = torch.tensor([line not in chosen for line in other], device=rows.x.device)
    if 2 * int(left.sum()) >= len(rows):
        return sample, _taken(rows, left)
    tried = set(other)
    free = torch.tensor([line not in tried for line in own], device=sample.x.device)
    return _taken(sample, free), rows


def _taken(sample: Sample, mask: Tensor) -> Sample:
    return Sample(sample.x[mask], sample.y[mask], sample.weight[mask])


def goals(sample: Sample, outputs: int) -> Array:
    """One-hot rows of classes, or the targets.

    Parameters
    ----------
    sample : Sample
        The points.
    outputs : int
        The number of classes or targets.

    Returns
    -------
    array (n, outputs)
        In float64.
    """
    rows = F.one_hot(sample.y, outputs) if sample.classification else sample.y
    found: Array = rows.double().cpu().numpy()
    return found


def best(
    settings: Sequence[Setting],
    rows: Sample,
    outputs: int,
    predicted: Callable[[Setting], Array],
) -> Setting:
    """The setting of the smallest squared error on rows of the pool; of equals the first.

    Parameters
    ----------
    settings : sequence
        What is tried.
    rows : Sample
        Rows of the pool.
    outputs : int
        The number of classes or targets.
    predicted : callable
        What a model of a setting says of these rows.

    Returns
    -------
    object
        One of the settings.

    Examples
    --------
    >>> rows = Sample(torch.zeros(3, 1), torch.tensor([0, 1, 1]), torch.ones(3))
    >>> best([0.0, 0.7, 1.0], rows, 2, lambda share: np.array([[1 - share, share]] * 3))
    0.7
    """
    goal = goals(rows, outputs)
    weight = rows.weight.double().cpu().numpy()
    errors = [weight @ np.square(predicted(one) - goal).sum(1) for one in settings]
    return settings[int(np.argmin(errors))]
