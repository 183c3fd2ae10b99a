"""A network as what it says of rows: the module that stands in front of its last layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bicore.errors import InputError
from bicore.networks.observe import as_module, floats_of, watching


class Embedder(nn.Module):
    """Gives a row of numbers for each row: the network as far as a layer.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier or an encoder; it is not copied, and not changed.
    layer : str, optional
        The layer whose output is taken, by its name in ``model.named_modules()``; "" is what the
        model itself returns. By default: what the last Linear layer takes in, where the model
        returns what that layer gives (a classifier); else what the model returns (an encoder).

    Raises
    ------
    InputError
        Where it is no module, there is no such layer, or what is taken is no row of numbers for
        each row.

    Examples
    --------
    >>> classifier = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> [Embedder(classifier, layer)(torch.zeros(2, 4)).shape[1] for layer in (None, "0", "")]
    [8, 8, 3]
    """

    def __init__(self, model: Any, layer: str | None = None) -> None:
        super().__init__()
        self.model = as_module(model)
        self.layer = layer

    def extra_repr(self) -> str:
        """What is printed of it beside the model.

        Returns
        -------
        str
            The layer.
        """
        return f"layer={self.layer!r}"

    def forward(self, x: Tensor) -> Tensor:
        """The embeddings of a batch.

        Parameters
        ----------
        x : Tensor
            Rows as the model takes them; brought to its device and precision.

        Returns
        -------
        Tensor
            (rows, columns).
        """
        like = floats_of(self.model)
        given = x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)
        with watching(self.model, self.layer) as watched:
            outputs = self.model(given)
            taken = watched.named if self.layer is not None else _taken(watched, outputs)
        if not torch.is_tensor(taken) or taken.dim() < 1 or len(taken) != len(x):
            shape = tuple(taken.shape) if torch.is_tensor(taken) else type(taken).__name__
            raise InputError(
                f"the model gives {shape} for {len(x)} rows; name a layer that gives a row of "
                "numbers for each: layer='…'."
            )
        return taken.flatten(1) if taken.dim() > 1 else taken[:, None]


def _taken(watched: Any, outputs: Any) -> Any:
    """What is in front of the last layer of a classifier, or what an encoder returns."""
    if watched.result is None or not torch.is_tensor(outputs):
        return outputs
    watched.compare(outputs)
    # Over sequences the last layer sees every place apart; only one vector a row is an embedding.
    vectors = watched.last is not None and watched.last.dim() == outputs.dim() == 2
    return watched.last if watched.direct and vectors else outputs
