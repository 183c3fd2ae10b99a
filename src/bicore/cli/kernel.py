"""``bicore kernel``."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bicore.cli.options import Data, Files, Precision, option
from bicore.cli.terminal import say, say_json, starting
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.kernels.base import Kernel
    from bicore.runtime.clock import ProgressLine
    from bicore.runtime.context import Runtime

#: Rows of a tile.
ROWS = 500


@dataclass(frozen=True, kw_only=True)
class MatrixFile(Files):
    """Where the matrix goes, and its kernel."""

    out: Path = option("File of the matrix.", "K.npy", default=MISSING)
    kernel: str = option(
        "auto, ntk, nngp, cntk, resnet18, pooled-cntk, rbf, laplace, linear, polynomial.",
        "NAME",
        default="ntk",
    )


def kernel(data: Data, limits: Precision, output: MatrixFile) -> None:
    """Compute the kernel matrix of a source.

    Example: bicore kernel digits --kernel rbf --out K.npy
    """
    with starting():
        from bicore.files import replacing
        from bicore.methods.names import as_kernel
        from bicore.runtime.clock import Clock, ProgressLine
    out = output.out
    output.check(out=(".npy",))
    rows = data.open(memory=limits.memory).data
    fitted = as_kernel(output.kernel).fitted(rows.x)
    if fitted.precomputed:
        raise InputError("--kernel precomputed has nothing to compute; name a kernel.")
    runtime, clock = limits.runtime(progress=not output.quiet), Clock()
    with (
        replacing(out, overwrite=output.force) as path,
        path.open("wb") as file,
        ProgressLine(runtime.progress, clock, len(rows), "kernel") as line,
        runtime.applied(),
    ):
        _write_matrix(file, fitted, rows.x, runtime, line)
    if output.json:
        known = {"fingerprint": rows.fingerprint(), "kernel": fitted.name, "dtype": limits.dtype}
        say_json({"out": str(out), **known, "n": len(rows), "seconds": clock.seconds})
    elif not output.quiet:
        shape = f"{len(rows)} × {len(rows)} {limits.dtype}"
        say(f"written: {out} ({shape}, {fitted.name}, {clock.seconds:.1f} s)")


def _write_matrix(
    file: BinaryIO, kernel: Kernel, x: Any, runtime: Runtime, line: ProgressLine
) -> None:
    """Write the matrix in blocks of rows; it is never held, and a full disk is an error."""
    import numpy as np
    import torch

    from bicore.data import as_tensor
    from bicore.kernels.operators import Blocked, slices

    points = as_tensor(x).to(runtime.torch_dtype)
    matrix = Blocked(kernel, points, points, ROWS, runtime.torch_device)
    shape = {"descr": np.dtype(runtime.dtype).str, "fortran_order": False, "shape": matrix.shape}
    np.lib.format.write_array_header_1_0(file, shape)
    for rows in slices(len(points), ROWS):
        columns = matrix.columns(torch.arange(*rows.indices(len(points))))
        file.write(columns.T.contiguous().cpu().numpy().tobytes())
        line.update(min(rows.stop, len(points)))
