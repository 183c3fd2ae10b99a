"""What every selector is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from bicore.coreset import Coreset, Status
from bicore.data import Dataset, Task
from bicore.errors import InputError
from bicore.picking import no_size_of_its_own
from bicore.runtime import Context


class Selector(ABC):
    """Chooses rows of a data set.

    Configuration is fixed at construction; :meth:`select` keeps no state.
    ``bicore.selectors.METHODS`` names those that come with the library.

    Examples
    --------
    >>> from bicore import Dataset
    >>> from bicore.selectors import KCenter
    >>> KCenter(over="features").select(Dataset([[0.0], [0.1], [5.0]]), 2).indices.shape
    (2,)
    """

    #: How y is read.
    task: Task = Task.AUTO

    @property
    def name(self) -> str:
        """The method in words, as errors and reports call it."""
        return type(self).__name__

    @property
    def needs_labels(self) -> bool:
        """Whether ``select`` needs labels."""
        return False

    @property
    def needs_model(self) -> bool:
        """Whether ``select`` needs the current model in its context."""
        return False

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be a sparse matrix that stays one."""
        return False

    @property
    def fits_model(self) -> bool:
        """Whether it needs the module itself, to train or to sample from, not only what it says."""
        return False

    @property
    def ordered(self) -> bool:
        """Whether the order has a meaning: if so, a prefix is the answer for a smaller size."""
        return True

    def for_classes(self, classes: Sequence[Any]) -> Selector:
        """The same selector for a part of some data, which may not show all of its classes.

        Parameters
        ----------
        classes : sequence
            The labels of the whole data.

        Returns
        -------
        Selector
            This one where classes make no difference to it.

        Examples
        --------
        >>> from bicore import BilevelSelector
        >>> BilevelSelector().for_classes(["cat", "dog"]).classes
        ('cat', 'dog')
        """
        return self

    def settled(self, data: Dataset, size: int, begun: Coreset | None = None) -> Selector:
        """The same selector with what it leaves to the data decided.

        Parameters
        ----------
        data : Dataset
            The points to choose from.
        size : int
            How many are asked for.
        begun : Coreset, optional
            One that is continued: what was decided for it is kept.

        Returns
        -------
        Selector
            This one where nothing is open.

        Examples
        --------
        >>> from bicore import BilevelSelector, Dataset
        >>> data = Dataset(np.arange(-20.0, 21)[:, None], np.arange(-20.0, 21))
        >>> BilevelSelector(kernel="auto").settled(data, 10).kernel.choice.name
        'exponential on standardised columns'
        """
        return self

    def plain(self) -> Selector:
        """The same selector with the least that its open choices may need.

        Returns
        -------
        Selector
            With rule, strategy and targets of the paper where they are left open.
        """
        return self

    def for_memory(self) -> Selector:
        """The same selector for a memory, which selects again among what it kept.

        Returns
        -------
        Selector
            With what is left open decided so that prefixes nest: a memory cuts them, and the more
            a selection is refined the less is left of that when it is judged by its own leftovers.
            And so that nothing hangs on which part of the problem is shown: no kernel is chosen by
            its labels, and its classes share the points (docs/choosing.md).
        """
        return self

    def judged_by(
        self, data: Dataset, outer: Dataset | None = None
    ) -> tuple[Any, Dataset, Dataset | None]:
        """The model by which a selection of unknown size can be judged.

        Parameters
        ----------
        data : Dataset
            The points to choose from.
        outer : Dataset, optional
            Those on which the objective is measured, where they are others.

        Returns
        -------
        tuple
            A :class:`BilevelSelector`, and both sets with the targets that it predicts.

        Raises
        ------
        InputError
            Where the method has no model.
        """
        raise no_size_of_its_own()

    @abstractmethod
    def select(
        self,
        data: Dataset,
        size: int | float,
        *,
        outer: Dataset | None = None,
        initial: Coreset | Sequence[int] = (),
        rng: int | np.random.Generator = 0,
        context: Context | None = None,
    ) -> Coreset:
        """Choose points.

        Parameters
        ----------
        data : Dataset
            The points to choose from.
        size : int or float
            How many, or a fraction of the rows when a float up to 1.
        outer : Dataset, optional
            A separate set on which the outer objective is measured; default: ``data`` itself.
        initial : Coreset or sequence of int
            Points that come first, a coreset of the same data or row numbers; the rest continues
            them.
        rng : int or numpy.random.Generator
            A seed or a generator; the same seed gives the same answer.
        context : Context, optional
            Device, limits, and the current model where one is needed.

        Returns
        -------
        Coreset
            The points in the order of selection.

        Raises
        ------
        InputError
            Where the request cannot be right; the message names the mend.
        NumericalError
            Where the arithmetic cannot be trusted.

        Examples
        --------
        >>> from bicore import Dataset
        >>> from bicore.selectors import Uniform
        >>> len(Uniform().select(Dataset([[0.0], [1.0], [2.0]]), 2))
        2
        """


def labels_of(data: Dataset, selector: Selector) -> list[Any]:
    """The class labels of the data in order of appearance; none where y is missing or holds
    targets."""
    if data.y is None:
        return []
    column = data.y[:, 0] if data.y.ndim == 2 and data.y.shape[1] == 1 else data.y
    floats = column.dtype.kind == "f" and selector.task is not Task.CLASSIFICATION
    if column.ndim != 1 or selector.task is Task.REGRESSION or floats:
        return []
    return list(dict.fromkeys(column.tolist()))


def need_labels(selector: Selector, data: Dataset) -> None:
    """Refuse data without labels before any work is done."""
    if data.y is None:
        raise InputError(
            f"{selector.name} needs labels or targets, and data has none; give y, or a method "
            "without labels."
        )


def finished(coreset: Coreset) -> Coreset:
    """A selection as part of something larger: one that was cut short ends the whole."""
    if coreset.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if not coreset.status.whole:
        raise InputError(
            f"a selection was {coreset.message}, and part of a memory cannot be left half-made; "
            "raise Runtime(max_seconds=…)."
        )
    return coreset
