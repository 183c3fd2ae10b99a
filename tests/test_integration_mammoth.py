"""The calls of Mammoth's rehearsal methods, in their order.

Mammoth is no package; the loops below ask a buffer for the same things with the same arguments as
its ER and DER++ do. With MAMMOTH=FOLDER, a checkout of it, its own models are trained as well.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bicore.integrations.mammoth import Buffer, HeadModel
from bicore.sources import digits
from bicore.streaming import Reservoir
from tests.helpers import digit_network, refuses

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


def noise(image):
    assert image.shape == (1, 8, 8)
    return image + 0.1 * torch.randn(image.shape)


def experience_replay(buffer):
    net = digit_network()
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
    net = digit_network()
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


@pytest.mark.slow
@pytest.mark.skipif("MAMMOTH" not in os.environ, reason="MAMMOTH names no checkout of Mammoth")
@pytest.mark.parametrize("model", ["er", "der", "derpp"])
def test_models_of_mammoth_remember(model):
    words = [sys.executable, "-m", "tests.mammoth", os.environ["MAMMOTH"], model]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    name, accuracy = found.stdout.split()[-2:]
    assert name == model
    assert float(accuracy) > 40  # 20 without a buffer: the last two of ten classes


def test_a_model_answers_by_the_head():
    class Head(HeadModel, nn.Module):
        num_classes = 12
        feature_map = "relu:128"

    model = Head()
    refuses("observe", model, torch.zeros(1, 1, 8, 8))
    for epoch in (0, 1):
        for inputs, labels, plain, _ in stream():
            assert model.observe(inputs, labels, plain, epoch=epoch) == 0.0
    assert model.memory.counted == 700
    assert not list(model.parameters())
    assert accuracy(lambda x: model(x.reshape(-1, 1, 8, 8))) > 0.85


@pytest.mark.parametrize("memory", ["moments", "reservoir", lambda n: Reservoir(n, random_state=3)])
def test_logits_and_task_labels_stay_with_their_examples(memory):
    buffer = Buffer(30, buffer=memory)
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


def test_absent_columns_have_no_attribute():
    buffer = Buffer(5)
    assert buffer.is_empty()
    assert not hasattr(buffer, "examples")
    refuses("empty", buffer.get_data, 3)
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    buffer.add_data(x, y)
    assert hasattr(buffer, "labels")
    assert not hasattr(buffer, "logits")
    assert len(buffer.get_all_data()) == 2
    assert 0 not in (buffer.get_data(5, mask_task_out=0, cpt=2)[1] // 2).tolist()
    refuses("cpt", buffer.get_data, 5, mask_task_out=0)
    refuses("attention_maps", buffer.add_data, x, y, attention_maps=[x])
    refuses("buffer_size", Buffer, 0)
    buffer.empty()
    assert buffer.is_empty()
    assert not hasattr(buffer, "examples")


def fill_buffer(size=20, **more):
    buffer = Buffer(size, **more)
    for _, labels, plain, task in stream(100):
        tasks = torch.full((len(plain),), task)
        logits = functional.one_hot(labels, 10).float()
        buffer.add_data(plain, labels, logits, tasks, true_labels=labels)
    return buffer


def test_values_written_into_a_tensor_stay_with_their_examples():
    buffer = fill_buffer()
    places, *_ = buffer.get_data(5, return_index=True)
    buffer.logits[places, :] = -1.0
    marked = buffer.examples[places]
    x, y = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    buffer.add_data(x, y, torch.zeros(3, 10), y, true_labels=y)
    for image, logits in zip(buffer.examples, buffer.logits, strict=True):
        known = any(torch.equal(image, one) for one in marked)
        assert bool((logits == -1).all()) == known
    refuses("same columns", buffer.add_data, x, y)


def test_a_new_size_is_kept_to():
    buffer = fill_buffer()
    buffer.buffer_size = 7
    assert len(buffer) == len(buffer.labels) == buffer.buffer_size == 7
    assert torch.equal(buffer.logits.argmax(1), buffer.labels)
    buffer.buffer_size = 30
    for _, labels, plain, task in stream(60):
        tasks = torch.full((len(plain),), task)
        buffer.add_data(plain, labels, torch.zeros(len(plain), 10), tasks, true_labels=labels)
    assert len(buffer) == 30
    assert buffer.is_full()
    endless = Buffer(-1, sample_selection_strategy="unlimited")
    endless.add_data(torch.rand(50, 3))
    endless.add_data(torch.rand(50, 3))
    assert len(endless) == 100
    assert not endless.is_full()
    refuses("sample_selection_strategy", Buffer, 5, sample_selection_strategy="best")


def test_the_other_calls_of_mammoth():
    buffer = fill_buffer(sample_selection_strategy="lars")
    buffer.sample_selection_fn.update(torch.arange(3), torch.rand(3))
    plain, augmented, labels, *_ = buffer.get_data(
        2, noise, return_not_aug=True, force_indexes=[3, 5]
    )
    assert torch.equal(plain, buffer.examples[[3, 5]])
    assert not torch.equal(plain, augmented)
    assert torch.equal(labels, buffer.labels[[3, 5]])
    few = buffer.get_balanced_data(4, n_classes=2)[1]
    assert sorted(torch.unique(few, return_counts=True)[1].tolist()) == [2, 2]
    image, *_ = buffer[3]
    assert torch.equal(image, buffer.examples[3])
    assert [int(item[1]) for item in buffer] == buffer.labels.tolist()
    loader = buffer.get_dataloader(None, 8, shuffle=True, transform=noise)
    assert sorted(int(one) for batch in loader for one in batch[1]) == sorted(
        buffer.labels.tolist()
    )

    class Batches:
        """A transform of kornia gets a batch."""

        def __call__(self, images):
            assert images.shape == (4, 1, 8, 8)
            return images + 1

    Batches.__module__ = "kornia.augmentation"
    assert buffer.get_data(4, Batches())[0].min() >= 1


def test_a_saved_buffer_and_a_checkpoint_go_on(tmp_path):
    buffer = fill_buffer()
    buffer.get_data(3)
    torch.save(buffer, tmp_path / "buffer.pt")
    again = torch.load(tmp_path / "buffer.pt", weights_only=False)
    read, loaded = Buffer(20), Buffer(20)
    read.load_state_dict(buffer.state_dict())
    for name, tensor in buffer.serialize().items():  # as mammoth loads what serialize gave
        setattr(loaded, name, tensor)
    for one in (buffer, again, read, loaded):
        x, y = torch.zeros(3, 1, 8, 8), torch.tensor([0, 1, 2])
        one.add_data(x, y, torch.zeros(3, 10), y, true_labels=y)
        assert len(one) == 20
    drawn = buffer.get_data(7)
    for other in (again, read):
        assert torch.equal(buffer.examples, other.examples)
        for one, same in zip(drawn, other.get_data(7), strict=True):
            assert torch.equal(one, same)
