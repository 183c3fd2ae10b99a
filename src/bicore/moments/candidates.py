"""A coreset among a few hundred candidates, judged by moments: what each may add or take away.

With Φ the candidates' features and Σ = (Φ_SᵀΦ_S + ρI)⁻¹ for the rows S that are in, four things say
everything: T = ΦΣΦᵀ and V = ΦΣAΣΦᵀ (N×N), the predictions E = ΦW and H = ΦM (N×C), where
W = ΣΦ_SᵀY_S and M = −2Σ(AW − B). With r = y − E and s = ⟨H, r⟩, row by row,

    adding k      lowers the objective by  s_k/d − V_kk‖r_k‖²/d²,   d = 1 + T_kk
    dropping i    raises it by             s_i/d + V_ii‖r_i‖²/d²,   d = 1 − T_ii

and every change of S is a term of rank one in T, of rank two in V. These terms are kept aside and
applied to a column when it is asked for: a step costs some N·t numbers after t steps, never N².
"""

from __future__ import annotations

import numpy as np

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.kernels.scaling import check_scale
from bicore.moments.outer import Outer
from bicore.runtime.threads import wide

#: Terms that are kept aside before the matrices are made up to date.
LATE = 64
#: What a step's d may be below before rounding has eaten it: the matrices are then made anew.
LEAST = 1e-9


class Candidates:
    """Rows of which some are in a coreset, with exact costs of every addition and removal.

    Parameters
    ----------
    outer : Outer
        The objective.
    features : array (N, p)
        Of all candidates.
    targets : array (N, C)
        Theirs.
    ridge : float
        The inner regulariser ρ.
    inside : array of bool (N,), optional
        Which are in at the start; by default none.
    known : tuple of array (k, k), optional
        ΦΦᵀ and ΦAΦᵀ of the first rows, where they are known already.

    Examples
    --------
    >>> from bicore.moments import Moments
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 5)), rng.integers(0, 2, 40)
    >>> outer = Moments.empty(5).with_rows(x, y).outer()
    >>> rows = Candidates(outer, x[:10], np.eye(2)[y[:10]], 0.1)
    >>> gain, before = rows.gains().max(), rows.objective
    >>> rows.change(int(rows.gains().argmax()))
    >>> bool(np.isclose(before - gain, rows.objective))
    True
    """

    def __init__(
        self,
        outer: Outer,
        features: Array,
        targets: Array,
        ridge: float,
        inside: Array | None = None,
        known: tuple[Array, Array] | None = None,
    ) -> None:
        check_scale(outer.energy, features)
        self.outer = outer
        self.ridge = ridge
        self.targets = targets
        count = len(features)
        self.inside = np.zeros(count, dtype=bool) if inside is None else inside.copy()
        #: ΦΦᵀ, ΦAΦᵀ and ΦB: all that is ever needed of the features.
        self.gram, self.quadratic = products(outer, features, known)
        self.linear = features @ outer.cross
        self._begin()

    def _begin(self) -> None:
        """T, V, y − E and H from nothing, for the rows that are in now."""
        own = np.flatnonzero(self.inside)
        if len(own) == len(self.inside):
            t, v, residuals, slopes, self.objective = self._with_all()
        elif len(own):
            t, v, residuals, slopes, self.objective = self._with_some(own)
        else:
            t, v = self.gram / self.ridge, self.quadratic / self.ridge**2
            residuals, slopes = self.targets, 2.0 * self.linear / self.ridge
            self.objective = self.outer.constant
        if not (np.isfinite(self.objective) and np.isfinite(v).all()):
            raise NumericalError(
                f"a fit of {len(own)} rows with ridge={self.ridge:.3g} is not finite; raise "
                "inner_reg, or scale the features."
            )
        self._t, self._v = t, v
        self.t_diagonal, self.v_diagonal = t.diagonal().copy(), v.diagonal().copy()
        #: y − E and H side by side: one product changes both.
        self._both = np.hstack([residuals, slopes])
        self.residuals, self.slopes = np.hsplit(self._both, 2)
        self._late = 0
        shape = (len(self.inside), LATE)
        self._t_steps, self._u_steps = np.empty(shape, order="F"), np.empty(shape, order="F")
        self._t_rates, self._u_rates = np.empty(shape, order="F"), np.empty(shape, order="F")

    def _with_all(self) -> tuple[Array, Array, Array, Array, float]:
        """All candidates are in: with P = (K + ρI)⁻¹ nothing cancels, T = I − ρP and V = PQP."""
        inverse = inverse_of(self.gram, self.ridge)
        weights = inverse @ self.targets
        pulled = self.quadratic @ weights
        slopes = -2.0 * (inverse @ (pulled - self.linear))
        t = -self.ridge * inverse
        t[np.diag_indices(len(t))] += 1.0
        v = inverse @ self.quadratic @ inverse
        return t, v, self.ridge * weights, slopes, self._value(weights, pulled, self.linear)

    def _with_some(self, own: Array) -> tuple[Array, Array, Array, Array, float]:
        inverse = inverse_of(self.gram[np.ix_(own, own)], self.ridge)
        reach = self.gram[:, own] @ inverse
        weights = inverse @ self.targets[own]
        pulled = self.quadratic[:, own] @ weights
        residuals = self.targets - self.gram[:, own] @ weights
        slopes = pulled - self.linear
        slopes = -2.0 / self.ridge * (slopes - reach @ slopes[own])
        t = (self.gram - reach @ self.gram[own]) / self.ridge
        v = self.quadratic - reach @ self.quadratic[own]
        v = (v - v[:, own] @ reach.T) / self.ridge**2
        return t, v, residuals, slopes, self._value(weights, pulled[own], self.linear[own])

    def _value(self, weights: Array, pulled: Array, linear: Array) -> float:
        """tr αᵀQα − 2 tr αᵀF + c."""
        return float(np.vdot(weights, pulled - 2.0 * linear)) + self.outer.constant

    # What each row may do.

    def gradients(self) -> Array:
        """The slope of the objective in the weight of every candidate, downwards.

        Returns
        -------
        array (N,)
            −∂G/∂w.
        """
        found: Array = np.einsum("ij,ij->i", self.slopes, self.residuals)
        return found

    def gains(self) -> Array:
        """By how much the objective falls if a row joins.

        Returns
        -------
        array (N,)
            −∞ for those that are in.
        """
        found = self._effects(1.0)
        found[self.inside] = -np.inf
        return found

    def losses(self) -> Array:
        """By how much the objective rises if a row leaves.

        Returns
        -------
        array (N,)
            ∞ for those that are out.
        """
        found = -self._effects(-1.0)
        found[~self.inside] = np.inf
        return found

    def _effects(self, sign: float) -> Array:
        """What the objective falls by if each row's weight changes by ±1."""
        squares = np.einsum("ij,ij->i", self.residuals, self.residuals)
        inverse = 1.0 / (1.0 + sign * self.t_diagonal)
        found: Array = inverse * (sign * self.gradients() - inverse * self.v_diagonal * squares)
        return found

    # Changes.

    def change(self, row: int) -> None:
        """Let a row join, or leave where it is in.

        Parameters
        ----------
        row : int
            Which.
        """
        sign = -1.0 if self.inside[row] else 1.0
        t, v = self._columns(row)
        d = 1.0 + sign * t[row]
        self.inside[row] = sign > 0
        if not d > LEAST:
            self._begin()
            return
        rate = sign / d
        own = float(v[row])
        residual, slope = self.residuals[row].copy(), self.slopes[row].copy()
        fall = rate * float(slope @ residual) - rate * rate * own * float(residual @ residual)
        u = v - (0.5 * rate * own) * t
        turn = slope - (2.0 * rate * own) * residual
        nothing = np.zeros_like(residual)
        steps = np.array([np.append(residual, turn), np.append(nothing, residual)])
        self._both -= np.array([rate * t, (2.0 * rate) * v]).T @ steps
        late = self._late
        self._t_steps[:, late] = t
        self._u_steps[:, late] = u
        self._t_rates[:, late] = rate * t
        self._u_rates[:, late] = rate * u
        self.t_diagonal -= self._t_rates[:, late] * t
        self.v_diagonal -= 2.0 * self._t_rates[:, late] * u
        self.objective -= fall
        self._late += 1
        if self._late == LATE:
            self._apply()

    def _columns(self, row: int) -> tuple[Array, Array]:
        """The column of T and of V, with the late terms."""
        t, v = self._t[row], self._v[row]
        late = self._late
        if late:
            own = self._t_steps[row, :late]
            rates = self._t_rates[:, :late]
            t = t - rates @ own
            v = v - rates @ self._u_steps[row, :late] - self._u_rates[:, :late] @ own
        return t, v

    def _apply(self) -> None:
        """Make T and V up to date."""
        self._t -= self._t_rates @ self._t_steps.T
        turned = self._t_rates @ self._u_steps.T
        self._v -= turned + turned.T
        self._late = 0

    def refit(self) -> float:
        """The objective of the rows that are in, fitted from nothing.

        Returns
        -------
        float
            To hold against ``objective``, which is the sum of all steps.
        """
        own = np.flatnonzero(self.inside)
        if not len(own):
            return self.outer.constant
        square = np.ix_(own, own)
        weights = inverse_of(self.gram[square], self.ridge) @ self.targets[own]
        return self._value(weights, self.quadratic[square] @ weights, self.linear[own])


def products(
    outer: Outer, features: Array, known: tuple[Array, Array] | None
) -> tuple[Array, Array]:
    """ΦΦᵀ and ΦAΦᵀ; what is known of the first rows is not computed again."""
    if known is None:
        moved = outer.times(features)
        with wide(2.0 * len(features) * features.size):
            return features @ features.T, moved @ features.T
    first = len(known[0])
    fresh = features[first:]
    moved = outer.times(fresh)
    found = []
    with wide(2.0 * len(fresh) * features.size):
        for rows, own in ((fresh, known[0]), (moved, known[1])):
            whole = np.empty((len(features), len(features)))
            whole[first:] = rows @ features.T
            whole[:first, first:] = whole[first:, :first].T
            whole[:first, :first] = own
            found.append(whole)
    return found[0], found[1]


def inverse_of(gram: Array, ridge: float) -> Array:
    """(K + ρI)⁻¹."""
    from scipy.linalg import lapack  # not before it is needed: importing it takes time

    system = np.array(gram, order="F")
    system[np.diag_indices(len(system))] += ridge
    factor, failed = lapack.dpotrf(system, lower=1, overwrite_a=1)
    if not failed:
        inverse, failed = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        raise NumericalError(
            f"the {len(gram)} rows are too alike for ridge={ridge:.3g}: their system has no "
            "inverse; raise inner_reg."
        )
    lower = np.tril(inverse)
    whole = lower + lower.T
    whole[np.diag_indices(len(whole))] *= 0.5
    return np.asarray(whole)
