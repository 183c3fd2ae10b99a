"""One coreset for several models: the objectives of several bilevel problems, added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicore.bilevel.engines import JointEngine, choose
from bicore.bilevel.greedy import Run
from bicore.bilevel.kernel_choice import notes_of, trials_of
from bicore.bilevel.prepare import Prepared, prepare
from bicore.bilevel.rules import Gradient
from bicore.bilevel.solvers.weights import WeightMode
from bicore.bilevel.verification import Verification, verify_objective
from bicore.coreset import Coreset, Provenance, labels_in
from bicore.data import Dataset
from bicore.errors import InputError
from bicore.picking import as_seed, as_size, as_start
from bicore.runtime import Clock, Context, ProgressLine, Runtime, parse_bytes
from bicore.selectors.base import Selector, need_labels
from bicore.selectors.bilevel import BilevelSelector


@dataclass(frozen=True)
class JointSelector(Selector):
    """Chooses the points that serve several models at once, such as different architectures.

    Parameters
    ----------
    selectors : sequence of BilevelSelector
        One a model: its kernel, loss and regulariser. Weights are binary, the strategy greedy, the
        rule the gradient; ``quotas``, ``candidates`` and ``first`` of the first hold for all.
    shares : sequence of float, optional
        How much each model counts, by default all the same. Objectives are divided by that of the
        model of no points first, so that losses of different kinds and scales can be added.

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
        given = self.selectors
        several = isinstance(given, Sequence) and bool(given)
        if not several or not all(isinstance(one, BilevelSelector) for one in given):
            raise InputError(
                f"selectors={given!r} is not a sequence of BilevelSelector; give one for each "
                "model."
            )
        object.__setattr__(self, "selectors", tuple(given))
        shares = self._shares()
        sound = all(0 <= share < float("inf") for share in shares) and sum(shares) > 0
        if len(shares) != len(self.selectors) or not sound:
            raise InputError(
                f"shares={self.shares!r}; give {len(self.selectors)} numbers >= 0, not all of them "
                "zero."
            )
        for number, one in enumerate(self.selectors):
            plain = one.weights is WeightMode.BINARY and one.rule == Gradient()
            if not plain or one.strategy.refines or one.strategy.together > 1:
                raise InputError(
                    f"selectors[{number}] has weights={one.weights.value!r}, "
                    f"rule={one.rule.name!r} and strategy={one.strategy.name!r}; a joint coreset "
                    "needs 'binary', 'gradient' and 'greedy'."
                )

    def _shares(self) -> list[float]:
        return [1.0] * len(self.selectors) if self.shares is None else list(self.shares)

    def for_classes(self, classes: Sequence[object]) -> JointSelector:
        return replace(self, selectors=[one.for_classes(classes) for one in self.selectors])

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
        need_labels(self, data)
        runtime = self._divided((context or Context()).runtime)
        clock = Clock(runtime.max_seconds)
        seed = as_seed(rng)
        count = as_size(size, int((data.weights > 0).sum()))
        start = as_start(initial, data, count)
        line = ProgressLine(runtime.progress, clock, count, "selecting")
        with runtime.applied(), clock.running(), line:
            parts = [
                prepare(one.proxy, data, outer, one.room(count, len(data)), seed, runtime)
                for one in self.settled(data, count).selectors
            ]
            engine, models = self._engine(parts, count)
            plan = self.selectors[0].plan(parts[0], count, seed)
            preparation = clock.seconds
            run = Run(engine, Gradient(), plan, clock, line)
            ending = run.complete(start)
            checked = Verification(engine.objective)
            if run.objectives:
                checked = self._verify(parts, engine, run, models)
            provenance = Provenance(
                method=self.name,
                rows=len(data),
                seed=seed,
                seconds=clock.seconds,
                preparation_seconds=preparation,
                fingerprint=data.fingerprint(),
                empty_objective=run.empty_objective,
                task=parts[0].targets.task,
                classes=labels_in(parts[0].targets.classes),
                notes=tuple(note for part in parts for note in notes_of(part.kernel)),
            )
            coreset = Coreset(
                run.indices,
                run.weights,
                data.ids[run.indices],
                np.array(run.objectives),
                ending.status,
                ending.message,
                provenance,
                self.selectors[0].details(parts[0]) | {"models": models},
            )
            return checked.apply(coreset)

    def settled(self, data: Dataset, size: int, begun: Coreset | None = None) -> JointSelector:
        return replace(self, selectors=[one.settled(data, size) for one in self.selectors])

    def _verify(
        self, parts: list[Prepared], engine: JointEngine, run: Run, models: list[dict[str, Any]]
    ) -> Verification:
        """Verify the objective of every model; the sum is right if all of them are."""
        total, notes = 0.0, []
        for number, (part, one) in enumerate(zip(parts, engine.engines, strict=True)):
            surplus = range(len(run.indices), len(one.chosen))
            if surplus:  # an interrupt came when some models had the next point and others had not
                one.drop(surplus)
            checked = verify_objective(part, run.indices, run.weights, one.objective)
            models[number]["objective"] = checked.objective
            total += engine.shares[number] * checked.objective
            if checked.note:
                notes.append(f"selectors[{number}]: {checked.note}")
        return Verification(total, "; ".join(notes))

    def _divided(self, runtime: Runtime) -> Runtime:
        """One memory limit for all models together."""
        if runtime.memory is None:
            return runtime
        return replace(runtime, memory=(parse_bytes(runtime.memory) or 0) // len(self.selectors))

    def _engine(
        self, parts: list[Prepared], count: int
    ) -> tuple[JointEngine, list[dict[str, Any]]]:
        """Engines of all models side by side, and what is to be told of each."""
        shares = self._shares()
        total = sum(shares)
        engines = []
        scaled = []
        models = []
        for one, part, share in zip(self.selectors, parts, shares, strict=True):
            demand = replace(one.demand(count), solvers=part.solvers)
            engine = choose(part.problem, demand)
            engines.append(engine)
            scaled.append(share / total / (engine.objective or 1.0))
            models.append(
                {
                    "kernel": part.kernel.name,
                    "loss": part.problem.inner_loss.name,
                    "inner_reg": part.regulariser.value,
                    "share": share / total,
                    "empty_objective": engine.objective,
                }
                | trials_of(part.kernel)
            )
        return JointEngine(engines, scaled), models
