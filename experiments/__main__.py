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

from bicore import InputError
from experiments import cifar
from experiments.catalogue import EXPERIMENTS
from experiments.cifar import Table
from experiments.cifar_tables import LAMBDA_ROW, every_plan
from experiments.figures import FIGURES, draw
from experiments.one_cell import wanted
from experiments.records import FOLDER, RecordError, Records
from experiments.running import Order, one_by_one, shared
from experiments.tables import Book, progress, read_runs, table

#: Where the runs of ``cell`` are recorded: beside those of the repository nothing would be missing.
ANEW = Path("reproduced")


def main(words: list[str] | None = None) -> int:
    given = _parser().parse_args(words)
    try:
        code: int = given.obey(given)
        return code
    except (RecordError, InputError) as refusal:
        return _refused(str(refusal))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="verb", required=True)
    verbs = {}
    for name, (obey, words) in VERBS.items():
        verbs[name] = commands.add_parser(name, help=words)
        verbs[name].set_defaults(obey=obey)
        if name != "list":
            verbs[name].add_argument("--records", type=Path, help="Folder of the records.")
    _add_run_options(verbs["run"])
    cell = verbs["cell"]
    cell.add_argument("table", help='Its heading on the page: "Table 3", "Figure 3a".')
    cell.add_argument("row", help='Its label there: "CBRS".')
    cell.add_argument("column", nargs="?", help="One of its columns (default: all).")
    _add_place(cell)
    verbs["table"].add_argument("name", choices=list(EXPERIMENTS))
    verbs["figure"].add_argument("name", choices=list(FIGURES))
    verbs["figure"].add_argument("--out", type=Path, help="File of the picture.")
    _add_data(verbs["figure"], "Folder with MNIST, for the picks (default: those of --quick).")
    verbs["collect"].add_argument("source", type=Path, help="Folder of its records.")
    return parser


def _add_run_options(run: argparse.ArgumentParser) -> None:
    run.add_argument("name", nargs="+", choices=[*EXPERIMENTS, "all"], help="Experiments to run.")
    run.add_argument("--seeds", type=int, default=5, help="Number of seeds (default: 5).")
    run.add_argument("--only", help="Methods, separated by semicolons.")
    run.add_argument("--on", help="Data to run on, such as SplitMNIST (default: all).")
    run.add_argument("--memory", type=int, help="Size of the memory (default: all).")
    run.add_argument("--tried", help="Comma-separated β (or sizes) of a row (default: all).")
    run.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    _add_place(run)


def _add_place(run: argparse.ArgumentParser) -> None:
    """Where and how runs are made."""
    run.add_argument("--device", default="auto", help="auto (default), cpu or cuda.")
    _add_data(run, "Folder with MNIST or CIFAR-10 in torchvision's layout.")
    quick = "Run a toy of the same shape on digits, end to end, in seconds."
    run.add_argument("--quick", action="store_true", help=quick)
    precision = {"choices": ("fast", "float32"), "default": "fast"}
    run.add_argument("--precision", help="Precision of products on a GPU.", **precision)
    run.add_argument("--workers", type=int, default=1, help="Processes that share the runs.")
    run.add_argument("--minutes", type=float, help="Start no further run after this time.")


def _add_data(verb: argparse.ArgumentParser, words: str) -> None:
    verb.add_argument("--data", default=os.environ.get("BICORE_DATA") or None, help=words)


def _refused(words: str) -> int:
    print(f"experiments: {words}", file=sys.stderr)
    return 2


def _list(given: argparse.Namespace) -> int:
    for name, experiment in EXPERIMENTS.items():
        done, wanted = progress(name)
        print(f"{name:18} {experiment.title}: {done} of {wanted} runs recorded")
    return 0


def _table(given: argparse.Namespace) -> int:
    print(table(given.name, read_runs(given.name, given.records or FOLDER)))
    return 0


def _figure(given: argparse.Namespace) -> int:
    path = given.out or Path(f"{given.name}.png")
    draw(given.name, Book(given.records or FOLDER), path, given.data)
    print(path)
    return 0


def _choose(given: argparse.Namespace) -> int:
    folder = given.records or FOLDER
    streams = read_runs("cifar-stream-betas", folder)
    tasks = read_runs("cifar-betas", folder)
    betas = {Table.CONTINUAL: tasks, Table.NORMALISED: tasks}
    betas |= {Table.IMBALANCED: streams, Table.STREAMING: streams}
    penalties = Records("cifar-penalty", folder).all()
    by_network = (record for record in penalties if record["method"] == LAMBDA_ROW)
    found = cifar.choose(every_plan(), betas, by_network)
    if not found:
        return _refused(
            "there are no records of cifar-penalty and cifar-betas yet; run them first."
        )
    beside = cifar.CHOSEN.with_suffix(".part")
    beside.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    beside.replace(cifar.CHOSEN)
    print(cifar.CHOSEN.name)
    return 0


def _collect(given: argparse.Namespace) -> int:
    """Last of all counts what comes now, where both machines have recorded a run."""
    paths = sorted(given.source.glob("*.jsonl"))
    if not paths:
        return _refused(f"{given.source} holds no records (*.jsonl); give the folder of --records.")
    for path in paths:
        records = Records(path.stem, given.records or FOLDER)
        new = records.collect(Records(path.stem, given.source).all())
        records.tidy()
        print(f"{path.stem}: {new} new")
    return 0


def _obeyed(order: Order, workers: int) -> int:
    if not order.quick and order.data is None:
        raise InputError(
            "MNIST or CIFAR-10 is needed: give --data DIR (with DIR/MNIST/raw/*-ubyte.gz, "
            "DIR/cifar-10-batches-py/*), or set BICORE_DATA."
        )
    return shared(order.words, workers) if workers > 1 else one_by_one(order)


def _cell(given: argparse.Namespace) -> int:
    """The runs of a row anew, in a folder of their own; those that are there are not made again."""
    book = Book()
    failed = 0
    for one in wanted(given.table, given.row, given.column):
        order = one.order(_order(given, [one.recorded.experiment], ANEW), book)
        failed |= _obeyed(order, given.workers)
        print(one.said(order, book), flush=True)
    return failed


def _run(given: argparse.Namespace) -> int:
    order = replace(
        _order(given, EXPERIMENTS if "all" in given.name else given.name),
        seeds=given.seeds,
        only=tuple(given.only.split(";")) if given.only else (),
        values=_values(given.tried),
        on=given.on,
        memory=given.memory,
    )
    failed = _obeyed(order, given.workers)
    if not given.worker:
        for name in order.names:
            order.records(name).tidy()
            print(table(name, read_runs(name, order.folder)))
    return failed


def _order(given: argparse.Namespace, names: Sequence[str], home: Path = FOLDER) -> Order:
    """All runs of some experiments, where and how they are asked for; records go to their home
    where no folder is named."""
    import torch

    device = given.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() and not given.quick else "cpu"
    folder = given.records or (
        Path(tempfile.mkdtemp(prefix="bicore-quick-")) if given.quick else home
    )
    return Order(
        names=tuple(names),
        folder=folder,
        data=given.data,
        device=device,
        quick=given.quick,
        fast=given.precision == "fast",
        minutes=given.minutes,
    )


def _values(words: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in words.split(",")) if words else ()
    except ValueError:
        raise InputError(f"--tried: numbers separated by commas, not {words!r}.") from None


VERBS = {
    "list": (_list, "Show the experiments, and how much of them is done."),
    "run": (_run, "Run what has no record yet."),
    "cell": (_cell, "Run a row of docs/reproduction.md again, by its words."),
    "table": (_table, "Show the table of an experiment, from its records."),
    "figure": (_figure, "Draw a figure from records."),
    "choose": (_choose, "Write experiments/chosen.json: λ and β on CIFAR-10, by held-out points."),
    "collect": (_collect, "Add the records that another machine has written."),
}


if __name__ == "__main__":
    sys.exit(main())
