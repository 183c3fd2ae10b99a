"""Run a protocol in several processes: select, evaluate, record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks.battery.memories import Picks
from benchmarks.battery.protocols import PROTOCOLS, Method, Protocol
from benchmarks.battery.sets import SETS, load
from benchmarks.common import (
    ONE_THREAD,
    Rows,
    machine,
    read_known,
    report,
    run_jobs,
    standardise,
    time_call,
)
from bicore import Dataset, InputError
from bicore.evaluate.models import (
    FeatureScaling,
    Judge,
    NearestJudge,
    Sample,
    as_judge,
    as_sample,
    draw_tuning_rows,
)
from bicore.methods.registry import build_selector
from bicore.runtime.context import Context

#: Training steps of networks that evaluate.
STEPS = 300
#: A share of the rows that is at most taken as a pool.
POOL_SHARE = 0.6
#: Boosted trees are one a class and round: beyond this number of classes they are left out.
MOST_BOOSTED = 5
#: Sets whose columns share a scale by nature; the others are tables.
AS_THEY_ARE = ("digits", "mnist", "cifar10", "embedding", "banking77", "names", "reuters")
AS_THEY_ARE += ("newsgroups",)
WHOLE = "all data"
#: Protocol, set, seed, share of wrong labels, methods to run, folder and device.
Job = tuple[str, str, int, float, tuple[str, ...], str, str]


def run_protocol(arguments: Any) -> dict[str, Any]:
    name = f"battery_{arguments.protocol}"
    only = arguments.only.split(",") if arguments.only else []
    rows = Rows(arguments.rows)
    jobs = list(_jobs(arguments, rows, only or PROTOCOLS[arguments.protocol].sets))
    for place, found in enumerate(run_jobs(evaluate, jobs, arguments.processes)):
        rows.add(*found)
        report(f"{place + 1} of {len(jobs)}: {found[0]['set']}")
    found = {"record": name, "protocol": arguments.protocol, "rows": list(rows)}
    if not only:
        return found
    known = read_known(name)
    others = [row for row in known["rows"] if row["set"] not in only]
    return {**known, **found, "rows": [*others, *rows], "added": {"sets": only, **machine()}}


def _jobs(arguments: Any, rows: Rows, sets: Sequence[str]) -> Iterator[Job]:
    """The work that is left, seed by seed; ``--methods`` names the methods to run."""
    unknown = sorted(set(sets) - set(SETS))
    if unknown:
        raise InputError(f"--only {','.join(unknown)}: there are {', '.join(SETS)}.")
    protocol = PROTOCOLS[arguments.protocol]
    done = {(row["set"], row["seed"], row["flips"], row["method"]) for row in rows}
    wanted = arguments.methods.split(",") if arguments.methods else [*protocol.methods, WHOLE]
    for seed, flips, name in product(range(protocol.seeds), protocol.flips, sets):
        methods = tuple(
            method
            for method in wanted
            if (name, seed, flips, method) not in done
            and (method == WHOLE or _applies(protocol.methods[method], SETS[name].regression))
        )
        if methods:
            where = str(arguments.sets), arguments.device
            yield arguments.protocol, name, seed, flips, methods, *where


def _applies(method: Method, regression: bool) -> bool:
    """Whether a method can choose rows of such a set; some need classes."""
    name, options, _ = method
    needs_classes = name == "class-balanced" or {"per_class", "loss", "prior"} & set(options)
    return not (regression and needs_classes)


def evaluate(*job: Any) -> list[dict[str, Any]]:
    """The rows of a job."""
    kind, name, seed, flips, methods, folder, device = job
    protocol = PROTOCOLS[kind]
    split = Split(name, seed, flips, protocol, folder, device)
    key = {"set": name, "seed": seed, "flips": flips}
    found: list[dict[str, Any]] = []
    selecting = [method for method in methods if method != WHOLE]
    count = len(split.y)
    sizes = protocol.fixed.get(name) or protocol.sizes(split.classes, count)
    for size in sizes if selecting else ():
        picks = {one: split.choose(protocol.methods[one], size) for one in selecting}
        scores = split.score(protocol.judges, [chosen for chosen, _ in picks.values()])
        for (method, (chosen, seconds)), own in zip(picks.items(), scores, strict=True):
            row = {**key, "size": size, "method": method, "scores": own}
            wrong = round(float(split.wrong[chosen.indices].mean()), 4)
            row |= {"seconds": round(seconds, 3), "wrong": wrong, "kernel": chosen.kernel}
            if split.classes:
                row["classes"] = len(np.unique(split.y[chosen.indices]))
            found.append(row)
    if WHOLE in methods:
        own = split.score(protocol.judges, [Picks(np.arange(count), np.ones(count))])[0]
        found.append({**key, "size": count, "method": WHOLE, "scores": own})
    return found


class Split:
    """A pool and a test set of one seed."""

    def __init__(
        self, name: str, seed: int, flips: float, protocol: Protocol, folder: str, device: str
    ) -> None:
        self.seed, self.device, self.memory = seed, torch.device(device), protocol.memory
        x, y = load(name, Path(folder))
        rng = np.random.default_rng((seed, 7))
        order = rng.permutation(len(y))
        count = min(protocol.pool, int(POOL_SHARE * len(y)))
        own, other = order[:count], order[count : count + protocol.test]
        scaled = x if name in AS_THEY_ARE else standardise(x, own)
        self.raw, self.scaled, self.test_x = x[own], scaled[own], scaled[other]
        self.wrong, self.classes = np.zeros(count, dtype=bool), 0
        if SETS[name].regression:
            self.y = y[own]
            centre, spread = self.y.mean(), self.y.std()
            self.targets, self.test_y = ((y[one, None] - centre) / spread for one in (own, other))
            return
        labels, codes = np.unique(y, return_inverse=True)
        self.classes = len(labels)
        self.wrong = rng.random(count) < flips
        shift = rng.integers(1, self.classes, count)
        self.targets = np.where(self.wrong, (codes[own] + shift) % self.classes, codes[own])
        self.y, self.test_y = self.targets, codes[other]

    def choose(self, method: Method, size: int) -> tuple[Picks, float]:
        """The picks, out of the whole pool or left in a memory, and their processor seconds."""
        seconds, picks = time_call(partial(self._choose, *method, size), 1, process_time)
        return picks, seconds

    def _choose(self, name: str, options: dict[str, Any], scaled: bool, size: int) -> Picks:
        x = self.scaled if scaled else self.raw
        data = Dataset(x.reshape(len(x), -1), self.y)
        if self.memory is not None:
            context = Context(runtime=ONE_THREAD)
            return self.memory(name, options, data, size, self.seed, context)
        selector = build_selector(name, **options)
        found = selector.select(data, size, random_state=self.seed, runtime=ONE_THREAD)
        return Picks(found.indices, found.weights, found.provenance.kernel)

    def score(self, judges: Sequence[str], picks: list[Picks]) -> list[dict[str, list[float]]]:
        """For every selection its scores by model: accuracy and balanced accuracy, or R² and
        MAE."""
        found: list[dict[str, list[float]]] = [{} for _ in picks]
        tuning = draw_tuning_rows(len(self.y), self.seed)
        for name in judges:
            if name == "boosting" and self.classes > MOST_BOOSTED:
                continue
            sample = partial(self._sample, name == "cnn")
            rows = sample(self.scaled[tuning], self.targets[tuning])
            judge, test = _judge(name, rows), sample(self.test_x, self.test_y)
            by_size = sorted(range(len(picks)), key=lambda place: len(picks[place].indices))
            for _, group in groupby(by_size, key=lambda place: len(picks[place].indices)):
                places = list(group)
                own = [picks[place] for place in places]
                samples = [
                    sample(self.scaled[one.indices], self.targets[one.indices], one.weights)
                    for one in own
                ]
                measures = judge.measures(samples, test, self.classes or 1, self.seed)
                for place, one in zip(places, measures, strict=True):
                    found[place][name] = [round(float(value), 5) for value in one.values.values()]
        return found

    def _sample(self, images: bool, x: Any, y: Any, weights: Any = None) -> Sample:
        x = x if images else x.reshape(len(x), -1)
        weights = np.ones(len(x)) if weights is None else weights
        return as_sample(x, y, weights, self.device, bool(self.classes))


class FixedNeighbours(NearestJudge):
    """Nearest neighbours in the columns as they are, with the number that the name says."""

    def __init__(self, name: str) -> None:
        super().__init__()
        object.__setattr__(self, "name", name)

    def _default(self, sample: Sample) -> tuple[FeatureScaling, int]:
        return FeatureScaling.NONE, int(self.name[0])


def _judge(name: str, rows: Sample) -> Judge:
    return FixedNeighbours(name) if "-nn" in name else as_judge(name, STEPS).tune(rows)
