"""The space in which points are near or far: one axis of the cover and matching rules.

A space is raw features, a module's embedding, its last-layer gradients, its predictions, or any
kernel; each becomes an operator that gives inner products, and a rule needs nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bicore.data import as_tensor
from bicore.errors import NumericalError, unknown_name
from bicore.kernels.base import Kernel
from bicore.kernels.building import Reserve, build_operators
from bicore.kernels.classical import correct_distances
from bicore.kernels.operators import Features, KernelOperator, OuterProducts
from bicore.kernels.scaling import Normalised
from bicore.selectors.baselines.base import Job, several_outputs

#: Vectors of n float64 that a rule keeps beside an operator, over one for each point asked for.
VECTORS_BESIDE = 8
#: By which share of itself a distance may be wrong in float64 and in float32: rules compare them.
DISTANCE_SHARE = 1e-8
DISTANCE_SHARE_SINGLE = 1e-3


class Space(ABC):
    """Inner products between points; what a rule with ``over=`` measures in.

    Examples
    --------
    A space of your own, in which the sign of a feature plays no part:

    >>> from bicore import Dataset
    >>> from bicore.selectors import KCenter
    >>> class Absolute(Space):
    ...     name = "absolute values"
    ...     def operator(self, job, normalise=False, centre=False):
    ...         rows = as_tensor(job.data.x).abs()
    ...         return Features(rows, rows)
    >>> data = Dataset([[-9.0], [1.0], [9.0], [2.0]])
    >>> KCenter(Absolute(), first="central").select(data, 2).indices.tolist()
    [3, 0]
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The space in words, as a selector's name has it."""

    @property
    def needs_labels(self) -> bool:
        """Whether points have a place in it only with their labels."""
        return False

    @property
    def needs_model(self) -> bool:
        """Whether it is the current model that gives points their place."""
        return False

    @abstractmethod
    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        """The inner products of a job's rows.

        Parameters
        ----------
        job : Job
            One selection: its rows, in the order of their ids, and the current model.
        normalise : bool, optional
            Scale every point to length 1 first.
        centre : bool, optional
            Allow the mean of all points to be subtracted: for rules that see distances only, which
            then lose nothing to rounding far from the origin.

        Returns
        -------
        KernelOperator
            A square matrix, stored or not.
        """


@dataclass(frozen=True)
class RawFeatures(Space):
    """The rows of x themselves, flattened; ``over="features"`` is this space.

    Examples
    --------
    >>> from bicore import Dataset
    >>> from bicore.selectors import KCenter
    >>> data = Dataset([[0.0], [4.0], [5.0], [11.0]])
    >>> KCenter(RawFeatures(), first="central").select(data, 2).indices.tolist()
    [2, 3]
    """

    name = "features"

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        return _features(as_tensor(job.data.x).flatten(1).to(job.like), normalise, centre)


@dataclass(frozen=True)
class Embedding(Space):
    """The input of the module's last Linear layer, or the output of the layer named.

    ``over="embedding"`` is this space without a name. Use it where x itself says little about what
    is alike, as with images.

    Parameters
    ----------
    layer : str, optional
        A name of ``module.named_modules()``.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> from bicore.selectors import KCenter
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    >>> data = Dataset([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    >>> len(KCenter(Embedding("0")).select(data, 2, context=Context(model=network)))
    2
    """

    layer: str | None = None

    name = "embedding"
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        return _features(job.observed(self.layer).embedding.to(job.like), normalise, centre)


@dataclass(frozen=True)
class Predictions(Space):
    """The class probabilities the module predicts; ``over="predictions"`` is this space.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> from bicore.selectors import FacilityLocation
    >>> data = Dataset([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    >>> context = Context(model=torch.nn.Linear(2, 3))
    >>> len(FacilityLocation(Predictions()).select(data, 2, context=context))
    2
    """

    name = "predictions"
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        predictions = several_outputs(job, job.observed().log_probabilities().exp())
        return _features(predictions.to(job.like), normalise, centre)


@dataclass(frozen=True)
class LastLayerGradients(Space):
    """The gradient of each point's loss in the last layer; ``over="gradients"`` is this space.

    It is the outer product of the residual p − e_y and the layer's input; neither the gradient nor
    a mean of gradients is ever formed, so that ``centre`` changes nothing.

    Examples
    --------
    >>> from bicore import Context, Dataset
    >>> from bicore.selectors import KCenter
    >>> data = Dataset([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]], [0, 1, 1])
    >>> context = Context(model=torch.nn.Linear(2, 2))
    >>> len(KCenter(LastLayerGradients()).select(data, 2, context=context))
    2
    """

    name = "gradients"
    needs_labels = True
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        assert job.data.y is not None
        factors = job.observed().gradient_factors(job.data.y)
        residuals, inputs = (factor.to(job.like) for factor in factors)
        if normalise:
            return OuterProducts(_unit(residuals), _unit(inputs))
        return OuterProducts(residuals, inputs)


@dataclass(frozen=True)
class KernelSpace(Space):
    """The feature space of any kernel; ``over=kernel`` is this space.

    Parameters
    ----------
    kernel : Kernel
        What gives the inner products; parameters it takes from data are fitted to the rows at hand.

    Examples
    --------
    >>> from bicore import RBF, Dataset
    >>> from bicore.selectors import KCenter
    >>> data = Dataset([[0.0], [0.1], [0.2], [5.0]])
    >>> KCenter(KernelSpace(RBF(1.0)), first="central").select(data, 2).indices.tolist()
    [1, 3]
    """

    kernel: Kernel

    @property
    def name(self) -> str:
        return self.kernel.name

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        kernel = Normalised(self.kernel) if normalise else self.kernel
        beside = 8 * len(job.data) * (job.size + VECTORS_BESIDE)
        train, _ = build_operators(
            kernel.fitted(job.data.x),
            job.data.x,
            None,
            Reserve(beside, beside),
            job.context.runtime,
        )
        return train


SPACES: dict[str, Space] = {
    "features": RawFeatures(),
    "embedding": Embedding(),
    "gradients": LastLayerGradients(),
    "predictions": Predictions(),
}


def as_space(over: Any) -> Space:
    """A space, its name, or a kernel."""
    if isinstance(over, Space):
        return over
    if isinstance(over, Kernel):
        return KernelSpace(over)
    named = SPACES.get(str(over))  # what is no name has none of these as its string
    if named is None:
        raise unknown_name("over", over, SPACES)
    return named


def squared_distances(operator: KernelOperator, norms: Tensor, index: Tensor) -> Tensor:
    """‖x_i − x_k‖² for all i and the k of ``index``, a column each; exactly zero at k itself."""
    if not torch.isfinite(norms).all():
        raise NumericalError("squared lengths of points are not finite; scale the features.")
    result = (norms[:, None] + norms[index] - 2 * operator.columns(index)).clamp_min_(0)
    own = index, torch.arange(len(index), device=index.device)
    if operator.feature_rows is not None:
        result[own] = torch.inf  # nobody need look at it twice
        rows, columns = operator.feature_rows
        share = DISTANCE_SHARE if norms.dtype == torch.float64 else DISTANCE_SHARE_SINGLE
        correct_distances(result, norms, norms[index], rows, columns[index], share)
    result[own] = 0
    return result


def _features(rows: Tensor, normalise: bool, centre: bool) -> Features:
    if normalise:
        rows = _unit(rows)
    elif centre:
        rows = rows - rows.mean(0)
    return Features(rows, rows)


def _unit(rows: Tensor) -> Tensor:
    """Rows of length 1; a row of zeros stays."""
    length = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, torch.ones_like(length))
