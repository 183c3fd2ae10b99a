"""The long description of the package: README with links that work away from the repository.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
#: The entry of [project.urls] below which files of the repository can be read, once there is one.
BASE = "Source"
#: A picture or a link whose target is neither an address nor a place on the page.
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def description(readme: str, base: str | None) -> str:
    """README with absolute links below the base; without one, with their words in their place."""
    if base:
        return RELATIVE.sub(rf"\1[\2]({base.rstrip('/')}/\3)", readme)
    return RELATIVE.sub(lambda found: f"*{found[2]}*" if found[1] else found[2], readme)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    setup(
        long_description=description(
            (ROOT / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get(BASE)
        ),
        long_description_content_type="text/markdown",
    )
