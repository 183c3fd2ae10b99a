"""Prefetched rows: the same picks and numbers with fewer passes over the pairs."""

import numpy as np
import pytest

from bicore import Runtime
from bicore.bilevel.engines import ridge as posterior
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from tests.helpers import blobs
from tests.marks import diagonal

ROWS, SIZE = 300, 30


class Counted(RBF):
    """Counts the pairs that were evaluated."""

    pairs = 0

    def evaluate(self, a, b):
        Counted.pairs += len(a) * len(b)
        return super().evaluate(a, b)


DATA = blobs(ROWS, classes=4, features=6)


def select_counted(memory=None, **options):
    Counted.pairs = 0
    outer = options.pop("outer", None)
    selector = greedy_selector(kernel=Counted(0.1), inner_reg=0.05, **options)
    runtime = Runtime(device="cpu", memory=memory)
    return selector.select(DATA, SIZE, outer=outer, runtime=runtime)


@pytest.mark.parametrize(
    ("rule", "strategy"), diagonal(["gradient", "gain"], ["greedy", "batches"], 2)
)
@pytest.mark.parametrize("outer", [None, blobs(120, 4, 6, seed=5)], ids=["own", "outer"])
def test_the_same_points_and_objectives_as_from_a_stored_matrix(rule, strategy, outer, monkeypatch):
    stored = select_counted(rule=rule, strategy=strategy, outer=outer)
    monkeypatch.setattr(posterior, "PREFETCH_WIDTH", 8)
    blocked = select_counted(600_000, rule=rule, strategy=strategy, outer=outer)
    assert (stored.details["operator"], blocked.details["operator"]) == ("gram", "blocked")
    assert blocked.indices.tolist() == stored.indices.tolist()
    np.testing.assert_allclose(blocked.objectives, stored.objectives, rtol=1e-10)


def test_a_pass_over_half_of_the_pairs_prefetches_several_points(monkeypatch):
    monkeypatch.setattr(posterior, "PREFETCH_WIDTH", 8)
    select_counted(600_000)
    ahead = Counted.pairs
    monkeypatch.setattr(posterior.RowPrefetcher, "room", lambda *_: 0)
    select_counted(600_000)
    alone = Counted.pairs
    # one by one: a pass over half of the pairs for every point, and one to begin with
    assert alone > SIZE * ROWS**2 / 2
    assert ahead < 0.6 * alone


def test_prefetched_rows_stay_within_memory(monkeypatch):
    held = []
    look = posterior.RowPrefetcher._prefetch

    def note_width(self, k):
        look(self, k)
        held.append((len(self.prefetched), self.width_of_pass))

    monkeypatch.setattr(posterior, "PREFETCH_WIDTH", 3)
    monkeypatch.setattr(posterior.RowPrefetcher, "_prefetch", note_width)
    select_counted(600_000)
    assert all(count <= posterior.HELD * 3 + 3 for count, _ in held)
    assert {width for _, width in held} == {3}
