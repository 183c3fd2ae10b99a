"""Ridge regression on a changing set of rows, by the cost of every addition and removal.

With the features Φ_S and targets Y_S of the rows S, and the moments A, B of the outer objective G,

    Σ = (Φ_SᵀΦ_S + ρI)⁻¹      W = ΣΦ_SᵀY_S      M = −2Σ(AW − B)

and every row has t = φᵀΣφ, q = φᵀΣAΣφ, residuals r = y − Wᵀφ, adjoints h = Mᵀφ and the slope
s = ⟨h, r⟩ = −∂G/∂w.
If a row j joins (sign +1) or leaves (sign −1), with rate = sign / (1 + sign·t_j),

    G falls by        rate·s_j − rate²·q_j‖r_j‖²
    t falls by        rate·t_k²                       with t_k = φ_kᵀΣφ_j
    q falls by        2·rate·t_k·u_k                  with v_k = φ_kᵀΣAΣφ_j, u = v − ½·rate·q_j·t
    r falls by        rate·t_k·r_j
    h falls by        rate·t_k·(h_j − 2·rate·q_j·r_j) + 2·rate·v_k·r_j

The last two also hold for −W and M, with Σφ_j and ΣAΣφ_j in place of t and v. A
:class:`FeatureState` has Σ, W and M (p×p, for any number of rows); :class:`PairRows` have the
matrices ΦΣΦᵀ and ΦΣAΣΦᵀ of N rows instead, which is less work if N is below p. With a kernel, these
are K'/ρ and K'DK'/ρ², r the residuals and h = 2/ρ·K'Dr. ``SEARCHES`` choose a coreset of given size
among rows: by elimination, addition or exchange.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from bicore.arguments import TIE
from bicore.data import Array
from bicore.errors import NumericalError, NumericalWarning
from bicore.kernels.scaling import check_scale
from bicore.moments.moments import Outer
from bicore.numerics.linear_algebra import exact_gain, row_products
from bicore.runtime.threads import all_threads

#: Maximum number of pending changes before the matrices of candidates are updated.
MOST_PENDING = 64
#: If 1 − t of a leaving row is below this, rounding dominates and the rows are refitted.
LEAST = 1e-9
#: Minimum relative decrease of the objective for an exchange.
WORTHWHILE = 1e-6
#: Maximum difference between the sum of all changes and a refit, as a share of the largest of the
#: empty coreset's loss, the refitted loss and the mean squared target.
DRIFT = 1e-6
#: Known products of the first rows.
Known = tuple[Array, Array] | None


def to_device(array: Any, device: torch.device | None) -> Any:
    """Return numbers in float64, as a tensor on a device, or as an array if that is None."""
    if device is None:
        return np.asarray(array, dtype=np.float64)
    return torch.tensor(np.asarray(array), dtype=torch.float64, device=device)


def to_host(numbers: Any) -> Any:
    """Return an array or a tensor as an array."""
    return numbers.cpu().numpy() if torch.is_tensor(numbers) else np.asarray(numbers)


def _pair(*rows: Any) -> Any:
    return torch.stack(rows) if torch.is_tensor(rows[0]) else np.array(rows)


def _join(*arrays: Any) -> Any:
    return torch.cat(arrays, -1) if torch.is_tensor(arrays[0]) else np.concatenate(arrays, -1)


class Step(NamedTuple):
    """The addition or removal of a row: its rate and q, and its r and h before the change."""

    rate: float
    q: float
    both: Any

    @property
    def decrease(self) -> float:
        """The decrease of the objective."""
        count = len(self.both) // 2
        residual, adjoint = self.both[:count], self.both[count:]
        return self.rate * float(adjoint @ residual - self.rate * self.q * (residual @ residual))

    def apply(self, both: Any, scaled: Any, v: Any) -> None:
        """Update r and h of rows, stored next to each other, with one product.

        ``scaled`` is rate·t.
        """
        count = len(self.both) // 2
        terms = _pair(self.both, 0.0 * self.both)
        terms[0, count:] -= (2.0 * self.rate * self.q) * self.both[:count]
        terms[1, count:] = self.both[:count]
        both -= (terms.T @ _pair(scaled, 2.0 * self.rate * v)).T


class RidgeRows(ABC):
    """Rows inside and outside a coreset, with exact costs of every addition and removal."""

    objective: float
    #: 1 + t of rows outside and 1 − t of rows inside; q of every row.
    divisor: Any
    q: Any
    #: Residuals r and adjoints h, next to each other.
    both: Any
    #: 1 for rows outside, −1 for rows inside.
    signs: Any
    #: If the divisor of a changed row is below this, the rows are refitted.
    least: ClassVar[float] = LEAST

    def __init__(self, targets: Array, inside: Array | None = None) -> None:
        self.targets = targets
        self.inside = np.zeros(len(targets), dtype=bool) if inside is None else inside.copy()

    def _renew(self) -> None:
        """Refit the rows of the coreset, because rounding would dominate the next change."""
        raise NotImplementedError

    @abstractmethod
    def _step(self, row: int, sign: float) -> tuple[Step, Any, Any]:
        """Apply the change; return the step, and t and v of all rows."""

    @abstractmethod
    def pairs(self, rows: Any, own: Any) -> tuple[Any, Any]:
        """Return T and V between some rows and others, identified as the subclass defines."""

    def exchange(self, one: int, other: int) -> None:
        """Exchange the places of two rows."""
        for table in self._tables():
            table[[one, other]] = table[[other, one]]

    def _tables(self) -> list[Any]:
        """Return everything that has an entry for each row."""
        return [self.targets, self.inside, self.signs, self.divisor, self.q, self.both]

    def change(self, row: int) -> None:
        """Add a row, or remove it if it is inside."""
        sign = -1.0 if self.inside[row] else 1.0
        self.inside[row] = sign > 0
        divisor = float(self.divisor[row])
        if not divisor > self.least:
            self._renew()
            return
        step, t, v = self._step(row, sign)
        self.objective -= step.decrease
        scaled, u = step.rate * t, v - (0.5 * step.rate * step.q) * t
        self.divisor -= self.signs * scaled * t
        self.q -= 2.0 * scaled * u
        step.apply(self.both, scaled, v)
        # The row's own values, without the rounding of a difference.
        count = self.targets.shape[1]
        self.signs[row] = -sign
        self.divisor[row] = 1.0 / divisor
        self.q[row] = step.q / divisor**2
        self.both[row] = step.both / divisor
        self.both[row, count:] -= (2.0 * step.rate * step.q / divisor) * step.both[:count]
        self._note(step.rate, scaled, t, u)

    def _note(self, rate: float, scaled: Any, t: Any, u: Any) -> None:  # noqa: B027
        """Update the products between rows after a change."""

    def gradients(self) -> Array:
        """Compute the negative derivative of the objective in the weight of every row."""
        outputs = self.targets.shape[1]
        found: Array = to_host(row_products(self.both[:, outputs:], self.both[:, :outputs]))
        return found

    def gains(self) -> Array:
        """Compute the decrease of the objective by adding each row."""
        return np.where(self.inside, -np.inf, self._decreases(1.0))

    def removal_costs(self) -> Array:
        """Compute the increase of the objective by removing each row."""
        return np.where(self.inside, -self._decreases(-1.0), np.inf)

    def _decreases(self, sign: float) -> Array:
        outputs = self.targets.shape[1]
        residuals, adjoints = self.both[:, :outputs], self.both[:, outputs:]
        squares = row_products(residuals, residuals)
        products = row_products(adjoints, residuals)
        found: Array = to_host(exact_gain(products, self.q, squares, sign * self.divisor))
        return found


class FeatureState:
    """The ridge regression of a coreset of any size, in p features."""

    def __init__(self, outer: Outer, ridge: float, device: torch.device | None = None) -> None:
        self.outer, self.ridge, self.device = outer, ridge, device
        width, outputs = outer.cross.shape
        second = np.tril(outer.second) * outer.share
        second += np.tril(second, -1).T
        self.second: Any = to_device(second, device)
        self.inverse: Any = to_device(np.eye(width) / ridge, device)
        #: −W and M, next to each other.
        self.both: Any = to_device(
            np.hstack([np.zeros((width, outputs)), 2.0 * outer.cross / ridge]), device
        )
        self.objective = outer.constant

    def refit(self, features: Array, targets: Array) -> FeatureState:
        """Return the state of other rows, fitted from scratch."""
        found = self.copy()
        system = features.T @ features
        system[np.diag_indices(len(system))] += self.ridge
        inverse = np.linalg.inv(system)
        model = np.linalg.solve(system, features.T @ targets)
        found.inverse = to_device(0.5 * (inverse + inverse.T), self.device)
        own = to_device(model, self.device)
        pulled = self.second @ own - to_device(self.outer.cross, self.device)
        found.both = _join(-own, -2.0 * (found.inverse @ pulled))
        found.objective = self.outer.loss(model)
        return found

    def copy(self) -> FeatureState:
        """Return an independent copy."""
        found = copy.copy(self)
        found.inverse, found.both = 1.0 * self.inverse, 1.0 * self.both
        return found

    def change(self, row: Any, target: Any, sign: float = 1.0) -> tuple[Step, Any, Any]:
        """Add a row, or remove it with ``sign=-1``."""
        row, target = to_device(row, self.device), to_device(target, self.device)
        reach = self.inverse @ row
        turned = self.inverse @ (self.second @ reach)
        rate = sign / (1.0 + sign * float(row @ reach))
        own = row @ self.both
        own[: len(target)] += target
        step = Step(rate, float(row @ turned), own)
        lower = step.decrease
        if not np.isfinite(lower):
            raise NumericalError(
                f"a row changes the objective by {lower}; raise inner_reg "
                f"(ridge={self.ridge:.3g}), or scale the features."
            )
        scaled = rate * reach
        step.apply(self.both, scaled, turned)
        self.inverse -= scaled[:, None] * reach[None, :]
        self.objective -= lower
        return step, reach, turned

    def growth_since(self, before: Any, largest_square: float, shares: Array | None) -> float:
        """Bound the growth of the slope of any row since ``both`` was ``before``, by norms.

        ``largest_square`` is the largest ‖φ‖². A row of class c has the target e_c − π, where π are
        the shares of the classes; without classes there is no bound. A slope is
        ⟨φ, M(e_c − π)⟩ − φᵀMWᵀφ. It grows by at most ‖φ‖·max_c‖ΔM(e_c − π)‖ + ‖φ‖²·‖Δ(MWᵀ)‖ in the
        Frobenius norm.
        """
        moved = self.both - before
        if not bool((moved != 0).any()):
            return 0.0
        if shares is None:
            return float("inf")
        outputs = len(shares)
        change = moved[:, outputs:]
        along = change - (change @ to_device(shares, self.device))[:, None]
        linear = float((along * along).sum(0).max()) ** 0.5
        # Δ(MWᵀ) = −(ΔM(−W)ᵀ + M₀Δ(−W)ᵀ)
        left = _join(change, before[:, outputs:])
        right = _join(self.both[:, :outputs], moved[:, :outputs])
        if 2 * outputs > len(left):
            product = left @ right.T
            square = float((product * product).sum())
        else:
            square = float(((left.T @ left) * (right.T @ right)).sum())
        return float(largest_square**0.5 * linear + largest_square * max(0.0, square) ** 0.5)


class FeatureRows(RidgeRows):
    """Rows whose costs follow from a :class:`FeatureState`; a change costs p products per row."""

    def __init__(
        self, state: FeatureState, features: Array, targets: Array, inside: Array | None = None
    ) -> None:
        self.state = state
        self.features = features
        self._features = to_device(features, state.device)
        super().__init__(targets, inside)
        self._begin()

    def _begin(self) -> None:
        state, rows = self.state, self._features
        self.objective = state.objective
        with all_threads(float(self.features.size) * len(state.second)):
            reach = rows @ state.inverse
            turned = reach @ state.second
        self.signs = to_device(np.where(self.inside, -1.0, 1.0), state.device)
        self.divisor = 1.0 + self.signs * row_products(reach, rows)
        self.q = row_products(turned, reach)
        self.both = rows @ state.both
        self.both[:, : self.targets.shape[1]] += to_device(self.targets, state.device)

    def _renew(self) -> None:
        own = self.inside
        self.state = self.state.refit(self.features[own], self.targets[own])
        self._begin()

    def _step(self, row: int, sign: float) -> tuple[Step, Any, Any]:
        step, reach, turned = self.state.change(self.features[row], self.targets[row], sign)
        return step, *(self._features @ _pair(reach, turned).T).T

    def _tables(self) -> list[Any]:
        copies = [] if self._features is self.features else [self._features]
        return [*super()._tables(), self.features, *copies]

    def pairs(self, rows: Any, own: Any) -> tuple[Any, Any]:
        """Return T and V between some rows and others: a slice of these, or any features."""
        own = self._features[own] if isinstance(own, slice) else own
        state = self.state
        reach = self._features[rows] @ state.inverse
        turned = (reach @ state.second) @ state.inverse
        with all_threads(2.0 * len(reach) * own.shape[0] * own.shape[1]):
            return reach @ own.T, turned @ own.T


class PairRows(RidgeRows):
    """Rows whose costs follow from the N×N matrices T = ΦΣΦᵀ and V = ΦΣAΣΦᵀ.

    A change is a term of rank one in T and of rank two in V. They stay
    pending, and a column that is read is corrected by them. They are applied to the matrices, which
    costs N², after ``MOST_PENDING`` changes or when pairs are read.
    """

    least = -np.inf

    def __init__(self, targets: Array, inside: Array | None, matrices: Array, both: Array) -> None:
        super().__init__(targets, inside)
        self._set_tables(matrices, both)

    def _set_tables(self, matrices: Array, both: Array, objective: float = 0.0) -> None:
        """Set T and V next to each other, r and h likewise, and the objective before any change.

        The matrices are changed in place.
        """
        self.objective = objective
        #: T and V, next to each other.
        self._matrices = matrices
        self.both = np.asfortranarray(both)  # sums over outputs are contiguous
        self.signs = np.where(self.inside, -1.0, 1.0)
        count = len(matrices)
        self.divisor = 1.0 + self.signs * matrices.diagonal()
        self.q = matrices.diagonal(count).copy()
        self._pending = 0
        #: The products of these are pending: two rows for each change.
        self._left = np.empty((2 * MOST_PENDING, count))
        self._right = np.zeros((2 * MOST_PENDING, 2 * count))

    def pairs(self, rows: Any, own: slice) -> tuple[Any, Any]:
        """Return T and V between some rows and others."""
        self._apply_pending()
        count = len(self.inside)
        return self._matrices[rows, own], self._matrices[rows, count:][:, own]

    def _tables(self) -> list[Any]:
        late, count = slice(2 * self._pending), len(self.inside)
        wide = (self._matrices, self._right[late])
        halves = (half.T for one in wide for half in (one[:, :count], one[:, count:]))
        return [*super()._tables(), self._matrices, self._left[late].T, *halves]

    def _step(self, row: int, sign: float) -> tuple[Step, Any, Any]:
        # Memories spend most of their time here, so every call counts.
        late, count = 2 * self._pending, len(self.inside)
        columns = self._matrices[row]
        if late:  # terms not yet in the matrices
            columns = columns - self._left[:late, row] @ self._right[:late]
        t, v = columns[:count], columns[count:]
        step = Step(sign / float(self.divisor[row]), float(self.q[row]), self.both[row].copy())
        return step, t, v

    def _note(self, rate: float, scaled: Any, t: Any, u: Any) -> None:
        first, second, count = 2 * self._pending, 2 * self._pending + 1, len(t)
        self._left[first], self._left[second] = scaled, u
        self._right[first, :count], self._right[first, count:] = t, u
        self._right[second, count:] = scaled
        self._pending += 1
        if self._pending == MOST_PENDING:
            self._apply_pending()

    def _apply_pending(self) -> None:
        """Apply the pending terms to the matrices."""
        if not self._pending:
            return
        from scipy.linalg import blas  # imported late: it takes time

        left, right = (one[: 2 * self._pending].T for one in (self._left, self._right))
        blas.dgemm(-1.0, right, left, 1.0, self._matrices.T, trans_b=True, overwrite_c=True)
        self._pending = 0


class Candidates(PairRows):
    """Rows of features, with the objective of moments; T and V follow from ΦΦᵀ and ΦAΦᵀ."""

    least = LEAST

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
        self.outer, self.ridge = outer, ridge
        #: ΦΦᵀ, ΦAΦᵀ and ΦB; the features are no longer needed.
        self.gram, self.quadratic = _pair_products(outer, features, known)
        self.linear = features @ outer.cross
        RidgeRows.__init__(self, targets, inside)
        self._renew()

    def _renew(self) -> None:
        own = np.flatnonzero(self.inside)
        everything = len(own) == len(self.inside)
        tables = self._with_all() if everything else self._with_some(own)
        if not (np.isfinite(tables[2]) and np.isfinite(tables[0][:, len(self.inside) :]).all()):
            raise NumericalError(
                f"a fit of {len(own)} rows with ridge={self.ridge:.3g} is not finite; raise "
                "inner_reg, or scale the features."
            )
        self._set_tables(*tables)

    def _with_all(self) -> tuple[Array, Array, float]:
        """With all rows in and P = (K + ρI)⁻¹: T = I − ρP and V = PQP, where nothing cancels."""
        inverse = _invert(self.gram, self.ridge)
        weights = inverse @ self.targets
        pulled = self.quadratic @ weights
        both = np.hstack([self.ridge * weights, -2.0 * (inverse @ (pulled - self.linear))])
        t = -self.ridge * inverse
        t[np.diag_indices(len(t))] += 1.0
        v = inverse @ self.quadratic @ inverse
        return np.hstack([t, v]), both, self._value(weights, pulled, self.linear)

    def _with_some(self, own: Array) -> tuple[Array, Array, float]:
        inverse = _invert(self.gram[np.ix_(own, own)], self.ridge)
        reach = self.gram[:, own] @ inverse
        weights = inverse @ self.targets[own]
        pulled = self.quadratic[:, own] @ weights
        adjoints = pulled - self.linear
        adjoints = -2.0 / self.ridge * (adjoints - reach @ adjoints[own])
        both = np.hstack([self.targets - self.gram[:, own] @ weights, adjoints])
        t = (self.gram - reach @ self.gram[own]) / self.ridge
        v = self.quadratic - reach @ self.quadratic[own]
        v = (v - v[:, own] @ reach.T) / self.ridge**2
        return np.hstack([t, v]), both, self._value(weights, pulled[own], self.linear[own])

    def _value(self, weights: Array, pulled: Array, linear: Array) -> float:
        """Compute tr αᵀQα − 2 tr αᵀF + c."""
        return float(np.vdot(weights, pulled - 2.0 * linear)) + self.outer.constant

    def refit(self) -> float:
        """Compute the objective of the rows inside from a new fit."""
        own = np.flatnonzero(self.inside)
        square = np.ix_(own, own)
        weights = _invert(self.gram[square], self.ridge) @ self.targets[own]
        return self._value(weights, self.quadratic[square] @ weights, self.linear[own])


def _pair_products(
    outer: Outer, features: Array, known: tuple[Array, Array] | None
) -> tuple[Array, Array]:
    """Compute ΦΦᵀ and ΦAΦᵀ; the known products of the first rows are not computed again."""
    first = 0 if known is None else len(known[0])
    fresh = features[first:]
    moved = outer.multiply(fresh)
    with all_threads(2.0 * len(fresh) * features.size):
        if known is None:
            return features @ features.T, moved @ features.T
        found = []
        for rows, own in zip((fresh, moved), known, strict=True):
            whole = np.empty((len(features), len(features)))
            whole[first:] = rows @ features.T
            whole[:first, first:] = whole[first:, :first].T
            whole[:first, :first] = own
            found.append(whole)
    return found[0], found[1]


def _invert(gram: Array, ridge: float) -> Array:
    """Compute (K + ρI)⁻¹."""
    system = torch.tensor(gram)
    system.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(system)
    if failed:
        raise NumericalError(
            f"the {len(gram)} rows are too alike for ridge={ridge:.3g}: their system has no "
            "inverse; raise inner_reg."
        )
    return torch.cholesky_inverse(factor).numpy()


def _eliminate(rows: Candidates, size: int) -> None:
    """Repeatedly remove the row with the smallest removal cost; of equal ones the last."""
    for _ in range(len(rows.inside) - size):
        removal_costs = rows.removal_costs()
        least = float(removal_costs.min())
        equal = removal_costs <= least + TIE * max(abs(least), rows.outer.constant)
        rows.change(int(equal.nonzero()[0][-1]))


def _add(score: Callable[[Candidates], Array], rows: Candidates, size: int) -> None:
    """Repeatedly add the row with the largest score; of equal ones the first."""
    for _ in range(size):
        scores = np.where(rows.inside, -np.inf, score(rows))
        rows.change(_first_largest(scores, rows.outer.constant))


def _exchange(rows: Candidates, size: int) -> None:
    """Eliminate, then exchange while that lowers the objective."""
    _eliminate(rows, size)
    exchange_rows(rows)


def _choose(
    search: Callable[[Candidates, int], None],
    from_all: bool,
    outer: Outer,
    features: Array,
    targets: Array,
    ridge: float,
    size: int,
    known: Known = None,
) -> Candidates:
    """Run a search that starts with all rows inside or with none."""
    inside = np.full(len(features), from_all)
    rows = Candidates(outer, features, targets, ridge, inside, known)
    search(rows, size)
    return _verify(rows)


#: Searches for the rows of a memory: by removal cost, by gradient as in the paper, or by gain.
SEARCHES: dict[str, Callable[..., Candidates]] = {
    "elimination": partial(_choose, _eliminate, True),
    "gradient": partial(_choose, partial(_add, Candidates.gradients), False),
    "gain": partial(_choose, partial(_add, Candidates.gains), False),
    "exchange": partial(_choose, _exchange, True),
}


def exchange_rows(rows: RidgeRows, may_leave: Callable[[Array], Array] | None = None) -> int:
    """Repeatedly exchange the best row outside for the one with the smallest removal cost."""
    for exchanges in range(len(rows.inside)):
        before = rows.objective
        joining = _first_largest(rows.gains())
        rows.change(joining)
        removal_costs = rows.removal_costs()
        if may_leave is not None:
            removal_costs[~may_leave(rows.inside)] = np.inf
        leaving = _first_largest(-removal_costs)
        rows.change(leaving)
        if rows.objective > before - WORTHWHILE * abs(before):
            if leaving != joining:  # undo it
                rows.change(joining)
                rows.change(leaving)
            return exchanges
    return len(rows.inside)


def _first_largest(values: Array, scale: float = 0.0) -> int:
    """Return the index of the first value that is largest up to rounding."""
    most = float(values.max())
    return int((values >= most - TIE * max(abs(most), scale)).argmax())


def _verify(rows: Candidates) -> Candidates:
    """Compare the sum of the changes with a refit; warn and use the refit if they differ."""
    fitted = rows.refit()
    # If the outer rows have a single class, the empty coreset's loss is 0, but candidates of other
    # classes have targets that are not 0.
    size = float(np.einsum("ij,ij->", rows.targets, rows.targets)) / len(rows.targets)
    if not abs(fitted - rows.objective) <= DRIFT * max(rows.outer.constant, abs(fitted), size):
        warnings.warn(
            f"the objective of {rows.inside.sum()} rows is {fitted:.6g} by a refit; the selection "
            f"computed {rows.objective:.6g}; raise inner_reg (ridge={rows.ridge:.3g}), or scale "
            "the rows",
            NumericalWarning,
            stacklevel=2,
        )
        rows.objective = fitted
    return rows
