"""Buffers against their definitions, on cases small enough to work out by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from bicore import InputError
from bicore.networks.observe import Observed, observe
from bicore.runtime.context import Context
from bicore.streaming import ClassBalancedReservoir, GradientSampling, Prototypes, Reservoir
from tests.helpers import refuses


@pytest.mark.slow
def test_reservoir_is_a_uniform_sample_at_any_time():
    counts = np.zeros(9)
    for seed in range(2000):
        buffer = Reservoir(3, seed).update(np.arange(5.0)).update(np.arange(5.0, 9.0))
        counts[buffer.snapshot().ids] += 1
    expected = 2000 / 3
    assert np.abs(counts - expected).max() < 5 * np.sqrt(2000 * (1 / 3) * (2 / 3))


@pytest.mark.slow
def test_weight_of_a_kept_row_is_unbiased():
    """Priority sampling: kept · max(w, τ) has the row's weight as its mean, wherever in the stream
    the heavy rows come."""
    weight = np.array([1.0, 3.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    totals = np.zeros(8)
    kept = np.zeros(8)
    for seed in range(6000):
        buffer = Reservoir(3, seed).update(np.arange(8.0), sample_weight=weight)
        rows = buffer.snapshot().ids
        totals[rows] += np.maximum(weight[rows], buffer.threshold)
        kept[rows] += 1
    np.testing.assert_allclose(totals / 6000, weight, atol=0.15)
    assert kept[1] > 1.8 * kept[0]
    np.testing.assert_allclose(kept[[0, 2, 3, 4, 6, 7]] / 6000, kept[0] / 6000, atol=0.035)


def test_every_row_has_its_weight_until_the_buffer_is_full():
    kept = Reservoir(5).update([[1.0], [2.0]], sample_weight=[3.0, 0.5]).snapshot()
    assert kept.weights.tolist() == [3.0, 0.5]
    assert kept.ids.tolist() == [0, 1]


class Scripted:
    """A generator whose draws are given."""

    def __init__(self, pairs):
        self.pairs = list(pairs)

    def random(self, shape):
        taken = self.pairs[: shape[0]]
        self.pairs = self.pairs[shape[0] :]
        return np.array(taken, dtype=float)

    @property
    def bit_generator(self):
        return np.random.default_rng(0).bit_generator


def make_balanced(capacity, pairs):
    buffer = ClassBalancedReservoir(capacity)
    buffer.rng = Scripted(pairs)
    return buffer


def test_class_balanced_reservoir_step_by_step():
    """Memory of 4. After a a a b it is filled and a, the largest, is full; b is not.

    5th row b: not full, so it takes the place of a random a; a and b are then equal and both full.
    6th row a: full, kept 2, seen 4: enters if u <= 2/4, in place of a random a.
    7th row c: not full, takes a place among the largest (a and b alike).
    """
    free = [(0.0, 0.0)] * 4
    buffer = make_balanced(4, [*free, (0.9, 0.0), (0.4, 0.99), (0.0, 0.99)])
    buffer.update(np.arange(4.0), ["a", "a", "a", "b"])
    assert buffer.full == {"a"}
    buffer.update([4.0], ["b"])
    assert buffer.snapshot().ids.tolist() == [4, 1, 2, 3]
    assert buffer.full == {"a", "b"}
    buffer.update([5.0], ["a"])
    assert buffer.snapshot().ids.tolist() == [4, 1, 5, 3]
    buffer.update([6.0], ["c"])
    assert buffer.snapshot().ids.tolist() == [4, 1, 5, 6]
    assert buffer.snapshot().y.tolist() == ["b", "a", "a", "c"]
    np.testing.assert_allclose(buffer.snapshot().weights, [2, 2, 2, 1])


def test_a_row_of_a_full_class_stays_out_with_the_complementary_chance():
    buffer = make_balanced(4, [(0.0, 0.0)] * 4 + [(0.9, 0.0), (0.51, 0.99)])
    buffer.update(np.arange(6.0), ["a", "a", "a", "b", "b", "a"])
    assert buffer.snapshot().ids.tolist() == [4, 1, 2, 3]


def test_weights_do_not_decide_which_rows_a_class_balanced_reservoir_keeps():
    x = np.arange(60.0)
    y = np.arange(60) % 3
    plain = ClassBalancedReservoir(6).update(x, y).snapshot()
    heavy = ClassBalancedReservoir(6).update(x, y, np.linspace(1, 9, 60)).snapshot()
    assert plain.ids.tolist() == heavy.ids.tolist()
    assert heavy.weights[heavy.y == 0].sum() == pytest.approx(np.linspace(1, 9, 60)[::3].sum())


def test_no_class_is_full_before_the_memory_is_filled():
    buffer = ClassBalancedReservoir(10).update(np.arange(4.0), ["a", "a", "a", "b"])
    assert buffer.full == set()


def test_more_classes_than_room_in_a_class_balanced_reservoir():
    buffer = ClassBalancedReservoir(3).update(np.arange(50.0), np.arange(50) % 7)
    kept = buffer.snapshot()
    assert len(np.unique(kept.y)) == 3
    assert kept.weights.sum() == pytest.approx(50)


def test_prototypes_merge_the_two_nearest_of_the_largest_class():
    buffer = Prototypes(4).update([[0.0], [1.0], [5.0], [20.0]], ["a", "a", "a", "b"])

    def sort_rows(kept):
        return sorted(zip(kept.x[:, 0].tolist(), kept.weights.tolist(), kept.y, strict=True))

    kept = buffer.update([[6.0]], ["a"]).snapshot()  # 0 and 1 are nearest among the rows of a
    assert sort_rows(kept) == [(0.5, 2, "a"), (5.0, 1, "a"), (6.0, 1, "a"), (20.0, 1, "b")]
    assert kept.ids[kept.x[:, 0] == 0.5].tolist() == [0]
    kept = buffer.update([[30.0]], ["c"]).snapshot()  # a has the most: 5 and 6 become one
    assert sort_rows(kept) == [(0.5, 2, "a"), (5.5, 2, "a"), (20.0, 1, "b"), (30.0, 1, "c")]


def test_a_prototype_is_the_weighted_mean_of_its_rows():
    x = np.random.default_rng(0).normal(size=(40, 3))
    weight = np.random.default_rng(1).uniform(0.5, 2, 40)
    kept = Prototypes(1).update(x, sample_weight=weight).snapshot()
    np.testing.assert_allclose(kept.x[0], weight @ x / weight.sum())
    many = Prototypes(6).update(x, sample_weight=weight).snapshot()
    np.testing.assert_allclose(many.weights @ many.x, weight @ x)


def test_more_classes_than_prototypes_are_refused_and_nothing_changes():
    buffer = Prototypes(2).update([[0.0], [1.0]], [0, 1])
    refuses(r"capacity=2 .* 3", buffer.update, [[2.0], [3.0]], [1, 2])
    assert buffer.snapshot().ids.tolist() == [0, 1]
    refuses("targets", Prototypes(3).update, [[0.0]], [1.5])
    refuses("needs class labels", ClassBalancedReservoir(3).update, [[0.0]], [1.5])


class Given(nn.Module):
    """Embeds x as its first two columns; outputs are fixed weights of it, so gradients can be
    worked out."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2, bias=False).double()
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(x)


GIVEN = Context(model=Given())


def directions(x, y):
    """Gradients of the cross-entropy at zero outputs: (1/2 − e_y) xᵀ."""
    return [
        np.outer(np.array([0.5, 0.5]) - np.eye(2)[label], row).ravel()
        for row, label in zip(x, y, strict=True)
    ]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_gradient_sampling_scores_by_the_largest_cosine():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    y = np.array([0, 0, 1])
    buffer = GradientSampling(3, n_compared=10).update(x[:2], y[:2], model=GIVEN)
    assert buffer.scores.tolist() == [1, 1]
    buffer.update(x[2:], y[2:], model=GIVEN)
    g = directions(x, y)
    assert buffer.scores[2] == pytest.approx(1 + max(cosine(g[2], g[0]), cosine(g[2], g[1])))


@pytest.mark.slow
def test_gradient_sampling_replaces_with_the_published_chance():
    """One kept row of score 1, a new one whose gradient is opposite (score 0): it always enters; at
    cosine −0.6, 1/1.4."""
    entered = 0
    new = np.array([[-0.6, 0.8]])
    for seed in range(1500):
        buffer = GradientSampling(1, seed).update([[1.0, 0.0]], [0], model=GIVEN)
        buffer.update(new, [0], model=GIVEN)
        entered += int(buffer.snapshot().ids[0])
    assert entered / 1500 == pytest.approx(1 / 1.4, abs=4 * np.sqrt(0.2 / 1500))
    same = GradientSampling(1, 0).update([[1.0, 0.0]], [0], model=GIVEN)
    assert same.update([[1.0, 0.1]], [0], model=GIVEN).snapshot().ids.tolist() == [0]


def test_the_cosine_form_drops_the_row_most_like_the_others():
    x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [-1.0, 0.2]])
    buffer = GradientSampling(2, strategy="cosine").update(x, [0, 0, 0, 0], model=GIVEN)
    g = directions(x, [0] * 4)
    left = [0, 1, 2, 3]
    while len(left) > 2:
        left.remove(max(left, key=lambda i: sum(cosine(g[i], g[j]) for j in left)))
    assert buffer.snapshot().ids.tolist() == left


def test_a_long_first_batch_is_compared_with_its_own_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = rng.integers(2, size=200)
    buffer = GradientSampling(6, 0, n_compared=5).update(x, y, model=GIVEN)
    assert buffer.snapshot().ids.max() > 5


def test_the_victim_is_drawn_by_score_and_its_score_replaced():
    """Kept scores 2 and 0: the row of score 0 is never drawn; the one of score 2 always, and
    replaced with chance 2/(2 + c)."""
    replaced = 0
    for seed in range(60):
        buffer = GradientSampling(2, seed).update([[1.0, 0.0], [0.9, 0.1]], [0, 0], model=GIVEN)
        buffer.scores = np.array([2.0, 0.0])
        buffer.update([[-1.0, 0.1]], [0], model=GIVEN)
        kept = buffer.snapshot()
        assert 1 in kept.ids
        if 2 in kept.ids:
            replaced += 1
            assert buffer.scores[kept.ids.tolist().index(2)] < 1
    assert replaced > 30


def test_text_labels_need_the_order_of_outputs_and_then_serve():
    words = Context(model=Given(), classes=["no", "yes"])
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    named = GradientSampling(3, n_compared=10).update(x[:1], ["yes"], model=words)
    coded = GradientSampling(3, n_compared=10).update(x[:1], [1], model=GIVEN)
    named.update(x[1:], ["no", "yes"], model=words)
    coded.update(x[1:], [0, 1], model=GIVEN)
    np.testing.assert_allclose(named.scores, coded.scores)
    refuses("y is text", named.update, x[1:], ["no", "yes"], model=GIVEN)


def test_gradient_sampling_needs_the_module_itself():
    buffer = GradientSampling(1).update([[1.0, 0.0]], [0], model=GIVEN)
    seen = observe(Given(), np.array([[1.0, 0.0]]))
    assert isinstance(seen, Observed)
    refuses("needs the module itself", buffer.update, [[1.0, 0.0]], [0], model=Context(model=seen))
    refuses("strategy='iqp'", GradientSampling, 3, strategy="iqp")
    refuses("compared", GradientSampling, 3, n_compared=0)
    assert torch.is_tensor(seen.outputs)


def test_prototypes_average_extra_columns_as_rows_and_not_in_their_distances():
    depth = np.array([[100.0], [-100.0], [0.0], [7.0]])
    buffer = Prototypes(3).update([[0.0], [1.0], [9.0]], extra={"depth": depth[:3]})
    kept = buffer.update([[20.0]], sample_weight=[2.0], extra={"depth": depth[3:]}).snapshot()
    found = dict(zip(kept.x[:, 0].tolist(), kept.extra["depth"][:, 0].tolist(), strict=True))
    assert found == {0.5: 0.0, 9.0: 0.0, 20.0: 7.0}
    one = Prototypes(1).update([[0.0], [1.0]], sample_weight=[1.0, 3.0], extra={"depth": depth[:2]})
    assert one.snapshot().extra["depth"].tolist() == [[-50.0]]
    with pytest.raises(InputError, match=r"extra\['depth'\] must hold floats"):
        Prototypes(3).update([[0.0]], extra={"depth": [1]})
