"""Where the command keeps what nobody named a place for: never in the working directory."""

from __future__ import annotations

import os
from pathlib import Path

from bicore.errors import InputError


def records_place(asked: Path | None, name: str) -> Path:
    """The file that was asked for; in a folder that was, or in the cache, one of that name."""
    if asked is not None:
        return asked / name if asked.is_dir() else asked
    return _cache() / name


def _cache() -> Path:
    """$BICORE_CACHE, or a folder in the user's cache; made where it is not there."""
    named = os.environ.get("BICORE_CACHE")
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(users) / "bicore"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}); give --records FILE.jsonl, or set "
            "BICORE_CACHE to a folder."
        ) from None
    return folder
