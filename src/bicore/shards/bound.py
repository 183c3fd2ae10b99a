"""What a row that a pass left out may be worth by now: a true bound, of norms alone.

A row's slope is s = ⟨φ, M(e_c − π)⟩ − φᵀMWᵀφ. Between a pass and now it grows by at most
‖φ‖·max_c‖ΔM(e_c − π)‖ + ‖φ‖²·‖Δ(MWᵀ)‖, in the Frobenius norm, which needs 2C×2C numbers only.
"""

from __future__ import annotations

import numpy as np

from bicore.data import Array
from bicore.shards.growing import Growing


def growth(before: tuple[Array, Array], growing: Growing, longest: float, centre: Array) -> float:
    """The most by which the slope of any row has grown.

    Parameters
    ----------
    before : tuple of array
        M and W when the rows were scored.
    growing : Growing
        The coreset now.
    longest : float
        The largest ‖φ‖².
    centre : array (C,)
        What is subtracted from one-hot labels; zeros where y holds targets.

    Returns
    -------
    float
        For classes; a bound for targets needs their norms, and is infinite here.
    """
    change, model = before
    if not centre.any():
        return 0.0 if np.array_equal(change, growing.change) else float("inf")
    moved = growing.change - change
    along = moved - (moved @ centre)[:, None]
    linear = float(np.sqrt(np.einsum("ij,ij->j", along, along).max()))
    left, right = np.hstack([growing.change, -change]), np.hstack([growing.model, model])
    square = float(np.vdot(left.T @ left, right.T @ right))
    return float(np.sqrt(longest)) * linear + longest * float(np.sqrt(max(0.0, square)))
