"""One JSON file a run, written whole; what is there is not run again, and what another process is
running is left to it."""

from __future__ import annotations

import fcntl
import json
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bicore

FOLDER = Path(__file__).parent / "records"


class RecordError(Exception):
    """A file that no run of ours has written."""


def file_name(words: str) -> str:
    """The same words as the name of a file."""
    return re.sub(r"[^A-Za-z0-9=.+-]+", "-", words)


class Records:
    """The runs of one experiment: a file for each configuration and seed."""

    def __init__(self, experiment: str, folder: Path = FOLDER) -> None:
        self.experiment = experiment
        self.folder = folder / experiment

    def path(self, key: Mapping[str, Any]) -> Path:
        words = [
            f"{name}={value}" if not isinstance(value, str) else value
            for name, value in key.items()
        ]
        return self.folder / (file_name("--".join(words)) + ".json")

    def has(self, key: Mapping[str, Any]) -> bool:
        return self.path(key).exists()

    def write(self, key: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """``key`` is the configuration with its seed, ``result`` what came out of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {"experiment": self.experiment, **key, **result, "machine": machine()}
        path = self.path(key)
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(record, indent=1) + "\n")
        beside.replace(path)

    @contextmanager
    def claim(self, key: Mapping[str, Any]) -> Iterator[bool]:
        """Whether this process may run the configuration; the claim ends with the block, and with
        the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path(key).with_suffix(".lock").open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def all(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield json.loads(path.read_text())
            except json.JSONDecodeError as damage:
                raise RecordError(
                    f"{path} is not a whole record ({damage}); remove it, and its run is done "
                    "again."
                ) from None


def machine() -> dict[str, Any]:
    """Versions and hardware; no host name."""
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "bicore": bicore.__version__,
    }
