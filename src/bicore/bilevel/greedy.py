"""Matching pursuit: take the point with the best score, correct, repeat. What is selected so far is
whole at every moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.engines.dense_ridge import ExplicitRidge
from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.engines.recorded_softmax import SoftmaxResident
from bicore.bilevel.engines.ridge import RidgeForward
from bicore.bilevel.quotas import Quotas
from bicore.bilevel.solvers.weights import WeightOptimiser
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import NumericalError
from bicore.picking import TIE, lowest, step_rng
from bicore.runtime import Clock, ProgressLine

#: Points chosen on a GPU before their numbers are read back: time limits and interrupts are heard
#: that often.
TOGETHER = 16
#: Points taken together come from this many times as many of the best scores, and are at most one
#: of so many of the coreset.
POOL = 4
GROWTH = 10
#: Steps before one is recorded as a graph.
WARM_UP = 3
#: Points whose fits are watched, because fits of the first few change the most.
WATCHED = 16


class Forward(Protocol):
    """What the greedy loop asks of an engine."""

    @property
    def objective(self) -> float: ...

    @property
    def indices(self) -> list[int]: ...

    def add(self, k: int, weight: float = 1.0) -> None: ...

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None: ...

    def scores(self, columns: Tensor | None = None) -> Tensor: ...

    def first_order(self, columns: Tensor | None = None) -> Tensor: ...

    def losses(self) -> Tensor: ...


@dataclass(frozen=True)
class Plan:
    """How a pursuit chooses. ``optimiser`` corrects the weights after every point; None keeps them
    at 1.

    ``reference`` holds each point's loss under the model of all data, for the reducible rule.
    """

    size: int
    seed: int
    rule: str = "gradient"
    first: str = "best"
    candidates: int | None = None
    optimiser: WeightOptimiser | None = None
    reference: Tensor | None = None
    together: int = 1  # points taken between two looks at the scores
    quotas: Quotas | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a pursuit found."""

    indices: Array
    weights: Array
    objectives: Array
    status: str
    info: dict[str, Any] = field(default_factory=dict)

    def reweighted(
        self, state: ImplicitForward, optimiser: WeightOptimiser, clock: Clock
    ) -> Outcome:
        """The same points with weights optimised once; those whose weight is zero leave."""
        if self.status.startswith("interrupted"):
            return self
        try:
            state.extend(self.indices.tolist(), self.weights.tolist())
            optimiser.optimise(state, final=True, clock=clock)
        except KeyboardInterrupt:
            return replace(
                self,
                status=(
                    "interrupted while the weights were optimised: all points, with unit weights"
                ),
            )
        weights = state.weights.double().cpu().numpy()
        kept = weights > 0
        status = self.status
        if not kept.all() and status == "complete":
            status = f"{kept.sum()} of {len(kept)} points: the learnt weight of the others is zero"
        objectives = np.append(self.objectives[: kept.sum() - 1], state.objective)
        return replace(
            self,
            indices=self.indices[kept],
            weights=weights[kept],
            objectives=objectives,
            status=status,
        )


class _Turn:
    """Choosing a point and taking it, on the device; recorded as a CUDA graph where the step is
    always the same."""

    def __init__(
        self,
        engine: RidgeForward | SoftmaxResident,
        scores: Callable[[Tensor | None], Tensor],
        closed: Tensor,
        ranks: Tensor,
    ) -> None:
        self.engine = engine
        self.scores = scores
        self.closed = closed
        self.ranks = ranks
        self.fine = torch.ones((), dtype=torch.bool, device=closed.device)
        self.graph: Any = None
        self.turns = 0

    def __call__(self) -> None:
        recordable = (
            isinstance(self.engine, SoftmaxResident)
            and self.closed.is_cuda
            and not self.engine.patient
        )
        if not recordable:
            self._choose()
        elif self.graph is not None:
            self.graph.replay()
        elif (
            self.turns < WARM_UP
        ):  # libraries set themselves up at their first calls, which a graph must not contain
            self._aside()
            self.turns += 1
        else:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._choose()
            self.graph.replay()

    def _aside(self) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._choose()
        torch.cuda.current_stream().wait_stream(stream)

    def _choose(self) -> None:
        scores = self.scores(None).double().masked_fill(self.closed, torch.inf)
        best = scores.min()
        self.fine.logical_and_(torch.isfinite(best))
        tied = scores <= best + TIE * best.abs()
        self.take(torch.where(tied, self.ranks, len(self.ranks)).argmin().view(1))

    def take(self, k: Tensor) -> None:
        self.engine.advance(k)
        self.closed.index_fill_(0, k, True)

    def check(self) -> None:
        if not self.fine:
            raise NumericalError(
                "a selection score is not finite; use float64, a larger inner_reg, or scale x."
            )


class Pursuit:
    """One run over the data; ``engine`` holds the coreset as it grows."""

    def __init__(self, engine: Forward, plan: Plan, data: Dataset) -> None:
        self.engine = engine
        self.plan = plan
        self.ids = data.ids
        self.open = data.weights > 0
        self.objectives: list[float] = []
        self.indices = np.empty(0, dtype=np.int64)
        self.weights = np.empty(0)
        self.info: dict[str, Any] = {"empty_objective": engine.objective}

    def run(
        self,
        points: list[int],
        weights: list[float],
        known: Coreset | None,
        clock: Clock,
        line: ProgressLine,
    ) -> Outcome:
        """Take the given points, then grow to the planned size, until the time is over or the user
        interrupts."""
        try:
            self._start(points, weights, known)
            status = self._grow(clock, line)
            if self.plan.optimiser is not None:
                status = self._polish(status, clock)
        except KeyboardInterrupt:
            if not self.objectives:
                raise
            status = f"interrupted after {len(self.objectives)} of {self.plan.size} points"
        finally:
            line.close()
        if isinstance(self.engine, ImplicitForward):
            self.info["effort"] = self.engine.effort.told()
        return Outcome(self.indices, self.weights, np.array(self.objectives), status, self.info)

    def _start(self, points: list[int], weights: list[float], known: Coreset | None) -> None:
        """Take the given points; a coreset of this very problem brings its objectives along and is
        taken at once."""
        if self.plan.optimiser is None:
            weights = [1.0] * len(points)
        self.open[points] = False
        if points and known is not None and len(known.objectives) == len(points):
            self.engine.extend(points, weights)
            self.objectives = known.objectives.tolist()[:-1]
            self._commit()
            return
        for k, weight in zip(points, weights, strict=True):
            self.engine.add(k, weight)
            self._commit()

    def _grow(self, clock: Clock, line: ProgressLine) -> str:
        engine = self.engine
        alone = (
            self.plan.candidates is None and self.plan.together == 1 and self.plan.quotas is None
        )
        if isinstance(engine, (RidgeForward, SoftmaxResident)) and engine.on_device and alone:
            status = self._grow_on_device(engine, clock, line)
            if status is not None:
                return status
        while len(self.engine.indices) < self.plan.size:
            count = len(self.objectives)
            if clock.over and count:
                return f"stopped by max_seconds after {count} of {self.plan.size} points"
            if not self.open.any():
                return (
                    f"{count} of {self.plan.size} points: the learnt weight of the others is zero"
                )
            if not self._allowed().any():
                return f"{count} of {self.plan.size} points: the quotas allow no more"
            self._take(self._choose(self._together()))
            self._correct(clock)
            self._commit()
            line.update(len(self.engine.indices), self.engine.objective)
        return "complete"

    def _grow_on_device(
        self, engine: RidgeForward | SoftmaxResident, clock: Clock, line: ProgressLine
    ) -> str | None:
        """The same, choosing on the GPU: the numbers come back every few points, not after each.
        None: a general engine goes on."""
        turn = self._turn(engine)
        while len(engine.indices) < self.plan.size:
            count = len(self.objectives)
            if clock.over and count:
                return f"stopped by max_seconds after {count} of {self.plan.size} points"
            if count == 0 and self.plan.first == "random":
                turn.take(torch.tensor(self._choose(), device=engine.device))
            else:
                for _ in range(1 if count == 0 else min(TOGETHER, self.plan.size - count)):
                    turn()
            objectives = engine.settle()
            # what is stuck is done again
            if not (isinstance(engine, SoftmaxResident) and engine.stuck):
                turn.check()
            self.objectives += objectives
            self.indices, self.weights = np.array(engine.indices), np.ones(len(self.objectives))
            for done, objective in enumerate(objectives, count + 1):
                line.update(done, objective)
            if isinstance(engine, SoftmaxResident):
                if engine.stuck:
                    if not engine.recover():
                        self.open[engine.indices] = False
                        self.engine = engine.general()
                        return None
                    turn = self._turn(engine)
                else:
                    engine.patient = len(engine.indices) < WATCHED
        return "complete"

    def _turn(self, engine: RidgeForward | SoftmaxResident) -> _Turn:
        closed = ~self.open
        closed[engine.indices] = True
        ranks = torch.from_numpy(np.argsort(np.argsort(self.ids, kind="stable")))
        return _Turn(
            engine,
            self._device_scores,
            torch.from_numpy(closed).to(engine.device),
            ranks.to(engine.device),
        )

    def _allowed(self) -> Array:
        """Points that may be taken now."""
        quotas = self.plan.quotas
        return self.open if quotas is None else quotas.allowed(self.engine.indices, self.open)

    def _together(self) -> int:
        """Points to take now: never more than a share of those there are, because early scores
        change the most."""
        return min(self.plan.together, max(1, len(self.engine.indices) // GROWTH))

    def _take(self, points: list[int]) -> None:
        """Several points are fitted together where the engine can."""
        self.open[points] = False
        if len(points) > 1 and isinstance(self.engine, (ImplicitForward, RidgeForward)):
            self.engine.extend(points, [1.0] * len(points))
            return
        for k in points:
            self.engine.add(k)

    def _choose(self, batch: int = 1) -> list[int]:
        """The lowest scores among all open points, or among a random sample of them; the first may
        be drawn."""
        count = min(batch, self.plan.size - len(self.engine.indices))
        step = len(self.engine.indices)
        places = np.flatnonzero(self._allowed())
        if step == 0 and self.plan.first == "random":
            return [int(step_rng(self.plan.seed, 0).choice(places))]
        wanted = self.plan.candidates
        if wanted is not None and wanted < len(places):
            places = np.sort(step_rng(self.plan.seed, step).choice(places, wanted, replace=False))
            scores = self._scores(torch.from_numpy(places))
        else:
            scores = self._scores(None)[places]
        if batch == 1:
            return [int(places[lowest(scores, self.ids[places])])]
        if not np.isfinite(scores).all():
            raise NumericalError(
                "a selection score is not finite; use float64, a larger inner_reg, or scale x."
            )
        order = places[np.lexsort((self.ids[places], scores))]
        pool = order[: POOL * batch]
        if (
            not isinstance(self.engine, RidgeForward)
            or self.plan.rule not in ("gradient", "gain")
            or len(pool) <= count
        ):
            return [int(place) for place in order[:count]]
        device = self.engine.device
        ranks = torch.from_numpy(np.argsort(np.argsort(self.ids[pool], kind="stable"))).to(device)
        return self.engine.within(
            torch.from_numpy(pool).to(device), count, self.plan.rule == "gain", ranks
        )

    def _scores(self, columns: Tensor | None) -> Array:
        scores: Array = self._device_scores(columns).double().cpu().numpy()
        return scores

    def _device_scores(self, columns: Tensor | None) -> Tensor:
        """The rule's score of every point (or of ``columns``) where the engine computes; the lowest
        is taken."""
        if self.plan.rule == "gain":
            assert isinstance(self.engine, (RidgeForward, ExplicitRidge))
            return -self.engine.gains(columns)
        if self.plan.rule == "first-order":
            return self.engine.first_order(columns)
        if self.plan.rule == "reducible":
            assert self.plan.reference is not None
            reducible = self.plan.reference - self.engine.losses()
            return reducible if columns is None else reducible[columns]
        return self.engine.scores(columns)

    def _polish(self, status: str, clock: Clock) -> str:
        """The longer search for weights when the support is complete: growth itself never depends
        on the size asked for."""
        before = len(self.indices)
        self._correct(clock, final=True)
        self._commit()
        lost = before - len(self.indices)
        return (
            f"{before - lost} of {self.plan.size} points: the learnt weight of the others is zero"
            if lost
            else status
        )

    def _correct(self, clock: Clock, final: bool = False) -> None:
        """Optimise the weights; a point whose weight reaches zero leaves for good."""
        if self.plan.optimiser is None:
            return
        assert isinstance(self.engine, ImplicitForward)
        self.plan.optimiser.optimise(self.engine, final=final, clock=clock)
        positive = (self.engine.weights > 0).cpu().numpy()
        if not positive.all():
            self.engine.keep(np.flatnonzero(positive).tolist())

    def _commit(self) -> None:
        """Note the coreset as it stands: an interrupt in the middle of the next step falls back to
        this."""
        before = self.objectives[: len(self.engine.indices) - 1]
        # points taken together have the objective of all of them
        together = len(self.engine.indices) - len(before)
        objectives = before + [self.engine.objective] * together
        weights = np.ones(len(objectives))
        if self.plan.optimiser is not None and isinstance(self.engine, ImplicitForward):
            weights = self.engine.weights.double().cpu().numpy()
        self.indices = np.array(self.engine.indices)
        self.weights = weights
        self.objectives = objectives
