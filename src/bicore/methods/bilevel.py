"""Select coresets by bilevel optimisation.

A selection resolves unset parameters, draws candidates if the data are large, prepares the problem,
runs the strategy and verifies the result.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch

from bicore._deprecated import renamed_keywords
from bicore.arguments import First, Start, as_seed, in_id_order, read_initial
from bicore.bilevel import greedy
from bicore.bilevel.contract import RULES, Gain, Gradient, Quantity, Requirements, Rule
from bicore.bilevel.engines import choose, choose_reweighable, is_supported
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.kernel_choice import mark_automatic, model_of, needs_choice, notes_of, trials_of
from bicore.bilevel.outer_targets import Given, OuterTargets, Smoothed
from bicore.bilevel.prepare import (
    Prepared,
    Prior,
    Proxy,
    as_prior,
    as_quotas,
    prepare,
    read_labels,
    weigh_classes,
)
from bicore.bilevel.problem import Regulariser
from bicore.bilevel.solvers.inner import InnerSolver, LinearSolver, Solvers
from bicore.bilevel.strategies import STRATEGIES
from bicore.bilevel.strategies.base import Assembly, Greedy, Strategy
from bicore.bilevel.strategies.refining import ClassMeans, Exchange
from bicore.bilevel.verification import verify_coreset
from bicore.bilevel.weights import (
    ProjectedGradient,
    WeightMode,
    WeightOptimiser,
    WeightUpdater,
    as_reweighable,
)
from bicore.coreset import Coreset, Provenance, Status, labels_in
from bicore.data import (
    Array,
    Dataset,
    Targets,
    Task,
    as_features,
    as_tensor,
    as_weights,
    read_targets,
    scale_below_one,
    scale_to_mean_one,
)
from bicore.errors import (
    InputError,
    LargeDataWarning,
    TimeLimitError,
    as_option,
    check_integer,
    check_type,
)
from bicore.kernels.base import Kernel
from bicore.losses import Loss
from bicore.methods import names, sampling
from bicore.methods.base import Request, Selector
from bicore.methods.simple_rows import find_better_rows
from bicore.runtime.clock import Clock, ProgressLine, TimeOver
from bicore.runtime.context import Context, Runtime, versions
from bicore.sparse import is_sparse
from bicore.types import Label, Matrix, Numbers, RandomState

#: Two objectives that differ by less than this share are equally good.
EQUAL = 1e-7
#: End of the message if only the points for uniform weights are complete.
WHILE_LEARNING = "while weights were learned after every row: complete, weights learned once"
#: Number of rows from which the width of a kernel's features is determined.
FIRST_ROWS = 1000
#: Rows of earlier contexts are reused if fewer than this multiple of the size are unused.
LEAST_UNUSED = 2
#: This share of every context after the first is drawn at random. Rows that only correct the errors
#: of earlier contexts are so unusual that a model predicts worse from them alone.
RANDOM_SHARE = 0.5
#: With more rows than this, default exchanges end after a few sweeps over them.
MANY_ROWS, SWEEPS_OF_MANY = 20_000, 3
#: Largest product of the rows and the square of the size for which exchanges are the default. It
#: corresponds to some minutes on one core; greedy selection grows with the size only linearly.
MOST_WORK = 10**11
#: With at least this many classes of similar shares and at most this many rows per class, every
#: class gets a row in turn: exchanges that follow the squared error leave some classes out.
MANY_CLASSES, FEW_PER_CLASS = 30, 8
#: The rows per class up to which these exchanges are by class means, by the model to be trained.
CLASS_MEANS = {"linear": 2, "neighbours": 1}
#: Classes have similar shares p if their effective number, 1/Σp², is at least this share of them.
LEAST_EVEN = 0.7
#: The choices of the paper, in the order in which unset ones are resolved: a strategy must suit the
#: targets, a rule both.
PAPER_CHOICES: dict[str, Any] = {"smooth_labels": Given(), "strategy": Greedy(), "rule": Gradient()}


def best_choices(
    classes: bool, rows: int, all_scored: bool, class_means: bool = False
) -> dict[str, Any]:
    """Return the choices that were best on many data sets (docs/choosing.md).

    ``all_scored`` states that every point is scored at every step, including the first;
    ``class_means`` that exchanges are by class means.
    """
    if not classes:
        return {"smooth_labels": Smoothed(), "strategy": Greedy(), "rule": Gain()}
    sweeps = None if rows <= MANY_ROWS else SWEEPS_OF_MANY
    exchange = ClassMeans if class_means else Exchange
    strategy = exchange(sweeps=sweeps, work=MOST_WORK) if all_scored else Greedy()
    # Predictions would weaken clear labels, so labels are kept (share=0).
    return {"smooth_labels": Smoothed(share=0.0), "strategy": strategy, "rule": Gradient()}


def needs_every_class(targets: Targets, weights: Array, size: int) -> bool:
    """Whether a few rows have to represent many classes of similar shares."""
    if targets.classes is None:
        return False
    count = len(targets.classes)
    if not (count >= MANY_CLASSES and count <= size <= FEW_PER_CLASS * count):
        return False
    sums = np.bincount(targets.values, weights=scale_below_one(weights), minlength=count)
    return bool(sums.sum() ** 2 >= LEAST_EVEN * count * (sums**2).sum())


@dataclass(frozen=True, init=False)
class BilevelSelector(Selector, Proxy):
    """Select the rows on which a fitted kernel model has the smallest loss on all rows.

    Names are resolved when it is built; its fields hold objects. The objective of the answer is
    computed again in float64. If the two differ by more than the tolerance of
    :mod:`bicore.bilevel.verification`, the status is ``"unverified"``, the second value is reported
    and a :class:`~bicore.NumericalWarning` is issued.

    Parameters
    ----------
    kernel : str, Kernel or callable
        Kernel of the proxy model: "ntk" for networks on vectors, "cntk" for images, "rbf",
        "linear" for embeddings, "precomputed" if x is a Gram matrix, or any function k(a, b).
        "auto" compares exponential kernels by held-out error: see
        :mod:`bicore.bilevel.kernel_choice`.
    loss : str, Loss or callable
        Loss of the inner problem, or a function of (prediction, target).
    outer_loss : str, Loss or callable, optional
        Loss of the outer problem (default: ``loss``).
    inner_reg : float, Relative, PerPoint, "auto" or "learned"
        Regularisation strength ρ, or a share of the mean of k(x, x) as ``"relative:0.01"``. "auto"
        is the rule of :mod:`bicore.bilevel.regularisation`; "learned" starts there and optimises ρ
        with the weights.
    weighting : "uniform", "final" or "learned"
        Weights of the selected rows: 1 ("uniform"), optimised once at the end ("final") or after
        every row ("learned"). The objective of "learned" is never above that of the other two.
    rule : "auto", "gradient", "gain", "first-order", "reducible" or Rule
        Score of a row: the implicit gradient; the exact decrease of the objective ("gain", squared
        error and uniform weights); the gradient with the identity instead of the inverse Hessian
        ("first-order", the score of GLISTER); or the loss under the coreset's model minus that
        under the model of all rows ("reducible", CSReL).
    candidates : int, optional
        Number of random rows to score at each step (default: all).
    strategy : "auto", "greedy", "batches", "exchange", "elimination", "simplex" or Strategy
        Order of adding and removing rows: one at a time ("greedy"), several at a time ("batches"),
        greedy with exchanges, removal from a larger selection ("elimination"), or an L½ penalty on
        the weights of a larger selection ("simplex"). Exchange and elimination need the squared
        error; the last three need a constant regulariser.
    first : "best" or "random"
        Whether the rule chooses the first row, or it is drawn at random as in the paper.
    quotas : "balanced" or mapping, optional
        One row of each class in turn, or the maximum number of rows per class, by label.
    task : "auto", "classification" or "regression"
        Kind of labels; "auto" treats floats as regression targets.
    classes : sequence, optional
        All classes, if ``data`` may lack some of them.
    inner : InnerSolver, optional
        Solver of the inner problem (default: by the loss).
    linear : LinearSolver, optional
        Solver of linear systems with the inner Hessian.
    optimiser : WeightOptimiser, optional
        Optimiser of the weights (default: :class:`bicore.bilevel.ProjectedGradient`).
    smooth_labels : bool, "auto" or OuterTargets
        Whether the objective uses smoothed labels, the mean of each label and its leave-one-out
        prediction (squared error; see :class:`bicore.bilevel.outer_targets.Smoothed`). "auto"
        smooths numeric targets, keeps class labels, and excludes rows whose label contradicts the
        leave-one-out prediction if that improves the prediction of held-out rows.
    prior : "data", "equal" or mapping
        Importance of classes in the objective: by their frequency, equal, or shares by label.
    intercept : float or "auto"
        Weight of a constant feature, as a share of the mean of k(x, x); 0 for none. "auto" is 1
        for the squared error, whose labels are centred, and 0 for
        network kernels and other losses.
    exact : bool
        Whether to use all rows. If False, a stratified sample is used beyond 5,000 rows, unless the
        kernel has finite features.

    Notes
    -----
    The defaults are those of :func:`bicore.select`. "auto" for ``kernel``, ``rule``, ``strategy``
    and ``smooth_labels`` is resolved by the data (``docs/choosing.md``). Memories resolve it by
    :meth:`for_memory`; an unset strategy without quotas then selects one row of each class in turn.
    ``as_selector("paper")`` has the setting of the paper's experiments,
    ``as_selector("bilevel-ntk")`` its greedy algorithm with the squared error.

    Examples
    --------
    >>> from bicore import BilevelSelector, Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> BilevelSelector(kernel="rbf", inner_reg=0.1).select(Dataset(x, x[:, 0] > 5), 2).indices
    array([3, 8])
    """

    # All fields, in the order of fingerprints in saved files.
    kernel: Kernel
    loss: Loss
    outer_loss: Loss | None
    inner_reg: Regulariser
    weighting: WeightMode
    rule: Rule
    candidates: int | None
    strategy: Strategy
    first: First
    quotas: greedy.QuotaRule | None
    task: Task
    classes: tuple[Any, ...] | None
    inner: InnerSolver | None
    linear: LinearSolver | None
    optimiser: WeightOptimiser
    smooth_labels: OuterTargets
    prior: Prior | Mapping[Any, float]
    intercept: float | None
    exact: bool

    needs_labels = True

    @renamed_keywords()
    def __init__(
        self,
        kernel: str | Kernel | Callable[..., Any] = "auto",
        loss: str | Loss | Callable[..., Any] = "squared",
        outer_loss: str | Loss | Callable[..., Any] | None = None,
        inner_reg: str | float | Regulariser = "auto",
        weighting: str = "uniform",
        rule: str | Rule = "auto",
        candidates: int | None = None,
        strategy: str | Strategy = "auto",
        first: str = "best",
        quotas: str | Mapping[Any, int] | greedy.QuotaRule | None = None,
        task: str = "auto",
        classes: Sequence[Label] | None = None,
        inner: InnerSolver | None = None,
        linear: LinearSolver | None = None,
        optimiser: WeightOptimiser | None = None,
        smooth_labels: bool | str | OuterTargets = "auto",
        prior: str | Mapping[Any, float] = "data",
        intercept: str | float | None = "auto",
        exact: bool = False,
    ) -> None:
        if candidates is not None:
            check_integer("candidates", candidates, fix="or None for all rows")
        resolved = {
            "kernel": names.as_kernel(kernel),
            "loss": names.as_loss(loss),
            "outer_loss": None if outer_loss is None else names.as_loss(outer_loss, "outer_loss"),
            "inner_reg": names.as_regulariser(inner_reg),
            "weighting": as_option("weighting", weighting, WeightMode),
            "rule": names.as_object("rule", rule, Rule, RULES),
            "candidates": candidates,
            "strategy": names.as_object("strategy", strategy, Strategy, STRATEGIES),
            "first": as_option("first", first, First),
            "quotas": as_quotas(quotas),
            "task": as_option("task", task, Task),
            "classes": labels_in(classes),
            "inner": inner,
            "linear": linear,
            "optimiser": optimiser or ProjectedGradient(),
            "smooth_labels": names.as_outer_targets(smooth_labels),
            "prior": as_prior(prior),
            "intercept": names.as_intercept(intercept),
            "exact": bool(exact),
        }
        vars(self).update(resolved)
        self._check()

    @property
    def takes_sparse(self) -> bool:
        return self.kernel.takes_sparse

    @property
    def ordered(self) -> bool:
        # With learned weights, either of two paths may be kept at every size.
        return self.strategy.ordered and self.weighting is not WeightMode.LEARNED

    @property
    def name(self) -> str:
        return self.rule.method

    def _check(self) -> None:
        """Refuse combinations that no engine supports."""
        strategy = self.strategy
        asked = f"strategy={strategy.name!r}"
        if strategy.refines and not self.inner_reg.constant:
            raise InputError(f"{asked} needs a constant inner_reg, not PerPoint.")
        if not is_supported(self.requirements(1)):
            gain = self.rule.quantity is Quantity.GAIN
            asked = f"rule={self.rule.name!r}" if gain else asked
            fix = "rule='gradient'" if gain else "strategy='batches' or 'greedy'"
            raise InputError(
                f"{asked} needs the squared error, a constant inner_reg, uniform or final "
                f"weighting and the built-in solver; otherwise use {fix}."
            )
        if strategy.refines and self.weighting is WeightMode.LEARNED:
            raise InputError(f"{asked} needs weighting='uniform' or 'final'; got 'learned'.")
        if self.inner_reg.learned and self.weighting is WeightMode.UNIFORM:
            raise InputError(
                "inner_reg='learned' needs weighting='learned' or 'final'; got 'uniform'."
            )
        if not (self.smooth_labels.plain or self.squared):
            raise InputError(
                "smooth_labels=True needs the squared error; got the loss "
                f"{self.loss.name}. Use smooth_labels=False."
            )
        if self.quotas is not None and not strategy.keeps_quotas:
            raise InputError(f"quotas need strategy='greedy' or 'exchange'; got {asked}.")

    def _select(self, request: Request) -> Coreset:
        selector, part, sample = self._restrict(request)
        compared = self._compares_rows(request)
        prepared = selector._prepare_alone(part) if compared else None
        coreset = selector._search(part, prepared)
        if prepared is not None:
            with_kernel = model_of(self.kernel) == "any"
            coreset = selector._with_better_rows(coreset, part, prepared, with_kernel)
        if sample is not None:
            data = request.data
            notes = (sample.note(len(data)), *coreset.provenance.notes)
            own = {"rows": len(data), "fingerprint": data.fingerprint(), "notes": notes}
            coreset = replace(coreset.with_details(own), indices=sample.candidates[coreset.indices])
        return selector._with_two_classes(coreset, request)

    def _restrict(self, request: Request) -> tuple[Self, Request, sampling.Sample | None]:
        """Resolve unset choices, and restrict a request on large data to a sample."""
        data, start = request.data, request.start
        with request.runtime.apply(), request.clock.running():
            # One kernel for all rows, not only for the candidates.
            selector = self.resolve_defaults(data, request.size, start.coreset)
            sample = selector.draw_candidates(data, request.size, request.seed, start.points)
        if sample is None:
            return selector, request, None
        warnings.warn(sample.note(len(data)), LargeDataWarning, stacklevel=5)
        part = replace(
            request,
            data=data[sample.candidates],
            outer=sample.objective_data(data) if request.outer is None else request.outer,
            start=replace(start, points=np.searchsorted(sample.candidates, start.points).tolist()),
        )
        if isinstance(selector.smooth_labels, Smoothed) and request.outer is None:
            smoothed = replace(selector.smooth_labels, smooth_outer=True)
            selector = replace(selector, smooth_labels=smoothed)
        return selector, part, sample

    def resolve_defaults(self, data: Dataset, size: int, previous: Coreset | None = None) -> Self:
        found = self
        if any(getattr(self, name).unset for name in PAPER_CHOICES):
            targets = read_labels(self, data, None)[0]
            unset = self.strategy.unset and self.quotas is None
            classes = 0 if targets.classes is None else len(targets.classes)
            means = False
            if unset and needs_every_class(targets, data.weights, size):
                means = size <= CLASS_MEANS.get(model_of(self.kernel), 0) * classes
                kernel = mark_automatic(self.kernel, class_means=means)
                found = replace(self, quotas=greedy.EveryClass(), kernel=kernel)
            all_scored = self.candidates is None and self.first is First.BEST
            choices = best_choices(classes > 0, len(data), all_scored, means)
            found = found._fill_unset(choices)
        count, width = len(data), math.prod(data.x.shape[1:])
        large = count > sampling.EXACT_ROWS and sampling.holds_features(count, width)
        if large and not self.exact and needs_choice(found.kernel):
            found = replace(found, kernel=mark_automatic(found.kernel, large=True))
        kernel = found.choose_kernel(data, size, previous)
        return found if kernel is found.kernel else replace(found, kernel=kernel)

    def _fill_unset(self, wanted: Mapping[str, Any]) -> Self:
        """Resolve unset choices as ``wanted`` if the other settings allow it, else as the paper."""
        found = self
        for name in PAPER_CHOICES:
            if getattr(found, name).unset:
                try:
                    found = replace(found, **{name: wanted[name]})
                except InputError:
                    found = replace(found, **{name: PAPER_CHOICES[name]})
        return found

    def fill_as_paper(self) -> BilevelSelector:
        """Resolve unset targets, strategy and rule as the paper does.

        Returns
        -------
        BilevelSelector
            With the same kernel.
        """
        return self._fill_unset(PAPER_CHOICES)

    def for_memory(self) -> BilevelSelector:
        found = self
        if needs_choice(found.kernel):
            # The best kernel for a part of a problem may not suit the whole.
            found = replace(found, kernel=mark_automatic(found.kernel, in_part=True))
        if found.strategy.unset and found.quotas is None:
            found = replace(found, strategy=Greedy(), quotas=greedy.BalancedIfClasses())
        return found.fill_as_paper()

    def for_classes(self, classes: Sequence[Label]) -> BilevelSelector:
        if self.task is Task.REGRESSION or self.classes is not None:
            return self
        known = list(labels_in(classes) or ())
        if len(known) == 1:  # add a second class that never occurs
            known.append(_different_label(known[0]))
        return replace(self, classes=tuple(known))

    def as_bilevel(
        self, data: Dataset, outer: Dataset | None = None
    ) -> tuple[BilevelSelector, Dataset, Dataset | None]:
        return self, data, outer

    def draw_candidates(
        self, data: Dataset, size: int, seed: int, keep: Sequence[int] = ()
    ) -> sampling.Sample | None:
        """Draw the candidates and objective rows of large data; None if all rows are used.

        Parameters
        ----------
        data : Dataset
            The rows.
        size : int
            Number of points to select.
        seed : int
            Seed of the draw.
        keep : sequence of int
            Rows that must be candidates.

        Returns
        -------
        Sample or None
            None if the rows are few, the kernel has finite features, or ``exact`` is set.
        """
        few = len(data) <= sampling.EXACT_ROWS
        if self.exact or few or self.kernel.precomputed or is_sparse(data.x):
            return None
        if self._has_features(data):
            return None
        targets, _ = read_labels(self, data, None)
        sample = sampling.draw_sample(data, targets, size, seed, np.array(keep, dtype=int))
        return sample if len(sample.candidates) < len(data) else None

    def _has_features(self, data: Dataset) -> bool:
        """Whether the kernel is a product of feature vectors that are few and short enough."""
        if not sampling.holds_features(len(data), 1):
            return False
        rows = data.x[:FIRST_ROWS]
        features = self.kernel.fit(rows).features(as_tensor(rows[:1]).double())
        return features is not None and sampling.holds_features(len(data), features.shape[1])

    def _prepare(self, request: Request) -> Prepared:
        capacity, runtime = self._greedy_size(request), request.runtime
        return prepare(self, request.data, request.outer, capacity, request.seed, runtime)

    def _prepare_alone(self, request: Request) -> Prepared:
        """Prepare for several searches."""
        clock, runtime = request.clock, request.runtime
        line = ProgressLine(runtime.progress, clock, self._greedy_size(request), "selecting")
        with runtime.apply(), clock.running(), line:
            return self._prepare(request)

    def _greedy_size(self, request: Request) -> int:
        """Return how many points the search takes at first."""
        return self.strategy.greedy_size(request.size, int((request.data.weights > 0).sum()))

    def _search(self, request: Request, prepared: Prepared | None = None) -> Coreset:
        """Select from the rows of a request, all of which are candidates."""
        start, clock, runtime = request.start, request.clock, request.runtime
        line = ProgressLine(runtime.progress, clock, self._greedy_size(request), "selecting")
        with runtime.apply(), clock.running(), line:
            prepared = prepared or self._prepare(request)
            known = self._provenance(prepared, request.seed, clock)
            before = start.coreset
            if before is not None and not before.provenance.same_configuration(known):
                # its objectives are those of another problem
                request = replace(request, start=replace(start, coreset=None))
            rule = self.rule.with_reference(partial(prepared.losses_of_all, request.seed))
            assembly = self._run(prepared, rule, request, line)
            run = assembly.run
            learned = assembly.problem.regulariser
            prepared = replace(prepared, problem=replace(prepared.problem, regulariser=learned))
            provenance = replace(
                known,
                inner_reg=learned.value,
                seconds=clock.seconds,
                empty_objective=run.empty_objective,
                notes=(*known.notes, *assembly.notes),
            )
            details = self.details(prepared) | assembly.details
            objectives = np.array(run.objectives)
            points = run.indices, run.weights, request.data.ids[run.indices], objectives
            return verify_coreset(
                prepared, Coreset(*points, *assembly.outcome, provenance, details)
            )

    def select_contexts(
        self,
        data: Dataset,
        size: int,
        count: int,
        *,
        random_state: RandomState = 0,
        runtime: Runtime | None = None,
    ) -> list[Array]:
        """Select several sets of points whose averaged predictions are best.

        If the sets so far predict f_1, …, f_{k-1}, the average with a k-th one has the squared
        error ‖y − (f_1 + … + f_k)/k‖² = ‖y + Σ_{j<k}(y − f_j) − f_k‖²/k². So the k-th set has the
        labels plus the errors of the earlier ones as outer targets; its inner problem fits the
        labels as they are. Half of every set after the first is drawn at random, in the shares of
        the classes. A point is in a second set only if few others are left.

        Parameters
        ----------
        data : Dataset
            The points to select from.
        size : int
            Number of points of each set.
        count : int
            Number of sets.
        random_state : int, Generator, RandomState or None
            Seed for all random draws.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        list of array
            Row numbers of each set, in the order of selection.

        Raises
        ------
        InputError
            If an argument is invalid, or a loss is not the squared error.
        TimeLimitError
            If ``max_seconds`` is reached before the last set is complete.
        """
        if not self.squared:
            raise InputError(f"loss={self.loss.name!r}: contexts need the squared error.")
        runtime = runtime or Runtime()
        # one line for all contexts: the objectives of single searches grow with the errors so far
        context = Context(runtime=replace(runtime, progress=False))
        request = self._request(data, size, None, (), random_state, context)
        line = ProgressLine(runtime.progress, request.clock, count, "selecting contexts")
        selector, request, sample = self._restrict(request)
        rows = np.arange(len(data)) if sample is None else sample.candidates
        found: list[Array] = []
        with line:
            with request.runtime.apply(), request.clock.running():
                prepared = selector._prepare(request)
            problem, left = prepared.problem, torch.zeros(())
            used = np.zeros(len(rows), dtype=bool)
            for number in range(1, count + 1):
                if (
                    prepared.counted & ~prepared.contradicted & ~used
                ).sum() < LEAST_UNUSED * request.size:
                    used[:] = False  # too few rows, such as those of one class, leave no choice
                aimed = replace(problem, outer_targets=problem.outer_targets + left)
                one = replace(prepared, problem=aimed, contradicted=prepared.contradicted | used)
                chosen, begun = selector, request
                if found:
                    chosen, begun = selector._begin_context(request, one, number)
                searched = chosen._search_context(begun, one, f"{number} of {count}")
                picked = selector._with_two_classes(searched, request).indices
                used[picked] = True
                found.append(rows[picked])
                left = left + problem.outer_targets - prepared.fit(picked.tolist()).predictions
                line.update(number)
        return found

    def _begin_context(
        self, request: Request, prepared: Prepared, number: int
    ) -> tuple[BilevelSelector, Request]:
        """Begin a context with random rows; classes have the same shares as in the data."""
        random, targets = int(RANDOM_SHARE * request.size), prepared.targets
        if not random:
            return self, request
        strata, left = sampling.strata_of(targets), prepared.selectable(request.size)
        shares = np.bincount(strata[prepared.counted])
        counts = np.bincount(strata[left], minlength=len(shares))
        eligible = in_id_order(np.flatnonzero(left), prepared.data.ids)
        rng = np.random.default_rng((request.seed, number))
        drawn = sampling.draw_stratified(strata, eligible, random, shares, rng)
        begun = replace(request, start=Start(drawn.tolist(), [1.0] * random))
        if targets.classes is None or self.quotas is not None or not self.strategy.keeps_quotas:
            return self, begun
        caps = np.maximum(
            sampling.allocate(counts, request.size, int(request.size >= len(shares)), shares),
            np.bincount(strata[drawn], minlength=len(shares)),
        )
        most = dict(zip(targets.classes.tolist(), caps.tolist(), strict=True))
        return replace(self, quotas=greedy.AtMost(most)), begun

    def _search_context(self, request: Request, prepared: Prepared, place: str) -> Coreset:
        """Select one context; raise if it was interrupted or the time limit ended it."""
        with suppress(TimeLimitError):
            found = self._search(request, prepared)
            if found.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            if found.status.whole:
                return found
        raise TimeLimitError(
            f"max_seconds={request.clock.max_seconds:g} was reached in context {place}; raise "
            "max_seconds, or ask for fewer or smaller contexts."
        )

    def _run(
        self, prepared: Prepared, rule: Rule, request: Request, line: ProgressLine
    ) -> Assembly:
        """Find points and weights; learned weights are compared with weights learned at the end."""
        if self.weighting is not WeightMode.LEARNED:
            return self._run_strategy(prepared, rule, request, line)
        # Which greedy path ends lower is known only after both. The path of uniform weights comes
        # first, because it is cheaper, and is the fallback if the search ends early.
        selector, quiet = replace(self, weighting=WeightMode.FINAL), line
        if line.callback is not None:  # the points of this path are not reported
            quiet = ProgressLine(False, request.clock, line.total, line.label)
        begun = replace(request, start=replace(request.start, coreset=None))
        final = selector._run_strategy(prepared, rule, begun, quiet)
        if not final.outcome.status.whole:
            return final
        try:
            learned = self._run_strategy(prepared, rule, request, line)
        except (KeyboardInterrupt, TimeOver) as reason:
            interrupted = isinstance(reason, KeyboardInterrupt)
            final.outcome = greedy.unrefined_outcome(WHILE_LEARNING, interrupted)
            return final
        status = learned.outcome.status
        if status.whole or len(learned.run.indices) >= learned.size:
            at_end, after_every = final.run.objectives[-1], learned.run.objectives[-1]
            if after_every <= at_end + EQUAL * abs(at_end):
                return learned
            final.notes.append(
                "weights were learned once, at the end, because this gives the lower objective: "
                f"{at_end:.6g}, and {after_every:.6g} with weights learned after every row"
            )
        if not status.whole:
            interrupted = status is Status.INTERRUPTED
            final.outcome = greedy.unrefined_outcome(WHILE_LEARNING, interrupted)
        return final

    def _run_strategy(
        self, prepared: Prepared, rule: Rule, request: Request, line: ProgressLine
    ) -> Assembly:
        """Run the strategy with an engine that meets its requirements."""
        problem, start, clock = prepared.problem, request.start, request.clock
        plan = self.plan(prepared, line.total, request.seed)
        requirements = self.requirements(plan.size, not start.points, prepared.solvers)
        weight_updater = None
        if requirements.reweighs:
            reweighable = choose_reweighable(problem, plan.size, prepared.solvers)
            weight_updater = WeightUpdater(reweighable, self.optimiser)
        engine = choose(problem, requirements) if weight_updater is None else weight_updater.engine
        run = greedy.Run(engine, rule, plan, clock, line, weight_updater)
        assembly = Assembly(problem, requirements, run, start, request.size, clock)
        assembly.outcome = self.strategy.assemble(assembly)
        assembly.problem = engine.problem  # with the ρ that was learned
        interrupted = assembly.outcome.status is Status.INTERRUPTED
        if self.weighting is WeightMode.FINAL and not interrupted:
            assembly.optimise_weights(self.optimiser)
        return assembly

    def _compares_rows(self, request: Request) -> bool:
        """Whether simple methods can answer this request, and no part of the search was named."""
        unset = all(getattr(self, name).unset for name in PAPER_CHOICES)
        uniform = self.weighting is WeightMode.UNIFORM
        plain = unset and uniform and self.squared and self.quotas is None
        asked = request.outer or request.start.points
        return plain and not asked and model_of(self.kernel) in ("any", "neighbours")

    def _with_better_rows(
        self, coreset: Coreset, request: Request, prepared: Prepared, with_kernel: bool
    ) -> Coreset:
        """Return the coreset of a simple method's rows if they are better."""
        data, targets = request.data, read_labels(self, request.data, None)[0]
        if coreset.status is not Status.COMPLETE or targets.classes is None:
            return coreset
        if self.prior is not Prior.DATA:
            weights = weigh_classes(torch.from_numpy(data.weights), targets, self.prior)
            data = data.with_columns(sample_weight=weights.numpy())
        weighted = replace(request, data=data)
        try:
            with request.runtime.apply():
                kernel = prepared.kernel if with_kernel else None
                rows, note = find_better_rows(kernel, weighted, targets.values, coreset)
            if not rows:
                return coreset
            quiet = Context(runtime=replace(request.runtime, progress=False))
            start = Start(rows, [1.0] * len(rows))
            found = self._search(replace(request, context=quiet, start=start), prepared)
        except (TimeLimitError, KeyboardInterrupt):  # the coreset is complete without it
            return coreset
        if found.status is not Status.COMPLETE:
            return coreset
        return found.with_details({"notes": (*found.provenance.notes, note)})

    def _with_two_classes(self, coreset: Coreset, request: Request) -> Coreset:
        """Replace a complete coreset of a single class, which trains no classifier.

        The intercept makes this rare: it remains for very few points of a rare class.
        """
        y = np.asarray(request.data.y)
        labels = np.unique(y[coreset.indices]).tolist()
        if (
            coreset.provenance.classes is None
            or len(coreset) < 2
            or len(labels) > 1
            or not coreset.status.whole
            or request.start.points
            or self.quotas is not None
            or self.kernel_with_intercept is self.kernel
            or len(np.unique(y[request.data.weights > 0])) < 2
        ):
            return coreset
        quotas = as_quotas({labels[0]: len(coreset) - 1})
        selector = replace(self, quotas=quotas, strategy=Greedy())
        found = selector._select(replace(request, size=len(coreset)))
        note = f"classes: all rows were {labels[0]!r}, so one was replaced"
        return found.with_details({"notes": (*found.provenance.notes, note)})

    def requirements(
        self, capacity: int, repeats: bool = False, solvers: Solvers | None = None
    ) -> Requirements:
        """Return the requirements on an engine.

        Parameters
        ----------
        capacity : int
            Number of points the engine must hold.
        repeats : bool
            Whether the selection begins without points.
        solvers : Solvers, optional
            Solvers of the inner problem.

        Returns
        -------
        Requirements
            To choose from the table of engines.
        """
        own_solvers = self.inner is not None or self.linear is not None
        one_by_one = self.strategy.points_per_step == 1 and self.quotas is None
        return Requirements(
            capacity,
            frozenset({self.rule.quantity}),
            self.closed_form,
            exact=self.strategy.exact,
            reweighs=self.weighting is WeightMode.LEARNED,
            repeats=repeats and one_by_one and self.candidates is None and not own_solvers,
            solvers=solvers or Solvers(),
        )

    def plan(self, prepared: Prepared, size: int, seed: int) -> greedy.Plan:
        """Return which points may be taken at each step.

        Parameters
        ----------
        prepared : Prepared
            The problem with its points.
        size : int
            Number of points to take.
        seed : int
            Seed for all random draws.

        Returns
        -------
        Plan
            For the greedy loop.
        """
        return greedy.Plan(
            size,
            prepared.data.ids,
            prepared.selectable(size),
            seed,
            self.first is First.RANDOM,
            self.candidates,
            self.strategy.points_per_step,
            None if self.quotas is None else self.quotas.of(prepared.targets),
        )

    def _provenance(self, prepared: Prepared, seed: int, clock: Clock) -> Provenance:
        """Return the provenance before the first point is selected."""
        settings: tuple[object, ...] = () if self.smooth_labels.plain else (self.smooth_labels,)
        settings = settings if self.prior is Prior.DATA else (*settings, self.prior)
        quotas = () if self.quotas is None or not self.quotas.note else (self.quotas.note,)
        return Provenance(
            method=self.name,
            rows=len(prepared.data),
            seed=seed,
            seconds=clock.seconds,
            preparation_seconds=clock.seconds,
            fingerprint=prepared.data.fingerprint(),
            configuration=prepared.configuration(self.weighting.value, *settings),
            task=prepared.targets.task,
            loss=prepared.problem.inner_loss.name,
            kernel=prepared.kernel.name,
            inner_reg=prepared.regulariser.value,
            per_point=not prepared.regulariser.constant,
            automatic=self.inner_reg.automatic,
            classes=labels_in(prepared.targets.classes),
            notes=(*notes_of(prepared.kernel), *prepared.notes, *quotas),
        )

    def details(self, prepared: Prepared) -> dict[str, Any]:
        """Return settings for display, in addition to the provenance.

        Parameters
        ----------
        prepared : Prepared
            The problem that was solved.

        Returns
        -------
        dict
            For the details of a coreset.
        """
        problem = prepared.problem
        like = problem.train.like
        solvers = (prepared.solvers.inner, prepared.solvers.linear, self.optimiser)
        return trials_of(prepared.kernel) | {
            "kernel_parameters": repr(prepared.kernel),
            "solvers": repr(solvers),
            "outer_loss": problem.outer_loss.name,
            "weights": self.weighting.value,
            "rule": self.rule.name,
            "smooth_labels": self.smooth_labels.name,
            "candidates": self.candidates,
            "first": self.first.value,
            "operator": type(problem.train).__name__.lower(),
            "dtype": str(like.dtype).removeprefix("torch."),
            "device": str(like.device),
            "versions": versions(),
        }

    @contextmanager
    def _fit(
        self,
        data: Dataset,
        outer: Dataset | None,
        start: Start,
        seed: RandomState,
        runtime: Runtime | None,
    ) -> Iterator[tuple[Prepared, ImplicitEngine, Clock]]:
        """Fit the model on weighted points; inside the block the runtime and its clock apply."""
        runtime = runtime or Runtime()
        count, clock = len(start.points), Clock(runtime.max_seconds)
        with runtime.apply(), clock.running():
            selector = replace(self, kernel=self.choose_kernel(data, count, start.coreset))
            prepared = prepare(selector, data, outer, count, as_seed(seed), runtime, searches=False)
            yield prepared, prepared.fit(start.points, start.weights), clock

    @renamed_keywords()
    def reweight(
        self,
        data: Dataset,
        indices: Sequence[int],
        *,
        outer: Dataset | None = None,
        start: Numbers | None = None,
        random_state: RandomState = 0,
        runtime: Runtime | None = None,
    ) -> Coreset:
        """Optimise the weights of given points.

        Parameters
        ----------
        data : Dataset
            The data that contain them.
        indices : sequence of int
            Row numbers.
        outer : Dataset, optional
            A separate set on which the outer objective is measured.
        start : array, optional
            Initial weights, one per point; default: 1.
        random_state : int, Generator, RandomState or None
            Seed for all random draws.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        Coreset
            Its objective is never above that of the initial weights.

        Raises
        ------
        InputError
            If the points or the weights are invalid.
        NumericalError
            If the fit is not finite.
        """
        given = read_initial(indices, data, max(len(indices), 1), "indices", continues=False)
        if not given.points:
            raise InputError("indices must hold at least one row number; got none.")
        if start is not None:
            given = Start(given.points, as_weights(start, len(given.points), "start").tolist())
        seed = as_seed(random_state)
        with self._fit(data, outer, given, seed, runtime) as (prepared, engine, clock):
            provenance = self._provenance(prepared, seed, clock)
            own = {"weights": "learned", "start_objective": engine.objective}
            self.optimiser.optimise(as_reweighable(engine), final=True, clock=clock)
            prepared = replace(prepared, problem=engine.problem)
            learned = prepared.regulariser.value
            provenance = replace(provenance, inner_reg=learned, seconds=clock.seconds)
            chosen, weights = engine.positive_points()
            points = chosen, weights, data.ids[chosen], np.array([engine.objective])
            outcome = greedy.weights_outcome(len(chosen), len(given.points), clock)
            details = self.details(prepared) | own
            return verify_coreset(prepared, Coreset(*points, *outcome, provenance, details))

    @renamed_keywords()
    def influence(
        self,
        data: Dataset,
        coreset: Coreset | Sequence[int],
        *,
        outer: Dataset | None = None,
        random_state: RandomState = 0,
        runtime: Runtime | None = None,
    ) -> Array:
        """Compute how much more weight on each row would help the model fitted on a coreset.

        Parameters
        ----------
        data : Dataset
            The points.
        coreset : Coreset or sequence of int
            The points on which the model is fitted.
        outer : Dataset, optional
            A separate set on which the outer objective is measured.
        random_state : int, Generator, RandomState or None
            Seed for all random draws.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        array
            −∂G/∂w_k for every point k.
        """
        start = read_initial(coreset, data, len(data), "coreset", continues=False)
        with self._fit(data, outer, start, random_state, runtime) as (_, engine, _):
            result: Array = -engine.quantity(Quantity.GRADIENT).double().cpu().numpy()
            return result

    @renamed_keywords()
    def predict(
        self,
        data: Dataset,
        x: Matrix,
        coreset: Coreset | Sequence[int] | None = None,
        *,
        random_state: RandomState = 0,
        runtime: Runtime | None = None,
    ) -> Array:
        """Predict other points by the proxy fitted on a coreset, or on all data.

        Parameters
        ----------
        data : Dataset
            The points with their labels.
        x : array
            Rows to predict.
        coreset : Coreset or sequence of int, optional
            The points on which the model is fitted; default: all of ``data``.
        random_state : int, Generator, RandomState or None
            Seed for all random draws.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        array
            Labels or targets, one for each row of ``x``.

        Raises
        ------
        InputError
            If the rows of ``x`` have another shape than those of ``data``.
        """
        rows = as_features(x, "x")
        read_labels(self, data, None)  # refuses data without labels
        if rows.shape[1:] != data.x.shape[1:]:
            raise InputError(
                f"x has rows of shape {rows.shape[1:]}; data has rows of {data.x.shape[1:]}."
            )
        if coreset is None:
            points = np.flatnonzero(data.weights > 0)
            # Weights of mean 1, as in the outer objective.
            start = Start(points.tolist(), scale_to_mean_one(data.weights[points]).tolist())
        else:
            start = read_initial(coreset, data, len(data), "coreset", continues=False)
        # The rows are an outer set with arbitrary labels, which predictions do not use.
        unknown = Dataset(rows, np.repeat(np.asarray(data.y)[:1], len(rows), axis=0))
        with self._fit(data, unknown, start, random_state, runtime) as (prepared, engine, _):
            return prepared.decode(engine.predictions)


def _different_label(label: Any) -> Any:
    """Return a different label of the same type."""
    if isinstance(label, bool):
        return not label
    return f"not {label}" if isinstance(label, str) else label + 1


@renamed_keywords()
def exclude_suspect_labels(
    data: Dataset,
    selector: BilevelSelector | None = None,
    folds: int = 5,
    *,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
) -> Dataset:
    """Set the weight of suspect labels to 0, by cross-validation.

    A label is suspect if it differs from the prediction of a proxy fitted on the other folds. Such
    points are neither selected nor counted in the objective. This also drops points that the proxy
    itself gets wrong: use it if labels are worse than the proxy. It costs ``folds`` fits.

    Parameters
    ----------
    data : Dataset
        Rows with class labels.
    selector : BilevelSelector, optional
        Kernel, loss and regulariser of the proxy; by default the NTK with the squared error.
    folds : int
        Number of folds.
    random_state : int, Generator, RandomState or None
        Seed of the split.
    runtime : Runtime, optional
        Device, precision and limits.

    Returns
    -------
    Dataset
        The same rows with other weights.

    Raises
    ------
    InputError
        If there are no class labels, or the proxy agrees with none.

    Examples
    --------
    >>> x = np.r_[np.linspace(0, 1, 20), np.linspace(5, 6, 20)][:, None]
    >>> y = np.repeat([0, 1], 20)
    >>> y[3] = 1
    >>> kept = exclude_suspect_labels(Dataset(x, y), BilevelSelector(kernel="rbf", inner_reg=0.1))
    >>> np.flatnonzero(kept.weights == 0).tolist()
    [3]
    """
    selector = selector or BilevelSelector("ntk", intercept=0.0)
    check_type("selector", selector, BilevelSelector, "a BilevelSelector")
    selector = selector.fill_as_paper()
    if selector.kernel.precomputed:
        raise InputError("a precomputed matrix cannot be split into folds; give x and a kernel.")
    known = None if selector.classes is None else np.asarray(selector.classes)
    if data.y is None or read_targets(data.y, selector.task, known).classes is None:
        raise InputError(
            "exclude_suspect_labels needs class labels; give y with integers, strings or booleans."
        )
    by_id = in_id_order(np.flatnonzero(data.weights > 0), data.ids)
    check_integer("folds", folds, 2, len(by_id))
    labels = data.y.reshape(len(data))
    selector = selector.for_classes(np.unique(labels).tolist())
    selector = selector.resolve_defaults(data, len(by_id))  # one kernel for all folds
    weights = np.array(data.weights, dtype=np.float64)
    seed = as_seed(random_state)
    for part in np.array_split(np.random.default_rng(seed).permutation(by_id), folds):
        rest = by_id[~np.isin(by_id, part)]
        guesses = selector.predict(data[rest], data.x[part], random_state=seed, runtime=runtime)
        weights[part[guesses != labels[part]]] = 0
    if not (weights > 0).any():
        raise InputError("the model contradicts every label; use another kernel or inner_reg.")
    return data.with_columns(sample_weight=weights)
