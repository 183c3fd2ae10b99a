"""The paper's numbers."""

import json
from pathlib import Path
from typing import Any

from experiments.problems import Problem
from experiments.rows import Number

PAPER: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text())
#: Seeds behind every number of the paper.
PAPER_SEEDS = 5


def find_published(table: str, method: str, problem: Problem) -> Number | None:
    """What the paper has for a method on a problem; None where it has nothing."""
    found: Number | None = PAPER[table].get(method, {}).get(problem.name)
    return found
