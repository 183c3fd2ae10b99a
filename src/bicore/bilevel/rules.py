"""Rules: scores of points by a quantity that engines compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from bicore.bilevel.contract import Engine, Quantity


class Rule:
    """Scores points by a quantity of the engine; the lowest score is taken."""

    name: ClassVar[str]
    #: Name of selection by this rule in tables.
    method: ClassVar[str] = "bilevel"
    #: Quantity that it reads from an engine.
    quantity: ClassVar[Quantity]
    #: Whether it compares with a model of all data.
    compares: ClassVar[bool] = False
    #: Whether it is to be replaced when the data are known.
    unset: ClassVar[bool] = False

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor:
        """Return the scores of all training points, or of ``columns``: the quantity by default."""
        return engine.quantity(self.quantity, columns)

    def with_reference(self, losses: Callable[[], Tensor]) -> Rule:
        """Return the rule with the losses of the model of all data."""
        return self


@dataclass(frozen=True)
class Gradient(Rule):
    """Score points by the implicit gradient ∂G/∂w_k: the paper's rule, for any loss."""

    name = "gradient"
    quantity = Quantity.GRADIENT


@dataclass(frozen=True)
class UnsetRule(Gradient):
    """A placeholder, replaced when the data are known; until then the gradient."""

    name = "auto"
    unset = True


@dataclass(frozen=True)
class Gain(Rule):
    """Score points by the exact decrease of the objective, for the squared error and uniform
    weights."""

    name = "gain"
    quantity = Quantity.GAIN

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor:
        return -engine.quantity(self.quantity, columns)


@dataclass(frozen=True)
class FirstOrder(Rule):
    """Score points by the gradient with the identity instead of the inverse Hessian.

    GLISTER (Killamsetty et al. 2021) scores points like this while it trains a network.
    """

    name = "first-order"
    method = "glister"
    quantity = Quantity.FIRST_ORDER


@dataclass(frozen=True)
class ReducibleLoss(Rule):
    """Score points by their loss minus their loss under the model of all data.

    This is CSReL (Tong et al. 2025): points that no model can learn are not taken.
    """

    reference: Tensor | None = field(default=None, compare=False, repr=False)

    name = "reducible"
    method = "reducible loss"
    quantity = Quantity.LOSS
    compares = True

    def with_reference(self, losses: Callable[[], Tensor]) -> ReducibleLoss:
        return ReducibleLoss(losses())

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor:
        assert self.reference is not None, "a rule is bound to its problem before it scores"
        reference = self.reference if columns is None else self.reference[columns]
        return reference - engine.quantity(self.quantity, columns)


#: Rules by name.
RULES: dict[str, Callable[[], Rule]] = {
    rule.name: rule for rule in (UnsetRule, Gradient, Gain, FirstOrder, ReducibleLoss)
}
