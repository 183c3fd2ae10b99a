"""Feature maps: the kernels they approximate, errors, saved state, and the automatic choice."""

import copy
import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from bicore import InputError, NumericalError
from bicore.kernels import RBF, Laplace, Linear, Normalised, pooled_cntk
from bicore.kernels import Standardised as StandardisedKernel
from bicore.kernels.base import CallableKernel
from bicore.moments.features import FeatureMap, Nystrom, RandomFourier, RandomReLU
from bicore.moments.features.base import UnitRows
from bicore.moments.features.maps import (
    Embedded,
    RandomConvolutions,
    RandomPooled,
    Rows,
    Standardised,
)
from bicore.moments.features.registry import (
    FEATURES,
    AutomaticFeatures,
    as_feature_map,
    map_from_state,
    map_to_state,
)
from tests.helpers import fails, refuses

needs_gpu = pytest.mark.gpu


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def is_near(left, right, allowed):
    """Whether two matrices agree, relative to the largest entry where that is above 1."""
    scale = max(1.0, float(right.abs().max()))
    return left.dtype == right.dtype and float((left - right).abs().max()) <= allowed * scale


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Dropout(), nn.BatchNorm1d(6))


#: A map of each kind, for rows of shape (1, 8, 8).
MAPS = {
    "rows": Rows(),
    "rows, constant": Rows(constant=True),
    "relu": RandomReLU(96),
    "relu, deep": RandomReLU(64, depth=3, random_state=1),
    "convolutions": RandomConvolutions(64, kernel=3, pool=2),
    "pooled": RandomPooled(24, depth=2, hidden=8),
    "fourier": RandomFourier(64),
    "laplace": RandomFourier(64, "laplace", random_state=2),
    "nystrom": Nystrom(Laplace(), landmarks=16),
    "nystrom, kernels within": Nystrom(StandardisedKernel(0.5 * RBF() + Normalised(Linear())), 16),
    "standardised": Standardised(RandomReLU(48), beyond=3.0),
    "unit": Standardised(RandomReLU(48)).unit(),
    "module": Embedded(network()),
    "auto": AutomaticFeatures(random_state=3),
}
IMAGES = draw(40, 1, 8, 8)


@pytest.fixture(params=MAPS.values(), ids=MAPS.keys())
def fitted_map(request):
    return request.param.fit(IMAGES)


def test_the_contract_holds_for_every_map(fitted_map):
    for dtype, expected in [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.int64, torch.float64),
    ]:
        found = fitted_map(torch.from_numpy(IMAGES).to(dtype))
        assert found.shape == (40, fitted_map.width)
        assert found.dtype == expected
        assert not found.requires_grad
    assert fitted_map.fit(IMAGES[:3]) is fitted_map
    assert fitted_map(torch.zeros(0, 1, 8, 8)).shape == (0, fitted_map.width)


def test_features_are_reproducible_and_change_no_global_state(fitted_map):
    x = torch.from_numpy(IMAGES)
    before = x.clone()
    state = torch.get_rng_state()
    first = fitted_map(x)
    again = copy.deepcopy(fitted_map)(x)
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)
    first.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_a_rows_features_do_not_depend_on_its_batch(fitted_map, dtype, allowed):
    if isinstance(fitted_map, Embedded):  # which computes in the precision of its weights
        allowed = 1e-6
    x = torch.from_numpy(IMAGES).to(dtype)
    together = fitted_map(x)
    apart = torch.cat([fitted_map(x[k : k + 1]) for k in range(len(x))])
    assert is_near(apart, together, allowed)


def test_rows_are_taken_in_parts(fitted_map, monkeypatch):
    x = torch.from_numpy(IMAGES)
    whole = fitted_map(x)
    seen = []
    within = fitted_map.map if isinstance(fitted_map, UnitRows) else fitted_map
    mapped = type(within)._map
    monkeypatch.setattr(type(within), "_rows_at_once", lambda self: 7)
    monkeypatch.setattr(
        type(within), "_map", lambda self, rows: seen.append(len(rows)) or mapped(self, rows)
    )
    parts = fitted_map(x)
    assert seen == [7, 7, 7, 7, 7, 5]
    assert is_near(parts, whole, 1e-6)


def test_half_the_precision_gives_nearly_the_same(fitted_map):
    x = torch.from_numpy(IMAGES.astype(np.float32))
    assert is_near(fitted_map(x), fitted_map(x.double()).float(), 1e-5)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_devices_agree(fitted_map, dtype):
    x = torch.from_numpy(IMAGES).to(dtype)
    there = fitted_map(x.cuda())
    assert there.is_cuda
    allowed = 1e-5 if dtype == torch.float32 or isinstance(fitted_map, Embedded) else 1e-11
    assert is_near(there.cpu(), fitted_map(x), allowed)
    assert torch.equal(there, fitted_map(x.cuda()))


@needs_gpu
def test_global_precision_does_not_change_features():
    x = torch.from_numpy(draw(64, 512)).float().cuda()
    features = RandomReLU(512).fit(x.cpu().numpy())
    before = features(x)
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(features(x), before)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


# Kernels


@pytest.mark.parametrize("kernel", [RBF(0.1), Laplace(0.15)], ids=lambda kernel: kernel.name)
def test_waves_approximate_their_kernel(kernel):
    x = draw(12, 4)
    kind = type(kernel).__name__.lower()
    phi = RandomFourier(20_000, kind, kernel.gamma).fit(x)(torch.from_numpy(x)).numpy()
    # An inner product is a mean of 10 000 cosines, which vary by less than 1.
    assert np.abs(phi @ phi.T - kernel(x)).max() < 5 / math.sqrt(10_000)
    assert np.abs(np.square(phi).sum(1) - 1).max() < 1e-12


def test_the_bandwidth_is_the_kernels_own():
    x = draw(30, 5)
    assert RandomFourier().fit(x).gamma == RBF().fit(x).gamma
    assert RandomFourier(kind="laplace").fit(x).gamma == Laplace().fit(x).gamma


def arc_cosine(left, right):
    """E[2 relu(g·a) relu(g·b)] for rows a, b and a normal g."""
    lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)
    cosine = np.clip(left @ right.T / lengths, -1, 1)
    angle = np.arccos(cosine)
    return lengths / np.pi * (np.sin(angle) + (np.pi - angle) * cosine)


@pytest.mark.parametrize(("columns", "scale"), [(3, 1.0), (300, 50.0)])
def test_random_relu_approximates_the_arc_cosine_kernel(columns, scale):
    x = draw(10, columns) * scale
    features = RandomReLU(20_000, bias=0.5).fit(x)
    size = math.sqrt(np.mean(x**2))
    assert features.entry == pytest.approx(size)
    phi = features(torch.from_numpy(x)).numpy()
    seen = np.hstack([x / math.sqrt(columns), np.full((10, 1), 0.5 * size)])
    exact = arc_cosine(seen, seen)
    assert np.abs(phi @ phi.T - exact).max() < 0.05 * exact.max()


def test_a_deep_random_network_keeps_the_scale():
    x = torch.from_numpy(draw(50, 30) * 7)
    for width in (64, 256):
        drawn_apart = [RandomReLU(width, depth=3, random_state=seed) for seed in range(30)]
        lengths = [float(one.fit(x.numpy())(x).square().sum(1).mean()) for one in drawn_apart]
        # Each of three layers adds the square of its shifts to that of what comes in.
        assert np.mean(lengths) == pytest.approx(4 * 49, rel=0.15)


def test_random_convolutions_against_a_loop():
    features = RandomConvolutions(8, kernel=3, pool=2, random_state=4).fit(IMAGES)
    x = torch.from_numpy(IMAGES[:2])
    weights, shifts = features._tensors(x)
    answers = nn.functional.conv2d(x, weights.reshape(2, 1, 3, 3), shifts[:, 0]).relu()
    pooled = torch.stack(
        [
            answers[:, :, top : top + 3, left : left + 3].mean((2, 3))
            for top in (0, 3)
            for left in (0, 3)
        ],
        2,
    )
    assert is_near(features(x), pooled.reshape(2, 8) / math.sqrt(8), 1e-12)


def test_two_layers_of_convolutions_against_torch():
    images = draw(3, 2, 16, 16)
    features = RandomConvolutions(8, 3, 2, random_state=4, depth=2, hidden=5).fit(images)
    maps = torch.from_numpy(images)
    for layer, filters in enumerate((5, 2)):
        if layer:
            maps = nn.functional.avg_pool2d(maps, 2)
        weights, shifts = features._tensors(maps)[2 * layer : 2 * layer + 2]
        weights = weights.reshape(filters, -1, 3, 3)
        maps = nn.functional.conv2d(maps, weights, shifts[:, 0]).relu()
    pooled = nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1)
    assert is_near(features(torch.from_numpy(images)), pooled / math.sqrt(8), 1e-12)
    assert as_feature_map("deep-convolutions:18").depth == 2
    refuses("10 along each", RandomConvolutions(8, 3, 2, depth=2).fit, IMAGES)


def test_grey_images_need_no_channel():
    flat = RandomConvolutions(64, kernel=3).fit(IMAGES[:, 0])
    full = RandomConvolutions(64, kernel=3).fit(IMAGES)
    x = torch.from_numpy(IMAGES)
    assert torch.equal(flat(x[:, 0]), full(x))


def test_pooled_features_against_convolutions():
    features = RandomPooled(12, depth=2, hidden=4, random_state=3).fit(IMAGES)
    x = torch.from_numpy(IMAGES)
    first, second = features._tensors(x)
    maps = nn.functional.conv2d(x, first.reshape(4, 1, 3, 3), padding=1).relu()
    maps = nn.functional.conv2d(maps, second.reshape(12, 4, 3, 3), padding=1).relu()
    expected = maps.mean((2, 3)) * math.sqrt(2 / 12)
    assert is_near(dataclasses.replace(features, mean=None, centred=False)(x), expected, 1e-12)
    assert is_near(features(x), expected - expected.mean(0), 1e-12)


@pytest.mark.slow
def test_pooled_features_are_the_kernel_on_average():
    """One network's products vary by a factor that all of them share."""
    x = torch.from_numpy(draw(4, 2, 6, 6))
    kernel = pooled_cntk(4, "nngp")(x)
    maps = (RandomPooled(64, 3, 64, centred=False, random_state=seed) for seed in range(60))
    found = torch.stack([phi @ phi.T for phi in (one.fit(x.numpy())(x) for one in maps)])
    mean = found.mean(0)
    assert is_near(mean / kernel, torch.ones(4, 4, dtype=torch.float64), 0.1)
    cosines = (one / torch.outer(one.diag(), one.diag()).sqrt() for one in (mean, kernel))
    assert is_near(*cosines, 0.005)


def test_nystrom_is_the_kernel_between_landmarks():
    x = draw(20, 3)
    features = Nystrom(RBF(0.5), landmarks=64).fit(x)
    phi = features(torch.from_numpy(x)).numpy()
    assert np.abs(phi @ phi.T - RBF(0.5)(x)).max() < 1e-6
    other = torch.from_numpy(draw(5, 3, seed=1))
    across = features(other).numpy() @ phi.T
    assert np.abs(across - RBF(0.5)(other.numpy(), x)).max() < 1e-4


# Scalings


def test_unit_rows_have_length_one_and_zero_rows_stay():
    x = torch.from_numpy(np.vstack([draw(5, 4) * 1e-200, np.zeros((1, 4))]))
    unit = Rows().fit(x.numpy()).unit()
    assert unit(x).square().sum(1).tolist() == pytest.approx([1, 1, 1, 1, 1, 0])
    assert unit.unit() is unit
    assert isinstance(Rows().unit().fit(x.numpy()), UnitRows)


def test_standardised_columns():
    x = draw(50, 3) * [1.0, 1000.0, 0.0] + [5.0, -2000.0, 7.0]
    found = Standardised(Rows()).fit(x)(torch.from_numpy(x))
    assert found.mean(0).tolist() == pytest.approx([0, 0, 0], abs=1e-12)
    assert found.std(0, correction=0).tolist() == pytest.approx([1, 1, 0], abs=1e-12)


def test_far_values_are_softened_in_order():
    x = np.array([[-1.0], [1.0]])
    soft = Standardised(Rows(), beyond=2.0).fit(x)
    later = torch.tensor([[-1e6], [-2.0], [0.5], [2.0], [2.5], [1e6]], dtype=torch.float64)
    found = soft(later)[:, 0]
    assert found[1:4].tolist() == [-2.0, 0.5, 2.0]
    assert float(found[4]) == pytest.approx(2 * (1 + math.log(1.25)))
    assert float(found[5]) == pytest.approx(2 * (1 + math.log(5e5)))
    assert float(found[0]) == -float(found[5])


# Modules


def test_a_module_is_frozen_and_never_changed():
    module = network().train()
    weights = copy.deepcopy(module.state_dict())
    features = Embedded(module, batch=7).fit(IMAGES)
    x = torch.from_numpy(IMAGES).float()
    first = features(x)
    assert module.training
    assert all(torch.equal(weights[name], value) for name, value in module.state_dict().items())
    with torch.no_grad():
        module[1].weight.add_(1)
    assert torch.equal(features(x), first)
    assert Embedded(module).fit(IMAGES) != features
    expected = network().eval()(x).detach()
    assert is_near(first, expected, 1e-6)


# Identity and state


def test_copies_and_pickles_leave_matrices_behind():
    features = RandomReLU(4096).fit(IMAGES)
    features(torch.from_numpy(IMAGES))
    assert len(pickle.dumps(features)) < 1000
    assert pickle.loads(pickle.dumps(features)) == features


def test_identity_depends_on_all_parameters_of_features():
    x = IMAGES
    base = RandomReLU(64).fit(x)
    assert base == RandomReLU(64).fit(x)
    assert base == RandomReLU(64).fit(x)
    assert base == dataclasses.replace(base, reason="pixels")
    base(torch.from_numpy(x))  # cached values are not part of the identity
    assert base == RandomReLU(64).fit(x)
    others = [
        RandomReLU(65).fit(x),
        RandomReLU(64, random_state=1).fit(x),
        RandomReLU(64).fit(2 * x),
        RandomReLU(64).fit(x[:, :, :4]),
        base.unit(),
        Standardised(RandomReLU(64)).fit(x),
        Rows().fit(x),
    ]
    assert len({one.identity for one in [base, *others]}) == len(others) + 1
    assert Embedded(network(), 3) == Embedded(network(), 4)


def test_state_comes_back_bit_for_bit(fitted_map):
    values, arrays = map_to_state(fitted_map)
    back = map_from_state(json.loads(json.dumps(values)), arrays, fitted_map)
    for dtype in (torch.float32, torch.float64):
        x = torch.from_numpy(IMAGES).to(dtype)
        assert torch.equal(back(x), fitted_map(x))
    assert back == fitted_map
    assert back.reason == fitted_map.reason
    assert all(array.dtype.kind == "f" for array in arrays.values())


def test_a_state_that_cannot_come_back_is_refused():
    values, arrays = map_to_state(Embedded(network()).unit())
    refuses("give feature_map=…", map_from_state, values, arrays)
    refuses("not those made here", map_from_state, values, arrays, Embedded(network(seed=1)))
    values, arrays = map_to_state(Rows())
    with pytest.raises(InputError, match="kind 'Columnar'"):
        map_from_state({**values, "map": {"kind": "Columnar", "fields": {}}}, arrays)
    refuses("not those made here", map_from_state, {**values, "identity": "Rows:0"}, arrays)
    refuses("draws different random numbers", map_from_state, {**values, "draws": [0.0]}, arrays)
    own = Nystrom(CallableKernel(lambda a, b: a @ b.T))
    refuses(r"features\.kernel\.function is a function", map_to_state, own)


# Errors


def test_rows_of_another_shape_are_refused(fitted_map):
    refuses(
        r"\(2, 8, 8\).*fitted to rows of shape \(1, 8, 8\)", fitted_map, torch.zeros(3, 2, 8, 8)
    )
    refuses(r"\(64,\).*\(1, 8, 8\)", fitted_map.fit, np.zeros((3, 64)))


def test_features_that_are_not_finite_name_their_rows(fitted_map):
    x = torch.from_numpy(IMAGES).clone()
    x[[3, 17], 0, 2, 2] = math.nan
    fails(NumericalError, r"2 of 40 rows \(3, 17\)", fitted_map, x)


def test_single_columns_may_come_flat():
    x = torch.tensor([1.0, 2.0])
    assert Rows().fit(x.numpy())(x).tolist() == [[1.0], [2.0]]


def test_an_infinite_feature_is_an_error():
    features = RandomReLU(16).fit(draw(5, 8))
    with pytest.raises(NumericalError, match="very large"):
        features(torch.full((1, 8), 1e39, dtype=torch.float64).float())


@pytest.mark.parametrize("features", MAPS.values(), ids=MAPS.keys())
def test_unfitted_maps_raise_clear_errors(features):
    refuses(r"fit\(x\) first", features, torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomReLU(0), "width"),
        (lambda: RandomReLU(2.5), "width"),
        (lambda: RandomReLU(depth=0), "depth"),
        (lambda: RandomReLU(bias=-1.0), "bias"),
        (lambda: RandomReLU(random_state=-1), "random_state"),
        (lambda: RandomFourier(7), "width=8"),
        (lambda: RandomFourier(kind="cosine"), "kind='cosine'"),
        (lambda: RandomFourier(gamma=0.0), "gamma must be a number > 0"),
        (lambda: RandomConvolutions(1000), "width=992"),
        (lambda: RandomConvolutions(kernel=0), "kernel"),
        (lambda: RandomPooled(depth=0), "depth"),
        (lambda: RandomPooled(centred="yes"), "centred"),
        (lambda: RandomPooled().fit(np.zeros((3, 64))), "relu"),
        (lambda: Nystrom("rbf"), "kernel='rbf'"),
        (lambda: Nystrom(landmarks=0), "landmarks"),
        (lambda: Nystrom(Linear()).fit(np.zeros((3, 2))), "zero on the first rows"),
        (lambda: Standardised(Rows(), beyond=0.0), "beyond"),
        (lambda: RandomConvolutions().fit(np.zeros((3, 64))), "relu"),
        (lambda: RandomConvolutions().fit(np.zeros((3, 28, 28, 3))), "channels come first"),
        (lambda: Embedded("resnet"), "module"),
        (lambda: Embedded(nn.Linear(5, 2)).fit(np.zeros((3, 4))), r"rows of shape \(4,\)"),
        (lambda: Embedded(nn.LSTM(4, 2)).fit(np.zeros((3, 4))), "tuple for 1 rows"),
        (lambda: Rows().fit(np.zeros((3, 2)))(np.zeros((3, 2))), "x must be a tensor"),
        (lambda: as_feature_map("relus"), "Did you mean 'relu'"),
        (lambda: as_feature_map(RandomReLU), "FeatureMap instance"),
        (lambda: as_feature_map(7), "feature_map must be .* got 7"),
    ],
)
def test_errors_name_the_value_and_the_fix(make, words):
    refuses(words, make)


# Names and looks


def test_names_make_maps():
    for name in FEATURES:
        assert isinstance(as_feature_map(name, random_state=5), FeatureMap)
    assert as_feature_map("relu", random_state=5).random_state == 5
    assert isinstance(as_feature_map(network()), Embedded)
    features = Rows()
    assert as_feature_map(features) is features


def explain_choice(x):
    return AutomaticFeatures().fit(x).reason


SORTED_DIGITS = load_digits().data[np.argsort(load_digits().target, kind="stable")]


def rectified_embedding(n):
    """A network's last layer: no negative values, some zeros, columns of unlike sizes."""
    sizes = np.exp(0.5 * draw(256, seed=1))
    return np.maximum(draw(n, 256) + 0.7, 0) * sizes


def signals(n):
    """Smooth curves with noise, sampled at 100 places."""
    places = np.linspace(0, 6, 100)
    phases = np.arange(n)[:, None]
    return np.sin(places + phases) + 0.1 * draw(n, 100)


def sparse(n):
    """Mostly background, and fractions."""
    return np.maximum(draw(n, 256) - 0.9, 0)


def wide_table(n):
    """Forty columns in units from thousandths to thousands."""
    return draw(n, 40) * np.logspace(-3, 3, 40)


def categories(n):
    """Forty yes-or-no columns and an amount."""
    return np.hstack([(draw(n, 40) > 0.8).astype(float), 1e4 * np.abs(draw(n, 1, seed=1))])


@pytest.mark.parametrize("n", [20, 125])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda n: draw(n, 64), "embedding"),
        (lambda n: draw(n, 64).astype(np.float16), "embedding"),
        (lambda n: draw(n, 512) * 1e-3 + 5 * draw(512, seed=1), "embedding"),
        (rectified_embedding, "embedding"),
        (lambda n: SORTED_DIGITS[:n], "pixels"),
        (lambda n: SORTED_DIGITS[-n:] / 16 - 0.5, "pixels"),
        (signals, "pixels"),
        (sparse, "pixels"),
        (wide_table, "table"),
        (categories, "table"),
        (lambda n: draw(n, 10), "table"),
        (lambda n: draw(n, 3, 16, 16), "image"),
        (lambda n: draw(n, 28, 28), "image"),
        (lambda n: SORTED_DIGITS[:n].reshape(n, 1, 8, 8), "image"),
    ],
)
def test_automatic_choice_by_content(make, reason, n):
    rows = make(n)
    assert explain_choice(rows) == reason
    for units in (2.0**-30, 2.0**10, 2.0**40):
        assert explain_choice(rows.astype(np.float64) * units) == reason


def test_automatic_features_by_kind_of_rows():
    kinds = {
        "embedding": Rows,
        "pixels": RandomReLU,
        "table": Standardised,
        "image": RandomConvolutions,
    }
    for rows in (draw(20, 64), SORTED_DIGITS[:20], draw(20, 5), draw(20, 3, 16, 16)):
        found = AutomaticFeatures(random_state=9).fit(rows)
        assert type(found) is kinds[found.reason]
        assert found.unit().reason == found.reason
        assert AutomaticFeatures(random_state=9).unit().fit(rows) == found.unit()
    assert AutomaticFeatures(random_state=9).fit(SORTED_DIGITS[:20]).random_state == 9


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((1, 1)),
        np.zeros((5, 64)),
        np.ones((3, 64)),
        draw(1, 64),
        np.full((2, 64), 1e300) * draw(2, 64),
        draw(4, 2, 3),
        draw(4, 2, 3, 4, 5),
        draw(4, 32, 32, 3),
    ],
    ids=lambda rows: str(rows.shape),
)
def test_odd_first_rows_get_a_map(rows):
    features = AutomaticFeatures().fit(rows)
    assert features(torch.from_numpy(rows)).shape == (len(rows), features.width)
