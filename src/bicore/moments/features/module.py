"""The embedding of a frozen network."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from bicore.data import Array, as_tensor
from bicore.errors import InputError
from bicore.moments.features.base import FeatureMap, not_settled
from bicore.moments.features.checked import SettledMap, as_rows, count_of
from bicore.state import fingerprint


@dataclass(frozen=True, eq=False)
class Embedded(SettledMap):
    """What a network's module returns for rows, each as one vector.

    The map has a copy of the module, in evaluation mode, whose weights nobody trains: features stay
    the same when the module goes on learning. Rows are seen in the precision of the weights (half
    precision is widened to float32); a GPU's convolutions round as the caller's settings say.

    Parameters
    ----------
    module : torch.nn.Module
        Takes rows and returns a tensor with a row for each.
    batch : int
        Rows that it is given at a time.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.
    digest, outputs : str and int, optional
        The fingerprint of the weights, and how many features a row has; not for callers.

    Raises
    ------
    InputError
        Where it is no module, cannot be copied, or does not take the rows.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import Embedded
    >>> x = torch.ones(2, 3)
    >>> Embedded(torch.nn.Linear(3, 5)).settled(x.numpy())(x).shape
    torch.Size([2, 5])
    """

    module: nn.Module = field(compare=False, repr=False)
    batch: int = field(default=256, compare=False)
    digest: str | None = field(default=None, kw_only=True)
    outputs: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", count_of(self.batch, "batch"))
        if self.digest is None:
            object.__setattr__(self, "module", _frozen(self.module))
            object.__setattr__(self, "digest", fingerprint(self.module))

    def network(self) -> nn.Module:
        """The module.

        Returns
        -------
        torch.nn.Module
            The map's own copy.
        """
        return self.module

    @property
    def width(self) -> int:
        """How many features a row has."""
        if self.outputs is None:
            raise not_settled(self)
        return self.outputs

    def _settled_on(self, rows: Array) -> FeatureMap:
        with torch.no_grad():
            found = self._mapped(as_rows(as_tensor(rows[:1])))
        return replace(self, outputs=found.shape[1])

    def _rows_at_once(self) -> int:
        return self.batch

    def _mapped(self, rows: Tensor) -> Tensor:
        module = self._kept(rows.device, lambda: _placed(self.module, rows.device))
        floating = (value.dtype for value in module.parameters() if value.is_floating_point())
        try:
            found = module(rows.to(next(floating, rows.dtype)))
        except (RuntimeError, ValueError, TypeError) as error:
            raise InputError(
                f"the module cannot read rows of shape {tuple(rows.shape[1:])}: {error}; give rows "
                "in the shape it was trained on."
            ) from error
        return _as_vectors(found, len(rows))


def _as_vectors(found: Any, rows: int) -> Tensor:
    """What a module returned, one vector a row."""
    real = torch.is_tensor(found) and not found.is_complex()
    if not real or found.dim() == 0 or len(found) != rows:
        got = f"shape {tuple(found.shape)}" if real else f"a {type(found).__name__}"
        raise InputError(
            f"the module returned {got} for {rows} rows; give one that returns a real tensor with "
            "a row for each."
        )
    vectors: Tensor = found.reshape(rows, math.prod(found.shape[1:]))
    return vectors


@singledispatch
def _frozen(module: Any) -> nn.Module:
    """A copy that nobody trains; what is no module is refused."""
    raise InputError(f"module is a {type(module).__name__}; give a torch.nn.Module.")


@_frozen.register
def _(module: nn.Module) -> nn.Module:
    try:
        own = copy.deepcopy(module)
    except Exception as error:  # a module's own parts may raise anything
        raise InputError(
            f"module cannot be copied ({error}); give one that copy.deepcopy takes."
        ) from error
    halves = (torch.float16, torch.bfloat16)
    if any(value.dtype in halves for value in (*own.parameters(), *own.buffers())):
        own = own.float()
    return own.eval().requires_grad_(False)


def _placed(module: nn.Module, device: torch.device) -> nn.Module:
    """The module itself where it lies on that device, or a copy there."""
    places = {value.device for value in (*module.parameters(), *module.buffers())}
    return module if places <= {device} else copy.deepcopy(module).to(device)
