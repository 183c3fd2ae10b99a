"""``python -m experiments list | run NAME … | cell TABLE ROW | table NAME``: the experiments of the
paper, from records that are written as they come."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bicore import InputError, Runtime
from bicore.errors import check_integer
from bicore.files import replacing
from experiments import cifar_tables as cifar
from experiments.catalogue import EXPERIMENTS
from experiments.figures import FIGURES, draw
from experiments.one_cell import find_cells
from experiments.records import FOLDER, RecordError, Records
from experiments.running import Order, run_order
from experiments.tables import Book, progress, read_runs, table

#: Where the runs of ``cell`` are recorded: among those of the repository nothing would be missing.
ANEW = Path("reproduced")


def main(words: list[str] | None = None) -> int:
    given = _parser().parse_args(words)
    given.data = getattr(given, "data", None) or os.environ.get("BICORE_DATA")
    try:
        return given.obey(given) or 0
    except (RecordError, InputError) as refusal:
        print(f"experiments: {refusal}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="verb", required=True)
    for verb, (obey, words, names) in VERBS.items():
        own = commands.add_parser(verb, help=words)
        own.set_defaults(obey=obey)
        for name in names:
            own.add_argument(name, **OPTIONS.get(f"{verb} {name}", OPTIONS.get(name)))
    return parser


def _list(given: argparse.Namespace) -> None:
    for name, experiment in EXPERIMENTS.items():
        done, wanted = progress(name)
        print(f"{name:18} {experiment.title}: {done} of {wanted} runs recorded")


def _table(given: argparse.Namespace) -> None:
    print(table(given.name, read_runs(given.name, given.records or FOLDER)))


def _figure(given: argparse.Namespace) -> None:
    path = given.out or Path(f"{given.name}.png")
    draw(given.name, Book(given.records or FOLDER), path, given.data)
    print(path)


def _choose(given: argparse.Namespace) -> None:
    folder = given.records or FOLDER
    streams = read_runs("cifar-stream-betas", folder)
    tasks = read_runs("cifar-betas", folder)
    betas = {cifar.CONTINUAL: tasks, cifar.NORMALISED: tasks}
    betas |= {cifar.ON_IMBALANCED: streams, cifar.ON_BALANCED: streams}
    penalties = Records("cifar-penalty", folder).all()
    by_network = (record for record in penalties if record["method"] == cifar.LAMBDA_ROW)
    found = cifar.choose(cifar.every_plan(), betas, by_network)
    if not found:
        raise InputError("there are no records of cifar-penalty and cifar-betas; run them first.")
    with replacing(cifar.CHOSEN) as temporary:
        temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(cifar.CHOSEN.name)


def _collect(given: argparse.Namespace) -> None:
    """If both machines have recorded a run, what comes now counts."""
    paths = sorted(given.source.glob("*.jsonl"))
    if not paths:
        raise InputError(
            f"{given.source} holds no records (*.jsonl); give the folder of --records."
        )
    for path in paths:
        records = Records(path.stem, given.records or FOLDER)
        new = records.collect(Records(path.stem, given.source).all())
        records.tidy()
        print(f"{path.stem}: {new} new")


def _cell(given: argparse.Namespace) -> int:
    """The runs of a row anew, in a folder of their own; those that are there are not made again."""
    book = Book()
    failed = 0
    for one in find_cells(given.table, given.row, given.column):
        order = one.order(_order(given, [one.recorded.experiment], ANEW), book)
        failed |= run_order(order, given.workers)
        print(one.describe(order, book), flush=True)
    return failed


def _run(given: argparse.Namespace) -> int:
    check_integer("--seeds", given.seeds, 1)
    order = replace(
        _order(given, EXPERIMENTS if "all" in given.name else given.name),
        seeds=given.seeds,
        only=tuple(given.only.split(";")) if given.only else (),
        values=_values(given.tried),
        on=given.on,
        memory=given.memory,
    )
    failed = run_order(order, given.workers)
    for name in order.names:
        order.records(name).tidy()
        print(table(name, read_runs(name, order.folder)))
    return failed


def _order(given: argparse.Namespace, names: Sequence[str], home: Path = FOLDER) -> Order:
    """All runs of some experiments, where and how they are asked for; records go to their home
    unless a folder is named."""
    if not given.quick and given.data is None:
        raise InputError(
            "MNIST or CIFAR-10 is needed: give --data DIR (with DIR/MNIST/raw/*-ubyte.gz, "
            "DIR/cifar-10-batches-py/*), or set BICORE_DATA."
        )
    check_integer("--workers", given.workers, 1)
    device = "cpu" if given.quick and given.device == "auto" else given.device
    toys = Path(tempfile.mkdtemp(prefix="bicore-quick-")) if given.quick else home
    return Order(
        names=tuple(names),
        folder=given.records or toys,
        data=given.data,
        device=str(Runtime(device).torch_device),
        quick=given.quick,
        fast=given.precision == "fast",
        minutes=given.minutes,
    )


def _values(words: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in words.split(",")) if words else ()
    except ValueError:
        raise InputError(f"--tried must be comma-separated numbers; got {words!r}.") from None


#: Arguments of verbs, by their names, or by a verb and a name.
OPTIONS: dict[str, dict[str, Any]] = {
    "--records": {"type": Path, "help": "Folder of the records."},
    "run name": {"nargs": "+", "choices": [*EXPERIMENTS, "all"], "help": "Experiments to run."},
    "table name": {"choices": list(EXPERIMENTS)},
    "figure name": {"choices": list(FIGURES)},
    "table": {"help": 'Its heading on the page: "Table 3", "Figure 3a".'},
    "row": {"help": 'Its label there: "CBRS".'},
    "column": {"nargs": "?", "help": "One of its columns (default: all)."},
    "source": {"type": Path, "help": "Folder of its records."},
    "--out": {"type": Path, "help": "File of the picture."},
    "--seeds": {"type": int, "default": 5, "help": "Number of seeds (default: 5)."},
    "--only": {"help": "Methods, separated by semicolons."},
    "--on": {"help": "Data to run on, such as SplitMNIST (default: all)."},
    "--memory": {"type": int, "help": "Size of the memory (default: all)."},
    "--tried": {"help": "Comma-separated β (or sizes) of a row (default: all)."},
    "--device": {"default": "auto", "help": "auto (default), cpu or cuda."},
    "--data": {"help": "Folder with MNIST or CIFAR-10, as torchvision's (default: $BICORE_DATA)."},
    "--quick": {"action": "store_true", "help": "Run a toy of the same shape on digits."},
    "--precision": {
        "choices": ("fast", "float32"),
        "default": "fast",
        "help": "Precision of products on a GPU (default: fast).",
    },
    "--workers": {"type": int, "default": 1, "help": "Processes that share the runs (default: 1)."},
    "--minutes": {"type": float, "help": "Start no further run after this time."},
}
_PLACE = ("--records", "--device", "--data", "--quick", "--precision", "--workers", "--minutes")
_ROWS = ("--seeds", "--only", "--on", "--memory", "--tried")
VERBS = {
    "list": (_list, "Show the experiments, and how much of them is done.", ()),
    "run": (_run, "Run what has no record yet.", ("name", *_ROWS, *_PLACE)),
    "cell": (_cell, "Repeat a row of docs/reproduction.md.", ("table", "row", "column", *_PLACE)),
    "table": (_table, "Show the table of an experiment, from its records.", ("name", "--records")),
    "figure": (_figure, "Draw a figure from records.", ("name", "--records", "--out", "--data")),
    "choose": (_choose, "Choose λ and β on CIFAR-10 by held-out points.", ("--records",)),
    "collect": (_collect, "Add the records of another machine.", ("source", "--records")),
}


if __name__ == "__main__":
    sys.exit(main())
