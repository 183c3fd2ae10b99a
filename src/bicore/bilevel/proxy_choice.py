"""``kernel="auto"``: the kernel under which random subsets of the asked size predict other points
best.

Every candidate is tried on the same rows (:mod:`bicore.bilevel.proxy_trials`). Then the Laplace
kernel is taken after its best scaling, unless some other candidate has an error that is smaller by
more than a fifth of it: on the data sets that this was chosen by (docs/choosing.md), a kernel that
assumes little found points that serve models of all kinds, and one that predicts a little better
found points that serve models like itself. Where rows are so many that their matrix is not held,
the linear kernel, whose features are, has this place.

A memory sees a part of a problem, a few of its classes, at a time: which kernel tells those apart
says little about the whole. Nothing is tried there, and the kernel is the one that served memories
best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor

from bicore.bilevel.proxy_trials import (
    BANDWIDTH_ROWS,
    CANDIDATES,
    Drawn,
    Trial,
    drawn_from,
    made,
    tried,
)
from bicore.coreset import Coreset
from bicore.data import Dataset, Targets
from bicore.errors import InputError
from bicore.kernels.base import Kernel
from bicore.kernels.scaling import Normalised
from bicore.sparse import is_sparse

#: What is used where nothing can be tried.
DEFAULT = "laplace"
#: The kernel that is taken unless another one's error is smaller by more than a share of its own.
PREFERRED, PREFERENCE = "laplace", 1 / 6
#: Beyond so many rows matrices of all pairs are approximated: what is preferred there.
MANY, PREFERRED_OF_MANY = 20_000, "linear"
#: The kernels of a part of a problem.
OF_PART, OF_MANY_IN_PART = "ntk on standardised columns", "linear on standardised columns"
#: The kernel of sparse rows, with a unit diagonal: the cosine, by which texts are compared.
OF_SPARSE = "linear"
SPARSE = "x is sparse, and most kernels look at dense rows"
#: Why nothing was tried.
TOO_FEW = "there are too few points, or labels, to compare kernels"
IN_PART = "a part of a problem does not tell kernels apart"
#: Whether a kernel that was chosen is divided by the lengths of its features: the gradient rule
#: takes long ones first.
UNIT_DIAGONAL = True
#: Diagonals this near to 1 are 1.
UNIT_TOLERANCE = 1e-9


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

    @property
    def takes_sparse(self) -> bool:
        return True

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

    @property
    def takes_sparse(self) -> bool:
        return self.kernel.takes_sparse

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


def _automatic(kernel: Kernel) -> TypeGuard[AutomaticKernel]:
    """Whether the kernel itself waits for a choice."""
    return isinstance(kernel, AutomaticKernel)


def is_open(kernel: Kernel) -> bool:
    """Whether some part of it waits for a choice."""
    return any(_automatic(part) for part in parts_of(kernel))


def in_part(kernel: Kernel) -> Kernel:
    """The kernel; its automatic parts are chosen without trials: the data are part of a problem."""
    if _automatic(kernel):
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
    if _automatic(kernel):
        if is_sparse(data.x):
            return Chosen(Normalised(made(OF_SPARSE)), Choice(OF_SPARSE, untried=SPARSE))
        choice = _kept(begun)
        rows = drawn_from(data, targets, size)
        if choice is None:
            choice = _untried(rows.count) if kernel.in_part else _taken(rows)
        found = made(choice.name)
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


def _untried(count: int) -> Choice:
    """Of a part of a problem with so many rows."""
    return Choice(OF_PART if count <= MANY else OF_MANY_IN_PART, untried=IN_PART)


def _taken(drawn: Drawn) -> Choice:
    """The preferred kernel after its best scaling, or what is better by more than a little."""
    trials = tried(drawn)
    if not trials:
        return Choice(DEFAULT)
    preferred = PREFERRED if drawn.count <= MANY else PREFERRED_OF_MANY
    best = trials[0]
    for trial in trials:  # the best scaling first
        if CANDIDATES[trial.name][0] == preferred and trial.margin <= PREFERENCE * trial.error:
            best = trial
            break
    held_out = len(drawn.rows) - drawn.size
    return Choice(best.name, drawn.size, held_out, tuple(trials))


def _of_unit_diagonal(kernel: Kernel, drawn: Drawn) -> Kernel:
    """The kernel itself where its diagonal is 1 by nature."""
    some = drawn.rows[:BANDWIDTH_ROWS]
    diagonal = kernel.fitted(some).diag(torch.from_numpy(some))
    unit = bool(((diagonal - 1).abs() <= UNIT_TOLERANCE).all())
    return kernel if unit else Normalised(kernel)
