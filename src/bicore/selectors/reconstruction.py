"""Without labels: the points from which a kernel model predicts the features of all the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bicore.bilevel.kernel_choice import is_open
from bicore.bilevel.problem import Regulariser
from bicore.bilevel.strategies import Strategy
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, summable
from bicore.kernels.base import Kernel
from bicore.numerics.linear_algebra import height
from bicore.picking import as_size, as_start, in_id_order, whole_number
from bicore.runtime import Clock, Context, checkpoint
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector

#: Directions whose variance is below this share of the largest are none.
RANK_TOLERANCE = 1e-12
#: Rows by which an automatic kernel is chosen.
SOME_ROWS = 1000


@dataclass(frozen=True)
class Reconstruction(Selector):
    """Bilevel selection whose targets are the data's own leading principal components.

    No labels are looked at.

    Parameters
    ----------
    kernel, inner_reg, weights, candidates, strategy : object
        As :class:`BilevelSelector` has them; the loss is the squared error.
    components : int
        How many are predicted; each keeps the variance it has in the data, so that the loss is
        variance left unexplained.
    exact : bool
        Whether all rows are candidates, however many there are; see :class:`BilevelSelector`.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(40, 3)) * [5, 1, 0.1]
    >>> Reconstruction(kernel="rbf", inner_reg=0.1).select(Dataset(x), 4).details["components"]
    3
    """

    kernel: str | Kernel | Callable[..., Any] = "ntk"
    inner_reg: str | float | Regulariser = "auto"
    weights: str = "binary"
    candidates: int | None = None
    strategy: str | Strategy = "greedy"
    components: int = 32
    exact: bool = False
    #: The bilevel selector that predicts the components.
    chooser: BilevelSelector = field(init=False, repr=False, compare=False)

    name = "reconstruction"

    def __post_init__(self) -> None:
        whole_number(
            self.components,
            1,
            f"components={self.components!r} is not a whole number >= 1; give how many are "
            "predicted.",
        )
        # Built once: names are looked up, and what cannot be is refused, before there is data.
        chooser = BilevelSelector(
            kernel=self.kernel,
            inner_reg=self.inner_reg,
            weights=self.weights,
            candidates=self.candidates,
            strategy=self.strategy,
            task="regression",
            exact=self.exact,
        )
        object.__setattr__(self, "chooser", chooser)

    @property
    def ordered(self) -> bool:
        return self.chooser.ordered

    def settled(self, data: Dataset, size: int, begun: Coreset | None = None) -> Reconstruction:
        if not is_open(self.chooser.kernel):
            return self
        # Some rows have the components that kernels are compared by.
        by_id = in_id_order(np.flatnonzero(data.weights > 0), data.ids)
        chooser, predicted, _ = self.judged_by(data[by_id[:: -(-len(by_id) // SOME_ROWS)]])
        return replace(self, kernel=chooser.settled(predicted, size, begun).kernel)

    def judged_by(
        self, data: Dataset, outer: Dataset | None = None
    ) -> tuple[BilevelSelector, Dataset, Dataset | None]:
        centre, axes = principal_axes(data.x, data.weights, self.components)
        judge = None if outer is None else _with_targets(outer, centre, axes)
        return self.chooser, _with_targets(data, centre, axes), judge

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
        start = as_start(initial, data, len(data))
        begun: Coreset | Sequence[int] = start.points
        if start.coreset is not None:
            # Its fingerprint is that of the data itself, without the targets made here.
            begun = start.coreset.annotated({"fingerprint": None})
        context = context or Context()
        clock = Clock(context.runtime.max_seconds)
        with clock.running():
            count = as_size(size, int((data.weights > 0).sum()))
            known = self.settled(data, count, start.coreset)
            chooser, predicted, judge = known.judged_by(data, outer)
        coreset = chooser.select(
            predicted,
            size,
            outer=judge,
            initial=begun,
            rng=rng,
            context=context.within(clock),
        )
        story = {"method": self.name, "fingerprint": data.fingerprint()}
        assert predicted.y is not None
        return coreset.annotated(story, components=predicted.y.shape[1])


def _with_targets(part: Dataset, centre: Array, axes: Array) -> Dataset:
    """The rows with their own components as what is to be predicted."""
    targets = (part.x.reshape(len(part), -1) - centre) @ axes
    return Dataset(part.x, targets, part.weight, part.ids)


def _moment(rows: Array) -> Array:
    """rowsᵀ rows, some rows at a time."""
    step = height(rows.shape[1] ** 2)
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for top in range(0, len(rows), step):
        checkpoint(top / len(rows))
        part = rows[top : top + step]
        total += part.T @ part
    return total


def principal_axes(x: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """(mean, the first ``count`` axes with variance) of weighted rows; by the smaller of the two
    matrices that have them."""
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    units = summable(weights)
    share = units / units.sum()
    centre = share @ rows
    scaled = np.sqrt(share)[:, None] * (rows - centre)
    few = len(rows) < rows.shape[1]
    values, vectors = np.linalg.eigh(_moment(scaled.T if few else scaled))
    order = [k for k in np.argsort(values)[::-1][:count] if values[k] > RANK_TOLERANCE * values[-1]]
    if not order:  # rows are all alike
        return centre, np.eye(rows.shape[1])[:, :1]
    axes = scaled.T @ vectors[:, order] / np.sqrt(values[order]) if few else vectors[:, order]
    return centre, axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(len(order))])
