"""``bicore kernel``: a Gram matrix on disk, block by block, resumable."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from bicore.cli.options import (
    EXIT_INTERRUPTED,
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
from bicore.cli.progress import bar
from bicore.data import as_tensor
from bicore.errors import InputError
from bicore.files import replacing
from bicore.kernels.base import Kernel
from bicore.runtime import Clock, Runtime, Step, wide
from bicore.selectors.names import as_kernel
from bicore.sources.opening import open_source

#: Rows of the matrix computed between two notes of progress on disk.
ROWS = 500


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
    check_output(out, force, (".npy",), "--out")
    opened = open_source(
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
        with bar("kernel", quiet) as progress, runtime.applied():
            seconds = _compute(fitted, opened.data.x, out, job, runtime, progress)
    except KeyboardInterrupt:
        print(
            f"bicore: interrupted; run the same command again to go on ({_part(out)} holds what is "
            "done).",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print(
        f"written: {out} ({len(opened.data)} × {len(opened.data)} {dtype}, {fitted.name}, "
        f"{seconds:.1f} s)"
    )


def _part(out: Path) -> Path:
    return out.with_name(f".{out.name}.part")


def _compute(
    kernel: Kernel, x: Any, out: Path, job: dict[str, Any], runtime: Runtime, progress: Any
) -> float:
    """Rows of the upper triangle a block at a time; the lower one is mirrored as they come."""
    clock = Clock()
    part = _part(out)
    note = _part(out).with_suffix(".json")
    points = as_tensor(x).to(
        runtime.torch_dtype
    )  # they stay with the host, blocks go to the device
    device = runtime.torch_device
    n = len(points)
    done = _done(part, note, job)
    mode = "r+" if done else "w+"
    matrix = np.lib.format.open_memmap(part, mode=mode, dtype=np.dtype(runtime.dtype), shape=(n, n))
    for top in range(done, n, ROWS):
        rows = points[top : top + ROWS].to(device)
        block = kernel.gram(rows)
        matrix[top : top + ROWS, top : top + ROWS] = block.cpu().numpy()
        for left in range(top + ROWS, n, ROWS):
            with wide(math.inf):
                side = kernel.evaluate(rows, points[left : left + ROWS].to(device)).cpu().numpy()
            matrix[top : top + ROWS, left : left + ROWS] = side
            matrix[left : left + ROWS, top : top + ROWS] = side.T
        matrix.flush()
        _note(note, job | {"done": min(top + ROWS, n)})
        if callable(progress):
            progress(Step(min(top + ROWS, n), n, float("nan"), clock.seconds))
    diagonal = [kernel.diag(points[top : top + ROWS].to(device)).cpu() for top in range(0, n, ROWS)]
    np.fill_diagonal(matrix, torch.cat(diagonal).numpy())
    matrix.flush()
    del matrix
    os.replace(part, out)
    note.unlink(missing_ok=True)
    return clock.seconds


def _done(part: Path, note: Path, job: dict[str, Any]) -> int:
    """Rows that an earlier run of the same job finished; anything else starts anew."""
    try:
        stored = json.loads(note.read_text())
    except (OSError, ValueError):
        return 0
    if any(stored.get(key) != value for key, value in job.items()):
        return 0
    try:
        # refuses a file shorter than its header says
        matrix = np.lib.format.open_memmap(part, mode="r")
    except (OSError, ValueError):
        print(f"bicore: {part} is damaged; the matrix is computed anew.", file=sys.stderr)
        return 0
    whole = matrix.shape == (job["n"], job["n"]) and matrix.dtype == np.dtype(job["dtype"])
    return int(stored["done"]) if whole else 0


def _note(note: Path, words: dict[str, Any]) -> None:
    with replacing(note) as beside:
        beside.write_text(json.dumps(words))
