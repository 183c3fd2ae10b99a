"""One protocol, in several processes: select, judge, keep a row for each selection."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.battery.memories import Picks
from benchmarks.battery.protocols import PROTOCOLS, Method, Protocol
from benchmarks.battery.sets import SETS, load
from benchmarks.common import Rows, report
from bicore import Dataset, Runtime
from bicore.evaluate.models import as_judge
from bicore.evaluate.samples import as_sample
from bicore.evaluate.samples import draw_tuning_rows as drawn
from bicore.kernels.scaling import Normalised
from bicore.kernels.tangent import fully_connected
from bicore.methods.registry import build_selector
from bicore.runtime.context import Context

#: Training steps of network judges.
STEPS = 300
#: A share of the rows that is at most taken as a pool.
POOL_SHARE = 0.6
#: Boosted trees are one a class and round: beyond so many classes they judge nothing.
MOST_BOOSTED = 5
#: Sets whose columns share a scale by nature; the others are tables.
AS_THEY_ARE = ("digits", "mnist", "cifar10", "embedding", "reuters", "newsgroups")

WHOLE = "all data"
#: Protocol, set, seed, share of wrong labels, folder, device, and the methods to run.
Job = tuple[str, str, int, float, str, str, tuple[str, ...]]


def worked(arguments: Any) -> dict[str, Any]:
    rows = Rows(arguments.rows)
    jobs = list(
        _jobs(arguments, {(row["set"], row["seed"], row["flips"], row["method"]) for row in rows})
    )
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, _alone) as pool:
        for place, found in enumerate(pool.imap_unordered(_rows, jobs)):
            rows.add(*found)
            report(f"{place + 1} of {len(jobs)}: {found[0]['set']}")
    record = f"battery_{arguments.protocol}"
    return {"record": record, "protocol": arguments.protocol, "rows": list(rows)}


def _jobs(arguments: Any, done: set[tuple[str, int, float, str]]) -> Iterator[Job]:
    """The work that is left, seed by seed; ``--methods`` names the methods to run."""
    protocol = PROTOCOLS[arguments.protocol]
    wanted = arguments.methods.split(",") if arguments.methods else [*protocol.methods, WHOLE]
    for seed, flips, name in product(range(protocol.seeds), protocol.flips, protocol.sets):
        methods = tuple(
            method
            for method in wanted
            if (name, seed, flips, method) not in done
            and (method == WHOLE or _applies(protocol.methods[method], SETS[name].regression))
        )
        if methods:
            folder = str(arguments.sets)
            yield arguments.protocol, name, seed, flips, folder, arguments.device, methods


def _applies(method: Method, regression: bool) -> bool:
    """Whether a method can choose rows of such a set; some need classes."""
    name, options, _ = method
    needs_classes = name == "class-balanced" or {"per_class", "loss", "prior"} & set(options)
    return not (regression and needs_classes)


def _alone() -> None:
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


class _Split:
    """A pool and a test set of one seed."""

    def __init__(self, job: Job, protocol: Protocol) -> None:
        _, name, seed, flips, folder, _, _ = job
        self.name = name
        self.seed = seed
        self.memory = protocol.memory
        self.regression = SETS[name].regression
        x, y = load(name, Path(folder))
        rng = np.random.default_rng((seed, 7))
        order = rng.permutation(len(y))
        count = min(protocol.pool, int(POOL_SHARE * len(y)))
        own, other = order[:count], order[count : count + protocol.test]
        self.raw, self.test_raw = x[own], x[other]
        self.scaled, self.test_scaled = self.raw, self.test_raw
        if name not in AS_THEY_ARE:
            mean, spread = self.raw.mean(0), self.raw.std(0)
            spread[spread == 0] = 1
            self.scaled, self.test_scaled = ((part - mean) / spread for part in (x[own], x[other]))
        self.y, self.test_y = y[own], y[other]
        self.wrong = np.zeros(count, dtype=bool)
        self.classes = 0
        if not self.regression:
            labels, codes = np.unique(y, return_inverse=True)
            self.classes = len(labels)
            self.y, self.test_y = codes[own], codes[other]
            self.wrong = rng.random(count) < flips
            shift = rng.integers(1, self.classes, count)
            self.y = np.where(self.wrong, (self.y + shift) % self.classes, self.y)

    def chosen(self, method: Method, size: int) -> tuple[Picks, float]:
        """The picks, out of the whole pool or left in a memory, and what choosing them took."""
        name, options, scaled = method
        x = self.scaled if scaled else self.raw
        if options.get("kernel") == "normalised-ntk":
            options = options | {"kernel": Normalised(fully_connected())}
        data = Dataset(x.reshape(len(x), -1), self.y)
        context = Context(runtime=Runtime(device="cpu", threads=1, progress=False))
        begun = time.process_time()
        if self.memory is not None:
            picks = self.memory(name, options, data, size, self.seed, context)
        else:
            selector = build_selector(name, **options)
            found = selector.select(data, size, random_state=self.seed, **context.keywords)
            picks = Picks(found.indices, found.weights, found.provenance.kernel)
        return picks, time.process_time() - begun


def _rows(job: Job) -> list[dict[str, Any]]:
    protocol = PROTOCOLS[job[0]]
    split = _Split(job, protocol)
    sizes = protocol.fixed.get(split.name) or protocol.sizes(split.classes, len(split.y))
    found: list[dict[str, Any]] = []
    methods = [method for method in job[6] if method != WHOLE]
    for size in sizes if methods else ():
        picks = {name: split.chosen(protocol.methods[name], size) for name in methods}
        scores = _judged(split, protocol.judges, [one for one, _ in picks.values()], job[5])
        for (name, (chosen, seconds)), own in zip(picks.items(), scores, strict=True):
            found.append(
                _row(split, job, size, name, own)
                | {
                    "seconds": round(seconds, 3),
                    "wrong": round(float(split.wrong[chosen.indices].mean()), 4),
                    "kernel": chosen.kernel,
                }
            )
            if not split.regression:
                found[-1]["classes"] = len(np.unique(split.y[chosen.indices]))
    if WHOLE in job[6]:
        whole = _judged(split, protocol.judges, [None], job[5])[0]
        found.append(_row(split, job, len(split.y), WHOLE, whole))
    return found


def _row(split: _Split, job: Job, size: int, method: str, scores: Any) -> dict[str, Any]:
    return {
        "set": split.name,
        "seed": split.seed,
        "flips": job[3],
        "size": size,
        "method": method,
        "scores": scores,
    }


def _judged(
    split: _Split, judges: Iterable[str], picks: list[Any], device: str
) -> list[dict[str, list[float]]]:
    """For every selection its scores by judge: accuracy and balanced accuracy, or R² and MAE."""
    where = torch.device(device)
    classification = not split.regression
    y = split.y if classification else split.y[:, None]
    test_y = split.test_y if classification else split.test_y[:, None]
    outputs = split.classes if classification else 1
    centre, spread = (0.0, 1.0) if classification else (split.y.mean(), split.y.std())
    y, test_y = ((one - centre) / spread if split.regression else one for one in (y, test_y))

    def sample(indices: Any, weights: Any, images: bool) -> Any:
        x = split.scaled[indices]
        return as_sample(
            x if images else x.reshape(len(x), -1), y[indices], weights, where, classification
        )

    found: list[dict[str, list[float]]] = [{} for _ in picks]
    for name in judges:
        if name == "boosting" and split.classes > MOST_BOOSTED:
            continue
        images = name == "cnn"
        some = drawn(len(y), split.seed)
        judge = as_judge(name, STEPS).tuned_by(sample(some, np.ones(len(some)), images))
        groups: dict[int, list[int]] = {}
        every = [
            (np.arange(len(y)), np.ones(len(y))) if one is None else (one.indices, one.weights)
            for one in picks
        ]
        for place, (indices, _) in enumerate(every):
            groups.setdefault(len(indices), []).append(place)
        test_x = split.test_scaled if images else split.test_scaled.reshape(len(test_y), -1)
        test = as_sample(test_x, test_y, np.ones(len(test_y)), where, classification)
        for places in groups.values():
            samples = [sample(*every[place], images) for place in places]
            measures = judge.measures(samples, test, outputs, split.seed)
            for place, one in zip(places, measures, strict=True):
                found[place][name] = [round(float(value), 5) for value in one.values.values()]
    return found
