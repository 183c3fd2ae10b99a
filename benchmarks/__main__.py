"""``python -m benchmarks NAME``; ``page`` writes the evidence pages of docs/ from the records."""

import argparse
import importlib
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from benchmarks.common import machine, report, write_record
from benchmarks.pages import RECORDS
from bicore.errors import BicoreError

NAMES = (
    *("selection", "busy", "regulariser", "kernels", "ablation", "comparison"),
    *("comparison_embedding", "comparison_images", "baselines", "stream", "stream_moments"),
    *("moment_weights", "streams", "gpu", "pooled_regression", "pooled_whole"),
    *("strategies", "exchange", "noise", "active", "network", "beyond"),
    *("battery", "worth", "estimates", "scale", "integrations", "peers_scale", "workers"),
    *("collapse", "hard", "large", "learner", "outer_step", "unlabelled", "contexts", "text"),
    *("goals", "check", "page"),
)
#: Options: default, help, and the name that replaces a file or folder in a record's command.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "--data": (None, "Folder of data, see docs/method.md (default: $BICORE_DATA).", "DIR"),
    "--json": (False, "Print the record as JSON on standard output."),
    "--record": (False, "Keep the record under benchmarks/records."),
    "--out": (None, "Folder to write the record to.", "DIR"),
    "--device": ("cpu", "Device of networks and kernels."),
    "--seeds": (5, "Number of seeds."),
    "--repeats": (3, "Number of timed runs; the fastest counts."),
    "--pools": (None, "comparison: only write the pools to this file, for the peers.", "POOLS.npz"),
    "--picks": (None, "comparison: comma-separated files of peers' picks.", "PICKS.json,…"),
    "--rows": (None, "File of rows to continue from (default: NAME-rows.jsonl).", "ROWS.jsonl"),
    "--cache": (
        "pooled-kernel",
        "pooled_…: folder for strips of the kernel; contexts: of TabPFN; hard: of the packages.",
        "FOLDER",
    ),
    "--pool": (0, "pooled_…, scale, peers_scale, workers: largest number of rows."),
    "--protocol": ("aside", "battery, comparison_embedding: part to run."),
    "--minutes": (0.0, "comparison_…, contexts, text: start nothing after this time."),
    "--only": (None, "battery: comma-separated sets; other rows are those of the record."),
    "--methods": (None, "battery, comparison_…: comma-separated methods; goals: problems."),
    "--workers": (1, "comparison_images: number of processes that share the seeds."),
    "--sets": ("battery-sets", "battery, unlabelled: folder of its data sets.", "SETS"),
    "--processes": (2, "battery, contexts, text: number of processes; scale: number of threads."),
}


def main() -> int:
    arguments = _parser().parse_args()
    arguments.rows = arguments.rows or f"{arguments.name}-rows.jsonl"
    try:
        found = _collect(importlib.import_module(f"benchmarks.{arguments.name}").run(arguments))
    except BicoreError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    command = "python -m benchmarks " + " ".join(_hide_paths(sys.argv[1:]))
    record = {"benchmark": arguments.name, "machine": machine(), "command": command, **found}
    if arguments.record or arguments.out:
        folder = Path(arguments.out) if arguments.out else RECORDS
        write_record(record.pop("record", arguments.name), record, folder)
    if arguments.json:
        print(json.dumps(record))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    for option, (default, words, *place) in OPTIONS.items():
        if default is False:
            parser.add_argument(option, action="store_true", help=words)
        else:
            facts = {"type": str if default is None else type(default), "default": default or None}
            parser.add_argument(option, **facts, help=words, metavar=place[0] if place else None)
    return parser


def _collect(found: dict[str, Any] | Generator[Any, None, dict[str, Any] | None]) -> dict[str, Any]:
    """The fields of a record; a benchmark that yields its rows returns the other fields."""
    if isinstance(found, dict):
        return found
    rows = []
    while True:
        try:
            rows.append(next(found))
        except StopIteration as end:
            return {**(end.value or {}), "rows": rows}
        report(rows[-1])


def _hide_paths(words: list[str]) -> list[str]:
    """The command with plain names for the files and folders of this machine."""
    pairs = zip(["", *words], words, strict=False)
    shown = [[word, *OPTIONS.get(before, ())[2:]][-1] for before, word in pairs]
    return [word for word in shown if word != "--record"]


if __name__ == "__main__":
    sys.exit(main())
