"""Several problems over the same points: one coreset, objectives added up."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bicore.bilevel.contract import Engine, Quantity


class JointEngine(Engine):
    """Engines side by side; what they compute is added up by shares."""

    def __init__(self, engines: Sequence[Engine], shares: Sequence[float]) -> None:
        self.engines = list(engines)
        self.shares = list(shares)
        self.problem = engines[0].problem
        self.offers = frozenset.intersection(*(engine.offers for engine in engines))
        self.cheap_steps = all(engine.cheap_steps for engine in engines)

    @property
    def chosen(self) -> list[int]:  # type: ignore[override]
        return self.engines[0].chosen

    @property
    def objective(self) -> float:  # type: ignore[override]
        parts = zip(self.shares, self.engines, strict=True)
        return sum(share * engine.objective for share, engine in parts)

    @property
    def weights(self) -> Tensor:
        return self.engines[0].weights

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        for engine in self.engines:
            engine.extend(points, weights)

    def drop(self, places: Sequence[int]) -> None:
        for engine in self.engines:
            engine.drop(places)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        total = self.shares[0] * self.engines[0].quantity(what, columns)
        for share, engine in zip(self.shares[1:], self.engines[1:], strict=True):
            total = total + share * engine.quantity(what, columns)
        return total
