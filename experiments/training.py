"""Training with rehearsal: batches of the current rows, and the whole memory at every step.

The loss of a step is that of a batch plus β times the memory's: the sum over its parts of their
mean losses. Trainings that differ in β run side by side. On a GPU an epoch of all of them is
recorded once as a CUDA graph with a branch for each; data, order and memory lie on the device, and
nothing but a replay an epoch comes from the host.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.networks import Network
from experiments.tasks import Part, Task

RATE = 5e-4
EPOCHS = 400
BATCH = 256


@dataclass(eq=False)
class Memory:
    """Rows to rehearse; the sum of weight·loss is their part of a step."""

    x: Tensor
    y: Tensor
    weight: Tensor


def build(network: Callable[[], Network], seed: int, device: str) -> Network:
    """The network with weights of this seed, wherever it is trained; nothing else is drawn anew."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed is that of GPUs too
        made = network()
    return made.to(device, memory_format=made.layout)


class Passes(ABC):
    """Points in random batches, pass after pass, each a step down the ``loss`` of a batch.

    Everything has its fixed place, so that a pass recorded once serves as long as there is room.
    ``fast`` lets products use fewer bits on a GPU.
    """

    optimiser: torch.optim.Optimizer
    #: Whether the fastest algorithm of every convolution is looked for.
    searched = False
    #: Whether products are in bfloat16.
    mixed = False

    def __init__(
        self,
        points: int,
        passes: int,
        batch: int,
        generator: torch.Generator,
        device: torch.device,
        fast: bool = True,
    ) -> None:
        self.fast = fast
        self.points = points
        self.passes = passes
        self.generator = generator
        self.device = device
        self.sizes = [min(batch, points - start) for start in range(0, points, batch)]
        self.order = torch.zeros(passes * points, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(self.sizes[0], device=device)

    def shuffle(self, epochs: int) -> None:
        """Draw the order of the next passes."""
        if epochs > self.passes:
            raise ValueError(
                f"epochs={epochs} are more than the {self.passes} passes there is room for; raise "
                "passes."
            )
        drawn = {"generator": self.generator, "device": self.generator.device}
        orders = torch.cat([torch.randperm(self.points, **drawn) for _ in range(epochs)])
        self.order[: len(orders)] = orders.to(self.device)
        self.position.zero_()

    def epoch(self) -> None:
        """One pass over the points."""
        for size in self.sizes:
            rows = self.order.index_select(0, self.position + self.places[:size])
            self.position += size
            self.optimiser.zero_grad(set_to_none=True)
            self.loss(rows).backward()
            self.optimiser.step()

    @abstractmethod
    def loss(self, rows: Tensor) -> Tensor:
        """Of the batch with these rows."""


def adam(
    parameters: Iterable[nn.Parameter], rate: float, device: torch.device, decay: float = 0.0
) -> torch.optim.Adam:
    """An optimiser whose steps can be recorded."""
    recorded = {"capturable": True, "fused": True} if device.type == "cuda" else {}
    return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, **recorded)


class Learner(Passes):
    """A network in training. Places of the memory that are not taken weigh nothing."""

    def __init__(
        self,
        network: Network,
        beta: float,
        points: int,
        rows: int,
        passes: int = EPOCHS,
        batch: int = BATCH,
        rate: float = RATE,
        seed: int = 0,
        decay: float = 0.0,
        fast: bool = True,
    ) -> None:
        device = next(network.parameters()).device
        super().__init__(points, passes, batch, torch.Generator().manual_seed(seed), device, fast)
        self.network = network
        self.beta = beta
        self.searched = network.searched
        self.mixed = device.type == "cuda" and fast and network.mixed
        compiled = self.mixed and network.compiled
        self.call: Callable[[Tensor], Tensor] = (
            torch.compile(network, dynamic=True) if compiled else network
        )
        kind = torch.bfloat16 if self.mixed else torch.float32
        shape = network.prepare(torch.zeros(1, *network.shape)).shape[1:]
        self.x = torch.zeros(points, *shape, device=device, dtype=kind)
        self.y = torch.zeros(points, dtype=torch.long, device=device)
        self.weight = torch.ones(points, device=device)
        self.memory = Memory(
            torch.zeros(rows, *shape, device=device, dtype=kind),
            torch.zeros(rows, dtype=torch.long, device=device),
            torch.zeros(rows, device=device),
        )
        self.optimiser = adam(network.parameters(), rate, device, decay)

    def take(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """The points to train on from now, with weights of mean 1."""
        self.x.copy_(self.network.prepare(x))
        self.y.copy_(y)
        if weight is not None:
            self.weight.copy_(weight)

    def rehearse(self, memory: Memory) -> None:
        """The rows to rehearse from now."""
        count = len(memory.x)
        self.memory.weight.zero_()
        self.memory.x[:count] = self.network.prepare(memory.x)
        self.memory.y[:count], self.memory.weight[:count] = memory.y, memory.weight

    def restart(self) -> None:
        """Forget the optimiser's averages, as a fresh optimiser would."""
        for state in self.optimiser.state.values():
            for value in state.values():
                value.zero_()

    def state(self) -> dict[str, Any]:
        """Everything that training changes."""
        parts = {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}
        return {**parts, "generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])

    def shuffle(self, epochs: int) -> None:
        super().shuffle(epochs)
        self.network.train()

    def loss(self, rows: Tensor) -> Tensor:
        x, y, weight = (values.index_select(0, rows) for values in (self.x, self.y, self.weight))
        memory = self.memory
        both = torch.cat([x, memory.x]) if self.beta else x
        outputs = self._outputs(self.network.view(both))
        current = (F.cross_entropy(outputs[: len(x)], y, reduction="none") * weight).mean()
        if self.beta == 0:
            return current
        losses = F.cross_entropy(outputs[len(x) :], memory.y, reduction="none")
        return current + self.beta * (losses @ memory.weight)

    def _outputs(self, x: Tensor) -> Tensor:
        if not self.mixed:
            return self.call(x)
        # a recorded step must cast the weights anew
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return self.call(x).float()


class Cohort:
    """Learners that train in step, side by side on a GPU."""

    def __init__(self, learners: Sequence[Passes]) -> None:
        self.learners = list(learners)
        on_gpu = bool(self.learners) and self.learners[0].device.type == "cuda"
        self.streams = [torch.cuda.Stream() for _ in self.learners] if on_gpu else []
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def precision(self) -> str:
        """Of the products: bfloat16, tf32 or float32; weights and sums are float32."""
        if not self.streams or not self.learners[0].fast:
            return "float32"
        return "bfloat16" if self.learners[0].mixed else "tf32"

    def __iter__(self) -> Iterator[Passes]:
        return iter(self.learners)

    def train(self, epochs: int) -> None:
        """Train every learner for ``epochs`` passes over its points."""
        if not self.learners or not epochs:
            return
        for learner in self.learners:
            learner.shuffle(epochs)
        if self.streams:
            self._replay(epochs)
        else:
            for _ in range(epochs):
                for learner in self.learners:
                    learner.epoch()
        self._check()

    def _replay(self, epochs: int) -> None:
        if self.graph is None:
            self._run_side_by_side()
            epochs -= 1
            self.graph = self._record() if epochs else None
        for _ in range(epochs):
            assert self.graph is not None
            self.graph.replay()
        torch.cuda.synchronize()

    def _check(self) -> None:
        """A breakdown must not end as a record of a network that knows nothing."""
        for learner in self.learners:
            groups = learner.optimiser.param_groups
            sums = [value.detach().sum() for group in groups for value in group["params"]]
            if not torch.isfinite(torch.stack(sums)).all():
                raise ArithmeticError("a training broke down: weights are not finite.")

    def _run_side_by_side(self) -> None:
        """One epoch, each learner on a stream of its own."""
        main = torch.cuda.current_stream()
        for learner, stream in zip(self.learners, self.streams, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream), products(learner.fast, learner.searched):
                learner.epoch()
        for stream in self.streams:
            main.wait_stream(stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize()
        for learner in self.learners:
            learner.optimiser.zero_grad(set_to_none=True)  # gradients get a place inside the graph
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run_side_by_side()
        return graph


@contextmanager
def products(tf32: bool, searched: bool) -> Iterator[None]:
    """For the training alone; everything else goes by torch's own switches."""
    switches = (
        (torch.backends.cuda.matmul, "allow_tf32", tf32),
        (torch.backends.cudnn, "allow_tf32", tf32),
        (torch.backends.cudnn, "benchmark", searched),
    )
    before = [getattr(place, name) for place, name, _ in switches]
    for place, name, value in switches:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name, _), value in zip(switches, before, strict=True):
            setattr(place, name, value)


def accuracy(
    network: nn.Module, parts: Sequence[Part], device: str, fast: bool = True
) -> list[float]:
    """The share of right answers on each part."""
    network.eval()
    scores = []
    with torch.no_grad(), nullcontext() if fast else products(False, False):
        for part in parts:
            x, y = cached_tensors(part, device)
            right = [
                (network(x[k : k + 2000]).argmax(1) == y[k : k + 2000]).sum()
                for k in range(0, len(x), 2000)
            ]
            scores.append(float(torch.stack(right).sum()) / len(x))
    return scores


def scores(
    network: nn.Module, tasks: Sequence[Task], device: str, fast: bool = True
) -> dict[str, list[float]]:
    """Accuracy on every task's test points, and on its held-out ones."""
    return {
        kind: accuracy(network, [getattr(task, kind) for task in tasks], device, fast)
        for kind in ("test", "held")
    }


def tensors(part: Part, device: str) -> tuple[Tensor, Tensor]:
    x, y = np.ascontiguousarray(part.x), part.y.astype(np.int64)
    return torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)


@lru_cache(maxsize=64)
def cached_tensors(part: Part, device: str) -> tuple[Tensor, Tensor]:
    """The same for parts that are asked for again and again: they stay on the device."""
    return tensors(part, device)
