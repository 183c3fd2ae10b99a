"""A Gram matrix on disk, block by block, resumable."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.data import as_tensor
from bicore.files import replacing
from bicore.kernels.base import Kernel
from bicore.runtime import Clock, Runtime, Step, wide

#: Rows of the matrix computed between two notes of progress on disk.
ROWS = 500


def part_of(out: Path) -> Path:
    return out.with_name(f".{out.name}.part")


def compute(
    kernel: Kernel, x: Any, out: Path, job: dict[str, Any], runtime: Runtime, progress: Any
) -> float:
    """Rows of the upper triangle a block at a time; the lower one is mirrored as they come."""
    clock = Clock()
    part = part_of(out)
    note = part_of(out).with_suffix(".json")
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
