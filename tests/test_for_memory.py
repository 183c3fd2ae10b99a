"""Unset options of a selector, resolved for a memory: they do not depend on the first batch."""

import numpy as np
import pytest

from bicore import Dataset, MergeReduce, ReplayMemory
from bicore.bilevel.kernel_choice import FOR_PART, IN_PART
from bicore.kernels import RBF
from bicore.methods import as_selector
from bicore.methods.registry import build_selector, greedy_selector
from tests.helpers import blobs


def task(seed=0, rare=6):
    """Two classes, one of them rare, in columns of very different scales."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.zeros(60, dtype=int), np.ones(rare, dtype=int)]
    x = rng.normal(size=(len(y), 3)) + 3.0 * y[:, None]
    return x * np.array([1.0, 1e3, 1e-3]), y


def test_unset_options_of_memories_are_greedy_with_the_gradient():
    kept = ReplayMemory(10, as_selector("bilevel"))._chooser
    found = kept.strategy.name, kept.rule.name, kept.smooth_labels.name
    assert found == ("greedy", "gradient", "given")
    assert kept.ordered
    x, y = task()
    shown = {
        kept.resolve_defaults(Dataset(x, labels), 8).kernel.name
        for labels in (y, 1 - y, np.arange(len(y)) % 2, x[:, 0] > 0)
    }
    assert len(shown) == 1
    assert next(iter(shown)).startswith("normalised")
    chosen = kept.resolve_defaults(Dataset(x, y), 8).kernel
    assert chosen.choice.name == FOR_PART
    assert chosen.choice.note.endswith(IN_PART)
    scaled = chosen.fit(x)(x)
    np.testing.assert_allclose(np.diagonal(scaled), 1)
    np.testing.assert_allclose(scaled, chosen.fit(x * 7)(x * 7), atol=1e-6)


def test_a_rare_class_has_its_share_of_a_memory_and_keeps_it_when_that_shrinks():
    memory = ReplayMemory(12, build_selector("bilevel", inner_reg=0.1))
    memory.add_task(*task())
    first = memory.tasks[0]
    assert np.bincount(first.y).tolist() == [6, 6]
    memory.add_task(*task(1))
    assert np.bincount(memory.tasks[0].y).tolist() == [3, 3]
    assert memory.tasks[0].ids.tolist() == first.ids[:6].tolist()
    free = ReplayMemory(12, build_selector("bilevel", inner_reg=0.1, strategy="greedy"))
    free.add_task(*task())
    assert np.bincount(free.tasks[0].y).tolist() != [6, 6]


def test_classes_that_come_one_after_the_other_share_a_stream_buffer():
    data = blobs(160, classes=4, features=3)
    order = np.argsort(data.y, kind="stable")
    buffer = MergeReduce(12, build_selector("bilevel", inner_reg=0.1))
    for top in range(0, 160, 20):
        rows = order[top : top + 20]
        buffer.update(data.x[rows], data.y[rows])
    assert np.bincount(buffer.snapshot().y).tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    "named",
    [
        {"kernel": RBF(0.3)},
        {"strategy": "exchange"},
        {"strategy": "greedy"},
        {"quotas": {0: 2}},
        {"smooth_labels": True},
        {"rule": "gain"},
    ],
)
def test_named_options_are_kept(named):
    selector = build_selector("bilevel", **named)
    kept = selector.for_memory()
    for name in named:
        assert getattr(kept, name) == getattr(selector, name)
    if "strategy" in named:
        assert kept.quotas is None


def test_the_paper_and_the_targets_of_a_regression_have_no_quotas():
    paper = greedy_selector()
    assert paper.for_memory() == paper
    x, _ = task()
    memory = ReplayMemory(8, build_selector("bilevel", inner_reg=0.1))
    memory.add_task(x, x[:, 0])
    assert len(memory) == 8


def test_command_leaves_unnamed_options_unset():
    from bicore.cli.stream import make_buffer
    from bicore.kernels.tangent import fully_connected

    kept = make_buffer("merge-reduce", 10, 0)._chooser
    assert kept.kernel.in_part
    named = make_buffer("merge-reduce", 10, 0, kernel="rbf")._chooser
    assert named.kernel == RBF()
    paper = make_buffer("merge-reduce", 10, 0, method="bilevel-ntk")._chooser
    assert paper.kernel == fully_connected()
