"""How much memory a call may take: sizes as people write them, and what is free."""

from __future__ import annotations

import math
import os
import re

import torch

from bicore.errors import InputError

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


def parse_bytes(value: int | float | str | None) -> int | None:
    """A size as people write it, in bytes.

    Parameters
    ----------
    value : int, float, str or None
        Bytes, or a string such as ``"4GB"``; None stays None.

    Returns
    -------
    int or None
        Bytes.

    Raises
    ------
    InputError
        Where it is no size, or not a positive one.

    Examples
    --------
    >>> parse_bytes("4GB"), parse_bytes(2_000_000), parse_bytes(None)
    (4000000000, 2000000, None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)i?B?\s*", value, flags=re.IGNORECASE)
        if match is None:
            raise InputError(
                f"memory={value!r} is not a size; write bytes as a number, or for example '4GB'."
            )
        size = float(match[1]) * _UNITS[match[2].upper()]
    else:
        size = float(value)
    if not (math.isfinite(size) and size > 0):
        raise InputError(
            f"memory={value!r} is not a positive size; write bytes as a number, or for example "
            "'4GB'."
        )
    return int(size)


def free_bytes(device: torch.device) -> int:
    """Free memory of a device.

    On Linux it is the kernel's own estimate, bounded by the control group's limit.

    Parameters
    ----------
    device : torch.device
        A GPU, or the CPU for the machine's memory.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> free_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [size for size in (_meminfo_available(), _control_group_free()) if size is not None]
    if known:
        return min(known)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _meminfo_available() -> int | None:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _control_group_free() -> int | None:
    try:
        with (
            open("/sys/fs/cgroup/memory.max") as limit,
            open("/sys/fs/cgroup/memory.current") as used,
        ):
            text = limit.read().strip()
            return None if text == "max" else max(int(text) - int(used.read()), 0)
    except (OSError, ValueError):
        return None


def human_bytes(size: float) -> str:
    """A size as people read it.

    Parameters
    ----------
    size : float
        Bytes.

    Returns
    -------
    str
        Three digits and a unit.

    Examples
    --------
    >>> human_bytes(1234567890)
    '1.23 GB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
