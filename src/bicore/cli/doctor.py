"""``bicore doctor``."""

from __future__ import annotations

import importlib.util
import os
import platform

from bicore._version import __version__
from bicore.cli.starting import starting

NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "typer", "rich")
OPTIONAL = {
    "pyarrow": "tables",
    "pillow": "image folders",
    "matplotlib": "pictures",
    "pandas": "frames as input",
}


def doctor() -> None:
    """Versions, devices, memory, and what is missing.

    Example: bicore doctor
    """
    with starting():
        import torch

        from bicore.runtime import free_bytes, human_bytes
    print(
        f"bicore {__version__}, Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}"
    )
    for name in NEEDED:
        print(f"  {name:13s} {_version(name) or 'MISSING: pip install ' + name}")
    for name, use in OPTIONAL.items():
        print(f"  {name:13s} {_version(name) or f'not installed (for {use}): pip install {name}'}")
    memory = human_bytes(free_bytes(torch.device("cpu")))
    print(
        f"  processor     {os.cpu_count()} cores, torch uses {torch.get_num_threads()}; {memory} "
        "of memory free"
    )
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            place = torch.device("cuda", index)
            print(
                f"  GPU {index}         {torch.cuda.get_device_name(place)}, "
                f"{human_bytes(free_bytes(place))} free"
            )
    else:
        print("  GPU           none that torch can use; everything runs on the processor")
    print(
        "  triton        "
        f"{'yes' if importlib.util.find_spec('triton') else 'no (only needed with a GPU)'}"
    )
    folder = os.environ.get("BICORE_DATA")
    print(f"  BICORE_DATA   {folder or 'not set (only mnist and cifar10 need it)'}")


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
