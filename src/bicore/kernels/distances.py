"""Squared distances by one product of matrices, and by differences where that would cancel.

‖a − b‖² = ‖a‖² + ‖b‖² − 2aᵀb is exact up to a rounding of the lengths, not of the distance: far
from the origin, near points lose their distance to it. The product is kept for all pairs where that
rounding does not matter; the others are few, and done again.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bicore.sparse import SparsePoints

#: A distance by the product is wrong by so many units in the last place of ‖a‖² + ‖b‖², times one
#: and the square root of the length of the sums: what rounding adds up to by chance. Twice what
#: was seen over 1 to 5000 columns.
ROUNDING = 2.0
#: Pairs done apart, one by one, cost so many times those of a product; where more than that share
#: is in doubt, all are done again.
APART = 32
#: With fewer rows or columns than this a change to float64 costs as much as the differences.
NARROW = 32
#: Numbers of one temporary while pairs are done again, which bounds the memory for it.
AT_ONCE = 2_000_000


def squared_distances(a: Tensor, b: Tensor, share: float, negligible: float = 0.0) -> Tensor:
    """‖a_i − b_j‖² of all pairs of rows.

    Parameters
    ----------
    a, b : Tensor
        Vectors, rows first.
    share, negligible : float
        By how much a distance may be wrong: so much of itself, or so much.

    Returns
    -------
    Tensor
        One row for each of ``a``, one column for each of ``b``.
    """
    # The distance does not change when both move; near the origin less cancels.
    centre = b.mean(0)
    left = a - centre
    right = b - centre
    lengths = left.square().sum(1)
    others = right.square().sum(1)
    found = torch.addmm(lengths[:, None] + others, left, right.T, alpha=-2).clamp_min_(0)
    return settled(found, lengths, others, a, b, share, negligible)


def sparse_squared_distances(
    a: SparsePoints, b: SparsePoints, share: float, negligible: float = 0.0
) -> Tensor:
    """The same of sparse points, which are not moved towards the origin: that would fill them."""
    lengths, others = a.squared_lengths()[:, None], b.squared_lengths()
    found = (lengths + others).sub_(a.products(b), alpha=2).clamp_min_(0)
    unit = ROUNDING * (1 + math.sqrt(a.shape[1])) * torch.finfo(found.dtype).eps
    if unit * float(lengths.max() + others.max()) <= negligible:
        return found.to(a.device, a.dtype)
    allowed = found.mul(share).clamp_min_(negligible)
    doubtful = ((lengths + others).mul_(unit) <= allowed).logical_not_().nonzero()
    width = max(1, (a.numel() + b.numel()) // (len(a) + len(b)))
    for some in torch.split(doubtful, max(1, AT_ONCE // width)):
        first, second = some.unbind(1)
        found[first, second] = a.apart(b, first, second)
    return found.to(a.device, a.dtype)


def settled(
    found: Tensor,
    lengths: Tensor,
    others: Tensor,
    a: Tensor,
    b: Tensor,
    share: float,
    negligible: float = 0.0,
) -> Tensor:
    """Distances that came from a product, those in doubt done again in place.

    ``lengths`` and ``others`` are the squared lengths of the rows that the product was made of,
    ``a`` and ``b`` the rows or any that are as far apart.
    """
    unit = ROUNDING * (1 + math.sqrt(a.shape[1])) * torch.finfo(found.dtype).eps
    worst = unit * float(lengths.max() + others.max())
    if worst <= negligible or worst <= share * float(found.min()):
        return found
    step = max(1, AT_ONCE // len(b))
    for top in range(0, len(a), step):
        rows = slice(top, top + step)
        errors = (lengths[rows, None] + others).mul_(unit)
        allowed = found[rows].mul(share).clamp_min_(negligible)
        # Where lengths overflow there is no product to trust.
        doubtful = (errors <= allowed).logical_not_()
        _redo(found[rows], doubtful, a[rows], b, share, negligible)
    return found


def _redo(
    found: Tensor, doubtful: Tensor, a: Tensor, b: Tensor, share: float, negligible: float
) -> None:
    """Overwrite the doubtful distances, or all where many are."""
    pairs = doubtful.nonzero()
    if len(pairs) * APART <= found.numel():
        for some in torch.split(pairs, max(1, AT_ONCE // a.shape[1])):
            first, second = some.unbind(1)
            found[first, second] = (a[first] - b[second]).square().sum(1)
    elif found.dtype != torch.float64 and min(found.shape) >= NARROW:
        found.copy_(squared_distances(a.double(), b.double(), share, negligible))
    else:
        exact = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
        found.copy_(exact.square_())
