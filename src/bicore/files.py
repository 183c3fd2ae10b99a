"""Files that are either the old one or the new one, never something between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside ``path`` to write to.

    It is synced and renamed when the block ends well, and removed when it does not.
    """
    target = Path(path)
    beside = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield beside
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
