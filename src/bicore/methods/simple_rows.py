"""Compare the rows of a search with the rows of two simple methods, and keep the better ones.

Bilevel selection optimises one model and places rows near the borders of classes. For other models,
above all nearest neighbours, rows from the middle of the classes are sometimes better. Simple
models, trained on each set of rows, predict the rows that none of them contains.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bicore.bilevel.regularisation import predict_from_subsets
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, as_tensor
from bicore.kernels.base import Kernel
from bicore.kernels.classical import Linear
from bicore.kernels.scaling import Standardised
from bicore.methods.base import Request
from bicore.methods.baselines.covering import FacilityLocation
from bicore.methods.baselines.matching import Herding
from bicore.runtime.context import Context
from bicore.sparse import is_sparse

#: The simple methods. They run within each class, with points in proportion to its rows.
NAMES = ("herding", "facility location")
#: Columns are as given or standardised.
SCALINGS: tuple[Kernel, ...] = (Linear(), Standardised(Linear()))
#: Numbers of neighbours that predict.
NEIGHBOURS = (1, 5)
#: The ρ of ridge regression in the kernel of the search, relative to the mean of k(x, x) of its
#: points. Half of this mean is the intercept.
RIDGE = 0.05
#: With the kernel, the simple method must have an error that is smaller by at least this much.
MARGIN = 0.005
#: Distances are compared in this many steps of the largest one.
DISTANCE_STEPS = 1e7
#: Decimal digits of an error, so that rounding decides nothing.
DIGITS = 9
#: Data of more rows are not compared: facility location needs all pairs of a class.
MOST_ROWS = 5000
#: Number of rows that must be left to predict.
FEWEST_LEFT = 50
#: Rows that are predicted at a time.
PREDICTED = 2000


def find_better_rows(
    kernel: Kernel | None, request: Request, codes: Array, coreset: Coreset
) -> tuple[list[int], str]:
    """Return the rows of the best simple method and a note, if they have a smaller mean error.

    The models are nearest neighbours and, with the fitted kernel of the search, ridge regression;
    then the error must be smaller by ``MARGIN``. Columns are as given or standardised,
    whichever gives nearest neighbours of the coreset and of herding fewer errors.
    """
    data = request.data
    if len(data) > MOST_ROWS or is_sparse(data.x):
        return [], ""
    trial = Trial(data, codes, kernel)
    found = [coreset.indices]
    best, columns = math.inf, trial.x
    for scaling in SCALINGS:
        scaled = scaling.fit(data.x).features(trial.x)
        assert scaled is not None  # a linear kernel has features
        herded = _select_simply(Herding, request, scaled)
        if not len(herded):
            return [], ""
        error = sum(trial.compare(scaled, [coreset.indices, herded], False))
        if error < best:
            best, columns, found = error, scaled, [coreset.indices, herded]
    found.append(_select_simply(FacilityLocation, request, columns))
    if not len(found[-1]):
        return [], ""
    own, *errors = trial.compare(columns, found, kernel is not None)
    place = errors.index(min(errors))
    if errors[place] >= own - (MARGIN if kernel is not None else 0):
        return [], ""
    return found[place + 1].tolist(), (
        f"rows: simple models of these rows, by {NAMES[place]} within each class, have "
        f"{errors[place]:.1%} errors on the other rows, and {own:.1%} with the rows of the search"
    )


def _select_simply(method: Any, request: Request, columns: Tensor) -> Array:
    """Return the rows of a method within each class; none if it was stopped."""
    data = request.data.with_columns(x=columns.numpy())
    quiet = Context(runtime=replace(request.runtime, progress=False))
    selector = method(over="features", per_class="proportional")
    found = selector._select(replace(request, data=data, context=quiet, outer=None))
    rows: Array = found.indices if found.status.whole else found.indices[:0]
    return rows


class Trial:
    """Errors of simple models on the rows of a data set that they were not trained on."""

    def __init__(self, data: Dataset, codes: Array, kernel: Kernel | None) -> None:
        self.x, self.weights = as_tensor(data.x).double(), torch.from_numpy(data.weights.copy())
        self.kernel, self.classes = kernel, torch.from_numpy(codes)

    def compare(self, columns: Tensor, rows: list[Array], with_kernel: bool) -> list[float]:
        """Return the mean error of the models for each set of rows; zeros if few are left."""
        weights = self.weights.clone()
        for points in rows:
            weights[points] = 0
        rest = torch.nonzero(weights)[:, 0]
        if len(rest) < FEWEST_LEFT:
            return [0.0] * len(rows)
        shares = weights[rest] / weights.sum()
        errors = []
        for points in rows:
            wrong = self._neighbours(columns, torch.from_numpy(points), rest)
            if with_kernel and self.kernel is not None:
                wrong.append(self._ridge(self.kernel, torch.from_numpy(points), rest))
            errors.append(round(float(torch.stack(wrong).double().mean(0) @ shares), DIGITS))
        return errors

    def _neighbours(self, columns: Tensor, points: Tensor, rest: Tensor) -> list[Tensor]:
        """Return where nearest neighbours are wrong, for each number of them."""
        own, labels = columns[points], self.classes[points]
        count = min(max(NEIGHBOURS), len(own))
        nearest = []
        for part in torch.split(rest, PREDICTED):
            distances = torch.cdist(columns[part], own)
            # Rounded, so that the first of equally near points wins with any number of threads.
            steps = (distances / distances.max() * DISTANCE_STEPS).nan_to_num().round().long()
            order = steps * len(own) + torch.arange(len(own))
            nearest.append(labels[order.topk(count, largest=False).indices])
        near, actual = torch.cat(nearest), self.classes[rest]
        return [near[:, :count].mode(dim=1).values != actual for count in NEIGHBOURS]

    def _ridge(self, kernel: Kernel, points: Tensor, rest: Tensor) -> Tensor:
        """Return where ridge regression is wrong."""
        goals = torch.eye(int(self.classes.max()) + 1, dtype=torch.float64)
        mean = self.weights @ goals[self.classes] / self.weights.sum()
        gram = kernel.gram(self.x[points])
        cross = kernel.evaluate(self.x[points], self.x[rest])
        rho = RIDGE * float(gram.diagonal().mean())
        found = predict_from_subsets(
            gram[None], cross[None], goals[self.classes[points]] - mean, rho
        )
        return (found[0] + mean).argmax(dim=1) != self.classes[rest]
