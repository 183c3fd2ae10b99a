"""What is asked of a selection from shards, and how its points fall into passes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from bicore.errors import InputError, unknown_name
from bicore.moments.features import FeatureMap, Rows, WithConstant, as_feature_map
from bicore.runtime import Runtime
from bicore.shards.quotas import check_wish
from bicore.shards.room import Shape, most_listed, most_pairs, shape_of
from bicore.sources.parts import Chunk, ShardSource

#: ρ as a share of the mean of ‖φ‖².
SHARE = 0.1
#: Rows that a pass returns in all, and if it gives one point only.
SHORTLIST, SHORTLIST_OF_ONE = 8192, 256
#: Rows of a part that come with their features: at least, and as a multiple of an equal share. If
#: more of a part are among the best, it is read again.
LEAST_OF_PART, SHARES_OF_PART = 16, 2
#: Points taken from a pass: at least, and as a share of those there are. In trials with 10 000
#: embeddings the objective stayed within half a percent of one point a pass.
LEAST_A_PASS, SHARE_A_PASS = 1, 0.2
#: Exchanges at the end are made among so many rows at most, fewer under a memory limit: their pairs
#: are held.
MOST_EXCHANGED = 1500
#: Passes that look for exchanges, at most.
ROUNDS = 3
#: Rows that a feature map is settled on.
FIRST_ROWS = 1000
#: The square of the constant feature, as a share of the mean of ‖φ‖².
INTERCEPT = 1.0
RULES = ("gain", "gradient")


@dataclass(frozen=True)
class Request:
    """What is asked of a selection from shards, checked.

    Parameters
    ----------
    size : int
        How many points.
    features : FeatureMap
        What rows are compared in; by default the rows, brought to length 1.
    rule : {"gain", "gradient"}
        How points are taken from a shortlist.
    passes : {"auto", "exact"}
        How many points a pass gives: some, or one, which is exact.
    inner_reg : float, optional
        ρ as a share of the mean of ‖φ‖².
    prior : str or mapping
        "data", "equal", or shares by label.
    exchange : bool
        Whether exchanges are made among the chosen and their runners-up at the end.
    quotas : "balanced" or mapping, optional
        One point of every class a round, or the most points by label.
    skip_bad : bool
        Whether rows that are not finite are left out and counted; else they are an error.
    shortlist : int
        Rows that a pass returns.
    most_exchanged : int
        Rows among which exchanges are made, at most: their pairs are held.

    Examples
    --------
    >>> Request(10).rule
    'gain'
    """

    size: int
    features: FeatureMap = field(default_factory=lambda: Rows().unit())
    rule: str = "gain"
    passes: str = "auto"
    inner_reg: float = SHARE
    prior: Any = "data"
    exchange: bool = True
    quotas: Any = None
    skip_bad: bool = False
    shortlist: int = SHORTLIST
    most_exchanged: int = MOST_EXCHANGED

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown_name("rule", self.rule, RULES)
        if self.passes not in ("auto", "exact"):
            raise unknown_name("passes", self.passes, ("auto", "exact"))
        check_wish(self.quotas)
        self._check_regulariser()

    def within(self, runtime: Runtime) -> Request:
        """The same under a memory limit, where one was given: what is free changes no picks.

        Parameters
        ----------
        runtime : Runtime
            With the limit.

        Returns
        -------
        Request
            With a shorter shortlist, and fewer rows among which exchanges are made, where these
            would not fit.
        """
        if runtime.memory is None:
            return self
        limit = runtime.memory_bytes()
        return replace(
            self,
            shortlist=min(self.shortlist, most_listed(limit, self.features.width)),
            most_exchanged=min(self.most_exchanged, most_pairs(limit)),
        )

    def _check_regulariser(self) -> None:
        if not (np.isfinite(self.inner_reg) and self.inner_reg > 0):
            raise InputError(
                f"inner_reg={self.inner_reg!r} is not a positive number; give a share of the mean "
                "of ‖φ‖² such as 0.1."
            )


def rows_of_a_pass(request: Request) -> int:
    """How many rows are looked at closely."""
    exact = request.passes == "exact"
    return min(request.shortlist, SHORTLIST_OF_ONE) if exact else request.shortlist


def rows_of_a_part(request: Request, parts: int) -> int:
    """How many rows of each part come with their features."""
    return max(LEAST_OF_PART, SHARES_OF_PART * rows_of_a_pass(request) // parts)


def lengths(source: ShardSource, request: Request) -> Shape:
    """What memory and work of a selection depend on."""
    listed = min(source.rows, rows_of_a_pass(request))
    most = request.most_exchanged
    asked = request.exchange and request.passes != "exact" and request.size < most
    exchanged = min(most, request.size + listed) if asked else 0
    return shape_of(
        source, request.features, request.size, listed, exchanged, request.prior != "data"
    )


def points_of_a_pass(done: int, size: int, exact: bool) -> int:
    """How many points the next pass gives."""
    if exact:
        return 1
    return min(size - done, max(LEAST_A_PASS, int(SHARE_A_PASS * done)))


def passes_left(done: int, size: int, exact: bool) -> int:
    """How many passes the points that are missing take, exchanges apart."""
    if exact:
        return size - done
    count = 0
    while done < size:
        done += points_of_a_pass(done, size, exact)
        count += 1
    return count


def settle_features(features: Any, intercept: float | str, source: ShardSource) -> FeatureMap:
    """The map that rows of a source are compared in, with its constant feature."""
    chosen = Rows().unit() if features is None else as_feature_map(features)
    share = INTERCEPT if intercept == "auto" else intercept
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share < np.inf:
        raise InputError(
            f"intercept={intercept!r} must be 'auto' or a share >= 0 of the mean of ‖φ‖² (0: none)."
        )
    if share > 0 and not isinstance(chosen, WithConstant):
        chosen = WithConstant(chosen, float(share), reason=chosen.reason)
    return chosen.fit(first_rows(source).x)


def first_rows(source: ShardSource) -> Chunk:
    """The rows that a map is settled on, whatever the parts; rows that are not finite are left out.

    Without weights.
    """
    found: list[Chunk] = []
    count = 0
    for part in source.parts:
        chunk = source.read(part)
        rows = slice(FIRST_ROWS - count)
        y = None if chunk.y is None else np.array(np.ma.getdata(chunk.y)[rows])
        found.append(Chunk(np.array(chunk.x[rows]), y))
        count += len(found[-1])
        if count >= FIRST_ROWS:
            break
    x = np.concatenate([one.x for one in found])
    labels = [one.y for one in found if one.y is not None]
    y = np.concatenate(labels) if labels else None
    sound = np.isfinite(x).reshape(len(x), -1).all(1)
    if not sound.any():
        return Chunk(np.zeros_like(x[:1]), None if y is None else y[:1])
    return Chunk(x[sound], None if y is None else y[sound])
