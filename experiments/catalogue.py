"""Every experiment of the paper by name, those on MNIST first."""

from experiments import cifar_tables, mnist_tables, rows

__all__ = ["EXPERIMENTS", "cifar_tables", "mnist_tables"]

EXPERIMENTS = dict(sorted(rows.EXPERIMENTS.items(), key=lambda pair: pair[0].startswith("cifar")))
