"""``python -m experiments list | run NAME | table NAME``: the paper's experiments, from records
that are written as they come."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

from bicore import InputError
from experiments import cifar, page, training
from experiments.catalogue import EXPERIMENTS, Data
from experiments.cifar_tables import STREAMS
from experiments.figures import FIGURES, draw
from experiments.groups import QUICK_SHARE, Group
from experiments.records import FOLDER, RecordError, Records
from experiments.tables import gathered, progress, table


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="what there is, and how much of it is done")
    run = verbs.add_parser("run", help="run what has no record yet")
    run.add_argument("name", choices=[*EXPERIMENTS, "all"])
    run.add_argument("--seeds", type=int, default=5, help="seeds 0 … N − 1")
    run.add_argument("--device", default="auto", help="auto, cpu or cuda")
    run.add_argument(
        "--data",
        default=os.environ.get("BICORE_DATA") or None,
        help="folder with MNIST or CIFAR-10 in torchvision's layout",
    )
    run.add_argument(
        "--quick",
        action="store_true",
        help="a toy of the same shape on digits, end to end, in seconds",
    )
    run.add_argument("--only", help="methods, separated by semicolons")
    run.add_argument(
        "--precision",
        choices=("fast", "float32"),
        default="fast",
        help="of products on a GPU; float32 to check by",
    )
    run.add_argument("--workers", type=int, default=1, help="processes that share the runs")
    run.add_argument("--minutes", type=float, help="start no further run after this long")
    run.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    shown = verbs.add_parser("table", help="the table of an experiment, from its records")
    shown.add_argument("name", choices=list(EXPERIMENTS))
    drawn = verbs.add_parser("figure", help="a figure, from records")
    drawn.add_argument("name", choices=FIGURES)
    drawn.add_argument(
        "--data",
        default=os.environ.get("BICORE_DATA") or None,
        help="folder with MNIST, for the picks (none: those of --quick)",
    )
    drawn.add_argument("--out", type=Path, help="the picture's file")
    verbs.add_parser("page", help="write docs/reproduction.md from all records")
    found = verbs.add_parser(
        "choose",
        help=(
            "write experiments/chosen.json: λ and the β of each row on CIFAR-10, from records of "
            "what held-out points say"
        ),
    )
    for verb in (run, shown, drawn, found):
        verb.add_argument("--records", type=Path, default=None, help="folder of the records")
    given = parser.parse_args(words)
    try:
        return _obey(given)
    except (RecordError, InputError) as refusal:
        print(f"experiments: {refusal}", file=sys.stderr)
        return 2


def _obey(given: argparse.Namespace) -> int:
    if given.verb == "list":
        return _list()
    if given.verb == "page":
        return _page()
    if given.verb == "choose":
        return _choose(given.records or FOLDER)
    if given.verb == "figure":
        path = given.out or Path(f"{given.name}.png")
        records = gathered(given.name, given.records or FOLDER) if given.name in EXPERIMENTS else []
        draw(given.name, records, path, given.data)
        print(path)
        return 0
    if given.verb == "table":
        print(table(given.name, gathered(given.name, given.records or FOLDER)))
        return 0
    return _run(given)


def _page() -> int:
    made = page.text()
    if made is None:
        print("experiments: there are no records yet; run an experiment first.", file=sys.stderr)
        return 2
    page.PAGE.write_text(made)
    print(page.PAGE.name)
    return 0


def _choose(folder: Path) -> int:
    streams = gathered("cifar-stream-betas", folder)
    betas = {
        "continual": gathered("cifar-betas", folder),
        **{
            table: [record for record in streams if record["method"] in rows]
            for table, rows in STREAMS.items()
        },
    }
    found = cifar.choose(
        betas, (one for one in Records("cifar-penalty", folder).all() if one["method"] == "Coreset")
    )
    if not found:
        print(
            "experiments: there are no records of cifar-penalty and cifar-betas yet; run them "
            "first.",
            file=sys.stderr,
        )
        return 2
    beside = cifar.CHOSEN.with_suffix(".part")
    beside.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    beside.replace(cifar.CHOSEN)
    print(cifar.CHOSEN.name)
    return 0


def _list() -> int:
    for name, experiment in EXPERIMENTS.items():
        done, wanted = progress(name)
        print(f"{name:18} {experiment.title}: {done} of {wanted} runs recorded")
    return 0


def _run(given: argparse.Namespace) -> int:
    import torch

    if not given.quick and given.data is None:
        print(
            "experiments: MNIST or CIFAR-10 is needed: give --data DIR (with "
            "DIR/MNIST/raw/*-ubyte.gz, DIR/cifar-10-batches-py/*), "
            "or set BICORE_DATA.",
            file=sys.stderr,
        )
        return 2
    device = given.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() and not given.quick else "cpu"
    folder = given.records or (
        Path(tempfile.mkdtemp(prefix="bicore-quick-")) if given.quick else FOLDER
    )
    training.FAST = given.precision == "fast"
    names = list(EXPERIMENTS) if given.name == "all" else [given.name]
    failed = (
        _shared(given, folder) if given.workers > 1 else _one_by_one(given, names, folder, device)
    )
    for name in names if not given.worker else ():
        print(table(name, gathered(name, folder)))
    return failed


def _shared(given: argparse.Namespace, folder: Path) -> int:
    """The same command in several processes; a run goes to the one that claims it first."""
    words = [
        "run",
        given.name,
        "--seeds",
        str(given.seeds),
        "--device",
        given.device,
        "--records",
        str(folder),
        "--worker",
        *(["--data", given.data] if given.data else []),
        *(["--quick"] if given.quick else []),
        *(["--only", given.only] if given.only else []),
        *(["--minutes", str(given.minutes)] if given.minutes is not None else []),
        "--precision",
        given.precision,
    ]
    environment = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
    workers = [
        subprocess.Popen([sys.executable, "-m", "experiments", *words], env=environment)
        for _ in range(given.workers)
    ]
    try:
        codes = [worker.wait() for worker in workers]
        return int(any(codes))  # one that was killed has failed too
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()
        raise


def _one_by_one(given: argparse.Namespace, names: list[str], folder: Path, device: str) -> int:
    """Every run that has no record; one that fails is told and leaves the others alone."""
    data = Data(given.data, given.quick)
    start = time.perf_counter()
    failed = 0
    for name in names:
        records = Records(
            name if given.precision == "fast" else f"{name}-{given.precision}", folder
        )
        for seed in range(1 if given.quick else given.seeds):
            for group in EXPERIMENTS[name].groups(seed):
                if group.source is not None or (
                    given.only and group.setting.method not in given.only.split(";")
                ):
                    continue
                if given.minutes is not None and time.perf_counter() - start > 60 * given.minutes:
                    print(
                        f"experiments: {given.minutes} minutes are over; the same command goes on.",
                        file=sys.stderr,
                    )
                    return failed
                try:
                    _group(group, data, records, device, given.quick)
                except InputError as refusal:
                    print(
                        f"experiments: {group.setting.method}, seed {seed}: {refusal}",
                        file=sys.stderr,
                        flush=True,
                    )
                    failed = 1
                except Exception:
                    print(
                        f"experiments: {group.setting} failed:\n{traceback.format_exc()}",
                        file=sys.stderr,
                        flush=True,
                    )
                    failed = 1
    return failed


def _group(group: Group, data: Data, records: Records, device: str, quick: bool) -> None:
    """Run what is missing of a group, unless another process is at it."""
    import torch

    setting = group.setting
    if quick:
        setting = replace(setting, memory=max(4, setting.memory // QUICK_SHARE))
    betas = setting.quick if quick else setting.betas
    if any(math.isnan(beta) for beta in betas):
        raise InputError(
            "it has no β yet; run cifar-betas and cifar-stream-betas, then `python -m experiments "
            "choose`."
        )
    with records.claim(setting.key(betas[0])) as mine:
        missing = [beta for beta in betas if not records.has(setting.key(beta))]
        if not mine or not missing:
            return
        begin = time.perf_counter()
        torch.manual_seed(setting.seed)  # dropout draws from torch's own generator
        for beta, result in group.run(setting, data.tasks(group.tasks), missing, device, quick):
            records.write(setting.key(beta), {**result, "quick": quick})
    shown = f"{setting.dataset}, {setting.method}, memory {setting.memory}, seed {setting.seed}"
    print(
        f"{shown}: {len(missing)} runs in {time.perf_counter() - begin:.1f} s",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
