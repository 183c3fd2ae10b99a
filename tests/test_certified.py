"""Every reported objective is what an independent fit of the same points has, or an error.

The fit here is this file's own: kernels by their formulas, closed forms and Newton's method in
extended precision, nothing of bicore's.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicore import (
    RBF,
    BilevelSelector,
    Context,
    CustomLoss,
    Dataset,
    NumericalError,
    PerPoint,
    Runtime,
)
from bicore.bilevel.certificate import FLOOR, TOLERANCE
from bicore.selectors import Batches
from tests.helpers import pseudo_huber

LONG = np.longdouble


# Kernels by their formulas.


def linear(a, b):
    return a @ b.T


def gaussian(gamma):
    def kernel(a, b):
        return np.exp(-LONG(gamma) * np.square(a[:, None] - b[None]).sum(2))

    return kernel


def tangent(a, b):
    """Two hidden layers, σ_w = 1, σ_b = 0.05."""
    bias = LONG("0.05") ** 2

    def dense(sigma, theta):
        sigma = sigma + bias
        return sigma, sigma + theta

    def variances(rows):
        first = np.square(rows).mean(1) + bias
        return first, first / 2 + bias

    sigma, theta = dense(a @ b.T / a.shape[1], 0)
    for left, right in zip(variances(a), variances(b), strict=True):
        root = np.sqrt(left[:, None] * right)
        c = np.clip(sigma / root, -1, 1)
        angle = np.pi - np.arccos(c)
        sigma, theta = dense(
            root * (np.sqrt(1 - c * c) + angle * c) / (2 * np.pi), theta * angle / (2 * np.pi)
        )
    return theta


# Losses: the value of every row, its gradient, and its Hessian as blocks.


def squared(h, t):
    return (
        np.square(h - t).sum(1),
        2 * (h - t),
        2 * np.broadcast_to(np.eye(h.shape[1]), (*h.shape, h.shape[1])),
    )


def cross_entropy(h, t):
    top = h.max(1, keepdims=True)
    p = np.exp(h - top)
    total = p.sum(1, keepdims=True)
    p = p / total
    values = (np.log(total) + top)[:, 0] - (h * t).sum(1)
    return values, p - t, p[:, :, None] * (np.eye(h.shape[1]) - p[:, None])


def logistic(h, t):
    margin = t * h
    p = np.exp(-np.logaddexp(LONG(0), margin))
    return np.logaddexp(LONG(0), -margin)[:, 0], -t * p, (p * (1 - p))[:, :, None]


def huber(h, t):
    root = np.sqrt(1 + np.square(h - t))
    return (root - 1).sum(1), (h - t) / root, (1 / root**3)[:, :, None] * np.eye(h.shape[1])


LOSSES = {"squared": squared, "cross-entropy": cross_entropy, "logistic": logistic, "huber": huber}


def encoded(name, y, reference, weights):
    """Targets as the losses read them."""
    if name == "logistic":
        return (2 * y - 1).astype(LONG)[:, None]
    rows, base = y, reference
    if y.dtype.kind != "f":
        classes = np.eye(reference.max() + 1, dtype=LONG)
        rows, base = classes[y], classes[reference]
    rows = rows.astype(LONG).reshape(len(rows), -1)
    base = base.astype(LONG).reshape(len(base), -1)
    if name == "squared":  # the weighted mean is an intercept
        rows = rows - weights.astype(LONG) @ base / weights.astype(LONG).sum()
    return rows


# The fit.


def solved(matrix, right):
    """Gauss's elimination with pivots, in whatever precision the numbers have."""
    a = np.concatenate([matrix, right], 1)
    n = len(a)
    for k in range(n):
        pivot = k + int(np.abs(a[k:, k]).argmax())
        a[[k, pivot]] = a[[pivot, k]]
        a[k] /= a[k, k]
        others = np.arange(n) != k
        a[others] -= np.outer(a[others, k], a[k])
    return a[:, n:]


def fit(gram, targets, weights, rho, loss):
    """α of Σ w ℓ(h) + ρ tr(αᵀKα), h = Kα, by Newton's method with halved steps."""
    m, c = targets.shape
    alpha = np.zeros((m, c), dtype=LONG)
    w = weights.astype(LONG)[:, None]
    scale = np.abs(w * loss(alpha, targets)[1]).max()

    def energy(alpha):
        h = gram @ alpha
        return float(w[:, 0] @ loss(h, targets)[0] + rho * (alpha * h).sum())

    for _ in range(500):
        _, slope, blocks = loss(gram @ alpha, targets)
        r = w * slope + 2 * rho * alpha
        if np.abs(r).max() <= 1e-15 * scale:
            return alpha
        curved = np.einsum("ijk,il->ijlk", w[:, :, None] * blocks, gram).reshape(m * c, m * c)
        step = -solved(2 * rho * np.eye(m * c) + curved, r.reshape(-1, 1)).reshape(m, c)
        length = 1.0
        before = energy(alpha)
        while length > 1e-12 and not energy(alpha + length * step) <= before + 1e-16 * abs(before):
            length /= 2
        alpha = alpha + length * step
    raise AssertionError(f"the test's own fit ended at {np.abs(r).max() / scale:.2g}")


def truth(case, coreset, x, y, weights, outer):
    """The objective of a coreset, and of no points."""
    rho = LONG(coreset.provenance.inner_reg)
    if coreset.provenance.per_point:
        rho = rho * len(coreset)
    loss = LOSSES[case.loss]
    judge = LOSSES[case.outer_loss or case.loss]
    chosen = coreset.indices
    rows, labels, shares = (x, y, weights) if outer is None else (*outer, np.ones(len(outer[0])))
    aims = encoded(case.outer_loss or case.loss, labels, y, weights)
    shares = shares.astype(LONG) / shares.astype(LONG).sum()
    gram = case.formula(x[chosen].astype(LONG), x[chosen].astype(LONG))
    targets = encoded(case.loss, y, y, weights)[chosen]
    alpha = fit(gram, targets, coreset.weights, rho, loss)
    predictions = case.formula(rows.astype(LONG), x[chosen].astype(LONG)) @ alpha
    nothing = np.zeros_like(predictions)
    return float(shares @ judge(predictions, aims)[0]), float(shares @ judge(nothing, aims)[0])


@dataclass(frozen=True)
class Case:
    """A configuration and its data."""

    kernel: str
    loss: str
    outer_loss: str | None
    rule: str
    weights: str
    strategy: str
    inner_reg: object
    dtype: str
    scale: float
    rows: int
    size: int
    weighted: bool
    judged: bool
    twins: bool
    seed: int

    @property
    def gamma(self):
        return 0.2 / self.scale**2 if self.kernel == "rbf" else 0.2

    @property
    def formula(self):
        return {"linear": linear, "ntk": tangent}.get(self.kernel) or gaussian(self.gamma)

    def selector(self):
        kernel = self.kernel if self.kernel in ("linear", "ntk") else RBF(self.gamma)
        named = {"huber": CustomLoss(pseudo_huber, name="huber")}
        return BilevelSelector(
            kernel,
            named.get(self.loss, self.loss),
            named.get(self.outer_loss, self.outer_loss),
            self.inner_reg,
            self.weights,
            self.rule,
            strategy=Batches(3) if self.strategy == "batches" else self.strategy,
        )

    def data(self):
        rng = np.random.default_rng(self.seed)
        x = rng.normal(size=(self.rows, 3)) * self.scale
        signal = x[:, 0] / self.scale + 0.3 * rng.normal(size=self.rows)
        if self.twins:
            x[1::2] = x[: len(x[1::2]) * 2 : 2]
        y = np.c_[signal, -signal] if self.loss == "huber" else np.digitize(signal, [-0.5, 0.5])
        if self.loss == "logistic":
            y = (signal > 0).astype(int)
        if y.ndim == 1:
            y[: y.max() + 1] = np.arange(y.max() + 1)
        weights = np.ones(self.rows)
        if self.weighted:
            weights = rng.choice([0.0, 0.5, 1.0, 3.0], self.rows)
            weights[:4] = 1
        outer = None
        if self.judged:
            other = rng.permutation(self.rows)[: self.rows // 2]
            outer = x[other] + 0.1 * self.scale * rng.normal(size=(len(other), 3)), y[other]
        return x, y, weights, outer


@st.composite
def cases(draw):
    """Configurations that go together, on data of any scale."""
    one_of = lambda *options: draw(st.sampled_from(options))  # noqa: E731
    loss = one_of("squared", "squared", "cross-entropy", "logistic", "huber")
    mixed = {"squared": "cross-entropy", "cross-entropy": "squared", "huber": "squared"}
    outer_loss = one_of(None, None, None, mixed.get(loss))
    inner_reg = one_of(1e-6, 1e-4, 1e-2, 1.0, 100.0, "auto", PerPoint(1e-3))
    constant = not isinstance(inner_reg, PerPoint)
    closed = constant and loss == "squared" and outer_loss is None
    weights = one_of("binary", "binary", "final", "learnt")
    if loss == "huber":  # derivatives by torch.func are slow: no searches
        weights = "binary"
        inner_reg = 1e-2 if inner_reg == "auto" else inner_reg
    refining = ["simplex"] * constant + ["exchange", "elimination"] * closed
    if weights == "learnt":
        refining = []
    exact = ["gain"] * (closed and weights != "learnt")
    return Case(
        one_of("linear", "rbf", "rbf of one width", "ntk"),
        loss,
        outer_loss,
        one_of("gradient", "gradient", "first-order", "reducible", *exact),
        weights,
        one_of("greedy", "greedy", "batches", *refining),
        inner_reg,
        one_of("float64", "float32"),
        10.0 ** draw(st.integers(-6, 6)),
        rows=draw(st.integers(8, 30)),
        size=draw(st.integers(1, 8)),
        weighted=draw(st.booleans()),
        judged=draw(st.booleans()),
        twins=draw(st.booleans()),
        seed=draw(st.integers(0, 10**6)),
    )


def check(case):
    """What the case reports is right, or it raises; an ordinary one does not."""
    selector = case.selector()
    x, y, weights, outer = case.data()
    judge = None if outer is None else Dataset(*outer)
    context = Context(runtime=Runtime("cpu", case.dtype, threads=1))
    size = min(case.size, int((weights > 0).sum()))
    try:
        coreset = selector.select(Dataset(x, y, weights), size, outer=judge, context=context)
    except NumericalError as error:
        return str(error)
    value, empty = truth(case, coreset, x, y, weights, outer)
    allowed = TOLERANCE[getattr(torch, case.dtype)] * max(value, FLOOR * empty)
    assert abs(coreset.objective - value) <= allowed, (coreset.objective, value, allowed)
    return None


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_reported_objective_is_that_of_an_independent_fit(case):
    check(case)


@pytest.mark.slow
@settings(max_examples=600, suppress_health_check=list(HealthCheck))
@given(cases())
def test_many_reported_objectives_are_those_of_independent_fits(case):
    check(case)
