"""The answer to what chosen rows are worth, and its price: numbers, a sentence, a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicore.evaluate.equivalence import Equivalent, Verdict
from bicore.selectors.large import human_seconds


@dataclass(frozen=True)
class Price:
    """What a worth is expected to take.

    Parameters
    ----------
    fits, selections : int
        How often the judge is trained, and how often rows are selected.
    seconds : float
        All of it.

    Examples
    --------
    >>> print(Price(fits=150, selections=10, seconds=12.3))
    about 150 fits and 10 selections, some 12 s
    """

    fits: int
    selections: int
    seconds: float

    def __str__(self) -> str:
        plural = "" if self.selections == 1 else "s"
        more = f" and {self.selections} selection{plural}" if self.selections else ""
        return f"about {self.fits} fits{more}, some {human_seconds(self.seconds)}"


@dataclass(frozen=True)
class Worth:
    """How many random rows score as much as the chosen ones.

    ``str`` gives the sentence. Its interval is at 95%: a size is in it where a paired test over the
    seeds does not tell its random rows from the chosen ones.

    Parameters
    ----------
    size : int
        How many rows were chosen.
    rivals : tuple of Equivalent
        The random rows: drawn uniformly, and for classes also evenly from each.
    score, spread : float
        Of the chosen rows: the mean over seeds, and the standard deviation.
    metric : str
        "accuracy" or "R²".
    judge : str
        The model that was trained.
    seeds : int
        How many repetitions.
    tested : str
        On what it was tested, in words.
    fits : int
        How often the judge was trained.

    Examples
    --------
    >>> import bicore
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> found = bicore.worth(x, np.sin(3 * x[:, 0]), 20, kernel="rbf", seeds=4)
    >>> found.size, found.low <= found.rows <= found.high
    (20, True)
    """

    size: int
    rivals: tuple[Equivalent, ...]
    score: float
    spread: float
    metric: str
    judge: str
    seeds: int
    tested: str
    fits: int

    @property
    def rows(self) -> float:
        """Uniformly drawn rows of the same mean score; ``inf`` where no random sample has it."""
        return self.rivals[0].rows

    @property
    def low(self) -> float:
        """The lower end of its interval."""
        return self.rivals[0].low

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        return self.rivals[0].high

    @property
    def verdict(self) -> Verdict:
        """Random is enough where one way to draw is, and better where a uniform draw is."""
        found = [rival.verdict for rival in self.rivals]
        if found[0] is Verdict.LESS:
            return Verdict.LESS
        alone = all(verdict is Verdict.MORE for verdict in found)
        return Verdict.MORE if alone else Verdict.ENOUGH

    def __str__(self) -> str:
        words = f"{self.size} rows are worth {' and '.join(map(str, self.rivals))}"
        if self.verdict is Verdict.MORE:
            return words
        evenly = self.rivals[0].verdict is Verdict.MORE
        return f"{words}: {self.verdict}{', drawn evenly from the classes' if evenly else ''}"

    def how(self) -> str:
        """On what the sentence rests.

        Returns
        -------
        str
            Another sentence: the judge, its score and what it was tested on.
        """
        return (
            f"{self.metric} {self.score:.4f} of the {self.judge} judge {self.tested}; intervals at "
            f"95%, {self.fits} fits"
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for a JSON file.

        Returns
        -------
        dict
            Numbers by name, and the sentence; None stands for more than any random sample.
        """
        first = self.rivals[0].as_dict()
        return {
            "sentence": str(self),
            "size": self.size,
            **{name: first[name] for name in ("rows", "low", "high")},
            "verdict": self.verdict.value,
            "score": self.score,
            "spread": self.spread,
            "metric": self.metric,
            "judge": self.judge,
            "seeds": self.seeds,
            "tested": self.tested,
            "fits": self.fits,
            "rivals": [rival.as_dict() for rival in self.rivals],
        }
