"""Derive the kernel of a network from a torch module.

The computation of the module is traced, not guessed from the order of its parts.
"""

from __future__ import annotations

import copy
import operator
import warnings
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from bicore._deprecated import renamed_keywords
from bicore.errors import InputError, check_name, check_type
from bicore.kernels.architecture import (
    GELU,
    Activation,
    Conv,
    Dense,
    Erf,
    Flatten,
    GlobalAverage,
    Layer,
    LeakyReLU,
    ReLU,
    Residual,
)
from bicore.kernels.tangent import TangentKernel

#: Fix for a network without kernel.
_OTHERWISE = (
    "Or select by its embeddings: bicore.integrations.torch.select_from(dataset, size, model=…)."
)
#: Layers that an option allows to ignore.
_LEFT_OUT = {"pooling": "max-pooling or an adaptive average", "normalisation": "normalisation"}
#: Maximum number of names in a warning; a network may have dozens.
_MOST_NAMES = 4
#: Sizes of one position, and axes of all positions of (n, channels, height, width).
_ONE = (1, (1, 1), [1, 1])
_POSITIONS = [kind(axes) for kind in (tuple, list) for axes in ((2, 3), (3, 2), (-2, -1), (-1, -2))]
#: Functions that modules apply; a subclass counts as its base class.
_MODULES: dict[type, str] = {
    nn.Linear: "linear",
    nn.Conv2d: "conv2d",
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.MultiheadAttention: "attention",
    nn.GELU: "gelu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.Flatten: "flatten",
    nn.Identity: "dropout",
    nn.Softmax: "softmax",
    nn.LogSoftmax: "log_softmax",
    nn.AvgPool2d: "avg_pool2d",
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.MaxPool2d: "max_pool2d",
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d), "dropout"),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), "batch_norm"),
    **dict.fromkeys((nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d), "layer_norm"),
}


@renamed_keywords(scale="multiplier")
def from_module(
    module: nn.Module,
    *,
    sigma_w: float = 1.0,
    sigma_b: float = 0.05,
    kind: str = "ntk",
    multiplier: float = 1.0,
    pooling: str = "drop",
    normalisation: str = "refuse",
) -> TangentKernel:
    """Derive the infinite-width kernel of a torch module.

    It may hold Linear, Conv2d, ReLU, LeakyReLU, GELU, erf, Flatten, an average over all positions
    before the read-out, Dropout and sums of branches: networks of these layers, ResNets, VGG and
    AlexNet. Tanh, sigmoids and attention have no kernel here; select by the embedding of such a
    network, with :func:`bicore.integrations.torch.select_from`.
    Weights are taken as N(0, σ_w²/fan-in) and biases as N(0, σ_b²), as in the paper's kernels; a
    layer without a bias has σ_b = 0. The module's own initialisation and widths play no part.
    Dropout is ignored, and so is a final softmax or its logarithm: the kernel is that of the
    logits. A compiled module, or part of one, is read as what it was made from.

    Parameters
    ----------
    module : torch.nn.Module
        The network; its weights are not read.
    sigma_w, sigma_b : float
        Of every layer that has weights, and biases.
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    multiplier : float
        A constant factor on the matrix.
    pooling : "drop" or "refuse"
        ``"drop"`` skips max-pooling and adaptive averages to several positions (as in VGG and
        AlexNet) with a warning; ``"refuse"`` raises an error.
    normalisation : "refuse" or "drop"
        ``"drop"`` skips batch, layer, group and instance normalisation with a warning.

    Returns
    -------
    TangentKernel
        Named after the module's class.

    Raises
    ------
    InputError
        If the module cannot be traced, or holds something that has no such kernel; its
        embeddings can still choose: :func:`bicore.integrations.torch.select_from`.

    Examples
    --------
    >>> from torch import nn
    >>> from bicore.kernels import from_module
    >>> kernel = from_module(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    >>> [type(layer).__name__ for layer in kernel.layers]
    ['Dense', 'ReLU', 'Dense']
    """
    options = {"pooling": pooling, "normalisation": normalisation}
    for name, value in options.items():
        check_name(name, value, ("drop", "refuse"))
    check_type("module", module, nn.Module, "a torch.nn.Module")
    plain = _unwrap(module)
    try:
        reader = _Reader(plain, sigma_w, sigma_b, options)
        kernel = TangentKernel(
            _remove_needless_flattens(reader.layers()), kind, multiplier, label=type(plain).__name__
        )
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}. {_OTHERWISE}") from error
    for before, layer in pairwise(kernel.layers):
        identity = isinstance(layer, Residual) and not (layer.body and layer.shortcut)
        if identity and isinstance(before, Activation):
            warnings.warn(
                "an identity shortcut carries the output of an activation, which is not Gaussian "
                "at infinite width: the kernel is an approximation there (pre-activation blocks, "
                "or a convolution on the shortcut, are exact).",
                stacklevel=2,
            )
            break
    for option, names in reader.dropped.items():
        if names:
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            warnings.warn(
                f"{_LEFT_OUT[option]} ({', '.join(names[:_MOST_NAMES])}{more}) is skipped, "
                f"because it has no kernel; {option}='refuse' makes this an error.",
                stacklevel=2,
            )
    return kernel


def _unwrap(module: nn.Module) -> nn.Module:
    """Return the module without compilation of it or its parts; the original is unchanged."""
    # torch.compile keeps the original module under this name.
    found: nn.Module = getattr(module, "_orig_mod", module)
    # a part with two names appears under both
    parts = {name: _unwrap(part) for name, part in found._modules.items() if part is not None}
    if all(part is found._modules[name] for name, part in parts.items()):
        return found
    shell = copy.copy(found)
    shell._modules = {**found._modules, **parts}
    return shell


def _remove_needless_flattens(layers: list[Layer]) -> list[Layer]:
    """Drop flattens of vectors, at the beginning and after a global average."""
    while layers and isinstance(layers[0], Flatten):
        layers = layers[1:]
    averages = [isinstance(layer, GlobalAverage) for layer in layers]
    if not any(averages):
        return layers
    after = averages.index(True) + 1
    rest = [layer for layer in layers[after:] if not isinstance(layer, Flatten)]
    if any(layer.spatial for layer in rest):
        raise _no_average("AdaptiveAvgPool2d(1) before a convolution")
    return [*layers[:after], *rest]


def _no_average(what: str) -> InputError:
    return InputError(
        f"{what} is average pooling inside a network, which has no kernel; only a global average "
        "before the output layer, AdaptiveAvgPool2d(1), has one."
    )


def _is_sum(node: Any) -> bool:
    called = node.op in ("call_function", "call_method")
    return called and node.target in (operator.add, operator.iadd, torch.add, "add", "add_")


def _is_shape(node: Any) -> bool:
    called = node.op in ("call_function", "call_method")
    return called and node.target in ("size", getattr, operator.getitem)


class _Reader:
    """Walks the traced graph from the output back to the input."""

    def __init__(
        self, module: nn.Module, sigma_w: float, sigma_b: float, options: dict[str, str]
    ) -> None:
        from torch import fx

        self.sigma_w = sigma_w
        self.sigma_b = sigma_b
        self.options = options
        self.dropped: dict[str, list[str]] = {name: [] for name in options}
        self.seen: set[str] = set()
        try:
            self.graph = fx.symbolic_trace(module).graph
        except Exception as error:
            # torch.fx raises many kinds of errors; all mean that the code depends on the values of
            # its input.
            why = str(error).strip().partition("\n")[0] or repr(error)
            name = type(module).__name__
            raise InputError(
                f"{name} cannot be traced ({why}); use TangentKernel([...])."
            ) from error
        self.modules = dict(module.named_modules())

    def layers(self) -> list[Layer]:
        """Return all layers in order, without a final softmax, which belongs to the loss."""
        nodes = list(self.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise InputError(f"the module takes {len(inputs)} inputs; one is needed.")
        last = nodes[-1].args[0]
        final = self._function(last) in ("softmax", "log_softmax")
        if final and self._argument(last, "dim") in (None, 1, -1):
            last = self._source(last)
        return self._chain(last, inputs[0])

    def _function(self, node: Any) -> str:
        """Return the name of the function or method that a node applies."""
        if node.op != "call_module":
            return str(getattr(node.target, "__name__", node.target))
        part = self.modules[node.target]
        known = (_MODULES[kind] for kind in type(part).__mro__ if kind in _MODULES)
        return next(known, type(part).__name__)

    def _argument(self, node: Any, name: str) -> Any:
        """Return an argument of a node: an attribute of the module, or the second argument of a
        call."""
        if node.op == "call_module":
            return getattr(self.modules[node.target], name, None)
        return node.args[1] if len(node.args) > 1 else node.kwargs.get(name)

    def _chain(self, node: Any, stop: Any) -> list[Layer]:
        """Return the layers between ``stop`` (excluded) and ``node`` (included), in order."""
        found: list[Layer] = []
        while node is not stop:
            if _is_sum(node):
                first, second = self._branches(node)
                fork = self._common_source(first, second)
                branches = (tuple(self._chain(branch, fork)) for branch in (first, second))
                found.append(Residual(*branches))
                node = fork
                continue
            layer = self._layer(self._function(node), node)
            if layer is not None:
                found.append(layer)
            node = self._source(node)
        return found[::-1]

    @staticmethod
    def _branches(node: Any) -> tuple[Any, Any]:
        """Return the terms of a sum, which must be two different parts of the network."""
        terms = list(node.args)
        if node.kwargs or len(terms) != 2 or not all(hasattr(term, "op") for term in terms):
            raise InputError(f"{node.format_node()} is not a plain sum a + b of two branches.")
        if terms[0] is terms[1]:
            raise InputError(f"{node.format_node()} adds a branch, and its weights, to itself.")
        return terms[0], terms[1]

    def _source(self, node: Any) -> Any:
        sources = [arg for arg in node.args if hasattr(arg, "op") and not _is_shape(arg)]
        if node.op == "placeholder" or not sources:
            raise InputError(f"{node.name} cannot be followed back; use TangentKernel([...]).")
        return sources[0]

    def _common_source(self, first: Any, second: Any) -> Any:
        """Return the last node from which both branches come."""
        behind = [second]
        while behind[-1].op != "placeholder":
            behind.append(self._single_input(behind[-1]))
        while first not in behind:
            first = self._single_input(first)
        return first

    def _single_input(self, node: Any) -> Any:
        """Return the node before; before a sum, the one where its branches separate."""
        return self._common_source(*self._branches(node)) if _is_sum(node) else self._source(node)

    def _layer(self, function: str, node: Any) -> Layer | None:
        """Return the layer of a node; None if it does not change the kernel."""
        own = node.op == "call_module"
        name = f"{type(self.modules[node.target]).__name__} ({node.target})" if own else function
        match function:
            case "linear" if own:
                return Dense(self.sigma_w, self._bias(node))
            case "conv2d" if own:
                return self._conv(node)
            case "relu" | "relu_":
                return ReLU()
            case "leaky_relu" | "leaky_relu_":
                slope = self._argument(node, "negative_slope")
                return LeakyReLU(0.01 if slope is None else float(slope))
            case "erf":
                return Erf()
            case "gelu":
                if self._argument(node, "approximate") not in (None, "none"):
                    raise InputError(
                        "GELU(approximate='tanh') has no kernel; use nn.GELU(approximate='none')."
                    )
                return GELU()
            case "tanh" | "sigmoid":
                raise InputError(
                    f"{function} has no kernel in closed form; use ReLU, GELU or erf "
                    "(erf(x·√π/2) is close to tanh)."
                )
            case "flatten":
                return Flatten()
            case "view" | "reshape" if len(node.args) == 3 and node.args[2] == -1:
                return Flatten()
            case "dropout":
                pass
            case "adaptive_avg_pool2d" if self._argument(node, "output_size") in _ONE:
                return GlobalAverage()
            case "mean" if self._argument(node, "dim") in _POSITIONS:
                return GlobalAverage()
            case "adaptive_avg_pool2d":
                self._drop(name, "pooling")
            case "attention" | "scaled_dot_product_attention":
                raise InputError(f"{name} is attention, which has no kernel; use the embedding.")
            case "avg_pool2d" | "mean":
                raise _no_average(name if own else node.format_node())
            case "max_pool2d" | "boolean_dispatch":  # torch.fx sees max_pool2d as a dispatch
                self._drop(str(node.target) if own else "max_pool2d", "pooling")
            case "batch_norm" | "layer_norm" | "group_norm" | "instance_norm":
                self._drop(name, "normalisation")
            case _:
                raise InputError(
                    f"{name if own else node.format_node()} has no kernel at infinite width; "
                    "supported: Linear, Conv2d, ReLU, LeakyReLU, GELU, erf, flattening to (n, -1), "
                    "Dropout, max-pooling, sums."
                )
        return None

    def _bias(self, node: Any) -> float:
        """Return σ_b of a layer, which must not share its weights."""
        if node.target in self.seen:
            raise InputError(f"{node.target} is used twice; shared weights have no kernel.")
        self.seen.add(node.target)
        return 0.0 if self.modules[node.target].bias is None else self.sigma_b

    def _conv(self, node: Any) -> Layer:
        part: Any = self.modules[node.target]
        # torch gives a padding as a word or as one number per axis.
        paddings = {part.padding} if isinstance(part.padding, str) else set(part.padding)
        square = len(set(part.kernel_size)) == 1 and len(set(part.stride)) == 1
        plain = set(part.dilation) == {1} and part.groups == 1 and part.padding_mode == "zeros"
        if not (square and plain and len(paddings) == 1):
            raise InputError(
                "Conv2d must have a square window, one stride, one padding (with zeros), "
                "dilation 1 and one group."
            )
        sizes = int(part.kernel_size[0]), int(part.stride[0]), paddings.pop()
        return Conv(*sizes, self.sigma_w, self._bias(node))

    def _drop(self, name: str, option: str) -> None:
        """Ignore a layer if the option allows it, otherwise refuse it."""
        if self.options[option] == "refuse":
            what = f"{name} is {_LEFT_OUT[option]}, which has no kernel"
            raise InputError(f"{what}; give {option}='drop' to skip it.")
        self.dropped[option].append(name)
