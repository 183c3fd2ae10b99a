"""``bicore kernel``: what may be asked for, and the order of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bicore.cli.options import (
    Decimal,
    Device,
    Drop,
    DropMissingTarget,
    Features,
    Folder,
    Force,
    KernelName,
    Labels,
    Limit,
    Precision,
    Quiet,
    Scale,
    SourceWord,
    Target,
    Threads,
    check_output,
)
from bicore.cli.progress import bar, watched
from bicore.cli.starting import EXIT_INTERRUPTED, starting
from bicore.cli.telling import say, tell
from bicore.errors import InputError


def kernel(
    source: SourceWord,
    out: Annotated[Path, typer.Option(metavar="K.npy", help="Where the matrix goes.")],
    kernel: KernelName = "ntk",
    target: Target = None,
    labels: Labels = None,
    features: Features = None,
    drop: Drop = None,
    drop_missing_target: DropMissingTarget = False,
    decimal: Decimal = None,
    data: Folder = None,
    limit: Limit = None,
    scale: Scale = None,
    device: Device = "auto",
    dtype: Precision = "float64",
    threads: Threads = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compute the kernel matrix of a source; run it again to go on where it stopped.

    Example: bicore kernel digits --kernel rbf --out K.npy
    """
    with starting():
        from bicore.cli.kernel_file import compute, held, part_of
        from bicore.runtime import Runtime
        from bicore.selectors.names import as_kernel
        from bicore.sources.opening import open_source
    check_output(out, force, (".npy",), "--out")
    opened = watched(open_source, quiet)(
        source,
        target=target,
        labels=labels,
        folder=data,
        scale=scale,
        limit=limit,
        features=features,
        drop=drop,
        drop_missing_target=drop_missing_target,
        decimal=decimal,
    )
    runtime = Runtime(device, dtype, None, threads)
    fitted = as_kernel(kernel).fitted(opened.data.x)
    if fitted.precomputed:
        raise InputError("--kernel precomputed has nothing to compute; name a kernel.")
    job = {
        "fingerprint": opened.data.fingerprint(),
        "kernel": fitted.name,
        "dtype": dtype,
        "n": len(opened.data),
    }
    try:
        with held(out), bar("kernel", quiet) as progress, runtime.applied():
            # another process may have finished it since
            check_output(out, force, (".npy",), "--out")
            seconds = compute(fitted, opened.data.x, out, job, runtime, progress)
    except KeyboardInterrupt:
        tell(
            f"bicore: interrupted; run the same command again to go on ({part_of(out)} holds what "
            "is done)."
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    say(
        f"written: {out} ({len(opened.data)} × {len(opened.data)} {dtype}, {fitted.name}, "
        f"{seconds:.1f} s)"
    )
