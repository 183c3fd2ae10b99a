"""Write the evidence pages, tables and figures of docs/ from the records:
``python -m benchmarks page``."""

from types import ModuleType
from typing import Any

from benchmarks import (
    battery_page,
    comparison_embedding,
    comparison_page,
    jobs_page,
    learning_page,
    streams_page,
    tables_page,
)
from benchmarks.battery import sets
from benchmarks.pages import DOCS, FIGURES, render
from bicore.methods import registry
from experiments import claims, comparisons, layout, paper, records
from experiments import page as reproduction

#: The generated pages of docs/, with the modules whose names their templates use.
PAGES: dict[str, tuple[ModuleType, ...]] = {
    "evidence.md": (battery_page, streams_page, reproduction),
    "reproduction.md": (claims, comparisons, reproduction),
    "unseen.md": (sets, battery_page),
    "comparison.md": (registry, comparison_page),
    "streams-evidence.md": (streams_page,),
    "speed.md": (tables_page,),
    "learning.md": (learning_page,),
    "choosing.md": (battery_page,),
    "tables/reproduction.md": (paper, layout, claims, reproduction),
    "tables/experiments.md": (records, reproduction),
    "tables/battery.md": (battery_page,),
    "tables/comparison.md": (comparison_embedding, comparison_page),
    "tables/streams.md": (streams_page,),
    "tables/benchmarks.md": (tables_page,),
    "tables/jobs.md": (jobs_page,),
    "contexts.md": (jobs_page,),
}


def run(arguments: Any) -> dict[str, Any]:
    for name, modules in PAGES.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(render(name, *modules))
    for draw in FIGURES.values():
        draw()
    return {"pages": [f"docs/{name}" for name in PAGES]}
