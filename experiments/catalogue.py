"""Every experiment of the paper by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments import cifar_tables, mnist_tables
from experiments.rows import Row


@dataclass(frozen=True)
class Experiment:
    """One table of the paper. Rows are asked for again and again: some of their facts are found by
    other experiments."""

    name: str
    title: str
    rows: Callable[[], list[Row]]
    #: Whether it is run with seed 0 alone.
    one_seed: bool = False

    def seeds(self, wanted: int) -> Sequence[int]:
        """Of so many that are wanted."""
        return range(min(1, wanted) if self.one_seed else wanted)


_ON_MNIST = (
    Experiment(
        "continual",
        "Continual learning with a memory of 100 (table 1 and the appendix)",
        mnist_tables.continual_table,
    ),
    Experiment(
        "traps",
        "Continual learning, rivals as the authors' code runs them",
        mnist_tables.trap_table,
    ),
    Experiment("memory", "Memory sizes on SplitMNIST", mnist_tables.memory_table),
    Experiment("proxy", "An RBF kernel as the proxy", mnist_tables.proxy_table),
    Experiment(
        "vcl", "Variational continual learning, 20 points a task", mnist_tables.variational_table
    ),
    Experiment(
        "streaming", "Streams with a memory of 100 (figure 4)", mnist_tables.streaming_table
    ),
    Experiment(
        "streaming-fresh",
        "Streams with a fresh optimiser a batch, as the authors' code has it",
        mnist_tables.fresh_table,
    ),
    Experiment(
        "streaming-fresh-sizes",
        "Streams with a fresh optimiser a batch and a memory of 50, 100 and 200",
        mnist_tables.fresh_size_table,
    ),
    Experiment(
        "streaming-sizes",
        "Streams with a memory of 50, 100 and 200",
        mnist_tables.stream_size_table,
    ),
    Experiment("imbalanced", "An imbalanced stream of SplitMNIST", mnist_tables.imbalanced_table),
    Experiment(
        "imbalanced-fresh",
        "The imbalanced stream with a fresh optimiser a batch",
        mnist_tables.imbalanced_fresh_table,
    ),
    Experiment(
        "imbalanced-sizes",
        "The imbalanced stream with a memory of 50, 100 and 200",
        mnist_tables.imbalanced_size_table,
    ),
    Experiment(
        "imbalanced-fresh-sizes",
        "The imbalanced stream with a fresh optimiser a batch and a memory of 50, 100 and 200",
        mnist_tables.imbalanced_fresh_size_table,
    ),
    Experiment(
        "summary", "MNIST in 75 … 250 points for the CNN (figure 3a)", mnist_tables.summary_table
    ),
    Experiment(
        "picks",
        "The 40 picks of figure 5 and what the paper says of them",
        mnist_tables.picks_table,
    ),
    Experiment(
        "runtime",
        "Seconds of kernels and coresets of 1000 points",
        mnist_tables.runtime_table,
        one_seed=True,
    ),
)
_ON_CIFAR = (
    Experiment(
        "cifar-penalty",
        "SplitCIFAR-10: λ by the proxy's held-out loss",
        cifar_tables.penalty_table,
        one_seed=True,
    ),
    Experiment(
        "cifar-betas",
        "SplitCIFAR-10: β by held-out points, one seed, fewer epochs",
        cifar_tables.beta_table,
        one_seed=True,
    ),
    Experiment(
        "cifar-stream-betas",
        "Streams of SplitCIFAR-10: β by held-out points, fewer steps",
        cifar_tables.stream_beta_table,
        one_seed=True,
    ),
    Experiment(
        "cifar-imbalanced", "An imbalanced stream of SplitCIFAR-10", cifar_tables.imbalanced_table
    ),
    Experiment(
        "cifar-continual",
        "Continual learning on SplitCIFAR-10 with a memory of 200",
        cifar_tables.continual_table,
    ),
    Experiment(
        "cifar-normalised",
        "SplitCIFAR-10 with networks that are normalised, many seeds, fewer epochs",
        cifar_tables.normalised_table,
    ),
    Experiment(
        "cifar-streaming", "A balanced stream of SplitCIFAR-10", cifar_tables.streaming_table
    ),
    Experiment(
        "cifar-summary",
        "CIFAR-10 in 30 … 210 points for the ResNet-18 (figure 3c)",
        cifar_tables.summary_table,
    ),
    Experiment(
        "cifar-proxy", "An RBF kernel as the proxy on SplitCIFAR-10", cifar_tables.proxy_table
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in (*_ON_MNIST, *_ON_CIFAR)}
