"""The interface of all selectors."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from bicore._deprecated import renamed_keywords
from bicore.arguments import Start, as_seed, as_size, auto_size_error, read_initial
from bicore.coreset import Coreset, Status
from bicore.data import Dataset, Task
from bicore.errors import InputError
from bicore.networks.observe import Observed
from bicore.params import Parameters
from bicore.runtime.clock import Clock
from bicore.runtime.context import Context, Runtime
from bicore.types import Label, RandomState


@dataclass(frozen=True, eq=False)
class Request:
    """The checked arguments of a selection, and its clock."""

    data: Dataset
    size: int
    outer: Dataset | None
    start: Start
    seed: int
    context: Context
    clock: Clock

    @property
    def runtime(self) -> Runtime:
        """Device and limits."""
        return self.context.runtime


class Selector(Parameters, ABC):  # a subclass may override select or _select
    """Select rows of a data set.

    The configuration is fixed at construction; :meth:`select` keeps no state. Parameters are read
    and changed as those of scikit-learn's estimators: ``get_params``, ``set_params``, ``clone``.
    ``bicore.methods.METHODS`` lists the selectors of the library.

    Examples
    --------
    >>> from bicore import Dataset
    >>> from bicore.methods import KCenter
    >>> KCenter(over="features").select(Dataset([[0.0], [0.1], [5.0]]), 2).indices.shape
    (2,)
    """

    #: How y is interpreted.
    task: Task = Task.AUTO

    @property
    def name(self) -> str:
        """Name of the method, for errors and reports."""
        return type(self).__name__

    @property
    def needs_labels(self) -> bool:
        """Whether ``select`` needs labels."""
        return False

    @property
    def needs_model(self) -> bool:
        """Whether ``select`` needs the current model, as a module or by its outputs."""
        return self.fits_model

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be a sparse matrix."""
        return False

    @property
    def fits_model(self) -> bool:
        """Whether it needs the module itself, to train or to sample from it."""
        return False

    @property
    def ordered(self) -> bool:
        """Whether a prefix of a coreset is the coreset of a smaller size."""
        return True

    def for_classes(self, classes: Sequence[Label]) -> Selector:
        """Return the selector for a part of the data, which may lack some classes.

        Parameters
        ----------
        classes : sequence
            The labels of all data.

        Returns
        -------
        Selector
            Itself if it does not depend on classes.

        Examples
        --------
        >>> from bicore import BilevelSelector
        >>> BilevelSelector().for_classes(["cat", "dog"]).classes
        ('cat', 'dog')
        """
        return self

    def resolve_defaults(self, data: Dataset, size: int, previous: Coreset | None = None) -> Self:
        """Return the selector with unset choices, such as the kernel, resolved from the data.

        Parameters
        ----------
        data : Dataset
            The points to select from.
        size : int
            Number of points to select.
        previous : Coreset, optional
            A coreset that is continued: its kernel is kept.

        Returns
        -------
        Selector
            Itself if nothing is unset.

        Examples
        --------
        >>> import numpy as np
        >>> from bicore import BilevelSelector, Dataset
        >>> data = Dataset(np.arange(-20.0, 21)[:, None], np.arange(-20.0, 21))
        >>> BilevelSelector(kernel="auto").resolve_defaults(data, 10).kernel.choice.name
        'exponential on standardised columns'
        """
        return self

    def for_memory(self) -> Selector:
        """Return the selector for a memory, which selects repeatedly among the points it holds.

        Returns
        -------
        Selector
            With unset choices resolved so that prefixes nest, the kernel does not depend on the
            labels of a part, and classes share the points (docs/choosing.md).
        """
        return self

    def as_bilevel(
        self, data: Dataset, outer: Dataset | None = None
    ) -> tuple[Any, Dataset, Dataset | None]:
        """Return the bilevel selector that defines the objective, with the data it predicts.

        Parameters
        ----------
        data : Dataset
            The points to select from.
        outer : Dataset, optional
            A separate set on which the objective is measured.

        Returns
        -------
        tuple
            A :class:`BilevelSelector`, and both sets with its targets.

        Raises
        ------
        InputError
            If the method has no model.
        """
        raise auto_size_error()

    @renamed_keywords()
    def select(
        self,
        data: Dataset,
        size: int | float,
        *,
        outer: Dataset | None = None,
        initial: Coreset | Sequence[int] = (),
        random_state: RandomState = 0,
        model: torch.nn.Module | Observed | Context | None = None,
        model_classes: Sequence[Label] | None = None,
        runtime: Runtime | None = None,
    ) -> Coreset:
        """Select a coreset.

        Parameters
        ----------
        data : Dataset
            The points to select from.
        size : int or float
            Number of points, or a fraction of the rows if a float up to 1.
        outer : Dataset, optional
            A separate set on which the outer objective is measured; default: ``data``.
        initial : Coreset or sequence of int
            First points: a coreset of the same data, or row numbers.
        random_state : int, Generator, RandomState or None
            Seed for all random draws.
        model : torch.nn.Module or Observed, optional
            The current model, for methods that use one.
        model_classes : sequence, optional
            The labels of the model's outputs, in order (default: 0, 1, 2, …).
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        Coreset
            The points in the order of selection.

        Raises
        ------
        InputError
            If an argument is invalid.
        NumericalError
            If scores or objectives are not finite.

        Examples
        --------
        >>> from bicore import Dataset
        >>> from bicore.methods import Uniform
        >>> len(Uniform().select(Dataset([[0.0], [1.0], [2.0]]), 2))
        2
        """
        if isinstance(model, Context):  # as in version 0.2
            context = model
        else:
            context = Context(model, runtime or Runtime(), model_classes)
        return self._select(self._request(data, size, outer, initial, random_state, context))

    def _request(
        self,
        data: Dataset,
        size: int | float,
        outer: Dataset | None,
        initial: Coreset | Sequence[int],
        random_state: RandomState,
        context: Context,
    ) -> Request:
        """Check the arguments of a selection."""
        if self.needs_labels:
            need_labels(self, data)
        if self.needs_model and context.model is None:
            raise InputError(f"{self.name} needs a network; give model=network.")
        count = as_size(size, int((data.weights > 0).sum()))
        start = read_initial(initial, data, count)
        clock = Clock(context.runtime.max_seconds)
        return Request(data, count, outer, start, as_seed(random_state), context, clock)

    def _select(self, request: Request) -> Coreset:
        """Select with checked arguments."""
        raise NotImplementedError


def list_classes(data: Dataset, selector: Selector) -> list[Any]:
    """Return the class labels in order of appearance; none for targets or without y."""
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
        raise InputError(f"{selector.name} needs labels or targets; give y, or another method.")


def require_complete(coreset: Coreset, effect: str = "the memory was left unchanged") -> Coreset:
    """Return a coreset that ended by itself; raise for one that was interrupted or out of time."""
    if coreset.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if not coreset.status.whole:
        raise InputError(f"the selection was {coreset.message}, so {effect}; raise max_seconds.")
    return coreset
