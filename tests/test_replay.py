"""The replay memory: shares, shrinking, and the rehearsal loss."""

import numpy as np
import pytest
import torch
from torch import nn

from bicore import Runtime
from bicore.kernels import RBF
from bicore.methods import InducingPoints, Uniform
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.sources import digits
from bicore.streaming import ReplayMemory
from tests.helpers import fails, refuses
from tests.marks import few


def task(seed, n=40, labels=(0, 1)):
    rng = np.random.default_rng(seed)
    y = rng.choice(labels, size=n)
    return rng.normal(size=(n, 3)) + np.eye(3)[y % 3], y


@pytest.mark.parametrize("weights", few(["learned", "uniform"]))
def test_a_saved_memory_continues_identically(tmp_path, weights):
    selector = greedy_selector(
        kernel=RBF(0.5), inner_reg=0.1, weighting="final" if weights == "learned" else "binary"
    )
    memory = ReplayMemory(9, selector, weights, random_state=4)
    for number in range(2):
        memory.add_task(*task(number))
    again = ReplayMemory.load(memory.save(tmp_path / "memory.npz"), selector)
    for one in (memory, again):
        one.add_task(*task(2))
    for first, second in zip(memory.tensors(), again.tensors(), strict=True):
        assert torch.equal(first, second)
    ids = [[rows.ids.tolist() for rows in one.tasks] for one in (memory, again)]
    assert ids[0] == ids[1]


def test_a_memory_file_of_another_selector_or_kind_or_damaged_is_refused(tmp_path):
    from bicore.errors import DamagedFileError
    from bicore.streaming import Reservoir

    memory = ReplayMemory(4, Uniform())
    memory.add_task(*task(0))
    path = memory.save(tmp_path / "memory.npz")
    refuses("another selector configuration", ReplayMemory.load, path, greedy_selector())
    other = Reservoir(4).update(*task(0)).save(tmp_path / "buffer.npz")
    refuses("holds the state of a Reservoir", ReplayMemory.load, other, Uniform())
    path.write_bytes(path.read_bytes()[:-30])
    fails(DamagedFileError, r"memory\.npz.*ReplayMemory\.save", ReplayMemory.load, path, Uniform())


def test_small_task_is_ordered_so_that_shrinking_keeps_classes():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 4)
    memory = ReplayMemory(10, greedy_selector(kernel=RBF(0.5), inner_reg=0.1))
    memory.add_task(rng.normal(size=(8, 3)) + 3 * y[:, None], y)
    for number in (1, 2):
        memory.add_task(*task(number))
    assert set(memory.tasks[0].y.tolist()) == {0, 1}


def test_the_rehearsal_loss_is_the_criterions_own_mean():
    rng = np.random.default_rng(0)
    memory = ReplayMemory(20, Uniform())
    model = nn.Linear(3, 5)
    memory.add_task(rng.normal(size=(12, 3)), rng.normal(size=(12, 5)))
    x, y, _ = memory.tensors()
    expected = nn.MSELoss()(model(x.float()), y.float())
    assert memory.loss(model, nn.MSELoss()).item() == pytest.approx(expected.item(), rel=1e-5)
    summed = nn.MSELoss(reduction="sum")(model(x.float()), y.float()) / len(x)
    assert memory.loss(model, nn.MSELoss(reduction="sum")).item() == pytest.approx(
        summed.item(), rel=1e-5
    )
    labelled = ReplayMemory(20, Uniform())
    labelled.add_task(*task(0))
    refuses("weights the classes", labelled.loss, model, nn.CrossEntropyLoss(weight=torch.ones(5)))


def test_a_model_of_another_precision_leaves_the_memory_alone():
    memory = ReplayMemory(20, Uniform())
    memory.add_task(*task(0))
    model = nn.Linear(3, 2)
    before = float(memory.loss(model, nn.CrossEntropyLoss()))
    memory.loss(nn.Linear(3, 2).bfloat16(), nn.CrossEntropyLoss())
    assert float(memory.loss(model, nn.CrossEntropyLoss())) == before
    assert next(memory.loader())[0].dtype == torch.float64


def test_every_pass_of_the_loader_has_an_order_of_its_own():
    memory = ReplayMemory(20, Uniform())
    memory.add_task(*task(0))
    first, second = (next(memory.loader())[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(*(next(memory.loader(random_state=3))[0] for _ in range(2)))


def test_labels_of_another_kind_and_odd_seeds_are_refused():
    memory = ReplayMemory(20, Uniform())
    memory.add_task(*task(0))
    refuses("one kind of label", memory.add_task, task(1)[0], task(1)[1].astype(str))
    for seed in (-1, 2.7, "a"):
        refuses("random_state", ReplayMemory, 20, Uniform(), random_state=seed)


def test_an_interrupted_task_changes_nothing():
    memory = ReplayMemory(12, greedy_selector(kernel=RBF(0.5), inner_reg=0.1))

    def third_point(step):
        if step.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.add_task(*task(0), model=Context(runtime=Runtime(progress=third_point)))
    assert not memory.tasks


def test_equal_shares_shrink_by_prefix():
    memory = ReplayMemory(10, Uniform())
    first = None
    for number in range(5):
        memory.add_task(*task(number))
        first = memory.tasks[0].ids.copy() if number == 0 else first
        share = 10 // (number + 1)
        assert [len(rows) for rows in memory.tasks] == [share] * (number + 1)
        assert memory.tasks[0].ids.tolist() == first[:share].tolist()
    assert len(memory) == 10


def test_a_selector_without_an_order_selects_again():
    memory = ReplayMemory(8, InducingPoints("features", proposals=50))
    memory.add_task(*task(0))
    before = set(memory.tasks[0].ids.tolist())
    memory.add_task(*task(1))
    assert len(memory.tasks[0]) == 4
    assert set(memory.tasks[0].ids.tolist()) < before


def test_small_tasks_repeated_classes_single_classes_and_too_many_tasks():
    memory = ReplayMemory(9, greedy_selector(kernel=RBF(0.2), inner_reg=0.1))
    memory.add_task(*task(0, labels=(5,)))  # one class only
    memory.add_task(*task(1, n=2, labels=(0, 1)))  # fewer rows than its share
    memory.add_task(*task(2, labels=(0, 1)))  # classes seen before
    assert [len(rows) for rows in memory.tasks] == [3, 2, 3]
    tiny = ReplayMemory(2, Uniform())
    tiny.add_task(*task(0))
    tiny.add_task(*task(1))
    refuses(r"capacity=2 .* 3", tiny.add_task, *task(2))
    assert [len(rows) for rows in tiny.tasks] == [1, 1]
    refuses("one shape", memory.add_task, np.zeros((5, 2)), np.zeros(5, dtype=int))


def test_the_loss_is_the_sum_over_tasks_of_mean_losses():
    memory = ReplayMemory(9, Uniform())
    model = nn.Linear(3, 3)
    assert float(memory.loss(model, nn.CrossEntropyLoss())) == 0
    for number, count in ((0, 40), (1, 2), (2, 40)):
        memory.add_task(*task(number, count))
    expected = sum(
        nn.functional.cross_entropy(
            model(torch.from_numpy(rows.x).float()), torch.from_numpy(rows.y)
        )
        for rows in memory.tasks
    )
    for criterion in (
        nn.CrossEntropyLoss(),
        lambda outputs, y: nn.functional.cross_entropy(outputs, y, reduction="none"),
    ):
        torch.testing.assert_close(memory.loss(model, criterion, beta=2.5), 2.5 * expected)
    total = sum(
        float(
            (w * nn.functional.cross_entropy(model(x.float()), y, reduction="none")).detach().sum()
        )
        for x, y, w in memory.loader(3, random_state=1)
    )
    assert total / len(memory) == pytest.approx(float(expected.detach()), rel=1e-5)
    memory.loss(model, nn.CrossEntropyLoss()).backward()
    assert model.weight.grad is not None
    refuses("one loss per row", memory.loss, model, nn.functional.cross_entropy)


def test_learnt_weights_count_and_augmentations_are_applied():
    learnt = greedy_selector(kernel=RBF(0.2), inner_reg=0.1, weighting="final")
    memory = ReplayMemory(6, learnt, weighting="learned")
    model = nn.Linear(3, 2)
    memory.add_task(*task(0))
    rows = memory.tasks[0]
    losses = nn.functional.cross_entropy(
        model(torch.from_numpy(rows.x).float()), torch.from_numpy(rows.y), reduction="none"
    )
    expected = (torch.from_numpy(rows.weights / rows.weights.sum()) * losses.double()).sum()
    torch.testing.assert_close(
        memory.loss(model, nn.CrossEntropyLoss()).double(), expected, rtol=1e-5, atol=1e-6
    )
    seen = []
    memory.loss(model, nn.CrossEntropyLoss(), transform=lambda x: seen.append(x.shape) or x)
    batches = list(memory.loader(4, shuffle=False, transform=lambda x: x + 100))
    assert seen == [(len(rows), 3)]
    assert float(batches[0][0].min()) > 50


def test_bad_requests():
    refuses("selector", ReplayMemory, 5, "uniform")
    refuses("capacity", ReplayMemory, 0, Uniform())
    refuses("weighting=.binary.", ReplayMemory, 5, Uniform(), "binary")
    refuses("empty", list, ReplayMemory(5, Uniform()).loader())


def test_labels_that_torch_cannot_hold_are_refused():
    memory = ReplayMemory(5, Uniform())
    memory.add_task(np.zeros((6, 3)), ["a", "b"] * 3)
    refuses("y is text", memory.loss, nn.Linear(3, 2), nn.CrossEntropyLoss())
    plain = ReplayMemory(5, Uniform())
    plain.add_task(np.zeros((6, 3)))
    refuses("the rehearsal loss needs labels", list, plain.loader())


def continual_accuracy(memory, seed, beta=1.0) -> float:
    """Five tasks of two digits each, one after the other; mean accuracy over all classes at the
    end."""
    x, y = digits()
    x = x.astype(np.float32)
    order = np.random.default_rng(100 + seed).permutation(len(x))
    torch.set_num_threads(1)  # so small a network is slower on two
    train = order[:1300]
    test = order[1300:]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    criterion = nn.CrossEntropyLoss()
    for pair in range(5):
        rows = train[np.isin(y[train], (2 * pair, 2 * pair + 1))]
        inputs = torch.from_numpy(x[rows])
        labels = torch.from_numpy(y[rows])
        optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(25):
            loss = criterion(model(inputs), labels)
            if memory is not None:
                loss = loss + beta * memory.loss(model, criterion)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if memory is not None:
            memory.add_task(x[rows], y[rows])
    with torch.no_grad():
        return float(
            (model(torch.from_numpy(x[test])).argmax(1) == torch.from_numpy(y[test])).float().mean()
        )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 5])
def test_replay_with_the_bilevel_selector_beats_none_by_far_and_uniform_on_average(seeds):
    bilevel = greedy_selector(kernel="rbf", inner_reg=0.1)
    none = [continual_accuracy(None, seed) for seed in range(seeds)]
    chosen = [
        continual_accuracy(ReplayMemory(50, bilevel, random_state=seed), seed)
        for seed in range(seeds)
    ]
    uniform = [
        continual_accuracy(ReplayMemory(50, Uniform(), random_state=seed), seed)
        for seed in range(seeds)
    ]
    assert np.mean(chosen) > np.mean(none) + 0.3
    assert np.mean(chosen) > np.mean(uniform)


def test_extra_columns_of_tasks_stay_with_their_rows_and_are_found_again(tmp_path):
    # an order with a meaning shrinks by prefix, none selects again
    for selector in (Uniform(), InducingPoints("features", proposals=50)):
        memory = ReplayMemory(12, selector)
        # names that end in digits are told from the numbers of tasks
        for number in range(12 if selector.ordered else 3):
            x, y = task(number)
            columns = {"logits": 2 * x, "logits1": -x[:, 0], "word": y.astype(str)}
            memory.add_task(x, y, extra=columns)
        again = ReplayMemory.load(memory.save(tmp_path / "memory.npz"), selector)
        for one in (memory, again):
            x, y, _ = one.tensors()
            assert torch.equal(one.extra("logits"), 2 * x)
            assert torch.equal(one.extra("logits1"), -x[:, 0])
            words = np.concatenate([rows.extra["word"] for rows in one.tasks])
            assert words.tolist() == [str(label) for label in y.tolist()]
        for x, _, _, first, second in again.loader(5, extra=("logits", "logits1")):
            assert torch.equal(first, 2 * x)
            assert torch.equal(second, -x[:, 0])
