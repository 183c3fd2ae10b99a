"""On a GPU: the results of the CPU, and fused kernels against layer-by-layer arithmetic."""

import warnings

import numpy as np
import pytest
import torch

from bicore import Dataset, MemoryLimitError, Runtime
from bicore.kernels import TangentKernel, cnn, pooled_cntk, resnet18
from bicore.kernels.architecture import Conv, Dense, Flatten, GlobalAverage, ReLU
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs, refuses, residual_block, with_relus

needs_gpu = pytest.mark.gpu


NETWORKS = {
    "cnn": (cnn(), (1, 28, 28)),
    "cnn, nngp": (cnn("nngp"), (1, 28, 28)),
    "resnet-18": (resnet18(), (3, 32, 32)),
    "strided, untrained layers": (
        TangentKernel(
            with_relus(
                Conv(3, 2, "valid", 1.3, 0.1),
                Conv(2, 1, "valid", 0.9, 0.2, trained=False),
                *(Flatten(), Dense(1.5, 0.3), Dense(1.0, 0.1)),
            )
        ),
        (2, 9, 11),
    ),
    "even windows, residual": (
        TangentKernel(
            [
                Conv(4, 2, "same", 1.2, 0.1),
                residual_block(2, True),
                residual_block(1, False),
                ReLU(),
                Conv(4, 3, 2),
                ReLU(),
                Flatten(),
                Dense(1.0, 0.1),
            ]
        ),
        (2, 13, 11),
    ),
    "positions that grow": (
        TangentKernel([Conv(3, 1, 3), ReLU(), Dense(0.8, 0.2), ReLU(), Flatten(), Dense()]),
        (1, 5, 6),
    ),
    "pooled, depth 2": (pooled_cntk(2), (3, 8, 8)),
    "pooled, depth 3, fixed": (pooled_cntk(3, fixed=True), (3, 8, 8)),
    "pooled, depth 6": (pooled_cntk(6), (1, 5, 9)),
    "pooled, depth 6, nngp": (pooled_cntk(6, "nngp"), (3, 8, 8)),
    "pooled, biases, other variances": (
        TangentKernel(
            with_relus(
                Conv(3, 1, "same", 1.1, 0.2),
                Conv(3, 1, 1, 0.9, 0.1),
                Conv(3, 1, 1, 1.9, 0.3),
                *(GlobalAverage(), Dense(1.2, 0.4)),
            )
        ),
        (2, 7, 10),
    ),
}


def images(shape, count=6):
    x = torch.randn(count, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x[1] = x[0]  # the same image twice,
    x[2] = x[3] * 1.5  # one brighter,
    x[4, :, : shape[1] // 2] = 0  # and one half black
    return x


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_fused_kernels_agree_with_the_arithmetic_of_the_cpu(name):
    kernel, shape = NETWORKS[name]
    x = images(shape)
    exact = kernel(x, x[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype, tolerance in ((torch.float64, 2e-8), (torch.float32, 1e-5)):
            given = x.to("cuda", dtype)
            allowed = torch.full((len(x), len(x)), tolerance, dtype=torch.float64)
            # multiples of an image, and equal ones that are pooled: the rounding of an angle of
            # zero
            if dtype == torch.float32:
                allowed[2, 3] = allowed[3, 2] = 1e-4
                if kernel.pooled:
                    allowed[0, 1] = allowed[1, 0] = 1e-4
            close(kernel(given), kernel(x), allowed)
            close(kernel.diag(given), kernel.diag(x), allowed.diagonal())
            if dtype == torch.float32 and kernel.pooled:
                allowed.fill_diagonal_(1e-4)  # without knowing that two sets are the same
            close(kernel(given, given[:4]), exact, allowed[:, :4])


def close(found, exact, allowed):
    assert bool(((found.double().cpu() - exact).abs() <= allowed * exact.abs() + 1e-12).all())


@needs_gpu
def test_half_precision_whole_numbers_and_shapes_that_are_no_images():
    x = torch.randint(0, 5, (4, 3, 8, 8), generator=torch.Generator().manual_seed(0)).cuda()
    for kernel in (cnn(), pooled_cntk(3)):
        exact = kernel(x.cpu().double())
        found = kernel(x)
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), exact, rtol=1e-8, atol=1e-12)
        for dtype in (torch.float16, torch.bfloat16):
            half = kernel(x.to(dtype))
            assert half.dtype == dtype
            torch.testing.assert_close(half.double().cpu(), exact, rtol=0.02, atol=0.02)
        for wrong in (x.double().flatten(1), x.double()[None]):
            refuses("needs images", kernel, wrong)
            refuses("needs images", kernel, wrong, wrong)
        refuses("they must match", kernel, x.double(), x[:, :2].double())
    zero = TangentKernel([Conv(3), ReLU(), Conv(3, sigma_w=0.0), ReLU(), GlobalAverage(), Dense()])
    with pytest.warns(UserWarning, match="sigma_w=0"):
        torch.testing.assert_close(zero(x.double()).cpu(), zero(x.cpu().double()))


@needs_gpu
def test_pooled_kernels_agree_with_the_oracle_at_full_size():
    oracle = np.load("tests/oracle/pooled.npz")
    x = torch.from_numpy(oracle["colour"]).cuda()
    for kind in ("ntk", "nngp"):
        expected = torch.from_numpy(oracle[f"depth6_{kind}"])
        torch.testing.assert_close(pooled_cntk(6, kind)(x).cpu(), expected, rtol=1e-9, atol=0)
        torch.testing.assert_close(
            pooled_cntk(6, kind)(x.float()).cpu().double(), expected, rtol=1e-5, atol=0
        )


@needs_gpu
@pytest.mark.parametrize(
    ("kernel", "shape", "words"),
    [
        (TangentKernel([Conv(5), ReLU(), GlobalAverage(), Dense()]), (1, 8, 8), "3×3"),
        (
            TangentKernel([Conv(3, 2), ReLU(), Conv(3), ReLU(), GlobalAverage(), Dense()]),
            (1, 8, 8),
            "stride 1",
        ),
        (
            TangentKernel([Conv(3), residual_block(1, False), ReLU(), GlobalAverage(), Dense()]),
            (1, 6, 6),
            "followed by a ReLU",
        ),
        (pooled_cntk(2), (1, 33, 4), "larger than 32"),
        (TangentKernel([Conv(3), ReLU(), Flatten(), Dense()]), (1, 150, 150), "shared memory"),
    ],
)
def test_unsupported_networks_fall_back_with_a_warning(kernel, shape, words):
    x = images(shape, 5)[:3]
    with pytest.warns(UserWarning, match=words):
        found = kernel(x.cuda(), x.cuda())
    torch.testing.assert_close(found.cpu(), kernel(x, x), rtol=1e-8, atol=1e-12)


@needs_gpu
@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
@pytest.mark.parametrize(
    "options",
    [{}, {"rule": "gain"}, {"candidates": 40}, {"weighting": "final"}, {"weighting": "learned"}],
)
@pytest.mark.parametrize("kernel", ["rbf", "linear", "ntk"])
def test_selections_are_the_same_on_both(kernel, options, loss):
    if options.get("rule") == "gain" and loss != "squared":
        pytest.skip("the gain rule is for the squared error")
    data = blobs(700, classes=4, features=6)
    outer = blobs(90, classes=4, features=6, seed=2)
    selector = greedy_selector(kernel=kernel, loss=loss, inner_reg=0.1, **options)
    for held_out in (None, outer):
        cpu, gpu = (
            selector.select(data, 30, outer=held_out, runtime=Runtime(device))
            for device in ("cpu", "cuda")
        )
        assert gpu.details["device"].startswith("cuda")
        # rounding moves weights along a flat floor, and with weights after every point also the
        # picks
        if "weighting" in options:
            allowed = 1e-3 if options["weighting"] == "final" else 5e-2
            np.testing.assert_allclose(gpu.objectives[-1], cpu.objectives[-1], rtol=allowed)
            continue
        assert gpu.indices.tolist() == cpu.indices.tolist()
        np.testing.assert_allclose(gpu.objectives, cpu.objectives, rtol=1e-6)


@needs_gpu
def test_blocks_under_a_limit_give_the_same_points_and_too_little_is_an_error():
    data = blobs(3000, classes=4, features=6)
    selector = greedy_selector(kernel="rbf", inner_reg=0.1)
    whole, blocked = (
        selector.select(data, 6, runtime=Runtime("cuda", memory=memory))
        for memory in (None, "30MB")
    )
    assert (whole.details["operator"], blocked.details["operator"]) == ("gram", "blocked")
    assert whole.indices.tolist() == blocked.indices.tolist()
    # more than a quarter of the limit
    wide = Dataset(np.random.default_rng(0).normal(size=(3000, 400)), np.arange(3000) % 3)
    there, here = (
        greedy_selector(kernel="rbf", inner_reg=0.1).select(
            wide, 4, runtime=Runtime(device, memory="30MB")
        )
        for device in ("cuda", "cpu")
    )
    assert there.details["operator"] == "blocked"
    assert there.indices.tolist() == here.indices.tolist()
    with pytest.raises(MemoryLimitError, match=r"needs at least .* and the limit is 100 kB"):
        selector.select(data, 6, runtime=Runtime("cuda", memory="100KB"))
