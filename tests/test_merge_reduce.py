"""Merge-reduce: the paper's rule and figure, weights, merging and evaluation."""

import numpy as np
import pytest
import torch

from bicore import Dataset, InputError, Runtime
from bicore.files import fingerprint
from bicore.kernels import RBF
from bicore.methods import KCenter, Uniform
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.streaming import MergeReduce
from bicore.streaming.merge_reduce import nearest_pair, select_index
from tests.helpers import refuses
from tests.marks import few

BILEVEL = greedy_selector(kernel=RBF(0.2), inner_reg=0.1)


def levels_after(slots: int, batches: int) -> list[int]:
    buffer = MergeReduce(2 * slots, Uniform(), slots)
    for _ in range(batches):
        buffer.update(np.zeros((3, 1)))
    return buffer.levels


@pytest.mark.parametrize(
    ("slots", "batches", "levels"),
    few(
        [
            (3, 7, [4, 2, 1]),
            (3, 11, [4, 4, 3]),
            (10, 40, [4] * 10),
            (1, 9, [9]),
            (2, 9, [8, 1]),
            (3, 200, [128, 64, 8]),
            (10, 200, [32, 32, 32, *[16] * 6, 8]),
        ],
        5,
    ),
)
def test_levels_follow_algorithm_three(slots, batches, levels):
    assert levels_after(slots, batches) == levels


def test_the_papers_second_figure():
    """Seven batches, three slots: C_1234 is built at time 7, C_56 at 6, C_7 at 7; rows come from
    those batches, and weigh 4, 2, 1."""
    buffer = MergeReduce(6, BILEVEL, 3)
    levels = []
    rng = np.random.default_rng(0)
    for _ in range(7):
        y = np.arange(10) % 3
        buffer.update(rng.normal(size=(10, 4)) + np.eye(4)[y], y)
        levels.append(buffer.levels)
    assert levels[:3] == [[1], [1, 1], [1, 1, 1]]
    assert levels[3] == [2, 1, 1]  # C_12 at time 4
    assert levels[4] == [2, 2, 1]  # C_34 at time 5
    assert levels[5] == [2, 2, 2]  # C_56 at time 6
    assert levels[6] == [4, 2, 1]  # C_1234 at time 7
    kept = buffer.snapshot()
    for slot, (low, high) in zip(range(3), [(0, 40), (40, 60), (60, 70)], strict=True):
        rows = slice(2 * slot, 2 * slot + 2)
        assert ((kept.ids[rows] >= low) & (kept.ids[rows] < high)).all()
        np.testing.assert_allclose(kept.weights[rows], (high - low) / 2)


def test_merge_rule_without_equal_neighbours():
    assert nearest_pair([8, 4, 1]) == 1
    assert nearest_pair([4, 4, 2, 2, 4, 4]) == 2
    assert select_index([1, 1]) == 0
    assert select_index([2, 2, 1, 1]) == 2
    assert select_index([2, 1, 1, 1]) == 1


def test_reduction_weighs_slots_by_their_rows(monkeypatch):
    seen = []
    plain = Uniform.select

    def watch(self, data, size, **options):
        seen.append(data.weights.copy())
        return plain(self, data, size, **options)

    monkeypatch.setattr(Uniform, "select", watch)
    buffer = MergeReduce(2, Uniform(), 1)
    buffer.update(np.zeros((6, 1)))
    buffer.update(np.zeros((4, 1)), sample_weight=[1.0, 1.0, 3.0, 1.0])
    np.testing.assert_allclose(seen[0], np.ones(6))
    np.testing.assert_allclose(seen[1], [1, 1, 3, 1])
    np.testing.assert_allclose(seen[2], [3, 3, 3, 3])
    assert buffer.snapshot().weights.tolist() == [6, 6]


def test_learnt_weights_stay_in_proportion():
    learnt = greedy_selector(kernel=RBF(0.2), inner_reg=0.1, weighting="final")
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 2)) + 2 * np.eye(2)[y]
    buffer = MergeReduce(5, learnt, 1, weighting="learned").update(x, y)
    coreset = learnt.for_classes([0, 1]).select(
        Dataset(x, y), 5, random_state=np.random.default_rng((0, 1))
    )
    np.testing.assert_allclose(
        buffer.snapshot().weights, coreset.weights * 40 / coreset.weights.sum()
    )
    assert len(np.unique(buffer.snapshot().weights.round(6))) > 1
    assert buffer.snapshot().weights.sum() == pytest.approx(40)


def test_small_batches_are_pending_and_part_of_the_snapshot():
    buffer = MergeReduce(9, Uniform(), 3)
    buffer.update([[0.0], [1.0]])
    assert buffer.levels == []
    assert buffer.snapshot().ids.tolist() == [0, 1]
    buffer.update([[2.0], [3.0]])
    assert buffer.levels == [1]
    assert len(buffer) == 3
    for row in range(200):
        buffer.update([[float(row)]])
        assert len(buffer) <= 9
        assert buffer.snapshot().weights.sum() == pytest.approx(5 + row)


def test_one_class_after_the_other_and_a_first_chunk_of_one_class():
    buffer = MergeReduce(12, BILEVEL, 3)
    rng = np.random.default_rng(0)
    for label in (3, 3, 1, 1, 7, 7):
        buffer.update(rng.normal(size=(20, 4)) + 3 * np.eye(4)[label % 4], np.full(20, label))
    kept = buffer.snapshot()
    assert set(kept.y.tolist()) == {1, 3, 7}
    assert buffer.classes == [3, 1, 7]
    text = MergeReduce(4, greedy_selector(kernel=RBF(0.2), inner_reg=0.1, loss="cross-entropy"), 2)
    text.update(rng.normal(size=(20, 4)), ["only"] * 20)
    assert len(np.unique(text.snapshot().ids)) == 2


def test_two_buffers_built_apart_make_one():
    rng = np.random.default_rng(1)
    y = np.arange(80) % 2
    x = rng.normal(size=(80, 2)) + 2 * np.eye(2)[y]
    first = MergeReduce(12, BILEVEL, 3)
    second = MergeReduce(12, BILEVEL, 3)
    for start in range(0, 40, 10):
        first.update(x[start : start + 10], y[start : start + 10])
        second.update(x[40 + start : 50 + start], y[40 + start : 50 + start])
    second.update(x[:2], y[:2])
    first.merge(second)
    kept = first.snapshot()
    assert first.position == 82
    assert len(kept) <= 12
    assert kept.weights.sum() == pytest.approx(82)
    assert sum(first.levels) == 8
    inside = kept.ids < 80
    np.testing.assert_array_equal(kept.x[inside], x[kept.ids[inside]])
    assert kept.ids.max() >= 80  # the waiting rows of the second
    first.update(x[:10], y[:10])
    assert first.snapshot().weights.sum() == pytest.approx(92)
    refuses("built like", first.merge, MergeReduce(12, Uniform(), 3))
    with pytest.raises(InputError, match="rows of shape"):
        first.merge(MergeReduce(12, BILEVEL, 3).update(np.zeros((10, 5)), y[:10]))
    assert first.snapshot().weights.sum() == pytest.approx(92)


def test_the_kernel_is_evaluated_only_among_the_batch_and_the_two_slots_merged(monkeypatch):
    """With the CNN preset: the chunk's Gram matrix, then that of the two slots that merge."""
    from bicore.kernels import TangentKernel, cnn

    grams = []
    plain = TangentKernel.gram

    def watch(self, x, *options):
        grams.append(len(x))
        return plain(self, x, *options)

    monkeypatch.setattr(TangentKernel, "gram", watch)
    monkeypatch.setattr(
        TangentKernel,
        "evaluate",
        lambda *_: pytest.fail("a kernel value outside these Gram matrices"),
    )
    buffer = MergeReduce(12, greedy_selector(kernel=cnn(), inner_reg=0.1), 3)
    rng = np.random.default_rng(0)
    for step in range(8):
        grams.clear()
        buffer.update(rng.normal(size=(20, 1, 6, 6)), np.arange(20) % 2)
        assert grams == ([20] if step < 3 else [20, 8])


def test_files_of_another_selector_are_refused(tmp_path):
    buffer = MergeReduce(6, BILEVEL, 3).update(np.eye(10), np.arange(10) % 2)
    buffer.save(tmp_path / "a.npz")
    again = MergeReduce.load(tmp_path / "a.npz", greedy_selector(kernel=RBF(0.2), inner_reg=0.1))
    assert again.snapshot().ids.tolist() == buffer.snapshot().ids.tolist()
    with pytest.raises(InputError, match="another selector configuration"):
        MergeReduce.load(tmp_path / "a.npz", greedy_selector(kernel=RBF(0.3), inner_reg=0.1))
    refuses("another selector configuration", MergeReduce.load, tmp_path / "a.npz")
    assert fingerprint(greedy_selector(kernel=lambda a, b: a @ b.T)) == fingerprint(
        greedy_selector(kernel=lambda a, b: a @ b.T)
    )


def test_fingerprints_look_into_functions_arrays_and_networks():
    from torch import nn

    def identify(kernel=None, classes=None):
        return fingerprint(greedy_selector(kernel=kernel or "rbf", classes=classes))

    assert identify(lambda a, b: a @ b.T) != identify(lambda a, b: (a @ b.T) ** 3)
    assert identify(lambda a, b: a @ b.T * 2) != identify(lambda a, b: a @ b.T * 3)
    labels = np.arange(3000)
    other = labels.copy()
    other[1500] = 5000
    assert identify(classes=labels) == identify(classes=labels.copy()) != identify(classes=other)
    torch.manual_seed(0)
    first = nn.Linear(2, 2)
    second = nn.Linear(2, 2)
    assert fingerprint([first]) == fingerprint([first]) != fingerprint([second])


def test_buffers_built_otherwise_do_not_merge_and_ids_never_collide():
    def fill(capacity=4, slots=2, weighting="uniform"):
        return MergeReduce(capacity, Uniform(), slots, weighting).update(np.arange(10.0))

    for other, words in (
        (fill(100, 1), "capacity.*slots"),
        (fill(weighting="learned"), "weighting"),
    ):
        refuses(words, fill().merge, other)
    refuses(r"offset .* 10", fill().merge, fill(), offset=5)
    merged = fill().merge(fill(), offset=15)
    assert merged.position == 25
    merged.update(np.arange(30.0))
    assert len(set(merged.snapshot().ids.tolist())) == len(merged)


@pytest.mark.usefixtures("long_grace")
def test_a_time_limit_makes_no_half_filled_slot():
    buffer = MergeReduce(6, BILEVEL, 1)
    with pytest.raises(InputError, match="max_seconds"):
        buffer.update(
            np.eye(10), np.arange(10) % 2, model=Context(runtime=Runtime(max_seconds=1e-9))
        )
    assert buffer.position == 0


def test_impossible_buffers_are_refused():
    refuses("selector", MergeReduce, 10, "bilevel")
    refuses("slots .* 10", MergeReduce, 10, Uniform(), 11)
    refuses("slots", MergeReduce, 10, Uniform(), 0)
    refuses("weighting=.binary.", MergeReduce, 10, Uniform(), 2, "binary")


@pytest.mark.slow
def test_an_imbalanced_stream_keeps_every_class_where_reservoir_sampling_loses_some():
    """Digits 0 … 4, the last twenty times as often as each of the others, 30 rows kept, five seeds."""
    from bicore.sources import digits
    from bicore.streaming import Reservoir

    x, y = digits()
    lost = {"merge-reduce": 0, "reservoir": 0}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rare = np.concatenate(
            [rng.choice(np.flatnonzero(y == label), 8, replace=False) for label in range(4)]
        )
        order = np.concatenate([rare, rng.choice(np.flatnonzero(y == 4), 160, replace=False)])
        buffers = {
            "merge-reduce": MergeReduce(
                30, greedy_selector(kernel="rbf", inner_reg=0.1), 1, random_state=seed
            ),
            "reservoir": Reservoir(30, seed),
        }
        for name, buffer in buffers.items():
            for start in range(0, len(order), 32):
                rows = order[start : start + 32]
                buffer.update(x[rows], y[rows])
            lost[name] += 5 - len(np.unique(buffer.snapshot().y))
    assert lost["merge-reduce"] == 0
    assert lost["reservoir"] > 0


def test_the_loss_of_a_stream_is_the_papers_mean_or_counts_slots():
    buffer = MergeReduce(6, selector=KCenter(), slots=3)
    rng = np.random.default_rng(0)
    for _ in range(7):
        x = rng.normal(size=(10, 2)).astype(np.float32)
        buffer.update(x, (x[:, 0] > 0).astype(int))
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    x, y, weight = buffer.tensors()
    losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    shares = torch.tensor([level for level in buffer.levels for _ in range(2)])
    criterion = torch.nn.CrossEntropyLoss()
    plain = buffer.loss(model, criterion, beta=3.0, weighted=False)
    torch.testing.assert_close(plain, 3 * losses.mean())
    by_slots = buffer.loss(model, criterion, beta=3.0)
    torch.testing.assert_close(by_slots, 3 * (shares * losses).sum() / shares.sum())
    torch.testing.assert_close(weight, (6 * shares / shares.sum()).to(weight))
