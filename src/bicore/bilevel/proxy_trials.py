"""How kernels are tried: subsets drawn by id, fitted by ridge regression, judged on other points.

1. Draw some rows, by id alone: the order of rows and the seed play no part, so that whoever asks
   later of the same data and size has the same trials.
2. Three times, split them into a subset of the asked size and held-out points; the same splits for
   every candidate.
3. For every candidate, kernels times scalings, fit the subsets by ridge regression. Its error is
   the mean squared error on the held-out points, as a share of the variance there, under the ρ of a
   decade grid that makes it smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.regularisation import EXPONENTS
from bicore.data import Array, Dataset, Targets, summable
from bicore.errors import InputError
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF, Laplace, Linear
from bicore.kernels.presets import fully_connected
from bicore.kernels.scaling import Standardised, UnitRows
from bicore.picking import in_id_order
from bicore.runtime import checkpoint

#: What is tried.
KERNELS: dict[str, Callable[[], Kernel]] = {
    "linear": Linear,
    "rbf": RBF,
    "laplace": Laplace,
    "ntk": fully_connected,
}
#: What is done to the rows before.
SCALINGS: dict[str, Callable[[Kernel], Kernel]] = {
    "": lambda kernel: kernel,
    "on standardised columns": Standardised,
    "on unit rows": UnitRows,
}
#: Kernel and scaling by name.
CANDIDATES = {
    f"{kernel} {scaling}".strip(): (kernel, scaling) for kernel in KERNELS for scaling in SCALINGS
}
#: Kernels that no product of matrices gives cost an operation for every number of every pair.
DEAR = ("laplace",)
#: Beyond so many of those they are tried under one scaling, the one that serves the RBF kernel
#: best, which is of distances too.
DEAR_OPERATIONS = 4_000_000
#: How often the rows are split, and rows that are held out beside a subset.
SPLITS, HELD_OUT = 3, 100
#: Subsets have at least so many points, and so many for every class: fewer tell kernels apart by
#: chance. And at most so many: what fits them grows with the third power.
FEWEST, PER_CLASS, MOST = 20, 2, 250
#: Where half of the data is less than this, nothing is tried.
FEWEST_TRIED = 2
#: Rows that a bandwidth is taken from in a trial.
BANDWIDTH_ROWS = 64
#: Below this, sums of squares and their products fit float32.
SINGLE = 1e6
#: Where the walk down the grid of ρ begins.
BEGIN = 3


@dataclass(frozen=True)
class Trial:
    """How one candidate fared.

    Parameters
    ----------
    name : str
        In the table of candidates.
    error : float
        Squared error on the held-out points, as a share of the variance there.
    margin, deviation : float
        By how much that is above the smallest error, and the standard error of this difference.
    accuracy : float or None
        The share of held-out points whose class is predicted.

    Examples
    --------
    >>> Trial("linear", 0.505, 0.005, 0.02).name
    'linear'
    """

    name: str
    error: float
    margin: float = 0.0
    deviation: float = 0.0
    accuracy: float | None = None


def made(name: str) -> Kernel:
    """The candidate of this name."""
    kernel, scaling = CANDIDATES[name]
    return SCALINGS[scaling](KERNELS[kernel]())


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows for the trials, by id: what is to be predicted, how much each counts, and the splits."""

    rows: Array
    aims: Array
    #: What was subtracted from the aims.
    mean: Array
    codes: Array | None
    weights: Array
    #: The rows of the subsets and those held out, a line for every split.
    chosen: Array
    rest: Array
    #: Of all rows that count.
    count: int

    @property
    def size(self) -> int:
        """Of a subset."""
        return int(self.chosen.shape[1])

    @property
    def usable(self) -> bool:
        """Whether there is anything to fit and to hold out."""
        return self.size >= FEWEST_TRIED and bool(np.ptp(self.aims, axis=0).any())

    @property
    def shares(self) -> Array:
        """How much every held-out row counts in the mean error of all splits."""
        weights = self.weights[self.rest]
        shares: Array = weights / weights.sum(1, keepdims=True) / SPLITS
        return shares


def drawn_from(data: Dataset, targets: Targets, size: int) -> Drawn:
    """Rows that count, drawn by id; nothing is done to the others."""
    counted = np.flatnonzero(data.weights > 0)
    by_id = in_id_order(counted, data.ids)
    n = len(by_id)
    classes = 0 if targets.classes is None else len(targets.classes)
    points = min(max(size, FEWEST, PER_CLASS * classes), n // 2, MOST)
    rng = np.random.default_rng(n)
    drawn = by_id[np.sort(rng.choice(n, min(n, points + HELD_OUT), replace=False))]
    rows = np.array(data.x[drawn], dtype=np.float64).reshape(len(drawn), -1)
    weights = summable(data.weights[drawn])
    weights = weights / weights.sum()
    values = targets.values[drawn]
    codes = None if targets.classes is None else values
    aims = values if codes is None else np.eye(classes)[codes]
    orders = np.stack([rng.permutation(len(drawn)) for _ in range(SPLITS)])
    mean = weights @ aims
    chosen, rest = orders[:, :points], orders[:, points:]
    return Drawn(rows, aims - mean, mean, codes, weights, chosen, rest, n)


def tried(drawn: Drawn) -> list[Trial]:
    """All candidates on the same splits, the best first; none where nothing can be told."""
    if not drawn.usable:
        return []
    losses: dict[str, Array] = {}
    accuracies: dict[str, float | None] = {}
    place = BEGIN
    scaled = {scaling: _seen(scaling, drawn.rows) for scaling in SCALINGS}
    for name in _race(drawn, losses):
        checkpoint()
        kernel, scaling = CANDIDATES[name]
        seen = scaled[scaling]
        gram = None if seen is None else _gram(kernel, seen)
        if gram is None:
            continue
        fits = _Fits(gram, drawn)
        place = fits.lowest(place)  # which is near that of the candidate before
        if np.isfinite(fits.error(place)):
            losses[name], accuracies[name] = fits.terms(place), fits.accuracy(place)
    return _compared(losses, accuracies, drawn) if losses else []


def _race(drawn: Drawn, losses: dict[str, Array]) -> Iterator[str]:
    """The candidates to try; dear ones last, when the errors of the others are known."""
    for name, (kernel, _) in CANDIDATES.items():
        if kernel not in DEAR:
            yield name
    allowed = set(SCALINGS)
    if len(drawn.rows) * drawn.rows.size > DEAR_OPERATIONS:
        alike = [name for name in losses if CANDIDATES[name][0] == "rbf"]
        best = min(alike, key=lambda name: float(losses[name].sum()), default=None)
        allowed = set() if best is None else {CANDIDATES[best][1]}
    for name, (kernel, scaling) in CANDIDATES.items():
        if kernel in DEAR and scaling in allowed:
            yield name


def _seen(scaling: str, rows: Array) -> Tensor | None:
    """The drawn rows after a scaling; None where numbers overflow."""
    try:
        seen = SCALINGS[scaling](Linear()).fitted(rows).features(torch.from_numpy(rows))
    except InputError:
        return None
    assert seen is not None
    # Candidates differ by far more than float32 rounds, which takes half the time.
    return seen.float() if float(seen.abs().max()) < SINGLE else seen


def _gram(kernel: str, seen: Tensor) -> Array | None:
    """A kernel's matrix of rows that are scaled; None where numbers overflow."""
    try:
        own = KERNELS[kernel]().fitted(seen[:: -(-len(seen) // BANDWIDTH_ROWS)].numpy())
    except InputError:
        return None
    found: Array = own.gram(seen).double().numpy()
    return found if np.isfinite(found).all() else None


class _Fits:
    """The subsets of all splits, fitted under one kernel."""

    def __init__(self, gram: Array, drawn: Drawn) -> None:
        self.scale = float(np.diagonal(gram).mean()) or 1.0
        chosen, rest = (torch.from_numpy(one) for one in (drawn.chosen, drawn.rest))
        pairs = torch.from_numpy(gram)
        self.squares = pairs[chosen[:, :, None], chosen[:, None, :]]
        self.crosses = pairs[rest[:, :, None], chosen[:, None, :]]
        self.aims, self.others = (torch.from_numpy(drawn.aims)[one] for one in (chosen, rest))
        self.drawn = drawn
        self.shares = drawn.shares
        #: Predictions and errors on the held-out points by the place of ρ on the grid.
        self.known: dict[int, tuple[Array, Array]] = {}

    def error(self, place: int) -> float:
        """On the held-out points, with the ρ of this place on the grid."""
        if place not in self.known:
            guesses = self._guesses(self.scale * 10.0 ** EXPONENTS[place])
            squares = (guesses - self.others).square_().sum(-1)
            self.known[place] = (guesses.numpy(), self.shares * squares.numpy())
        return float(self.known[place][1].sum())

    def _guesses(self, rho: float) -> Tensor:
        lifted = self.squares.clone()
        lifted.diagonal(dim1=1, dim2=2).add_(rho)
        factors, failed = torch.linalg.cholesky_ex(lifted)
        if failed.any():
            return torch.full_like(self.others, torch.inf)
        return self.crosses @ torch.cholesky_solve(self.aims, factors)

    def lowest(self, place: int) -> int:
        """The place of the smallest error, walking down from this one."""
        while True:
            around = [one for one in (place - 1, place + 1) if 0 <= one < len(EXPONENTS)]
            lower = min(around, key=self.error)
            if not self.error(lower) < self.error(place):
                return place
            place = lower

    def terms(self, place: int) -> Array:
        """Those that the error is the sum of: a row for every split, a column for every point."""
        found = np.zeros((SPLITS, len(self.drawn.rows)))
        np.put_along_axis(found, self.drawn.rest, self.known[place][1], 1)
        return found

    def accuracy(self, place: int) -> float | None:
        """The share of labels that were right."""
        codes = self.drawn.codes
        if codes is None:
            return None
        guessed = (self.known[place][0] + self.drawn.mean).argmax(-1)
        return float((self.shares * (guessed == codes[self.drawn.rest])).sum())


def _compared(
    losses: dict[str, Array], accuracies: dict[str, float | None], drawn: Drawn
) -> list[Trial]:
    """The best first, with paired differences to it."""
    spread = float(drawn.weights @ (drawn.aims**2).sum(1))
    ranked = sorted(losses, key=lambda name: float(losses[name].sum()))
    best = losses[ranked[0]]
    trials = []
    for name in ranked:
        terms = losses[name] - best
        error = float(losses[name].sum()) / spread
        margin = float(terms.sum()) / spread
        trials.append(Trial(name, error, margin, _noise(terms) / spread, accuracies[name]))
    return trials


def _noise(terms: Array) -> float:
    """The standard error of a sum of terms, a row for every split and a column for every point:
    what other points, or what other subsets, would change, whichever is more."""
    points = terms.sum(0)
    splits = SPLITS * terms.sum(1)
    by_points = np.sqrt(np.square(points - points.mean()).sum())
    return float(max(by_points, splits.std(ddof=1) / np.sqrt(SPLITS)))
