"""``bicore doctor``."""

from __future__ import annotations

import os
import platform

from bicore._version import __version__
from bicore.cli.starting import starting
from bicore.cli.telling import say

#: What the package imports, and by which extra the rest of it comes: those of pyproject.toml.
NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "threadpoolctl", "typer")
OPTIONAL = {
    "pyarrow": "Parquet files",
    "pillow": "image folders",
    "matplotlib": "pictures",
    "dask": "shards on a cluster",
}


def doctor() -> None:
    """Versions, devices, memory, and what is missing.

    Example: bicore doctor
    """
    with starting():
        import torch

        from bicore.runtime import free_bytes, human_bytes
    say(
        f"bicore {__version__}, Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}"
    )
    for name in NEEDED:
        say(f"  {name:13s} {_version(name) or 'MISSING: pip install ' + name}")
    for name, use in OPTIONAL.items():
        say(f"  {name:13s} {_version(name) or f'not installed (for {use}): pip install {name}'}")
    memory = human_bytes(free_bytes(torch.device("cpu")))
    say(
        f"  processor     {os.cpu_count()} cores, torch uses {torch.get_num_threads()}; {memory} "
        "of memory free"
    )
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            place = torch.device("cuda", index)
            say(
                f"  GPU {index}         {torch.cuda.get_device_name(place)}, "
                f"{human_bytes(free_bytes(place))} free"
            )
    else:
        say("  GPU           none that torch can use; everything runs on the processor")
    folder = os.environ.get("BICORE_DATA")
    say(f"  BICORE_DATA   {folder or 'not set (only mnist and cifar10 need it)'}")
    cache = os.environ.get("BICORE_CACHE")
    say(f"  BICORE_CACHE  {cache or 'not set (records of compare go to the user cache)'}")


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
