"""Training with rehearsal: the current points in batches, and with every step all of the memory.

The loss of a step is that of a batch plus β times the memory's: the sum over its parts of their mean losses. Trainings that differ
in β or seed run side by side. On a GPU a step is recorded once as a CUDA graph; the data, their order and the memory lie on the
device, and nothing but replays comes from the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.tasks import Part, Task

RATE, EPOCHS, BATCH = 5e-4, 400, 256
#: Of an image.
SHAPE = (1, 28, 28)
#: Steps before one is recorded.
WARM_UP = 3


@dataclass(eq=False)
class Memory:
    """Rows to rehearse; the sum of weight·loss is their part of a step."""

    x: Tensor
    y: Tensor
    weight: Tensor


def build(network: Callable[[], nn.Module], seed: int, device: str) -> nn.Module:
    """The network with weights of this seed, wherever it is trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network().to(device)


class Learner:
    """A network in training.

    Points and memory have room of a fixed size, so that a step recorded once serves all tasks; places of the memory that are not
    taken weigh nothing. Batches of two sizes occur (the last of an epoch is smaller): a graph for each.
    """

    def __init__(
        self, network: nn.Module, beta: float, points: int, rows: int, batch: int = BATCH, rate: float = RATE, seed: int = 0
    ) -> None:
        device = next(network.parameters()).device
        self.network, self.beta, self.batch = network, beta, min(batch, points)
        self.generator = torch.Generator().manual_seed(seed)
        self.sizes = [min(self.batch, points - start) for start in range(0, points, self.batch)]
        self.x, self.y = torch.zeros(points, *SHAPE, device=device), torch.zeros(points, dtype=torch.long, device=device)
        self.weight = torch.ones(points, device=device)
        self.memory = Memory(
            torch.zeros(rows, *SHAPE, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
            torch.zeros(rows, device=device),
        )
        self.order = torch.zeros(0, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(self.batch, device=device)
        captured = {"capturable": True, "fused": True} if device.type == "cuda" else {}
        self.optimiser = torch.optim.Adam(network.parameters(), lr=rate, **captured)
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.made = 0

    def take(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """The points to train on from now, with weights of mean 1."""
        self.x.copy_(x)
        self.y.copy_(y)
        if weight is not None:
            self.weight.copy_(weight)

    def rehearse(self, memory: Memory) -> None:
        """The rows to rehearse from now."""
        count = len(memory.x)
        self.memory.weight.zero_()
        for mine, given in ((self.memory.x, memory.x), (self.memory.y, memory.y), (self.memory.weight, memory.weight)):
            mine[:count] = given

    def restart(self) -> None:
        """Forget the optimiser's averages, as a fresh optimiser would."""
        for state in self.optimiser.state.values():
            for value in state.values():
                value.zero_()

    def shuffle(self, epochs: int) -> int:
        """Draw the order of the next passes; the number of steps they take."""
        orders = torch.cat([torch.randperm(len(self.x), generator=self.generator) for _ in range(epochs)])
        if len(self.order) != len(orders):
            self.order = torch.zeros(len(orders), dtype=torch.long, device=self.x.device)
            self.graphs = {}
        self.order.copy_(orders)
        self.position.zero_()
        self.network.train()
        return epochs * len(self.sizes)

    def step(self, number: int) -> None:
        size = self.sizes[number % len(self.sizes)]
        if self.stream is None:
            self._step(size)
            return
        with torch.cuda.stream(self.stream):
            if self.made < WARM_UP:
                self._step(size)
                self.made += 1
            elif size in self.graphs:
                self.graphs[size].replay()
            else:
                self.graphs[size] = graph = torch.cuda.CUDAGraph()
                self.optimiser.zero_grad(set_to_none=True)
                with torch.cuda.graph(graph, stream=self.stream):
                    self._step(size)
                graph.replay()

    def _step(self, size: int) -> None:
        rows = self.order.index_select(0, self.position + self.places[:size])
        self.position += size
        self.optimiser.zero_grad(set_to_none=True)
        self._loss(*(values.index_select(0, rows) for values in (self.x, self.y, self.weight))).backward()
        self.optimiser.step()

    def _loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        if self.beta == 0:
            return (F.cross_entropy(self.network(x), y, reduction="none") * weight).mean()
        outputs = self.network(torch.cat([x, self.memory.x]))
        rehearsed = F.cross_entropy(outputs[len(x) :], self.memory.y, reduction="none") @ self.memory.weight
        return (F.cross_entropy(outputs[: len(x)], y, reduction="none") * weight).mean() + self.beta * rehearsed


def train(learners: Sequence[Learner], epochs: int) -> None:
    """So many passes over the points each has taken, all learners in step."""
    if not learners:
        return
    counts = {learner.shuffle(epochs) for learner in learners}
    if learners[0].stream is not None:
        for learner in learners:
            assert learner.stream is not None
            learner.stream.wait_stream(torch.cuda.current_stream())
    for number in range(max(counts)):
        for learner in learners:
            learner.step(number)
    if learners[0].stream is not None:
        torch.cuda.synchronize()


def accuracy(network: nn.Module, parts: Sequence[Part], device: str) -> list[float]:
    """The share of right answers on each part."""
    network.eval()
    scores = []
    with torch.no_grad():
        for part in parts:
            x, y = tensors(part, device)
            right = sum(
                int((network(x[start : start + 2000]).argmax(1) == y[start : start + 2000]).sum())
                for start in range(0, len(x), 2000)
            )
            scores.append(right / len(x))
    return scores


def scores(network: nn.Module, tasks: Sequence[Task], device: str) -> dict[str, list[float]]:
    """Accuracy on every task's test points, and on its held-out ones."""
    return {kind: accuracy(network, [getattr(task, kind) for task in tasks], device) for kind in ("test", "held")}


def tensors(part: Part, device: str) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(np.ascontiguousarray(part.x)).to(device), torch.from_numpy(part.y.astype(np.int64)).to(device)
