"""Replay with rows selected over all tasks jointly."""

from unittest.mock import patch

import numpy as np
import pytest
import torch

from bicore.moments.features import RandomReLU
from bicore.streaming import JointReplay, MomentMemory
from tests.helpers import fails, refuses

FEATURES = RandomReLU(width=64)


def tasks(count=3, rows=60, seed=0):
    rng = np.random.default_rng(seed)
    for task in range(count):
        y = rng.integers(2 * task, 2 * task + 2, rows)
        x = rng.normal(size=(rows, 6)) + 2 * np.eye(2 * count, 6)[y]
        yield x, y


def fill_memory(**options):
    memory = JointReplay(12, FEATURES, **options)
    for x, y in tasks():
        memory.add_task(x, y, extra={"twice": 2 * x[:, 0]})
    return memory


def test_rows_are_those_of_one_memory_over_all_tasks():
    memory, plain = fill_memory(), MomentMemory(12, FEATURES)
    for x, y in tasks():
        plain.update(x, y)
    kept = np.concatenate([rows.ids for rows in memory.tasks])
    assert sorted(kept.tolist()) == sorted(plain.snapshot().ids.tolist())
    assert [set((rows.y // 2).tolist()) for rows in memory.tasks] == [{0}, {1}, {2}]
    assert len(memory) == 12
    assert torch.allclose(memory.extra("twice"), 2 * memory.tensors()[0][:, 0])


def test_the_loss_is_the_mean_over_rows_times_the_tasks():
    memory = fill_memory()
    model = torch.nn.Linear(6, 6).double()
    x, y, weight = memory.tensors()
    expected = 3 * torch.nn.functional.cross_entropy(model(x.double()), y)
    found = memory.loss(model, torch.nn.CrossEntropyLoss(), beta=0.5)
    assert found.item() == pytest.approx(0.5 * expected.item())
    assert set(weight.tolist()) == {3.0}


def test_a_loaded_state_continues(tmp_path):
    memory = fill_memory(prior="equal")
    list(memory.loader(4))  # a pass: the next one has another order
    again = JointReplay.load(memory.save(tmp_path / "memory.npz"))
    orders = [torch.cat([batch[0] for batch in one.loader(4)]) for one in (memory, again)]
    assert torch.equal(*orders)
    x, y = next(tasks(seed=5))
    for one in (memory, again):
        one.add_task(x, y, extra={"twice": 2 * x[:, 0]})
    assert repr(again) == "JointReplay(12 of 12 rows kept, 4 tasks)"
    for own, other in zip(memory.tasks, again.tasks, strict=True):
        assert own.ids.tolist() == other.ids.tolist()


def test_impossible_requests_are_refused_and_change_nothing(tmp_path):
    memory = fill_memory()
    before = [rows.ids.tolist() for rows in memory.tasks]
    x, y = next(tasks())
    assert len(JointReplay(4).observe((x, None))) == 4
    refuses("'task'", memory.add_task, x, y, extra={"task": y})
    refuses("x has rows of shape", memory.add_task, x[:, :4], y, extra={"twice": x[:, 0]})
    with patch.object(JointReplay, "_split_tasks", side_effect=KeyboardInterrupt("stop")):
        fails(KeyboardInterrupt, "stop", memory.add_task, x, y, extra={"twice": x[:, 0]})
    assert memory.memory.position == 180
    assert [rows.ids.tolist() for rows in memory.tasks] == before
    assert repr(memory) == "JointReplay(12 of 12 rows kept, 3 tasks)"
    stream = MomentMemory(5, FEATURES).update(x, y)
    refuses("of a stream", JointReplay.load, stream.save(tmp_path / "stream.npz"))
