"""CUDA C++ compiled at run time and launched on torch's stream.

The libraries that come with torch do it: no toolkit is needed.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bicore.errors import BicoreError

#: torch's library of the run-time compiler and driver, then their usual names.
_LIBRARIES = ("libcaffe2_nvrtc.so", "caffe2_nvrtc.dll")
_COMPILERS = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_DRIVERS = ("libcuda.so.1", "nvcuda.dll")
#: Number of the largest dynamic shared memory in cuFuncSetAttribute.
_MAX_SHARED = 8


#: Types of arguments of a kernel.
Argument = Tensor | int | float


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
