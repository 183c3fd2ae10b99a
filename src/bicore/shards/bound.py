"""What a row that a pass left out may be worth by now: a true bound, of norms alone.

A row's slope is s = ⟨φ, M(e_c − π)⟩ − φᵀMWᵀφ. Between a pass and now it grows by at most
‖φ‖·max_c‖ΔM(e_c − π)‖ + ‖φ‖²·‖Δ(MWᵀ)‖, in the Frobenius norm, which needs 2C×2C numbers only.
"""

from __future__ import annotations

from typing import Any

from bicore.data import Array
from bicore.shards.arithmetic import placed
from bicore.shards.growing import Growing


def growth(
    before: tuple[Any, Any], growing: Growing, longest: float, shares: Array | None
) -> float:
    """The most by which the slope of any row has grown.

    Parameters
    ----------
    before : tuple of array
        M and W when the rows were scored.
    growing : Growing
        The coreset now.
    longest : float
        The largest ‖φ‖².
    shares : array (C,), optional
        What is subtracted from one-hot labels; None where y holds targets.

    Returns
    -------
    float
        For classes; a bound for targets needs their norms, and is infinite here.
    """
    change, model = before
    if shares is None:
        same = bool((change == growing.change).all())
        return 0.0 if same else float("inf")
    moved = growing.change - change
    along = moved - (moved @ placed(shares, growing.device))[:, None]
    linear = float((along * along).sum(0).max()) ** 0.5
    square = _squares(growing.change, growing.model, change, model)
    return float(longest**0.5 * linear + longest * max(0.0, square) ** 0.5)


def _squares(change: Any, model: Any, old_change: Any, old_model: Any) -> float:
    """‖MWᵀ − M₀W₀ᵀ‖², by the smaller of its two sides."""
    width, outputs = change.shape
    if 2 * outputs > width:
        moved = change @ model.T - old_change @ old_model.T
        return float((moved * moved).sum())
    own = (change.T @ change) * (model.T @ model)
    old = (old_change.T @ old_change) * (old_model.T @ old_model)
    crossed = (old_change.T @ change) * (old_model.T @ model)
    return float(own.sum() - 2.0 * crossed.sum() + old.sum())
