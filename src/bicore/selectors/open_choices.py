"""What a selector may leave to the data beside its kernel: the rule, the strategy, the targets.

What served best on many data sets (docs/choosing.md) is taken in their place, one by one, where it
goes with everything else that was asked for; otherwise the paper's own, which always does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bicore.bilevel.aims import Aims, Given, Smoothed
from bicore.bilevel.rules import Gain, Gradient, Rule
from bicore.bilevel.strategies.base import Greedy, Strategy
from bicore.bilevel.strategies.refining import Exchange

#: With more rows than this, default exchanges end after a few passes over them.
MANY, PASSES_OF_MANY = 20_000, 3
#: Rows times the square of the points chosen, with which the time of exchanges grows: beyond so
#: much, some minutes on one core, they are not made unasked. Greedy selection grows with one
#: power less.
MOST_WORK = 10**11
#: What is settled, in this order: a strategy must go with the targets, a rule with both.
NAMES = ("targets", "strategy", "rule")


@dataclass(frozen=True)
class Choices:
    """Three parts of a selector, each of which may be open."""

    targets: Aims
    strategy: Strategy
    rule: Rule

    @property
    def open(self) -> bool:
        """Whether any of them is."""
        return any(getattr(self, name).open for name in NAMES)

    def settled(self, wanted: Choices, allowed: Callable[[Choices], bool]) -> Choices:
        """Those that are open as ``wanted``, where that is ``allowed`` beside the others."""
        found = self
        for name in NAMES:
            if getattr(found, name).open:
                asked = replace(found, **{name: getattr(wanted, name)})
                plain = replace(found, **{name: getattr(PAPER, name)})
                found = asked if allowed(asked) else plain
        return found

    def plain(self) -> Choices:
        """Those that are open as the paper has them: nothing is held beside, and of the points
        nothing is lost when a memory shrinks."""
        return self.settled(PAPER, lambda _: True)


#: The paper's own.
PAPER = Choices(Given(), Greedy(), Gradient())


def best(classes: bool, rows: int, all_scored: bool) -> Choices:
    """What served best, for classes or targets, so many rows, and where every point is scored at
    every step, the first one too."""
    if not classes:
        return Choices(Smoothed(), Greedy(), Gain())
    passes = None if rows <= MANY else PASSES_OF_MANY
    strategy = Exchange(passes=passes, work=MOST_WORK) if all_scored else Greedy()
    # what a proxy says of a clear label would be less than the label
    return Choices(Smoothed(share=0.0), strategy, Gradient())
