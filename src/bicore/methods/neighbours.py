"""Rows for nearest neighbours: whether central rows of each class would be a better choice.

Bilevel selection places rows near the borders of classes. With few rows per class, nearest
neighbours are often better with rows from the middle of the classes, by facility location.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from bicore.bilevel.kernel_choice import parts_of
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, as_tensor
from bicore.kernels.base import Kernel
from bicore.kernels.classical import Linear
from bicore.kernels.scaling import Standardised
from bicore.methods.base import Request
from bicore.methods.baselines.covering import FacilityLocation
from bicore.runtime.context import Context

#: Numbers of neighbours whose mean error decides.
NEIGHBOURS = (1, 5)
#: Facility location compares all pairs of up to this many rows.
MOST_ROWS = 20_000
#: Rows that are predicted at a time.
PREDICTED = 2000


def find_central_rows(
    kernel: Kernel, request: Request, codes: Array, coreset: Coreset
) -> tuple[list[int], str]:
    """Return the rows of facility location within each class, and a note, if they are better.

    They are if nearest neighbours trained on them predict the other rows better than with the
    coreset. Otherwise there are no rows. The kernel must fall with the distance.
    """
    data = request.data
    none: tuple[list[int], str] = [], ""
    if len(data) > MOST_ROWS:
        return none
    scaled = any(isinstance(part, Standardised) for part in parts_of(kernel))
    rival = FacilityLocation(
        over=Standardised(Linear()) if scaled else "features", per_class="proportional"
    )
    quiet = Context(runtime=replace(request.runtime, progress=False))
    found = rival._select(replace(request, context=quiet, outer=None))
    if not found.status.whole:
        return none
    fitted = kernel.fit(data.x)
    own, other = (neighbour_error(fitted, data, codes, one.indices) for one in (coreset, found))
    if other >= own:
        return none
    return found.indices.tolist(), (
        f"model: nearest neighbours of these rows, by facility location within each class, have "
        f"{other:.1%} errors on the other rows, and {own:.1%} with the rows of the search"
    )


def neighbour_error(kernel: Kernel, data: Dataset, codes: Array, points: Array) -> float:
    """Return the mean error of nearest neighbours, trained on the points, on all other rows."""
    classes, weights = torch.from_numpy(codes), torch.from_numpy(data.weights.copy())
    weights[points] = 0
    x = as_tensor(data.x).double()
    own, labels = x[points], classes[points]
    wrong = torch.zeros(len(NEIGHBOURS), dtype=torch.float64)
    for part in torch.split(torch.nonzero(weights)[:, 0], PREDICTED):
        values = kernel.evaluate(x[part], own)
        near = labels[values.argsort(dim=1, descending=True, stable=True)]
        for place, count in enumerate(NEIGHBOURS):
            predicted = near[:, :count].mode(dim=1).values
            wrong[place] += weights[part] @ (predicted != classes[part]).double()
    return float(wrong.mean() / weights.sum().clamp_min(torch.finfo(torch.float64).tiny))
