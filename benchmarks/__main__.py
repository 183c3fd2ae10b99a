"""``python -m benchmarks NAME``; ``page`` writes docs/benchmarks.md from the records."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from bicore.errors import BicoreError

NAMES = (
    "selection",
    "busy",
    "regulariser",
    "memory",
    "kernels",
    "ablation",
    "comparison",
    "comparison_embedding",
    "comparison_images",
    "rivals",
    "stream",
    "stream_moments",
    "moment_weights",
    "streams",
    "imbalanced",
    "gpu",
    "pooled_regression",
    "pooled_whole",
    "precision",
    "strategies",
    "exchange",
    "noise",
    "automatic",
    "active",
    "network",
    "beyond",
    "training",
    "limits",
    "battery",
    "worth",
    "estimates",
    "scale",
    "doors",
    "peers_scale",
    "embedding",
    "workers",
    "page",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument(
        "--data", help="folder with MNIST in torchvision's layout (or set BICORE_DATA)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the record as JSON on standard output"
    )
    parser.add_argument(
        "--record", action="store_true", help="keep the record under benchmarks/records"
    )
    parser.add_argument("--out", help="write the record to this folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--skip-recipe", action="store_true", help="selection: leave the slow baseline out"
    )
    parser.add_argument(
        "--pools", help="comparison: only write the pools to this file, for the peers"
    )
    parser.add_argument("--picks", help="comparison: files of peers' picks, separated by commas")
    parser.add_argument(
        "--rows",
        help="comparison…, pooled…, precision, streams: rows as they come; a rerun goes on",
    )
    parser.add_argument(
        "--cache",
        default="pooled-kernel",
        help="pooled_regression, pooled_whole: folder for strips of the kernel",
    )
    parser.add_argument(
        "--pool",
        type=int,
        help="pooled_regression: the largest pool; pooled_whole: so many images; scale: the most "
        "rows",
    )
    parser.add_argument(
        "--protocol", default="aside", help="battery, comparison_embedding, precision: what is run"
    )
    parser.add_argument(
        "--methods", help="comparison_embedding, comparison_images: these, separated by commas"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="comparison_embedding, comparison_images: begin nothing more after so long",
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="comparison_images: processes that share the seeds"
    )
    parser.add_argument("--sets", default="battery-sets", help="battery: folder of its data sets")
    parser.add_argument(
        "--processes", type=int, default=2, help="battery: how many at a time; scale: threads"
    )
    arguments = parser.parse_args()
    arguments.rows = arguments.rows or f"{arguments.name}-rows.jsonl"
    from pathlib import Path

    from benchmarks.common import RECORDS, write_record

    try:
        record = importlib.import_module(f"benchmarks.{arguments.name}").run(arguments)
    except BicoreError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    record["command"] = "python -m benchmarks " + " ".join(_public(sys.argv[1:]))
    if arguments.record or arguments.out:
        write_record(
            record.pop("record", arguments.name),
            record,
            Path(arguments.out) if arguments.out else RECORDS,
        )
    if arguments.json:
        print(json.dumps(record))
    return 0


def _public(words: list[str]) -> list[str]:
    """The command as anyone would type it: files and folders of this machine get plain names."""
    names = {
        "--data": "DIR",
        "--out": "DIR",
        "--rows": "ROWS.jsonl",
        "--cache": "FOLDER",
        "--picks": "PICKS.json,…",
        "--pools": "POOLS.npz",
        "--sets": "SETS",
    }
    shown = []
    name = None
    for word in words:
        if name is not None:
            shown.append(name)
        elif word != "--record":
            shown.append(word)
        name = names.get(word) if name is None else None
    return shown


if __name__ == "__main__":
    sys.exit(main())
