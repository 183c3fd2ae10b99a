"""A small description of a network, and how each layer maps covariances.

Two passes use the same layers. The *variance* pass follows one image: v, the variance of every
position, and θ, the tangent kernel's diagonal there; it notes v at every ReLU. The *covariance*
pass follows pairs of images and reads those notes. Spatial tensors put positions first and pairs
last, (height, width, rows, columns), so that a window is a sum of whole contiguous planes.

A convolution of window q×q maps position p to σ_w²/q² · Σ_δ (value at stride·p + δ) + σ_b²;
positions outside the image count zero and the divisor stays q². A dense layer is a convolution of
one position. For ReLU, with c the correlation:

    κ0 = (π − arccos c)/π        κ1 = (√(1−c²) + (π − arccos c) c)/π
    Σ ← √(v v') κ1/2             Θ ← Θ κ0/2

A read-out by flattening needs equal positions of the two images only. One by global average pooling
needs all pairs of positions; those a fixed displacement apart go through the layers together, on
the part where both images have a position. A convolution of stride s takes displacement s·δ to δ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from bicore.errors import InputError

Notes = list[Tensor]


class Pairs(Iterator[tuple[Tensor, Tensor]]):
    """The two √v of every ReLU in order, and who is shown the cosines there, if anyone.

    Parameters
    ----------
    norms : iterable of pairs of Tensor
        √v in the first image and in the second.
    watch : callable, optional
        Called with the cosines of every ReLU, which it may not keep.

    Examples
    --------
    >>> len(list(Pairs([(torch.ones(2), torch.ones(3))])))
    1
    """

    def __init__(
        self,
        norms: Iterable[tuple[Tensor, Tensor]],
        watch: Callable[[Tensor], None] | None = None,
    ) -> None:
        self._norms = iter(norms)
        self._watch = watch

    def __next__(self) -> tuple[Tensor, Tensor]:
        return next(self._norms)

    def show(self, cosine: Tensor) -> None:
        """Let the watcher see the cosines of a ReLU.

        Parameters
        ----------
        cosine : Tensor
            One for each pair.
        """
        if self._watch is not None:
            self._watch(cosine)


@dataclass
class State:
    """A covariance Σ and the tangent kernel Θ so far; Θ is None before the first weights.

    ``shift`` is the displacement p − p' of the positions (p in the first image, p' in the second),
    rows then columns: the tensors hold the pairs where both lie inside their images.
    """

    nngp: Tensor
    ntk: Tensor | None
    shift: tuple[int, int] = (0, 0)

    def copy(self) -> State:
        return State(self.nngp.clone(), None if self.ntk is None else self.ntk.clone(), self.shift)


class LayerVisitor(Protocol):
    """Has a method for every layer of this module, and one for those it does not know.

    ``place`` is whatever the visitor itself passes to :meth:`Layer.visit`.
    """

    def conv(self, layer: Conv, place: int) -> None: ...
    def dense(self, layer: Dense, place: int) -> None: ...
    def relu(self, layer: ReLU, place: int) -> None: ...
    def flatten(self, layer: Flatten, place: int) -> None: ...
    def residual(self, layer: Residual, place: int) -> None: ...
    def other(self, layer: Layer, place: int) -> None: ...


class Layer(ABC):
    """One step of a network: how it maps covariances at infinite width.

    Examples
    --------
    >>> from bicore.kernels import Conv, Dense
    >>> [(layer.spatial, layer.thinning) for layer in (Conv(3, stride=2), Dense())]
    [(True, 2), (False, 1)]
    """

    #: Whether it ends the positions by keeping them apart.
    flattens: ClassVar[bool] = False
    #: Whether it ends the positions by averaging over them.
    averages: ClassVar[bool] = False
    #: Whether it is a ReLU.
    rectifies: ClassVar[bool] = False
    #: Whether it is an activation, whose output is not Gaussian.
    activates: ClassVar[bool] = False
    #: Whether it has weights of its own, which no other layer may share.
    weighted: ClassVar[bool] = False
    #: Whether it may follow an average over positions: a linear map that needs no norms.
    follows_average: ClassVar[bool] = False

    @abstractmethod
    def variance(self, state: State, notes: Notes) -> State:
        """Map (v, θ) of single images.

        Parameters
        ----------
        state : State
            The variances before the layer.
        notes : list of Tensor
            An activation appends √v.

        Returns
        -------
        State
            The variances after it.
        """

    @abstractmethod
    def covariance(self, state: State, notes: Pairs) -> State:
        """Map (Σ, Θ) of pairs of images.

        Parameters
        ----------
        state : State
            The covariances before the layer; they may be overwritten.
        notes : Pairs
            An activation takes the two √v of its place; a ReLU shows its cosines.

        Returns
        -------
        State
            The covariances after it.
        """

    @property
    def spatial(self) -> bool:
        """Whether it needs images rather than vectors."""
        return False

    @property
    def thinning(self) -> int:
        """By how much it thins positions out: one of so many a side is kept."""
        return 1

    @property
    def rectifiers(self) -> int:
        """How many activations it holds, and so how many notes it makes."""
        return 0

    @property
    def uneven(self) -> bool:
        """Whether it adds branches that thin positions out differently."""
        return False

    @property
    def bypassed(self) -> bool:
        """Whether what comes in is also added, as it is, to what goes out."""
        return False

    @property
    def convolution(self) -> Conv | None:
        """The layer itself where it is a convolution."""
        return None

    def visit(self, visitor: LayerVisitor, place: int) -> None:
        """Call the visitor's method for this kind of layer.

        Parameters
        ----------
        visitor : LayerVisitor
            One method a kind of layer; kinds of which it does not know go to its ``other``.
        place : int
            Handed on to that method.
        """
        visitor.other(self, place)


class _Affine(Layer):
    """A linear map on covariances plus a bias, the same for single images and for pairs.

    One that is not ``trained`` passes the tangent kernel on and adds nothing to it.
    """

    weighted = True

    sigma_w: float
    sigma_b: float
    trained: bool

    @abstractmethod
    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        """The mean over the window (a dense layer has none), without the weight's variance."""

    def _shifted(self, shift: tuple[int, int]) -> tuple[int, int]:
        return shift

    def _map(self, state: State) -> State:
        nngp = self._gather(state.nngp, state.shift)
        ntk = None if state.ntk is None else self._gather(state.ntk, state.shift)
        if self.trained:
            ntk = nngp.clone() if ntk is None else ntk.add_(nngp)
        elif ntk is None:
            ntk = torch.zeros_like(nngp)
        ntk.mul_(self.sigma_w**2).add_(self.sigma_b**2 if self.trained else 0.0)
        nngp.mul_(self.sigma_w**2).add_(self.sigma_b**2)
        return State(nngp, ntk, self._shifted(state.shift))

    def variance(self, state: State, notes: Notes) -> State:
        return self._map(state)

    def covariance(self, state: State, notes: Pairs) -> State:
        return self._map(state)


@dataclass(frozen=True)
class Dense(_Affine):
    """A fully connected layer: Σ ← σ_w² Σ + σ_b², Θ ← Σ_new + σ_w² Θ.

    Parameters
    ----------
    sigma_w, sigma_b : float
        Weights have variance σ_w²/fan-in, biases σ_b².
    trained : bool
        Whether its weights move in training; if not, the tangent kernel passes through.

    Examples
    --------
    >>> from bicore.kernels import Dense, TangentKernel
    >>> TangentKernel([Dense(sigma_w=2.0)])([[1.0], [3.0]]).tolist()
    [[4.0, 12.0], [12.0, 36.0]]
    """

    follows_average = True

    sigma_w: float = 1.0
    sigma_b: float = 0.0
    trained: bool = True

    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        return values

    def visit(self, visitor: LayerVisitor, place: int) -> None:
        visitor.dense(self, place)


@dataclass(frozen=True)
class Conv(_Affine):
    """A convolution with a square window.

    Parameters
    ----------
    window, stride : int
        The side of the window, and how far it moves.
    padding : "same", "valid" or int
        "same" as XLA pads (at stride 2 unevenly), "valid", or a number of zeros on both sides as in
        torch.
    sigma_w, sigma_b : float
        Weights have variance σ_w²/fan-in, biases σ_b².
    trained : bool
        Whether its weights move in training; if not, the tangent kernel passes through.

    Raises
    ------
    InputError
        For a window or stride below 1, and a padding that is none of these.

    Examples
    --------
    >>> from bicore.kernels import Conv
    >>> Conv(window=3, stride=2).extent(8), Conv(window=3, padding="valid").extent(8)
    ((4, 0), (6, 0))
    """

    window: int = 3
    stride: int = 1
    padding: str | int = "same"
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    trained: bool = True

    def __post_init__(self) -> None:
        if self.window < 1 or self.stride < 1:
            raise InputError(
                f"window={self.window}, stride={self.stride}; both must be at least 1."
            )
        number = isinstance(self.padding, int) and self.padding >= 0
        if not (number or self.padding in ("same", "valid")):
            raise InputError(
                f"padding={self.padding!r} is not known; it is 'same', 'valid' or a number of "
                "zeros >= 0."
            )

    @property
    def spatial(self) -> bool:
        return True

    @property
    def thinning(self) -> int:
        return self.stride

    @property
    def convolution(self) -> Conv:
        return self

    def visit(self, visitor: LayerVisitor, place: int) -> None:
        visitor.conv(self, place)

    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        rows = self._window_sum(values, 0, abs(shift[0]))
        return self._window_sum(rows, 1, abs(shift[1])).mul_(1 / self.window**2)

    def _shifted(self, shift: tuple[int, int]) -> tuple[int, int]:
        assert shift[0] % self.stride == 0, "other displacements reach no output"
        assert shift[1] % self.stride == 0, "other displacements reach no output"
        return int(shift[0] / self.stride), int(shift[1] / self.stride)

    def extent(self, size: int) -> tuple[int, int]:
        """What becomes of one side of an image.

        Parameters
        ----------
        size : int
            Positions along that side.

        Returns
        -------
        tuple of int
            Length of the output, and the zeros before the first position.

        Raises
        ------
        InputError
            Where the window does not fit in.
        """
        if self.padding == "same":
            length = -(-size // self.stride)
            total = max((length - 1) * self.stride + self.window - size, 0)
            return length, total // 2
        low = 0 if self.padding == "valid" else int(self.padding)
        length = (size + 2 * low - self.window) // self.stride + 1
        if length < 1:
            raise InputError(
                f"an image side of {size} is smaller than the window {self.window} with "
                f"padding={self.padding!r}."
            )
        return length, low

    def _window_sum(self, values: Tensor, axis: int, shift: int) -> Tensor:
        """The sums over windows along one axis, for images that are ``shift`` apart."""
        # The overlap of the two images begins where one of them does and ends ``shift`` before its
        # end.
        size = values.shape[axis]
        length, low = self.extent(size + shift)
        length -= shift // self.stride
        shape = list(values.shape)
        shape[axis] = length
        result = values.new_zeros(shape)
        for offset in range(-low, self.window - low):
            # Output o reads input stride·o + offset; keep the outputs whose input lies inside the
            # image.
            first = max(0, -(offset // self.stride))
            last = min(length - 1, (size - 1 - offset) // self.stride)
            if last >= first:
                begin = first * self.stride + offset
                source = slice(begin, last * self.stride + offset + 1, self.stride)
                part = values[source] if axis == 0 else values[:, source]
                result.narrow(axis, first, last - first + 1).add_(part)
        return result


@dataclass(frozen=True)
class ReLU(Layer):
    """The rectifier: Σ ← √(v v') κ1/2, Θ ← Θ κ0/2.

    Examples
    --------
    >>> from bicore.kernels import Dense, ReLU, TangentKernel
    >>> TangentKernel([Dense(), ReLU(), Dense()], kind="nngp")([[2.0], [-1.0]]).tolist()
    [[2.0, 0.0], [0.0, 0.5]]
    """

    rectifies = True
    activates = True

    @property
    def rectifiers(self) -> int:
        return 1

    def visit(self, visitor: LayerVisitor, place: int) -> None:
        visitor.relu(self, place)

    def variance(self, state: State, notes: Notes) -> State:
        notes.append(state.nngp.sqrt())
        return State(state.nngp.div(2), None if state.ntk is None else state.ntk.div(2))

    def covariance(self, state: State, notes: Pairs) -> State:
        # In place throughout: the tensors are as large as a tile, and the cache holds few of them.
        left, right = overlap(*next(notes), state.shift)
        cosine = state.nngp.mul_(_inverse(left)).mul_(_inverse(right)).clamp_(-1, 1)
        notes.show(cosine)
        turned = torch.acos(cosine).neg_().add_(math.pi)
        sine = torch.addcmul(_ones(cosine), cosine, cosine, value=-1).sqrt_()
        nngp = sine.addcmul_(turned, cosine)
        nngp.mul_(left).mul_(right / (2 * math.pi))
        ntk = None if state.ntk is None else state.ntk.mul_(turned.mul_(1 / (2 * math.pi)))
        return State(nngp, ntk, state.shift)


def overlap(left: Tensor, right: Tensor, shift: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The norms of the two images where p and p' = p − shift both lie inside."""
    for axis, step in enumerate(shift):
        if step:
            count = left.shape[axis] - abs(step)
            left = left.narrow(axis, max(step, 0), count)
            right = right.narrow(axis, max(-step, 0), count)
    return left, right


def _inverse(norm: Tensor) -> Tensor:
    """1/norm, and 0 where the norm is 0 (an all-black patch without bias)."""
    return torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))


def _ones(like: Tensor) -> Tensor:
    return like.new_ones((1,) * like.dim())


@dataclass(frozen=True)
class Flatten(Layer):
    """The read-out that keeps positions apart: the mean of the covariances at equal positions.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import Conv, Dense, Flatten, TangentKernel
    >>> TangentKernel([Conv(1), Flatten(), Dense()], kind="nngp")(np.ones((1, 2, 2))).tolist()
    [[1.0]]
    """

    flattens = True

    @property
    def spatial(self) -> bool:
        return True

    def visit(self, visitor: LayerVisitor, place: int) -> None:
        visitor.flatten(self, place)

    def _map(self, state: State) -> State:
        return State(state.nngp.mean((0, 1)), None if state.ntk is None else state.ntk.mean((0, 1)))

    def variance(self, state: State, notes: Notes) -> State:
        return self._map(state)

    def covariance(self, state: State, notes: Pairs) -> State:
        return self._map(state)


@dataclass(frozen=True)
class GlobalAverage(Layer):
    """The read-out that averages over positions: the mean covariance of all pairs of positions.

    A covariance pass sees one displacement and gives its sum; :class:`TangentKernel` adds the
    displacements up.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import Conv, Dense, GlobalAverage, TangentKernel
    >>> image = np.array([[[1.0, -1.0], [1.0, -1.0]]])
    >>> TangentKernel([Conv(1), GlobalAverage(), Dense()], kind="nngp")(image).tolist()
    [[0.0]]
    """

    averages = True

    @property
    def spatial(self) -> bool:
        return True

    def variance(self, state: State, notes: Notes) -> State:
        raise InputError(
            "the variance of an average over positions depends on pairs of positions; it has no "
            "pass of its own."
        )

    def covariance(self, state: State, notes: Pairs) -> State:
        return State(state.nngp.sum((0, 1)), None if state.ntk is None else state.ntk.sum((0, 1)))


@dataclass(frozen=True)
class Residual(Layer):
    """The sum of two branches with independent weights; an empty branch is the identity.

    Parameters
    ----------
    body, shortcut : tuple of Layer
        The layers of the two branches.

    Examples
    --------
    >>> from bicore.kernels import Dense, ReLU, Residual
    >>> block = Residual((ReLU(), Dense(), ReLU(), Dense()))
    >>> block.rectifiers, block.bypassed
    (2, True)
    """

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    @property
    def spatial(self) -> bool:
        return any(layer.spatial for layer in self.body + self.shortcut)

    @property
    def thinning(self) -> int:
        return stride_of(self.body)

    @property
    def rectifiers(self) -> int:
        return sum(layer.rectifiers for layer in self.body + self.shortcut)

    @property
    def uneven(self) -> bool:
        return stride_of(self.body) != stride_of(self.shortcut)

    @property
    def bypassed(self) -> bool:
        return not (self.body and self.shortcut)

    def visit(self, visitor: LayerVisitor, place: int) -> None:
        visitor.residual(self, place)

    def variance(self, state: State, notes: Notes) -> State:
        main = state.copy()
        side = state
        for layer in self.body:
            main = layer.variance(main, notes)
        for layer in self.shortcut:
            side = layer.variance(side, notes)
        return _sum(main, side)

    def covariance(self, state: State, notes: Pairs) -> State:
        main = state.copy()
        side = state
        for layer in self.body:
            main = layer.covariance(main, notes)
        for layer in self.shortcut:
            side = layer.covariance(side, notes)
        return _sum(main, side)


def stride_of(layers: Sequence[Layer]) -> int:
    """By how much the layers together thin positions out."""
    return math.prod(layer.thinning for layer in layers)


def _sum(first: State, second: State) -> State:
    tangents = [state.ntk for state in (first, second) if state.ntk is not None]
    ntk = sum(tangents[1:], tangents[0]) if tangents else None
    return State(first.nngp + second.nngp, ntk, first.shift)
