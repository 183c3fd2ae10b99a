"""A page as one HTML file: style, scripts and facts, under a policy that allows no others.

Facts travel as JSON inside the file, and plain JavaScript turns them into text and pictures. Data
never become markup: names that look like tags stay names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from bicore.files import replacing

#: Characters that could end the element with the facts, or a line of JavaScript.
UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
#: Sections of both pages.
SHARED = ("balance", "map", "classes")


def write_document(kind: str, facts: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page of some facts."""
    with replacing(path) as temporary:
        temporary.write_text(document(kind, facts), encoding="utf-8", newline="\n")
    return Path(path)


def document(kind: str, facts: Mapping[str, Any]) -> str:
    """The page of some facts; ``kind`` names the markup and the script that shows them."""
    style = _static("page.css")
    script = "".join(_static(name) for name in ("common.js", "picks.js", f"{kind}.js"))
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "facts": as_json(facts),
        **{name: _static(f"{name}.html") for name in SHARED},
    }
    # in one pass, so that placeholders inside the facts are not filled
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _static(f"{kind}.html"))


def as_json(facts: Mapping[str, Any]) -> str:
    """Facts as JSON that cannot be mistaken for markup inside an HTML element."""
    return json.dumps(facts, allow_nan=False, separators=(",", ":")).translate(UNSAFE)


def _policy(style: str, script: str) -> str:
    """Allow this style and this script only; load and send nothing."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _static(name: str) -> str:
    return (resources.files("bicore.report") / "static" / name).read_text(encoding="utf-8")
