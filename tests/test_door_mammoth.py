"""The calls that mammoth's rehearsal methods make of their buffer, in the order they make them.

Mammoth is no package; the loops below ask a buffer for the same things with the same arguments as
its ER and DER++ do.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bicore import InputError
from bicore.integrations.mammoth import Buffer
from bicore.sources import digits
from bicore.streaming import Reservoir

BATCH = 10


def stream(first=700):
    """Digits two at a time, in batches of (augmented, labels, as they are, task)."""
    x, y = digits()
    for task in range(5):
        own = np.flatnonzero((y[:first] // 2) == task)
        for start in range(0, len(own), BATCH):
            rows = own[start : start + BATCH]
            plain = torch.from_numpy(x[rows]).float().reshape(-1, 1, 8, 8)
            yield plain + 0.1 * torch.randn(plain.shape), torch.from_numpy(y[rows]), plain, task


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))


def noise(image):
    assert image.shape == (1, 8, 8)
    return image + 0.1 * torch.randn(image.shape)


def experience_replay(buffer):
    net = network()
    steps = torch.optim.SGD(net.parameters(), lr=0.3)
    for inputs, labels, plain, _ in stream():
        real = len(inputs)
        steps.zero_grad()
        if not buffer.is_empty():
            old, old_labels = buffer.get_data(BATCH, transform=noise, device="cpu")
            inputs = torch.cat((inputs, old))
            labels = torch.cat((labels, old_labels))
        functional.cross_entropy(net(inputs), labels).backward()
        steps.step()
        buffer.add_data(examples=plain, labels=labels[:real])
    return net


def dark_experience_replay(buffer):
    net = network()
    steps = torch.optim.SGD(net.parameters(), lr=0.3)
    for inputs, labels, plain, _ in stream():
        steps.zero_grad()
        outputs = net(inputs)
        functional.cross_entropy(outputs, labels).backward()
        if not buffer.is_empty():
            old, _, logits = buffer.get_data(BATCH, transform=noise, device="cpu")
            (0.3 * functional.mse_loss(net(old), logits)).backward()
            old, old_labels, _ = buffer.get_data(BATCH, transform=noise, device="cpu")
            (0.5 * functional.cross_entropy(net(old), old_labels)).backward()
        steps.step()
        buffer.add_data(examples=plain, labels=labels, logits=outputs.data)
    return net


def accuracy(net):
    x, y = digits()
    with torch.no_grad():
        guess = net(torch.from_numpy(x[1300:]).float()).argmax(1).numpy()
    return float((guess == y[1300:]).mean())


class Nothing:
    """A buffer that forgets."""

    def is_empty(self):
        return True

    def add_data(self, **columns):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("train", [experience_replay, dark_experience_replay])
def test_rehearsal_methods_run_and_remember(train):
    buffer = Buffer(50, "cpu")
    net = train(buffer)
    assert accuracy(net) > 0.35 > 0.2 > accuracy(train(Nothing()))
    x, y = digits()
    known = {x[row].astype(np.float32).tobytes(): int(y[row]) for row in range(700)}
    images, labels, *_ = buffer.get_all_data()
    assert len(images) == len(buffer) == 50
    assert set(labels.tolist()) == set(range(10))
    for image, label in zip(images, labels, strict=True):
        assert known[image.numpy().tobytes()] == int(label)


@pytest.mark.parametrize("memory", ["moments", "reservoir", lambda n: Reservoir(n, random_state=3)])
def test_logits_and_task_labels_stay_with_their_examples(memory):
    buffer = Buffer(30, memory=memory)
    for _, labels, plain, task in stream(200):
        logits = plain.flatten(1)[:, 20:25]  # so that they say which example they belong to
        tasks = torch.full((len(plain),), task)
        buffer.add_data(examples=plain, labels=labels, logits=logits, task_labels=tasks)
    assert buffer.used_attributes == ["examples", "labels", "logits", "task_labels"]
    assert buffer.num_seen_examples == 200
    for images, labels, logits, tasks in (buffer.get_data(12), buffer.get_all_data()):
        assert images.dtype == logits.dtype == torch.float32
        assert labels.dtype == tasks.dtype == torch.int64
        assert torch.equal(images.flatten(1)[:, 20:25], logits)
        assert torch.equal(labels // 2, tasks)
    *_, others = buffer.get_data(30, mask_task_out=2)
    assert 2 not in others.tolist()
    index, *drawn = buffer.get_data(5, return_index=True)
    for one, other in zip(drawn, buffer.get_data_by_index(index), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(buffer.examples[index], drawn[0])
    assert len(set(index.tolist())) == 5
    assert len(buffer.get_data(1000)[0]) == 30


def test_what_is_not_given_is_not_there():
    buffer = Buffer(5)
    assert buffer.is_empty()
    assert not hasattr(buffer, "examples")
    with pytest.raises(InputError, match="empty"):
        buffer.get_data(3)
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    buffer.add_data(x, y)
    assert hasattr(buffer, "labels")
    assert not hasattr(buffer, "logits")
    assert len(buffer.get_all_data()) == 2
    assert 0 not in (buffer.get_data(5, mask_task_out=0, cpt=2)[1] // 2).tolist()
    with pytest.raises(InputError, match="cpt"):
        buffer.get_data(5, mask_task_out=0)
    with pytest.raises(InputError, match="attention_maps"):
        buffer.add_data(x, y, attention_maps=[x])
    with pytest.raises(InputError, match="buffer_size"):
        Buffer(0)
    buffer.empty()
    assert buffer.is_empty()
    assert not hasattr(buffer, "examples")


def test_a_checkpoint_goes_on():
    batches = list(stream(100))
    first = Buffer(20)
    for _, labels, plain, _ in batches[:9]:
        first.add_data(plain, labels)
    first.get_data(3)
    again = Buffer(20)
    again.load_state_dict(first.state_dict())
    for buffer in (first, again):
        buffer.add_data(batches[9][2], batches[9][1])
    for one, other in zip(first.get_data(7), again.get_data(7), strict=True):
        assert torch.equal(one, other)
