"""Any network with a flatten read-out on a GPU: a pair's maps stay in shared memory throughout.

The kernel is written for the architecture: a loop over positions a layer, all sizes known to the
compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bicore.kernels.architecture import Conv, Dense, Flatten, Layer, ReLU, Residual, State
from bicore.kernels.gpu import Argument, function, source_of
from bicore.kernels.gpu.fused_network import Network, NotCoveredError

THREADS = 128
#: Σ, Θ and the distance (see ``flat.cu``).
MAPS = 3
SIGNATURE = (
    "__device__ __forceinline__ void network(real* memory, const real* left, const real* right, "
    "real& s, real& t, real& d)"
)
#: Shared memory of a block where torch does not tell what the device allows.
SHARED_BYTES = 48 * 1024


def prepared(kernel: Network, rows: Tensor, columns: Tensor) -> Callable[[Tensor], State]:
    """A function from pairs to the state after the last layer."""
    channels, height, width = (int(size) for size in rows.shape[1:])
    writer = Writer(height, width)
    network = writer.network(kernel.layers)
    shared = MAPS * writer.slots * writer.area * rows.dtype.itemsize
    if shared > _allowed(rows.device):
        raise NotCoveredError(
            f"its maps need {shared} bytes of shared memory, and the device allows "
            f"{_allowed(rows.device)} to a block."
        )
    first = rows.contiguous()
    second = columns.contiguous()
    left = _notes(kernel, rows)
    right = _notes(kernel, columns)
    macros = {
        "DOUBLE": int(rows.dtype == torch.float64),
        "GAIN": "1.0",
        "THREADS": THREADS,
        "AREA": writer.area,
        "CHANNELS": channels,
        "POSITIONS": height * width,
        "NOTES": left.shape[1],
    }
    source = source_of("activation.cu") + source_of("flat.cu") + network
    run = function(source, "flat", macros, shared)
    many = 32 * torch.cuda.get_device_properties(rows.device).multi_processor_count

    def launch(pairs: Tensor) -> State:
        found = rows.new_empty(len(pairs), 2)
        arguments: list[Argument] = [
            first,
            second,
            left,
            right,
            pairs.contiguous(),
            len(pairs),
            found,
        ]
        run.launch(min(many, len(pairs)), THREADS, arguments)
        return State(found[:, 0], found[:, 1])

    return launch


def _allowed(device: torch.device) -> int:
    """Shared memory that a block may have, less what CUDA keeps for itself."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", SHARED_BYTES)) - 1024


def _notes(kernel: Network, images: Tensor) -> Tensor:
    """√v of every image at every position of every ReLU, one after the other."""
    notes = kernel.notes(images)
    if not notes:
        return images.new_zeros(len(images), 1)
    return torch.cat([note.reshape(-1, len(images)).T for note in notes], 1).contiguous()


class Writer:
    """Writes the passage through the layers for one architecture and image size.

    A slot is room in shared memory for the maps of a branch. Positions of the notes are counted
    along. It is a :class:`bicore.kernels.architecture.LayerVisitor` whose places are slots.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height = height
        self.width = width
        self.area = height * width  # of the largest map
        self.slots = 0
        self.note = 0
        self.free: list[int] = []
        self.flat = False
        self.lines: list[str] = []

    def network(self, layers: Sequence[Layer]) -> str:
        """The text of the device function ``network``."""
        self._all(layers, self._slot())
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"{SIGNATURE} {{\n{body}\n}}\n"

    def _slot(self) -> int:
        if self.free:
            return self.free.pop()
        self.slots += 1
        return self.slots - 1

    def _all(self, layers: Sequence[Layer], slot: int) -> None:
        for layer in layers:
            layer.visit(self, slot)

    def other(self, layer: Layer, slot: int) -> None:
        raise NotCoveredError(f"{type(layer).__name__} has no fused form.")

    def flatten(self, layer: Flatten, slot: int) -> None:
        self.lines.append(f"flatten<{self.height * self.width}>(memory, {slot}, s, t, d);")
        self.flat = True
        self.height = 1
        self.width = 1

    def _everywhere(self, slot: int) -> tuple[str, str]:
        """Template and first argument of a layer that acts on every position alone.

        After the flattening it acts on the two numbers that are left.
        """
        if self.flat:
            return "", "s, t, d"
        return f"<{self.height * self.width}>", f"memory, {slot}"

    def relu(self, layer: ReLU, slot: int) -> None:
        size, target = self._everywhere(slot)
        self.lines.append(f"rectify{size}({target}, left + {self.note}, right + {self.note});")
        self.note += self.height * self.width

    def dense(self, layer: Dense, slot: int) -> None:
        size, target = self._everywhere(slot)
        constants = _constants(layer.sigma_w**2, layer.sigma_b**2, layer.trained)
        self.lines.append(f"dense{size}({target}, {constants});")

    def conv(self, layer: Conv, slot: int) -> None:
        height, top = layer.extent(self.height)
        width, left = layer.extent(self.width)
        self.area = max(self.area, height * self.width, height * width)
        half = self._slot()
        window = f"{layer.window}, {layer.stride}"
        constants = _constants(layer.sigma_w**2 / layer.window**2, layer.sigma_b**2, layer.trained)
        self.lines += [
            f"down<{window}, {top}, {self.height}, {self.width}, {height}>(memory, {slot}, "
            f"{half});",
            f"across<{window}, {left}, {self.width}, {height}, {width}>(memory, {half}, {slot}, "
            f"{constants});",
        ]
        self.free.append(half)
        self.height = height
        self.width = width

    def residual(self, layer: Residual, slot: int) -> None:
        if self.flat:
            raise NotCoveredError("a sum of branches after the flattening has no fused form.")
        side = self._slot()
        before = (self.height, self.width)
        self.lines.append(f"copy<{self.height * self.width}>(memory, {slot}, {side});")
        self._all(layer.body, slot)
        after = (self.height, self.width)
        self.height, self.width = before
        self._all(layer.shortcut, side)
        if (self.height, self.width) != after:
            raise NotCoveredError("the two branches of a sum end with different sizes.")
        self.lines.append(f"add<{self.height * self.width}>(memory, {side}, {slot});")
        self.free.append(side)


def _constants(gain: float, bias: float, trained: bool) -> str:
    return f"(real){gain!r}, (real){bias!r}, {'true' if trained else 'false'}"
