"""Print constraints at the lowest versions that pyproject.toml allows.

python tests/lowest.py > lowest.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

#: Extras whose packages are read, drawn or computed with; tools of development have no lowest.
EXTRAS = ("tables", "images", "pictures")


def lowest(project: dict) -> list[str]:
    """``name==version`` for every bound ``name>=version``."""
    wanted = [*project["dependencies"]]
    wanted += [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    found = [re.fullmatch(r"([\w-]+)>=([\w.]+)", one) for one in wanted]
    missed = [one for one, bound in zip(wanted, found, strict=True) if bound is None]
    if missed:
        raise SystemExit(f"pyproject.toml: {missed} have no lower bound of the form name>=version")
    return [f"{bound[1]}=={bound[2]}" for bound in found if bound]


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "pyproject.toml"
    print("\n".join(lowest(tomllib.loads(path.read_text())["project"])))
