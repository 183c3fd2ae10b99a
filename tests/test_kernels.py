"""Kernels: reference values, symmetry, positive semi-definiteness, exact diagonals, blocks and
combinations."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bicore import NumericalError
from bicore.kernels import (
    RBF,
    Laplace,
    Linear,
    Normalised,
    Nystrom,
    Polynomial,
    Standardised,
    TangentKernel,
    UnitRows,
    classical,
    cnn,
    from_module,
    fully_connected,
    pooled_cntk,
    resnet18,
)
from bicore.kernels import tangent as tangent_module
from bicore.kernels.architecture import Conv, Dense, Flatten, GlobalAverage, ReLU, Residual
from bicore.kernels.base import CallableKernel
from tests.helpers import fails, refuses, residual_block, with_relus
from tests.marks import few

ORACLE = np.load(Path(__file__).parent / "oracle" / "kernels.npz")
VALID_STRIDED = with_relus(
    Conv(3, 2, "valid", 1.3, 0.1), Conv(2, 1, "valid", 0.9, 0.2), Flatten(), Dense(1.5, 0.3)
)
EVEN_WINDOW = with_relus(
    Conv(4, 2, "same", 1.2, 0.1), Conv(4, 3, "same"), Flatten(), Dense(1.0, 0.1)
)
POOLED = with_relus(
    Conv(3, 1, "same", 1.2, 0.3), Conv(3, 1, 1, 0.7, 0.1), GlobalAverage(), Dense(1.1, 0.2)
)
NETWORKS = {
    "fully_connected": (lambda kind: fully_connected(kind=kind), "vectors"),
    "cnn": (lambda kind: cnn(kind=kind), "gray"),
    "resnet18": (lambda kind: resnet18(kind=kind, multiplier=1.0), "colour"),
    "valid_strided": (lambda kind: TangentKernel(VALID_STRIDED, kind), "small"),
    "even_window": (lambda kind: TangentKernel(EVEN_WINDOW, kind), "small"),
}
VECTORS = np.random.default_rng(0).normal(size=(17, 5))
IMAGES = np.random.default_rng(1).normal(size=(7, 2, 6, 5))
BRANCH = Residual((Dense(0.7, 0.1), ReLU(), Dense(1.2)), (Dense(0.9),))
ALL = {
    "linear": (Linear(bias=0.5), VECTORS),
    "polynomial": (Polynomial(), VECTORS),
    "rbf": (RBF(), VECTORS),
    "laplace": (Laplace(), VECTORS),
    "nystrom": (Nystrom(RBF(), 8), VECTORS),
    "sum": (RBF() + Linear(), VECTORS),
    "product": (RBF() * Polynomial(2), VECTORS),
    "scaled": (3.0 * Laplace(), VECTORS),
    "normalised": (Normalised(Polynomial()), VECTORS),
    "normalised features": (Normalised(Linear(bias=0.5)), VECTORS),
    "normalised ntk": (Normalised(fully_connected()), VECTORS),
    "normalised cntk": (Normalised(cnn()), IMAGES),
    "standardised": (Standardised(RBF()), VECTORS * [1.0, 1e3, 1e-3, 1.0, 5.0] + 7),
    "standardised images": (Standardised(cnn()), IMAGES),
    "unit rows": (UnitRows(Laplace()), VECTORS),
    "unit images": (UnitRows(Linear(bias=1.0)), IMAGES),
    "scalings together": (Normalised(Standardised(UnitRows(Linear()))), VECTORS),
    "scaled landmarks": (Nystrom(Normalised(Standardised(RBF())), 8), VECTORS),
    "landmarks scaled": (Normalised(Standardised(Nystrom(RBF(), 8))), VECTORS),
    "callable": (CallableKernel(lambda a, b: (a @ b.T) ** 2), VECTORS),
    "ntk": (fully_connected(), VECTORS),
    "nngp": (fully_connected(kind="nngp"), VECTORS),
    "cntk": (cnn(), IMAGES),
    "resnet": (resnet18(), IMAGES),
    "dense residual": (TangentKernel([Dense(1.1, 0.2), BRANCH, ReLU(), Dense()]), VECTORS),
}


@pytest.mark.parametrize("kind", ["ntk", "nngp"])
@pytest.mark.parametrize("name", NETWORKS)
def test_network_kernels_agree_with_the_oracle(name, kind):
    build, inputs = NETWORKS[name]
    kernel = build(kind)
    expected = ORACLE[f"{name}_{kind}"]
    np.testing.assert_allclose(kernel(ORACLE[inputs]), expected, rtol=1e-7)
    off = ~np.eye(len(expected), dtype=bool)
    np.testing.assert_allclose(
        kernel(ORACLE[inputs], ORACLE[inputs])[off], expected[off], rtol=1e-12
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_agrees_with_float64(name):
    build, inputs = NETWORKS[name]
    x = ORACLE[inputs]
    exact = build("ntk")(x)
    single = build("ntk")(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_gram_is_symmetric_positive_and_exact_on_the_diagonal(name):
    kernel, x = ALL[name]
    fitted = kernel.fit(x)
    gram = fitted(x)
    np.testing.assert_array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram)[0] > -1e-10 * np.abs(gram).max()
    np.testing.assert_array_equal(np.diagonal(gram), fitted.diag(torch.from_numpy(x)).numpy())
    off = ~np.eye(len(x), dtype=bool)
    np.testing.assert_allclose(gram[off], fitted(x, x)[off], rtol=1e-9)
    np.testing.assert_allclose(np.diagonal(fitted(x, x)), np.diagonal(gram), rtol=2e-7)


@pytest.mark.parametrize("name", ALL)
def test_block_size_changes_nothing(name, monkeypatch):
    kernel, x = ALL[name]
    fitted = kernel.fit(x)
    points = torch.from_numpy(x)
    whole = fitted.gram(points)
    monkeypatch.setattr(tangent_module, "_CACHED_ELEMENTS", 100)
    torch.testing.assert_close(fitted.gram(points, block=3), whole, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        fitted.evaluate(points[:5], points[5:]), whole[:5, 5:], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("name", ALL)
def test_explicit_features_reproduce_the_kernel(name):
    kernel, x = ALL[name]
    fitted = kernel.fit(x)
    points = torch.from_numpy(x)
    features = fitted.features(points)
    if features is not None:
        torch.testing.assert_close(features @ features.T, fitted.gram(points))


def test_classical_kernels_are_their_formulas():
    a = VECTORS[:3]
    b = VECTORS[3:5]
    square = ((a[:, None] - b[None]) ** 2).sum(-1)
    np.testing.assert_allclose(RBF(0.3)(a, b), np.exp(-0.3 * square))
    np.testing.assert_allclose(
        Laplace(0.3)(a, b), np.exp(-0.3 * np.abs(a[:, None] - b[None]).sum(-1))
    )
    np.testing.assert_allclose(Linear()(a, b), a @ b.T)
    np.testing.assert_allclose(Polynomial(2, 0.5, 2.0)(a, b), (0.5 * a @ b.T + 2) ** 2)
    np.testing.assert_allclose(
        (RBF(0.3) * 2.0 + Linear())(a, b), 2 * np.exp(-0.3 * square) + a @ b.T
    )


def test_median_heuristic():
    square = ((VECTORS[:, None] - VECTORS[None]) ** 2).sum(-1)[np.triu_indices(17, 1)]
    assert RBF().fit(VECTORS).gamma == pytest.approx(1 / (2 * torch.tensor(square).median().item()))
    assert RBF().fit(np.ones((4, 2))).gamma == 1.0  # all rows equal
    refuses(r"fit\(x\)", RBF(), VECTORS, VECTORS)


def test_all_landmarks_make_nystrom_exact():
    np.testing.assert_allclose(Nystrom(RBF(0.2), 17)(VECTORS), RBF(0.2)(VECTORS), atol=1e-7)


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(["same", "valid", 0, 1, 2]),
)
def test_window_sums_are_those_of_a_convolution_with_ones(size, stride, window, padding):
    """Torch's convolution for integer padding and "valid"; XLA's rule written out for "same"."""
    layer = Conv(window, stride, padding)
    image = torch.randn(
        size, size, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(size)
    )
    low = high = 0
    if padding == "same":
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        low = total // 2
        high = total - total // 2
    elif padding != "valid":
        low = high = padding
    padded = nn.functional.pad(image[None, None, :, :, 0, 0], (low, high, low, high))
    if padded.shape[-1] < window:
        refuses("smaller than the window", layer._gather, image, (0, 0))
        return
    expected = (
        nn.functional.conv2d(
            padded, torch.ones(1, 1, window, window, dtype=torch.float64), stride=stride
        )
        / window**2
    )
    torch.testing.assert_close(layer._gather(image, (0, 0))[:, :, 0, 0], expected[0, 0])


def wide_network(width: int) -> nn.Module:
    """Residual, strided and padded, so that the tracing is tested too."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(2, width, 3, stride=2, padding=1)
            self.inside = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.last = nn.Linear(width * 9, 1)

        def forward(self, x):
            h = self.first(x)
            h = h + self.inside(nn.functional.dropout(torch.relu(h), 0.3, self.training))
            return self.last(torch.relu(h).flatten(1))

    return Net().eval()


def test_from_module_follows_the_code_and_a_wide_network_has_this_tangent_kernel():
    """The empirical NTK of a wide network in the NTK parametrisation is near the infinite-width
    kernel."""
    sigma_w, sigma_b = 1.4, 0.3
    net = wide_network(400).double()
    kernel = from_module(net, sigma_w=sigma_w, sigma_b=sigma_b)
    assert kernel.layers == (
        Conv(3, 2, 1, sigma_w, sigma_b),
        Residual((), (ReLU(), Conv(3, 1, 1, sigma_w, 0.0))),
        ReLU(),
        Flatten(),
        Dense(sigma_w, sigma_b),
    )
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    scales = {}
    for name, value in net.named_parameters():
        nn.init.normal_(value)
        fan_in = value[0].numel() if name.endswith("weight") else 1
        scales[name] = sigma_w / fan_in**0.5 if name.endswith("weight") else sigma_b
    from torch.func import functional_call, jacrev

    plain = {name: value.detach() for name, value in net.named_parameters()}

    def output(parameters):
        return functional_call(
            net, {name: value * scales[name] for name, value in parameters.items()}, (x,)
        )[:, 0]

    jacobian = jacrev(output)(plain)
    empirical = sum(part.reshape(3, -1) @ part.reshape(3, -1).T for part in jacobian.values())
    np.testing.assert_allclose(
        empirical.numpy(), kernel(x).numpy(), rtol=0.15, atol=0.05 * float(empirical.abs().max())
    )


def test_from_module_gives_notice_of_a_shortcut_that_is_not_gaussian():
    class Post(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 8)
            self.second = nn.Linear(8, 8)

        def forward(self, x):
            h = torch.relu(self.first(x))
            return h + self.second(h)

    with pytest.warns(UserWarning, match="not Gaussian"):
        from_module(Post())


def names_of(layers):
    return [type(layer).__name__ for layer in layers]


def test_from_module_of_the_papers_cnn_drops_pooling_with_a_notice():
    images = nn.Conv2d(1, 8, 5), nn.Dropout(), nn.ReLU(), nn.MaxPool2d(2)
    network = nn.Sequential(*images, nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.warns(UserWarning, match="max-pooling"):
        kernel = from_module(network)
    assert names_of(kernel.layers) == ["Conv", "ReLU", "Flatten", "Dense", "ReLU", "Dense"]
    refuses("max-pooling", from_module, network, pooling="refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))


def test_bad_kernels_are_refused_with_a_message():
    refuses("not symmetric", CallableKernel(lambda a, b: a[:, :1] + 0 * b[:, 0]).fit, VECTORS)
    negative, unknown = (CallableKernel(lambda a, b, c=c: c * (a @ b.T)) for c in (-1, np.nan))
    refuses("not positive semi-definite: its smallest eigenvalue is -", negative.fit, VECTORS)
    fails(NumericalError, "not finite", unknown.fit, VECTORS)
    refuses("returned shape", CallableKernel(lambda a, b: a).fit, VECTORS)
    refuses("images", cnn(), VECTORS)
    refuses("Flatten", TangentKernel, [Conv(3), ReLU(), Dense()])
    refuses("gamma must be a number > 0", RBF, -1)
    refuses("gamma must be a number > 0", RBF, "auto")
    refuses("rows of shape", Linear(), VECTORS, VECTORS[:, :2])


class Plain(nn.Module):
    """A network given as a function of its two linear layers and the input."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.run = forward

    def forward(self, x):
        return self.run(self, x)


UNREADABLE = {
    "uneven padding": nn.Sequential(nn.Conv2d(1, 4, 3, padding=(0, 1)), nn.Flatten()),
    "circular padding": nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"), nn.Flatten()
    ),
    "weighted sum": Plain(lambda net, x: torch.add(net.a(x), net.b(x), alpha=0.1)),
    "added to itself": Plain(lambda net, x: (lambda h: h + h)(net.a(x))),
    "a constant added": Plain(lambda net, x: net.a(x) + 1.0),
    "shared weights": Plain(lambda net, x: net.a(torch.relu(net.a(x)))),
    "another view": Plain(lambda net, x: net.a(x.view(-1, 1, 3))),
    "a norm": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
    "another activation": nn.Sequential(nn.Linear(3, 4), nn.Tanh()),
    "an oblong window": nn.Sequential(nn.Linear(3, 4), nn.Conv2d(1, 1, (2, 3))),
    "pooling": nn.Sequential(nn.Linear(3, 4), nn.AvgPool2d(2)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_from_module_never_reads_one_network_as_another(name):
    refuses("Or select by its embeddings", from_module, UNREADABLE[name])


def test_a_leading_flatten_takes_vectors_and_images():
    kernel = from_module(nn.Sequential(nn.Flatten(), nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 2)))
    np.testing.assert_allclose(kernel(IMAGES[:, :1]), kernel(IMAGES[:, :1].reshape(7, -1)))


@pytest.mark.parametrize("kernel", [RBF(0.1), Laplace(0.1)])
def test_distances_do_not_suffer_from_an_offset(kernel):
    np.testing.assert_allclose(kernel(VECTORS + 2.0**20), kernel(VECTORS), rtol=1e-8)
    single = (VECTORS + 2048).astype(np.float32)
    np.testing.assert_allclose(kernel(single), kernel(single.astype(np.float64)), rtol=1e-4)


def _apart(n: int, distance: float, spread: float = 1.0, features: int = 5) -> np.ndarray:
    """Two clusters at ± distance."""
    rng = np.random.default_rng(0)
    sides = np.where(np.arange(n) % 4 == 0, -distance, distance)
    return sides[:, None] + spread * rng.normal(size=(n, features))


#: Clusters that cancel in float32, in float64 too, and beyond what a square of float32 holds; one
#: point far from all; and points that are twice there.
FAR = {
    "clusters": (_apart(80, 100.0), "float32", 1e-5),
    "many columns": (_apart(80, 100.0, features=400), "float32", 1e-5),
    "farther": (_apart(80, 1e4, 1e-2), "float32", 1e-5),
    "beyond squares": (_apart(40, 1e20, 0.0), "float32", 1e-5),
    "clusters, double": (_apart(80, 1e7), "float64", 1e-9),
    "few columns, double": (_apart(80, 1e7, features=1), "float64", 1e-9),
    "an outlier": (np.r_[_apart(60, 0.0), [[1e9] * 5]], "float64", 1e-9),
    "twins": (np.repeat(_apart(40, 1e4), 2, axis=0), "float64", 1e-9),
}


@pytest.mark.parametrize("gamma", [0.02, 1.0])
@pytest.mark.parametrize("name", FAR)
def test_near_points_far_from_the_origin_keep_their_distance(name, gamma):
    points, dtype, tolerance = FAR[name]
    x = points.astype(dtype)
    exact = np.asarray(x, dtype=np.longdouble)
    expected = np.exp(-gamma * ((exact[:, None] - exact) ** 2).sum(-1)).astype(float)
    np.testing.assert_allclose(RBF(gamma)(x), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(RBF(gamma)(x[:7], x), expected[:7], rtol=0, atol=tolerance)


def test_doubtful_distances_are_few_or_all(monkeypatch):
    """By pairs, in blocks of any size, and all at once: the same numbers."""
    x = torch.from_numpy(_apart(90, 1e6))
    exact = (x[:, None] - x).square().sum(-1)
    for apart, at_once in ((1, 2_000_000), (1, 100), (10**9, 2_000_000), (10**9, 100)):
        monkeypatch.setattr(classical, "APART", apart)
        monkeypatch.setattr(classical, "AT_ONCE", at_once)
        found = classical.squared_distances(x, x, 1e-9)
        np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_ordinary_points_take_one_product(monkeypatch):
    """Nothing is done again for points around the origin."""
    monkeypatch.setattr(classical, "_recompute", None)
    x = np.random.default_rng(0).normal(size=(50, 300)).astype(np.float32)
    RBF(1 / 1200)(x)
    RBF(1 / 1200)(x.astype(np.float64) + 100)


def test_the_median_is_that_of_the_points_and_not_of_rounding():
    cluster = np.random.default_rng(0).normal(size=(60, 3))
    plain = RBF().fit(cluster).gamma
    far = np.r_[cluster, cluster[:3] + 1e9]
    # A few pairs more, all of them at the far end: the median stays among near points.
    assert RBF().fit(far).gamma == pytest.approx(plain, rel=0.1)
    twins = np.repeat(cluster[:3] + 1e3, 20, axis=0)
    assert RBF().fit(twins).gamma == pytest.approx(RBF().fit(cluster[:3]).gamma, rel=1e-6)


def _images(n: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(n, 2, 5, 5))


#: Networks and points; those without a bias also see no difference between multiples.
ANGLES = {
    "fully connected": (fully_connected(), VECTORS),
    "without bias": (TangentKernel([Dense(), ReLU(), Dense(), ReLU(), Dense()]), VECTORS),
    "deep": (TangentKernel([Dense(1.4, 0.3), ReLU()] * 5 + [Dense()]), VECTORS),
    "branches": (ALL["dense residual"][0], VECTORS),
    "convolutions": (cnn(), _images(9)),
    "residual": (TangentKernel([*resnet18().layers[:3], Flatten(), Dense()]), _images(5)),
    "pooled": (pooled_cntk(depth=2), _images(5)),
}


@pytest.mark.parametrize("step", few([1e-4, 0.0, 1e-3, 1e-2]))
@pytest.mark.parametrize("name", ANGLES)
def test_points_that_all_but_agree_keep_their_angle_in_float32(name, step):
    kernel, points = ANGLES[name]
    moved = points + step * np.random.default_rng(3).normal(size=points.shape)
    both = np.concatenate([points, moved, -points, 3.3 * moved]).astype(np.float32)
    exact = kernel(both.astype(np.float64))
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    np.testing.assert_allclose(kernel(both) / scale, exact / scale, rtol=0, atol=4e-6)
    few = len(points) + 2
    np.testing.assert_allclose(
        kernel(both[:few], both) / scale[:few], exact[:few] / scale[:few], rtol=0, atol=4e-6
    )


@pytest.mark.parametrize("name", ANGLES)
def test_equal_points_have_the_value_of_the_diagonal(name, monkeypatch):
    kernel, points = ANGLES[name]
    both = torch.from_numpy(np.concatenate([points, points]))
    n = len(points)
    for cached in (800_000, 50):
        monkeypatch.setattr(tangent_module, "_CACHED_ELEMENTS", cached)
        own = kernel.diag(both)[:n].numpy()
        for matrix in (kernel.gram(both), kernel.evaluate(both, both[n:])):
            found = matrix[:n, -n:].diagonal().numpy()
            np.testing.assert_allclose(found, own, rtol=1e-14)


def test_pairs_that_are_too_near_are_done_one_by_one_or_all(monkeypatch):
    points = np.concatenate([VECTORS, VECTORS + 1e-4, VECTORS]).astype(np.float32)
    exact = fully_connected()(points.astype(np.float64))
    for apart in (1, 10**9):
        for cached in (800_000, 50):
            monkeypatch.setattr(tangent_module, "_APART", apart)
            monkeypatch.setattr(tangent_module, "_CACHED_ELEMENTS", cached)
            np.testing.assert_allclose(fully_connected()(points), exact, rtol=2e-6)


def test_ordinary_points_are_computed_once(monkeypatch):
    """What is far apart takes float32 alone, and a point and itself have their own way."""
    monkeypatch.setattr(TangentKernel, "_recompute_near", None)
    x = VECTORS.astype(np.float32)
    fully_connected()(x)
    cnn()(_images(5).astype(np.float32))
    fails(TypeError, "NoneType", fully_connected(), x, x)


def test_operands_of_combinations_are_checked():
    refuses("cannot be added", RBF(1.0).__add__, 1)
    refuses("cannot be multiplied", RBF(1.0).__mul__, "two")
    refuses("landmarks", Nystrom, RBF(), landmarks=0)
    refuses("a holds nan", RBF(1.0), torch.full((2, 2), torch.nan), torch.zeros(2, 2))


def recursion(kernel: TangentKernel, first: np.ndarray, second: np.ndarray) -> float:
    """The recursion of Arora et al. (2019) written out for one pair: Σ and Θ of every two
    positions, in a loop over them."""
    height, width = first.shape[1:]

    def kappas(c):
        c = np.clip(c, -1, 1)
        return (np.pi - np.arccos(c)) / np.pi, (
            np.sqrt(1 - c**2) + (np.pi - np.arccos(c)) * c
        ) / np.pi

    def conv(layer, sigma):
        mapped = np.full_like(sigma, layer.sigma_b**2)
        for i, j, k, m in np.ndindex(*sigma.shape):
            for di in (-1, 0, 1):
                for dj in (-1, 0, 1):
                    if (
                        0 <= i + di < height
                        and 0 <= k + di < height
                        and 0 <= j + dj < width
                        and 0 <= m + dj < width
                    ):
                        mapped[i, j, k, m] += (
                            layer.sigma_w**2 / 9 * sigma[i + di, j + dj, k + di, m + dj]
                        )
        return mapped

    def start(a, b):
        return np.einsum("cij,ckm->ijkm", a, b) / len(a)

    pairs = {"xz": start(first, second), "xx": start(first, first), "zz": start(second, second)}
    theta = None
    for layer in kernel.layers:
        if isinstance(layer, Conv):
            pairs = {name: conv(layer, sigma) for name, sigma in pairs.items()}
            passed = (
                np.zeros_like(pairs["xz"])
                if theta is None
                else conv(Conv(3, sigma_w=layer.sigma_w), theta)
            )
            theta = passed + (pairs["xz"] if layer.trained else 0)
        elif isinstance(layer, ReLU):
            own, other = (np.sqrt(np.einsum("ijij->ij", pairs[name])) for name in ("xx", "zz"))
            norms = {"xz": (own, other), "xx": (own, own), "zz": (other, other)}
            for name, sigma in pairs.items():
                product = norms[name][0][:, :, None, None] * norms[name][1]
                kappa0, kappa1 = kappas(sigma / product)
                theta = theta * kappa0 / 2 if name == "xz" else theta
                pairs[name] = product * kappa1 / 2
    readout = kernel.layers[-1]
    sigma = readout.sigma_w**2 * pairs["xz"].mean() + readout.sigma_b**2
    if kernel.kind == "nngp":
        return sigma
    return readout.sigma_w**2 * theta.mean() + (sigma if readout.trained else 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ntk", "nngp"])
@pytest.mark.parametrize(
    "kernel",
    [
        lambda kind: pooled_cntk(3, kind),
        lambda kind: pooled_cntk(4, kind, fixed=True),
        lambda kind: TangentKernel(POOLED, kind),
    ],
)
def test_pooled_kernels_are_the_recursion_over_every_displacement(kernel, kind):
    x = np.random.default_rng(4).normal(size=(2, 2, 8, 8))
    made = kernel(kind)
    assert made(x[:1], x[1:])[0, 0] == pytest.approx(recursion(made, x[0], x[1]), rel=1e-10)


POOLED_ORACLE = np.load(Path(__file__).parent / "oracle" / "pooled.npz")


@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_pooled_kernels_with_strides_and_branches_agree_with_neural_tangents(kind):
    blocks = Conv(3, 2, "same", 1.3, 0.1), residual_block(2, True), residual_block(1, False)
    readout = Conv(2, 1, "valid", 0.9, 0.2), GlobalAverage(), Dense(1.5, 0.3)
    kernel = TangentKernel([*blocks, ReLU(), *readout], kind)
    x, expected = POOLED_ORACLE["small"], POOLED_ORACLE[f"strided_{kind}"]
    np.testing.assert_allclose(kernel(x), expected, rtol=3e-9)
    np.testing.assert_allclose(kernel.diag(torch.from_numpy(x)), np.diag(expected), rtol=3e-9)


@pytest.mark.slow
def test_the_pooled_kernel_at_full_size_agrees_with_neural_tangents():
    x = POOLED_ORACLE["colour"]
    np.testing.assert_allclose(
        pooled_cntk(6)(x[:1], x[1:2]), POOLED_ORACLE["depth6_ntk"][:1, 1:2], rtol=1e-10
    )


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([Conv(), ReLU(), Dense()], "no Flatten or GlobalAverage"),
        (
            [Conv(), ReLU(), GlobalAverage(), Conv(), Flatten(), Dense()],
            "Conv follows GlobalAverage.*average over positions inside",
        ),
        ([Conv(), ReLU(), GlobalAverage(), Dense(), ReLU(), Dense()], "ReLU follows GlobalAverage"),
        (
            [Conv(), Residual((ReLU(), Conv(3, 2)), ()), GlobalAverage(), Dense()],
            "different strides",
        ),
        ([Conv(), ReLU(), Flatten(), GlobalAverage(), Dense()], "GlobalAverage follows Flatten"),
        ([Conv(), ReLU(), Flatten(), Conv(), Flatten(), Dense()], "Conv follows Flatten"),
        ([Conv(), ReLU(), Flatten(), Dense(), Flatten(), Dense()], "Flatten follows Flatten"),
    ],
)
def test_readouts_that_have_no_kernel_are_refused(layers, words):
    refuses(words, TangentKernel, layers)


def test_pooled_maps_larger_than_the_image_are_refused():
    kernel = TangentKernel([Conv(3, 1, 2), ReLU(), GlobalAverage(), Dense()])
    refuses(r"maps of 8×8 from images of 6×6 \(stride 1\)", kernel, torch.rand(3, 1, 6, 6))


def test_average_pooling_is_a_readout_or_refused_by_name():
    def network(*pooling):
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), *pooling, nn.Flatten(), nn.Linear(4, 2)
        )

    kernel = from_module(network(nn.AdaptiveAvgPool2d(1)))
    assert names_of(kernel.layers) == ["Conv", "ReLU", "GlobalAverage", "Dense"]
    x = np.random.default_rng(0).normal(size=(3, 2, 5, 6))
    by_hand = TangentKernel([Conv(3, 1, 1, 1.0, 0.05), ReLU(), GlobalAverage(), Dense(1.0, 0.05)])
    np.testing.assert_allclose(kernel(x), by_hand(x), rtol=1e-12)
    refuses(r"AvgPool2d.*average pooling inside a network", from_module, network(nn.AvgPool2d(2)))
    with pytest.warns(UserWarning, match="adaptive"):  # as VGG and AlexNet have it
        assert from_module(network(nn.AdaptiveAvgPool2d(2))).layers == from_module(network()).layers
    inside = nn.Sequential(nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1))
    refuses("average pooling inside a network", from_module, inside.extend(network()[2:]))


def test_residuals_have_the_stride_and_the_activations_of_their_branches():
    block = Residual((ReLU(), Conv(3, 2), ReLU(), Conv(3)), (Conv(1, 2, 0),))
    assert (block.stride, block.activations, block.spatial) == (2, 2, True)
    assert not Residual((Dense(),)).spatial
