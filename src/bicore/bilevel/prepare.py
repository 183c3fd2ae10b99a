"""Prepare a bilevel problem from a model and data: checks, encoding, memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import in_id_order
from bicore.bilevel import kernel_choice
from bicore.bilevel.contract import Quantity, RefinementCost, Rule
from bicore.bilevel.engines import choose_reweighable
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.greedy import AtMost, Balanced, QuotaRule
from bicore.bilevel.kernel_choice import parts_of
from bicore.bilevel.outer_targets import OuterTargets
from bicore.bilevel.problem import Constant, Known, Problem, Regulariser
from bicore.bilevel.regularisation import SUBSET_SIZE
from bicore.bilevel.solvers.inner import InnerSolver, LinearSolver, Solvers, solvers_for
from bicore.bilevel.strategies.base import Strategy
from bicore.bilevel.weights import WeightMode
from bicore.coreset import Coreset
from bicore.data import (
    Array,
    Dataset,
    Targets,
    Task,
    as_tensor,
    read_targets,
    scale_below_one,
    scale_to_mean_one,
)
from bicore.errors import InputError, shown
from bicore.kernels.base import Intercept, Kernel
from bicore.kernels.building import OperatorPlan, Reserve, build_operators, plan_operators
from bicore.kernels.operators import BLOCK_BYTES, RowSubset
from bicore.kernels.scaling import check_diagonal
from bicore.kernels.tangent import TangentKernel
from bicore.losses import Loss
from bicore.moments import moments
from bicore.runtime.context import Runtime

#: Maximum number of points, drawn at random, to fit the model of all data that a rule compares
#: with.
REFERENCE_POINTS = 2000
#: Maximum number of rows, drawn at random, whose loss measures an automatic regulariser: a mean
#: needs no more, and all candidates use the same rows.
MEASURING_ROWS = 10_000
#: Bytes of a float64 number: refinement computes in float64 for any dtype of the matrix.
DOUBLE = 8
#: Number of arrays of a block of pairs that exist at a time.
TABLES_OF_BLOCK = 8
#: Copies of the columns of a shortlist (with the weighted ones), and matrices of the chosen and
#: listed points: K, T and V of a pool, with one of them being computed.
COPIES_OF_LISTED, SQUARES_OF_POOL = 2, 4


def as_quotas(value: Any) -> QuotaRule | None:
    """Return the quota rule for None, "balanced" or a maximum per class."""
    if value is None or isinstance(value, QuotaRule):
        return value
    if isinstance(value, Mapping):
        return AtMost(value)
    if isinstance(value, str) and value.lower() == "balanced":
        return Balanced()
    raise InputError(f"quotas must be 'balanced' or a mapping {{label: count}}; got {value!r}.")


class Prior(StrEnum):
    """The weight of classes in the outer objective."""

    #: Classes count by their frequency in the data.
    DATA = "data"
    #: All classes count equally.
    EQUAL = "equal"


class Proxy:
    """The kernel model a coreset is chosen for, and how it reads labels."""

    kernel: Kernel
    loss: Loss
    outer_loss: Loss | None
    inner_reg: Regulariser
    weighting: WeightMode
    rule: Rule
    strategy: Strategy
    task: Task
    classes: tuple[Any, ...] | None
    inner: InnerSolver | None
    linear: LinearSolver | None
    smooth_labels: OuterTargets
    prior: Prior | Mapping[Any, float]
    #: The constant feature as a share of the mean of k(x, x); None: chosen by loss and kernel.
    intercept: float | None

    @property
    def kernel_with_intercept(self) -> Kernel:
        """The kernel of the model, including the constant feature.

        By default the squared error has one, because its labels are centred. The paper's own
        setting, network kernels and other losses, has none.
        """
        share = self.intercept
        if share is None:
            network = any(isinstance(part, TangentKernel) for part in parts_of(self.kernel))
            share = kernel_choice.INTERCEPT if self.squared and not network else 0.0
        return Intercept(self.kernel, share) if share > 0 else self.kernel

    @property
    def squared(self) -> bool:
        """Whether both losses are the squared error."""
        return self.loss.quadratic and self.outer_loss in (None, self.loss)

    @property
    def closed_form(self) -> bool:
        """Whether rank-one updates apply: the squared error, a constant ρ, and no solver given."""
        return self.squared and self.inner_reg.constant and self.inner is None

    def choose_kernel(self, data: Dataset, size: int, previous: Coreset | None = None) -> Kernel:
        """Return the kernel for coresets of ``size`` points, chosen from the data if it is
        automatic.

        The kernel chosen for a ``previous`` coreset is kept.
        """
        if not kernel_choice.needs_choice(self.kernel):
            return self.kernel
        targets, _ = read_labels(self, data, None)
        return kernel_choice.choose_kernel(self.kernel, data, targets, size, previous)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem with its solvers and data."""

    problem: Problem
    kernel: Kernel
    targets: Targets
    solvers: Solvers
    data: Dataset
    outer: Dataset | None
    #: Points that count in the objective and are not selected.
    contradicted: Array
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> Array:
        """A mask of the points that count."""
        counted: Array = self.data.weights > 0
        return counted

    def selectable(self, size: int) -> Array:
        """Return a mask of the points that may be chosen; all points that count if too few are
        left."""
        left: Array = self.counted & ~self.contradicted
        return left if left.sum() >= size else self.counted

    @property
    def regulariser(self) -> Known:
        """The regulariser, as given or as found from the data."""
        return self.problem.regulariser

    def decode(self, predictions: Tensor) -> Array:
        """Return labels or targets for the outputs of the model."""
        problem = self.problem
        outputs = problem.inner_loss.restore(predictions, self.targets, problem.inner_targets)
        classes = self.targets.classes
        if classes is None:
            values: Array = outputs.double().cpu().numpy()
            return values[:, 0] if values.shape[1] == 1 else values
        codes = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)
        labels: Array = classes[codes.cpu().numpy()]
        return labels

    def configuration(self, *more: object) -> str:
        """Digest every setting of the objective: kernel, losses, regulariser, outer set, more."""
        problem = self.problem
        classes = None if self.targets.classes is None else self.targets.classes.tolist()
        own = (self.kernel, problem.inner_loss, problem.outer_loss, self.regulariser, classes)
        outer = "" if self.outer is None else self.outer.fingerprint()
        words = "|".join(map(repr, (*own, outer, *more)))
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def fit(self, points: Sequence[int], weights: Sequence[float] | None = None) -> ImplicitEngine:
        """Fit the model on points with weights."""
        engine = choose_reweighable(self.problem, len(points), self.solvers)
        if points:
            engine.extend(points, weights)
        return engine

    def losses_of_all(self, seed: int) -> Tensor:
        """Compute every point's loss under the model fitted on all of them."""
        points = np.flatnonzero(self.counted)
        if len(points) > REFERENCE_POINTS:
            rng = np.random.default_rng(seed)
            eligible = in_id_order(points, self.data.ids)
            points = rng.choice(eligible, REFERENCE_POINTS, replace=False)
        weights = scale_to_mean_one(self.data.weights[points])
        return self.fit(points.tolist(), weights.tolist()).quantity(Quantity.LOSS)


def prepare(
    proxy: Proxy,
    data: Dataset,
    outer: Dataset | None,
    capacity: int,
    seed: int,
    runtime: Runtime,
    searches: bool = True,
) -> Prepared:
    """Check the input, encode it and build the problem.

    Memory is reserved for engines of ``capacity`` points; without ``searches`` for one fit.
    """
    targets, outer_targets = read_labels(proxy, data, outer)
    weights = data.weights
    inner_loss, outer_loss, outputs = _losses(proxy, targets, weights > 0)
    by_id = in_id_order(np.arange(len(data)), data.ids)
    in_order = bool((np.diff(data.ids) > 0).all())
    kernel = proxy.kernel_with_intercept.fit(data.x if in_order else data.x[by_id])
    reserve = _reserve(proxy, capacity, searches, data, outer, targets, outputs, runtime)
    outer_x = None if outer is None else outer.x
    train, cross = build_operators(kernel, data.x, outer_x, reserve, runtime)
    like = train.like
    check_diagonal(train, data.x)
    own_weights = as_tensor(scale_below_one(weights)).to(like)
    measuring = own_weights if outer is None else as_tensor(scale_below_one(outer.weights)).to(like)
    counted = own_weights
    if proxy.prior is not Prior.DATA:
        measuring = weigh_classes(measuring, outer_targets, proxy.prior)
        counted = weigh_classes(own_weights, targets, proxy.prior)
    inner_values = inner_loss.prepare(targets, targets, counted, like)
    outer_values = inner_values
    if outer is not None or inner_loss != outer_loss:
        outer_values = outer_loss.prepare(outer_targets, targets, counted, like)
    problem = Problem(
        train,
        cross,
        inner_loss,
        outer_loss,
        inner_values,
        outer_values,
        measuring / measuring.sum(),
        outputs,
        Constant(1.0),  # until the data are known
    )
    solvers = solvers_for(inner_loss, proxy.inner, proxy.linear)
    eligible = by_id[weights[by_id] > 0]
    found = proxy.smooth_labels.apply(problem, targets, eligible, seed)
    own = found.problem
    if outer is not None or not own.same_targets:
        # an automatic regulariser depends on the training data alone
        values = own.inner_targets
        if inner_loss != outer_loss:
            values = outer_loss.prepare(targets, targets, counted, like)
        shares = own_weights / own_weights.sum()
        own = replace(own, cross=train, outer_targets=values, outer_weights=shares)
    if proxy.inner_reg.automatic:
        own = _sample_outer_rows(own, by_id, seed)
    regulariser = proxy.inner_reg.resolve(own, eligible, solvers, seed)
    problem = replace(found.problem, regulariser=regulariser)
    return Prepared(problem, kernel, targets, solvers, data, outer, found.contradicted, found.notes)


def as_prior(value: Any) -> Prior | Mapping[Any, float]:
    """Return the weights of classes: those of the data, equal, or shares by label."""
    found = moments.as_prior(value)
    return Prior(found) if isinstance(found, str) else found


def weigh_classes(weights: Tensor, targets: Targets, prior: Prior | Mapping[Any, float]) -> Tensor:
    """Scale the weights so that the total weights of the classes are in these shares."""
    words = f"prior={str(prior)!r}" if isinstance(prior, Prior) else f"prior={shown(prior)}"
    if targets.classes is None:
        raise InputError(f"{words} needs class labels, and y holds numeric targets; leave it out.")
    classes = targets.classes.tolist()
    shares = moments.as_shares(prior, classes)
    moments.refuse_bad_shares(prior, shares, classes)
    codes = torch.from_numpy(np.asarray(targets.values)).to(weights.device)
    totals = weights.new_zeros(len(targets.classes)).index_add_(0, codes, weights)
    scaled = weights * weights.new_tensor(shares / shares.max())[codes]  # for float32
    if not scaled.any():
        wrong = f"{words} gives share 0 to the classes of all rows that count (or of outer)"
        raise InputError(f"{wrong}; give one of these a share above 0.")
    return torch.where(weights > 0, scaled / totals[codes], weights)  # avoids 0/0


def _sample_outer_rows(problem: Problem, by_id: Array, seed: int) -> Problem:
    """Return the problem with a sample of its outer rows, which are the training rows."""
    if len(by_id) <= MEASURING_ROWS:
        return problem
    rng = np.random.default_rng((seed, MEASURING_ROWS))
    drawn = rng.choice(by_id, MEASURING_ROWS, replace=False)
    rows = torch.from_numpy(np.sort(drawn)).to(problem.train.like.device)
    shares = problem.outer_weights[rows]
    return replace(
        problem,
        cross=RowSubset.of(problem.train, rows),
        outer_targets=problem.outer_targets[rows],
        outer_weights=shares / shares.sum(),
    )


def plan_memory(
    proxy: Proxy, data: Dataset, outer: Dataset | None, capacity: int, runtime: Runtime
) -> OperatorPlan:
    """Return how :func:`prepare` would store the kernel matrix, without allocating it."""
    targets, _ = read_labels(proxy, data, outer)
    outputs = _losses(proxy, targets, data.weights > 0)[2]
    reserve = _reserve(proxy, capacity, True, data, outer, targets, outputs, runtime)
    kernel = proxy.kernel_with_intercept.fit(data.x)
    return plan_operators(kernel, data.x, 0 if outer is None else len(outer), reserve, runtime)


def _losses(proxy: Proxy, targets: Targets, counted: Array) -> tuple[Loss, Loss, int]:
    """Return the inner and the outer loss, and the number of outputs of both."""
    inner, outer = proxy.loss, proxy.outer_loss or proxy.loss
    several = targets.classes is not None and len(targets.classes) > 1
    if several and len(np.unique(targets.values[counted])) == 1:
        # There are rows of one class only: centring would leave nothing to fit.
        inner, outer = inner.without_centring(), outer.without_centring()
    outputs, other = inner.outputs(targets), outer.outputs(targets)
    if other != outputs:
        raise InputError(
            f"loss={inner.name!r} predicts {outputs} numbers and outer_loss={outer.name!r} "
            f"{other}; they must be the same."
        )
    return inner, outer, outputs


def _reserve(
    proxy: Proxy,
    capacity: int,
    searches: bool,
    data: Dataset,
    outer: Dataset | None,
    targets: Targets,
    outputs: int,
    runtime: Runtime,
) -> Reserve:
    """Return the bytes that an engine needs in addition to the kernel matrix.

    These are kernel rows of the chosen points, a few vectors a data point, a few m×m matrices.
    """
    rows = len(data) + (0 if outer is None else len(outer))
    outputs = proxy.smooth_labels.outputs(outputs, targets.classes is None)
    automatic, uniform = proxy.inner_reg.automatic, proxy.weighting is WeightMode.UNIFORM
    width = max(capacity, SUBSET_SIZE if automatic else 0)
    vectors = 8 * rows * outputs * 8
    squares = 3 * width * width * runtime.itemsize
    factor = rows * width * runtime.itemsize * (2 if searches and not uniform else 1)
    if searches and proxy.rule.compares:
        factor += min(rows, REFERENCE_POINTS) * rows * runtime.itemsize
    work = RefinementCost()
    if searches:
        work = proxy.strategy.refinement_cost(capacity, len(data))
    listed = rows * COPIES_OF_LISTED * work.listed * DOUBLE
    pool = SQUARES_OF_POOL * (capacity + work.listed) ** 2 * DOUBLE if work.listed else 0
    whole = factor + vectors + squares + rows * work.held * DOUBLE + pool
    closed = searches and proxy.closed_form and uniform
    rank_one = proxy.rule.quantity in (Quantity.GRADIENT, Quantity.GAIN)
    # Rank-one updates of features need no matrix of n × capacity.
    lean = closed and rank_one and not proxy.strategy.refines and not automatic
    found = Reserve(whole + listed, vectors if lean else whole, norms=work.held > 0)
    if not (closed and proxy.strategy.exact):
        return found
    # A pool of features and the gains of its pairs.
    numbers = COPIES_OF_LISTED * (capacity + 2 * work.listed) * capacity
    narrow = vectors + numbers * DOUBLE
    narrow += min(BLOCK_BYTES, TABLES_OF_BLOCK * rows * capacity * DOUBLE)
    if automatic:
        narrow += rows * SUBSET_SIZE * runtime.itemsize
    return replace(found, with_narrow_features=narrow, points=capacity)


def read_labels(proxy: Proxy, data: Dataset, outer: Dataset | None) -> tuple[Targets, Targets]:
    """Read the labels or targets of the data and of the outer set."""
    if data.y is None:
        raise InputError(
            "bilevel selection needs labels or targets, and data has none; give y, or a method "
            "without labels."
        )
    known = None if proxy.classes is None else np.asarray(proxy.classes)
    targets = read_targets(data.y, proxy.task, known)
    if targets.classes is not None and len(targets.classes) == 1 and len(data) > 1:
        raise InputError(
            f"y holds a single class ({targets.classes.tolist()[0]!r}); two are needed "
            "(or give classes=…, or task='regression' for numbers)."
        )
    if outer is None:
        return targets, targets
    if outer.y is None:
        raise InputError("outer has no labels, which the objective needs; give outer=(x, y).")
    if outer.x.shape[1:] != data.x.shape[1:]:
        raise InputError(
            f"outer has rows of shape {outer.x.shape[1:]} and x has rows of shape "
            f"{data.x.shape[1:]}; give outer rows with the features of x."
        )
    other = read_targets(outer.y, targets.task, targets.classes, "outer: y")
    if other.task is Task.REGRESSION and other.values.shape[1] != targets.values.shape[1]:
        raise InputError(
            f"outer has {other.values.shape[1]} target columns and y has "
            f"{targets.values.shape[1]}; give the same number."
        )
    return targets, other
