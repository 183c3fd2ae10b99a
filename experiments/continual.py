"""Continual learning with a replay memory (section 6.2, table 1 and the appendix)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from experiments.courses import Checkpoint, Course, RehearsingRow, middle_of, once
from experiments.networks import Network
from experiments.rows import Job, Results
from experiments.selectors import LAMBDA, Noisy, Picker, context_of
from experiments.stores import ByMoments, Keeping, TaskMemory, keep_jointly, keep_shares
from experiments.tasks import Task
from experiments.training import Cohort, Learner, Memory, build, lasting, scores

#: A long run is kept so often in a task.
TASK_PARTS = 4
#: What a record calls the scores of a network whose statistics are those of its memory.
RECALIBRATED = "recalibrated"


@dataclass(frozen=True, kw_only=True)
class ContinualRow(RehearsingRow):
    """Task after task, with rehearsal of what the ``picker`` has chosen from each of those before,
    or ``jointly`` from all of them; without either nothing is rehearsed. ``noisy`` networks are
    looked at with dropout on. ``recalibrated``, a network is tested with its statistics of the
    memory too."""

    picker: Picker | None
    jointly: ByMoments | None = None
    noisy: bool = False
    recalibrated: bool = False

    @property
    def rehearsed(self) -> bool:
        return not (self.picker is None and self.jointly is None) and not self.at_end

    def keeping(self, job: Job) -> Keeping | None:
        """How points of the tasks are kept."""
        if self.jointly is not None:
            return keep_jointly(self.jointly, self.memory, job.seed)
        if self.picker is None:
            return None
        selector = self.picker.selector(self.problem, job.device, self.penalty)
        return keep_shares(self.picker, selector, self.memory, job.seed)

    def toy(self) -> Self:
        return replace(super().toy(), penalty=LAMBDA)

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        every = max(1, self.epochs // TASK_PARTS)
        return run(self, job, tasks, middle_of(self, job, f"{self.epochs}", self.penalty, every))


def run(
    row: ContinualRow, job: Job, tasks: Sequence[Task], checkpoint: Checkpoint | None = None
) -> Results:
    """Results for each β. A selector that looks at no network chooses once for all of them."""
    begun = time.perf_counter()
    keeping = row.keeping(job)
    memories = [] if keeping is None else _memories(keeping, job)
    course = Course(_learners(row, job, tasks), checkpoint, memories, begun=begun)
    course.resume(None if keeping is None else keeping.load)
    train = _train_at_the_end if row.at_end else _train_on_each
    train(course, row, job, tasks, keeping)
    spent = {
        **course.spent(len(job.values)),
        "epochs": row.epochs,
        **({"lambda": row.penalty} if keeping is not None and keeping.penalised else {}),
    }
    for which, (beta, learner) in enumerate(zip(job.values, course.learners, strict=True)):
        found: dict[str, Any] = {**scores(learner.network, tasks, job.device, job.fast)}
        if row.recalibrated:
            kept = course.kept[min(which, len(course.kept) - 1)]
            recalibrate(learner.network, _rows(kept, job.device))
            found[RECALIBRATED] = scores(learner.network, tasks, job.device, job.fast)
        yield beta, {**found, **spent}
    course.end()


def _learners(row: ContinualRow, job: Job, tasks: Sequence[Task]) -> Cohort[Learner]:
    """One for each β, with room for the points of a task or for those of the memory."""
    points = row.memory // len(tasks) * len(tasks) if row.at_end else len(tasks[0].train)
    return Cohort([row.learner(job, beta, points, row.memory, row.epochs) for beta in job.values])


def _memories(keeping: Keeping, job: Job) -> list[TaskMemory]:
    """One for each β where networks are looked at, otherwise one for all."""
    return [keeping.memory() for _ in (job.values if keeping.looks else [None])]


def _train_on_each(
    course: Course[TaskMemory],
    row: ContinualRow,
    job: Job,
    tasks: Sequence[Task],
    keeping: Keeping | None,
) -> None:
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
                learner.take(*lasting(task.train, job.device))
            if not course.place.epochs:
                learner.restart()
        course.train(row.epochs if number else 0)
        _remember(course, row, job, task, keeping)
        course.rehearse(rows)


def _train_at_the_end(
    course: Course[TaskMemory],
    row: ContinualRow,
    job: Job,
    tasks: Sequence[Task],
    keeping: Keeping | None,
) -> None:
    """Choose from all tasks, then train on the memory alone."""
    for task in tasks[course.place.task :]:
        _remember(course, row, job, task, keeping)
    course.place.task = len(tasks)
    rows = _rows(course.kept[0], job.device)
    for learner in course.learners:
        learner.take(rows.x, rows.y)
    course.train(row.epochs)


def _remember(
    course: Course[TaskMemory], row: ContinualRow, job: Job, task: Task, keeping: Keeping | None
) -> None:
    """Let every memory choose from a task; what looks at networks sees them as they are now."""
    if keeping is None:
        return
    place = keeping.place(job.device)
    with course.choosing():
        for memory, learner in zip(course.kept, course.learners, strict=False):
            seen = None
            if keeping.looks:
                seen = Noisy(learner.network) if row.noisy else learner.network.eval()
            memory.add_task(task.train.x, task.train.y, model=context_of(place, seen))


def _start(
    row: ContinualRow, job: Job, task: Task, checkpoint: Checkpoint | None
) -> dict[str, Tensor]:
    """The network after the first task, of this process or of the one that made it first."""
    given = (row.network.make, job.seed, task, job.device, row.epochs, job.fast)
    if checkpoint is None or checkpoint.start is None:
        return started(*given)
    within = replace(checkpoint, folder=checkpoint.start.with_suffix(""), start=None)
    return once(checkpoint.start, lambda: _first(*given, within))


@lru_cache(maxsize=4)
def started(
    network: Callable[[], Network],
    seed: int,
    task: Task,
    device: str,
    epochs: int,
    fast: bool = True,
) -> dict[str, Tensor]:
    """The network after the first task. No memory and no β have a part in it: every row of a seed
    goes on from here."""
    return _first(network, seed, task, device, epochs, fast)


def _first(
    network: Callable[[], Network],
    seed: int,
    task: Task,
    device: str,
    epochs: int,
    fast: bool,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    points = len(task.train)
    learner = Learner(build(network, seed, device), 0.0, points, 1, epochs, seed=seed, fast=fast)
    learner.take(*lasting(task.train, device))
    course: Course[TaskMemory] = Course(Cohort([learner]), checkpoint)
    # the same whether or not it was made before
    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):
        torch.manual_seed(seed)
        course.resume()
        course.train(epochs)
    course.end()
    return {name: value.clone() for name, value in learner.network.state_dict().items()}


def recalibrate(network: Network, memory: Memory) -> None:
    """Statistics of the memory, in which all tasks have their part, in place of those that the last
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


def _rows(memory: TaskMemory, device: str) -> Memory:
    x, y, weight = memory.tensors()
    return Memory(x.float().to(device), y.to(device), (weight / len(weight)).float().to(device))
