"""Coresets by bilevel optimisation: greedy forward selection with the implicit gradient (algorithm
1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch

from bicore.bilevel.engines import dense_ridge as explicit
from bicore.bilevel.engines import recorded_softmax as resident
from bicore.bilevel.engines.dense_ridge import ExplicitRidge
from bicore.bilevel.engines.recorded_softmax import SoftmaxResident
from bicore.bilevel.engines.ridge import RidgeForward
from bicore.bilevel.greedy import Forward, Outcome, Plan, Pursuit
from bicore.bilevel.prepare import REFERENCE_POINTS, Prepared, prepare, squared, targets_of
from bicore.bilevel.problem import Constant, PerPoint
from bicore.bilevel.quotas import as_quotas
from bicore.bilevel.solvers.inner import InnerSolver
from bicore.bilevel.solvers.linear import LinearSolver
from bicore.bilevel.solvers.weights import ProjectedGradient, WeightOptimiser
from bicore.bilevel.strategies.base import Assembly, Strategy, as_strategy
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, Targets, as_features, as_weights
from bicore.errors import InputError, unknown_name
from bicore.picking import as_seed, as_size
from bicore.picking import as_start as as_initial
from bicore.picking import as_start as check_origin
from bicore.runtime import Clock, Context, ProgressLine, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.names import as_kernel, as_loss, as_regulariser
from bicore.selectors.quality_curve import QualityCurve, judged, quality_curve

RULES = ("gradient", "gain", "first-order", "reducible")


@dataclass(frozen=True)
class BilevelSelector(Selector):
    """Chooses the points on which a kernel model, fitted to them alone, predicts all the data best.

    Parameters
    ----------
    kernel : name, Kernel or callable k(a, b)
        The proxy for the model to be trained: "ntk" for networks on vectors, "cntk" for images,
        "rbf", "linear" for embeddings, "precomputed" when x is a Gram matrix.
    loss : name, Loss or function of (prediction, target)
        Of the inner problem, and of the outer one unless ``outer_loss`` is given.
    inner_reg : float, PerPoint(λ) or "auto"
        The regulariser ρ; see :mod:`bicore.bilevel.regularisation` for the automatic rule.
    weights : "binary", "learnt" or "final"
        Weights of 1; weights optimised after every point; or once, when all points are chosen.
    rule : "gradient", "gain", "first-order" or "reducible"
        Score by the implicit gradient; (squared error, binary weights) by the exact decrease of the
        objective; by the gradient with the identity in place of the inverse Hessian (GLISTER,
        Killamsetty et al. 2021); or take the point whose loss under the coreset's model exceeds
        most its loss under the model of all data (reducible loss, CSReL, Tong et al. 2025).
    candidates : None or int
        Score all points, or a random sample of this many at each step.
    strategy : "greedy", "batches", "exchange", "elimination", "simplex" or a Strategy
        One point at a time; several at a time; greedy and then exact exchanges; too many, of which
        the cheapest leave again; too many, of which weights under an L½ penalty leave some.
        Exchange and elimination are for the squared error; these two and the simplex need a
        constant regulariser.
    first : "best" or "random"
        Let the rule choose the first point, or draw it as the paper does.
    quotas : None, "balanced" (one of every class a round), or the most points of each class by its
    label tolerance : with ``size="auto"``: the smallest size whose loss on held-out points is
    within this share of the model's that is
        fitted on all points (:func:`bicore.selectors.quality_curve` shows the curve behind it).
    task : "auto", "classification" or "regression"
    classes : the set of classes, where ``data`` may lack some of them.
    inner, linear, optimiser : solvers; the defaults fit the loss.

    Examples
    --------
    >>> from bicore import BilevelSelector, Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> BilevelSelector(kernel="rbf", inner_reg=0.1).select(Dataset(x, x[:, 0] > 5), 2).indices.tolist()
    [1, 8]
    """

    kernel: Any = "ntk"
    loss: Any = "squared"
    outer_loss: Any = None
    inner_reg: Any = "auto"
    weights: str = "binary"
    rule: str = "gradient"
    candidates: int | None = None
    strategy: Any = "greedy"
    first: str = "best"
    quotas: Any = None
    tolerance: float = 0.02
    task: str = "auto"
    classes: Any = None
    inner: InnerSolver | None = None
    linear: LinearSolver | None = None
    optimiser: WeightOptimiser = field(default_factory=ProjectedGradient)

    needs_labels = True

    @property
    def ordered(self) -> bool:
        return as_strategy(self.strategy).ordered

    @property
    def name(self) -> str:
        return {"first-order": "glister", "reducible": "reducible loss"}.get(self.rule, "bilevel")

    def __post_init__(self) -> None:
        for name, options in (
            ("weights", ("binary", "learnt", "final")),
            ("rule", RULES),
            ("first", ("best", "random")),
        ):
            if getattr(self, name) not in options:
                raise unknown_name(name, getattr(self, name), options)
        if self.candidates is not None and (
            not isinstance(self.candidates, Integral) or self.candidates < 1
        ):
            raise InputError(
                f"candidates={self.candidates!r} is not a whole number >= 1; give one, or None for "
                "all points."
            )
        as_kernel(self.kernel), as_loss(self.loss), as_regulariser(self.inner_reg)
        if self.outer_loss is not None:
            as_loss(self.outer_loss, "outer_loss")
        if self.rule == "gain" and not (self._squared and self.weights != "learnt"):
            raise InputError(
                "rule='gain' is exact for the squared error with binary or final weights only; use "
                "rule='gradient'."
            )
        if not (isinstance(self.tolerance, (int, float)) and 0 <= self.tolerance < float("inf")):
            raise InputError(
                f"tolerance={self.tolerance!r} is not a share >= 0; 0.02 is two per cent of the "
                "full model's loss."
            )
        strategy = as_strategy(self.strategy)
        if strategy.exact and (
            not self._squared or self.weights == "learnt" or self.inner is not None
        ):
            raise InputError(
                f"strategy={strategy.name!r} is exact for the squared error with binary or final "
                "weights and the built-in solver "
                "only; use strategy='batches' or 'greedy'."
            )
        if strategy.refines and self.weights == "learnt":
            raise InputError(
                f"strategy={strategy.name!r} is for binary or final weights; use weights='final', "
                "or another strategy."
            )
        if self.quotas is not None and (strategy.refines or strategy.together > 1):
            raise InputError(
                f"quotas are kept point by point, and strategy={strategy.name!r} is not; use "
                "strategy='greedy'."
            )
        if strategy.refines and isinstance(self.inner_reg, PerPoint):
            raise InputError(
                f"strategy={strategy.name!r} needs a constant inner_reg; give a number or 'auto' "
                "in place of PerPoint."
            )
        if self.rule == "gain" and (isinstance(self.inner_reg, PerPoint) or self.inner is not None):
            raise InputError(
                "rule='gain' needs a constant inner_reg and the built-in solver; use "
                "rule='gradient' with PerPoint."
            )

    @property
    def _squared(self) -> bool:
        return squared(self)

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
        if size == "auto":
            return self._sized(data, outer, initial, rng, context)
        runtime = (context or Context()).runtime
        clock = Clock(runtime.max_seconds)
        seed = as_seed(rng)
        count = as_size(size, int((data.weights > 0).sum()))
        points, given = as_initial(initial, len(data), count)
        strategy = as_strategy(self.strategy)
        grown = strategy.grown(count, int((data.weights > 0).sum()))
        with runtime.applied(rows=len(data) + (0 if outer is None else len(outer))):
            prepared = self.prepare(data, outer, grown, seed, runtime)
            preparation = clock.seconds
            plan = replace(
                self.plan(grown, seed, prepared.targets),
                reference=self._reference(prepared, data, seed),
            )
            pursuit = Pursuit(self.engine(prepared, grown, fresh=not points), plan, data)
            line = ProgressLine(runtime, clock, grown, "selecting")
            configuration = prepared.configuration(self, outer)
            known = (
                initial
                if isinstance(initial, Coreset) and self._same(initial, configuration, data)
                else None
            )
            outcome = pursuit.run(points, given, known, clock, line)
            if strategy.refines:
                outcome = self._refined(
                    strategy, outcome, prepared, data, count, len(points), clock
                )
            if self.weights == "final":
                outcome = outcome.reweighted(
                    prepared.implicit(len(outcome.indices)), self.optimiser, clock
                )
            info = prepared.info(self, data, seed, clock) | outcome.info
            info |= {"preparation_seconds": preparation, "configuration": configuration}
            return Coreset(
                outcome.indices,
                outcome.weights,
                data.ids[outcome.indices],
                outcome.objectives,
                outcome.status,
                info,
            )

    def _sized(
        self,
        data: Dataset,
        outer: Dataset | None,
        initial: Coreset | Sequence[int],
        rng: int | np.random.Generator,
        context: Context | None,
    ) -> Coreset:
        """The size by a quality curve of this very selector, then a selection of that size from all
        of the data."""
        seed = as_seed(rng)
        context = context or Context()
        clock = Clock(context.runtime.max_seconds)
        curve = quality_curve(self, data, tolerance=self.tolerance, rng=seed, context=context)
        found = curve.smallest(self.tolerance)
        if found is None and "quotas" in curve.coreset.status:
            raise InputError(
                f"quotas={self.quotas!r} allow {len(curve.coreset)} points, and no size up to that "
                "is within "
                f"tolerance={self.tolerance:g}; raise the quotas or the tolerance, or give a size."
            )
        if found is None:  # the run was cut short: at its full length it meets any tolerance
            raise InputError(
                f"size='auto' was {curve.coreset.status} and saw no size within "
                f"tolerance={self.tolerance:g} so far; give it more "
                "time, a larger tolerance, or a size."
            )
        left = context.within(clock)
        coreset = self.select(
            data, max(found, len(initial)), outer=outer, initial=initial, rng=seed, context=left
        )
        told = {
            "tolerance": self.tolerance,
            "held_out": curve.held_out,
            "full_loss": curve.full,
            "empty_loss": curve.empty,
            "loss": float(curve.losses[np.searchsorted(curve.sizes, found)]),
        }
        return replace(coreset, info={**coreset.info, "auto_size": told})

    def nested(self) -> BilevelSelector:
        """The same selector point by point with weights of 1, whose prefixes are its answers for
        smaller sizes."""
        return replace(self, weights="binary", strategy="greedy")

    def judged(
        self, part: Dataset, judge: Dataset, coreset: Coreset, seed: int, context: Context | None
    ) -> QualityCurve:
        """The loss on ``judge`` along a run on ``part``, by the regulariser the run had."""
        runtime = (context or Context()).runtime
        value = float(coreset.info["inner_reg"])
        fixed = PerPoint(value) if coreset.info["inner_reg_form"] == "per point" else value
        plain = replace(self.nested(), inner_reg=fixed, classes=coreset.info["classes"])
        with runtime.applied(rows=len(part) + len(judge)):
            prepared = plain.prepare(part, judge, len(part), seed, runtime)
            engine, whole = (plain.engine(prepared, len(part)) for _ in range(2))
            return judged(
                engine, whole, np.flatnonzero(part.weights > 0).tolist(), len(judge), coreset
            )

    def _refined(
        self,
        strategy: Strategy,
        outcome: Outcome,
        prepared: Prepared,
        data: Dataset,
        size: int,
        fixed: int,
        clock: Clock,
    ) -> Outcome:
        """What a strategy makes of the points taken, put in greedy order again."""
        if outcome.status != "complete" and outcome.status.split()[0] in ("interrupted", "stopped"):
            words = (
                "interrupted"
                if outcome.status.startswith("interrupted")
                else "stopped by max_seconds"
            )
            taken = min(len(outcome.indices), size)
            how = (
                f"after {taken} of {size} points"
                if taken < size
                else "before the points were refined: all points, less refined"
            )
            return replace(
                outcome,
                indices=outcome.indices[:size],
                weights=outcome.weights[:size],
                objectives=outcome.objectives[:size],
                status=f"{words} {how}",
                info=outcome.info | {"strategy": repr(strategy)},
            )
        free = torch.from_numpy(data.weights > 0).to(prepared.problem.train.like.device)
        free[outcome.indices.tolist()] = False
        ranks = torch.from_numpy(np.argsort(np.argsort(data.ids, kind="stable"))).to(free.device)
        said = {"strategy": repr(strategy)}
        assembly = Assembly(
            prepared.problem,
            prepared.implicit,
            outcome.indices.tolist(),
            min(fixed, size),
            free,
            ranks,
            said,
        )
        status = outcome.status
        try:
            status = strategy.refine(assembly, size, clock) or status
        except KeyboardInterrupt:
            status = "interrupted while the points were refined: all points, less refined"
        chosen = assembly.points[:size]
        plan = Plan(len(chosen), 0, "gain" if strategy.exact else "gradient")
        order = Pursuit(self.engine(prepared, len(chosen)), plan, data)
        order.open = np.isin(np.arange(len(data)), chosen)
        quiet = ProgressLine(Runtime(progress=False), clock, len(chosen), "ordering")
        ordered = order.run(chosen[: assembly.fixed], [1.0] * assembly.fixed, None, Clock(), quiet)
        status = status if ordered.status == "complete" else ordered.status
        return replace(ordered, status=status, info=outcome.info | assembly.info)

    @staticmethod
    def _same(initial: Coreset, configuration: str, data: Dataset) -> bool:
        """Whether the coreset's objectives are those of this very problem; refuses one of other
        data."""
        check_origin(initial, data)
        return initial.info.get("configuration") == configuration

    def for_classes(self, classes: Sequence[Any]) -> BilevelSelector:
        """Fix the classes. A single one gets a second that never occurs: the points are then chosen
        to stand out from nothing."""
        known = list(classes)
        if len(known) == 1:
            known.append(_other(known[0]))
        return (
            replace(self, classes=known)
            if self.task != "regression" and self.classes is None
            else self
        )

    def plan(self, size: int, seed: int, targets: Targets) -> Plan:
        """How its greedy loop chooses."""
        optimiser = self.optimiser if self.weights == "learnt" else None
        quotas = as_quotas(self.quotas, targets)
        together = as_strategy(self.strategy).together
        return Plan(
            size,
            seed,
            self.rule,
            self.first,
            self.candidates,
            optimiser,
            together=together,
            quotas=quotas,
        )

    def _reference(self, prepared: Prepared, data: Dataset, seed: int) -> torch.Tensor | None:
        """The loss of every point under the model fitted on all data, for the reducible rule."""
        if self.rule != "reducible":
            return None
        points = np.flatnonzero(data.weights > 0)
        if len(points) > REFERENCE_POINTS:
            # drawn among ids: the order of rows plays no part
            points = points[np.argsort(data.ids[points])]
            points = np.random.default_rng(seed).choice(points, REFERENCE_POINTS, replace=False)
        whole = prepared.implicit(len(points))
        whole.extend(points.tolist(), (data.weights[points] / data.weights[points].mean()).tolist())
        return whole.losses()

    def engine(self, prepared: Prepared, size: int, fresh: bool = False) -> Forward:
        """The closed form where it holds, the implicit gradient everywhere else."""
        constant = isinstance(prepared.problem.regulariser, Constant)
        if self._squared and self.weights != "learnt" and constant and self.inner is None:
            if explicit.fits(prepared.problem):
                return ExplicitRidge(prepared.problem)
            exact = self.rule == "gain" or as_strategy(self.strategy).exact
            return RidgeForward(prepared.problem, size, exact_gain=exact)
        plain = (
            self.rule == "gradient"
            and self.weights != "learnt"
            and self.inner is None
            and self.linear is None
        )
        plain = plain and as_strategy(self.strategy).together == 1 and self.quotas is None
        if (
            plain
            and fresh
            and self.candidates is None
            and prepared.problem.train.like.is_cuda
            and resident.fits(prepared.problem)
        ):
            return SoftmaxResident(prepared.problem, size, lambda: prepared.implicit(size))
        return prepared.implicit(size)

    def reweight(
        self,
        data: Dataset,
        indices: Sequence[int],
        *,
        outer: Dataset | None = None,
        start: Any = None,
        seed: int = 0,
        context: Context | None = None,
    ) -> Coreset:
        """Optimise the weights of the points given; the outer objective never ends above that of
        the starting weights."""
        runtime = (context or Context()).runtime
        clock = Clock(runtime.max_seconds)
        points, weights = as_initial(indices, len(data), max(len(indices), 1), "indices")
        if not points:
            raise InputError("indices is empty; give at least one row number.")
        if start is not None:
            weights = as_weights(start, len(points), "start").tolist()
        with runtime.applied():
            prepared = self.prepare(data, outer, len(points), seed, runtime)
            state = prepared.implicit(len(points))
            state.extend(points, weights)
            begin = state.objective
            self.optimiser.optimise(state, final=True, clock=clock)
            learnt = state.weights.double().cpu().numpy()
            info = prepared.info(self, data, seed, clock) | {
                "weights": "learnt",
                "start_objective": begin,
            }
            kept = np.flatnonzero(learnt > 0)
            lost = len(points) - len(kept)
            status = (
                f"{len(kept)} of {len(points)} points: the learnt weight of the others is zero"
                if lost
                else "complete"
            )
            chosen = np.array(points)[kept]
            return Coreset(
                chosen, learnt[kept], data.ids[chosen], np.array([state.objective]), status, info
            )

    def influence(
        self,
        data: Dataset,
        coreset: Coreset | Sequence[int],
        *,
        outer: Dataset | None = None,
        seed: int = 0,
        context: Context | None = None,
    ) -> Array:
        """−∂G/∂w_k for every point k at the model fitted on ``coreset``: how much a little more of
        k would help."""
        runtime = (context or Context()).runtime
        points, weights = as_initial(coreset, len(data), len(data), "coreset")
        with runtime.applied():
            prepared = self.prepare(data, outer, len(points), seed, runtime)
            state = prepared.implicit(len(points))
            if points:
                state.extend(points, weights)
            return -state.scores().double().cpu().numpy()

    def predict(
        self,
        data: Dataset,
        x: Any,
        coreset: Coreset | Sequence[int] | None = None,
        *,
        seed: int = 0,
        context: Context | None = None,
    ) -> Array:
        """What the proxy says of the rows of ``x``, labels or targets, when it is fitted on
        ``coreset``, or on all of ``data``."""
        runtime = (context or Context()).runtime
        given = np.flatnonzero(data.weights > 0).tolist() if coreset is None else coreset
        points, weights = as_initial(given, len(data), len(data), "coreset")
        rows = as_features(x, "x")
        targets_of(self, data, None)  # which refuses data without labels
        if rows.shape[1:] != data.x.shape[1:]:
            raise InputError(
                f"x has rows of shape {rows.shape[1:]} and data of {data.x.shape[1:]}; they must "
                "match."
            )
        if coreset is None:  # as the outer objective counts them, a common factor plays no part
            weights = (data.weights[points] / data.weights[points].mean()).tolist()
        # no objective is looked at
        unknown = Dataset(rows, np.repeat(np.asarray(data.y)[:1], len(rows), axis=0))
        with runtime.applied(rows=len(data) + len(rows)):
            prepared = self.prepare(data, unknown, len(points), seed, runtime)
            state = prepared.implicit(len(points))
            state.extend(points, weights)
            return prepared.decoded(state.predictions)

    def prepare(
        self, data: Dataset, outer: Dataset | None, count: int, seed: int, runtime: Runtime
    ) -> Prepared:
        """Check, encode, allocate: everything before the first point."""
        return prepare(self, data, outer, count, seed, runtime)


def _other(label: Any) -> Any:
    """A label that is not this one, of the same kind."""
    if isinstance(label, bool):
        return not label
    return f"not {label}" if isinstance(label, str) else label + 1
