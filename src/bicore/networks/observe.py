"""Embeddings, predictions and last-layer gradients of a network, and Monte-Carlo dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bicore._deprecated import renamed_keywords
from bicore.data import Array, as_tensor, read_targets
from bicore.errors import InputError, NumericalError, check_type, unknown_name
from bicore.networks.loading import is_loader, is_torch_data, open_data
from bicore.runtime.clock import checkpoint
from bicore.runtime.context import frozen
from bicore.runtime.threads import all_threads
from bicore.types import Items, Numbers

#: Number of rows that pass through the module together.
BATCH = 512
#: Outputs ≥ 0 that sum to 1 within this tolerance are probabilities, not logits.
PROBABILITY_TOLERANCE = 1e-4
#: Dropout layers that drop whole channels.
_WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass(frozen=True, eq=False)
class Observed:
    """The outputs of a module for n rows, computed by :func:`observe`.

    Pass it as ``Context(model=…)`` to every selector that needs the model.
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
        """Return the log softmax of the outputs."""
        return torch.log_softmax(self.outputs.double(), 1)

    def residuals(self, y: Array) -> Tensor:
        """Return the gradient of the loss with respect to the outputs."""
        targets = read_targets(y)
        if targets.classes is None:
            goal = torch.from_numpy(targets.values).to(self.outputs.device)
            if goal.shape != self.outputs.shape:
                outputs = self.outputs.shape[1]
                raise InputError(f"the model has {outputs} outputs but y {goal.shape[1]} targets.")
            return 2 * (self.outputs.double() - goal)
        residual = self.log_probabilities().exp()
        columns = torch.from_numpy(self.columns(y)).to(residual.device)
        residual[torch.arange(len(residual), device=residual.device), columns] -= 1
        return residual

    def columns(self, y: Array) -> Array:
        """Return the index of the output of each label."""
        return output_columns(y, self.outputs.shape[1], self.classes, self.present)

    def gradient_factors(self, y: Array) -> tuple[Tensor, Tensor]:
        """Return the loss gradients of the last layer's weights (and bias), in factors."""
        if self.last is None or self.last.dim() != 2 or not self.direct:
            raise InputError(
                "last-layer gradients need a module that returns the output of its last Linear "
                "layer over vectors; this one does not."
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
    """Return the index of the output of each label.

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
            "the outputs in order: model_classes=[…] of a selector's select."
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


@renamed_keywords()
def observe(
    model: nn.Module,
    x: Numbers | Items | Iterable[Any],
    *,
    layer: str | None = None,
    batch: int = BATCH,
) -> Observed:
    """Run a module over rows once: in eval mode, without gradients, on its own device.

    Its modes are put back.

    Parameters
    ----------
    model : torch.nn.Module
        Takes a batch of rows and returns logits, one row each.
    x : array, Tensor, torch.utils.data.Dataset or DataLoader
        The rows. A data set is read in batches; of a loader all rows are
        read in the order of its data set, also where it shuffles.
    layer : str, optional
        Layer whose output is the embedding (default: the input of the last Linear layer).
    batch : int
        Points that pass through together.

    Returns
    -------
    Observed
        Outputs and embeddings of the rows.

    Raises
    ------
    InputError
        If it is not a module, cannot read the rows, or does not return logits.
    NumericalError
        If its output is not finite.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> observe(network, np.zeros((4, 3))).embedding.shape
    torch.Size([4, 5])
    """
    module = as_module(model)
    return observe_parts(module, batches(module, x, batch), layer)


def observe_parts(module: nn.Module, parts: Iterable[Tensor], layer: str | None = None) -> Observed:
    """Run a module over rows that come in parts, each a tensor."""
    named: list[Tensor | None] = []
    last: list[Tensor | None] = []
    outputs: list[Tensor] = []
    with record_layer(module, layer) as record, frozen(module):
        if layer is None and not record.linears:
            raise InputError("the model has no Linear layer; name a layer: Embedding(layer='…').")
        for part in parts:
            record.named = record.last = record.result = None
            outputs.append(forward(module, part))
            record.compare(outputs[-1])
            named.append(record.named)
            last.append(record.last)
    inputs = _concatenate(last)
    embedding = inputs if layer is None else _concatenate(named)
    if embedding is None:
        ran = "no Linear layer" if layer is None else f"layer={layer!r} never"
        raise InputError(f"{ran} ran in the model's forward pass; name another: layer='…'.")
    whole = torch.cat(outputs)
    _check_outputs(embedding, whole)
    return Observed(embedding.flatten(1), inputs, whole, record.bias, layer, record.direct)


def _concatenate(parts: list[Tensor | None]) -> Tensor | None:
    """Join the parts of all batches; None if the layer did not run."""
    found = [part for part in parts if part is not None]
    return torch.cat(found) if found else None


def _check_outputs(embedding: Tensor, outputs: Tensor) -> None:
    for name, tensor in (("embedding", embedding), ("output", outputs)):
        if not torch.isfinite(tensor).all():
            raise NumericalError(
                f"the model's {name} holds values that are not finite; train it with a smaller "
                "step, or scale x."
            )
    if outputs.shape[1] < 2 or not bool((outputs >= 0).all()):
        return
    if bool(((outputs.sum(1) - 1).abs() < PROBABILITY_TOLERANCE).all()):
        raise InputError(
            "the model returns probabilities; return logits, without the final softmax, which the "
            "loss adds."
        )


@contextmanager
def record_layer(module: nn.Module, layer: str | None) -> Iterator[_LayerRecord]:
    """Record the output of a named layer and the input of the last Linear layer."""
    known: dict[str, nn.Module] = dict(module.named_modules())
    if layer is not None and layer not in known:
        raise unknown_name("layer", layer, list(known)[1:21])
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    record = _LayerRecord(len(linears))
    with ExitStack() as hooks:
        if layer is not None:
            hooks.enter_context(known[layer].register_forward_hook(record.output))
        for part in linears:
            hooks.enter_context(part.register_forward_hook(record.linear, with_kwargs=True))
        yield record


class _LayerRecord:
    """The tensors that the hooks saw in the current batch."""

    def __init__(self, linears: int) -> None:
        self.named: Tensor | None = None
        self.last: Tensor | None = None
        self.result: Tensor | None = None
        self.linears = linears
        self.bias = True
        self.direct = True

    def output(self, module: nn.Module, inputs: Any, output: Any) -> None:
        check_type("the output of the named layer", output, Tensor, "a tensor; name another layer")
        # A copy, because the next layer may overwrite it.
        self.named = output.flatten(1).clone()

    def linear(self, module: nn.Linear, inputs: Any, keywords: Any, output: Tensor) -> None:
        given = inputs[0] if inputs else keywords["input"]
        self.last = given.clone()
        self.result = output.clone()
        self.bias = module.bias is not None

    def compare(self, outputs: Tensor) -> None:
        """Check whether the module returned its last Linear layer's output, or its log softmax."""
        same = self.result is not None and self.result.shape == outputs.shape
        if same and self.result is not None and not torch.equal(self.result, outputs):
            same = torch.allclose(torch.log_softmax(self.result, 1), outputs, rtol=1e-4, atol=1e-5)
        self.direct = self.direct and same


def as_module(model: Any) -> nn.Module:
    """Return the module; anything else is refused."""
    words = "a torch.nn.Module, or a result of observe(…)"
    check_type("model", model, nn.Module, words)
    module: nn.Module = model
    return module


def batches(module: nn.Module, x: Any, size: int) -> Iterator[Tensor]:
    """Yield parts of x on the module's device and in its precision."""
    like = floats_of(module)
    rows = len(x.dataset) if is_loader(x) else len(x)
    done = 0
    # a layer may be applied at many positions
    with all_threads(sum(value.numel() for value in module.parameters()) * rows):
        for part in _parts(x, size):
            checkpoint(done / rows)
            yield part.to(like.device, like.dtype)
            done += len(part)


def _parts(x: Any, size: int) -> Iterator[Tensor]:
    if is_torch_data(x):
        reading = open_data(x, batch_size=None if is_loader(x) else size)
        yield from (torch.as_tensor(batch["x"]) for batch in reading)
        return
    for start in range(0, len(x), size):
        part = x[start : start + size]
        yield part if torch.is_tensor(part) else as_tensor(np.asarray(part))


def floats_of(module: nn.Module) -> Tensor:
    """Return a tensor on the module's device and in its precision."""
    floating = (value for value in module.parameters() if value.is_floating_point())
    return next(floating, torch.empty(0))


def apply_module(module: Callable[[Tensor], Any], part: Tensor) -> Any:
    """Return what a module makes of a batch; errors name the shape of its rows."""
    try:
        return module(part)
    except (InputError, torch.cuda.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        shape = tuple(part.shape[1:])
        raise InputError(f"the model cannot read rows of shape {shape}: {error}") from error


def forward(module: Callable[[Tensor], Any], part: Tensor) -> Tensor:
    """The module's output for one batch: a matrix with one line per row."""
    outputs = apply_module(module, part)
    tensor = isinstance(outputs, Tensor)
    if not tensor or outputs.dim() != 2 or len(outputs) != len(part):
        found = f"shape {tuple(outputs.shape)}" if tensor else type(outputs).__name__
        raise InputError(
            f"the model must return one vector of logits per row; it returned {found} for "
            f"{len(part)} rows."
        )
    logits: Tensor = outputs
    return logits


class Embedder(nn.Module):
    """A network up to a layer, as a module with one output vector per row."""

    def __init__(self, model: Any, layer: str | None = None) -> None:
        super().__init__()
        self.model = as_module(model)
        self.layer = layer

    def extra_repr(self) -> str:
        """Return the text that torch prints next to the model."""
        return f"layer={self.layer!r}"

    def forward(self, x: Tensor) -> Tensor:
        """Compute the embeddings of a batch."""
        like = floats_of(self.model)
        given = x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)
        with record_layer(self.model, self.layer) as record:
            outputs = apply_module(self.model, given)
            taken = record.named if self.layer is not None else _embedding_of(record, outputs)
        if not torch.is_tensor(taken) or taken.shape[:1] != x.shape[:1]:
            found = tuple(taken.shape) if torch.is_tensor(taken) else type(taken).__name__
            raise InputError(
                f"the model gives {found} for {len(x)} rows; name a layer that returns a vector "
                "for each: layer='…'."
            )
        return taken.flatten(1) if taken.dim() > 1 else taken[:, None]


def _embedding_of(record: _LayerRecord, outputs: Any) -> Any:
    """Return the input of the last layer of a classifier, or the output of an encoder."""
    if record.result is None or not torch.is_tensor(outputs):
        return outputs
    record.compare(outputs)
    # Over sequences the last layer sees every position separately; only one vector per row is an
    # embedding.
    vectors = record.last is not None and record.last.dim() == outputs.dim() == 2
    return record.last if record.direct and vectors else outputs


def dropout_probabilities(
    model: Any, x: Array, draws: int, seed: int, batch: int = BATCH
) -> Tensor:
    """Compute class probabilities under random dropout masks.

    Within a draw every row sees the same mask; everything but dropout runs in eval mode.
    """
    module = as_module(model)
    thinned = [
        part
        for part in module.modules()
        if isinstance(part, (nn.Dropout, *_WHOLE_CHANNELS)) and part.p > 0
    ]
    if not thinned:
        raise InputError("the model has no nn.Dropout layer with p > 0, which BatchBALD needs.")
    masks, seen = _Masks(seed), []
    with ExitStack() as hooks, frozen(module):
        for part in thinned:
            hooks.enter_context(part.register_forward_hook(masks.apply))
        for draw in range(draws):
            outputs = []
            for rows in batches(module, x, batch):
                masks.start(draw)  # layers run in the same order for every batch
                outputs.append(forward(module, rows))
            seen.append(torch.softmax(torch.cat(outputs).double(), 1))
    return torch.stack(seen)


class _Masks:
    """Random masks of dropout layers, one for each time a layer runs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # On the CPU, so that all devices draw the same masks.
        self.generator = torch.Generator()

    def start(self, draw: int) -> None:
        self.generator.manual_seed((self.seed * 1_000_003 + draw) % 2**63)

    def apply(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        shape = list(output.shape[1:])
        if isinstance(module, _WHOLE_CHANNELS):
            shape[1:] = [1] * (len(shape) - 1)
        kept = 1 - float(module.p)  # type: ignore[arg-type]
        drawn = torch.rand(shape, generator=self.generator) < kept
        return output * drawn.to(output) / max(kept, torch.finfo(output.dtype).tiny)
