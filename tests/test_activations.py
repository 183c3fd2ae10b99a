"""Kernels of smooth activations against quadrature, and modules that from_module reads or refuses."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bicore import InputError
from bicore.kernels import TangentKernel, from_module
from bicore.kernels.architecture import (
    GELU,
    Conv,
    Dense,
    Erf,
    GlobalAverage,
    LeakyReLU,
    ReLU,
    Residual,
)
from tests.helpers import refuses

KINDS = {"gelu": (GELU(), functional.gelu), "erf": (Erf(), torch.erf)}
#: Variances, and covariances as shares of what they allow: independent, opposite, equal, tiny, large.
CASES = [
    (1.0, 1.0, 0.3),
    (0.4, 2.5, -0.7),
    (1.7, 1.7, 1.0),
    (1.7, 1.7, -1.0),
    (3.0, 0.2, 0.0),
    (1e-6, 2.0, 0.5),
    (0.0, 1.0, 0.0),
]


def integrate(function, a, b, c, nodes=120):
    """E f(u)f(u') by Gauss–Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = torch.from_numpy(weights / math.sqrt(2 * math.pi))
    points = torch.from_numpy(points)
    along = c / math.sqrt(a) if a > 0 else 0.0
    across = math.sqrt(max(b - along**2, 0.0))
    u = math.sqrt(a) * points[:, None]
    other = along * points[:, None] + across * points[None, :]
    return float((weights[:, None] * weights[None, :] * function(u) * function(other)).sum())


def slope_of(function):
    def slope(u):
        u = u.detach().requires_grad_()
        return torch.autograd.grad(function(u).sum(), u)[0]

    return slope


def test_leaky_relu_lies_between_relu_and_the_identity():
    x = np.random.default_rng(0).normal(size=(4, 3))

    def kernel(activation):
        return TangentKernel([Dense(), activation, Dense(), activation, Dense()])(x)

    np.testing.assert_allclose(kernel(LeakyReLU(0.0)), kernel(ReLU()), rtol=1e-12)
    linear = TangentKernel([Dense(), Dense(), Dense()])(x)
    np.testing.assert_allclose(kernel(LeakyReLU(1.0)), linear, rtol=1e-9)
    # u and −2u: one integral
    u = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    density = torch.exp(-(u**2) / 2) / math.sqrt(2 * math.pi) * (u[1] - u[0])
    pair = np.array([[1.0], [-2.0]])
    leaky = functional.leaky_relu
    wanted = [float((density * leaky(u, 0.2) * leaky(k * u, 0.2)).sum()) for k in (1, -2)]
    found = TangentKernel([Dense(), LeakyReLU(0.2), Dense()], "nngp")(pair)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_maps_are_the_expectations(name, case):
    layer, function = KINDS[name]
    a, b, share = case
    c = share * math.sqrt(a * b)
    value, slope = layer._maps(*(torch.tensor(one, dtype=torch.float64) for one in (a, b, c)))
    assert float(value) == pytest.approx(integrate(function, a, b, c), abs=1e-7)
    assert float(slope) == pytest.approx(integrate(slope_of(function), a, b, c), abs=1e-6)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_equal_points_lie_on_the_diagonal_in_every_shape_of_network(name, kind):
    layer, _ = KINDS[name]
    x = np.random.default_rng(0).normal(size=(5, 2, 2, 2))
    networks = [
        [Dense(1.3, 0.2), layer, Dense(1.1), layer, Dense()],
        [Conv(2), Residual((layer, Conv(2)), (Conv(1),)), layer, GlobalAverage(), Dense()],
    ]
    for layers in networks:
        kernel = TangentKernel(layers, kind=kind)
        rows = x if kernel.spatial else x.reshape(5, -1)
        whole = kernel(np.concatenate([rows, rows[:2]]))
        np.testing.assert_allclose(whole[5:, :5], whole[:2, :5], rtol=1e-9)
        np.testing.assert_allclose(kernel(rows, rows), whole[:5, :5], rtol=1e-9)
        assert np.linalg.eigvalsh(whole).min() > -1e-9
        single = kernel(rows.astype(np.float32))
        np.testing.assert_allclose(single, whole[:5, :5], rtol=1e-4)


class Called(nn.Module):
    """A small network of images that ends as a function says."""

    def __init__(self, end, activation=torch.relu):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.last = nn.Linear(4, 3)
        self.end = end
        self.activation = activation

    def forward(self, x):
        return self.end(self, self.activation(self.conv(x)))


POOLED = (Conv(3, 1, 1, 1.0, 0.05), ReLU(), GlobalAverage(), Dense(1.0, 0.05))


@pytest.mark.parametrize(
    "end",
    [
        lambda net, h: net.last(functional.adaptive_avg_pool2d(h, 1).flatten(1)),
        lambda net, h: net.last(functional.adaptive_avg_pool2d(h, output_size=(1, 1)).flatten(1)),
        lambda net, h: net.last(h.mean((2, 3))),
        lambda net, h: net.last(torch.mean(h, dim=[-2, -1])),
        lambda net, h: functional.log_softmax(net.last(h.mean((2, 3))), dim=1),
        lambda net, h: net.last(h.mean((2, 3))).softmax(1),
    ],
)
def test_averages_and_final_softmaxes_that_are_called(end):
    assert from_module(Called(end)).layers == POOLED


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda net, h: net.last(h.mean(1)), "average pooling"),
        (lambda net, h: net.last(torch.softmax(h.mean((2, 3)), 1)), "softmax"),
        (lambda net, h: net.last(h.mean((2, 3))).softmax(dim=0), "softmax"),
        (lambda net, h: net.last(torch.tanh(h).flatten(1)), "closed form"),
        (
            lambda net, h: net.last(functional.gelu(h, approximate="tanh").flatten(1)),
            "approximate=",
        ),
    ],
)
def test_refused_modules_name_the_replacement(end, words):
    with pytest.raises(InputError, match=words) as raised:
        from_module(Called(end))
    assert "select_from" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_activations_and_ends_by_module():
    layers = nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2), nn.LogSoftmax(1)
    assert from_module(nn.Sequential(*layers)).layers == (Dense(1, 0.05), GELU(), Dense(1, 0.05))
    erf = Called(lambda net, h: net.last(h.flatten(1)), torch.erf)
    assert from_module(erf).layers[1] == Erf()
    leaky = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2))
    assert from_module(leaky).layers[1] == LeakyReLU(0.2)
    for wrong in (nn.GELU("tanh"), nn.Tanh(), nn.Sigmoid(), nn.SiLU()):
        refuses("select_from", from_module, nn.Sequential(nn.Linear(3, 4), wrong, nn.Linear(4, 2)))
    refuses("Softmax", from_module, nn.Sequential(nn.Linear(3, 4), nn.Softmax(1), nn.Linear(4, 2)))


@pytest.mark.slow  # importing the compiler is
def test_a_compiled_module_is_read_as_the_one_it_was_made_from():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = from_module(torch.compile(net))
    assert compiled == from_module(net)
    assert compiled.label == "Sequential"
    parts = nn.Sequential(torch.compile(net[:-1]), net[-1])
    assert from_module(parts).layers == compiled.layers
    assert hasattr(parts[0], "_orig_mod")  # the user's own is as it was
    square = nn.Linear(3, 3)
    twice = torch.compile(square)
    shared = nn.Sequential(twice, nn.ReLU(), twice)
    with pytest.raises(InputError, match="used twice"):  # a part under two names, and compiled
        from_module(shared)


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.LayerNorm([4, 6, 6])]
)
def test_normalisation_is_refused_or_left_out_with_a_notice(norm):
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)
    )
    refuses(r"normalisation='drop'.*select_from", from_module, net)
    with pytest.warns(UserWarning, match="normalisation"):
        kernel = from_module(net, normalisation="drop")
    plain = nn.Sequential(*(part for part in net if part is not norm))
    assert kernel.layers == from_module(plain).layers
    refuses("normalisation='keep'", from_module, net, normalisation="keep")
