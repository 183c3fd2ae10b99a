"""Continual learning with a replay memory (section 6.2, table 1 and the appendix)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from experiments.courses import Checkpoint, Course, RehearsingRow, checkpoint_of, make_once
from experiments.networks import Network
from experiments.rows import Job, Results
from experiments.selectors import LAMBDA, Noisy, context_of
from experiments.tasks import Task
from experiments.training import Cohort, Learner, Memory, build, cached_tensors, scores

#: How often the state of a long run is saved in a task.
TASK_PARTS = 4
#: What a record calls the scores of a network whose statistics are those of its memory.
RECALIBRATED = "recalibrated"


@dataclass(frozen=True, kw_only=True)
class ContinualRow(RehearsingRow):
    """Task after task, with rehearsal of what the ``store`` keeps of those before; without one
    nothing is rehearsed. ``noisy`` networks are looked at with dropout on. ``recalibrated``, a
    network is tested with its statistics of the memory too."""

    noisy: bool = False
    recalibrated: bool = False

    def toy(self) -> Self:
        return replace(super().toy(), penalty=LAMBDA)

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        every = max(1, self.epochs // TASK_PARTS)
        checkpoint = checkpoint_of(self, job, f"{self.epochs}", self.penalty, every)
        return run(self, job, tasks, checkpoint)


def run(
    row: ContinualRow, job: Job, tasks: Sequence[Task], checkpoint: Checkpoint | None = None
) -> Results:
    """Results for each β. A selector that looks at no network chooses once for all of them."""
    points = row.memory // len(tasks) * len(tasks) if row.at_end else len(tasks[0].train)
    learners = [row.learner(job, beta, points, row.memory, row.epochs) for beta in job.values]
    course = row.begin(job, Cohort(learners), checkpoint)
    train = _train_at_the_end if row.at_end else _train_on_each
    train(course, row, job, tasks)
    facts = {**row.facts(course, job), "epochs": row.epochs}
    for which, (beta, learner) in enumerate(zip(job.values, course.learners, strict=True)):
        found: dict[str, Any] = scores(learner.network, tasks, job.device, job.fast)
        if row.recalibrated:
            recalibrate(learner.network, _rows(course.memory_of(which), job.device))
            found[RECALIBRATED] = scores(learner.network, tasks, job.device, job.fast)
        yield beta, {**found, **facts}
    course.end()


def _train_on_each(course: Course, row: ContinualRow, job: Job, tasks: Sequence[Task]) -> None:
    """One task after the other, with rehearsal of those before; all networks begin with what the
    first has taught."""
    rows = partial(_rows, device=job.device)
    if course.place.task:
        course.rehearse(rows)
    for number, task in list(enumerate(tasks))[course.place.task :]:
        course.place.task = number
        for learner in course.learners:
            if number == 0:
                learner.network.load_state_dict(_start(row, job, task, course.checkpoint))
            else:
                learner.take(*cached_tensors(task.train, job.device))
            if not course.place.epochs:
                learner.restart()
        course.train(row.epochs if number else 0)
        _remember(course, row, job, task)
        course.rehearse(rows)


def _train_at_the_end(course: Course, row: ContinualRow, job: Job, tasks: Sequence[Task]) -> None:
    """Choose from all tasks, then train on the memory alone."""
    for task in tasks[course.place.task :]:
        _remember(course, row, job, task)
    course.place.task = len(tasks)
    rows = _rows(course.kept[0], job.device)
    for learner in course.learners:
        learner.take(rows.x, rows.y)
    course.train(row.epochs)


def _remember(course: Course, row: ContinualRow, job: Job, task: Task) -> None:
    """Let every memory choose from a task; what looks at networks sees them as they are now."""
    with course.choosing():
        for memory, learner in zip(course.kept, course.learners, strict=False):
            seen = None
            if row.store.looks:
                seen = Noisy(learner.network) if row.noisy else learner.network.eval()
            context = context_of(row.store.place(job.device), seen)
            memory.add_task(task.train.x, task.train.y, model=context)


def _start(
    row: ContinualRow, job: Job, task: Task, checkpoint: Checkpoint | None
) -> dict[str, Tensor]:
    """The network after the first task, of this process or of the one that made it first."""
    given = (row.network.make, job.seed, task, job.device, row.epochs, job.fast)
    if checkpoint is None or checkpoint.start is None:
        return learn_first(*given)
    within = replace(checkpoint, folder=checkpoint.start.with_suffix(""), start=None)
    return make_once(checkpoint.start, lambda: _learn_first(*given, within))


def _learn_first(
    network: Callable[[], Network],
    seed: int,
    task: Task,
    device: str,
    epochs: int,
    fast: bool = True,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """The network after the first task. No memory and no β have a part in it: every row of a seed
    continues from here."""
    points = len(task.train)
    learner = Learner(build(network, seed, device), 0.0, points, 1, epochs, seed=seed, fast=fast)
    learner.take(*cached_tensors(task.train, device))
    course = Course(Cohort([learner]), checkpoint)
    # the same whether or not it was made before
    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):
        torch.manual_seed(seed)
        course.resume()
        course.train(epochs)
    course.end()
    return {name: value.clone() for name, value in learner.network.state_dict().items()}


learn_first = lru_cache(maxsize=4)(_learn_first)


def recalibrate(network: Network, memory: Memory) -> None:
    """Statistics of the memory, in which all tasks have their part, instead of those that the last
    steps have left."""
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of what it is shown
    network.train()
    with torch.no_grad():
        network(memory.x)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum


def _rows(memory: Any, device: str) -> Memory:
    x, y, weight = memory.tensors()
    return Memory(x.float().to(device), y.to(device), (weight / len(weight)).float().to(device))
