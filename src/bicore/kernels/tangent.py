"""Infinite-width kernels of networks: the NTK and the NNGP of an architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError, unknown_name
from bicore.kernels.architecture import Layer, Pairs, State, overlap, stride_of
from bicore.kernels.base import Kernel, mirror
from bicore.runtime import checkpoint, handed_out

#: Pairs × positions handled at once on a CPU: a block and its few temporaries then stay in the
#: cache.
_CACHED_ELEMENTS = 800_000
#: Pairs of vectors handled at once: small tiles leave out more of what lies below the diagonal.
_CACHED_PAIRS = 1 << 16
#: Cosines nearer ±1 than this are too near for less than float64: beyond it float32 errs by 1e-5.
_NEAR = 1e-3
#: Pairs done apart, one by one, cost so many times those of a tile; where more than that share of
#: them is too near, the whole tile is done again.
_APART = 16
#: What an angle and its maps cost at a pair of positions, in multiplications.
_LAYER_WORK = 32


@dataclass(frozen=True)
class TangentKernel(Kernel):
    """The kernel of an infinitely wide network.

    Images are (n, channels, height, width) or (n, height, width); a network without convolutions
    takes vectors.

    Parameters
    ----------
    layers : sequence of Layer
        See :mod:`bicore.kernels.architecture`; weights have variance σ_w²/fan-in and biases σ_b².
    kind : "ntk" or "nngp"
        The tangent kernel (training with gradient descent), or the covariance at initialisation.
    scale : float
        A constant factor on the matrix (the paper divides its ResNet kernel by 100).
    label : str
        What reports call the network.

    Raises
    ------
    InputError
        Where the layers do not make a network with one read-out, or another argument is unknown.

    Examples
    --------
    >>> from bicore.kernels import Dense, ReLU, TangentKernel
    >>> kernel = TangentKernel([Dense(), ReLU(), Dense()])
    >>> kernel([[1.0, 0.0], [0.0, 1.0]]).round(4).tolist()
    [[0.5, 0.0796], [0.0796, 0.5]]
    """

    layers: Sequence[Layer]
    kind: str = "ntk"
    scale: float = 1.0
    label: str = "network"

    def __post_init__(self) -> None:
        if self.kind not in ("ntk", "nngp"):
            raise unknown_name("kind", self.kind, ["ntk", "nngp"])
        if not self.scale > 0:
            raise InputError(f"scale={self.scale} is not positive; a kernel's scale is > 0.")
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "scale", float(self.scale))
        _check_readout(self.layers)

    @property
    def name(self) -> str:
        return f"{self.label} {self.kind}"

    @property
    def spatial(self) -> bool:
        """Whether it takes images rather than vectors."""
        return any(layer.spatial for layer in self.layers)

    @property
    def pooled(self) -> bool:
        """Whether the read-out averages over positions, so that all pairs of positions count."""
        return any(layer.averages for layer in self.layers)

    @property
    def _average(self) -> int:
        """The place of the layer that averages over positions."""
        return next(place for place, layer in enumerate(self.layers) if layer.averages)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        fused = self._fused(a, b)
        if fused is not None:
            return fused
        left = self._traced(a)
        right = self._traced(b)
        result = a.new_empty(len(a), len(b))

        def tile(sides: tuple[int, int, int, int]) -> None:
            top, bottom, start, stop = sides
            result[top:bottom, start:stop] = self._tile(
                left.part(top, bottom), right.part(start, stop)
            )

        tiles = _tiles(len(a), len(b), self._positions(a), a.is_cuda)
        handed_out(tile, tiles, self._work(a, len(b)))
        return result

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        # Images are traced once and only tiles on or above the diagonal are computed.
        fused = self._fused(a, None)
        if fused is not None:
            return fused
        traced = self._traced(a)
        result = a.new_empty(len(a), len(a))

        def tile(sides: tuple[int, int, int, int]) -> None:
            top, bottom, start, stop = sides
            parts = traced.part(top, bottom), traced.part(start, stop)
            result[top:bottom, start:stop] = self._tile(*parts, own=top - start)

        tiles = _tiles(len(a), len(a), self._positions(a), a.is_cuda)
        upper = (sides for sides in tiles if sides[3] > sides[0])
        handed_out(tile, upper, self._work(a, len(a)) / 2)
        mirror(result)
        result.diagonal().copy_(self._diagonal(traced))
        return result

    def _work(self, a: Tensor, columns: int) -> float:
        """Multiplications of all pairs with so many columns; 0 where others hand them out."""
        each = _LAYER_WORK * len(self.layers) * self._positions(a) + a[0].numel()
        return 0.0 if a.is_cuda else float(len(a)) * columns * each

    def diag(self, a: Tensor) -> Tensor:
        if a.is_cuda and self.pooled:
            from bicore.kernels.gpu.fused import fused_diagonal

            self._check_images(a)
            fused = fused_diagonal(self, a)
            if fused is not None:
                return fused
        return self._diagonal(self._traced(a))

    def _fused(self, a: Tensor, b: Tensor | None) -> Tensor | None:
        """The whole network in one pass on the GPU; None on a CPU and where no kernel covers it."""
        if not (a.is_cuda and self.spatial):
            return None
        # Nothing of it is imported where there is no GPU.
        from bicore.kernels.gpu.fused import fused

        self._check_images(a)
        if a.dtype in (torch.float32, torch.float64):
            return fused(self, a, b)
        # Half precision is for storing.
        found = fused(self, a.float(), None if b is None else b.float())
        return None if found is None else found.to(a.dtype)

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        # √v at every position and ReLU, and the image itself.
        positions = shape[-1] * shape[-2] if self.spatial and len(shape) > 1 else 1
        # A fused kernel keeps two factors, those of the second image twice, and makes them.
        copies = 8 if self.pooled else 1
        relus = sum(layer.rectifiers for layer in self.layers)
        return itemsize * (copies * positions * relus + int(np.prod(shape)))

    def _positions(self, a: Tensor) -> int:
        return int(a.shape[-1] * a.shape[-2]) if self.spatial else 1

    def _traced(self, a: Tensor) -> _Traced:
        """Every image alone: √v at each ReLU, and the diagonal where single positions give it."""
        return self._traced_inputs(self._inputs(a))

    def _traced_inputs(self, inputs: Tensor) -> _Traced:
        state = State(inputs.square().mean(-1), None)
        notes = list[Tensor]()
        for layer in self.layers:
            if layer.averages:
                return _Traced(inputs, notes, None, self._pooled_positions(inputs, state.nngp))
            state = layer.variance(state, notes)
        if state.nngp.dim() != 1:
            raise InputError(
                f"the network's output keeps positions {tuple(state.nngp.shape[:-1])}; add "
                "Flatten() before the read-out."
            )
        return _Traced(inputs, notes, self.answer(state), (1, 1))

    def _pooled_positions(self, inputs: Tensor, maps: Tensor) -> tuple[int, int]:
        """Height and width of the maps that are averaged.

        Every displacement between them must exist between pixels.
        """
        stride = stride_of(self.layers[: self._average])
        found = (int(maps.shape[0]), int(maps.shape[1]))
        if any(
            (side - 1) * stride >= pixels
            for side, pixels in zip(found, inputs.shape[:2], strict=True)
        ):
            raise InputError(
                f"padding makes maps of {found[0]}×{found[1]} from images of "
                f"{inputs.shape[0]}×{inputs.shape[1]} (stride {stride}); a pooled kernel takes "
                "maps no larger than the image: use padding 'same' or less."
            )
        return found

    def notes(self, a: Tensor) -> list[Tensor]:
        """√v at every ReLU in order.

        Parameters
        ----------
        a : Tensor
            Images or vectors, rows first.

        Returns
        -------
        list of Tensor
            Positions first and images last.
        """
        return self._traced(a).notes

    def _diagonal(self, traced: _Traced) -> Tensor:
        if traced.diagonal is not None:
            return traced.diagonal
        exact = self._traced_inputs(traced.inputs.double())
        return self._paired(exact, exact).to(traced.inputs.dtype)

    def _paired(self, left: _Traced, right: _Traced) -> Tensor:
        """k(a_i, b_i), each image with the one of its number."""

        def start(shift: tuple[int, int]) -> Tensor:
            first, second = overlap(left.inputs, right.inputs, shift)
            return (first * second).mean(-1).unsqueeze(-1)

        pairs = [
            (one.unsqueeze(-1), two.unsqueeze(-1))
            for one, two in zip(left.notes, right.notes, strict=True)
        ]
        return self._carried(start, pairs, left.positions)[:, 0]

    def _inputs(self, a: Tensor) -> Tensor:
        """Vectors as (n, d); images as (height, width, n, channels)."""
        if not self.spatial:
            return a.reshape(len(a), -1)
        self._check_images(a)
        return (a[:, None] if a.dim() == 3 else a).permute(2, 3, 0, 1).contiguous()

    @staticmethod
    def _check_images(a: Tensor) -> None:
        if a.dim() not in (3, 4):
            raise InputError(
                f"x has shape {tuple(a.shape)}; this network takes images (n, channels, height, "
                "width) or (n, height, width)."
            )

    def _tile(self, left: _Traced, right: _Traced, own: int | None = None) -> Tensor:
        """The kernel of all pairs; those that all but agree, or are opposite, in float64.

        An angle that is nearly zero comes from a cosine that is nearly one, of which rounding
        leaves the angle half its digits: in float32 an error of 3e-4 for equal points. ``own``
        is the diagonal on which images meet themselves; what is there is not looked at.
        """
        if left.inputs.dtype == torch.float64:
            return self._block(left, right)
        near = _Near()
        if self.spatial:
            near.look(left.directions() @ right.directions().T)
            result = self._block(left, right)
        else:
            result = self._block(left, right, near.look)
        pairs = near.pairs(own)
        if len(pairs):
            self._repair(result, pairs, left, right)
        return result

    def _repair(self, result: Tensor, pairs: Tensor, left: _Traced, right: _Traced) -> None:
        """Overwrite these pairs by what float64 makes of them, or all where they are many."""
        if len(pairs) * _APART > result.numel():
            rows, columns = (self._traced_inputs(one.inputs.double()) for one in (left, right))
            result.copy_(self._block(rows, columns))
            return
        numbers = left.inputs[..., :1, :].numel()
        for some in torch.split(pairs, max(1, _CACHED_ELEMENTS // numbers)):
            first, second = some.unbind(1)
            values = self._paired(
                self._traced_inputs(left.inputs[..., first, :].double()),
                self._traced_inputs(right.inputs[..., second, :].double()),
            )
            result[first, second] = values.to(result.dtype)

    def _block(
        self, left: _Traced, right: _Traced, watch: Callable[[Tensor], None] | None = None
    ) -> Tensor:
        channels = left.inputs.shape[-1]

        def start(shift: tuple[int, int]) -> Tensor:
            first, second = overlap(left.inputs, right.inputs, shift)
            if channels == 1:
                return first * second.transpose(-1, -2)
            return first @ second.transpose(-1, -2) / channels

        pairs = [
            (one.unsqueeze(-1), two.unsqueeze(-2))
            for one, two in zip(left.notes, right.notes, strict=True)
        ]
        return self._carried(start, pairs, left.positions, watch)

    def _carried(
        self,
        start: Callable[[tuple[int, int]], Tensor],
        pairs: list[tuple[Tensor, Tensor]],
        positions: tuple[int, int],
        watch: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """From the covariances of pixels a displacement apart to the kernel."""
        if self.pooled:
            return self._summed(start, pairs, positions)
        return self.answer(self._through(State(start((0, 0)), None), pairs, self.layers, watch))

    @staticmethod
    def _through(
        state: State,
        pairs: list[tuple[Tensor, Tensor]],
        layers: Sequence[Layer],
        watch: Callable[[Tensor], None] | None = None,
    ) -> State:
        notes = Pairs(pairs, watch)
        for layer in layers:
            state = layer.covariance(state, notes)
        return state

    def _summed(
        self,
        start: Callable[[tuple[int, int]], Tensor],
        pairs: list[tuple[Tensor, Tensor]],
        positions: tuple[int, int],
    ) -> Tensor:
        """The mean of the last map over all pairs of positions, then the read-out.

        Pairs of one displacement are summed together, displacement by displacement.
        """
        place = self._average
        body = self.layers[: place + 1]
        stride = stride_of(self.layers[:place])
        height, width = positions
        total: State | None = None
        for down in range(1 - height, height):
            for right in range(1 - width, width):
                shift = (down * stride, right * stride)
                state = self._through(State(start(shift), None, shift), pairs, body)
                total = state if total is None else _added(total, state)
        assert total is not None
        count = (height * width) ** 2
        mean = State(total.nngp / count, None if total.ntk is None else total.ntk / count)
        return self.answer(self._through(mean, [], self.layers[place + 1 :]))

    def answer(self, state: State) -> Tensor:
        """The kernel's values.

        Parameters
        ----------
        state : State
            What the last layer gave.

        Returns
        -------
        Tensor
            Σ or Θ, scaled; zeros for Θ where no layer has weights.
        """
        if self.kind == "nngp":
            return state.nngp * self.scale
        return state.ntk * self.scale if state.ntk is not None else torch.zeros_like(state.nngp)


def _check_readout(layers: Sequence[Layer]) -> None:
    """One read-out after the convolutions, or an error in words."""
    places = [place for place, layer in enumerate(layers) if layer.flattens or layer.averages]
    if any(layer.spatial for layer in layers) and not places:
        raise InputError(
            "layers has convolutions but no Flatten or GlobalAverage; add one before the read-out."
        )
    for place in places:
        if layers[place].flattens:
            _check_after_flatten(layers[place + 1 :])
            continue
        _check_after_average(layers[place + 1 :])
        if any(layer.uneven for layer in layers[:place]):
            raise InputError(
                "the two branches of a Residual have different strides; they must agree."
            )
        if len(places) > 1:
            raise InputError(
                "layers has a Flatten and a GlobalAverage; a network has one read-out: remove the "
                "other."
            )


def _check_after_flatten(rest: Sequence[Layer]) -> None:
    wrong = next((layer for layer in rest if layer.spatial), None)
    if wrong is not None:
        raise InputError(
            f"{type(wrong).__name__} follows Flatten, after which there are no positions; put "
            "Flatten once, after the last Conv."
        )


def _check_after_average(rest: Sequence[Layer]) -> None:
    """Only layers whose maps need no variances of single images, which an average has not."""
    wrong = next((layer for layer in rest if not layer.follows_average), None)
    if wrong is not None:
        raise InputError(
            f"{type(wrong).__name__} follows GlobalAverage; an average over positions inside a "
            "network mixes displacements and has no kernel here: only Dense may follow it."
        )


def _added(total: State, state: State) -> State:
    """The sum of two states, written over the first."""
    ntk = total.ntk
    if ntk is not None and state.ntk is not None:
        ntk.add_(state.ntk)
    return State(total.nngp.add_(state.nngp), ntk)


@dataclass(frozen=True)
class _Traced:
    """Images with the norms that their ReLUs need.

    Images come last in every note, so that a slice of them is a slice of the note. ``diagonal`` is
    there where it follows from single positions; ``positions`` are height and width before the
    read-out.
    """

    inputs: Tensor
    notes: list[Tensor]
    diagonal: Tensor | None
    positions: tuple[int, int]

    def directions(self) -> Tensor:
        """Every image as one vector of length 1; an all-black one stays zero."""
        rows = self.inputs.movedim(-2, 0).flatten(1)
        lengths = rows.square().sum(1, keepdim=True).sqrt()
        return rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny)

    def part(self, start: int, stop: int) -> _Traced:
        inputs = self.inputs[..., start:stop, :]
        notes = [note[..., start:stop] for note in self.notes]
        diagonal = None if self.diagonal is None else self.diagonal[start:stop]
        return _Traced(inputs, notes, diagonal, self.positions)


class _Near:
    """The pairs of a tile whose cosine was within ``_NEAR`` of ±1."""

    def __init__(self) -> None:
        self.mask: Tensor | None = None

    def pairs(self, own: int | None) -> Tensor:
        """(row, column) of each, but for those on the diagonal ``own``."""
        mask = self.mask
        if mask is None:
            return torch.empty(0, 2, dtype=torch.long)
        if own is not None and -len(mask) < own < mask.shape[1]:
            mask.diagonal(own).fill_(False)
        return mask.nonzero()

    def look(self, cosine: Tensor) -> None:
        """Note those of one ReLU; where there is none, two readings are all it costs."""
        if max(float(cosine.amax()), -float(cosine.amin())) > 1 - _NEAR:
            found = cosine.abs() > 1 - _NEAR
            self.mask = found if self.mask is None else self.mask.logical_or_(found)


def _tiles(
    rows: int, columns: int, positions: int, large: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Tiles of pairs whose positions fit the cache: wide, so that the last axis stays long.

    ``large`` where calls cost more than a cache saves.
    """
    flat = _CACHED_ELEMENTS if large else _CACHED_PAIRS
    pairs = max(1, _CACHED_ELEMENTS // positions if positions > 1 else flat)
    width = min(columns, max(64, int(pairs**0.5)))
    height = max(1, min(rows, pairs // width))
    for top in range(0, rows, height):
        for start in range(0, columns, width):
            checkpoint()
            yield top, min(top + height, rows), start, min(start + width, columns)
