"""docs/reproduction.md: what the paper claims, what we get, and how to run it again; made from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.catalogue import EXPERIMENTS
from experiments.records import FOLDER
from experiments.tables import gathered, rows, table

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
INTRODUCTION = """# The paper, reproduced

Every number here comes from a record under `experiments/records`, one file a run; `python -m experiments page` writes the page.
Percent of test points, mean over tasks, mean ± standard deviation (over n, as in the paper) over seeds 0 … 4, which were fixed in
advance; all runs are kept. **The number we stand by** is the one whose β was chosen on held-out training points; the next column
chooses β on the test set, as the paper did. The difference is ours (held-out) minus the paper's, with Welch's 95% interval.
"""


def text(folder: Path = FOLDER) -> str | None:
    """The page, or None while there is no record."""
    parts = []
    for name, experiment in EXPERIMENTS.items():
        records = gathered(name, folder)
        if not records:
            continue
        hardware = sorted({record["machine"]["gpu"] or record["machine"]["processor"] for record in records})
        minutes = sum(record["seconds"] for record in records) / 60
        command = f"`python -m experiments run {name} --data DIR`"
        parts.append(f"## {experiment.title}\n\n{command}: {len(records)} runs, {minutes:.1f} minutes on {', '.join(hardware)}.\n")
        parts.append(table(name, records))
        if name not in ("runtime", "picks"):
            parts.append(_verdicts(name, records))
    return "\n".join([INTRODUCTION, *parts]) if parts else None


def _verdicts(name: str, records: list[dict[str, Any]]) -> str:
    """Where ours falls short of the paper by more than its standard deviation."""
    short = [
        f"{row.method} ({row.dataset}, memory {row.memory})"
        for row in rows(name, records)
        if row.paper is not None and row.mean < row.paper["mean"] - row.paper["std"]
    ]
    return f"Short of the paper by more than its standard deviation: {'; '.join(short) if short else 'none'}.\n"
