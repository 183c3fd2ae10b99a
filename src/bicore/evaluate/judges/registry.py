"""Judges by name: a new one is a file and a line of the table."""

from __future__ import annotations

from collections.abc import Callable

from bicore.errors import unknown_name
from bicore.evaluate.judges.architectures import convolutional, perceptron
from bicore.evaluate.judges.base import Judge
from bicore.evaluate.judges.boosting import BoostingJudge
from bicore.evaluate.judges.forest import ForestJudge
from bicore.evaluate.judges.logistic import LogisticJudge
from bicore.evaluate.judges.nearest import NearestJudge
from bicore.evaluate.judges.network import NetworkJudge
from bicore.evaluate.judges.ridge import RidgeJudge

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
