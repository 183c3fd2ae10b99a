"""Bilevel selection on a network itself, for any twice-differentiable model and loss; slow and
exact where a proxy is fast."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler, SequentialSampler

from bicore.coreset import Coreset
from bicore.data import Dataset, as_labels, as_tensor
from bicore.errors import InputError, unknown_name
from bicore.networks.observe import Observed, as_module, forward, output_columns
from bicore.networks.problem import (
    ConjugateGradients,
    Criterion,
    FlatModule,
    InverseHessian,
    Loaded,
    NetworkProblem,
    Pool,
    QuasiNewton,
    Rows,
    Training,
)
from bicore.picking import lowest, step_rng
from bicore.runtime import Context
from bicore.selectors.baselines.base import Growth, Job, PlainSelector

CRITERIA: dict[str, Criterion] = {
    "cross-entropy": lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"),
    "squared": lambda outputs, y: (outputs - y).square().sum(1),
}


@dataclass(frozen=True)
class NetworkSelector(PlainSelector):
    """Chooses the points on which *your* network, fitted to them alone, predicts all the data best
    (the paper's algorithm 1 in its standard formulation). The network comes in ``context.model``
    and is left as it was; its present weights are where the first fit starts. It runs in eval mode:
    without dropout, with fixed statistics of normalisation.

    Parameters
    ----------
    criterion : "cross-entropy", "squared", or a function of outputs and targets that returns one
    loss a row. inner_reg : ρ of Σ w ℓ + ρ‖θ‖². training : how the network is fitted after every
    point: ``QuasiNewton()`` or ``Stochastic()``, from the last fit. inverse : how the inverse
    Hessian is applied: ``ConjugateGradients()`` or ``NeumannSeries()``. curvature : "hessian", or
    "gauss-newton", which stays positive where a network is not fitted to the end. candidates : None
    to score all points at each step, or how many are drawn. first : "random" (as the paper), or
    "best" for a model that the present weights already say something about.
    """

    criterion: Any = "cross-entropy"
    inner_reg: float = 1e-3
    training: Training = field(default_factory=QuasiNewton)
    inverse: InverseHessian = field(default_factory=ConjugateGradients)
    curvature: str = "hessian"
    candidates: int | None = None
    first: str = "random"

    needs_labels = True
    needs_model = True

    def __post_init__(self) -> None:
        if not callable(self.criterion) and self.criterion not in CRITERIA:
            raise unknown_name("criterion", self.criterion, CRITERIA)
        if not 0 < self.inner_reg < float("inf"):
            raise InputError(
                f"inner_reg={self.inner_reg} is not a positive number; the inner problem needs a "
                "regulariser > 0."
            )
        if self.curvature not in ("hessian", "gauss-newton"):
            raise unknown_name("curvature", self.curvature, ["hessian", "gauss-newton"])
        if self.first not in ("random", "best"):
            raise unknown_name("first", self.first, ["random", "best"])
        if self.candidates is not None and self.candidates < 1:
            raise InputError(
                f"candidates={self.candidates!r} is not a whole number >= 1; give one, or None for "
                "all points."
            )

    @property
    def name(self) -> str:
        return "bilevel on the network"

    def select_from(
        self,
        loader: Any,
        size: int | float | str,
        *,
        initial: Coreset | Sequence[int] = (),
        rng: int | np.random.Generator = 0,
        context: Context | None = None,
    ) -> Coreset:
        """The same with data from a torch ``DataLoader`` over a map-style dataset of (x, y), in its
        own order: inputs come by batches, again and again, and are not kept. Its labels are read
        once. Row numbers are those of ``loader.dataset``.
        """
        labels = _labels(loader)
        context = context or Context()
        # rows by number: what they look like is the loader's affair
        data = Dataset(np.arange(len(labels))[:, None], labels)
        self._check(data, None, context)
        job = self._job(data, size, initial, rng, context)
        return self._run(data, job, lambda job, growth: self._grow(job, growth, loader))

    def _grow(self, job: Job, growth: Growth, loader: Any = None) -> None:
        state = _Network(self, job, loader)
        for place in growth.order:
            state.add(place)
            growth.objectives.append(state.objective)
        while growth.wants():
            place = self._choose(state, job, growth)
            state.add(place)
            growth.take(place, state.objective)

    def _choose(self, state: _Network, job: Job, growth: Growth) -> int:
        places = np.flatnonzero(growth.open)
        step = len(growth.order)
        rng = step_rng(job.seed, step)
        if step == 0 and self.first == "random":
            return int(rng.choice(places))
        if self.candidates is not None and self.candidates < len(places):
            places = np.sort(rng.choice(places, self.candidates, replace=False))
        return int(places[lowest(state.scores(places, job.seed), job.data.ids[places])])


class _Network:
    """The coreset so far and the network fitted on it."""

    def __init__(self, selector: NetworkSelector, job: Job, loader: Any = None) -> None:
        if isinstance(job.context.model, Observed):
            raise InputError(
                f"{job.name} needs the module itself, which it fits; pass "
                "Context(model=your_network)."
            )
        module = copy.deepcopy(as_module(job.context.model)).to(job.like.device, job.like.dtype)
        _check_norms(module)
        module.eval()
        self.selector = selector
        self.seed = job.seed
        weights = (job.weights / job.weights.sum()).to(job.like)
        self.rows: Pool
        if loader is None:
            x = as_tensor(job.data.x).to(job.like)
            self.rows = Rows(x, self._targets(module, job, x), weights)
        else:
            first = loader.collate_fn([loader.dataset[0]])[0].to(job.like)
            self.rows = Loaded(loader, self._targets(module, job, first), weights, job.like)
        criterion = (
            CRITERIA[selector.criterion]
            if isinstance(selector.criterion, str)
            else selector.criterion
        )
        self.problem = NetworkProblem(
            FlatModule(module),
            criterion,
            float(selector.inner_reg),
            selector.curvature == "gauss-newton",
        )
        self.theta = self.problem.module.start
        self._check_criterion()
        self.places: list[int] = []
        self.objective = self.problem.outer_value(self.theta, self.rows)

    def _targets(self, module: nn.Module, job: Job, x: Tensor) -> Tensor:
        assert job.data.y is not None
        with torch.no_grad():
            outputs = forward(module, x[:2]).shape[1]
        if self.selector.criterion == "cross-entropy" or job.data.y.dtype.kind != "f":
            columns = torch.from_numpy(
                output_columns(job.data.y, outputs, job.context.classes, job.present)
            ).to(x.device)
            return (
                F.one_hot(columns, outputs).to(x)
                if self.selector.criterion == "squared"
                else columns
            )
        targets = torch.from_numpy(np.ascontiguousarray(job.data.y)).to(x)
        targets = targets[:, None] if targets.dim() == 1 else targets
        if self.selector.criterion == "squared" and targets.shape[1] != outputs:
            raise InputError(
                f"the model has {outputs} outputs and y {targets.shape[1]} targets; they must "
                "agree."
            )
        return targets

    def _check_criterion(self) -> None:
        some = self.rows[torch.arange(min(2, len(self.rows)), device=self.theta.device)]
        losses = self.problem.losses(self.theta, some)
        if losses.shape != (len(some),):
            raise InputError(
                f"criterion returned shape {tuple(losses.shape)} for {len(some)} rows; it must "
                "give one loss a row."
            )

    def _chosen(self) -> Rows:
        chosen = self.rows[torch.tensor(self.places, device=self.theta.device)]
        return Rows(chosen.x, chosen.y, torch.ones_like(chosen.weight))

    def add(self, place: int) -> None:
        self.places.append(place)
        self.theta = self.selector.training.fit(
            self.problem, self._chosen(), self.theta, self.seed + len(self.places)
        )
        self.objective = self.problem.outer_value(self.theta, self.rows)

    def scores(self, places: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
        """∂G/∂w of the points."""
        gradient = self.problem.outer_gradient(self.theta, self.rows)
        direction = self.selector.inverse.solve(self._product(seed), gradient)
        rows = torch.from_numpy(places).to(self.theta.device)
        if self.selector.candidates is None:
            scores = self.problem.along(self.theta, self.rows, direction)[rows]
        else:
            scores = self.problem.along(self.theta, self.rows[rows], direction)
        found: np.ndarray[Any, Any] = -scores.double().cpu().numpy()
        return found

    def _product(self, seed: int) -> Any:
        chosen = (
            self._chosen() if self.places else self.rows[torch.arange(0, device=self.theta.device)]
        )
        wanted = getattr(self.selector.inverse, "mini_batch", None)

        def product(direction: Tensor, step: int) -> Tensor:
            rows = chosen
            if wanted is not None and wanted < len(chosen):
                drawn = np.random.default_rng((seed, len(self.places), step)).choice(
                    len(chosen), wanted, replace=False
                )
                rows = chosen[torch.from_numpy(drawn).to(direction.device)]
                rows = Rows(rows.x, rows.y, rows.weight * (len(chosen) / wanted))
            return self.problem.hessian_product(self.theta, rows, direction)

        return product


def _labels(loader: Any) -> np.ndarray[Any, Any]:
    """Read once, and the loader's order with them."""
    batches = getattr(loader, "batch_sampler", None)
    plain = (
        type(batches) is BatchSampler
        and isinstance(batches.sampler, SequentialSampler)
        and not batches.drop_last
    )
    if not plain:
        raise InputError(
            f"loader={type(loader).__name__} does not bring all rows in order; use "
            "DataLoader(dataset, shuffle=False, "
            "drop_last=False) over a map-style dataset."
        )
    labels: list[Any] = []
    for batch in loader:
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise InputError(
                "the loader's items are not (x, y); give a dataset that yields inputs and labels."
            )
        labels.append(
            batch[1].cpu().numpy() if isinstance(batch[1], Tensor) else np.asarray(batch[1])
        )
    return as_labels(np.concatenate(labels), len(loader.dataset))


def _check_norms(module: nn.Module) -> None:
    """A batch normalisation in train mode makes a row's loss depend on the rows beside it: there is
    no loss of a point."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (
            part.training or part.running_mean is None
        ):
            raise InputError(
                f"layer {name!r} normalises over the batch, so that a point has no loss of its "
                "own; call model.eval() to fix its "
                "statistics, or use GroupNorm or LayerNorm."
            )
