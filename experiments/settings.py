"""What a group of runs has in common: everything but the one number that is tried or varied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """``betas`` are the values tried, ``quick`` those of a toy, ``varies`` what they are called in
    a record.

    Most are β; VCL tries weights of its divergence, and where the size itself varies it takes the
    memory's place. None: there is nothing to try.
    """

    dataset: str
    method: str
    memory: int
    seed: int
    betas: tuple[float, ...] = (0.0,)
    quick: tuple[float, ...] = (0.0,)
    varies: str | None = None

    def key(self, beta: float) -> dict[str, Any]:
        """The configuration of one run, by which its record is named."""
        key: dict[str, Any] = {
            "dataset": self.dataset,
            "method": self.method,
            "memory": self.memory,
        }
        if self.varies is not None:
            key[self.varies] = int(beta) if self.varies == "memory" else beta
        return {**key, "seed": self.seed}
