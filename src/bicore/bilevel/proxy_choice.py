"""``kernel="auto"``: the kernel under which random subsets of the asked size predict other points
best.

1. Draw some rows, by id alone: the order of rows and the seed play no part, so that whoever asks
   later of the same data and size has the same kernel.
2. Three times, split them into a subset of the asked size and held-out points; the same splits for
   every candidate.
3. For every candidate, kernels times scalings, fit the subsets by ridge regression. Its error is
   the mean squared error on the held-out points, as a share of the variance there, under the ρ of a
   decade grid that makes it smallest.
4. Take the Laplace kernel after its best scaling, unless some other candidate has an error that is
   smaller by more than a fifth of it: on the data sets that this was chosen by (docs/choosing.md),
   a kernel that assumes little found points that serve models of all kinds, and one that predicts a
   little better found points that serve models like itself. Where rows are so many that their
   matrix is not held, the linear kernel, whose features are, has this place.

A memory sees a part of a problem, a few of its classes, at a time: which kernel tells those apart
says little about the whole. Nothing is tried there, and the kernel is the one that served memories
best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.regularisation import EXPONENTS
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, Targets, summable
from bicore.errors import InputError
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF, Laplace, Linear
from bicore.kernels.presets import fully_connected
from bicore.kernels.scaling import Normalised, Standardised, UnitRows
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
#: What is used where nothing can be tried.
DEFAULT = "laplace"
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
#: The kernel that is taken unless another one's error is smaller by more than a share of its own.
PREFERRED, PREFERENCE = "laplace", 1 / 6
#: Beyond so many rows matrices of all pairs are approximated: what is preferred there.
MANY, PREFERRED_OF_MANY = 20_000, "linear"
#: The kernels of a part of a problem.
OF_PART, OF_MANY_IN_PART = "ntk on standardised columns", "linear on standardised columns"
#: Why nothing was tried.
TOO_FEW = "there are too few points, or labels, to compare kernels"
IN_PART = "a part of a problem does not tell kernels apart"
#: Whether a kernel that was chosen is divided by the lengths of its features: the gradient rule
#: takes long ones first.
UNIT_DIAGONAL = True
#: Diagonals this near to 1 are 1.
UNIT_TOLERANCE = 1e-9


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


@dataclass(frozen=True)
class Choice:
    """The candidate that was taken, and what it was compared with.

    Parameters
    ----------
    name : str
        In the table of candidates.
    size, held_out : int
        Points of a subset, and points held out beside it.
    trials : tuple of Trial
        The best first; none where nothing was tried.
    untried : str
        Why nothing was.

    Examples
    --------
    >>> Choice("linear", 20, 100, (Trial("linear", 0.5), Trial("rbf", 0.625))).note
    'kernel: linear, by a held-out error of 0.5 after 20 points (next: rbf 0.625)'
    """

    name: str
    size: int = 0
    held_out: int = 0
    trials: tuple[Trial, ...] = ()
    untried: str = TOO_FEW

    @property
    def note(self) -> str:
        """The decision in one line."""
        if not self.trials:
            return f"kernel: {self.name}; {self.untried}"
        own = next(trial for trial in self.trials if trial.name == self.name)
        others = [trial for trial in self.trials if trial.name != self.name]
        beside = ""
        if others:
            word = "next" if others[0].error >= own.error else "near enough to"
            beside = f" ({word}: {others[0].name} {others[0].error:.3g})"
        return (
            f"kernel: {self.name}, by a held-out error of {own.error:.3g} after {self.size} points"
            f"{beside}"
        )

    def record(self) -> dict[str, Any]:
        """For the details of a coreset.

        Returns
        -------
        dict
            Numbers and words alone.
        """
        found = asdict(self)
        found["trials"] = list(found["trials"])
        if self.trials:
            del found["untried"]
        return found


@dataclass(frozen=True)
class AutomaticKernel(Kernel):
    """The kernel under which random subsets of the asked size predict held-out points best.

    It needs labels, and so is settled where a selection begins; it cannot be evaluated itself.

    Parameters
    ----------
    unit_diagonal : bool
        Whether the kernel that is chosen is normalised (:class:`bicore.Normalised`).
    in_part : bool
        Whether the data are a part of the problem, such as a task or a chunk of a stream: nothing
        is tried then.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(kernel="auto").kernel.name
    'auto'
    """

    unit_diagonal: bool = UNIT_DIAGONAL
    in_part: bool = False

    @property
    def name(self) -> str:
        return "auto"

    def _refused(self) -> InputError:
        return InputError(
            "kernel='auto' is chosen by labels when a bilevel selection begins, and there is none "
            "here; name a kernel."
        )

    def fitted(self, x: Any) -> Kernel:
        raise self._refused()

    def _ready(self) -> Kernel:
        raise self._refused()

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        raise self._refused()

    def diag(self, a: Tensor) -> Tensor:
        raise self._refused()


@dataclass(frozen=True, repr=False)
class Chosen(Kernel):
    """A kernel with the story of its choice; in every other way the kernel itself.

    Parameters
    ----------
    kernel : Kernel
        What was chosen.
    choice : Choice
        Why.

    Examples
    --------
    >>> from bicore.kernels import Linear
    >>> Chosen(Linear(), Choice("linear")).name
    'linear'
    """

    kernel: Kernel
    choice: Choice

    @property
    def name(self) -> str:
        return self.kernel.name

    def __repr__(self) -> str:
        return repr(self.kernel)

    def fitted(self, x: Any) -> Kernel:
        return replace(self, kernel=self.kernel.fitted(x))

    def _ready(self) -> Kernel:
        return replace(self, kernel=self.kernel._ready())

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a, b)

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        return self.kernel.gram(a, block)

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a)

    def features(self, a: Tensor) -> Tensor | None:
        return self.kernel.features(a)

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_pair(itemsize, shape)

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_point(itemsize, shape)


def parts_of(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel and those it is made of."""
    yield kernel
    for name in _inside(kernel):
        yield from parts_of(getattr(kernel, name))


def _inside(kernel: Kernel) -> list[str]:
    """The names of the fields that hold kernels."""
    if not is_dataclass(kernel):
        return []
    return [one.name for one in fields(kernel) if isinstance(getattr(kernel, one.name), Kernel)]


def is_open(kernel: Kernel) -> bool:
    """Whether some part of it waits for a choice."""
    return any(isinstance(part, AutomaticKernel) for part in parts_of(kernel))


def in_part(kernel: Kernel) -> Kernel:
    """The kernel; its automatic parts are chosen without trials: the data are part of a problem."""
    if isinstance(kernel, AutomaticKernel):
        return replace(kernel, in_part=True)
    inside = {name: in_part(getattr(kernel, name)) for name in _inside(kernel)}
    return replace(kernel, **inside) if inside else kernel  # type: ignore[type-var]


def choice_of(kernel: Kernel) -> Choice | None:
    """What was chosen in it, if anything."""
    return next((part.choice for part in parts_of(kernel) if isinstance(part, Chosen)), None)


def notes_of(kernel: Kernel) -> tuple[str, ...]:
    """The decision in one line, if there was one."""
    choice = choice_of(kernel)
    return () if choice is None else (choice.note,)


def trials_of(kernel: Kernel) -> dict[str, Any]:
    """What a coreset's details say of the decision, if there was one."""
    choice = choice_of(kernel)
    return {} if choice is None else {"kernel_trials": choice.record()}


def settled(
    kernel: Kernel, data: Dataset, targets: Targets, size: int, begun: Coreset | None = None
) -> Kernel:
    """The kernel with every automatic part chosen for subsets of ``size`` points.

    A coreset that was ``begun`` under a choice goes on with it.
    """
    if isinstance(kernel, AutomaticKernel):
        choice = _kept(begun)
        rows = _drawn(data, targets, size)
        if choice is None:
            choice = _untried(rows.count) if kernel.in_part else _tried(rows)
        name, scaling = CANDIDATES[choice.name]
        found = SCALINGS[scaling](KERNELS[name]())
        if kernel.unit_diagonal:
            found = _of_unit_diagonal(found, rows)
        return Chosen(found, choice)
    inside = {
        name: settled(getattr(kernel, name), data, targets, size, begun) for name in _inside(kernel)
    }
    return replace(kernel, **inside) if inside else kernel  # type: ignore[type-var]


def _kept(begun: Coreset | None) -> Choice | None:
    """What a coreset was chosen with."""
    record = None if begun is None else begun.details.get("kernel_trials")
    if not isinstance(record, dict) or record.get("name") not in CANDIDATES:
        return None
    trials = tuple(Trial(**trial) for trial in record["trials"])
    untried = record.get("untried", TOO_FEW)
    return Choice(record["name"], record["size"], record["held_out"], trials, untried)


@dataclass(frozen=True, eq=False)
class _Drawn:
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


def _drawn(data: Dataset, targets: Targets, size: int) -> _Drawn:
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
    return _Drawn(rows, aims - mean, mean, codes, weights, chosen, rest, n)


def _untried(count: int) -> Choice:
    """Of a part of a problem with so many rows."""
    return Choice(OF_PART if count <= MANY else OF_MANY_IN_PART, untried=IN_PART)


def _tried(drawn: _Drawn) -> Choice:
    """All candidates on the same splits."""
    if not drawn.usable:
        return Choice(DEFAULT)
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
    if not losses:
        return Choice(DEFAULT)
    trials = _compared(losses, accuracies, drawn)
    preferred = PREFERRED if drawn.count <= MANY else PREFERRED_OF_MANY
    best = trials[0]
    for trial in trials:  # the best scaling first
        if CANDIDATES[trial.name][0] == preferred and trial.margin <= PREFERENCE * trial.error:
            best = trial
            break
    held_out = len(drawn.rows) - drawn.size
    return Choice(best.name, drawn.size, held_out, tuple(trials))


def _race(drawn: _Drawn, losses: dict[str, Array]) -> Iterator[str]:
    """The candidates to try; dear ones last, when the errors of the others are known."""
    for name, (kernel, _) in CANDIDATES.items():
        if kernel not in DEAR:
            yield name
    allowed = set(SCALINGS)
    if len(drawn.rows) * drawn.rows.size > DEAR_OPERATIONS:
        alike = [name for name, (kernel, _) in CANDIDATES.items() if kernel == "rbf"]
        tried = [name for name in alike if name in losses]
        best = min(tried, key=lambda name: float(losses[name].sum()), default=None)
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

    def __init__(self, gram: Array, drawn: _Drawn) -> None:
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
    losses: dict[str, Array], accuracies: dict[str, float | None], drawn: _Drawn
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


def _of_unit_diagonal(kernel: Kernel, drawn: _Drawn) -> Kernel:
    """The kernel itself where its diagonal is 1 by nature."""
    some = drawn.rows[:BANDWIDTH_ROWS]
    diagonal = kernel.fitted(some).diag(torch.from_numpy(some))
    unit = bool(((diagonal - 1).abs() <= UNIT_TOLERANCE).all())
    return kernel if unit else Normalised(kernel)
