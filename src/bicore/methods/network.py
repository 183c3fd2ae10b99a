"""Bilevel selection on a network itself, for any twice-differentiable model and loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore._deprecated import renamed_keywords
from bicore.arguments import First, argmin_by_id, step_rng
from bicore.bilevel.weights import Adam, WeightMode, WeightOptimiser
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, as_tensor
from bicore.errors import (
    InputError,
    as_option,
    check_integer,
    check_name,
    check_number,
    unknown_name,
)
from bicore.methods.baselines.base import BaselineSelector, Job, PartialSelection
from bicore.networks import problem
from bicore.networks.loading import Reading, open_data
from bicore.networks.observe import forward, output_columns
from bicore.runtime.context import Context, Runtime
from bicore.runtime.threads import all_threads
from bicore.types import Label, RandomState

CRITERIA: dict[str, problem.Criterion] = {
    "cross-entropy": lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"),
    "squared": lambda outputs, y: (outputs - y).square().sum(1),
}
CURVATURES = ("hessian", "gauss-newton")


@dataclass(frozen=True)
class NetworkSelector(BaselineSelector):
    """Select the points on which a network, fitted to them alone, predicts all data best.

    The paper's algorithm 1 in its standard formulation, without a proxy. The network is
    ``model``; it is copied, and its weights are the start of the first fit. It runs in eval
    mode: without dropout, with fixed statistics of normalisation. Use it for a small network, or to
    measure what a proxy loses: the network is fitted again after every point. ``objectives`` hold
    the outer objective of the fitted network, on all data or on ``outer`` of :meth:`select`.
    Without labels the targets are the inputs: an autoencoder needs no others.

    Parameters
    ----------
    criterion : str or callable, optional
        "cross-entropy", "squared", or a function of outputs and targets that returns one loss per
        row.
    inner_reg : float, optional
        The regulariser ρ > 0 of Σ w ℓ + ρ‖θ‖².
    training : Training, optional
        Training of the network after every row, from the last fit: ``QuasiNewton()``, the
        default, or ``Stochastic()``.
    inverse : InverseHessian, optional
        Method of applying the inverse Hessian: ``ConjugateGradients()``, the default, or
        ``NeumannSeries()``.
    curvature : str, optional
        "hessian", or "gauss-newton", which stays positive if a network is not fully fitted.
    candidates : int, optional
        Number of points drawn and scored at each step; default: all.
    first : str, optional
        "random" (as in the paper), or "best" for a network that is already trained.
    weighting : str, optional
        "uniform" for weights of 1; "learned" for weights optimised after every point by the
        implicit gradient; "final" for weights optimised once, when all points are chosen.
    optimiser : WeightOptimiser, optional
        Optimiser of the weights; by default the paper's, :class:`bicore.bilevel.Adam`.
    inner_term, outer_term : callable, optional
        Terms that are added to the inner and the outer objective: functions of the parameters (one
        vector) and of the weights of all points, in the order of their ids, that return a number.
        Their direct dependence on the weights is the ∂g/∂w of the paper's equation 3. A cost of
        points is ``outer_term=lambda theta, w: prices @ w``.

    Examples
    --------
    >>> from bicore import Dataset
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> x = np.random.default_rng(0).normal(size=(30, 2))
    >>> data = Dataset(x, (x[:, 0] > 0).astype(int))
    >>> selector = NetworkSelector(inner_reg=0.1, curvature="gauss-newton")
    >>> picked = selector.select(data, 3, model=network)
    >>> len(picked), bool(picked.objectives[-1] < picked.objectives[0])
    (3, True)
    """

    criterion: str | Callable[..., Tensor] = "cross-entropy"
    inner_reg: float = 1e-3
    training: problem.Training = field(default_factory=problem.QuasiNewton)
    inverse: problem.InverseHessian = field(default_factory=problem.ConjugateGradients)
    curvature: str = "hessian"
    candidates: int | None = None
    first: str = "random"
    weighting: str = "uniform"
    optimiser: WeightOptimiser = field(default_factory=Adam)
    inner_term: problem.Term = field(default_factory=lambda: problem.no_term)
    outer_term: problem.Term = field(default_factory=lambda: problem.no_term)

    name = "bilevel on the network"
    needs_model = True
    fits_model = True
    takes_outer = True

    @property
    def needs_labels(self) -> bool:
        return bool(self.criterion == "cross-entropy")

    def __post_init__(self) -> None:
        if not callable(self.criterion) and self.criterion not in CRITERIA:
            raise unknown_name("criterion", self.criterion, CRITERIA)
        check_number("inner_reg", self.inner_reg, above=0)
        check_name("curvature", self.curvature, CURVATURES)
        as_option("first", self.first, First)
        as_option("weighting", self.weighting, WeightMode)
        if self.candidates is not None:
            check_integer("candidates", self.candidates, fix="or None for all rows")

    @renamed_keywords()
    def select_from(
        self,
        loader: Iterable[Any],
        size: int | float,
        *,
        initial: Coreset | Sequence[int] = (),
        random_state: RandomState = 0,
        model: nn.Module | None = None,
        model_classes: Sequence[Label] | None = None,
        runtime: Runtime | None = None,
    ) -> Coreset:
        """Select from a torch data set or ``DataLoader``, whose inputs are never all in memory.

        Inputs are read in batches, repeatedly. Labels are read once.

        Parameters
        ----------
        loader : torch.utils.data.Dataset or DataLoader
            A map-style data set of (x, y), or a loader of one; rows are read in their own order.
        size : int or float
            Number of points, or a fraction of the rows if a float up to 1.
        initial : Coreset or sequence of int
            First points; rows are numbered as in ``loader.dataset``.
        random_state : int, Generator, RandomState or None
            Seed for all random draws.
        model : torch.nn.Module
            The network.
        model_classes : sequence, optional
            The labels of its outputs, in order (default: 0, 1, 2, …).
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        Coreset
            The points in the order of selection, numbered as in ``loader.dataset``.

        Raises
        ------
        InputError
            If the loader has a sampler of its own or no labels, and as in ``select``.
        """
        reading = open_data(loader)
        if "y" not in reading.columns:
            raise InputError("loader must yield (x, y).")
        labels = np.concatenate([np.asarray(batch["y"]) for batch in reading])
        data = Dataset(np.arange(len(labels))[:, None], labels)  # rows by number
        context = Context(model, runtime or Runtime(), model_classes)
        request = self._request(data, size, None, initial, random_state, context)
        return self._run(request, partial(self._select_points, reading=reading))

    def _select_points(
        self, job: Job, selection: PartialSelection, reading: Reading | None = None
    ) -> None:
        fitted = _Fitted(self, job, reading)
        with all_threads(fitted.theta.numel() * len(fitted.pool)):
            for place in selection.order:
                self._add(fitted, place, selection)
                selection.objectives.append(fitted.objective)
            while selection.needs_more():
                place = self._choose(fitted, job, selection)
                self._add(fitted, place, selection)
                selection.take(place, fitted.objective)
            if self.weighting != WeightMode.UNIFORM and selection.order:
                self.optimiser.optimise(fitted, final=True, clock=selection.clock)
                selection.objectives[-1] = fitted.objective
                selection.weights = fitted.weights.double().cpu().numpy()

    def _add(self, fitted: _Fitted, place: int, selection: PartialSelection) -> None:
        fitted.add(place)
        if self.weighting == WeightMode.LEARNED:
            self.optimiser.optimise(fitted, clock=selection.clock)
            selection.weights = fitted.weights.double().cpu().numpy()

    def _choose(self, fitted: _Fitted, job: Job, selection: PartialSelection) -> int:
        places = np.flatnonzero(selection.open)
        step = len(selection.order)
        rng = step_rng(job.seed, step)
        if step == 0 and self.first == First.RANDOM:
            return int(rng.choice(places))
        if self.candidates is not None and self.candidates < len(places):
            places = np.sort(rng.choice(places, self.candidates, replace=False))
        return int(places[argmin_by_id(fitted.scores(places), job.data.ids[places])])


class _Fitted:
    """The chosen points and the network fitted on them."""

    def __init__(self, selector: NetworkSelector, job: Job, reading: Reading | None = None) -> None:
        self.selector = selector
        self.seed = job.seed
        module = _copy_module(job)
        self.pool = _pool(selector.criterion, module, job, reading)
        given, self.outer = selector.criterion, self.pool
        if job.outer is not None:
            self.outer = _pool(given, module, replace(job, data=job.outer), None)
        self.problem = problem.NetworkProblem(
            problem.FlatModule(module),
            given if callable(given) else CRITERIA[given],
            float(selector.inner_reg),
            selector.curvature == "gauss-newton",
            selector.inner_term,
            selector.outer_term,
            job.like.new_zeros(len(self.pool)),
        )
        self.theta = self.problem.module.start
        some = self.pool[torch.arange(min(2, len(self.pool)), device=self.theta.device)]
        losses = self.problem.losses(self.theta, some)
        if losses.shape != (len(some),):
            shape = tuple(losses.shape)
            raise InputError(f"criterion must give one loss per row; got shape {shape}.")
        self.places = torch.arange(0, device=self.theta.device)
        self.chosen = self.pool[self.places]
        self.objective = self.problem.outer_value(self.theta, self.outer)

    @property
    def weights(self) -> Tensor:
        """Weights of the chosen points."""
        return self.chosen.weight

    def add(self, place: int) -> None:
        """Add a point with weight 1 and fit the network again."""
        self.places = torch.cat([self.places, self.places.new_tensor([place])])
        self.reweigh(torch.cat([self.weights, self.weights.new_ones(1)]))

    def reweigh(self, weights: Tensor) -> None:
        """Give the points these weights and fit the network again."""
        self.chosen = replace(self.pool[self.places], weight=weights)
        every = torch.zeros_like(self.problem.weights)
        every[self.places] = weights
        self.problem = replace(self.problem, weights=every)
        self.theta = self.selector.training.fit(
            self.problem, self.chosen, self.theta, self.seed + len(self.places)
        )
        self.objective = self.problem.outer_value(self.theta, self.outer)

    def scores(self, places: Array) -> Array:
        """Return dG/dw of the points."""
        index = torch.from_numpy(places).to(self.theta.device)
        # all rows, because a loader yields whole batches
        rows = self.pool if self.selector.candidates is None else self.pool[index]
        return np.asarray(self._gradient(index, rows).double().cpu().numpy())

    def weight_gradient(self) -> Tensor:
        """Return dG/dw of the chosen points."""
        return self._gradient(self.places, self.chosen)

    def _gradient(self, index: Tensor, rows: problem.Pool) -> Tensor:
        outer = self.problem.outer_gradient(self.theta, self.outer)
        direction = self.selector.inverse.solve(self._hessian_product, outer)
        slopes = self.problem.directional_slopes(self.theta, rows, direction)
        slopes = slopes[index] if rows is self.pool else slopes
        return self.problem.term_slopes(self.theta, direction)[index] - slopes

    def _hessian_product(self, direction: Tensor, step: int) -> Tensor:
        """Multiply by the inner Hessian, of a mini-batch of the chosen rows if that is set."""
        rows, count = self.chosen, self.selector.inverse.mini_batch
        if count is not None and count < len(rows):
            rng = np.random.default_rng((self.seed, len(rows), step))
            drawn = rng.choice(len(rows), count, replace=False)
            rows = rows[torch.from_numpy(drawn).to(self.theta.device)]
            # weights that represent all chosen rows
            rows = replace(rows, weight=rows.weight * (len(self.chosen) / count))
        return self.problem.hessian_product(self.theta, rows, direction)


def _copy_module(job: Job) -> nn.Module:
    """Copy the user's network in eval mode, so that fits leave theirs unchanged.

    Refuse batch normalisation in train mode: a row's loss would depend on the other rows.
    """
    given = job.module(f"{job.name} needs the module itself, which it fits.")
    module = copy.deepcopy(given).to(job.like.device, job.like.dtype)
    for name, part in module.named_modules():
        batch = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if batch and (part.training or part.running_mean is None):
            raise InputError(
                f"layer {name!r} normalises over the batch, so a row has no loss of its own; "
                "call model.eval(), or use GroupNorm or LayerNorm."
            )
    return module.eval()


def _pool(criterion: Any, module: nn.Module, job: Job, reading: Reading | None) -> problem.Pool:
    """Return all data, of the job or of a loader, with weights that sum to 1."""
    weights = (job.weights / job.weights.sum()).to(job.like)
    if reading is None:
        x = as_tensor(job.data.x).to(job.like)
        return problem.Rows(x, _targets(criterion, module, job, x), weights)
    first = reading.items([0]).to(job.like)
    return problem.Loaded(reading, _targets(criterion, module, job, first), weights, job.like)


def _targets(criterion: Any, module: nn.Module, job: Job, x: Tensor) -> Tensor:
    """Return the targets of the criterion; ``x`` holds a row or two to count outputs on."""
    with torch.no_grad():
        outputs = forward(module, x[:2]).shape[1]
    if job.data.y is None:
        return x.flatten(1)
    squared = criterion == "squared"
    if criterion == "cross-entropy" or job.data.y.dtype.kind != "f":
        columns = output_columns(job.data.y, outputs, job.context.classes, job.present)
        codes = torch.from_numpy(columns).to(x.device)
        return F.one_hot(codes, outputs).to(x) if squared else codes
    targets = torch.from_numpy(np.ascontiguousarray(job.data.y)).to(x)
    targets = targets[:, None] if targets.dim() == 1 else targets
    if squared and targets.shape[1] != outputs:
        raise InputError(f"the model has {outputs} outputs and y {targets.shape[1]} targets.")
    return targets
