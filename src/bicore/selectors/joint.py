"""One coreset for several models: the objectives of several bilevel problems, added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from bicore.bilevel.greedy import Forward, Pursuit
from bicore.bilevel.strategies.base import as_strategy
from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.errors import InputError
from bicore.picking import as_seed, as_size
from bicore.picking import as_start as as_initial
from bicore.picking import as_start as check_origin
from bicore.runtime import Clock, Context, ProgressLine, parse_bytes
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector


@dataclass(eq=False)
class JointForward:
    """Engines of several problems over the same points, side by side; scores and objectives are
    weighted sums."""

    engines: Sequence[Forward]
    shares: Sequence[float]

    @property
    def indices(self) -> list[int]:
        return self.engines[0].indices

    @property
    def objective(self) -> float:
        return sum(
            share * engine.objective
            for share, engine in zip(self.shares, self.engines, strict=True)
        )

    def add(self, k: int, weight: float = 1.0) -> None:
        for engine in self.engines:
            engine.add(k, weight)

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        for engine in self.engines:
            engine.extend(points, weights)

    def scores(self, columns: Tensor | None = None) -> Tensor:
        return self._sum([engine.scores(columns) for engine in self.engines])

    def first_order(self, columns: Tensor | None = None) -> Tensor:
        return self._sum([engine.first_order(columns) for engine in self.engines])

    def losses(self) -> Tensor:
        return self._sum([engine.losses() for engine in self.engines])

    def _sum(self, values: list[Tensor]) -> Tensor:
        total = self.shares[0] * values[0]
        for share, value in zip(self.shares[1:], values[1:], strict=True):
            total = total + share * value
        return total


def _is_bilevel(value: object) -> bool:
    return isinstance(value, BilevelSelector)


@dataclass(frozen=True)
class JointSelector(Selector):
    """Chooses the points that serve several models at once, such as networks of different
    architectures.

    Parameters
    ----------
    selectors : one :class:`BilevelSelector` a model: its kernel, loss and regulariser. Weights are
        binary, the strategy greedy, the
        rule the gradient; ``quotas``, ``candidates`` and ``first`` of the first hold for all.
    shares : how much each model counts, default: all the same. Objectives are divided by that of
        the model of no points first, so
        that losses of different kinds and scales can be added.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> models = [BilevelSelector(kernel=kernel, inner_reg=0.1) for kernel in ("rbf", "ntk")]
    >>> JointSelector(models).select(Dataset(x, x[:, 0] > 5), 3).indices.tolist()
    [11, 3, 6]
    """

    selectors: Sequence[BilevelSelector]
    shares: Sequence[float] | None = None

    needs_labels = True
    name = "joint bilevel"

    def __post_init__(self) -> None:
        if isinstance(self.selectors, Sequence):
            object.__setattr__(self, "selectors", tuple(self.selectors))
        if (
            not isinstance(self.selectors, tuple)
            or not self.selectors
            or not all(map(_is_bilevel, self.selectors))
        ):
            raise InputError(
                f"selectors={self.selectors!r} is not a sequence of BilevelSelector; give one for "
                "each model."
            )
        shares = [1.0] * len(self.selectors) if self.shares is None else list(self.shares)
        if (
            len(shares) != len(self.selectors)
            or not all(0 <= share < float("inf") for share in shares)
            or not sum(shares) > 0
        ):
            raise InputError(
                f"shares={self.shares!r}; give {len(self.selectors)} numbers >= 0, not all of them "
                "zero."
            )
        for number, one in enumerate(self.selectors):
            strategy = as_strategy(one.strategy).name
            if one.weights != "binary" or one.rule != "gradient" or strategy != "greedy":
                raise InputError(
                    f"selectors[{number}] has weights={one.weights!r}, rule={one.rule!r} and "
                    f"strategy={strategy!r}; a joint "
                    "coreset needs 'binary', 'gradient' and 'greedy'."
                )

    def for_classes(self, classes: Sequence[object]) -> JointSelector:
        return replace(self, selectors=[one.for_classes(classes) for one in self.selectors])

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
        if data.y is None:
            raise InputError(
                f"{self.name} needs labels or targets, and data has none; give y, or a method "
                "without labels."
            )
        if size == "auto":
            raise InputError(
                "size='auto' is for one model; give a joint coreset a count or a fraction."
            )
        check_origin(initial, data)
        runtime = (context or Context()).runtime
        if runtime.memory is not None:  # one limit for all of them together
            runtime = replace(
                runtime, memory=(parse_bytes(runtime.memory) or 0) // len(self.selectors)
            )
        clock = Clock(runtime.max_seconds)
        seed = as_seed(rng)
        count = as_size(size, int((data.weights > 0).sum()))
        points, given = as_initial(initial, len(data), count)
        shares = [1.0] * len(self.selectors) if self.shares is None else list(self.shares)
        with runtime.applied(rows=len(data) + (0 if outer is None else len(outer))):
            problems = [one.prepare(data, outer, count, seed, runtime) for one in self.selectors]
            engines = [
                one.engine(prepared, count)
                for one, prepared in zip(self.selectors, problems, strict=True)
            ]
            empty = [engine.objective for engine in engines]
            scaled = [
                share / sum(shares) / (start or 1.0)
                for share, start in zip(shares, empty, strict=True)
            ]
            plan = self.selectors[0].plan(count, seed, problems[0].targets)
            line = ProgressLine(runtime, clock, count, "selecting")
            outcome = Pursuit(JointForward(engines, scaled), plan, data).run(
                points, given, None, clock, line
            )
            info = (
                problems[0].info(self.selectors[0], data, seed, clock)
                | outcome.info
                | {"method": self.name}
            )
            for single in (
                "kernel",
                "kernel_parameters",
                "loss",
                "outer_loss",
                "inner_reg",
                "inner_reg_form",
                "inner_reg_auto",
            ):
                info.pop(single)  # each model has its own, below
            info["models"] = [
                {
                    "kernel": prepared.kernel.name,
                    "loss": prepared.problem.inner_loss.name,
                    "inner_reg": prepared.problem.regulariser.value,
                    "share": share / sum(shares),
                    "objective": engine.objective,
                    "empty_objective": start,
                }
                for prepared, share, engine, start in zip(
                    problems, shares, engines, empty, strict=True
                )
            ]
            return Coreset(
                outcome.indices,
                outcome.weights,
                data.ids[outcome.indices],
                outcome.objectives,
                outcome.status,
                info,
            )
