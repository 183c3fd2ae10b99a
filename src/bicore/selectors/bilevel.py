"""Coresets by bilevel optimisation: the configuration, and a selection from data to coreset."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicore.bilevel.aims import Aims, Smoothed
from bicore.bilevel.contract import Demand, Quantity, Scoring
from bicore.bilevel.engines import choose, reweighable, supported
from bicore.bilevel.greedy import BalancedIfClasses, Ending, Plan, QuotaRule, Run
from bicore.bilevel.kernel_choice import in_part, is_open, notes_of, trials_of
from bicore.bilevel.prepare import Prepared, Prior, Proxy, Room, prepare, targets_of
from bicore.bilevel.problem import Regulariser
from bicore.bilevel.rules import Rule
from bicore.bilevel.solvers.inner import InnerSolver
from bicore.bilevel.solvers.linear import LinearSolver
from bicore.bilevel.solvers.weights import ProjectedGradient, Weighing, WeightMode, WeightOptimiser
from bicore.bilevel.strategies.base import Assembly, Greedy, Strategy
from bicore.bilevel.verification import Verification, verify_objective
from bicore.coreset import Coreset, Provenance, Status, labels_in
from bicore.data import Array, Dataset, Task, as_tensor
from bicore.errors import InputError, LargeDataWarning
from bicore.kernels.base import Kernel
from bicore.losses import Loss
from bicore.picking import First, Start, as_seed, as_size, as_start, whole_number
from bicore.runtime import Clock, Context, ProgressLine, Runtime, TimeOver, versions
from bicore.selectors import names, proxy_model
from bicore.selectors.base import Selector, need_labels
from bicore.selectors.final_weights import UNLEARNT, better, optimised, reweighted
from bicore.selectors.open_choices import PAPER, Choices, best
from bicore.selectors.sampling import (
    EXACT_ROWS,
    FEATURE_NUMBERS,
    FEATURE_ROWS,
    Sample,
    draw_sample,
)
from bicore.sparse import is_sparse

#: Rows from which the width of a kernel's features is read.
FIRST_ROWS = 1000


@dataclass(frozen=True, eq=False)
class _Request:
    """The arguments of a selection, checked."""

    data: Dataset
    outer: Dataset | None
    start: Start
    size: int
    seed: int


@dataclass(frozen=True, eq=False)
class _Order:
    """What one selection is asked for."""

    prepared: Prepared
    rule: Scoring
    start: Start
    #: Whether the objectives of the points given are those of this very problem.
    same_problem: bool
    size: int
    seed: int
    clock: Clock
    line: ProgressLine

    def aside(self) -> _Order:
        """The same on the way to another answer: nobody is called for its points."""
        line = self.line
        if line.callback is not None:
            line = ProgressLine(False, self.clock, line.total, line.label)
        return replace(self, same_problem=False, line=line)


@dataclass(frozen=True, init=False)
class BilevelSelector(Selector):
    """Chooses the points on which a kernel model, fitted to them alone, predicts all the data best.

    Names are looked up when it is built; its fields hold objects. The objective of what it selects
    is computed again in float64. If the two differ by more than the tolerance of
    :mod:`bicore.bilevel.verification`, the status is ``"unverified"``, the second value is reported
    and a :class:`~bicore.NumericalWarning` says so.

    Parameters
    ----------
    kernel : str, Kernel or callable
        The proxy for the model to be trained: "ntk" for networks on vectors, "cntk" for images,
        "rbf", "linear" for embeddings, "precomputed" when x is a Gram matrix; or any k(a, b).
        "auto" for the exponential kernel on columns as given or standardised, by how well random
        subsets of the requested size predict the rest: see :mod:`bicore.bilevel.kernel_choice`.
    loss : str, Loss or callable
        Of the inner problem, and of the outer one unless ``outer_loss`` is given; or a function of
        (prediction, target).
    outer_loss : str, Loss or callable, optional
        Of the outer problem.
    inner_reg : float, Relative, PerPoint or "auto"
        The regulariser ρ, or a share of the mean of k(x, x) as ``"relative:0.01"``; see
        :mod:`bicore.bilevel.regularisation` for the automatic rule.
    weights : "binary", "learnt" or "final"
        Weights of 1; weights optimised after every point; or once, when all points are chosen.
        Learnt weights never end above the other two: where points chosen with weights of 1 serve
        better, those are kept, and the coreset's notes say so.
    rule : "gradient", "gain", "first-order", "reducible" or Rule
        Score by the implicit gradient; (squared error, binary weights) by the exact decrease of the
        objective; by the gradient with the identity in place of the inverse Hessian (GLISTER); or
        take the point whose loss under the coreset's model exceeds most its loss under the model of
        all data (reducible loss, CSReL).
    candidates : int, optional
        Score a random sample of this many points at each step instead of all.
    strategy : "greedy", "batches", "exchange", "elimination", "simplex" or Strategy
        One point at a time; several at a time; greedy and then exact exchanges; too many, of which
        the cheapest leave again; too many, of which weights under an L½ penalty leave some.
        Exchange and elimination are for the squared error; these two and the simplex need a
        constant regulariser.
    first : "best" or "random"
        Let the rule choose the first point, or draw it as the paper does.
    quotas : "balanced" or mapping, optional
        One of every class a round, or the most points of each class by its label.
    task : "auto", "classification" or "regression"
        How y is read.
    classes : sequence, optional
        The set of classes, where ``data`` may lack some of them.
    inner : InnerSolver, optional
        Fits the inner problem; the default suits the loss.
    linear : LinearSolver, optional
        Solves the systems of its derivative.
    optimiser : WeightOptimiser, optional
        Learns weights; by default :class:`bicore.bilevel.ProjectedGradient`.
    targets : "given", "smoothed" or Aims
        What the objective compares predictions with: the labels; or (squared error) the mean of a
        label and of what the other points say of it, see :class:`bicore.bilevel.aims.Smoothed`.
        "auto" keeps the labels of classes and leaves out points whose label the others deny, and
        smooths the targets of a regression.
    prior : "data" or "equal"
        Whether classes count in the objective as often as they occur, or all the same.
    intercept : float or "auto"
        Weight of a constant feature, as a share of the mean of k(x, x); 0 for none. "auto", which
        :func:`bicore.select` uses, is 1 for the squared error, whose labels are centred, and 0 for
        network kernels and other losses.
    exact : bool
        Whether all rows are candidates and measure the objective, however many there are. If
        False, a stratified sample is used beyond 5,000 rows, unless the kernel has finite features.

    Notes
    -----
    ``kernel``, ``rule``, ``strategy`` and ``targets`` may be "auto", as :func:`bicore.select` and
    the command have them: decided when the data are seen, by what served best on many data sets
    (``docs/choosing.md``). The defaults here are those of the paper. A memory decides them by what
    served memories best: :meth:`for_memory`; an open strategy without quotas then takes one point
    of every class a round.

    Examples
    --------
    >>> from bicore import BilevelSelector, Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> BilevelSelector(kernel="rbf", inner_reg=0.1).select(Dataset(x, x[:, 0] > 5), 2).indices
    array([1, 8])
    """

    kernel: Kernel
    loss: Loss
    outer_loss: Loss | None
    inner_reg: Regulariser
    weights: WeightMode
    rule: Rule
    candidates: int | None
    strategy: Strategy
    first: First
    quotas: QuotaRule | None
    task: Task
    classes: tuple[Any, ...] | None
    inner: InnerSolver | None
    linear: LinearSolver | None
    optimiser: WeightOptimiser
    targets: Aims
    prior: Prior
    intercept: float | None
    exact: bool

    needs_labels = True

    def __init__(
        self,
        kernel: str | Kernel | Callable[..., Any] = "ntk",
        loss: str | Loss | Callable[..., Any] = "squared",
        outer_loss: str | Loss | Callable[..., Any] | None = None,
        inner_reg: str | float | Regulariser = "auto",
        weights: str = "binary",
        rule: str | Rule = "gradient",
        candidates: int | None = None,
        strategy: str | Strategy = "greedy",
        first: str = "best",
        quotas: str | Mapping[Any, int] | QuotaRule | None = None,
        task: str = "auto",
        classes: Sequence[Any] | None = None,
        inner: InnerSolver | None = None,
        linear: LinearSolver | None = None,
        optimiser: WeightOptimiser | None = None,
        targets: str | Aims = "given",
        prior: str | Prior = "data",
        intercept: str | float | None = 0.0,
        exact: bool = True,
    ) -> None:
        resolved = {
            "kernel": names.as_kernel(kernel),
            "loss": names.as_loss(loss),
            "outer_loss": None if outer_loss is None else names.as_loss(outer_loss, "outer_loss"),
            "inner_reg": names.as_regulariser(inner_reg),
            "weights": names.as_weight_mode(weights),
            "rule": names.as_rule(rule),
            "candidates": _as_candidates(candidates),
            "strategy": names.as_strategy(strategy),
            "first": names.as_first(first),
            "quotas": names.as_quotas(quotas),
            "task": names.as_task(task),
            "classes": labels_in(classes),
            "inner": inner,
            "linear": linear,
            "optimiser": optimiser or ProjectedGradient(),
            "targets": names.as_aims(targets),
            "prior": names.as_prior(prior),
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
        # Of learnt weights either of two paths may be kept, and at every size another.
        return self.strategy.ordered and self.weights is not WeightMode.LEARNT

    @property
    def name(self) -> str:
        return self.rule.method

    @property
    def proxy(self) -> Proxy:
        """The model that the points are chosen for."""
        outer = self.loss if self.outer_loss is None else self.outer_loss
        return Proxy(
            self.kernel,
            self.loss,
            outer,
            self.inner_reg,
            self.task,
            self.classes,
            self.inner,
            self.linear,
            self.targets,
            self.prior,
            self.intercept,
        )

    def demand(self, capacity: int, repeats: bool = False) -> Demand:
        """What its selection asks of an engine.

        Parameters
        ----------
        capacity : int
            How many points the engine must hold.
        repeats : bool
            Whether it begins without points.

        Returns
        -------
        Demand
            For the table of engines.
        """
        own_solvers = self.inner is not None or self.linear is not None
        one_by_one = self.strategy.together == 1 and self.quotas is None
        return Demand(
            capacity,
            frozenset({self.rule.quantity}),
            self.proxy.closed_form,
            exact=self.strategy.exact,
            reweighs=self.weights is WeightMode.LEARNT,
            repeats=repeats and one_by_one and self.candidates is None and not own_solvers,
        )

    def _check(self) -> None:
        """Refuse what no engine supports, in words that name the mend."""
        strategy = self.strategy
        if strategy.refines and not self.inner_reg.constant:
            raise InputError(
                f"strategy={strategy.name!r} needs a constant inner_reg; give a number or 'auto' "
                "in place of PerPoint."
            )
        if not supported(self.demand(1)):
            asked = f"strategy={strategy.name!r}"
            mend = "use strategy='batches' or 'greedy'"
            if self.rule.quantity is Quantity.GAIN:
                asked = f"rule={self.rule.name!r}"
                mend = "use rule='gradient'"
            raise InputError(
                f"{asked} is exact for the squared error with a constant inner_reg, binary or "
                f"final weights and the built-in solver only; {mend}."
            )
        if strategy.refines and self.weights is WeightMode.LEARNT:
            raise InputError(
                f"strategy={strategy.name!r} is for binary or final weights; use weights='final', "
                "or another strategy."
            )
        if not (self.targets.plain or self.proxy.squared):
            raise InputError(
                f"targets={self.targets.name!r} is for the squared error, and the loss is "
                f"{self.loss.name}; use targets='given'."
            )
        if self.quotas is not None and (strategy.refines or strategy.together > 1):
            raise InputError(
                f"quotas are kept point by point, and strategy={strategy.name!r} is not; use "
                "strategy='greedy'."
            )

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
        decided = self._decided(data)
        if decided is not self:
            return decided.select(
                data, size, outer=outer, initial=initial, rng=rng, context=context
            )
        runtime = (context or Context()).runtime
        clock = Clock(runtime.max_seconds)
        seed = as_seed(rng)
        count = as_size(size, int((data.weights > 0).sum()))
        request = _Request(data, outer, as_start(initial, data, count), count, seed)
        with runtime.applied(), clock.running():
            # One kernel for all rows, whichever of them are candidates.
            chooser = self.settled(data, count, request.start.coreset)
            sample = chooser.sample_for(data, count, seed, request.start.points)
        if sample is None:
            coreset = chooser._select(request, runtime, clock)
        else:
            coreset = chooser._select_from_sample(request, sample, runtime, clock)
        return chooser._with_two_classes(coreset, request, (context or Context()).within(clock))

    def sample_for(
        self, data: Dataset, size: int, seed: int, keep: Sequence[int] = ()
    ) -> Sample | None:
        """Draw the candidates and judging rows of large data; None if all rows are used.

        Parameters
        ----------
        data : Dataset
            The rows.
        size : int
            How many points are selected.
        seed : int
            Seed of the draw.
        keep : sequence of int
            Rows that must be candidates.

        Returns
        -------
        Sample or None
            None if the rows are few, the kernel has finite features, or ``exact`` is set.
        """
        if self.exact or len(data) <= EXACT_ROWS or self.kernel.precomputed or is_sparse(data.x):
            return None
        if self._has_features(data):
            return None
        targets, _ = targets_of(self.proxy, data, None)
        sample = draw_sample(data, targets, size, seed, np.array(keep, dtype=int))
        return sample if len(sample.candidates) < len(data) else None

    def _has_features(self, data: Dataset) -> bool:
        """Whether the kernel is a product of feature vectors that are few and short enough."""
        if len(data) > FEATURE_ROWS:
            return False
        rows = data.x[:FIRST_ROWS]
        features = self.kernel.fitted(rows).features(as_tensor(rows[:1]).double())
        return features is not None and features.shape[1] * len(data) <= FEATURE_NUMBERS

    def _select_from_sample(
        self, request: _Request, sample: Sample, runtime: Runtime, clock: Clock
    ) -> Coreset:
        """Select among the candidates of a sample; the answer names rows of all data."""
        data, start = request.data, request.start
        places = np.searchsorted(sample.candidates, start.points).tolist()
        part = replace(
            request,
            data=data[sample.candidates],
            outer=sample.judging(data) if request.outer is None else request.outer,
            start=replace(start, points=places),
        )
        chooser = self
        if isinstance(self.targets, Smoothed) and request.outer is None:
            chooser = replace(self, targets=replace(self.targets, smooth_outer=True))
        note = sample.note(len(data))
        warnings.warn(note, LargeDataWarning, stacklevel=3)
        found = chooser._select(part, runtime, clock)
        known = found.provenance
        return replace(
            found,
            indices=sample.candidates[found.indices],
            provenance=replace(
                known,
                rows=len(data),
                fingerprint=data.fingerprint(),
                notes=(note, *known.notes),
            ),
        )

    def _with_two_classes(self, coreset: Coreset, request: _Request, context: Context) -> Coreset:
        """Replace a complete answer from a single class, which trains no classifier.

        The intercept makes this rare: it remains for very few points of a rare class.
        """
        classes = coreset.provenance.classes
        data = request.data
        if (
            classes is None
            or data.y is None
            or len(coreset) < 2
            or not coreset.status.whole
            or request.start.points
            or self.quotas is not None
            or self.proxy.kernel_with_intercept is self.kernel
        ):
            return coreset
        labels = np.unique(data.y[coreset.indices])
        if len(labels) > 1 or len(np.unique(data.y[data.weights > 0])) < 2:
            return coreset
        quotas = names.as_quotas({labels.tolist()[0]: len(coreset) - 1})
        chooser = replace(self, quotas=quotas, strategy=PAPER.strategy)
        found = chooser.select(
            data, len(coreset), outer=request.outer, rng=request.seed, context=context
        )
        note = f"classes: all points were {labels.tolist()[0]!r}, so one was replaced"
        return found.annotated({"notes": (*found.provenance.notes, note)})

    def _select(self, request: _Request, runtime: Runtime, clock: Clock) -> Coreset:
        """Select from the rows of a request, all of which are candidates."""
        data, start, seed = request.data, request.start, request.seed
        available = int((data.weights > 0).sum())
        room = self.room(self.strategy.grown(request.size, available), len(data))
        line = ProgressLine(runtime.progress, clock, room.capacity, "selecting")
        with runtime.applied(), clock.running(), line:
            prepared = prepare(self.proxy, data, request.outer, room, seed, runtime)
            story = self._story(prepared, seed, clock)
            before = start.coreset
            same = before is not None and before.provenance.same_configuration(story)
            rule = self.rule.against(lambda: prepared.losses_of_all(seed))
            order = _Order(prepared, rule, start, same, request.size, seed, clock, line)
            assembly, ending = self._assembled(order)
            return self._coreset(prepared, assembly, ending, story)

    def _assembled(self, order: _Order) -> tuple[Assembly, Ending]:
        """The points and weights, before they are put into words."""
        if self.weights is not WeightMode.LEARNT:
            return self._followed(order)
        # Which greedy path ends lower cannot be told before both are walked: the one of unit
        # weights first, which is the cheaper, and what an early end falls back to.
        plain = replace(self, weights=WeightMode.FINAL)
        kept, ending = plain._followed(order.aside())
        if not ending.status.whole:
            return kept, ending
        try:
            own, own_ending = self._followed(order)
        except KeyboardInterrupt:
            return kept, UNLEARNT[Status.INTERRUPTED]
        except TimeOver:
            return kept, UNLEARNT[Status.OUT_OF_TIME]
        return better(kept, ending, own, own_ending)

    def _followed(self, order: _Order) -> tuple[Assembly, Ending]:
        """One way from no points, or those given, to all of them."""
        prepared = order.prepared
        capacity = self.strategy.grown(order.size, int(prepared.counted.sum()))
        demand = replace(self.demand(capacity, not order.start.points), solvers=prepared.solvers)
        run = self._run(order, demand)
        assembly = Assembly(
            prepared.problem, demand, run, order.start, order.same_problem, order.size, order.clock
        )
        ending = self.strategy.assemble(assembly)
        if self.weights is WeightMode.FINAL:
            ending = reweighted(assembly, ending, self.optimiser)
        return assembly, ending

    def room(self, capacity: int, points: int) -> Room:
        """The memory that its engines take beside the kernel matrix.

        Parameters
        ----------
        capacity : int
            How many points they hold.
        points : int
            How many there are to choose from.

        Returns
        -------
        Room
            For :func:`bicore.bilevel.prepare.prepare`.
        """
        rank_one_only = (
            self.proxy.closed_form
            and self.rule.quantity in (Quantity.GRADIENT, Quantity.GAIN)
            and self.weights is WeightMode.BINARY
            and not self.strategy.refines
            and not self.inner_reg.automatic
        )
        weighed = self.weights is not WeightMode.BINARY
        return Room(
            capacity,
            factors=2 if weighed else 1,
            reference=self.rule.compares,
            lean=rank_one_only,
            refining=self.strategy.effort(capacity, points, points),
        )

    def _run(self, order: _Order, demand: Demand) -> Run:
        """An empty engine with the rule and the plan by which it grows."""
        problem = order.prepared.problem
        weighing = None
        if demand.reweighs:
            weighing = Weighing(reweighable(problem, demand), self.optimiser)
        engine = choose(problem, demand) if weighing is None else weighing.engine
        plan = self.plan(order.prepared, demand.capacity, order.seed)
        return Run(engine, order.rule, plan, order.clock, order.line, weighing)

    def plan(self, prepared: Prepared, size: int, seed: int) -> Plan:
        """Which points may be taken at each step.

        Parameters
        ----------
        prepared : Prepared
            The problem with its points.
        size : int
            How many points are taken.
        seed : int
            Of what is drawn.

        Returns
        -------
        Plan
            For the greedy loop.
        """
        return Plan(
            size,
            prepared.ids,
            prepared.choosable(size),
            seed,
            self.first is First.RANDOM,
            self.candidates,
            self.strategy.together,
            None if self.quotas is None else self.quotas.of(prepared.targets),
        )

    def _story(self, prepared: Prepared, seed: int, clock: Clock) -> Provenance:
        """What is known before the first point."""
        fingerprint = prepared.data.fingerprint()
        return Provenance(
            method=self.name,
            rows=len(prepared.data),
            seed=seed,
            seconds=clock.seconds,
            preparation_seconds=clock.seconds,
            fingerprint=fingerprint,
            configuration=prepared.configuration(self.weights.value, *self._aimed()),
            task=prepared.targets.task,
            loss=prepared.problem.inner_loss.name,
            kernel=prepared.kernel.name,
            inner_reg=prepared.regulariser.value,
            per_point=not prepared.regulariser.constant,
            automatic=self.inner_reg.automatic,
            classes=labels_in(prepared.targets.classes),
            notes=(*notes_of(prepared.kernel), *prepared.notes),
        )

    def _aimed(self) -> tuple[object, ...]:
        """What decides the objective beside the proxy; nothing where that is the paper's."""
        aims = () if self.targets.plain else (self.targets,)
        return aims if self.prior is Prior.DATA else (*aims, self.prior)

    def _coreset(
        self, prepared: Prepared, assembly: Assembly, ending: Ending, story: Provenance
    ) -> Coreset:
        run = assembly.run
        checked = Verification(run.empty_objective)
        if run.objectives:
            checked = verify_objective(prepared, run.indices, run.weights, run.objectives[-1])
        provenance = replace(
            story,
            seconds=assembly.clock.seconds,
            empty_objective=run.empty_objective,
            notes=(*story.notes, *assembly.notes),
        )
        coreset = Coreset(
            run.indices,
            run.weights,
            prepared.ids[run.indices],
            np.array(run.objectives),
            ending.status,
            ending.message,
            provenance,
            self.details(prepared) | assembly.details,
        )
        return checked.apply(coreset)

    def details(self, prepared: Prepared) -> dict[str, Any]:
        """What a coreset says of its making beyond its provenance.

        Parameters
        ----------
        prepared : Prepared
            The problem that was solved.

        Returns
        -------
        dict
            For display.
        """
        problem = prepared.problem
        like = problem.train.like
        solvers = (prepared.solvers.inner, prepared.solvers.linear, self.optimiser)
        return trials_of(prepared.kernel) | {
            "kernel_parameters": repr(prepared.kernel),
            "solvers": repr(solvers),
            "outer_loss": problem.outer_loss.name,
            "weights": self.weights.value,
            "rule": self.rule.name,
            "targets": self.targets.name,
            "candidates": self.candidates,
            "first": self.first.value,
            "operator": type(problem.train).__name__.lower(),
            "dtype": str(like.dtype).removeprefix("torch."),
            "device": str(like.device),
            "versions": versions(),
        }

    def for_classes(self, classes: Sequence[Any]) -> BilevelSelector:
        # A single class gets a second that never occurs: the points are then chosen to stand out
        # from nothing.
        if self.task is Task.REGRESSION or self.classes is not None:
            return self
        known = list(labels_in(classes) or ())
        if len(known) == 1:
            known.append(_other(known[0]))
        return replace(self, classes=tuple(known))

    def settled(self, data: Dataset, size: int, begun: Coreset | None = None) -> BilevelSelector:
        """The same selector with its kernel chosen, where that is left to the data.

        Parameters
        ----------
        data : Dataset
            The points to choose from, with labels or targets.
        size : int
            How many are asked for.
        begun : Coreset, optional
            One that is continued or looked at: the kernel chosen for it is kept.

        Returns
        -------
        BilevelSelector
            This one where the kernel is given.

        Examples
        --------
        >>> from bicore import BilevelSelector, Dataset
        >>> data = Dataset(np.arange(-20.0, 21)[:, None], np.arange(-20.0, 21))
        >>> BilevelSelector(kernel="auto").settled(data, 10).kernel.choice.name
        'exponential on standardised columns'
        """
        decided = self._decided(data)
        kernel = decided.proxy.settled(data, size, begun).kernel
        return decided if kernel is decided.kernel else replace(decided, kernel=kernel)

    def for_memory(self) -> BilevelSelector:
        found = self
        if is_open(found.kernel):
            # which kernel tells a part of a problem apart says little about the whole
            found = replace(found, kernel=in_part(found.kernel))
        if found.strategy.open and found.quotas is None:
            found = replace(found, strategy=PAPER.strategy, quotas=BalancedIfClasses())
        return found.plain()

    def plain(self) -> BilevelSelector:
        return self._with(self._choices.plain())

    @property
    def _choices(self) -> Choices:
        """What may be left open beside the kernel."""
        return Choices(self.targets, self.strategy, self.rule)

    def _with(self, choices: Choices) -> BilevelSelector:
        if choices == self._choices:
            return self
        return replace(self, targets=choices.targets, strategy=choices.strategy, rule=choices.rule)

    def _allows(self, choices: Choices) -> bool:
        """Whether they go with everything else."""
        try:
            self._with(choices)
        except InputError:
            return False
        return True

    def _decided(self, data: Dataset) -> BilevelSelector:
        """With rule, strategy and targets chosen where that is left to the data."""
        choices = self._choices
        if not choices.open:
            return self
        classes = targets_of(self.proxy, data, None)[0].classes is not None
        all_scored = self.candidates is None and self.first is First.BEST
        wanted = best(classes, len(data), all_scored)
        return self._with(choices.settled(wanted, self._allows))

    def judged_by(
        self, data: Dataset, outer: Dataset | None = None
    ) -> tuple[BilevelSelector, Dataset, Dataset | None]:
        return self, data, outer

    def nested(self) -> BilevelSelector:
        """The same selector point by point with weights of 1.

        Returns
        -------
        BilevelSelector
            Its prefixes are its answers for smaller sizes.
        """
        return replace(self, weights=WeightMode.BINARY, strategy=Greedy())

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
        """Optimise the weights of the points given.

        Parameters
        ----------
        data : Dataset
            The points they are chosen from.
        indices : sequence of int
            Row numbers.
        outer : Dataset, optional
            A separate set on which the outer objective is measured.
        start : array, optional
            Weights to start from, one a point; 1 by default.
        seed : int
            Of an automatic regulariser.
        context : Context, optional
            Device and limits.

        Returns
        -------
        Coreset
            Whose objective is never above that of the starting weights.

        Raises
        ------
        InputError
            Where the points or the weights cannot be right.
        NumericalError
            If the fit is not finite.
        """
        runtime = (context or Context()).runtime
        clock = Clock(runtime.max_seconds)
        points = proxy_model.starting_points(data, indices, start)
        room = Room(len(points.points))
        with runtime.applied(), clock.running():
            proxy = self.proxy.settled(data, room.capacity)
            prepared = prepare(proxy, data, outer, room, seed, runtime)
            story = self._story(prepared, seed, clock)
            engine = proxy_model.fitted(prepared, points)
            begin = engine.objective
            self.optimiser.optimise(engine, final=True, clock=clock)
            learnt = engine.weights.double().cpu().numpy()
            kept = np.flatnonzero(learnt > 0)
            ending = optimised(len(kept), len(learnt), clock)
            chosen = np.array(engine.chosen)[kept]
            checked = verify_objective(prepared, chosen, learnt[kept], engine.objective)
            coreset = Coreset(
                chosen,
                learnt[kept],
                data.ids[chosen],
                np.array([engine.objective]),
                ending.status,
                ending.message,
                replace(story, seconds=clock.seconds),
                self.details(prepared) | {"weights": "learnt", "start_objective": begin},
            )
            return checked.apply(coreset)

    def influence(
        self,
        data: Dataset,
        coreset: Coreset | Sequence[int],
        *,
        outer: Dataset | None = None,
        seed: int = 0,
        context: Context | None = None,
    ) -> Array:
        """How much a little more of each point would help the model fitted on a coreset.

        Parameters
        ----------
        data : Dataset
            The points.
        coreset : Coreset or sequence of int
            What the model is fitted on.
        outer : Dataset, optional
            A separate set on which the outer objective is measured.
        seed : int
            Of an automatic regulariser.
        context : Context, optional
            Device and limits.

        Returns
        -------
        array
            −∂G/∂w_k for every point k.
        """
        return proxy_model.influence(self.proxy, data, coreset, outer, seed, context)

    def predict(
        self,
        data: Dataset,
        x: Any,
        coreset: Coreset | Sequence[int] | None = None,
        *,
        seed: int = 0,
        context: Context | None = None,
    ) -> Array:
        """What the proxy says of other points when it is fitted on a coreset, or on all the data.

        Parameters
        ----------
        data : Dataset
            The points with their labels.
        x : array
            Rows to predict.
        coreset : Coreset or sequence of int, optional
            What the model is fitted on; by default all of ``data``.
        seed : int
            Of an automatic regulariser.
        context : Context, optional
            Device and limits.

        Returns
        -------
        array
            Labels or targets, one for each row of ``x``.

        Raises
        ------
        InputError
            Where ``x`` is unlike the rows of ``data``.
        """
        return proxy_model.predict(self.proxy, data, x, coreset, seed, context)


def _as_candidates(candidates: int | None) -> int | None:
    words = (
        f"candidates={candidates!r} is not a whole number >= 1; give one, or None for all points."
    )
    return None if candidates is None else whole_number(candidates, 1, words)


def _other(label: Any) -> Any:
    """A label that is not this one, of the same kind."""
    if isinstance(label, bool):
        return not label
    return f"not {label}" if isinstance(label, str) else label + 1
