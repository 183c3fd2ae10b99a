"""Judges by name: a new one is a file and a line of the table."""

from __future__ import annotations

from collections.abc import Callable

from bicore.comparison.judges.architectures import convolutional, perceptron
from bicore.comparison.judges.base import Judge
from bicore.comparison.judges.boosting import BoostingJudge
from bicore.comparison.judges.forest import ForestJudge
from bicore.comparison.judges.logistic import LogisticJudge
from bicore.comparison.judges.nearest import NearestJudge
from bicore.comparison.judges.network import NetworkJudge
from bicore.comparison.judges.ridge import RidgeJudge
from bicore.errors import unknown_name

#: Each is built from the training steps that were asked for, of which only networks make use.
JUDGES: dict[str, Callable[[int], Judge]] = {
    "ridge": lambda steps: RidgeJudge(),
    "logistic": lambda steps: LogisticJudge(),
    "forest": lambda steps: ForestJudge(),
    "boosting": lambda steps: BoostingJudge(),
    "knn": lambda steps: NearestJudge(),
    "mlp": lambda steps: NetworkJudge("mlp", perceptron, steps),
    "cnn": lambda steps: NetworkJudge("cnn", convolutional, steps),
}


def as_judge(name: str, steps: int) -> Judge:
    """A judge by name.

    Parameters
    ----------
    name : {"ridge", "logistic", "forest", "boosting", "knn", "mlp", "cnn"}
        Kernel ridge regression, logistic regression (ridge regression for targets), a random
        forest, boosted trees, nearest neighbours, or one of the paper's networks.
    steps : int
        Training steps of a network.

    Returns
    -------
    Judge
        The judge.

    Raises
    ------
    InputError
        Where the name is not known.

    Examples
    --------
    >>> as_judge("mlp", steps=500).name
    'mlp'
    """
    if name not in JUDGES:
        raise unknown_name("judge", name, JUDGES)
    return JUDGES[name](steps)
