"""Bilevel selection for several models at once, and of components without labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from bicore.arguments import in_id_order
from bicore.bilevel.contract import Engine, Gradient
from bicore.bilevel.engines import JointEngine, choose
from bicore.bilevel.greedy import Run
from bicore.bilevel.kernel_choice import needs_choice, notes_of, trials_of
from bicore.bilevel.prepare import Prepared, prepare
from bicore.bilevel.problem import Regulariser
from bicore.bilevel.strategies.base import Strategy
from bicore.bilevel.verification import Verification, verify_objective
from bicore.bilevel.weights import WeightMode
from bicore.coreset import Coreset, Provenance, labels_in
from bicore.data import Array, Dataset, scale_below_one
from bicore.errors import InputError, check_integer, check_number
from bicore.kernels.base import Kernel
from bicore.methods.base import Request, Selector
from bicore.methods.bilevel import BilevelSelector
from bicore.numerics.linear_algebra import transposed_product
from bicore.runtime.clock import ProgressLine
from bicore.runtime.context import Runtime, parse_bytes
from bicore.types import Label

#: Directions whose variance is below this share of the largest are dropped.
RANK_TOLERANCE = 1e-12
#: Number of rows from which an automatic kernel is chosen.
SOME_ROWS = 1000


@dataclass(frozen=True)
class JointSelector(Selector):
    """Select points that serve several models, such as different architectures.

    Parameters
    ----------
    selectors : sequence of BilevelSelector
        One per model: its kernel, loss and regulariser. Weights must be binary, the strategy
        greedy, the rule the gradient; ``quotas``, ``candidates`` and ``first`` of the first apply
        to all.
    shares : sequence of float, optional
        Weight of each model; default: equal. Objectives are first divided by the objective of no
        points, so that losses of different kinds and scales can be added.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> models = [BilevelSelector(kernel=kernel, inner_reg=0.1) for kernel in ("rbf", "ntk")]
    >>> JointSelector(models).select(Dataset(x, x[:, 0] > 5), 3).indices.tolist()
    [11, 2, 6]
    """

    selectors: Sequence[BilevelSelector]
    shares: Sequence[float] | None = None

    needs_labels = True
    name = "joint bilevel"

    def __post_init__(self) -> None:
        given = self.selectors
        several = isinstance(given, Sequence) and bool(given)
        if not several or not all(isinstance(one, BilevelSelector) for one in given):
            raise InputError(f"selectors must be a sequence of BilevelSelector; got {given!r}.")
        given = tuple(one.fill_as_paper() for one in given)
        object.__setattr__(self, "selectors", given)
        for share in self._shares:
            check_number("shares", share, least=0)
        if len(self._shares) != len(given) or not sum(self._shares):
            raise InputError(f"shares must be {len(given)} numbers, not all 0; got {self.shares}.")
        for number, one in enumerate(given):
            plain = one.weighting is WeightMode.UNIFORM and one.rule == Gradient()
            if not plain or one.strategy.refines or one.strategy.points_per_step > 1:
                raise InputError(
                    f"selectors[{number}] must have weighting='uniform', rule='gradient' and "
                    f"strategy='greedy'; got {one.weighting.value!r}, {one.rule.name!r} and "
                    f"{one.strategy.name!r}."
                )

    @property
    def _shares(self) -> list[float]:
        return [1.0] * len(self.selectors) if self.shares is None else list(self.shares)

    def for_classes(self, classes: Sequence[Label]) -> JointSelector:
        return replace(self, selectors=[one.for_classes(classes) for one in self.selectors])

    def resolve_defaults(self, data: Dataset, size: int, previous: Coreset | None = None) -> Self:
        resolved = [one.resolve_defaults(data, size) for one in self.selectors]
        return replace(self, selectors=resolved)

    def _select(self, request: Request) -> Coreset:
        data, count, seed, clock = request.data, request.size, request.seed, request.clock
        runtime = self._divide_memory(request.runtime)
        line = ProgressLine(runtime.progress, clock, count, "selecting")
        with runtime.apply(), clock.running(), line:
            parts, engines = [], []
            for one in self.resolve_defaults(data, count).selectors:
                part = prepare(one, data, request.outer, count, seed, runtime)
                needs = one.requirements(count, solvers=part.solvers)
                parts.append(part)
                engines.append(choose(part.problem, needs))
            shares = np.divide(self._shares, sum(self._shares)).tolist()
            empty = [engine.objective for engine in engines]
            scales = [share / (value or 1.0) for share, value in zip(shares, empty, strict=True)]
            joint = JointEngine(engines, scales)
            first, part, preparation = self.selectors[0], parts[0], clock.seconds
            run = Run(joint, Gradient(), first.plan(part, count, seed), clock, line)
            outcome = run.complete(replace(request.start, coreset=None))
            checked = [_verify(*model, run) for model in zip(parts, engines, strict=True)]
            # The sum is verified by the objectives of all models.
            total = sum(c * one.objective for c, one in zip(scales, checked, strict=True))
            notes = [f"selectors[{k}]: {one.note}" for k, one in enumerate(checked) if one.note]
            provenance = Provenance(
                method=self.name,
                rows=len(data),
                seed=seed,
                seconds=clock.seconds,
                preparation_seconds=preparation,
                fingerprint=data.fingerprint(),
                empty_objective=run.empty_objective,
                task=part.targets.task,
                classes=labels_in(part.targets.classes),
                notes=tuple(note for one in parts for note in notes_of(one.kernel)),
            )
            known = zip(parts, shares, empty, checked, strict=True)
            details = first.details(part) | {"models": [_describe(*model) for model in known]}
            objectives = np.array(run.objectives)
            points = run.indices, run.weights, data.ids[run.indices], objectives
            coreset = Coreset(*points, *outcome, provenance, details)
            return Verification(total, "; ".join(notes)).apply(coreset)

    def _divide_memory(self, runtime: Runtime) -> Runtime:
        """Divide the memory limit between the models."""
        if runtime.memory is None:
            return runtime
        return replace(runtime, memory=(parse_bytes(runtime.memory) or 0) // len(self.selectors))


def _verify(part: Prepared, engine: Engine, run: Run) -> Verification:
    """Verify the objective of one model for the points of a run."""
    surplus = range(len(run.indices), len(engine.chosen))
    if surplus:  # an interrupt came after some models had added the next point
        engine.drop(surplus)
    return verify_objective(part, run.indices, run.weights, engine.objective)


def _describe(
    part: Prepared, share: float, empty_objective: float, checked: Verification
) -> dict[str, Any]:
    """Return the details of one model."""
    return {
        "kernel": part.kernel.name,
        "loss": part.problem.inner_loss.name,
        "inner_reg": part.regulariser.value,
        "share": share,
        "empty_objective": empty_objective,
        **trials_of(part.kernel),
        "objective": checked.objective,
    }


@dataclass(frozen=True)
class Reconstruction(Selector):
    """Bilevel selection whose targets are the leading principal components of the data.

    It needs no labels.

    Parameters
    ----------
    kernel, inner_reg, weighting, candidates, strategy : object
        As for :class:`BilevelSelector`; the loss is the squared error.
    components : int
        Number of components to predict. Each keeps its variance, so that the loss is the
        unexplained variance.
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
    weighting: str = "uniform"
    candidates: int | None = None
    strategy: str | Strategy = "greedy"
    components: int = 32
    exact: bool = False
    #: The bilevel selector that predicts the components.
    chooser: BilevelSelector = field(init=False, repr=False, compare=False)

    name = "reconstruction"

    def __post_init__(self) -> None:
        check_integer("components", self.components)
        options = self.get_params(deep=False)
        del options["components"]
        options |= {"rule": "gradient", "smooth_labels": False, "intercept": 0.0}
        object.__setattr__(self, "chooser", BilevelSelector(**options, task="regression"))

    @property
    def ordered(self) -> bool:
        return self.chooser.ordered

    def resolve_defaults(self, data: Dataset, size: int, previous: Coreset | None = None) -> Self:
        if not needs_choice(self.chooser.kernel):
            return self
        # The components of some rows suffice to compare kernels.
        by_id = in_id_order(np.flatnonzero(data.weights > 0), data.ids)
        selector, predicted, _ = self.as_bilevel(data[by_id[:: -(-len(by_id) // SOME_ROWS)]])
        return replace(self, kernel=selector.resolve_defaults(predicted, size, previous).kernel)

    def as_bilevel(
        self, data: Dataset, outer: Dataset | None = None
    ) -> tuple[BilevelSelector, Dataset, Dataset | None]:
        centre, axes = principal_axes(data.x, data.weights, self.components)
        outer = None if outer is None else _with_targets(outer, centre, axes)
        return self.chooser, _with_targets(data, centre, axes), outer

    def _select(self, request: Request) -> Coreset:
        data, before = request.data, request.start.coreset
        with request.clock.running():
            known = self.resolve_defaults(data, request.size, before)
            selector, predicted, outer = known.as_bilevel(data, request.outer)
        previous: Coreset | Sequence[int] = request.start.points
        if before is not None:  # its fingerprint belongs to the data without these targets
            previous = before.with_details({"fingerprint": None})
        coreset = selector.select(
            predicted,
            request.size,
            outer=outer,
            initial=previous,
            random_state=request.seed,
            runtime=request.runtime.for_part(request.clock),
        )
        assert predicted.y is not None
        own = {"method": self.name, "fingerprint": data.fingerprint()}
        return coreset.with_details(own, components=predicted.y.shape[1])


def _with_targets(part: Dataset, centre: Array, axes: Array) -> Dataset:
    """Return the rows with their own components as targets."""
    targets = (part.x.reshape(len(part), -1) - centre) @ axes
    return Dataset(part.x, targets, part.sample_weight, part.ids)


def principal_axes(x: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """Return the mean and the first ``count`` axes with variance of weighted rows.

    The smaller of the two moment matrices is decomposed.
    """
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    units = scale_below_one(weights)
    share = units / units.sum()
    centre = share @ rows
    scaled = np.sqrt(share)[:, None] * (rows - centre)
    few = len(rows) < rows.shape[1]
    long = torch.from_numpy(np.ascontiguousarray(scaled.T if few else scaled))
    values, vectors = np.linalg.eigh(transposed_product(long, long).numpy())
    order = [k for k in np.argsort(values)[::-1][:count] if values[k] > RANK_TOLERANCE * values[-1]]
    if not order:  # all rows are equal
        return centre, np.eye(rows.shape[1])[:, :1]
    axes = scaled.T @ vectors[:, order] / np.sqrt(values[order]) if few else vectors[:, order]
    return centre, axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(len(order))])
