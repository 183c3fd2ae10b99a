"""Without labels: the points from which a kernel model predicts the features of all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.picking import as_start as check_origin
from bicore.runtime import Context
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector

#: Directions whose variance is below this share of the largest are none.
RANK_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Reconstruction(Selector):
    """Bilevel selection whose targets are the data's own leading principal components; no labels
    are looked at.

    Parameters
    ----------
    kernel, inner_reg, weights, candidates, strategy : as :class:`BilevelSelector` has them; the
    loss is the squared error. components : how many; each keeps the variance it has in the data, so
    that the loss is variance left unexplained.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(40, 3)) * [5, 1, 0.1]
    >>> Reconstruction(kernel="rbf", inner_reg=0.1).select(Dataset(x), 4).info["components"]
    3
    """

    kernel: Any = "ntk"
    inner_reg: Any = "auto"
    weights: str = "binary"
    candidates: int | None = None
    strategy: Any = "greedy"
    components: int = 32

    name = "reconstruction"

    def __post_init__(self) -> None:
        if not isinstance(self.components, Integral) or self.components < 1:
            raise InputError(
                f"components={self.components!r} is not a whole number >= 1; give how many are "
                "predicted."
            )
        self._selector()

    def _selector(self) -> BilevelSelector:
        return BilevelSelector(
            kernel=self.kernel,
            inner_reg=self.inner_reg,
            weights=self.weights,
            candidates=self.candidates,
            strategy=self.strategy,
            task="regression",
        )

    @property
    def ordered(self) -> bool:
        return self._selector().ordered

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
        check_origin(initial, data)
        # whose fingerprint is that of the data itself, without the targets made here
        if isinstance(initial, Coreset):
            initial = replace(
                initial,
                info={name: value for name, value in initial.info.items() if name != "fingerprint"},
            )
        centre, axes = principal_axes(data.x, data.weights, self.components)

        def with_targets(part: Dataset) -> Dataset:
            targets = (part.x.reshape(len(part), -1) - centre) @ axes
            return Dataset(part.x, targets, part.weight, part.ids)

        judge = None if outer is None else with_targets(outer)
        coreset = self._selector().select(
            with_targets(data), size, outer=judge, initial=initial, rng=rng, context=context
        )
        told = {"method": self.name, "components": axes.shape[1], "fingerprint": data.fingerprint()}
        return replace(coreset, info={**coreset.info, **told})


def principal_axes(x: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """(mean, the first ``count`` axes with variance) of weighted rows; by the smaller of the two
    matrices that have them."""
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    share = weights / weights.sum()
    centre = share @ rows
    scaled = np.sqrt(share)[:, None] * (rows - centre)
    few = len(rows) < rows.shape[1]
    values, vectors = np.linalg.eigh(scaled @ scaled.T if few else scaled.T @ scaled)
    order = [k for k in np.argsort(values)[::-1][:count] if values[k] > RANK_TOLERANCE * values[-1]]
    if not order:  # rows are all alike
        return centre, np.eye(rows.shape[1])[:, :1]
    axes = scaled.T @ vectors[:, order] / np.sqrt(values[order]) if few else vectors[:, order]
    return centre, axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(len(order))])
