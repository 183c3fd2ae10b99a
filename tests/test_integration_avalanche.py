"""Avalanche's strategies and plugins with memories of bicore."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bicore import BilevelSelector, Dataset
from bicore.integrations.avalanche import CoresetBuffer, CoresetSelection, HeadPlugin
from bicore.methods import KCenter
from bicore.sources import digits
from bicore.streaming import MomentMemory, ReplayMemory
from tests.helpers import digit_network, refuses
from tests.hosts import avalanche_or_skip

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_without_avalanche_it_is_named():
    if importlib.util.find_spec("avalanche") is not None:
        pytest.skip("avalanche-lib is installed")
    for make in (CoresetBuffer, CoresetSelection):
        refuses("avalanche", make, 10)


class Items(TensorDataset):
    """A data set of Avalanche, without it."""

    def eval(self):
        return self


def test_a_plugin_answers_by_the_head():
    plugin, strategy = HeadPlugin(MomentMemory(20, "relu:128", keep="lazy")), SimpleNamespace()
    test = rows(lambda row, y: row >= 1300)
    strategy.mb_x, goals = test.tensors
    network = strategy.mb_output = torch.zeros(len(goals), 12)
    plugin.after_eval_forward(strategy)
    assert strategy.mb_output is network  # nothing is counted yet
    for task in range(5):
        data = Items(*rows(lambda row, y, t=task: (y // 2 == t) & (row < 700)).tensors)
        strategy.experience = SimpleNamespace(dataset=data)
        plugin.after_training_exp(strategy)
    plugin.after_eval_forward(strategy)
    assert strategy.mb_output.shape == (len(goals), 12)
    assert (strategy.mb_output.argmax(1) == goals).double().mean() > 0.85


@pytest.mark.slow
def test_a_strategy_of_avalanche_is_evaluated_by_the_head(host):
    from avalanche.evaluation.metrics import accuracy_metrics
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    model = digit_network()
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        train_epochs=1,
        plugins=[HeadPlugin()],
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True)),
    )
    scenario = benchmark()
    for experience in scenario.train_stream:
        strategy.train(experience)
    (score,) = strategy.eval(scenario.test_stream).values()
    assert score > 0.85


@pytest.fixture(scope="module")
def host():
    return avalanche_or_skip()


def rows(keep):
    x, y = digits()
    chosen = np.flatnonzero(keep(np.arange(len(y)), y))
    return TensorDataset(
        torch.from_numpy(x[chosen]).float().reshape(-1, 1, 8, 8), torch.from_numpy(y[chosen])
    )


def as_data(tensors, task):
    from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute

    labels = tensors.tensors[1].tolist()
    columns = [
        DataAttribute(labels, "targets"),
        DataAttribute([task] * len(labels), "targets_task_labels", use_in_getitem=True),
    ]
    return AvalancheDataset([tensors], data_attributes=columns)


def benchmark():
    """Digits two at a time, a hundred rows each to train on and as many to test."""
    from avalanche.benchmarks import benchmark_from_datasets

    train = [as_data(rows(lambda row, y, t=t: (y // 2 == t) & (row < 700)), t) for t in range(5)]
    test = [as_data(rows(lambda row, y, t=t: (y // 2 == t) & (row >= 1300)), t) for t in range(5)]
    return benchmark_from_datasets(train=train, test=test)


def train_with(policy, size=50):
    """The share of all digits that is right after the last task, and the model."""
    from avalanche.training.plugins import ReplayPlugin
    from avalanche.training.supervised import Naive

    scenario = benchmark()
    model = digit_network()
    plugins = [] if policy is None else [ReplayPlugin(mem_size=size, storage_policy=policy)]
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=10,
        train_epochs=3,
        plugins=plugins,
        evaluator=None,
    )
    for experience in scenario.train_stream:
        strategy.train(experience)
    x, y = digits()
    with torch.no_grad():
        guess = model(torch.from_numpy(x[1300:]).float()).argmax(1).numpy()
    return float((guess == y[1300:]).mean())


POLICIES = {
    "moments": lambda: CoresetBuffer(50),
    "a share a task": lambda: CoresetBuffer(50, lambda n: ReplayMemory(n, KCenter("features"))),
    "reservoir": lambda: CoresetBuffer(50, "reservoir"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(POLICIES))
def test_the_replay_plugin_reduces_forgetting_with_each_memory(host, name):
    from avalanche.training.storage_policy import ExemplarsBuffer

    policy = POLICIES[name]()
    assert isinstance(policy, ExemplarsBuffer)
    assert train_with(policy) > 0.55 > train_with(None)
    assert 45 <= len(policy.buffer) <= 50
    # What is kept are the experiences' own items: images with their label and task.
    x, y = digits()
    known = {x[row].astype(np.float32).tobytes(): int(y[row]) for row in range(700)}
    for image, label, task in policy.buffer:
        assert known[image.numpy().tobytes()] == int(label)
        assert task == int(label) // 2
    assert {int(label) for _, label, _ in policy.buffer} == set(range(10))


@pytest.mark.slow
def test_buffer_and_memory_hold_the_same_rows(host):
    scenario = benchmark()
    policy = CoresetBuffer(20)
    for experience in scenario.train_stream:
        policy.post_adapt(None, experience)
        held = {image.numpy().ravel().tobytes() for image, *_ in policy.buffer}
        kept = policy.memory.snapshot().x.astype(np.float32)
        assert held == {row.tobytes() for row in kept}
    policy.resize(None, 8)
    assert len(policy.buffer) == len(policy.memory) == policy.max_size == 8
    assert {image.numpy().ravel().tobytes() for image, *_ in policy.buffer} <= held


@pytest.mark.slow
def test_a_saved_buffer_continues(host, tmp_path):
    first, second, *_ = benchmark().train_stream
    policy = CoresetBuffer(20)
    policy.post_adapt(None, first)
    torch.save(policy, tmp_path / "policy.pt")
    again = torch.load(tmp_path / "policy.pt", weights_only=False)
    for one in (policy, again):
        one.post_adapt(None, second)
    assert [label for _, label, _ in again.buffer] == [label for _, label, _ in policy.buffer]


@pytest.mark.slow
def test_the_old_call_is_the_new_one(host):
    class Strategy:
        experience = None

    scenario = benchmark()
    old, new = CoresetBuffer(20), CoresetBuffer(20)
    for experience in list(scenario.train_stream)[:2]:
        strategy = Strategy()
        strategy.experience = experience
        old.update(strategy, unused=1)
        new.post_adapt(None, experience)
    assert [label for _, label, _ in old.buffer] == [label for _, label, _ in new.buffer]


@pytest.mark.slow
def test_selection_strategy_inside_a_parametric_buffer(host):
    from avalanche.training.storage_policy import ParametricBuffer

    choice = CoresetSelection(30, BilevelSelector("linear", inner_reg=0.1))
    for group in ("class", "experience"):
        assert train_with(ParametricBuffer(50, group, choice)) > 0.55
    data = benchmark().train_stream[0].dataset
    order = choice.make_sorted_indices(None, data)
    assert sorted(order) == list(range(len(data)))
    x = np.stack([image.numpy().ravel() for image, *_ in data])
    y = np.array([int(label) for _, label, _ in data])
    direct = choice.selector.select(Dataset(x, y), 30, random_state=0)
    assert order[:30] == direct.indices.tolist()


@pytest.mark.slow
def test_methods_that_look_at_the_model_see_the_strategys(host):
    class Strategy:
        model = digit_network()

    data = benchmark().train_stream[0].dataset
    order = CoresetSelection(10, "icarl", model="strategy").make_sorted_indices(Strategy, data)
    assert sorted(order) == list(range(len(data)))
    refuses("model='strategy'", CoresetSelection(10, "icarl").make_sorted_indices, Strategy, data)
