"""Building blocks of the tests."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bicore
from bicore import BilevelSelector, Dataset, InputError, Runtime
from bicore.bilevel.contract import Engine, Quantity
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.prepare import Prepared, prepare
from bicore.bilevel.problem import Problem
from bicore.kernels.architecture import Conv, Dense, ReLU, Residual
from bicore.losses import CustomLoss
from bicore.runtime.context import Context


def blobs(n: int = 40, classes: int = 3, features: int = 4, seed: int = 0) -> Dataset:
    """Overlapping Gaussian classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = rng.normal(size=(classes, features)) * 1.5
    return Dataset(centres[y] + rng.normal(size=(n, features)), y)


def draw_classes(
    n: int = 600,
    width: int = 8,
    classes: int = 3,
    seed: int = 0,
    shift: float = 0.8,
    dtype: Any = np.float64,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of Gaussian classes, each around a unit vector times ``shift``."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return (rng.normal(size=(n, width)) + shift * np.eye(classes, width)[y]).astype(dtype), y


def draw_gaussians(seed: int, share: float = 0.3, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping classes in 100 standardised columns."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    x = rng.normal(size=(n, 100)) + (2 * y[:, None] - 1) * 0.5
    return (x - x.mean(0)) / x.std(0), y


def line(n: int = 40, targets: int = 2, features: int = 3, seed: int = 0) -> Dataset:
    """Noisy linear targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features))
    return Dataset(
        x, x @ rng.normal(size=(features, targets)) + 0.3 * rng.normal(size=(n, targets))
    )


def prepare_selector(
    selector: BilevelSelector,
    data: Dataset,
    outer: Dataset | None = None,
    runtime: Runtime | None = None,
    seed: int = 0,
) -> Prepared:
    """What a selector would work on."""
    where = runtime or Runtime(device="cpu")
    return prepare(selector, data, outer, len(data), seed, where)


def problem_of(
    selector: BilevelSelector, data: Dataset, outer: Dataset | None = None, dtype: str = "float64"
) -> Problem:
    """The tensors a selector would work on."""
    return prepare_selector(selector, data, outer, Runtime(device="cpu", dtype=dtype)).problem


def state_of(
    selector: BilevelSelector,
    data: Dataset,
    points: list[int],
    weights: Any,
    outer: Dataset | None = None,
) -> ImplicitEngine:
    """The fit of a selector on given points."""
    return prepare_selector(selector, data, outer).fit(points, [float(w) for w in weights])


def gradients(engine: Engine, columns: torch.Tensor | None = None) -> np.ndarray:
    """∂G/∂w of every point."""
    return engine.quantity(Quantity.GRADIENT, columns).numpy()


def gains(engine: Engine, columns: torch.Tensor | None = None) -> np.ndarray:
    """The exact decrease of G by every point."""
    return engine.quantity(Quantity.GAIN, columns).numpy()


def with_reg(problem: Problem, regulariser: Any) -> Problem:
    return replace(problem, regulariser=regulariser)


def pseudo_huber(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A smooth robust loss of regression targets."""
    return (torch.sqrt(1 + (prediction - target) ** 2) - 1).sum()


def softmax_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy written by hand, for comparison with the built-in one."""
    return torch.logsumexp(prediction, 0) - (prediction * target).sum()


#: For tests of what only the CPU does, on machines that have a GPU too.
ON_CPU = Context(runtime=Runtime("cpu"))

HUBER = CustomLoss(pseudo_huber, name="pseudo-huber")


def dense_blocks(curvature: Any, rows: torch.Tensor) -> torch.Tensor:
    """The C×C block of every row, by products with unit vectors."""
    units = torch.eye(rows.shape[1], dtype=rows.dtype)
    return torch.stack([curvature.apply(unit.expand(rows.shape)) for unit in units], 2)


def kernel_ridge(
    gram: np.ndarray, targets: np.ndarray, weights: np.ndarray, rho: float
) -> np.ndarray:
    """α of Σ w‖h − t‖² + ρ tr(αᵀKα), from its normal equations: (W K + ρ I) α = W t."""
    return np.linalg.solve(
        weights[:, None] * gram + rho * np.eye(len(gram)), weights[:, None] * targets
    )


def digit_network(width: int = 50, seed: int = 0) -> nn.Sequential:
    """A small classifier of the digits."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def with_relus(*layers: Any) -> list[Any]:
    """The layers, with a ReLU after each convolution and each dense layer but the last."""
    found: list[Any] = []
    for layer in layers[:-1]:
        found += [layer, ReLU()] if isinstance(layer, (Conv, Dense)) else [layer]
    return [*found, layers[-1]]


def residual_block(stride: int, project: bool) -> Residual:
    """A block of a residual network; its side is a convolution, or nothing."""
    return Residual(
        (ReLU(), Conv(3, stride), ReLU(), Conv(3)), (Conv(3, stride),) if project else ()
    )


def find_classes(base: type) -> set[type]:
    """Every concrete class under the package that derives from ``base``."""
    names = [one.name for one in pkgutil.walk_packages(bicore.__path__, "bicore.")]
    things = [thing for name in names for thing in vars(importlib.import_module(name)).values()]
    classes = {thing for thing in things if isinstance(thing, type) and issubclass(thing, base)}
    concrete = {one for one in classes if one is not base and not inspect.isabstract(one)}
    return {one for one in concrete if one.__module__.startswith("bicore.")}


def fails(
    kind: type[BaseException], words: str, call: Callable[..., Any], *given: Any, **options: Any
) -> str:
    """A call ends with an error of this kind that says these words; return all it says."""
    with pytest.raises(kind, match=words) as error:
        call(*given, **options)
    return str(error.value)


def refuses(words: str, call: Callable[..., Any], *given: Any, **options: Any) -> None:
    """A call is refused in one line that says these words."""
    assert "\n" not in fails(InputError, words, call, *given, **options)


class DataSet:
    """What bicore asks of a Hugging Face data set."""

    def __init__(self, content):
        self.content = content
        self.column_names = content.column_names

    def __len__(self):
        return self.content.num_rows

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def select_columns(self, names):
        return DataSet(self.content.select(names))

    def __getitem__(self, rows):
        try:
            return self.content.take(rows)
        except TypeError:
            start, stop, _ = rows.indices(len(self))
            return self.content.slice(start, stop - start)
