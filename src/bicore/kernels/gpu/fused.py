"""Network kernels on a GPU: the whole network for a pair of images in one CUDA kernel.

Its covariances never leave the chip. Two kernels cover most networks:

* ``flat.cu``: any network of this package with a flatten read-out whose maps fit the shared memory
  of a multiprocessor. It is generated for the architecture: a loop over positions for each layer,
  all sizes known to the compiler.
* ``pooled.cu``: stacks of 3×3 convolutions of stride 1 with a pooled read-out on images of at most
  32×32. One warp works on a class of displacements.

Everything else falls back, with a warning, to the layer-by-layer arithmetic of
:mod:`bicore.kernels.tangent` on the same device. The kernels are compiled at run time, by the
libraries that come with torch: no toolkit is needed.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from bicore.errors import BicoreError
from bicore.kernels.architecture import (
    Conv,
    Dense,
    Flatten,
    GlobalAverage,
    Layer,
    ReLU,
    Residual,
    State,
    Weighted,
)

#: torch's library of the run-time compiler and driver, then their usual names.
_LIBRARIES = ("libcaffe2_nvrtc.so", "caffe2_nvrtc.dll")
_COMPILERS = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_DRIVERS = ("libcuda.so.1", "nvcuda.dll")
#: Number of the largest dynamic shared memory in cuFuncSetAttribute.
_MAX_SHARED = 8


#: Types of arguments of a kernel.
Argument = Tensor | int | float
#: Pairs per launch: short enough to respond to an interrupt; fewer for pooled read-outs, which cost
#: more per pair.
PAIRS, POOLED_PAIRS = 1 << 20, 1 << 16
#: Images per launch for the diagonal.
DIAGONAL_IMAGES = 1000
#: Threads per block of the flat kernel.
THREADS = 128
#: Maps per branch of the flat kernel: Σ, Θ and the distance (see ``flat.cu``).
MAPS = 3
SIGNATURE = (
    "__device__ __forceinline__ void network(real* memory, const real* left, const real* right, "
    "real& s, real& t, real& d)"
)
#: Shared memory per block if torch does not report the limit of the device.
SHARED_BYTES = 48 * 1024
#: The pooled kernel: a warp has one column per lane; rows are in registers.
LARGEST_SIDE = 32
#: Warps per block and blocks per multiprocessor: few, since a warp needs many registers (measured).
WARPS, RESIDENT = 4, 2
#: Computes the state after the last layer for pairs of images.
Launch = Callable[[Tensor], State]


class CompilerError(BicoreError):
    """The run-time compiler is missing, or rejected the source."""


@dataclass(frozen=True, eq=False)
class Function:
    """A compiled kernel, built by :func:`function`."""

    handle: ctypes.c_void_p
    shared: int

    def launch(self, blocks: int, threads: int, arguments: Sequence[Argument]) -> None:
        """Enqueue on torch's current stream."""
        values = [_argument(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = _driver().cuLaunchKernel(
            self.handle, blocks, 1, 1, threads, 1, 1, self.shared, stream, pointers, None
        )
        _check(code, f"launch {blocks} blocks of {threads} threads")


def function(source: str, name: str, macros: Mapping[str, Any], shared: int = 0) -> Function:
    """Compile a kernel of a source for the current device.

    That happens once a process, device and set of macros.
    """
    given = tuple(f"-D{key}={value}" for key, value in macros.items())
    return _compile(source, name, given, torch.cuda.current_device(), shared)


@functools.cache
def source_of(file: str) -> str:
    """Return the text of a file in this folder."""
    return Path(__file__).with_name(file).read_text()


@functools.cache
def _compile(
    source: str, name: str, options: tuple[str, ...], device: int, shared: int
) -> Function:
    major, minor = torch.cuda.get_device_capability(device)
    binary = _binary(source, (f"--gpu-architecture=sm_{major}{minor}", "--std=c++17", *options))
    torch.zeros(1, device=device)  # torch's context of this device becomes current
    driver = _driver()
    module = ctypes.c_void_p()
    handle = ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), binary), "load a compiled kernel")
    code = driver.cuModuleGetFunction(ctypes.byref(handle), module, name.encode())
    _check(code, f"find {name} in a compiled kernel")
    if shared:
        code = driver.cuFuncSetAttribute(handle, _MAX_SHARED, shared)
        _check(code, f"reserve {shared} bytes of shared memory")
    return Function(handle, shared)


def _binary(source: str, options: Sequence[str]) -> bytes:
    """Return the machine code of a source, or raise an error with the compiler's message."""
    compiler = _library("nvrtcCompileProgram", _COMPILERS)
    program = ctypes.c_void_p()
    compiler.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"bicore.cu", 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        code = compiler.nvrtcCompileProgram(program, len(options), given)
        if code:
            said = _fetch(compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog, program)
            log = said.decode(errors="replace")
            raise CompilerError(f"a kernel did not compile (code {code}):\n{log}")
        return _fetch(compiler.nvrtcGetCUBINSize, compiler.nvrtcGetCUBIN, program)
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(size_of: Any, fetch: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    fetch(program, buffer)
    return buffer.raw


def _driver() -> ctypes.CDLL:
    return _library("cuLaunchKernel", _DRIVERS)


@functools.cache
def _library(symbol: str, names: tuple[str, ...]) -> ctypes.CDLL:
    """Return the first library with the symbol: torch's own, then by name."""
    folder = Path(torch.__file__).parent / "lib"
    for name in (*(str(folder / name) for name in _LIBRARIES), *names):
        try:
            library = ctypes.CDLL(name)
            getattr(library, symbol)
        except (OSError, AttributeError):
            continue
        return library
    raise CompilerError(f"no library with {symbol} was found; install a CUDA build of torch.")


def _argument(value: Argument) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)


def _check(code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        why = (text.value or b"unknown").decode()
        raise CompilerError(f"the GPU's driver could not {what}: {why} (code {code}).")


class Network(Protocol):
    """A network kernel: :class:`bicore.kernels.TangentKernel`."""

    @property
    def layers(self) -> Sequence[Layer]: ...
    @property
    def name(self) -> str: ...
    @property
    def pooled(self) -> bool: ...
    def norms(self, a: Tensor) -> list[Tensor]: ...
    def kernel_values(self, state: State) -> Tensor: ...


class NotCoveredError(BicoreError):
    """The fused kernels do not support this network or image size; the message gives the reason."""


def evaluate_fused(
    kernel: Network, a: Tensor, b: Tensor | None, diagonal: bool = False
) -> Tensor | None:
    """Return k(a, b), the Gram matrix of ``a`` if b is None, or its diagonal; None if
    unsupported."""
    try:
        with torch.cuda.device(a.device):
            if diagonal:
                return _diagonal(kernel, a)
            result = _fill(kernel, a, b)
            if b is None and kernel.pooled:
                result.diagonal().copy_(_diagonal(kernel, a))
            return result
    except (NotCoveredError, CompilerError) as reason:
        words = f"{kernel.name} runs layer by layer on the GPU, which is slower: {reason}"
        warnings.warn(words, stacklevel=4)
        return None


def _diagonal(kernel: Network, a: Tensor) -> Tensor:
    """Return the diagonal in float64, because float32 loses the angle of an image with itself."""
    found = []
    for part in torch.split(_images(a), DIAGONAL_IMAGES):
        index = torch.arange(len(part), device=a.device, dtype=torch.int32)[:, None].repeat(1, 2)
        exact = part.double()
        found.append(kernel.kernel_values(_prepare(kernel, exact, exact)(index)).to(a))
    return torch.cat(found)


def _prepare(kernel: Network, rows: Tensor, columns: Tensor) -> Launch:
    return (_prepare_pooled if kernel.pooled else _prepare_flat)(kernel, rows, columns)


def _images(a: Tensor) -> Tensor:
    return a[:, None] if a.dim() == 3 else a


def _fill(kernel: Network, a: Tensor, b: Tensor | None) -> Tensor:
    """Compute all entries, or the upper triangle and its mirror image, one launch at a time."""
    launch = _prepare(kernel, _images(a), _images(a if b is None else b))
    columns = len(a) if b is None else len(b)
    height = max(1, (POOLED_PAIRS if kernel.pooled else PAIRS) // columns)
    result = a.new_empty(len(a), columns)
    for top in range(0, len(a), height):
        i = torch.arange(top, min(top + height, len(a)), device=a.device)
        j = torch.arange(top if b is None else 0, columns, device=a.device)
        pairs = torch.cartesian_prod(i, j)
        if b is None:
            pairs = pairs[pairs[:, 1] >= pairs[:, 0]]
        values = kernel.kernel_values(launch(pairs.int())).to(a.dtype)
        result[pairs[:, 0], pairs[:, 1]] = values
        if b is None:
            result[pairs[:, 1], pairs[:, 0]] = values
    return result


def _prepare_flat(kernel: Network, rows: Tensor, columns: Tensor) -> Launch:
    channels, height, width = (int(size) for size in rows.shape[1:])
    writer = Writer(height, width)
    network = writer.network(kernel.layers)
    shared = MAPS * writer.slots * writer.area * rows.dtype.itemsize
    properties = torch.cuda.get_device_properties(rows.device)
    # CUDA reserves some shared memory.
    most = int(getattr(properties, "shared_memory_per_block_optin", SHARED_BYTES)) - 1024
    if shared > most:
        raise NotCoveredError(f"the feature maps need {shared} bytes of shared memory of {most}.")
    first, second = rows.contiguous(), columns.contiguous()
    left, right = (_flat_norms(kernel, images) for images in (rows, columns))
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
    many = 32 * properties.multi_processor_count

    def launch(pairs: Tensor) -> State:
        found = rows.new_empty(len(pairs), 2)
        pairs = pairs.contiguous()
        arguments: list[Argument] = [first, second, left, right, pairs, len(pairs), found]
        run.launch(min(many, len(pairs)), THREADS, arguments)
        return State(found[:, 0], found[:, 1])

    return launch


def _flat_norms(kernel: Network, images: Tensor) -> Tensor:
    """Return √v of every image at every position of every ReLU, consecutively."""
    norms = kernel.norms(images)
    if not norms:
        return images.new_zeros(len(images), 1)
    return torch.cat([norm.reshape(-1, len(images)).T for norm in norms], 1).contiguous()


class Writer:
    """Generates the device function of one architecture and image size.

    A slot is room in shared memory for the maps of a branch. ``norm`` counts the positions of the
    norms.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height = height
        self.width = width
        self.area = height * width  # of the largest map
        self.slots = 0
        self.norm = 0
        self.free: list[int] = []
        self.flat = False
        self.lines: list[str] = []

    def network(self, layers: Sequence[Layer]) -> str:
        """Return the source of the device function ``network``."""
        self._write(layers, self._slot())
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"{SIGNATURE} {{\n{body}\n}}\n"

    def _slot(self) -> int:
        if self.free:
            return self.free.pop()
        self.slots += 1
        return self.slots - 1

    def _write(self, layers: Sequence[Layer], slot: int) -> None:
        for layer in layers:
            positions = self.height * self.width
            # After flattening, a layer acts on the two remaining numbers.
            size = "" if self.flat else f"<{positions}>"
            target = "s, t, d" if self.flat else f"memory, {slot}"
            match layer:
                case ReLU():
                    norms = f"left + {self.norm}, right + {self.norm}"
                    self.lines.append(f"rectify{size}({target}, {norms});")
                    self.norm += positions
                case Dense():
                    self.lines.append(f"dense{size}({target}, {_constants(layer)});")
                case Flatten():
                    self.lines.append(f"flatten{size}({target}, s, t, d);")
                    self.flat, self.height, self.width = True, 1, 1
                case Conv():
                    self._write_conv(layer, slot)
                case Residual() if not self.flat:
                    self._write_residual(layer, slot)
                case _:
                    raise NotCoveredError(f"{type(layer).__name__} has no fused form here.")

    def _write_conv(self, layer: Conv, slot: int) -> None:
        height, top = layer.extent(self.height)
        width, left = layer.extent(self.width)
        self.area = max(self.area, height * self.width, height * width)
        half = self._slot()
        window = f"{layer.window}, {layer.stride}"
        down = f"<{window}, {top}, {self.height}, {self.width}, {height}>"
        across = f"<{window}, {left}, {self.width}, {height}, {width}>"
        constants = _constants(layer, layer.window**2)
        self.lines.append(f"down{down}(memory, {slot}, {half});")
        self.lines.append(f"across{across}(memory, {half}, {slot}, {constants});")
        self.free.append(half)
        self.height, self.width = height, width

    def _write_residual(self, layer: Residual, slot: int) -> None:
        side = self._slot()
        before = (self.height, self.width)
        self.lines.append(f"copy<{self.height * self.width}>(memory, {slot}, {side});")
        self._write(layer.body, slot)
        after = (self.height, self.width)
        self.height, self.width = before
        self._write(layer.shortcut, side)
        if (self.height, self.width) != after:
            raise NotCoveredError("the two branches of a sum end with different sizes.")
        self.lines.append(f"add<{self.height * self.width}>(memory, {side}, {slot});")
        self.free.append(side)


def _constants(layer: Weighted, divisor: int = 1) -> str:
    gain, bias = layer.sigma_w**2 / divisor, layer.sigma_b**2
    return f"(real){gain!r}, (real){bias!r}, {'true' if layer.trained else 'false'}"


def _prepare_pooled(kernel: Network, rows: Tensor, columns: Tensor) -> Launch:
    """Prepare the stack in units of its own.

    A map is kept as S̃ with S = τ S̃. Convolution and activation then need no factor but the gain g
    on κ0: S̃ ← Σ_window s̃ s̃' κ1 + b/τ, with s̃ = s √(g/τ), and τ_{l+1} = τ_l · (σ_w²/9)/(2g).
    """
    convolutions = _stack(kernel.layers)
    channels, height, width = rows.shape[1:]
    if max(height, width) > LARGEST_SIDE:
        raise NotCoveredError(f"images of {height}×{width} are larger than {LARGEST_SIDE} a side.")
    factors = [conv.sigma_w**2 / 9 for conv in convolutions]
    gain = factors[1] / 2 if len(factors) > 1 else 1.0
    units = [factors[0] / int(channels)]
    for factor in factors[1:]:
        units.append(units[-1] * factor / (2 * gain))
    shares = [conv.sigma_b**2 / unit for conv, unit in zip(convolutions, units, strict=True)]
    left, right = (_pooled_norms(kernel, images, units, gain) for images in (rows, columns))
    right = torch.cat([right, right], 2).contiguous()
    second = torch.cat([columns, columns], 2).contiguous()
    first = rows.contiguous()
    macros = {
        "WIDTH": width,
        "HEIGHT": height,
        "CHANNELS": channels,
        "LAYERS": len(convolutions),
        "GAIN": repr(gain),
        "BIAS": int(any(shares)),
        "DOUBLE": int(rows.dtype == torch.float64),
        "WARPS": WARPS,
        "RESIDENT": RESIDENT,
    }
    run = function(source_of("activation.cu") + source_of("pooled.cu"), "pooled", macros)
    biases = rows.new_tensor(shares)
    # κ1 and κ0 of the last activation include the gain; the caller halves them.
    scale = units[-1] / (2 * gain) / (height * width) ** 2
    trained = int(convolutions[0].trained)

    def launch(pairs: Tensor) -> State:
        sums = torch.empty(len(pairs), 2, dtype=torch.float64, device=rows.device)
        arguments: list[Argument] = [first, second, left, right, pairs, biases, trained, sums]
        run.launch(len(pairs), 32 * WARPS, arguments)
        state = State(sums[:, 0] * scale, sums[:, 1] * scale)
        for layer in kernel.layers[2 * len(convolutions) + 1 :]:
            state = layer.covariance(state, iter(()))
        return state

    return launch


def _stack(layers: Sequence[Layer]) -> list[Conv]:
    """Return the convolutions of a network that is a stack of them, or raise an error."""
    place = [isinstance(layer, GlobalAverage) for layer in layers].index(True)
    body = layers[:place]
    found = [layer for layer in body[::2] if isinstance(layer, Conv)]
    relus = [layer for layer in body[1::2] if isinstance(layer, ReLU)]
    if not found or len(found) != len(relus) or len(found) + len(relus) != len(body):
        raise NotCoveredError("the fused pooled kernel needs convolutions followed by a ReLU each.")
    for conv in found:
        if (conv.window, conv.stride) != (3, 1) or conv.padding not in ("same", 1):
            raise NotCoveredError(
                "the fused pooled kernel needs 3×3 convolutions of stride 1 that keep the size."
            )
        if not conv.sigma_w:
            raise NotCoveredError("a convolution with sigma_w=0 has no unit to count in.")
    if not all(conv.trained for conv in found[1:]):
        raise NotCoveredError("only the first convolution of a pooled kernel may be untrained.")
    return found


def _pooled_norms(kernel: Network, images: Tensor, units: Sequence[float], gain: float) -> Tensor:
    """Return √τ/s and s √(g/τ) of every image, ReLU and position: (n, layers, height, width, 2)."""
    # s with shape (n, layer, height, width).
    norms = torch.stack(kernel.norms(images), 0).permute(3, 0, 1, 2)
    scales = images.new_tensor(units)[:, None, None]
    inverse = torch.where(norms > 0, scales.sqrt() / norms, torch.zeros_like(norms))
    return torch.stack([inverse, norms * (gain / scales).sqrt()], -1).contiguous()
