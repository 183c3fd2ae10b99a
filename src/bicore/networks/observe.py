"""What a network says about points: embeddings, predictions and last-layer gradients.

They are computed once, in eval mode, in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bicore.data import Array, as_tensor, read_targets
from bicore.errors import InputError, NumericalError
from bicore.networks.loading import is_loader, is_torch_data, opened
from bicore.runtime import checkpoint, wide

#: Points that pass through the module together.
BATCH = 512
#: Outputs that are >= 0 and sum to 1 within this are probabilities, not logits.
PROBABILITY_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Observed:
    """One pass of a module over n points; :func:`observe` makes one.

    Pass it as ``Context(model=…)`` to every selector that needs the model.

    Parameters
    ----------
    embedding : Tensor
        The input of the last Linear layer, or the output of the layer named.
    last : Tensor, optional
        That input in any case.
    outputs : Tensor
        What the module returned.
    bias : bool
        Whether its last Linear layer has one.
    layer : str, optional
        The layer named.
    direct : bool
        Whether what the module returned is what that layer gave (or its log softmax): only then are
        last-layer gradients known.
    classes : tuple, optional
        The labels of the outputs in order.
    present : tuple, optional
        Those that the data shows.

    Examples
    --------
    >>> from bicore.networks import observe
    >>> seen = observe(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), np.eye(3))
    >>> len(seen), seen[[2, 0]].embedding.shape
    (3, torch.Size([2, 5]))
    """

    embedding: Tensor
    last: Tensor | None
    outputs: Tensor
    bias: bool = True
    layer: str | None = None
    direct: bool = True
    classes: tuple[Any, ...] | None = None
    present: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, rows: Any) -> Observed:
        index = torch.as_tensor(np.asarray(rows), device=self.outputs.device)
        last = None if self.last is None else self.last[index]
        return replace(
            self, embedding=self.embedding[index], last=last, outputs=self.outputs[index]
        )

    def log_probabilities(self) -> Tensor:
        """Log softmax of the outputs.

        Returns
        -------
        Tensor
            Of shape (n, outputs), in float64.
        """
        return torch.log_softmax(self.outputs.double(), 1)

    def residuals(self, y: Array) -> Tensor:
        """The gradient of the loss in the outputs.

        Parameters
        ----------
        y : array
            Labels or targets of the points.

        Returns
        -------
        Tensor
            In float64: p − e_y of the cross-entropy for labels, 2(h − y) of the squared error for
            targets.

        Raises
        ------
        InputError
            Where outputs and ``y`` do not match.
        """
        targets = read_targets(y)
        if targets.classes is None:
            goal = torch.from_numpy(targets.values).to(self.outputs.device)
            if goal.shape != self.outputs.shape:
                raise InputError(
                    f"the model has {self.outputs.shape[1]} outputs and y {goal.shape[1]} targets; "
                    "they must match."
                )
            return 2 * (self.outputs.double() - goal)
        residual = self.log_probabilities().exp()
        columns = torch.from_numpy(self.columns(y)).to(residual.device)
        residual[torch.arange(len(residual), device=residual.device), columns] -= 1
        return residual

    def columns(self, y: Array) -> Array:
        """The output that belongs to each label.

        Parameters
        ----------
        y : array
            Labels.

        Returns
        -------
        array of int
            Places among the outputs.

        Raises
        ------
        InputError
            Where a label has no output.
        """
        return output_columns(y, self.outputs.shape[1], self.classes, self.present)

    def gradient_factors(self, y: Array) -> tuple[Tensor, Tensor]:
        """The loss gradients in the last layer's weights (and bias), in factors.

        Parameters
        ----------
        y : array
            Labels or targets of the points.

        Returns
        -------
        tuple of Tensor
            A and B such that the gradient of point i is the outer product a_i b_iᵀ.

        Raises
        ------
        InputError
            Where the module does not end with a Linear layer over vectors.
        """
        if self.last is None or self.last.dim() != 2:
            raise InputError(
                "last-layer gradients need a module whose last layer is Linear over vectors; this "
                "one has none."
            )
        if not self.direct:
            raise InputError(
                "last-layer gradients need a module that returns what its last Linear layer gives; "
                "this one does not."
            )
        inputs = self.last.double()
        if self.bias:
            inputs = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], 1)
        return self.residuals(y), inputs


def output_columns(
    y: Array,
    outputs: int,
    classes: Sequence[Any] | None = None,
    present: Sequence[Any] | None = None,
) -> Array:
    """The output that belongs to each label.

    It is the label's place among ``classes``, the labels of the outputs in order. Without them: the
    label itself, where all labels ``present`` are whole numbers below the number of outputs (a task
    that shows two of ten classes); else the label's place among those present, where there are as
    many as outputs.
    """
    labels = np.asarray(y).reshape(-1)
    seen = np.unique(labels) if present is None else np.asarray(present)
    if classes is None and seen.dtype.kind in "iu" and seen.min() >= 0 and seen.max() < outputs:
        return labels.astype(np.int64)
    if classes is None and len(seen) != outputs:
        raise InputError(
            f"the model has {outputs} outputs and y {len(seen)} classes that are not numbers from "
            f"0 to {outputs - 1}; number the labels by the model's outputs, or give the labels of "
            "the outputs in order: Context(model, classes=[…])."
        )
    known = seen.tolist() if classes is None else classes
    place = {label: number for number, label in enumerate(known)}
    unknown = [label for label in np.unique(labels).tolist() if label not in place]
    if unknown or len(place) != outputs:
        what = f"y holds {unknown[0]!r}" if unknown else f"the model has {outputs} outputs"
        raise InputError(
            f"{what}, and classes has {len(place)} labels ({list(place)[:5]} …); give one for "
            "every output."
        )
    return np.array([place[label] for label in labels.tolist()], dtype=np.int64)


def observe(model: Any, x: Any, *, layer: str | None = None, batch: int = BATCH) -> Observed:
    """Run a module over points once: in eval mode, without gradients, on its own device.

    Its modes are put back.

    Parameters
    ----------
    model : torch.nn.Module
        Takes a batch of points and returns logits, one row each.
    x : array, Tensor, torch.utils.data.Dataset or DataLoader
        The points. A data set is read in batches and never held whole; of a loader all rows are
        read in the order of its data set, also where it shuffles.
    layer : str, optional
        Whose output is the embedding; default: the input of the last Linear layer.
    batch : int
        Points that pass through together.

    Returns
    -------
    Observed
        What the module says about every point.

    Raises
    ------
    InputError
        Where it is no module, cannot read the points, or returns anything but logits.
    NumericalError
        Where what it returns is not finite.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> observe(network, np.zeros((4, 3))).embedding.shape
    torch.Size([4, 5])
    """
    module = as_module(model)
    return observed(module, batches(module, x, batch), layer)


def observed(module: nn.Module, parts: Iterable[Tensor], layer: str | None = None) -> Observed:
    """What a module says about points that come in parts, each a tensor as it takes them."""
    seen: list[_Batch] = []
    with watching(module, layer) as watched, evaluating(module), torch.no_grad():
        if layer is None and not watched.linears:
            raise InputError(
                "the model has no Linear layer whose input could be the embedding; name a layer: "
                "Embedding(layer='…')."
            )
        for part in parts:
            watched.clear()
            outputs = forward(module, part)
            watched.compare(outputs)
            seen.append(_Batch(watched.named, watched.last, outputs))
    return replace(_joined(seen, watched.bias, layer), direct=watched.direct)


@contextmanager
def watching(module: nn.Module, layer: str | None) -> Iterator[_Watch]:
    """What the layer named gives and what the last Linear layer takes, as long as this lasts."""
    watched = _Watch()
    hooks = []
    if layer is not None:
        hooks.append(_named(module, layer).register_forward_hook(watched.output))
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    watched.linears = len(linears)
    hooks += [part.register_forward_hook(watched.linear, with_kwargs=True) for part in linears]
    try:
        yield watched
    finally:
        for hook in hooks:
            hook.remove()


class _Batch(NamedTuple):
    """The output of the layer named, the input of the last Linear layer, and the outputs."""

    named: Tensor | None
    last: Tensor | None
    outputs: Tensor


class _Watch:
    """What the hooks saw in the batch at hand."""

    def __init__(self) -> None:
        self.named: Tensor | None = None
        self.last: Tensor | None = None
        self.result: Tensor | None = None
        self.linears = 0
        self.bias = True
        self.direct = True

    def clear(self) -> None:
        self.named = None
        self.last = None
        self.result = None

    def output(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise InputError(
                f"the layer named returns a {type(output).__name__}, not a tensor; name another "
                "layer."
            )
        # A copy, for the next layer may write over it.
        self.named = output.flatten(1).clone()

    def linear(self, module: nn.Linear, inputs: Any, keywords: Any, output: Tensor) -> None:
        given = inputs[0] if inputs else keywords["input"]
        self.last = given.clone()
        self.result = output.clone()
        self.bias = module.bias is not None

    def compare(self, outputs: Tensor) -> None:
        """Whether the module returned what its last Linear layer gave, or the log softmax of it."""
        same = self.result is not None and self.result.shape == outputs.shape
        if same and self.result is not None and not torch.equal(self.result, outputs):
            same = torch.allclose(torch.log_softmax(self.result, 1), outputs, rtol=1e-4, atol=1e-5)
        self.direct = self.direct and same


def _joined(seen: list[_Batch], bias: bool, layer: str | None) -> Observed:
    whole = torch.cat([batch.outputs for batch in seen])
    inputs = _together([batch.last for batch in seen])
    named = _together([batch.named for batch in seen])
    if layer is not None and named is None:
        raise InputError(
            f"layer={layer!r} did not run in the model's forward pass; name a layer that does."
        )
    chosen = inputs if layer is None else named
    if chosen is None:
        raise InputError(
            "no Linear layer ran in the model's forward pass; name a layer: Embedding(layer='…')."
        )
    for name, tensor in (("embedding", chosen), ("output", whole)):
        if not torch.isfinite(tensor).all():
            raise NumericalError(
                f"the model's {name} holds values that are not finite; train it with a smaller "
                "step, or scale x."
            )
    if _probabilities(whole):
        raise InputError(
            "the model returns probabilities; return logits (leave the final softmax out, the loss "
            "adds it)."
        )
    return Observed(chosen.flatten(1), inputs, whole, bias, layer)


def _together(parts: list[Tensor | None]) -> Tensor | None:
    """One tensor of all batches; None where the first one has nothing."""
    if parts[0] is None:
        return None
    return torch.cat([part for part in parts if part is not None])


def _probabilities(outputs: Tensor) -> bool:
    """Whether every row is >= 0 and sums to 1."""
    if outputs.shape[1] < 2 or not bool((outputs >= 0).all()):
        return False
    return bool(((outputs.sum(1) - 1).abs() < PROBABILITY_TOLERANCE).all())


def as_module(model: Any) -> nn.Module:
    """The module itself; anything else is refused."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"context.model is a {type(model).__name__}; give a torch.nn.Module, or what "
            "observe(…) returned."
        )
    return model


def _named(module: nn.Module, layer: str) -> nn.Module:
    known: dict[str, nn.Module] = dict(module.named_modules())
    if layer not in known:
        names = ", ".join(repr(name) for name in list(known)[1:21])
        raise InputError(f"layer={layer!r} is not a layer of the model; it is one of {names}.")
    return known[layer]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode for the duration; every part gets back the mode it was found in."""
    found = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in found.items():
            part.training = training


def batches(module: nn.Module, x: Any, size: int) -> Iterator[Tensor]:
    """Parts of x on the module's device and in its precision."""
    like = floats_of(module)
    rows = len(x.dataset) if is_loader(x) else len(x)
    done = 0
    # a layer that is applied at many positions does more than this
    with wide(sum(value.numel() for value in module.parameters()) * rows):
        for part in _parts(x, size):
            checkpoint(done / rows)
            yield part.to(like.device, like.dtype)
            done += len(part)


def _parts(x: Any, size: int) -> Iterator[Tensor]:
    if is_torch_data(x):
        reading = opened(x, batch_size=None if is_loader(x) else size)
        yield from (torch.as_tensor(batch["x"]) for batch in reading)
        return
    for start in range(0, len(x), size):
        part = x[start : start + size]
        yield part if torch.is_tensor(part) else as_tensor(np.asarray(part))


def floats_of(module: nn.Module) -> Tensor:
    """A tensor on the module's device and in its precision."""
    floating = (value for value in module.parameters() if value.is_floating_point())
    return next(floating, torch.empty(0))


def forward(module: Callable[[Tensor], Any], part: Tensor) -> Tensor:
    """The module's output for one batch: a matrix with a row a point."""
    try:
        outputs = module(part)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"the model cannot read points of shape {tuple(part.shape[1:])}: {error}"
        ) from error
    if not isinstance(outputs, Tensor):
        raise _no_logits(type(outputs).__name__, len(part))
    if outputs.dim() != 2 or len(outputs) != len(part):
        raise _no_logits(tuple(outputs.shape), len(part))
    return outputs


def _no_logits(found: object, points: int) -> InputError:
    return InputError(
        f"the model returned {found} for {points} points; a tensor with one row of logits a point "
        "is needed."
    )
