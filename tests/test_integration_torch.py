"""PyTorch data sets and loaders as input, and positions in them as result."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

import bicore
from bicore import Coreset, Dataset, MemoryLimitError, Runtime, TimeLimitError
from bicore.integrations.torch import WeightedSubset, select_from, weighted_sampler
from bicore.networks import observe
from bicore.sources import digits
from tests.helpers import blobs, fails, refuses

OPTIONS = {"kernel": "linear", "inner_reg": 0.1}


def images(n=120):
    x, y = digits()
    return torch.from_numpy(x[:n]).float().reshape(-1, 1, 8, 8), torch.from_numpy(y[:n])


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))


def select_by_hand(n=120, size=8):
    """What selecting from the penultimate layer by hand gives."""
    x, y = images(n)
    with torch.no_grad():
        rows = network()[:3](x).numpy()
    return bicore.select(rows, y.numpy(), size, **OPTIONS).indices.tolist()


class Counting(torch.utils.data.Dataset):
    """Items as a function makes them; counts what is read at once and in all."""

    def __init__(self, make, n=120):
        self.x, self.y = images(n)
        self.make = make
        self.read = []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        self.read.append(row)
        return self.make(self.x[row], int(self.y[row]), row)


def test_indices_refer_to_the_data_set_for_any_loader():
    rows = TensorDataset(*images())
    found = select_from(rows, 8, model=network(), **OPTIONS)
    assert found.indices.tolist() == select_by_hand()
    assert found.info["embedding_columns"] == 20
    shuffled = DataLoader(rows, batch_size=7, shuffle=True, drop_last=True)
    assert select_from(shuffled, 8, model=network(), **OPTIONS).indices.tolist() == select_by_hand()
    part = Subset(rows, range(60, 120))
    inside = select_from(part, 8, model=network(), **OPTIONS).indices
    assert inside.max() < 60


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (lambda x, y, row: (x, y, f"{row}.png", object()), {}),
        (lambda x, y, row: {"image": x, "label": y, "path": object()}, {}),
        (lambda x, y, row: {"id": row, "scan": x, "kind": y}, {"x": "scan", "y": "kind"}),
        (lambda x, y, row: (row, y, x), {"x": 2}),
        (lambda x, y, row: (x.numpy(), np.int64(y)), {}),
    ],
)
def test_items_of_every_form(make, fields):
    rows = Counting(make)
    found = select_from(rows, 8, model=network(), **fields, **OPTIONS)
    assert found.indices.tolist() == select_by_hand()
    # the first item is looked at before; then every row once
    assert sorted(rows.read[1:]) == list(range(120))


def test_transforms_make_tensors_of_items():
    rows = Counting(lambda x, y, row: (("picture", x), y))
    found = select_from(rows, 8, model=network(), transform=lambda pair: pair[1] / 1, **OPTIONS)
    assert found.indices.tolist() == select_by_hand()
    strange = Counting(lambda x, y, row: (object(), y))
    refuses("give a transform", select_from, strange, 8, model=network())
    uneven = Counting(lambda x, y, row: (x[:, : 4 + row % 2], y))
    refuses("cannot be combined", select_from, uneven, 8, model=network())


def test_random_transforms_repeat_and_leave_the_generator_alone():
    def noisy(x, y, row):
        return x + torch.randn(x.shape), y

    model = network()
    before = torch.get_rng_state()
    first = select_from(Counting(noisy), 8, model=model, **OPTIONS)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(5)
    again = select_from(Counting(noisy), 8, model=model, **OPTIONS)
    other = select_from(Counting(noisy), 8, model=model, random_state=1, **OPTIONS)
    assert first.indices.tolist() == again.indices.tolist() != other.indices.tolist()


def test_only_a_batch_is_held_and_the_model_stays_as_it_was():
    sizes = []

    class Watched(nn.Sequential):
        def forward(self, x):
            sizes.append(len(x))
            assert not self.training
            return super().forward(x)

    model = Watched(*network())
    model.train()
    rows = Counting(lambda x, y, row: (x, y))
    select_from(rows, 8, model=model, batch_size=50, **OPTIONS)
    assert sizes == [50, 50, 20]
    assert model.training
    assert not model[1]._forward_hooks


@pytest.mark.slow
def test_workers_read_the_same():
    rows = TensorDataset(*images())
    found = select_from(rows, 8, model=network(), workers=2, **OPTIONS)
    assert found.indices.tolist() == select_by_hand()


def test_layers_encoders_and_vectors():
    rows = TensorDataset(*images())
    encoder = network()[:3]
    assert select_from(rows, 8, model=encoder, **OPTIONS).indices.tolist() == select_by_hand()
    named = select_from(rows, 8, model=network(), layer="2", **OPTIONS)
    assert named.indices.tolist() == select_by_hand()
    logits = select_from(rows, 8, model=network(), layer="", **OPTIONS)
    assert logits.info["embedding_columns"] == 10
    log_softmax = nn.Sequential(*network(), nn.LogSoftmax(1))
    assert select_from(rows, 8, model=log_softmax, **OPTIONS).indices.tolist() == select_by_hand()
    x, y = images()
    plain = select_from(TensorDataset(x.flatten(1), y), 8, **OPTIONS)
    flat = x.flatten(1).numpy()
    assert plain.indices.tolist() == bicore.select(flat, y.numpy(), 8, **OPTIONS).indices.tolist()
    refuses("give model=", select_from, rows, 8)
    refuses("needs a model", select_from, rows, 8, layer="2")
    refuses("layer", select_from, rows, 8, model=network(), layer="head")


def test_methods_that_look_at_the_model_see_the_same_pass():
    x, y = images()
    rows = TensorDataset(x, y)
    for method in ("k-center-embedding", "max-entropy", "craig"):
        found = select_from(rows, 8, model=network(), method=method).indices
        direct = bicore.select(x.numpy(), y.numpy(), 8, model=network(), method=method).indices
        assert found.tolist() == direct.tolist(), method
    refuses("needs all rows in memory", select_from, rows, 8, model=network(), method="batchbald")


def test_outer_sets_weights_and_folders(tmp_path):
    x, y = images()
    model = network()
    heavy = Counting(lambda a, b, row: (a, b, float(row < 60)))
    assert select_from(heavy, 8, model=model, sample_weight=2, **OPTIONS).indices.max() < 60
    first, last = TensorDataset(x[:60], y[:60]), TensorDataset(x[60:], y[60:])
    judged = select_from(first, 8, model=model, outer=last, **OPTIONS)
    rows = model[:3](x).detach().numpy()
    labels = y.numpy()
    direct = bicore.select(rows[:60], labels[:60], 8, outer=(rows[60:], labels[60:]), **OPTIONS)
    assert judged.indices.tolist() == direct.indices.tolist()
    options = {"model": model, "folder": tmp_path / "rows", "batch_size": 20}
    on_disk = select_from(TensorDataset(x, y), 8, **options)
    assert len(on_disk) == 8
    assert sorted(path.name for path in (tmp_path / "rows").glob("?-*.npy"))[0] == "x-00000.npy"
    rows_again = Counting(lambda a, b, row: (a, b))
    again = select_from(rows_again, 8, **options)
    assert again.indices.tolist() == on_disk.indices.tolist()
    assert rows_again.read == [0, *range(20)]  # embedded before: only the first batch is compared
    with pytest.raises(MemoryLimitError, match="folder="):
        select_from(rows_again, 8, model=model, runtime=Runtime(memory=1000))
    for folder in (None, tmp_path / "late"):
        late = {"model": model, "folder": folder, "runtime": Runtime(max_seconds=1e-9)}
        fails(TimeLimitError, "rows were embedded", select_from, rows_again, 8, **late)
    refuses("folder= stores", select_from, rows_again, 8, method="max-entropy", **options)
    refuses("workers must be", select_from, rows_again, 8, workers=-1)


class Endless(IterableDataset):
    def __iter__(self):
        raise AssertionError("read")


def test_loaders_without_indices_are_refused():
    rows = TensorDataset(*images())
    for data, words in (
        (Endless(), "no row positions"),
        (DataLoader(rows, sampler=torch.utils.data.SubsetRandomSampler([1, 2])), "Subset"),
        (
            DataLoader(rows, sampler=torch.utils.data.RandomSampler(rows, replacement=True)),
            "Subset",
        ),
        (DataLoader(rows, batch_size=None), "Subset"),
        (TensorDataset(torch.ones(0, 3)), "no rows"),
        (Counting(lambda x, y, row: {"scan": x}), "'scan'"),
    ):
        refuses(words, select_from, data, 3, model=network())
    refuses("y=5", select_from, rows, 3, model=network(), y=5)
    refuses("y='kind'", select_from, Counting(lambda x, y, row: {"x": x}), 3, y="kind")


class Unread(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, row):
        raise AssertionError("read")


@pytest.mark.parametrize(
    "data", [Unread(), DataLoader(Unread()), Endless()], ids=["data set", "loader", "endless"]
)
@pytest.mark.parametrize(
    "call", [bicore.select, bicore.estimate, bicore.reweight, bicore.influence, bicore.worth]
)
def test_arrays_only_calls_refuse_torch_data_before_reading(call, data):
    refuses("select_from", call, data, None, [1])


def test_unused_model_is_an_error():
    x, y = digits()
    for method in ("bilevel", "uniform", "k-center-features"):
        refuses("model=", bicore.select, x[:50], y[:50], 5, method=method, model=nn.Linear(64, 10))


def test_images_that_do_not_fit_the_network_are_refused():
    x, y = images(20)
    colours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 10))
    refuses("the model cannot read rows", select_from, TensorDataset(x, y), 5, model=colours)


def test_observe_takes_tensors_data_sets_and_loaders():
    x, y = images(50)
    model = network()
    by_array = observe(model, x.numpy())
    for given in (
        x,
        TensorDataset(x, y),
        DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True),
    ):
        found = observe(model, given)
        assert torch.allclose(found.embedding, by_array.embedding, atol=1e-5)
        assert torch.allclose(found.outputs, by_array.outputs, atol=1e-5)


def test_a_loaders_own_collate_function_is_kept():
    rows = Counting(lambda x, y, row: {"a": x, "b": y})

    def collate(items):
        return {"x": torch.stack([one["a"] for one in items]), "y": [one["b"] for one in items]}

    loader = DataLoader(rows, batch_size=32, collate_fn=collate)
    assert select_from(loader, 8, model=network(), **OPTIONS).indices.tolist() == select_by_hand()
    refuses("collate_fn", select_from, loader, 8, model=network(), transform=torch.relu)
    loader = DataLoader(rows, batch_size=32, collate_fn=lambda items: collate(items[:20]))
    refuses("20 rows of 32 items", select_from, loader, 8, model=network())


def test_weighted_sampler_draws_by_weight():
    picked = Coreset(np.array([7, 2, 5]), np.array([1.0, 0.0, 3.0]))
    draws = list(weighted_sampler(picked, n_rows=10, draws=4000, random_state=0))
    counts = np.bincount(draws, minlength=10)
    assert counts[[7, 5]].sum() == 4000
    assert counts[5] / 4000 == pytest.approx(0.75, abs=0.03)
    inside = list(weighted_sampler(picked, random_state=np.random.default_rng(1)))
    assert len(inside) == 3
    assert set(inside) <= {0, 2}
    x, y = images(10)
    loader = DataLoader(TensorDataset(x, y), batch_size=3, sampler=weighted_sampler(picked, 10))
    assert len(next(iter(loader))[0]) == 3
    refuses("index 7", weighted_sampler, picked, n_rows=7)
    refuses("draws must be", weighted_sampler, picked, draws=0)
    refuses("item of source", WeightedSubset(x, picked).__getitem__, 0)


def test_weighted_subset_of_dicts_keeps_their_fields():
    rows = Counting(lambda x, y, row: {"image": x, "label": y, "row": row})
    item = WeightedSubset(rows, Coreset(np.array([4, 2]), np.array([1.0, 3.0])))[1]
    assert sorted(item) == ["image", "label", "row", "weight"]
    assert item["row"] == 2
    assert float(item["weight"]) == 3.0
    own = Counting(lambda x, y, row: {"image": x, "weight": 1.0})
    refuses("'weight'", WeightedSubset(own, Coreset(np.array([4]))).__getitem__, 0)


def memories():
    """Every memory, made anew; the selector of a memory is quick."""
    from bicore.methods import KCenter
    from bicore.streaming import BUFFERS, JointReplay, ReplayMemory
    from bicore.streaming.registry import build_buffer

    made = {
        name: lambda name=name: build_buffer(
            name, 12, **({"selector": KCenter("features")} if name == "merge-reduce" else {})
        )
        for name, kind in BUFFERS.items()
        if not kind.needs_model
    }
    made["replay"] = lambda: ReplayMemory(12, KCenter("features"))
    made["joint"] = lambda: JointReplay(12)
    return made


def list_rows(memory):
    """Everything a user sees of what is kept."""
    parts = memory.tasks if hasattr(memory, "tasks") else [memory.snapshot()]
    return [
        [
            column.tolist()
            for column in (rows.x, rows.y, rows.weights, rows.ids, *(rows.extra or {}).values())
        ]
        for rows in parts
    ]


def shown_rows(start, stop):
    x, y = digits()
    names = [f"row {row}" for row in range(start, stop)]
    return [
        {"image": torch.from_numpy(x[row]).float(), "label": int(y[row]), "file": name}
        for row, name in zip(range(start, stop), names, strict=True)
    ]


class Dicts(torch.utils.data.Dataset):
    def __init__(self, start, stop):
        self.rows = shown_rows(start, stop)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


@pytest.mark.parametrize("name", list(memories()))
def test_memories_go_on_from_a_state_dict(name, tmp_path):
    make = memories()[name]
    one, other = Dicts(0, 60), Dicts(60, 130)
    first = make()
    extra = {} if name == "prototypes" else {"name": "file"}  # which averages, and text has no mean
    first.observe(DataLoader(one, batch_size=25), extra=extra)
    state = first.state_dict()
    torch.save({"memory": state}, tmp_path / "checkpoint.pt")
    read = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["memory"]
    again = make()
    again.load_state_dict(read)
    assert list_rows(again) == list_rows(first)
    for memory in (first, again):
        memory.observe(other, extra=extra)
    assert list_rows(again) == list_rows(first)
    third = make()
    third.load_state_dict(state)  # a copy: what came later changed nothing in it
    assert list_rows(third) != list_rows(first)
    for wrong in (
        {},
        {"head": "{}"},
        {**state, "head": state["head"].replace('"random_state": 0', '"random_state": 1')},
    ):
        before = list_rows(third)
        refuses("state", third.load_state_dict, wrong)
        assert list_rows(third) == before
    missing = {key: value for key, value in state.items() if not key.startswith(("ids", "weight"))}
    refuses("state is not complete", third.load_state_dict, missing)
    assert list_rows(third) == before


def test_state_is_a_copy_and_is_loaded_completely_or_not_at_all():
    memory = memories()["reservoir"]()
    memory.observe(images(60))
    before = list_rows(memory)
    state = memory.state_dict()
    state["x"].zero_()
    assert list_rows(memory) == before
    # The rows are complete, but the reservoir's own state is missing.
    other = memories()["reservoir"]().observe(images(30)).state_dict()
    del other["priorities"]
    refuses("state is not complete", memory.load_state_dict, other)
    assert list_rows(memory) == before


def test_a_state_of_another_memory_is_refused():
    made = memories()
    state = made["reservoir"]().observe(images(20)).state_dict()
    for name in ("class-balanced", "replay", "joint"):
        refuses("state", made[name]().load_state_dict, state)


def test_orders_of_a_replay_loader_go_on():
    from bicore.methods import Uniform
    from bicore.streaming import JointReplay, ReplayMemory

    for make in (lambda: ReplayMemory(12, Uniform()), lambda: JointReplay(12)):
        first, again = make(), make()
        first.observe(images(60))
        next(first.loader(3))
        again.load_state_dict(first.state_dict())
        assert torch.equal(next(first.loader(3))[0], next(again.loader(3))[0])


def test_observing_batches_is_updating_by_them():
    from bicore.streaming import Reservoir

    x, y = images(60)
    by_hand = Reservoir(7)
    for start in range(0, 60, 25):
        by_hand.update(x[start : start + 25], y[start : start + 25])
    loader = DataLoader(TensorDataset(x, y), batch_size=25)
    for given in (loader, TensorDataset(x, y), (x, y)):
        assert (
            Reservoir(7).observe(given).snapshot().ids.tolist() == by_hand.snapshot().ids.tolist()
        )
    assert Reservoir(7).observe(x).snapshot().y is None
    refuses("'logits'", Reservoir(7).observe, loader, extra={"logits": "logits"})


def test_weighted_subset_feeds_a_loader():
    x, y = digits()
    how = {"kernel": "rbf", "inner_reg": 0.1, "weighting": "final"}
    coreset = bicore.select(x[:200], y[:200], size=10, **how)
    tensors = TensorDataset(torch.from_numpy(x[:200]).float(), torch.from_numpy(y[:200]))
    subset = WeightedSubset(tensors, coreset, normalise=True)
    inputs, labels, weights = next(iter(DataLoader(subset, batch_size=10)))
    assert inputs.shape == (10, 64)
    assert labels.tolist() == y[coreset.indices].tolist()
    assert weights.mean() == pytest.approx(1.0)
    assert weights.dtype == torch.float32


def test_weighted_subset_of_a_bicore_dataset():
    data = Dataset(blobs().x, np.array(["a", "b", "c"])[blobs().y])
    x, label, weight = WeightedSubset(data, Coreset(np.array([4, 2])))[1]
    assert x.dtype == torch.float32
    assert label == "c"
    assert float(weight) == 1.0
    refuses("beyond the 40 rows", WeightedSubset, data, Coreset(np.array([40])))
    unlabelled = Dataset(blobs().x)
    refuses("no labels", WeightedSubset(unlabelled, Coreset(np.array([4]))).__getitem__, 0)
