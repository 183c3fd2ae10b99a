"""Without labels: the points from which a kernel model predicts the features of all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.runtime import Context
from bicore.selection.base import Selector
from bicore.selection.bilevel import BilevelSelector


@dataclass(frozen=True)
class Reconstruction(Selector):
    """Bilevel selection whose targets are the data's own leading principal components; no labels are looked at.

    Parameters
    ----------
    selector : the bilevel selector that regresses them; its loss must be the squared error.
    components : how many; each keeps the variance it has in the data, so that the loss is variance left unexplained.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(40, 3)) * [5, 1, 0.1]
    >>> Reconstruction(BilevelSelector(kernel="rbf", inner_reg=0.1)).select(Dataset(x), 4).info["components"]
    3
    """

    selector: BilevelSelector = field(default_factory=lambda: BilevelSelector(task="regression"))
    components: int = 32

    name = "reconstruction"

    def __post_init__(self) -> None:
        if self.selector.loss != "squared" or self.selector.quotas is not None:
            raise InputError("reconstruction regresses features by the squared error and knows no classes; leave loss and quotas.")
        if self.components < 1:
            raise InputError(f"components={self.components} is below 1; give how many principal components are predicted.")

    @property
    def ordered(self) -> bool:
        return self.selector.ordered

    def select(
        self,
        data: Dataset,
        size: int | float | str,
        *,
        outer: Dataset | None = None,
        initial: Coreset | Sequence[int] = (),
        rng: int | np.random.Generator = 0,
        context: Context | None = None,
    ) -> Coreset:
        centre, axes = principal_axes(data.x, data.weights, self.components)

        def with_targets(part: Dataset) -> Dataset:
            targets = (part.x.reshape(len(part), -1) - centre) @ axes
            return Dataset(part.x, targets, part.weight, part.ids)

        judge = None if outer is None else with_targets(outer)
        coreset = self.selector.select(with_targets(data), size, outer=judge, initial=initial, rng=rng, context=context)
        info = {**coreset.info, "method": self.name, "components": axes.shape[1]}
        return Coreset(coreset.indices, coreset.weights, coreset.ids, coreset.objectives, coreset.status, info)


def principal_axes(x: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """(mean, the first ``count`` axes with variance) of weighted rows."""
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    share = weights / weights.sum()
    centre = share @ rows
    values, vectors = np.linalg.eigh((rows - centre).T @ (share[:, None] * (rows - centre)))
    order = [k for k in np.argsort(values)[::-1][:count] if values[k] > 1e-12 * values[-1]] or [0]  # rows may be all alike
    axes = vectors[:, order]
    return centre, axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(len(order))])
