"""Read a network's kernel off a torch module.

What the module computes is traced, not guessed from the order of its parts.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from bicore.errors import InputError, unknown_name
from bicore.kernels.activations import GELU, Erf
from bicore.kernels.architecture import Conv, Dense, Flatten, GlobalAverage, Layer, ReLU, Residual
from bicore.kernels.tangent import TangentKernel


def from_module(
    module: nn.Module,
    *,
    sigma_w: float = 1.0,
    sigma_b: float = 0.05,
    kind: str = "ntk",
    scale: float = 1.0,
    pooling: str = "drop",
    normalisation: str = "refuse",
) -> TangentKernel:
    """The infinite-width kernel of a torch module.

    It may hold Linear, Conv2d, ReLU, GELU, erf, Flatten, an average over all positions before the
    read-out, Dropout and sums of branches; tanh and sigmoids have no kernel in closed form.
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
    scale : float
        A constant factor on the matrix.
    pooling : "drop" or "refuse"
        ``"drop"`` leaves max-pooling out, with a notice; ``"refuse"`` raises instead.
    normalisation : "refuse" or "drop"
        The same for batch, layer, group and instance normalisation.

    Returns
    -------
    TangentKernel
        Named after the module's class.

    Raises
    ------
    InputError
        Where the module cannot be traced, or holds something that has no such kernel; its
        embeddings can still choose: :func:`bicore.compat.torch.select_from`.

    Examples
    --------
    >>> from torch import nn
    >>> from bicore.kernels import from_module
    >>> kernel = from_module(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    >>> [type(layer).__name__ for layer in kernel.layers]
    ['Dense', 'ReLU', 'Dense']
    """
    wanted = {"pooling": pooling, "normalisation": normalisation}
    for name, value in wanted.items():
        if value not in ("drop", "refuse"):
            raise unknown_name(name, value, ["drop", "refuse"])
    plain = _plain(module)
    try:
        reader = _Reader(plain, sigma_w, sigma_b, wanted)
        layers = _read_out(reader.layers())
        # Vectors, or images that a dense layer reads as vectors.
        while layers and layers[0].flattens:
            layers = layers[1:]
        kernel = TangentKernel(layers, kind, scale, label=type(plain).__name__)
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}. {_OTHERWISE}") from error
    if any(before.activates and layer.bypassed for before, layer in pairwise(kernel.layers)):
        warnings.warn(
            "an identity shortcut carries the output of an activation, which is not Gaussian at "
            "infinite width: the kernel is an approximation there (pre-activation blocks, or a "
            "convolution on the shortcut, are exact).",
            stacklevel=2,
        )
    for name, words in _LEFT_OUT.items():
        if reader.dropped[name]:
            warnings.warn(
                f"{words} ({_some(reader.dropped[name])}) has no place in this kernel and was left "
                f"out; pass {name}='refuse' to make that an error.",
                stacklevel=2,
            )
    return kernel


def _plain(module: nn.Module) -> nn.Module:
    """The module as it was before it, or parts of it, were compiled; nothing of it is changed."""
    # What torch.compile returns holds the module it was given under this name.
    found: nn.Module = getattr(module, "_orig_mod", module)
    # a part that has two names is under both
    parts = {name: _plain(part) for name, part in found._modules.items() if part is not None}
    if all(part is found._modules[name] for name, part in parts.items()):
        return found
    shell = copy.copy(found)
    shell._modules = {**found._modules, **parts}
    return shell


#: What to do with a network that has no kernel.
_OTHERWISE = (
    "Or let its embeddings choose: bicore.compat.torch.select_from(dataset, size, model=…)."
)
#: What may be left out, by the option that says so.
_LEFT_OUT = {"pooling": "max-pooling", "normalisation": "normalisation"}
#: Names that a notice lists; a network may have dozens.
_MOST_NAMES = 4


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _read_out(layers: list[Layer]) -> list[Layer]:
    """After a global average there is one position left, and flattening it changes nothing."""
    places = [place for place, layer in enumerate(layers) if layer.averages]
    if not places:
        return layers
    rest = [layer for layer in layers[places[0] + 1 :] if not layer.flattens]
    if any(layer.spatial for layer in rest):
        raise InputError(
            "AdaptiveAvgPool2d(1) is followed by a convolution: average pooling inside a network "
            "has no kernel here."
        )
    return [*layers[: places[0] + 1], *rest]


class _Reader:
    """Walks the traced graph from the output back to the input."""

    def __init__(
        self, module: nn.Module, sigma_w: float, sigma_b: float, wanted: dict[str, str]
    ) -> None:
        from torch import fx

        self.sigma_w = sigma_w
        self.sigma_b = sigma_b
        self.wanted = wanted
        self.dropped: dict[str, list[str]] = {name: [] for name in wanted}
        self.seen: set[str] = set()
        try:
            self.graph = fx.symbolic_trace(module).graph
        except Exception as error:
            # torch.fx raises many kinds, all meaning that the code depends on its input's values.
            why = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise InputError(
                f"{type(module).__name__} cannot be traced ({why}); describe it with "
                "TangentKernel([...])."
            ) from error
        self.modules = dict(module.named_modules())

    def layers(self) -> list[Layer]:
        nodes = list(self.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise InputError(f"the module takes {len(inputs)} inputs; one is needed.")
        return self._chain(self._logits(nodes[-1].args[0]), inputs[0])

    def _logits(self, node: Any) -> Any:
        """What comes before a final softmax, which belongs to the loss."""
        part = self.modules[node.target] if node.op == "call_module" else None
        if type(part) in _FINAL_MODULES:
            axis = getattr(part, "dim", None)
        elif part is None and getattr(node.target, "__name__", node.target) in _FINAL_CALLS:
            axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        else:
            return node
        return self._source(node) if axis in _OUTPUTS else node

    def _chain(self, node: Any, stop: Any) -> list[Layer]:
        """The layers between ``stop`` (excluded) and ``node`` (included), in order."""
        found: list[Layer] = []
        while node is not stop:
            if self._is_sum(node):
                first, second = self._branches(node)
                fork = self._fork(first, second)
                body = self._chain(first, fork)
                side = self._chain(second, fork)
                found.append(Residual(tuple(body), tuple(side)))
                node = fork
                continue
            layer = self._layer(node)
            if layer is not None:
                found.append(layer)
            node = self._source(node)
        return found[::-1]

    @staticmethod
    def _branches(node: Any) -> tuple[Any, Any]:
        """The terms of a sum, which must be two different parts of the network, each once."""
        terms = list(node.args)
        if node.kwargs or len(terms) != 2 or not all(hasattr(term, "op") for term in terms):
            raise InputError(
                f"{node.format_node()} is not a plain sum of two branches; only a + b can be read "
                "as a kernel."
            )
        if terms[0] is terms[1]:
            raise InputError(
                f"{node.format_node()} adds a branch to itself; the two branches of a sum need "
                "weights of their own."
            )
        return terms[0], terms[1]

    def _is_sum(self, node: Any) -> bool:
        return (
            node.op == "call_function" and node.target in (operator.add, operator.iadd, torch.add)
        ) or (node.op == "call_method" and node.target in ("add", "add_"))

    def _source(self, node: Any) -> Any:
        sources = [arg for arg in node.args if hasattr(arg, "op") and not self._is_shape(arg)]
        if node.op == "placeholder" or not sources:
            raise InputError(
                f"{node.name} cannot be followed back to the input; describe the network with "
                "TangentKernel([...])."
            )
        return sources[0]

    @staticmethod
    def _is_shape(node: Any) -> bool:
        return (node.op == "call_method" and node.target == "size") or (
            node.op == "call_function" and node.target in (getattr, operator.getitem)
        )

    def _fork(self, first: Any, second: Any) -> Any:
        """The last node that both branches come from."""
        behind = [second]
        node = second
        while node.op != "placeholder":
            node = self._before(node)
            behind.append(node)
        node = first
        while node not in behind:
            node = self._before(node)
        return node

    def _before(self, node: Any) -> Any:
        """One step back: past a sum to where its branches part."""
        return self._fork(*self._branches(node)) if self._is_sum(node) else self._source(node)

    def _layer(self, node: Any) -> Layer | None:
        """What a node of the graph does; None where it leaves the kernel as it is."""
        if node.op != "call_module":
            return self._of_call(node)
        layer = self._of_module(self.modules[node.target], node.target)
        if node.target in self.seen and layer is not None and layer.weighted:
            raise InputError(
                f"{node.target} is used twice; shared weights have no infinite-width kernel here."
            )
        self.seen.add(node.target)
        return layer

    def _of_call(self, node: Any) -> Layer | None:
        # A method is called by name; a function has one.
        name = getattr(node.target, "__name__", node.target)
        if name in ("view", "reshape") and not (len(node.args) == 3 and node.args[2] == -1):
            raise InputError(
                f"{node.format_node()} is not a flattening to (n, -1); reshape the data before the "
                "network."
            )
        if name not in _CALLS:
            raise InputError(
                f"{name!r} has no infinite-width kernel here; known: Linear, Conv2d, ReLU, GELU, "
                "erf, Flatten, Dropout, max-pooling, sums."
            )
        return _CALLS[name](self, node)

    def _of_module(self, part: nn.Module, name: str) -> Layer | None:
        for kind in type(part).__mro__:
            if kind in _MODULES:
                return _MODULES[kind](self, part, name)
        raise InputError(f"{type(part).__name__} ({name}) has no infinite-width kernel here.")

    def linear(self, part: nn.Linear, name: str) -> Layer:
        return Dense(self.sigma_w, self._bias(part))

    def conv(self, part: nn.Conv2d, name: str) -> Layer:
        # torch writes a padding as a word or as one number an axis.
        paddings = {part.padding} if isinstance(part.padding, str) else set(part.padding)
        square = len(set(part.kernel_size)) == 1 and len(set(part.stride)) == 1
        plain = set(part.dilation) == {1} and part.groups == 1 and part.padding_mode == "zeros"
        if not (square and plain and len(paddings) == 1):
            raise InputError(
                "Conv2d needs a square window, one stride, one padding with zeros, dilation 1 and "
                "one group to be read as a kernel."
            )
        window = int(part.kernel_size[0])
        return Conv(window, int(part.stride[0]), paddings.pop(), self.sigma_w, self._bias(part))

    def adaptive_average(self, part: nn.AdaptiveAvgPool2d, name: str) -> Layer:
        if part.output_size in _ONE:
            return GlobalAverage()
        return self.average(part, name)

    def adaptive_call(self, node: Any) -> Layer:
        """The same where it is called as a function of (x, size)."""
        size = node.args[1] if len(node.args) > 1 else node.kwargs.get("output_size")
        if size in _ONE:
            return GlobalAverage()
        raise _no_average(f"adaptive_avg_pool2d to {size}")

    def mean_call(self, node: Any) -> Layer:
        """A mean over height and width is an average over all positions."""
        axes = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if type(axes) is not int and axes and tuple(axes) in _POSITIONS:
            return GlobalAverage()
        raise _no_average(node.format_node())

    def average(self, part: nn.Module, name: str) -> Layer:
        raise _no_average(f"{type(part).__name__} ({name})")

    def gelu(self, exact: bool) -> Layer:
        if not exact:
            raise InputError(
                "GELU by tanh has no kernel in closed form; the exact one has: "
                "nn.GELU(approximate='none')."
            )
        return GELU()

    def unknown(self, name: str) -> Layer:
        raise InputError(
            f"{name} has no kernel in closed form; ReLU, GELU and erf have (erf(x·√π/2) is near "
            "tanh)."
        )

    def drop(self, name: str, option: str = "pooling") -> None:
        """Leave something out, or refuse it."""
        if self.wanted[option] == "refuse":
            raise InputError(
                f"{name} is {_LEFT_OUT[option]}, which has no kernel here; {option}='drop' leaves "
                "it out."
            )
        self.dropped[option].append(name)

    def _bias(self, part: nn.Linear | nn.Conv2d) -> float:
        return self.sigma_b if part.bias is not None else 0.0


def _no_average(what: str) -> InputError:
    return InputError(
        f"{what} is average pooling inside a network, which has no kernel here; only one over all "
        "positions before the read-out, AdaptiveAvgPool2d(1), does."
    )


#: Sizes that mean one position, and axes that are all positions of (n, channels, height, width).
_ONE = (1, (1, 1), [1, 1])
_POSITIONS = ((2, 3), (3, 2), (-2, -1), (-1, -2))
#: A last layer that belongs to the loss.
_FINAL_MODULES = (nn.Softmax, nn.LogSoftmax)
_FINAL_CALLS = ("softmax", "log_softmax")
#: The axis of the outputs, as people write it; torch takes it where nothing is said.
_OUTPUTS = (None, 1, -1)


def _normalised(reader: _Reader, part: nn.Module, name: str) -> None:
    reader.drop(f"{type(part).__name__} {name}", "normalisation")


#: What each kind of module becomes; a subclass is read as the class it derives from.
_MODULES: dict[type, Callable[[_Reader, Any, str], Layer | None]] = {
    nn.Linear: _Reader.linear,
    nn.Conv2d: _Reader.conv,
    nn.ReLU: lambda reader, part, name: ReLU(),
    nn.GELU: lambda reader, part, name: reader.gelu(part.approximate == "none"),
    nn.Tanh: lambda reader, part, name: reader.unknown("tanh"),
    nn.Sigmoid: lambda reader, part, name: reader.unknown("the sigmoid"),
    nn.Flatten: lambda reader, part, name: Flatten(),
    nn.Dropout: lambda reader, part, name: None,
    nn.Dropout1d: lambda reader, part, name: None,
    nn.Dropout2d: lambda reader, part, name: None,
    nn.Identity: lambda reader, part, name: None,
    nn.AvgPool2d: _Reader.average,
    nn.AdaptiveAvgPool2d: _Reader.adaptive_average,
    nn.MaxPool2d: lambda reader, part, name: reader.drop(name),
    nn.BatchNorm1d: _normalised,
    nn.BatchNorm2d: _normalised,
    nn.LayerNorm: _normalised,
    nn.GroupNorm: _normalised,
    nn.InstanceNorm2d: _normalised,
}

#: The same for functions and methods of tensors, by name; torch.fx sees max_pool2d as a dispatch.
_CALLS: dict[str, Callable[[_Reader, Any], Layer | None]] = {
    "relu": lambda reader, node: ReLU(),
    "relu_": lambda reader, node: ReLU(),
    "gelu": lambda reader, node: reader.gelu(node.kwargs.get("approximate", "none") == "none"),
    "erf": lambda reader, node: Erf(),
    "tanh": lambda reader, node: reader.unknown("tanh"),
    "sigmoid": lambda reader, node: reader.unknown("the sigmoid"),
    "flatten": lambda reader, node: Flatten(),
    "view": lambda reader, node: Flatten(),
    "reshape": lambda reader, node: Flatten(),
    "dropout": lambda reader, node: None,
    "adaptive_avg_pool2d": _Reader.adaptive_call,
    "mean": _Reader.mean_call,
    "max_pool2d": lambda reader, node: reader.drop("max_pool2d"),
    "boolean_dispatch": lambda reader, node: reader.drop("max_pool2d"),
    **{
        name: lambda reader, node, name=name: reader.drop(name, "normalisation")  # type: ignore[misc]
        for name in ("batch_norm", "layer_norm", "group_norm", "instance_norm")
    },
}
