"""Conformance tests of every buffer."""

import contextlib
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bicore import InputError
from bicore.errors import DamagedFileError
from bicore.runtime.context import Context
from bicore.streaming.buffer import Buffer
from tests.conformance.buffers import AVERAGED, BATCHED, CASES, CONFIGURATIONS, SLOTTED, load_buffer
from tests.conformance.selectors import network
from tests.helpers import find_classes, refuses
from tests.marks import except_slow

MODEL = Context(model=network())
CAPACITY = 6
#: Weights that are learnt anew at every merge: seconds.
SLOW = {"merge-reduce, learnt"}
#: Variants of others: looked at in one test here, in all of them by ``make test-all``.
LONG = {*SLOW, "merge-reduce, 1 slot", "moments, equal prior"}
NAMES = except_slow(CASES, SLOW)


def test_every_buffer_is_in_the_battery():
    assert find_classes(Buffer) == set(CONFIGURATIONS)


@pytest.fixture(params=except_slow(CASES, LONG))
def case(request):
    return request.param, CASES[request.param]


def stream(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=[0.7, 0.2, 0.1])
    return (
        rng.normal(size=(n, 4)) + np.eye(4)[y],
        y,
        rng.choice([0.0, 0.5, 1.0, 2.0], size=n, p=[0.1, 0.3, 0.3, 0.3]),
    )


def fill(make, x, y, weight=None, step=7, capacity=CAPACITY, seed=0, extra=None):
    buffer = make(capacity, seed)
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        buffer.update(
            x[part],
            None if y is None else y[part],
            None if weight is None else weight[part],
            extra=extra and {name: column[part] for name, column in extra.items()},
            model=MODEL,
        )
    return buffer


def assert_same(first, second) -> None:
    for name in ("x", "y", "weights", "ids"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@settings(max_examples=2)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 13), min_size=1, max_size=8))
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_stream_within_the_capacity_standing_for_all_of_it(name, seed, sizes):
    x, y, weight = stream(seed, sum(sizes))
    buffer = CASES[name](CAPACITY, seed)
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        buffer.update(x[part], y[part], weight[part], model=MODEL)
        start += size
        assert buffer.position == start
        assert len(buffer) <= CAPACITY
        counted = weight[:start][weight[:start] > 0]
        assert len(buffer) == min(len(counted), CAPACITY) or name in AVERAGED | SLOTTED
        assert len(buffer) > 0 or not len(counted)
        if not len(buffer):
            continue
        kept = buffer.snapshot()
        assert len(np.unique(kept.ids)) == len(kept)
        assert ((kept.ids >= 0) & (kept.ids < start)).all()
        assert (weight[kept.ids] > 0).all()
        assert kept.y.tolist() == y[kept.ids].tolist()
        assert (kept.weights > 0).all()
        assert kept.weights.sum() == pytest.approx(counted.sum())
        if name not in AVERAGED:
            np.testing.assert_array_equal(kept.x, x[kept.ids])


def test_a_snapshot_is_the_callers_own(case):
    _, make = case
    buffer = fill(make, *stream(1))
    first = buffer.snapshot()
    first.x[:] = 99.0
    first.y[:] = 7
    first.ids[:] = -1
    assert not (buffer.snapshot().x == 99).any()
    assert (buffer.snapshot().y != 7).all()
    assert (buffer.snapshot().ids >= 0).all()


def test_seeds_are_reproducible_and_inputs_and_global_state_unchanged(case):
    _, make = case
    given = stream(2)
    before = [column.copy() for column in given]
    np.random.seed(3)
    torch.manual_seed(3)
    first = fill(make, *given).snapshot()
    state = np.random.get_state()[1].copy()
    tensor_state = torch.get_rng_state()
    assert_same(first, fill(make, *given).snapshot())
    np.testing.assert_array_equal(state, np.random.get_state()[1])
    assert torch.equal(tensor_state, torch.get_rng_state())
    for old, new in zip(before, given, strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_cut_into_batches_does_not_matter(case):
    name, make = case
    if name in BATCHED:
        pytest.skip("the model is asked once a batch")
    x, y, weight = stream(3)
    whole = fill(make, x, y, weight, step=len(x))
    assert_same(whole.snapshot(), fill(make, x, y, weight, step=1).snapshot())
    assert_same(whole.snapshot(), fill(make, x, y, weight, step=13).snapshot())


def test_a_loaded_state_continues_identically(case, tmp_path):
    _, make = case
    x, y, weight = stream(4)
    whole = fill(make, x, y, weight, step=10)
    half = fill(make, x[:30], y[:30], weight[:30], step=10)
    half.save(tmp_path / "state.npz")
    again = load_buffer(half, tmp_path / "state.npz")
    assert_same(half.snapshot(), again.snapshot())
    for start in range(30, 60, 10):
        part = slice(start, start + 10)
        again.update(x[part], y[part], weight[part], model=MODEL)
    assert_same(whole.snapshot(), again.snapshot())
    assert again.position == 60


def test_an_empty_buffer_raises_clear_errors_and_can_be_saved(case, tmp_path):
    _, make = case
    buffer = make(3, 0)
    refuses("has seen no rows yet", buffer.snapshot)
    assert len(buffer) == 0
    buffer.save(tmp_path / "empty.npz")
    again = load_buffer(buffer, tmp_path / "empty.npz").update(*stream(1)[:2], model=MODEL)
    assert 1 <= len(again) <= 3


def test_batches_without_rows_or_without_weight_change_nothing_but_the_position(case):
    _, make = case
    buffer = fill(make, *stream(5))
    before = buffer.snapshot()
    buffer.update(np.empty((0, 4)), np.empty(0, dtype=int), model=MODEL)
    assert buffer.position == 60
    buffer.update(np.ones((3, 4)), [0, 1, 2], [0.0, 0.0, 0.0], model=MODEL)
    assert buffer.position == 63
    assert_same(before, buffer.snapshot())


def test_a_new_class_gets_room_at_any_time(case):
    name, make = case
    x, y, _ = stream(6)
    buffer = fill(make, x, np.minimum(y, 1))
    buffer.update(10 + x[:30], np.full(30, 2), model=MODEL)
    kept = buffer.snapshot()
    assert len(kept) == CAPACITY or name in SLOTTED
    assert set(kept.y.tolist()) <= {0, 1, 2}
    # two rows a slot have no room for every class
    if not name.startswith("gss") and name not in SLOTTED:
        assert 2 in kept.y


def test_string_labels_are_not_truncated(case):
    name, make = case
    if "gss" in name:
        names = ["a", "bb", "longer name"]
        context = Context(MODEL.model, classes=names)
        buffer = make(CAPACITY, 0)
        for start in range(0, 60, 7):  # batches that lack some of the classes
            part = slice(start, start + 7)
            buffer.update(stream(7)[0][part], np.array(names)[stream(7)[1][part]], model=context)
        assert set(buffer.snapshot().y.tolist()) <= set(names)
        return
    x, y, _ = stream(7)
    buffer = make(CAPACITY, 0).update(x, np.array(["a", "bb", "c"])[y], model=MODEL)
    buffer.update(x[:20] + 5, ["a much longer name"] * 20, model=MODEL)
    assert set(buffer.snapshot().y.tolist()) <= {"a", "bb", "c", "a much longer name"}


REFUSED = {
    "rows of shape": lambda x, y: (x[:, :3], y, None),
    "labels": lambda x, y: (x, None, None),
    "one value per row": lambda x, y: (x, y[:-1], None),
    "nan": lambda x, y: (np.where(np.arange(4) == 2, np.nan, x), y, None),
    "one kind": lambda x, y: (x, y.astype(str), None),
    "negative": lambda x, y: (x, y, -np.ones(len(x))),
    "extra has the columns": lambda x, y: (x, y, None, {"logits": logits(x)}),
}


def test_a_refused_batch_changes_nothing(case):
    _, make = case
    x, y, weight = stream(8)
    buffer, other = (fill(make, x, y, weight) for _ in range(2))
    for words, change in REFUSED.items():
        x_, y_, weight_, *extra = change(x, y)
        with pytest.raises(InputError, match=words):
            buffer.update(x_, y_, weight_, extra=extra[0] if extra else None, model=MODEL)
        assert buffer.position == other.position
    buffer.update(x, y, model=MODEL)
    other.update(x, y, model=MODEL)
    assert_same(buffer.snapshot(), other.snapshot())


def test_missing_requirements_are_named(case):
    _, make = case
    buffer = make(3, 0)
    x, y, _ = stream(9)
    if buffer.needs_model:
        refuses(f"^{re.escape(buffer.name)} needs a network", buffer.update, x, y)
    if buffer.needs_labels:
        refuses(f"^{re.escape(buffer.name)} needs labels", buffer.update, x, model=MODEL)
    else:
        assert 1 <= len(buffer.update(x)) <= 3


def test_capacity_seed_and_foreign_files_are_checked(case, tmp_path):
    _, make = case
    for wrong in (0, -1, 2.5, True):
        refuses("capacity", make, wrong, 0)
    refuses("random_state", make, 3, -1)
    drawn = [make(3, np.random.default_rng(1)).random_state for _ in range(2)]
    assert drawn[0] == drawn[1] != make(3, None).random_state
    assert type(make(3, np.random.RandomState(1)).random_state) is int
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    refuses("not a state file", load_buffer, make(3, 0), tmp_path / "other.npz")
    other = next(kind for kind in CONFIGURATIONS if kind is not type(make(3, 0)))
    other(3).save(tmp_path / "kind.npz")
    refuses("reads only its own", load_buffer, make(3, 0), tmp_path / "kind.npz")


def test_every_flipped_byte_and_every_cut_is_noticed(case, tmp_path):
    _, make = case
    buffer = fill(make, *stream(11))
    buffer.save(tmp_path / "state.npz")
    whole = (tmp_path / "state.npz").read_bytes()
    rng = np.random.default_rng(0)
    # where the archive's reader raises the most kinds of errors
    directory = whole.index(b"PK\x01\x02")
    places = [(int(place), int(rng.integers(8))) for place in rng.integers(len(whole), size=10)]
    places += [(place, place % 8) for place in range(directory, directory + 20)]
    for place, bit in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        (tmp_path / "state.npz").write_bytes(bytes(damaged))
        # else the bit means nothing, such as one of a date: the state is the same
        with contextlib.suppress(DamagedFileError):
            assert_same(load_buffer(buffer, tmp_path / "state.npz").snapshot(), buffer.snapshot())
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (tmp_path / "state.npz").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"state\.npz is not a state file, or it is damaged"):
            load_buffer(buffer, tmp_path / "state.npz")


@pytest.mark.slow
@pytest.mark.parametrize("batches", [400])
def test_memory_does_not_grow_with_the_stream(case, batches):
    name, make = case
    if name in SLOTTED or "gss" in name:
        batches //= 4
    buffer = make(CAPACITY, 0)
    rng = np.random.default_rng(0)
    for _ in range(batches):
        buffer.update(rng.normal(size=(3, 4)), rng.integers(3, size=3), model=MODEL)
    assert len(buffer) == CAPACITY or (name in SLOTTED and len(buffer) <= CAPACITY)
    assert buffer.snapshot().weights.sum() == pytest.approx(3 * batches)


def test_mark_is_loaded_with_the_state(case, tmp_path):
    _, make = case
    buffer = fill(make, *stream(12))
    assert buffer.mark == {}
    buffer.mark = {"batch": 7, "rows": "a digest", "parts": [1, {"of": None}]}
    buffer.save(tmp_path / "state.npz")
    again = load_buffer(buffer, tmp_path / "state.npz")
    assert again.mark == buffer.mark
    refuses("rows of shape", again.update, np.ones((2, 3)), [0, 1], model=MODEL)
    assert again.mark == buffer.mark
    for wrong in ({"rows": {1, 2}}, {1: "a key that comes back as text"}):
        buffer.mark = wrong
        refuses(
            r"mark=.* is not a JSON object; use text as keys", buffer.save, tmp_path / "state.npz"
        )


def test_buffers_list_configuration_differences(case):
    _, make = case
    own = make(CAPACITY, 0)
    assert own.list_differences(fill(make, *stream(12))) == []
    assert own.list_differences(make(CAPACITY + 1, 2)) == ["capacity", "random_state"]
    for kind, configurations in CONFIGURATIONS.items():
        other = next(iter(configurations.values()))(CAPACITY, 1)
        if kind is not type(own):
            assert own.list_differences(other)[:2] == ["buffer", "random_state"]


def logits(x: np.ndarray) -> np.ndarray:
    """A function of the row that also holds for averages of rows."""
    return x @ np.arange(8.0).reshape(4, 2) - 3


def extras(name: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that say which row of the stream they belong to."""
    found = {"logits": logits(x)}
    if name not in AVERAGED:
        found |= {"place": np.arange(len(x)), "word": np.array([f"row {k}" for k in range(len(x))])}
    return found


def assert_rows_match(name: str, kept) -> None:
    """Rows and their extra columns have not come apart."""
    np.testing.assert_allclose(kept.extra["logits"], logits(kept.x), rtol=1e-12, atol=1e-12)
    if name not in AVERAGED:
        assert kept.extra["place"].tolist() == kept.ids.tolist()
        assert kept.extra["word"].tolist() == [f"row {k}" for k in kept.ids]


def test_rows_and_their_extra_columns_never_come_apart(case, tmp_path):
    name, make = case
    x, y, weight = stream(13)
    extra = extras(name, x)
    buffer = make(CAPACITY, 0)
    for start in range(0, 60, 5):
        part = slice(start, start + 5)
        # names in another order are the same names
        columns = {key: extra[key][part] for key in sorted(extra, reverse=start % 2 == 0)}
        buffer.update(x[part], y[part], weight[part], extra=columns, model=MODEL)
        assert_rows_match(name, buffer.snapshot())
        if start == 25:
            buffer.save(tmp_path / "state.npz")
            buffer = load_buffer(buffer, tmp_path / "state.npz")
            assert_rows_match(name, buffer.snapshot())
    plain = fill(make, x, y, weight, step=5)
    assert_same(plain.snapshot(), buffer.snapshot())  # they decide nothing
    assert plain.snapshot().extra is None


def test_extra_columns_of_a_snapshot_are_the_callers_own_and_keep_their_kind(case):
    _, make = case
    x, y, _ = stream(14)
    column = logits(x).astype(np.float32)
    buffer = fill(make, x, y, extra={"logits": column})
    kept = buffer.snapshot()
    assert kept.extra["logits"].dtype == np.float32
    kept.extra["logits"][:] = 99
    column[:] = 99
    np.testing.assert_allclose(buffer.snapshot().extra["logits"], logits(kept.x), rtol=1e-5)


UNFIT = {
    "extra has the columns .*'logits'.*; give the same": None,
    "extra has the columns .*'depth'.*'logits'": {"depth": np.ones(60)},
    r"extra\['logits'\] holds .* \(3,\), and before .*\(2,\)": {"logits": np.ones((60, 3))},
    r"extra\['logits'\] has 59 rows and x has 60": {"logits": np.ones((59, 2))},
    r"extra\['logits'\] holds inf at row 0, column 0": {"logits": np.full((60, 2), np.inf)},
    r"extra\['logits'\].*(one kind|give floats)": {"logits": np.full((60, 2), "a")},
    "complex128; give numbers": {"logits": np.full((60, 2), 1j)},
    "the column 'sample_weight'": {"sample_weight": np.ones(60)},
    "the column 'a b'": {"a b": np.ones(60)},
    "extra must be a mapping": [1, 2],
}


def test_extra_columns_that_do_not_fit_are_named_and_change_nothing(case):
    _, make = case
    x, y, weight = stream(15)
    buffer, other = (fill(make, x, y, weight, extra={"logits": logits(x)}) for _ in range(2))
    for words, extra in UNFIT.items():
        refuses(words, buffer.update, x, y, extra=extra, model=MODEL)
        assert buffer.position == other.position
    for one in (buffer, other):
        one.update(x, y, extra={"logits": logits(x)}, model=MODEL)
    assert_same(buffer.snapshot(), other.snapshot())
    assert_rows_match("prototypes", buffer.snapshot())


def test_a_failure_in_the_middle_puts_everything_back(case, monkeypatch):
    name, make = case
    x, y, weight = stream(17)
    buffer, other = (fill(make, x, y, weight, extra=extras(name, x)) for _ in range(2))
    take = type(buffer)._process_batch

    def interrupt(self, batch, context):
        take(self, batch, context)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(buffer), "_process_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        buffer.update(x + 1, y, extra=extras(name, x + 1), model=MODEL)
    monkeypatch.undo()
    assert_rows_match(name, buffer.snapshot())
    for one in (buffer, other):
        one.update(x, y, extra=extras(name, x), model=MODEL)
    assert_same(buffer.snapshot(), other.snapshot())


def test_the_rehearsal_loss_is_the_weighted_mean_over_the_rows_kept(case):
    _, make = case
    x, y, weight = stream(18)
    model = torch.nn.Linear(4, 3).double()
    criterion = torch.nn.CrossEntropyLoss()
    assert make(CAPACITY, 0).loss(model, criterion).item() == 0
    buffer = fill(make, x, y, weight)
    for move in (10, 20):  # the loss follows an update
        kept = buffer.snapshot()
        losses = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(kept.x)), torch.from_numpy(kept.y), reduction="none"
        )
        expected = np.average(losses.detach().numpy(), weights=kept.weights)
        assert buffer.loss(model, criterion, beta=0.5).item() == pytest.approx(0.5 * expected)
        assert sum(len(part[0]) for part in buffer.loader(4)) == len(buffer)
        buffer.update(move + x, y, weight, model=MODEL)
