"""``bicore kernel``."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

import typer

from bicore.cli.options import Data, Files, Precision, check_output, option
from bicore.cli.terminal import EXIT_INTERRUPTED, bar, say, say_json, starting, tell
from bicore.errors import InputError


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
    """Compute the kernel matrix of a source; run it again to continue after an interrupt.

    Example: bicore kernel digits --kernel rbf --out K.npy
    """
    with starting():
        from bicore.cli.kernel_matrix import compute, lock, part_of
        from bicore.methods.names import as_kernel
    out = output.out
    check_output(out, output.force, (".npy",), "--out")
    source = data.open(output.quiet, memory=limits.memory)
    rows = source.data
    fitted = as_kernel(output.kernel).fitted(rows.x)
    if fitted.precomputed:
        raise InputError("--kernel precomputed has nothing to compute; name a kernel.")
    job = {
        "fingerprint": rows.fingerprint(),
        "kernel": fitted.name,
        "dtype": limits.dtype,
        "n": len(rows),
    }
    runtime = limits.runtime()
    try:
        with lock(out), bar("kernel", output.quiet) as progress, runtime.applied():
            # another process may have finished it since
            check_output(out, output.force, (".npy",), "--out")
            seconds = compute(fitted, rows.x, out, job, runtime, progress)
    except KeyboardInterrupt:
        tell(f"bicore: interrupted; the same command continues ({part_of(out)} holds the rest).")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if output.json:
        say_json({"out": str(out), **job, "seconds": seconds})
    elif not output.quiet:
        shape = f"{len(rows)} × {len(rows)} {limits.dtype}"
        say(f"written: {out} ({shape}, {fitted.name}, {seconds:.1f} s)")
