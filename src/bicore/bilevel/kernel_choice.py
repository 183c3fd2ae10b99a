"""Choose the kernel for ``kernel="auto"`` by held-out error.

The candidates are the exponential kernel with and without standardised columns and, for some wide
rows, the cosine. ``model=`` selects candidates that suit one kind of model.

1. Draw some rows by id alone, so that the order of rows and the seed change nothing.
2. Split them three times into a subset of the requested size, at most 250, and held-out rows.
3. For each kernel fit ridge regression with an intercept to the subsets, with ρ on a grid of powers
   of ten that is followed downhill. Choose the kernel with the smallest squared error on the
   held-out rows. For large data the cosine is preferred at an error up to 3% larger, if it is the
   only kernel that allows all rows as candidates.

A memory sees only a few classes of a problem at a time, too little for a comparison. It uses a
fixed kernel, which was the best one for memories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import in_id_order
from bicore.bilevel.regularisation import EXPONENTS, predict_from_subsets
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, Targets, scale_below_one
from bicore.errors import InputError, check_name
from bicore.kernels.base import Kernel, Wrapper
from bicore.kernels.classical import Exponential, Linear
from bicore.kernels.scaling import Normalised, Standardised
from bicore.kernels.tangent import fully_connected
from bicore.runtime.clock import checkpoint
from bicore.sparse import is_sparse

#: The cosine: for sparse rows, and a candidate for rows of at least this many columns.
COSINE, WIDE = "normalised linear", 100
#: The kernel for a part of a problem, such as a batch of a stream.
FOR_PART = "normalised ntk on standardised columns"
#: Kernels compared on columns as given and on standardised columns.
BASES: dict[str, Kernel] = {
    "exponential": Exponential(),
    "exponential with gamma 2/median distance": Exponential(sharpness=2.0),
    "exponential with gamma 3/median distance": Exponential(sharpness=3.0),
    "linear": Linear(),
}
ON_STANDARDISED = " on standardised columns"
KERNELS: dict[str, Kernel] = {
    **BASES,
    **{name + ON_STANDARDISED: Standardised(base) for name, base in BASES.items()},
    COSINE: Normalised(Linear()),
    FOR_PART: Normalised(Standardised(fully_connected())),
}
#: The models that users may name, and base kernels for each; those of ``any`` depend on the data.
MODELS: dict[str, tuple[str, ...]] = {
    "any": (),
    "linear": ("exponential", "linear"),
    "trees": ("exponential",),
    "neighbours": ("exponential with gamma 3/median distance",),
    "network": ("exponential",),
}
#: The intercept of every kernel: a constant feature, as a share of the mean of k(x, x).
INTERCEPT = 1.0
#: Reasons why no kernels were compared.
TOO_FEW = "too few rows or labels to compare kernels"
IN_PART = "the problem is split, so no kernel was compared"
SPARSE = "x is sparse, and most kernels need dense rows"
#: Classes are curved if a kernel has less than this share of the smallest error of a linear kernel.
#: The rows selected by that kernel follow curves that a linear model cannot fit.
CURVED = 0.5
#: From this many points per class on, a narrow kernel is better for wide rows too.
MANY_PER_CLASS = 20
#: Number of splits, and held-out rows in each.
SPLITS, HELD_OUT = 3, 100
#: Number of points of a subset: minimum, minimum per class, and maximum, because a fit has cubic
#: cost.
FEWEST, PER_CLASS, MOST = 20, 2, 250
#: Errors up to this factor larger count as equally small.
NEARLY = 1.03
#: Minimum number of points of a subset for a comparison.
FEWEST_TRIED = 2
#: Index in the grid of ρ at which the search begins.
BEGIN = 3


@dataclass(frozen=True)
class Trial:
    """The held-out error of one candidate."""

    name: str
    error: float


@dataclass(frozen=True)
class Choice:
    """The chosen kernel, and the kernels it was compared with."""

    name: str
    size: int = 0
    held_out: int = 0
    trials: tuple[Trial, ...] = ()
    #: Why no kernels were compared, if ``trials`` is empty.
    fallback_reason: str = TOO_FEW

    @property
    def note(self) -> str:
        """Describe the choice in one line."""
        if not self.trials:
            return f"kernel: {self.name}; {self.fallback_reason}"
        best, *others = self.trials
        next_best = f" (next best: {others[0].name}, {others[0].error:.3g})" if others else ""
        return (
            f"kernel: {self.name}; a model fitted to {self.size} random rows has a squared error "
            f"of {best.error:.3g} on held-out rows, relative to the variance{next_best}"
        )

    def record(self) -> dict[str, Any]:
        """Return the choice as values for JSON."""
        found = asdict(self) | {"trials": [asdict(trial) for trial in self.trials]}
        reason = found.pop("fallback_reason")
        return found if self.trials else found | {"untried": reason}  # the key in saved files


@dataclass(frozen=True)
class AutomaticKernel(Kernel):
    """The kernel under which random subsets of the requested size best predict held-out points.

    It needs labels, so it is resolved when a selection begins and cannot be evaluated itself.
    """

    #: Whether it is chosen for a part of a problem, for exchanges by class means, and for data so
    #: large that other kernels than the cosine would need a sample.
    in_part: bool = False
    class_means: bool = False
    # Old files lack this field; "added" keeps their fingerprints.
    large: bool = field(default=False, metadata={"added": True})
    model: str = "any"

    name = "auto"
    takes_sparse = True

    def __post_init__(self) -> None:
        check_name("model", self.model, MODELS)

    def candidates(self, classes: int, columns: int, size: int) -> list[str]:
        """Return the names of the kernels to compare; numeric targets have no classes."""
        wide = columns >= WIDE
        if wide and self.class_means and self.model == "linear":
            return [COSINE]
        # A narrow kernel also suits nearest neighbours. For regression, and for wide rows unless
        # there are many points, it costs other models more than neighbours gain.
        narrow = classes and (not wide or size >= MANY_PER_CLASS * classes)
        bases = MODELS[self.model] or (
            "exponential with gamma 2/median distance" if narrow else "exponential",
        )
        # For classes the cosine suits linear models and networks, and is worse for the others.
        suits = self.large or not classes or self.model in ("linear", "network")
        cosine = [COSINE] if wide and suits and self.model != "neighbours" else []
        return [name for base in bases for name in (base + ON_STANDARDISED, base)] + cosine

    def _error(self) -> InputError:
        return InputError(
            "kernel='auto' needs labels, which are read when a bilevel selection begins; name a "
            "kernel here, such as kernel='rbf'."
        )

    def fit(self, x: Any) -> Kernel:
        raise self._error()

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        raise self._error()

    def diag(self, a: Tensor) -> Tensor:
        raise self._error()


@dataclass(frozen=True, repr=False)
class Chosen(Wrapper):
    """A kernel together with the reason for its choice."""

    choice: Choice

    @property
    def name(self) -> str:
        return self.kernel.name

    def __repr__(self) -> str:
        return repr(self.kernel)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a, b)

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        return self.kernel.gram(a, block)

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a)

    def features(self, a: Tensor) -> Tensor | None:
        return self.kernel.features(a)


def parts_of(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernel and all kernels that it contains."""
    yield kernel
    for name in _kernel_fields(kernel):
        yield from parts_of(getattr(kernel, name))


def _kernel_fields(kernel: Kernel) -> list[str]:
    """Return the names of the fields that hold kernels."""
    if not is_dataclass(kernel):
        return []
    return [one.name for one in fields(kernel) if isinstance(getattr(kernel, one.name), Kernel)]


def _replace_automatic(kernel: Kernel, change: Callable[[AutomaticKernel], Kernel]) -> Kernel:
    """Replace the automatic parts of a kernel."""
    if isinstance(kernel, AutomaticKernel):
        return change(kernel)
    inside = {
        name: _replace_automatic(getattr(kernel, name), change) for name in _kernel_fields(kernel)
    }
    return replace(kernel, **inside) if inside else kernel  # type: ignore[type-var]


def needs_choice(kernel: Kernel) -> bool:
    """Whether any part of the kernel is automatic and not chosen yet."""
    return bool(model_of(kernel))


def model_of(kernel: Kernel) -> str:
    """Return the model for which a part of the kernel is to be chosen, or an empty string."""
    parts = parts_of(kernel)
    return next((part.model for part in parts if isinstance(part, AutomaticKernel)), "")


def mark_automatic(kernel: Kernel, **marks: bool) -> Kernel:
    """Set fields such as ``in_part`` and ``large`` of the automatic parts of a kernel."""
    return _replace_automatic(kernel, lambda part: replace(part, **marks))  # type: ignore[arg-type]


def choice_of(kernel: Kernel) -> Choice | None:
    """Return the choice made inside a kernel, if any."""
    return next((part.choice for part in parts_of(kernel) if isinstance(part, Chosen)), None)


def notes_of(kernel: Kernel) -> tuple[str, ...]:
    """Return the choice made inside a kernel as a note, if any."""
    choice = choice_of(kernel)
    return () if choice is None else (choice.note,)


def trials_of(kernel: Kernel) -> dict[str, Any]:
    """Return the trials of the choice inside a kernel for a coreset's details, if any."""
    choice = choice_of(kernel)
    return {} if choice is None else {"kernel_trials": choice.record()}


def choose_kernel(
    kernel: Kernel, data: Dataset, targets: Targets, size: int, previous: Coreset | None = None
) -> Kernel:
    """Choose every automatic part of a kernel for subsets of ``size`` points.

    The kernel chosen for a ``previous`` coreset is kept.
    """

    def choose(part: AutomaticKernel) -> Kernel:
        choice = _read_choice(previous)
        if is_sparse(data.x):
            choice = Choice(COSINE, fallback_reason=SPARSE)
        elif part.in_part:
            choice = choice or Choice(FOR_PART, fallback_reason=IN_PART)
        elif choice is None:
            classes = 0 if targets.classes is None else len(targets.classes)
            width = math.prod(data.x.shape[1:])
            names = part.candidates(classes, width, size)
            choice = _compare(part, draw_rows(data, targets, size), names, classes > 0)
        return Chosen(KERNELS[choice.name], choice)

    return _replace_automatic(kernel, choose)


def _read_choice(previous: Coreset | None) -> Choice | None:
    """Read the choice that a coreset was selected with."""
    record = None if previous is None else previous.details.get("kernel_trials")
    if not isinstance(record, dict) or record.get("name") not in KERNELS:
        return None
    trials = tuple(Trial(**trial) for trial in record["trials"])
    reason = record.get("untried", TOO_FEW)
    return Choice(record["name"], record["size"], record["held_out"], trials, reason)


@dataclass(frozen=True, eq=False)
class TrialRows:
    """Rows to compare kernels on: features, targets, weights and splits."""

    rows: Array
    goals: Array
    weights: Array
    #: Places of the subsets and of the held-out rows, one line per split.
    chosen: Array
    rest: Array

    @property
    def size(self) -> int:
        """Number of points of a subset."""
        return int(self.chosen.shape[1])


def draw_rows(data: Dataset, targets: Targets, size: int) -> TrialRows:
    """Draw rows of positive weight by id; other rows are not read."""
    by_id = in_id_order(np.flatnonzero(data.weights > 0), data.ids)
    n = len(by_id)
    classes = 0 if targets.classes is None else len(targets.classes)
    points = min(max(size, FEWEST, PER_CLASS * classes), n // 2, MOST)
    rng = np.random.default_rng(n)
    drawn = by_id[np.sort(rng.choice(n, min(n, points + HELD_OUT), replace=False))]
    rows = np.array(data.x[drawn], dtype=np.float64).reshape(len(drawn), -1)
    weights = scale_below_one(data.weights[drawn])
    weights = weights / weights.sum()
    values = targets.values[drawn]
    goals = values if targets.classes is None else np.eye(classes)[values]
    orders = np.stack([rng.permutation(len(drawn)) for _ in range(SPLITS)])
    return TrialRows(rows, goals - weights @ goals, weights, orders[:, :points], orders[:, points:])


def _compare(kernel: AutomaticKernel, drawn: TrialRows, names: list[str], classes: bool) -> Choice:
    """Choose the kernel of smallest held-out error, or for large data a nearly as good cosine."""
    trials = compare_kernels(drawn, names)
    if not trials:
        return Choice(names[0])
    if kernel.model == "linear":
        outliers = classes and drawn.rows.shape[1] < WIDE and not kernel.class_means
        trials = _order_for_linear_model(trials, outliers)
    if kernel.large:
        most = trials[0].error * NEARLY
        trials.sort(key=lambda trial: trial.name != COSINE or trial.error > most)
    held_out = len(drawn.rows) - drawn.size
    return Choice(trials[0].name, drawn.size, held_out, tuple(trials))


def _order_for_linear_model(trials: list[Trial], outliers: bool) -> list[Trial]:
    """Return only linear kernels and the cosine for curved classes.

    Otherwise put them last with ``outliers``, which they select even with the smallest error.
    """
    linear = [trial for trial in trials if "linear" in trial.name]
    if linear and trials[0].error < CURVED * linear[0].error:
        return linear
    return sorted(trials, key=lambda trial: outliers and trial in linear)


def compare_kernels(drawn: TrialRows, names: Sequence[str]) -> list[Trial]:
    """Return the held-out error of every candidate, smallest first."""
    if drawn.size < FEWEST_TRIED or not np.ptp(drawn.goals, axis=0).any():
        return []
    spread = float(drawn.weights @ (drawn.goals**2).sum(1))
    trials = []
    for name in names:
        checkpoint()
        try:
            kernel = KERNELS[name].fit(drawn.rows)
        except InputError:  # the squares of a column overflow
            continue
        gram = kernel.gram(torch.from_numpy(drawn.rows))
        if torch.isfinite(gram).all():
            error = _smallest_error(gram + INTERCEPT * gram.diagonal().mean(), drawn)
            if np.isfinite(error):
                trials.append(Trial(name, error / spread))
    return sorted(trials, key=lambda trial: trial.error)


def _smallest_error(gram: Tensor, drawn: TrialRows) -> float:
    """Fit ridge regressions to the subsets of all splits and return their smallest held-out error.

    The search follows the grid of ρ downhill.
    """
    scale = float(gram.diagonal().mean()) or 1.0
    chosen, rest = torch.from_numpy(drawn.chosen), torch.from_numpy(drawn.rest)
    squares = gram[chosen[:, :, None], chosen[:, None, :]]
    crosses = gram[chosen[:, :, None], rest[:, None, :]]
    goals, weights = torch.from_numpy(drawn.goals), torch.from_numpy(drawn.weights)[rest]
    shares = weights / weights.sum(1, keepdim=True) / SPLITS

    @cache
    def error(place: int) -> float:
        rho = scale * 10.0 ** EXPONENTS[place]
        found = predict_from_subsets(squares, crosses, goals[chosen], rho)
        return float((shares * (found - goals[rest]).square().sum(-1)).sum())

    place = BEGIN
    while True:
        around = [one for one in (place - 1, place + 1) if 0 <= one < len(EXPONENTS)]
        lower = min(around, key=error)
        if not error(lower) < error(place):
            return error(place)
        place = lower
