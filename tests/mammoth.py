"""Runs models of Mammoth with our buffer on digits: ``python -m tests.mammoth FOLDER MODEL …``.

Mammoth is no package: FOLDER is a checkout of it, whose requirements are installed, and
open_clip_torch and six.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from bicore.integrations.mammoth import Buffer
from tests.hosts import torchvision_or_skip

#: Parameters of the models that have any.
OPTIONS = {
    "der": "--alpha 0.5",
    "derpp": "--alpha 0.5 --beta 0.5",
    "fdr": "--alpha 0.5",
    "er_ace": "",
}
SHARED = "--dataset seq-mnist --buffer_size 50 --minibatch_size 10 --lr 0.03 --n_epochs 1"
SHARED += " --batch_size 10 --num_workers 0 --non_verbose 1 --seed 0"


def write_digits(folder: Path) -> None:
    """Write digits as files of MNIST: 1,000 rows to train on, and the others."""
    digits = load_digits()
    large = 15 * np.kron(digits.images, np.ones((3, 3)))
    images = np.pad(large, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    for name, rows in (("train", slice(0, 1000)), ("t10k", slice(1000, None))):
        x, y = images[rows], digits.target[rows].astype(np.uint8)
        for kind in ("MyMNIST", "MNIST"):  # Mammoth's data set, and torchvision's
            raw = folder / "MNIST" / kind / "raw"
            raw.mkdir(parents=True, exist_ok=True)
            head = struct.pack(">IIII", 2051, len(x), 28, 28)
            (raw / f"{name}-images-idx3-ubyte").write_bytes(head + x.tobytes())
            head = struct.pack(">II", 2049, len(y))
            (raw / f"{name}-labels-idx1-ubyte").write_bytes(head + y.tobytes())


def run(main: object, model: str, folder: str) -> float:
    """Train a model on five tasks; its accuracy on all classes, in percent."""
    words = f"--model {model} --base_path {folder}/ {SHARED} {OPTIONS.get(model, '')}"
    sys.argv = ["main.py", *words.split()]
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        main.main()  # type: ignore[attr-defined]
    return float(re.findall(r"for 5 task\(s\):.*?\[Class-IL\]: ([\d.]+)", told.getvalue())[-1])


def main(checkout: str, *models: str) -> None:
    """Print the accuracy of each model."""
    torchvision_or_skip()
    sys.path.insert(0, checkout)
    import utils.buffer

    utils.buffer.Buffer = Buffer  # before the models import it
    import main as host

    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder))
        for model in models:
            print(model, run(host, model, folder), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
